"""One object of a bucket, read or written; and what DuckDB sees of a bucket in one connection.

It is read as it was when it was opened, or not at all: where another one lies there meanwhile, the next
request for a part of it fails.
"""

import io
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any, Protocol

from fsspec import AbstractFileSystem

TAIL_BYTES = 1 << 20  # of an object that is opened: its footer, and most files whole
TAIL_CACHE_BYTES = 128 << 20  # of them are kept
OBJECT_BLOCK_BYTES = 1 << 20  # at least so many at a time from before the tail


class ObjectStore(Protocol):
    """What an object needs of its bucket (bucket.py)."""

    def get_range(self, path: str, bytes_: str, etag: str = "") -> tuple[bytes, int, str]:
        """Bytes of an object, how many it has, and its ETag."""

    def pipe_file(self, path: str, value: bytes) -> None:
        """Put an object."""

    def glob(self, path: str, *, detail: bool) -> dict[str, dict[str, Any]]:
        """The objects that match, with size, ETag and LastModified."""

    def info(self, path: str) -> dict[str, Any]:
        """Size, ETag and LastModified of an object."""

    def _strip_protocol(self, path: str) -> str: ...


class ObjectWriter(io.BytesIO):
    """What becomes an object, whole, when it is closed; nothing where the block that writes it fails."""

    def __init__(self, bucket: ObjectStore, path: str) -> None:
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


class BucketSnapshot(AbstractFileSystem):  # type: ignore[misc, unused-ignore]
    """What DuckDB reads in one connection: objects as they were when they were listed first."""

    protocol = ("s3", "s3a")
    cachable = False

    def __init__(self, bucket: ObjectStore) -> None:
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
        return ObjectReader(self.bucket, path, told["ETag"], told["size"])


class TailCache:
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
                until = min(max(last, begin + OBJECT_BLOCK_BYTES), tail_at)
                self.block, _, _ = self.bucket.get_range(self.path, f"bytes={begin}-{until - 1}", self.etag)
                self.first = begin
            yield self.block[begin - self.first : last - self.first]
        if end > tail_at:
            yield self.tail[max(begin - tail_at, 0) : end - tail_at]
