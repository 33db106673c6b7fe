"""Digests of the lake's files, each written before its file is moved into place.

The digest of requests/.../part.parquet is in digests/requests/.../part.sha256, in the format of sha256sum:
`cd data/lake && sha256sum --check digests/requests/trace=office/day=2025-07-15/part.sha256` verifies a file
without fleetcast. A comment line has the digest of the file before: a run that is killed between the two
moves leaves that file in place.
"""

import enum
import hashlib
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import cast

from fleetcast.assets.lake import store
from fleetcast.assets.lake.process_resources import usable_cores
from fleetcast.assets.lake.store import LakePath

DIGESTS_FOLDER = "digests"
MOST_ROTTEN_BYTES = 2  # of a digest file; the digest of a changed file differs in nearly all of its 64 digits
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def digest_path(root: LakePath, file: LakePath) -> LakePath:
    """Return the path of a file's digest."""
    return root / DIGESTS_FOLDER / store.name_below_root(file.with_suffix(".sha256"), root)


def record_digest(root: LakePath, finished: Path, target: LakePath, scratch: Path) -> None:
    """Write the digest of a finished file that will be moved to `target`."""
    path, digest = digest_path(root, target), sha256_of(finished)
    before = [known for known in _known_digests(path) if known != digest][:1]
    lines = [digest_text(root, target, digest), *(f"# before: {known}" for known in before)]
    (scratch / path.name).write_text("\n".join([*lines, ""]))
    store.move_into_place(scratch / path.name, path)


def recorded_digest(root: LakePath, file: LakePath) -> str:
    """Return the digest that was recorded for a file, else the SHA-256 of its bytes."""
    return next(iter(_known_digests(digest_path(root, file))), "") or sha256_of(file)


def sha256_of(file: LakePath) -> str:
    """Return the SHA-256 of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(cast(BufferedReader, opened), "sha256").hexdigest()


class FileState(enum.Enum):
    """What the digest of a file says about its bytes."""

    WHOLE = "as written"
    DAMAGED = "damaged"
    DIGEST_DAMAGED = "as written, its digest is damaged"
    WITHOUT_DIGEST = "without a digest"


def verify_files(root: LakePath, files: Iterable[LakePath]) -> Iterator[tuple[LakePath, FileState]]:
    """Yield each file with what its digest says about its bytes."""
    with ThreadPoolExecutor(usable_cores()) as threads:
        names = list(files)
        yield from zip(names, threads.map(lambda file: _verify(root, file), names), strict=True)


def digested_files(root: LakePath, pattern: str = "**/*.parquet") -> set[LakePath]:
    """Return the files that have a digest, also vanished ones; `pattern` is relative to the root."""
    found = (root / DIGESTS_FOLDER).glob(pattern.removesuffix(".parquet") + ".sha256")
    names = (store.name_below_root(path, root / DIGESTS_FOLDER) for path in found)
    return {root / f"{name.removesuffix('.sha256')}.parquet" for name in names}


def digest_text(root: LakePath, file: LakePath, digest: str) -> str:
    """Return the line of a digest file, as sha256sum writes it."""
    return f"{digest}  {store.name_below_root(file, root)}"


def _verify(root: LakePath, file: LakePath) -> FileState:
    path, digest = digest_path(root, file), ""
    for _ in range(2):  # a run may replace the file between the two reads
        with suppress(FileNotFoundError):
            digest = sha256_of(file)
            if digest in _known_digests(path):
                return FileState.WHOLE
    if not (path.is_file() and file.is_file()):
        return FileState.WITHOUT_DIGEST
    expected, found = digest_text(root, file, digest).encode(), path.read_bytes()
    differing = sum(one != other for one, other in zip(expected, found, strict=False))
    is_rotten = differing <= MOST_ROTTEN_BYTES and len(found) >= len(expected)
    return FileState.DIGEST_DAMAGED if is_rotten else FileState.DAMAGED


def _known_digests(path: LakePath) -> list[str]:
    """Return the digests of a digest file, the newest first; none without a file."""
    with suppress(FileNotFoundError):
        return _DIGEST.findall(path.read_bytes().decode(errors="replace"))
    return []
