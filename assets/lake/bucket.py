"""A bucket as a file system: s3fs with retries, one-line errors and few requests.

Every path of a lake on s3://, pyarrow and DuckDB use it. It never creates a bucket. Only a 404 means that a
file is absent, no other error does. An object that changes while it is read raises an error. Keys, region and
endpoint come from where AWS clients take them: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ~/.aws and so on.
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

RETRY_WAITS_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # between two attempts; the last wait repeats
S3_TIMEOUTS_S = {"connect_timeout": 5, "read_timeout": 20}
LISTING_PAGE_KEYS = 1000  # keys per page of a listing
GLOB_WILDCARDS = re.compile(r"[*?]")


def bucket_path(below: str) -> UPath:
    """Return the path s3://BUCKET/NAME."""
    fsspec.register_implementation("s3", Bucket, clobber=True)
    return UPath(f"s3://{below}")


class Bucket(S3FileSystem):  # type: ignore[misc, unused-ignore]
    """The buckets that one set of keys opens."""

    retries = 1  # attempts of s3fs itself; `_with_retries` repeats them

    def __init__(self, **options: Any) -> None:
        config = {"retries": {"total_max_attempts": 1}, **S3_TIMEOUTS_S}
        super().__init__(**{"use_listings_cache": False, "config_kwargs": config, **options})

    # --- every request ---------------------------------------------------------------------------------

    async def _call_s3(self, method: str, *akwarglist: Any, **kwargs: Any) -> Any:
        call = super()._call_s3
        return await self._with_retries(lambda: call(method, *akwarglist, **kwargs), kwargs.get("Bucket", ""))

    async def _with_retries(self, request: Callable[[], Awaitable[T]], bucket: str) -> T:
        """Return the result of a request, repeated while the store is away; StoreError for other failures."""
        begun_s, waits_s = time.monotonic(), iter(RETRY_WAITS_S)
        while True:
            try:
                return await request()
            except Exception as error:
                if not is_store_error(error):
                    raise
                if not is_transient_error(error) or time.monotonic() - begun_s > RETRY_FOR_S:
                    raise explain_store_error(error, bucket) from error
                await asyncio.sleep(next(waits_s, RETRY_WAITS_S[-1]))

    # --- listing ---------------------------------------------------------------------------------------

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
        """Do nothing: a bucket has no folders, and its owner creates it."""

    # s3fs binds the public names to its own coroutines: bind them anew.
    mkdir = makedirs = sync_wrapper(_mkdir)
    exists, isdir = sync_wrapper(_exists), sync_wrapper(_isdir)

    async def _glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """Return the names that match, or their details, from one flat listing instead of one per folder."""
        bucket, key, _ = self.split_path(path)
        wildcard = GLOB_WILDCARDS.search(key)
        prefix = key[: wildcard.start()] if wildcard else key
        request: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": LISTING_PAGE_KEYS}
        if "/" not in key[len(prefix) :] and "**" not in key:
            request["Delimiter"] = "/"
        pattern, found = re.compile(_as_regex(key)), dict[str, dict[str, Any]]()
        while True:
            page = await self._call_s3("list_objects_v2", **request)
            for entry in page.get("Contents", ()):
                name = f"{bucket}/{entry['Key']}"
                found[name] = {**entry, "name": name, "size": entry["Size"], "type": "file"}
            for entry in page.get("CommonPrefixes", ()):
                name = f"{bucket}/{entry['Prefix'].rstrip('/')}"
                found[name] = {"name": name, "size": 0, "type": "directory"}
            if not page.get("IsTruncated"):
                break
            request["ContinuationToken"] = page["NextContinuationToken"]
        matches = {name: found[name] for name in found if pattern.fullmatch(name[len(bucket) + 1 :])}
        return matches if kwargs.get("detail") else list(matches)

    # --- reading ---------------------------------------------------------------------------------------

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return ObjectReader(self, path) if mode == "rb" else ObjectWriter(self, path)

    def snapshot(self) -> BucketSnapshot:
        """Return a view of the buckets for one DuckDB connection."""
        return BucketSnapshot(self)

    async def _get_range(self, path: str, bytes_: str, etag: str = "") -> tuple[bytes, int, str]:
        """Return bytes of an object, its size and its ETag; ChangedError if its ETag is no longer `etag`."""
        bucket, key, _ = self.split_path(path)
        condition = {"IfMatch": etag} if etag else {}
        call = super()._call_s3

        async def get_object() -> tuple[bytes, int, str]:
            found = await call("get_object", Bucket=bucket, Key=key, Range=bytes_, **condition)
            async with found["Body"] as body:
                content = await body.read()
            size = found.get("ContentRange", f"/{len(content)}").rpartition("/")[2]
            return content, int(size), found["ETag"]

        try:
            return await self._with_retries(get_object, bucket)
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
        """Put a file if the object still has this ETag ("": if there is no object), else ChangedError."""
        bucket, key, _ = self.split_path(path)
        condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
        with open(local, "rb") as file:
            await self._call_s3("put_object", Bucket=bucket, Key=key, Body=file.read(), **condition)

    async def _remove_tree(self, path: str) -> None:
        found = await self._glob(f"{path.rstrip('/')}/**")
        if found:
            await self._bulk_delete(found)

    etag, put_if, remove_tree = sync_wrapper(_etag), sync_wrapper(_put_if), sync_wrapper(_remove_tree)


def _as_regex(pattern: str) -> str:
    """Return a glob as a regular expression; ** is any number of folders."""
    parts = re.split(r"(\*\*/?|\*|\?)", pattern)
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(wildcards.get(part, re.escape(part)) for part in parts)
