"""DuckDB connections of the lake: their settings, files in a bucket, and errors in one line.

Creating a DuckDB instance takes 16 ms, a connection to an existing one 0.3 ms. So the last instance over
folders is kept for the next query, and the last one that only plans queries. All connections of an instance
share its memory and threads, and the folder it spills to: while any is open, another lake gets another one.
"""

import atexit
import errno
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa

from fleetcast.assets.lake.errors import ChangedError, LakeError, StoreError
from fleetcast.assets.lake.process_resources import usable_cores, usable_memory_bytes
from fleetcast.assets.lake.store import LakePath, scratch_root

LEAST_MEMORY_MB = 1500  # minimum memory of DuckDB, which gets a quarter of the process's memory
# Arrow lacks them, and has intervals as lists of numbers.
TYPES_AS_TEXT = {"bit", "bignum", "union", "variant", "geometry", "interval"}
STORE_ERROR_LINE = re.compile(r"^(?:[\w.]+\.)?(ChangedError|StoreError): (.*)$", re.MULTILINE)
Connection = duckdb.DuckDBPyConnection
IN_MEMORY = ":memory:"
# A query that names a function of an extension neither fetches nor loads that extension.
NO_EXTENSIONS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
# The shared instance caches no file, and returns memory within a second or two.
SHARED_INSTANCE_SETTINGS = {"enable_external_file_cache": False, "allocator_background_threads": True}
# To plan a query over tables without rows. The plan must hold for any rows: no scan is left out because its
# table is empty, none reads rows by number.
PLANNING_SETTINGS: Mapping[str, Any] = {
    "threads": 1,
    "disabled_optimizers": "statistics_propagation,late_materialization",
}


@dataclass
class SharedInstance:
    """An instance that is kept, its settings, and the folder that it spills to, below a scratch folder."""

    settings: dict[str, Any]
    instance: Connection
    scratch: Path
    spill: Path
    open_connections: int = 0


_SHARED_INSTANCES = dict[bool, SharedInstance]()  # at most two, by whether they only plan
_SHARED_INSTANCE_LOCK = Lock()


@contextmanager
def open_duckdb(
    root: LakePath,
    database: Path | str = IN_MEMORY,
    is_plan: bool = False,
    may_share: bool = True,
    **config: Any,
) -> Iterator[Connection]:
    """Open a connection that reads the files under a root, on UTC; it spills to the scratch folder.

    Tables and views in memory must be temporary: connections may share the instance. A bucket, a database in
    a file and custom settings get a separate instance, and so does a connection that may not share one.
    `is_plan`: with PLANNING_SETTINGS.
    """
    is_shared = may_share and isinstance(root, Path) and database == IN_MEMORY and not config
    planning = PLANNING_SETTINGS if is_plan else {}
    with (
        _shared_connection(root, is_plan, planning)
        if is_shared
        else _separate_instance(root, database, **{**planning, **config}) as con
    ):
        con.execute("set TimeZone = 'UTC'; set enable_progress_bar = false")
        yield con


@contextmanager
def _separate_instance(root: LakePath, database: Path | str, **config: Any) -> Iterator[Connection]:
    settings = {**duckdb_settings(), "temp_directory": str(new_spill_folder(root)), **config}
    with duckdb.connect(str(database), config=settings) as con:
        if not isinstance(root, Path):
            con.register_filesystem(root.fs.snapshot())
        yield con


@contextmanager
def _shared_connection(root: LakePath, is_plan: bool, planning: Mapping[str, Any]) -> Iterator[Connection]:
    """Open a connection to a shared instance; close an instance that spilled, so its files are removed."""
    settings = {**duckdb_settings(), **SHARED_INSTANCE_SETTINGS, **planning}
    with _SHARED_INSTANCE_LOCK:
        shared = _shared_instance(root, is_plan, settings)
        con = shared.instance.cursor()
        shared.open_connections += 1
    try:
        with con:
            yield con
    finally:
        with _SHARED_INSTANCE_LOCK:
            shared.open_connections -= 1
            if shared.spill.exists():
                _SHARED_INSTANCES.clear()


