"""The lake: where tables lie, how they are written, and DuckDB over them.

Parquet files under data/lake are the truth; a table is written aside and moved into place, so that a
reader never sees half of one. DuckDB only ever reads them: through views on an in-memory connection here,
and through the views of warehouse.duckdb, which can be deleted and published again at any time.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from assets.lake.limits import Limits, Watch
from assets.lake.machine import cores, memory_bytes
from assets.lake.schemas import (
    LAKE_VERSION,
    OPTIONAL,
    PARTITIONS,
    REQUEST_SCHEMA,
    SCHEMAS,
    no_rows,
    quoted,
    scan,
)
from assets.lake.sql_docs import comments
from assets.lake.sql_files import read_sql, recipes, words_meant
from models.world.reading import nearest

__all__ = ["LAKE", "REQUEST_SCHEMA", "Connection", "Lake", "LakeError", "LakeVersionError"]

ROOT = Path(__file__).resolve().parents[2]
LAKE = ROOT / "data" / "lake"
LEAST_MEMORY_MB = 1500  # of DuckDB; it gets a quarter of what there is
ROW_GROUP_ROWS = 100_000
MADE_FROM = b"made_from"  # key of a file's metadata
LEFTOVER_S = 86_400.0  # scratch older than this is of a run that was killed
SCRATCHES: set[Path] = set()  # that are open in this process: what ends it by force removes them
ANSWER_ROWS = 100_000  # of an answer at a time
NO_ARROW = {"bit", "bignum", "union", "variant", "geometry"}  # types without a form in Arrow
Connection = duckdb.DuckDBPyConnection
_Kind = duckdb.StatementType
QUERIES = (_Kind.SELECT, _Kind.EXPLAIN, _Kind.MULTI)  # a pivot is several statements to DuckDB


class LakeError(ValueError):
    """The lake cannot do what was asked; the message is one line with the remedy."""


class LakeVersionError(LakeError):
    """The lake was written by a newer version of this code."""


@contextmanager
def one_line_errors(doing: str, remedy: str = "", kind: type[LakeError] = LakeError) -> Iterator[None]:
    """Turn what the disk, Arrow or DuckDB raise into one line: a LakeError for a full disk, else `kind`."""
    try:
        yield
    except (LakeError, BrokenPipeError):  # the reader of an answer may leave
        raise
    except (OSError, duckdb.Error, pa.ArrowException) as error:
        said = f"{doing} failed: {_in_one_line(error)}"
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in said:
            full = "The disk is full: free some space and run again; what was there before is kept."
            raise LakeError(f"{said} {full}") from error
        raise kind(f"{said} {remedy}".rstrip()) from error


def duckdb_settings() -> dict[str, Any]:
    """Memory and threads. Exact percentiles hold all their values: of ten million requests nearly 3 GB."""
    memory_mb = max(LEAST_MEMORY_MB, memory_bytes() // 4 // 10**6)
    return {"memory_limit": f"{memory_mb}MB", "threads": cores()}


class Lake:
    """The lake under one folder; partitions go by name: lake.read("demand", trace="office", day=day)."""

    def __init__(self, root: Path | str = LAKE) -> None:
        self.root = Path(root).resolve()
        version = self.root / "VERSION"
        found = version.read_text(errors="replace").strip() if version.is_file() else str(LAKE_VERSION)
        if not found.isdecimal():
            raise LakeVersionError(
                f"{version} is damaged: it says {found[:20]!r}, not the version of the lake. "
                f"Write {LAKE_VERSION} into it."
            )
        if int(found) > LAKE_VERSION:
            raise LakeVersionError(
                f"The lake in {self.root} has version {found}, this code reads up to {LAKE_VERSION}. "
                "Update fleetcast, or move that folder away and run again to build a new one."
            )

    def path(self, table: str, file: str = "part", **partition: Any) -> Path:
        """Where the file of one partition lies; a partition that is not given stands as *."""
        if table not in PARTITIONS:
            raise LakeError(f"The lake has no table {table!r}. {nearest(table, PARTITIONS)}")
        if unknown := set(partition) - set(PARTITIONS[table]):
            raise LakeError(
                f"{table} is not partitioned by {unknown.pop()}, but by {', '.join(PARTITIONS[table])}."
            )
        folders = (f"{key}={partition.get(key, '*')}" for key in PARTITIONS[table])
        return self.root.joinpath(table, *folders, f"{file}.parquet")

    def files(self, table: str, **partition: Any) -> list[Path]:
        """The files of a table, or of some of its partitions."""
        return sorted(self.root.glob(str(self.path(table, "*", **partition).relative_to(self.root))))

    def days(self, table: str, trace: str) -> list[date]:
        """The days of which the lake has this table, in order."""
        folders = {
            part for p in self.files(table, trace=trace) for part in p.parts if part.startswith("day=")
        }
        return sorted(date.fromisoformat(folder.removeprefix("day=")) for folder in folders)

    def content(self, table: str, **partition: Any) -> str:
        """A digest of what a table holds: of each file the name, and its footer, which sums its columns up.

        Unlike the time at which a file was written it is the same on every machine and every disk.
        """
        digest = hashlib.sha256()
        for path in self.files(table, **partition):
            digest.update(f"{path.relative_to(self.root)}".encode() + _footer(path))
        return digest.hexdigest()

    def is_made_from(self, table: str, content: str, **partition: Any) -> bool:
        """Whether the partition is there, and says that it was made from just that."""
        path = self.path(table, **partition)
        return path.is_file() and (pq.read_metadata(path).metadata or {}).get(MADE_FROM) == content.encode()

    def made_from(self, trace: str) -> Path:
        """Where a trace that is made, not landed, keeps what its days were made from."""
        return self.root / "requests" / f"trace={trace}" / "made_from"

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder beside the tables (same disk, never read by a view) that is gone when the block ends."""
        folder = self.root / ".scratch" / uuid.uuid4().hex
        with one_line_errors(f"Writing under {self.root}"):
            folder.mkdir(parents=True)
            if not (self.root / "VERSION").exists():
                (folder / "VERSION").write_text(f"{LAKE_VERSION}\n")
                os.replace(folder / "VERSION", self.root / "VERSION")
        SCRATCHES.add(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            SCRATCHES.discard(folder)

    @contextmanager
    def replacing(self, target: Path) -> Iterator[Path]:
        """A temporary path that becomes `target` in one step when the block ends well, else nothing."""
        with self.scratch() as folder, one_line_errors(f"Writing {target.relative_to(self.root)}"):
            yield folder / target.name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / target.name, target)

    def write(
        self, table: str, rows: pa.Table, file: str = "part", made_from: str = "", **partition: Any
    ) -> Path:
        """Write one partition, brought to its schema where one is registered.

        `made_from` is the content of what it was made from, for `is_made_from`.
        """
        target = self.path(table, file, **partition)
        if missing := [key for key in PARTITIONS[table] if key not in partition]:
            raise LakeError(f"Writing {table} needs its partition {', '.join(missing)}.")
        with self.replacing(target) as temporary:
            conformed = _conform(table, rows)
            if made_from:
                conformed = conformed.replace_schema_metadata({MADE_FROM: made_from})
            # Instants and figures hardly repeat: a dictionary of them is larger, and takes half the time.
            repeated = [f.name for f in conformed.schema if not _is_measured(f.type)]
            pq.write_table(
                conformed,
                temporary,
                compression="zstd",
                row_group_size=ROW_GROUP_ROWS,
                use_dictionary=repeated,
            )
        return target

    def drop_day(self, trace: str, day: date) -> None:
        """Take a day of a trace out of every table."""
        for table in (name for name, keys in PARTITIONS.items() if "day" in keys):
            for part in self.files(table, trace=trace, day=day):
                part.unlink()

    def copy(self, con: Connection, query: str, table: str, file: str = "part", **partition: Any) -> Path:
        """Write one partition from a query on `con`, never holding it in Python's memory."""
        target = self.path(table, file, **partition)
        with self.replacing(target) as temporary:
            con.execute(
                f"copy (\n{query}\n) to '{quoted(temporary)}' "
                f"(format parquet, compression zstd, row_group_size {ROW_GROUP_ROWS})"
            )
            written = {field.name: field.type for field in pq.read_schema(temporary)}
            if written != {field.name: field.type for field in SCHEMAS[table]}:
                raise LakeError(f"{table} must have the columns {SCHEMAS[table]}, the query gives {written}.")
        return target

    def read(self, table: str, **partition: Any) -> pa.Table:
        """Read a table or some of its partitions, with the partition keys as columns."""
        if not self.files(table, **partition):
            wanted = ", ".join(f"{key} {value}" for key, value in partition.items()) or "any partition"
            there = sorted({str(p.parent.relative_to(self.root / table)) for p in self.files(table)})
            raise LakeError(
                f"The lake has no {table} of {wanted}; it has: {', '.join(there[-5:]) or 'none at all'}."
            )
        with duckdb.connect(config=duckdb_settings()) as con, one_line_errors(f"Reading {table}"):
            con.execute("set TimeZone = 'UTC'; set enable_progress_bar = false")
            return con.sql(scan(table, self.path(table, "*", **partition))).to_arrow_table()

    def count(self, table: str, **partition: Any) -> int:
        """The rows of a table or of some of its partitions."""
        return sum(pq.read_metadata(path).num_rows for path in self.files(table, **partition))

    def part(self, table: str, **partition: Any) -> pa.Table:
        """The rows of one partition as they were written, without its keys."""
        return pq.ParquetFile(self.path(table, **partition)).read()

    @contextmanager
    def connect(
        self, database: Path | str = ":memory:", query: str | None = None, **config: str
    ) -> Iterator[Connection]:
        """A DuckDB connection with a view per table that has files, the macros, and the marts as views.

        A view opens every file of its table. Given the one `query` that will be asked, only what it names,
        and what that is made from, is there.
        """
        spill = self.root / ".scratch" / uuid.uuid4().hex  # DuckDB makes it when it must, and removes it
        settings = {**duckdb_settings(), "temp_directory": str(spill), **config}
        with duckdb.connect(str(database), config=settings) as con:
            con.execute("set TimeZone = 'UTC'; set enable_progress_bar = false")
            # A mart named like a table of the lake is the recipe of that table, the others are views.
            waiting = {p: sql for p, sql in recipes().items() if p.stem not in PARTITIONS}
            words = words_meant(query, waiting.values())
            waiting = {p: sql for p, sql in waiting.items() if words is None or words & sql.makes}
            known = set[str]()
            for table in sorted(name for name in PARTITIONS if words is None or name in words):
                if next((self.root / table).rglob("*.parquet"), None):
                    con.execute(f"create view {table} as {scan(table, self.path(table, '*'))}")
                elif table in SCHEMAS:
                    con.execute(f"create view {table} as {no_rows(table)}")
                else:
                    continue
                known.add(table)
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
        trace and no day covers the whole lake. LakeError for what is not one query.
        """
        with self._asked(query, params) as (_, relation):
            return relation.to_arrow_table()

    @contextmanager
    def answer(self, query: str, limits: Limits, **params: Any) -> Iterator[pa.RecordBatchReader]:
        """The answer of `sql` batch by batch, never whole in memory, within limits of memory, disk and time.

        LakeError, also while it is read, for a query that needs more; it names what may be given.
        """
        with self._asked(query, params, **limits.config()) as (con, relation):
            watch = Watch(con.interrupt, limits.time_limit_s)
            try:
                with watch.working():
                    reader = _told_as_text(relation).to_arrow_reader(ANSWER_ROWS)
                yield pa.RecordBatchReader.from_batches(reader.schema, watch.each(reader))
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in str(error):
                    raise LakeError(limits.too_large()) from error
                if watch.is_over:
                    raise LakeError(limits.too_long()) from error
                raise

    @contextmanager
    def _asked(
        self, query: str, params: Mapping[str, Any], **config: Any
    ) -> Iterator[tuple[Connection, duckdb.DuckDBPyRelation]]:
        """The one query of a text, or of a file of sql/, with its parameters; nothing has run yet.

        It is asked of a lake that has what it names; where that lacks something, of all that there is, among
        which DuckDB looks for what was meant.
        """
        text = read_sql(query).text if query.endswith(".sql") else query
        for there in (text, None):
            with (
                one_line_errors("Opening the lake"),
                self.connect(query=there, **config) as con,
                one_line_errors("The query"),
            ):
                try:
                    named = _only_query(con, text).named_parameters
                    relation = con.sql(text, params={name: params.get(name) for name in named} or None)
                except duckdb.CatalogException as error:
                    if there is not None:
                        continue
                    raise LakeError(
                        f"The query failed: {_in_one_line(error)} {self._contents(con)}"
                    ) from error
                yield con, relation
                return

    def _contents(self, con: Connection) -> str:
        """Which tables with rows and which marts a query may read, as a sentence."""
        filled = sorted(path.name for path in self.root.glob("*") if path.name in PARTITIONS)
        views = con.execute("select view_name from duckdb_views() where not internal").fetchall()
        tables = ", ".join(filled) or "(none yet: run fleetcast nightly)"
        marts = ", ".join(sorted({name for (name,) in views} - set(PARTITIONS)))
        return f"The lake has the tables {tables}" + (f" and the marts {marts}." if marts else ".")

    def publish(self) -> Path:
        """Build warehouse.duckdb (views only) aside and move it into place; sweep what killed runs left.

        One at a time: who lists the tables later also writes later, so that no table is hidden.
        """
        target = self.root / "warehouse.duckdb"
        for folder in (self.root / ".scratch").glob("*"):
            if time.time() - folder.stat().st_mtime > LEFTOVER_S:
                shutil.rmtree(folder, ignore_errors=True)
        shell = "v1.5.0"  # of the duckdb on PyPI
        with (
            _alone(self.root / ".publishing"),
            self.replacing(target) as temporary,
            self.connect(temporary, storage_compatibility_version=shell) as con,
        ):
            con.execute(";\n".join(["begin", *comments(_columns(con)), "commit"]))
        return target


def _footer(path: Path) -> bytes:
    """The footer of a Parquet file: rows, sizes and statistics of every column chunk."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        return file.read(length)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """While no other process, or thread, does the same."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _columns(con: Connection) -> dict[str, list[str]]:
    """The columns of every view on a connection."""
    rows = con.execute(
        "select table_name, list(column_name) from duckdb_columns() where not internal group by all"
    ).fetchall()
    return dict(rows)


