"""DuckDB as the lake uses it: its settings, files in a bucket, one query at a time, errors in one line.

To make an instance of DuckDB takes 16 ms, a connection to one that is there 0.3 ms. So the last instance over
a folder is kept for the next query; it has the memory and threads of the process, however many read at once.
"""

import atexit
import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa

from fleetcast.assets.lake.errors import ChangedError, LakeError, StoreError
from fleetcast.assets.lake.process_resources import usable_cores, usable_memory_bytes
from fleetcast.assets.lake.store import LakePath, scratch_root

LEAST_MEMORY_MB = 1500  # of DuckDB; it gets a quarter of what there is
TYPES_WITHOUT_ARROW = {"bit", "bignum", "union", "variant", "geometry"}  # types without a form in Arrow
STORE_ERROR_LINE = re.compile(r"^(?:[\w.]+\.)?(ChangedError|StoreError): (.*)$", re.MULTILINE)
Connection = duckdb.DuckDBPyConnection
IN_MEMORY = ":memory:"
NO_EXTENSIONS = {  # an extension is neither fetched nor loaded because a query names what it would bring
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
# an instance that is kept keeps no file, and gives memory back within a second or two
SHARED_INSTANCE_SETTINGS = {
    "enable_external_file_cache": False,
    "allocator_background_threads": True,
}
_SHARED_INSTANCE = dict[
    tuple[Any, ...], tuple[Connection, Path]
]()  # one at most, by its scratch, memory and threads
_SHARED_INSTANCE_LOCK = Lock()


@contextmanager
def open_duckdb(root: LakePath, database: Path | str = IN_MEMORY, **config: Any) -> Iterator[Connection]:
    """A connection that reads the files under a root, on UTC; what does not fit in memory goes to scratch.

    What it makes in memory has to be temporary: others may be on the same instance. A bucket, a database in a
    file and settings of one's own have an instance of their own.
    """
    shares = isinstance(root, Path) and database == IN_MEMORY and not config
    with _shared_connection(root) if shares else _own_instance(root, database, **config) as con:
        con.execute("set TimeZone = 'UTC'; set enable_progress_bar = false")
        yield con


@contextmanager
def _own_instance(root: LakePath, database: Path | str, **config: Any) -> Iterator[Connection]:
    settings = {**duckdb_settings(), "temp_directory": str(_new_spill_folder(root)), **config}
    with duckdb.connect(str(database), config=settings) as con:
        if not isinstance(root, Path):
            con.register_filesystem(root.fs.snapshot())
        yield con


@contextmanager
def _shared_connection(root: LakePath) -> Iterator[Connection]:
    """A connection to the instance that is kept. One that has spilled is not: its files would stay too."""
    key = (scratch_root(root), *duckdb_settings().values())
    with _SHARED_INSTANCE_LOCK:
        if key not in _SHARED_INSTANCE:
            _SHARED_INSTANCE.clear()
            spill = _new_spill_folder(root)
            settings = {**duckdb_settings(), **SHARED_INSTANCE_SETTINGS, "temp_directory": str(spill)}
            _SHARED_INSTANCE[key] = duckdb.connect(config=settings), spill
        instance, spill = _SHARED_INSTANCE[key]
        con = instance.cursor()
    try:
        with con:
            yield con
    finally:
        if spill.exists():
            _close_shared_instance()


def _close_shared_instance() -> None:
    """Keep no instance; who reads from it goes on."""
    with _SHARED_INSTANCE_LOCK:
        _SHARED_INSTANCE.clear()


atexit.register(_close_shared_instance)
os.register_at_fork(before=_close_shared_instance)  # a fork has none of its threads


def _new_spill_folder(root: LakePath) -> Path:
    """A folder that DuckDB makes when it must, and removes; the one around it is there, if it can be."""
    scratch = scratch_root(root)
    if scratch.parent.is_dir():
        with suppress(OSError):  # a lake that is only read: what spills says so
            scratch.mkdir(exist_ok=True)
    return scratch / uuid4().hex


def duckdb_settings() -> dict[str, Any]:
    """Memory, threads, no extension from the net.

    Exact percentiles hold all their values: of ten million requests nearly 3 GB.
    """
    memory_mb = max(LEAST_MEMORY_MB, usable_memory_bytes() // 4 // 10**6)
    return {"memory_limit": f"{memory_mb}MB", "threads": usable_cores(), **NO_EXTENSIONS}


@contextmanager
def one_line_errors(doing: str, remedy: str = "", kind: type[LakeError] = LakeError) -> Iterator[None]:
    """Turn what the disk, Arrow or DuckDB raise into one line: a LakeError for a full disk, else `kind`."""
    try:
        yield
    except (LakeError, BrokenPipeError):  # the reader of an answer may leave
        raise
    except (OSError, duckdb.Error, pa.ArrowException) as error:
        if told := STORE_ERROR_LINE.search(str(error)):  # DuckDB tells of it in a traceback
            raise {"ChangedError": ChangedError}.get(told[1], StoreError)(told[2]) from error
        said = f"{doing} failed: {one_line_message(error)}"
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in said:
            full = "The disk is full: free some space and run again; what was there before is kept."
            raise LakeError(f"{said} {full}") from error
        raise kind(f"{said} {remedy}".rstrip()) from error


def view_columns(con: Connection) -> dict[str, list[str]]:
    """The columns of every view on a connection."""
    rows = con.execute(
        "select table_name, list(column_name) from duckdb_columns() where not internal group by all"
    ).fetchall()
    return dict(rows)


def cast_for_arrow(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The relation, with columns that Arrow only has as bytes of DuckDB's own as DuckDB writes them."""
    if not any(kind.id in TYPES_WITHOUT_ARROW for kind in relation.types):
        return relation
    columns = (
        f"cast(#{n} as varchar) as {json.dumps(name)}" if kind.id in TYPES_WITHOUT_ARROW else f"#{n}"
        for n, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True), start=1)
    )
    return relation.project(", ".join(columns))


def one_line_message(error: Exception) -> str:
    """What an error says in its first line, and the names that DuckDB thinks were meant, as sentences."""
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    hints = [
        line.strip().rstrip(".") for line in more if line.startswith(("Did you mean", "Candidate bindings"))
    ]
    return " ".join(f"{said}." for said in (first.rstrip(".! "), *hints)).replace("?.", "?")