def _shared_instance(root: LakePath, is_plan: bool, settings: dict[str, Any]) -> SharedInstance:
    """Return the kept instance, if it spills to this lake or can be set to; else keep a new one."""
    scratch, kept = scratch_root(root), _SHARED_INSTANCES.get(is_plan)
    if kept and kept.settings == settings:
        if kept.scratch == scratch:
            return kept
        if not kept.open_connections:
            kept.scratch, kept.spill = scratch, new_spill_folder(root)
            kept.instance.execute("set temp_directory = $spill", {"spill": str(kept.spill)})
            return kept
    spill = new_spill_folder(root)
    instance = duckdb.connect(config={**settings, "temp_directory": str(spill)})
    _SHARED_INSTANCES[is_plan] = SharedInstance(settings, instance, scratch, spill)
    return _SHARED_INSTANCES[is_plan]


def _close_shared_instances() -> None:
    """Forget the shared instances; their open connections go on."""
    with _SHARED_INSTANCE_LOCK:
        _SHARED_INSTANCES.clear()


atexit.register(_close_shared_instances)
os.register_at_fork(before=_close_shared_instances)  # a forked process has none of DuckDB's threads


def new_spill_folder(root: LakePath) -> Path:
    """Return a folder that DuckDB creates when it spills and then removes; create its parent if possible."""
    scratch = scratch_root(root)
    if scratch.parent.is_dir():
        with suppress(OSError):  # in a read-only lake a query that spills raises its own error
            scratch.mkdir(exist_ok=True)
    return scratch / uuid4().hex


def duckdb_settings() -> dict[str, Any]:
    """Return memory limit, threads, and settings against extensions from the network.

    Exact percentiles hold all their values in memory: nearly 3 GB for ten million requests.
    """
    memory_mb = max(LEAST_MEMORY_MB, usable_memory_bytes() // 4 // 10**6)
    return {"memory_limit": f"{memory_mb}MB", "threads": usable_cores(), **NO_EXTENSIONS}


@contextmanager
def one_line_errors(doing: str, remedy: str = "", kind: type[LakeError] = LakeError) -> Iterator[None]:
    """Turn errors of the disk, Arrow or DuckDB into one line: a LakeError for a full disk, else `kind`."""
    try:
        yield
    except (LakeError, BrokenPipeError):  # the reader of a result may close the pipe
        raise
    except (OSError, duckdb.Error, pa.ArrowException) as error:
        # DuckDB wraps the bucket's error in a traceback.
        if store_error := STORE_ERROR_LINE.search(str(error)):
            raise {"ChangedError": ChangedError}.get(store_error[1], StoreError)(store_error[2]) from error
        message = f"{doing} failed: {one_line_message(error)}"
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in message:
            full = "The disk is full: free some space and run again; earlier data is kept."
            raise LakeError(f"{message} {full}") from error
        raise kind(f"{message} {remedy}".rstrip()) from error


def confine_to_folders(con: Connection, folders: Sequence[str]) -> None:
    """Let a connection read and spill in these folders only, load no extension and change no setting."""
    con.execute("set allowed_directories = $folders", {"folders": list(folders)})
    con.execute("set enable_external_access = false; set lock_configuration = true")


def view_columns(con: Connection) -> dict[str, list[str]]:
    """Return the columns of every view on a connection."""
    rows = con.execute(
        "select table_name, list(column_name) from duckdb_columns() where not internal group by all"
    ).fetchall()
    return dict(rows)


def cast_for_arrow(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the relation with columns of TYPES_AS_TEXT cast to text."""
    if not any(kind.id in TYPES_AS_TEXT for kind in relation.types):
        return relation
    columns = (
        f"cast(#{n} as varchar) as {json.dumps(name)}" if kind.id in TYPES_AS_TEXT else f"#{n}"
        for n, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True), start=1)
    )
    return relation.project(", ".join(columns))


def one_line_message(error: Exception) -> str:
    """Return the first line of an error, and the names that DuckDB suggests, as sentences."""
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    hints = [
        line.strip().rstrip(".") for line in more if line.startswith(("Did you mean", "Candidate bindings"))
    ]
    return " ".join(f"{sentence}." for sentence in (first.rstrip(".! "), *hints)).replace("?.", "?")
