"""Storage of a lake's files: a folder of this machine, or s3://bucket/... .

In both, a reader sees a whole file or no file. On a disk a finished file is moved into place; in a bucket it
is put whole, and an interrupted PUT leaves nothing. Unfinished files are in a scratch folder of this machine:
in the lake's folder if it is on disk, else under FLEETCAST_SCRATCH.
"""

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union
from uuid import uuid4

from fleetcast.assets.lake.errors import LakeError

if TYPE_CHECKING:
    from upath import UPath

LakePath: TypeAlias = Union[Path, "UPath"]
SCRATCH_VARIABLE = "FLEETCAST_SCRATCH"
LEFTOVER_AGE_S = 86_400.0  # an older scratch folder was left by a run that was killed
OPEN_SCRATCH_FOLDERS: set[Path] = set()  # open in this process; code that ends it by force removes them
# One slash is enough: a Path keeps one of two.
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.IGNORECASE | re.DOTALL)


def resolve_lake_root(root: "LakePath | str") -> LakePath:
    """Return the root of a lake. LakeError for a scheme other than s3, or if the client of s3 is missing."""
    if not (scheme := _SCHEME.fullmatch(str(root))):
        return Path(str(root)).resolve()
    name, below = scheme[1].lower(), scheme[2].strip("/")
    if name != "s3" or not below:
        raise LakeError(
            f"A lake is in a folder or under s3://BUCKET/NAME, got {str(root)!r}. Name one of these."
        )
    if find_spec("s3fs") is None:
        raise LakeError(
            f"The lake s3://{below} needs s3fs, which is not installed. "
            "Install it: pip install 'fleetcast[cluster]' (in a checkout: .venv/bin/uv sync --extra cluster)"
        )
    from fleetcast.assets.lake.bucket import bucket_path

    return bucket_path(below)


def name_below_root(path: LakePath, root: LakePath) -> str:
    """Return the path of a file relative to the root of its lake."""
    return str(path).removeprefix(str(root)).lstrip("/")


def scratch_root(root: LakePath) -> Path:
    """Return the folder of this machine for unfinished files."""
    if isinstance(root, Path):
        return root / ".scratch"
    return (
        Path(os.path.expanduser(os.environ.get(SCRATCH_VARIABLE) or tempfile.gettempdir())).resolve()
        / "fleetcast-scratch"
    )


def create_scratch_folder(root: LakePath) -> Path:
    """Create a scratch folder; remove_scratch_folder removes it."""
    folder = scratch_root(root) / uuid4().hex
    folder.mkdir(parents=True)
    OPEN_SCRATCH_FOLDERS.add(folder)
    return folder


def remove_scratch_folder(folder: Path) -> None:
    """Remove a scratch folder with all that is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    OPEN_SCRATCH_FOLDERS.discard(folder)


def sweep_scratch_folders(root: LakePath) -> None:
    """Remove the scratch folders that killed runs left."""
    for folder in scratch_root(root).glob("*"):
        if time.time() - folder.stat().st_mtime > LEFTOVER_AGE_S:
            shutil.rmtree(folder, ignore_errors=True)


def move_into_place(finished: Path, target: LakePath) -> None:
    """Move a finished file from the scratch folder to its place, in one step."""
    if isinstance(target, Path):
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(finished, target)
    else:
        target.fs.put_file(str(finished), target.path)


def put_if_unchanged(finished: Path, target: "UPath", before: str) -> None:
    """Put a file into a bucket if the target still has the change tag `before`, else raise a ChangedError."""
    target.fs.put_if(str(finished), target.path, before)


def link_or_copy(source: LakePath, target: LakePath) -> None:
    """Put a file in another place too: by a hard link if possible, else by a copy."""
    if isinstance(target, Path):
        target.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(source, Path):
            source.fs.get_file(source.path, str(target))
            return
        try:
            os.link(source, target)
        except OSError:  # another disk, or one without links
            shutil.copy2(source, target)
    elif isinstance(source, Path):
        target.fs.put_file(str(source), target.path)
    else:
        target.fs.cp_file(source.path, target.path)


def folders_with_rows(root: LakePath, names: Iterable[str]) -> set[str]:
    """Return which of these folders under the root have a Parquet file."""
    if isinstance(root, Path):
        return {name for name in names if next((root / name).rglob("*.parquet"), None)}
    return {path.name for path in root.glob("*")}.intersection(names)  # in a bucket no folder is empty


def parquet_source(path: LakePath) -> Any:
    """Return a path or an open file from which pyarrow reads."""
    return path if isinstance(path, Path) else path.open("rb")


def change_tag(path: LakePath) -> str:
    """Return a tag that changes when a file is written again: size and time, or its ETag; "" for no file."""
    if isinstance(path, Path):
        found = path.stat() if path.is_file() else None
        return f"{found.st_size}:{found.st_mtime_ns}" if found else ""
    return str(path.fs.etag(path.path))


def change_tags(root: LakePath, pattern: str) -> dict[str, str]:
    """Return the change tags of all files that match, by their path relative to the root, in order."""
    if isinstance(root, Path):
        return {name_below_root(path, root): change_tag(path) for path in sorted(root.glob(pattern))}
    found = root.fs.glob(f"{root.path}/{pattern}", detail=True)
    return {name.removeprefix(f"{root.path}/"): found[name]["ETag"] for name in sorted(found)}


def remove_tree(folder: LakePath) -> None:
    """Remove a folder with all that is in it, if it is there."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.fs.remove_tree(folder.path)


def removal_command(root: LakePath, pattern: str) -> str:
    """Return the shell command that removes files from a lake."""
    if isinstance(root, Path):
        return f"rm -r {root}/{pattern}"
    return f"aws s3 rm --recursive {root} --exclude '*' --include '{pattern}*'"


@contextmanager
def exclusive_lock(lock: Path) -> Iterator[None]:
    """Hold a lock that one thread or process of this machine can have at a time."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
