"""The lake: where tables lie, how they are written, and DuckDB over them.

Parquet files under data/lake are the truth; a table is written aside and moved into place, so that a
reader never sees half of one. DuckDB only ever reads them: through views on an in-memory connection here,
and through the views of warehouse.duckdb, which can be deleted and published again at any time.
"""

import difflib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from assets.schemas import DUCKDB_TYPES, LAKE_VERSION, OPTIONAL, PARTITIONS, REQUEST_SCHEMA, SCHEMAS
from assets.sql_docs import comments
from assets.sql_files import SQL, read_sql

__all__ = ["LAKE", "REQUEST_SCHEMA", "Connection", "Lake", "LakeError", "LakeVersionError"]

ROOT = Path(__file__).resolve().parent.parent
LAKE = ROOT / "data" / "lake"
DUCKDB: dict[str, Any] = {"memory_limit": "1500MB", "threads": 2}
ROW_GROUP_ROWS = 100_000
LEFTOVER_S = 86_400.0  # scratch older than this is of a run that was killed
Connection = duckdb.DuckDBPyConnection


class LakeError(ValueError):
    """The lake cannot do what was asked; the message is one line with the remedy."""


class LakeVersionError(LakeError):
    """The lake was written by a newer version of this code."""


@contextmanager
def one_line_errors(doing: str, remedy: str = "", kind: type[LakeError] = LakeError) -> Iterator[None]:
    """Turn what the disk, Arrow or DuckDB raise into one line: a LakeError for a full disk, else `kind`."""
    try:
        yield
    except LakeError:
        raise
    except (OSError, duckdb.Error, pa.ArrowException) as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".! ")
        said = f"{doing} failed: {first_line}."
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in said:
            full = "The disk is full: free some space and run again; what was there before is kept."
            raise LakeError(f"{said} {full}") from error
        raise kind(f"{said} {remedy}".rstrip()) from error


