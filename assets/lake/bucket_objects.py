"""Objects of a bucket as files, and the bucket as one DuckDB connection sees it.

A reader never mixes two versions of an object: if the object is replaced while it is read, the next request
for a part of it fails.
"""

import io
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any, Protocol

from fsspec import AbstractFileSystem

TAIL_BYTES = 1 << 20  # read when an object is opened: its footer, and most files whole
TAIL_CACHE_BYTES = 128 << 20  # capacity of the cache of tails
OBJECT_BLOCK_BYTES = 1 << 20  # smallest request for bytes before the tail


class ObjectStore(Protocol):
    """The methods of a bucket (bucket.py) that its objects use."""

    def get_range(self, path: str, bytes_: str, etag: str = "") -> tuple[bytes, int, str]:
        """Return bytes of an object, its size and its ETag."""

    def pipe_file(self, path: str, value: bytes) -> None:
        """Put an object."""

    def glob(self, path: str, *, detail: bool) -> dict[str, dict[str, Any]]:
        """Return the objects that match, with size, ETag and LastModified."""

    def info(self, path: str) -> dict[str, Any]:
        """Return size, ETag and LastModified of an object."""

    def _strip_protocol(self, path: str) -> str: ...


class ObjectWriter(io.BytesIO):
    """A buffer that becomes an object when it is closed; no object if the block that writes it fails."""

    def __init__(self, bucket: ObjectStore, path: str) -> None:
        super().__init__()
        self.bucket, self.path = bucket, path

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:
            super().close()
        self.close()

    def close(self) -> None:
        """Put the object."""
        if not self.closed:
            content = self.getvalue()
            super().close()
            self.bucket.pipe_file(self.path, content)


class BucketSnapshot(AbstractFileSystem):  # type: ignore[misc, unused-ignore]
    """A bucket as one DuckDB connection reads it: objects as they were when first listed."""

    protocol = ("s3", "s3a")
    cachable = False

    def __init__(self, bucket: ObjectStore) -> None:
        super().__init__()
        self.bucket = bucket
        self.listed = dict[str, dict[str, dict[str, Any]]]()  # by pattern
        self.known = dict[str, dict[str, Any]]()  # by name

    def glob(self, path: str, **_: Any) -> list[str]:
        """Return the names that match."""
        if path not in self.listed:
            self.listed[path] = self.bucket.glob(path, detail=True)
            self.known |= self.listed[path]
        return list(self.listed[path])

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return size, ETag and LastModified of an object."""
        name = self.bucket._strip_protocol(path)
        if name not in self.known:
            self.known[name] = self.bucket.info(path)
        return self.known[name]

    def modified(self, path: str) -> Any:
        """Return when an object was written."""
        return self.info(path)["LastModified"]

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        info = self.info(path)
        return ObjectReader(self.bucket, path, info["ETag"], info["size"])


class TailCache:
    """The tails of the objects that were read last, by ETag: an unchanged object is not downloaded again."""

    def __init__(self) -> None:
        self.kept, self.bytes, self.lock = OrderedDict[tuple[str, str], bytes](), 0, Lock()

    def get(self, path: str, etag: str) -> bytes | None:
        """Return the tail of an object, or None."""
        with self.lock:
            if (path, etag) in self.kept:
                self.kept.move_to_end((path, etag))
            return self.kept.get((path, etag))

    def keep(self, path: str, etag: str, tail: bytes) -> None:
        """Add a tail and drop the oldest ones above the capacity."""
        with self.lock:
            self.bytes += len(tail) - len(self.kept.pop((path, etag), b""))
            self.kept[path, etag] = tail
            while self.bytes > TAIL_CACHE_BYTES:
                self.bytes -= len(self.kept.popitem(last=False)[1])


TAIL_CACHE = TailCache()


class ObjectReader(io.RawIOBase):
    """An object, read from its end: one request gives its size, its footer, and most files whole."""

    def __init__(self, bucket: ObjectStore, path: str, etag: str = "", size: int = 0) -> None:
        self.bucket, self.path, self.at = bucket, bucket._strip_protocol(path), 0
        self.etag, self.size = etag, size
        tail = TAIL_CACHE.get(self.path, etag) if etag else None
        if tail is None:
            tail, self.size, self.etag = bucket.get_range(self.path, f"bytes=-{TAIL_BYTES}", etag)
            if self.etag:
                TAIL_CACHE.keep(self.path, self.etag, tail)
        self.tail = tail
        self.first, self.block = 0, b""  # the block that was read last from before the tail

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next byte and return it."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def read(self, size: int | None = -1) -> bytes:
        """Return the next `size` bytes, or all that are left; fewer only at the end."""
        end = self.size if size is None or size < 0 else min(self.at + size, self.size)
        content = b"".join(self._pieces(self.at, end)) if end > self.at else b""
        self.at += len(content)
        return content

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer and return the number of bytes."""
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _pieces(self, begin: int, end: int) -> Iterator[bytes]:
        tail_at = self.size - len(self.tail)
        if begin < tail_at:
            last = min(end, tail_at)
            if not self.first <= begin < last <= self.first + len(self.block):
                until = min(max(last, begin + OBJECT_BLOCK_BYTES), tail_at)
                self.block, _, _ = self.bucket.get_range(self.path, f"bytes={begin}-{until - 1}", self.etag)
                self.first = begin
            yield self.block[begin - self.first : last - self.first]
        if end > tail_at:
            yield self.tail[max(begin - tail_at, 0) : end - tail_at]