def _only_query(con: Connection, text: str) -> duckdb.Statement:
    """The one statement of a text, which must read only; LakeError for anything else."""
    statements = con.extract_statements(text)
    if len(statements) != 1 or statements[0].type not in QUERIES:
        given = ", ".join(statement.type.name.lower() for statement in statements) or "none"
        raise LakeError(
            f"Needed one query (select, from, pivot, describe, summarize, explain), got {given}. "
            "Anything else can be done in a DuckDB shell on warehouse.duckdb."
        )
    return statements[0]


def _told_as_text(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The relation, with columns that Arrow only has as bytes of DuckDB's own as DuckDB writes them."""
    if not any(kind.id in NO_ARROW for kind in relation.types):
        return relation
    columns = (
        f"cast(#{n} as varchar) as {json.dumps(name)}" if kind.id in NO_ARROW else f"#{n}"
        for n, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True), start=1)
    )
    return relation.project(", ".join(columns))


def _in_one_line(error: Exception) -> str:
    """What an error says in its first line, and the names that DuckDB thinks were meant, as sentences."""
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    hints = [
        line.strip().rstrip(".") for line in more if line.startswith(("Did you mean", "Candidate bindings"))
    ]
    return " ".join(f"{said}." for said in (first.rstrip(".! "), *hints)).replace("?.", "?")


def _is_measured(kind: pa.DataType) -> bool:
    """Whether a column counts or measures finely, so that few of its values are alike."""
    return bool(pa.types.is_floating(kind) or pa.types.is_timestamp(kind) or pa.types.is_uint64(kind))


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