class Lake:
    """The lake under one folder; partitions go by name: lake.read("demand", trace="office", day=day)."""

    def __init__(self, root: Path | str = LAKE) -> None:
        self.root = Path(root).resolve()
        version = self.root / "VERSION"
        found = version.read_text().strip() if version.is_file() else str(LAKE_VERSION)
        if not found.isdigit() or int(found) > LAKE_VERSION:
            raise LakeVersionError(
                f"The lake in {self.root} has version {found}, this code reads up to {LAKE_VERSION}. "
                "Update fleetcast, or move that folder away and run again to build a new one."
            )

    def path(self, table: str, file: str = "part", **partition: Any) -> Path:
        """Where the file of one partition lies; a partition that is not given stands as *."""
        if table not in PARTITIONS:
            near = difflib.get_close_matches(table, PARTITIONS, n=1) or PARTITIONS
            raise LakeError(f"The lake has no table {table!r}; it knows: {', '.join(near)}.")
        if unknown := set(partition) - set(PARTITIONS[table]):
            raise LakeError(
                f"{table} is not partitioned by {unknown.pop()}, but by {', '.join(PARTITIONS[table])}."
            )
        folders = (f"{key}={partition.get(key, '*')}" for key in PARTITIONS[table])
        return self.root.joinpath(table, *folders, f"{file}.parquet")

    def days(self, table: str, trace: str) -> list[date]:
        """The days of which the lake has this table, in order."""
        found = self.root.glob(str(self.path(table, trace=trace).relative_to(self.root)))
        folders = {part for p in found for part in p.parts if part.startswith("day=")}
        return sorted(date.fromisoformat(folder.removeprefix("day=")) for folder in folders)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder beside the tables (same disk, never read by a view) that is gone when the block ends."""
        folder = self.root / ".scratch" / uuid.uuid4().hex
        with one_line_errors(f"Writing under {self.root}"):
            folder.mkdir(parents=True)
            if not (self.root / "VERSION").exists():
                (self.root / "VERSION").write_text(f"{LAKE_VERSION}\n")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def replacing(self, target: Path) -> Iterator[Path]:
        """A temporary path that becomes `target` in one step when the block ends well, else nothing."""
        with self.scratch() as folder, one_line_errors(f"Writing {target.relative_to(self.root)}"):
            yield folder / target.name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / target.name, target)

    def write(self, table: str, rows: pa.Table, file: str = "part", **partition: Any) -> Path:
        """Write one partition, brought to its schema where one is registered."""
        target = self.path(table, file, **partition)
        if missing := [key for key in PARTITIONS[table] if key not in partition]:
            raise LakeError(f"Writing {table} needs its partition {', '.join(missing)}.")
        with self.replacing(target) as temporary:
            pq.write_table(
                _conform(table, rows), temporary, compression="zstd", row_group_size=ROW_GROUP_ROWS
            )
        return target

    def copy(self, con: Connection, query: str, table: str, file: str = "part", **partition: Any) -> Path:
        """Write one partition from a query on `con`, never holding it in Python's memory."""
        target = self.path(table, file, **partition)
        with self.replacing(target) as temporary:
            con.execute(
                f"copy (\n{query}\n) to '{_quoted(temporary)}' "
                f"(format parquet, compression zstd, row_group_size {ROW_GROUP_ROWS})"
            )
            written = {field.name: field.type for field in pq.read_schema(temporary)}
            if written != {field.name: field.type for field in SCHEMAS[table]}:
                raise LakeError(f"{table} must have the columns {SCHEMAS[table]}, the query gives {written}.")
        return target

    def read(self, table: str, **partition: Any) -> pa.Table:
        """Read a table or some of its partitions, with the partition keys as columns."""
        pattern = self.path(table, "*", **partition)
        if next(self.root.glob(str(pattern.relative_to(self.root))), None) is None:
            wanted = ", ".join(f"{key} {value}" for key, value in partition.items()) or "any partition"
            there = sorted(
                {
                    str(p.parent.relative_to(self.root / table))
                    for p in self.root.glob(f"{table}/**/*.parquet")
                }
            )
            raise LakeError(
                f"The lake has no {table} of {wanted}; it has: {', '.join(there[-5:]) or 'none at all'}."
            )
        with duckdb.connect(config=DUCKDB) as con, one_line_errors(f"Reading {table}"):
            con.execute("set TimeZone = 'UTC'; set enable_progress_bar = false")
            return con.sql(_scan(table, pattern)).to_arrow_table()

    @contextmanager
    def connect(self, database: Path | str = ":memory:", **config: str) -> Iterator[Connection]:
        """A DuckDB connection with a view per table that has files, the macros, and the marts as views."""
        spill = self.root / ".scratch" / uuid.uuid4().hex  # DuckDB makes it when it must, and removes it
        with duckdb.connect(str(database), config={**DUCKDB, "temp_directory": str(spill), **config}) as con:
            con.execute("set TimeZone = 'UTC'; set enable_progress_bar = false")
            filled = {table for table in PARTITIONS if next((self.root / table).rglob("*.parquet"), None)}
            known = filled | set(SCHEMAS)
            for table in sorted(known):
                rows = _scan(table, self.path(table, "*")) if table in filled else _no_rows(table)
                con.execute(f"create view {table} as {rows}")
            waiting = {p: read_sql(p) for p in sorted((*SQL.glob("macros/*.sql"), *SQL.glob("marts/*.sql")))}
            # A mart named like a table of the lake is the recipe of that table, the others are views.
            waiting = {p: sql for p, sql in waiting.items() if p.stem not in PARTITIONS}
            while ready := [p for p, sql in waiting.items() if known.issuperset(sql.listed("reads"))]:
                for path in ready:
                    text = waiting.pop(path).text
                    con.execute(
                        text if path.parent.name == "macros" else f"create view {path.stem} as {text}"
                    )
                    known.add(path.stem)
            try:
                yield con
            except RuntimeError as error:
                if "interrupted" not in str(error):
                    raise
                raise KeyboardInterrupt from error  # how DuckDB tells of Ctrl-C

    def sql(self, query: str, **params: Any) -> pa.Table:
        """Run a query, or a file of sql/ ("checks/demand_conserves_tokens.sql"), and return an Arrow table.

        Parameters that the query names ($trace) and the call does not are null: a check that is given no
        trace and no day covers the whole lake.
        """
        text = read_sql(query).text if query.endswith(".sql") else query
        filled = {path.name for path in self.root.glob("*") if path.name in PARTITIONS}
        with (
            one_line_errors("Opening the lake"),
            self.connect() as con,
            one_line_errors("The query", _what_there_is(con, filled)),
        ):
            named = {
                name for statement in con.extract_statements(text) for name in statement.named_parameters
            }
            found = con.sql(text, params={name: params.get(name) for name in named} or None)
            return pa.table({}) if found is None else found.to_arrow_table()

    def publish(self) -> Path:
        """Build warehouse.duckdb (views only) aside and move it into place; sweep what killed runs left."""
        target = self.root / "warehouse.duckdb"
        for folder in (self.root / ".scratch").glob("*"):
            if time.time() - folder.stat().st_mtime > LEFTOVER_S:
                shutil.rmtree(folder, ignore_errors=True)
        shell = "v1.5.0"  # of the duckdb on PyPI
        with (
            self.replacing(target) as temporary,
            self.connect(temporary, storage_compatibility_version=shell) as con,
        ):
            con.execute(";\n".join(["begin", *comments(_columns(con)), "commit"]))
        return target


