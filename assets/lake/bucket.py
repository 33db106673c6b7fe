"""A bucket as a file system: s3fs, made patient, plain in its errors, and sparing with requests.

Every path of a lake on s3://, pyarrow and DuckDB go through it. It never makes a bucket, never believes an
error to mean that a file is absent, and reads an object as it was when it was opened or not at all. Keys,
region and endpoint are taken as by every AWS client: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ~/.aws and so on.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import fsspec
from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem
from upath import UPath

from fleetcast.assets.lake.bucket_errors import (
    RANGE_NOT_SATISFIABLE,
    RETRY_FOR_S,
    explain_store_error,
    is_store_error,
    is_transient_error,
    object_changed_error,
    store_error_code,
)
from fleetcast.assets.lake.bucket_objects import BucketSnapshot, ObjectReader, ObjectWriter
from fleetcast.assets.lake.errors import StoreError
from fleetcast.models.aliases import T

RETRY_WAITS_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # between two tries, the last one again and again
S3_TIMEOUTS_S = {"connect_timeout": 5, "read_timeout": 20}
LISTING_PAGE_KEYS = 1000  # keys of a listing at a time
GLOB_WILDCARDS = re.compile(r"[*?]")


def bucket_path(below: str) -> UPath:
    """The path of BUCKET/NAME."""
    fsspec.register_implementation("s3", Bucket, clobber=True)
    return UPath(f"s3://{below}")


class Bucket(S3FileSystem):  # type: ignore[misc, unused-ignore]
    """The buckets that one set of keys opens."""

    retries = 1  # of s3fs: `_patiently` is what tries again

    def __init__(self, **options: Any) -> None:
        config = {"retries": {"total_max_attempts": 1}, **S3_TIMEOUTS_S}
        super().__init__(**{"use_listings_cache": False, "config_kwargs": config, **options})

    # --- every request ---------------------------------------------------------------------------------

    async def _call_s3(self, method: str, *akwarglist: Any, **kwargs: Any) -> Any:
        ask = super()._call_s3
        return await self._with_retries(lambda: ask(method, *akwarglist, **kwargs), kwargs.get("Bucket", ""))

    async def _with_retries(self, ask: Callable[[], Awaitable[T]], bucket: str) -> T:
        """What a request gives, asked again while the store is away; StoreError says what is wrong."""
        begun_s, waits_s = time.monotonic(), iter(RETRY_WAITS_S)
        while True:
            try:
                return await ask()
            except Exception as error:
                if not is_store_error(error):
                    raise
                if not is_transient_error(error) or time.monotonic() - begun_s > RETRY_FOR_S:
                    raise explain_store_error(error, bucket) from error
                await asyncio.sleep(next(waits_s, RETRY_WAITS_S[-1]))

    # --- what is there ---------------------------------------------------------------------------------

    async def _isfile(self, path: str) -> bool:
        bucket, key, _ = self.split_path(path)
        try:
            return bool(key) and bool(await self._call_s3("head_object", Bucket=bucket, Key=key))
        except FileNotFoundError:
            return False

    async def _isdir(self, path: str) -> bool:
        bucket, key, _ = self.split_path(path)
        prefix = f"{key.rstrip('/')}/" if key else ""
        found = await self._call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
        return bool(found.get("Contents"))

    async def _exists(self, path: str) -> bool:
        return await self._isfile(path) or await self._isdir(path)

    async def _mkdir(self, path: str, **_: Any) -> None:
        """Nothing: a bucket has no folders, and is made by who pays for it."""

    # s3fs binds these to its own where it defines them
    mkdir = makedirs = sync_wrapper(_mkdir)
    exists, isdir = sync_wrapper(_exists), sync_wrapper(_isdir)

    async def _glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """Names, or their details, that match; a flat listing, however many folders there would be."""
        bucket, key, _ = self.split_path(path)
        magic = GLOB_WILDCARDS.search(key)
        fixed = key[: magic.start()] if magic else key
        asked: dict[str, Any] = {"Bucket": bucket, "Prefix": fixed, "MaxKeys": LISTING_PAGE_KEYS}
        if "/" not in key[len(fixed) :] and "**" not in key:
            asked["Delimiter"] = "/"
        wanted, found = re.compile(_as_regex(key)), dict[str, dict[str, Any]]()
        while True:
            page = await self._call_s3("list_objects_v2", **asked)
            for one in page.get("Contents", ()):
                name = f"{bucket}/{one['Key']}"
                found[name] = {**one, "name": name, "size": one["Size"], "type": "file"}
            for one in page.get("CommonPrefixes", ()):
                name = f"{bucket}/{one['Prefix'].rstrip('/')}"
                found[name] = {"name": name, "size": 0, "type": "directory"}
            if not page.get("IsTruncated"):
                break
            asked["ContinuationToken"] = page["NextContinuationToken"]
        kept = {name: told for name, told in found.items() if wanted.fullmatch(name[len(bucket) + 1 :])}
        return kept if kwargs.get("detail") else list(kept)

    # --- reading ---------------------------------------------------------------------------------------

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return ObjectReader(self, path) if mode == "rb" else ObjectWriter(self, path)

    def snapshot(self) -> BucketSnapshot:
        """The same buckets for one connection of DuckDB."""
        return BucketSnapshot(self)

    async def _get_range(self, path: str, bytes_: str, etag: str = "") -> tuple[bytes, int, str]:
        """Bytes of an object, how many it has, and its ETag; ChangedError where that is another one now."""
        bucket, key, _ = self.split_path(path)
        same = {"IfMatch": etag} if etag else {}
        ask = super()._call_s3

        async def got() -> tuple[bytes, int, str]:
            found = await ask("get_object", Bucket=bucket, Key=key, Range=bytes_, **same)
            async with found["Body"] as body:
                content = await body.read()
            whole = found.get("ContentRange", f"/{len(content)}").rpartition("/")[2]
            return content, int(whole), found["ETag"]

        try:
            return await self._with_retries(got, bucket)
        except FileNotFoundError as error:
            if not etag:
                raise
            raise object_changed_error(bucket) from error
        except StoreError as error:
            if store_error_code(error.__cause__)[1] != RANGE_NOT_SATISFIABLE:
                raise
            return b"", 0, ""

    get_range = sync_wrapper(_get_range)

    # --- writing ---------------------------------------------------------------------------------------

    async def _etag(self, path: str) -> str:
        bucket, key, _ = self.split_path(path)
        try:
            return str((await self._call_s3("head_object", Bucket=bucket, Key=key))["ETag"])
        except FileNotFoundError:
            return ""

    async def _put_if(self, local: str, path: str, etag: str) -> None:
        """Put a file where the object still has this ETag ("": where there is none), else ChangedError."""
        bucket, key, _ = self.split_path(path)
        only = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
        with open(local, "rb") as file:
            await self._call_s3("put_object", Bucket=bucket, Key=key, Body=file.read(), **only)

    async def _remove_tree(self, path: str) -> None:
        found = await self._glob(f"{path.rstrip('/')}/**")
        if found:
            await self._bulk_delete(found)

    etag, put_if, remove_tree = sync_wrapper(_etag), sync_wrapper(_put_if), sync_wrapper(_remove_tree)


def _as_regex(pattern: str) -> str:
    """A glob as a regular expression; ** is any number of folders."""
    parts = re.split(r"(\*\*/?|\*|\?)", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(known.get(part, re.escape(part)) for part in parts)
