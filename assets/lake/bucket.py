"""A bucket as a file system: s3fs, made patient, plain in its errors, and sparing with requests.

Every path of a lake on s3://, pyarrow and DuckDB go through it. It never makes a bucket, never believes an
error to mean that a file is absent, and reads an object as it was when it was opened or not at all. Keys,
region and endpoint are taken as by every AWS client: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ~/.aws and so on.
"""

import asyncio
import io
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from threading import Lock
from typing import Any, TypeVar

import fsspec
from aiohttp import ClientError as BrokenOff
from botocore.exceptions import BotoCoreError, HTTPClientError, IncompleteReadError, NoCredentialsError
from botocore.exceptions import ConnectionError as NoConnection
from fsspec import AbstractFileSystem
from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem
from upath import UPath

from assets.lake.store import ChangedError, StoreError

T = TypeVar("T")
PATIENCE_S = 30.0  # so long a store that does not answer is asked again
WAITS_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # between, the last one again and again
ANSWER_S = {"connect_timeout": 5, "read_timeout": 20}
TAIL_BYTES = 1 << 20  # of an object that is opened: its footer, and most files whole
TAILS_BYTES = 128 << 20  # of them are kept
BLOCK_BYTES = 4 << 20  # at least so many at a time from before that
MAGIC = re.compile(r"[*?\[]")
KEY_CODES = {
    *("ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "InvalidToken", "403"),
    *("RequestTimeTooSkewed", "TokenRefreshRequired", "AuthorizationHeaderMalformed", "AllAccessDisabled"),
}
FULL_CODES = {
    *("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507"),
    *("InsufficientCapacity", "TotalSizeExceeded"),
}
PASSING_CODES = {"SlowDown", "RequestTimeout", "Throttling", "TooManyRequests", "RequestTimeoutException"}
LASTING = {501, 507}  # of the answers from 500 on: asking again does not help
CHANGED = {409, 412}
AWAY = (HTTPClientError, IncompleteReadError, NoConnection, BrokenOff, TimeoutError, ConnectionError)
NOTHING_THERE = 416  # a range of an object that has no byte


def path_of(below: str) -> UPath:
    """The path of BUCKET/NAME."""
    fsspec.register_implementation("s3", Bucket, clobber=True)
    return UPath(f"s3://{below}")


class Bucket(S3FileSystem):  # type: ignore[misc, unused-ignore]
    """The buckets that one set of keys opens."""

    retries = 1  # of s3fs: `_patiently` is what tries again

    def __init__(self, **options: Any) -> None:
        config = {"retries": {"total_max_attempts": 1}, **ANSWER_S}
        super().__init__(**{"use_listings_cache": False, "config_kwargs": config, **options})

    # --- every request ---------------------------------------------------------------------------------

    async def _call_s3(self, method: str, *akwarglist: Any, **kwargs: Any) -> Any:
        ask = super()._call_s3
        return await self._patiently(lambda: ask(method, *akwarglist, **kwargs), kwargs.get("Bucket", ""))

    call_s3 = sync_wrapper(_call_s3)

    async def _patiently(self, ask: Callable[[], Awaitable[T]], bucket: str) -> T:
        """What a request gives, asked again while the store is away; StoreError says what is wrong."""
        begun_s, waits_s = time.monotonic(), iter(WAITS_S)
        while True:
            try:
                return await ask()
            except Exception as error:
                code, status = _answered(error)
                if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
                    raise
                is_away = isinstance(error, AWAY)
                is_busy = code in PASSING_CODES or (status >= 500 and status not in LASTING)
                if not (is_away or is_busy or status or isinstance(error, (OSError, BotoCoreError))):
                    raise
                if not (is_away or is_busy) or time.monotonic() - begun_s > PATIENCE_S:
                    raise _told(error, bucket, is_away or is_busy) from error
                await asyncio.sleep(next(waits_s, WAITS_S[-1]))

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

    async def _glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """Names, or their details, that match; a flat listing, however many folders there would be."""
        bucket, key, _ = self.split_path(path)
        magic = MAGIC.search(key)
        fixed = key[: magic.start()] if magic else key
        asked = {"Bucket": bucket, "Prefix": fixed}
        if "/" not in key[len(fixed) :]:
            asked["Delimiter"] = "/"
        wanted, found, after = re.compile(_as_regex(key)), dict[str, dict[str, Any]](), None
        while after != "":
            page = await self._call_s3(
                "list_objects_v2", **asked, **({"ContinuationToken": after} if after else {})
            )
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
        return Opened(self, path) if mode == "rb" else Written(self, path)

    def snapshot(self) -> "Snapshot":
        """The same buckets for one connection of DuckDB."""
        return Snapshot(self)

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
            return await self._patiently(got, bucket)
        except StoreError as error:
            if _answered(error.__cause__)[1] != NOTHING_THERE:
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


class Written(io.BytesIO):
    """What becomes an object, whole, when it is closed; nothing where the block that writes it fails."""

    def __init__(self, bucket: Bucket, path: str) -> None:
        super().__init__()
        self.bucket, self.path = bucket, path

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:
            super().close()
        self.close()

    def close(self) -> None:
        """Put it."""
        if not self.closed:
            content = self.getvalue()
            super().close()
            self.bucket.pipe_file(self.path, content)


class Snapshot(AbstractFileSystem):  # type: ignore[misc, unused-ignore]
    """What DuckDB reads in one connection: objects as they were when they were listed first."""

    protocol = ("s3", "s3a")
    cachable = False

    def __init__(self, bucket: Bucket) -> None:
        super().__init__()
        self.bucket = bucket
        self.listed = dict[str, dict[str, dict[str, Any]]]()  # by pattern
        self.known = dict[str, dict[str, Any]]()  # by name

    def glob(self, path: str, **_: Any) -> list[str]:
        """The names that match."""
        if path not in self.listed:
            self.listed[path] = self.bucket.glob(path, detail=True)
            self.known |= self.listed[path]
        return list(self.listed[path])

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Size, ETag and LastModified of an object."""
        name = self.bucket._strip_protocol(path)
        if name not in self.known:
            self.known[name] = self.bucket.info(path)
        return self.known[name]

    def modified(self, path: str) -> Any:
        """When it was written."""
        return self.info(path)["LastModified"]

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        told = self.info(path)
        return Opened(self.bucket, path, told["ETag"], told["size"])


class Tails:
    """The ends of the objects that were read last, by ETag: what has not changed is not asked for again."""

    def __init__(self) -> None:
        self.kept, self.bytes, self.lock = OrderedDict[tuple[str, str], bytes](), 0, Lock()

    def get(self, path: str, etag: str) -> bytes | None:
        """That of an object, if it is here."""
        with self.lock:
            if (path, etag) in self.kept:
                self.kept.move_to_end((path, etag))
            return self.kept.get((path, etag))

    def keep(self, path: str, etag: str, tail: bytes) -> None:
        """One more, for the oldest ones."""
        with self.lock:
            self.bytes += len(tail) - len(self.kept.pop((path, etag), b""))
            self.kept[path, etag] = tail
            while self.bytes > TAILS_BYTES:
                self.bytes -= len(self.kept.popitem(last=False)[1])


TAILS = Tails()


class Opened(io.RawIOBase):
    """An object, read from its end: one request gives its size, its footer, and most files whole."""

    def __init__(self, bucket: Bucket, path: str, etag: str = "", size: int = 0) -> None:
        self.bucket, self.path, self.at = bucket, bucket._strip_protocol(path), 0
        self.etag, self.size = etag, size
        tail = TAILS.get(self.path, etag)
        if tail is None:
            tail, self.size, self.etag = bucket.get_range(self.path, f"bytes=-{TAIL_BYTES}", etag)
            TAILS.keep(self.path, self.etag, tail)
        self.tail, self.first, self.block = tail, 0, b""  # and what was read last from before the tail

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The next byte that is read."""
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go there."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def read(self, size: int | None = -1) -> bytes:
        """So many bytes from here, or all; fewer only at the end."""
        end = self.size if size is None or size < 0 else min(self.at + size, self.size)
        said = b"".join(self._pieces(self.at, end)) if end > self.at else b""
        self.at += len(said)
        return said

    def readinto(self, buffer: Any) -> int:
        """As read, into a buffer."""
        said = self.read(len(buffer))
        buffer[: len(said)] = said
        return len(said)

    def _pieces(self, begin: int, end: int) -> Iterator[bytes]:
        tail_at = self.size - len(self.tail)
        if begin < tail_at:
            last = min(end, tail_at)
            if not self.first <= begin < last <= self.first + len(self.block):
                until = min(max(last, begin + BLOCK_BYTES), tail_at)
                self.block, _, _ = self.bucket.get_range(self.path, f"bytes={begin}-{until - 1}", self.etag)
                self.first = begin
            yield self.block[begin - self.first : last - self.first]
        if end > tail_at:
            yield self.tail[max(begin - tail_at, 0) : end - tail_at]


def _as_regex(pattern: str) -> str:
    """A glob as a regular expression; ** is any number of folders."""
    parts = re.split(r"(\*\*/?|\*|\?)", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(known.get(part, re.escape(part)) for part in parts)


def _answered(error: BaseException | None) -> tuple[str, int]:
    """The code and the status that the store answered with; "" and 0 where it did not answer."""
    said = (
        getattr(error, "response", None) or getattr(getattr(error, "__cause__", None), "response", None) or {}
    )
    status = said.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(said.get("Error", {}).get("Code", "")), int(status)


def _told(error: Exception, bucket: str, is_away: bool) -> StoreError:
    """What is wrong, and what to do, in one line."""
    code, status = _answered(error)
    if status in CHANGED:
        return ChangedError(f"An object of s3://{bucket} was written anew while it was in use. Run it again.")
    said = " ".join(str(error).split()).rstrip(". ") or type(error).__name__
    where = f"The store of s3://{bucket}"
    if code == "NoSuchBucket":
        return StoreError(
            f"There is no bucket {bucket!r}. Make it, or name another; AWS_ENDPOINT_URL says at which store."
        )
    if isinstance(error, NoCredentialsError):
        return StoreError(
            f"{where} wants a key, and there is none. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if code in KEY_CODES:
        return StoreError(
            f"{where} refuses the key ({code}: {said}). Renew AWS_ACCESS_KEY_ID and what belongs to it, "
            "or let it read and write there."
        )
    if code in FULL_CODES:
        return StoreError(
            f"{where} is full ({code}: {said}). Free some space and run again; what was there before is kept."
        )
    if is_away:
        return StoreError(
            f"{where} did not answer for {PATIENCE_S:.0f} s ({said}). "
            "Run again when it does; what was there before is kept."
        )
    return StoreError(f"{where} failed ({code or type(error).__name__}: {said}).")