def _columns(con: Connection) -> dict[str, list[str]]:
    """The columns of every view on a connection."""
    rows = con.execute(
        "select table_name, list(column_name) from duckdb_columns() where not internal group by all"
    ).fetchall()
    return dict(rows)


def _what_there_is(con: Connection, filled: Iterable[str]) -> str:
    """Which tables with rows and which marts a query may read, as a sentence."""
    views = con.execute("select view_name from duckdb_views() where not internal").fetchall()
    tables = ", ".join(sorted(filled)) or "(none yet: run fleetcast nightly)"
    marts = ", ".join(sorted({name for (name,) in views} - set(PARTITIONS)))
    return f"The lake has the tables {tables}" + (f" and the marts {marts}." if marts else ".")


def _scan(table: str, pattern: Path) -> str:
    """Every row of the files; a column that an older file does not have yet is null."""
    types = ", ".join(f"'{key}': {'date' if key == 'day' else 'varchar'}" for key in PARTITIONS[table])
    options = f"hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true"
    rows = f"select * from read_parquet('{_quoted(pattern)}', {options})"
    return f"{_no_rows(table)} union all by name {rows}" if table in SCHEMAS else rows


def _no_rows(table: str) -> str:
    keys = {key: pa.date32() if key == "day" else pa.string() for key in PARTITIONS[table]}
    schema = SCHEMAS[table]
    columns = {**{field.name: field.type for field in schema}, **keys}
    nulls = ", ".join(f"null::{DUCKDB_TYPES[kind]} as {name}" for name, kind in columns.items())
    return f"select {nulls} where false"


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _conform(table: str, rows: pa.Table) -> pa.Table:
    """Cast to the registered schema; refuse missing and unknown columns and values that do not fit."""
    schema = SCHEMAS.get(table)
    if schema is None:
        return rows
    for name in sorted(OPTIONAL.get(table, frozenset()) - set(rows.column_names)):
        rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
    if set(rows.column_names) != set(schema.names):
        raise LakeError(
            f"{table} must have the columns {', '.join(schema.names)}, got {', '.join(rows.column_names)}."
        )
    with one_line_errors(f"Bringing {table} to its schema"):
        return rows.select(schema.names).cast(schema)
