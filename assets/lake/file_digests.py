"""Digests of the lake's files, each written before its file is moved into place.

The digest of requests/.../part.parquet is in digests/requests/.../part.sha256, in the format of sha256sum:
`cd data/lake && sha256sum --check digests/requests/trace=office/day=2025-07-15/part.sha256` verifies a file
without fleetcast. A comment line has the digest of the file before: a run that is killed between the two
moves leaves that file in place.
"""

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
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def digest_path(root: LakePath, file: LakePath) -> LakePath:
    """Return the path of a file's digest."""
    return root / DIGESTS_FOLDER / store.name_below_root(file.with_suffix(".sha256"), root)


def record_digest(root: LakePath, finished: Path, target: LakePath, scratch: Path) -> None:
    """Write the digest of a finished file that will be moved to `target`."""
    path, digest = digest_path(root, target), sha256_of(finished)
    before = [known for known in _known_digests(path) if known != digest][:1]
    lines = [f"{digest}  {store.name_below_root(target, root)}", *(f"# before: {known}" for known in before)]
    (scratch / path.name).write_text("\n".join([*lines, ""]))
    store.move_into_place(scratch / path.name, path)


def sha256_of(file: LakePath) -> str:
    """Return the SHA-256 of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(cast(BufferedReader, opened), "sha256").hexdigest()


def verify_files(root: LakePath, files: Iterable[LakePath]) -> Iterator[tuple[LakePath, bool | None]]:
    """Yield each file with whether its bytes are those that were written; None without a digest."""
    with ThreadPoolExecutor(usable_cores()) as threads:
        names = list(files)
        yield from zip(names, threads.map(lambda file: _is_as_written(root, file), names), strict=True)


def _is_as_written(root: LakePath, file: LakePath) -> bool | None:
    path = digest_path(root, file)
    for _ in range(2):  # a run may replace the file between the two reads
        with suppress(FileNotFoundError):
            digest = sha256_of(file)
            if digest in _known_digests(path):
                return True
    return False if path.is_file() and file.is_file() else None


def _known_digests(path: LakePath) -> list[str]:
    """Return the digests of a digest file, the newest first; none without a file."""
    with suppress(FileNotFoundError):
        return _DIGEST.findall(path.read_bytes().decode(errors="replace"))
    return []
