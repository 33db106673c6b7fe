"""The lake: its tables as files, and DuckDB over them.

Parquet files are the truth. DuckDB only ever reads them: through views on an in-memory connection here, and
through the views of warehouse.duckdb, which can be deleted and published again at any time.
"""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from fleetcast.assets.lake import store
from fleetcast.assets.lake.duckdb_connection import (
    IN_MEMORY,
    Connection,
    cast_for_arrow,
    one_line_errors,
    one_line_message,
    open_duckdb,
    view_columns,
)
from fleetcast.assets.lake.environment import LAKE
from fleetcast.assets.lake.errors import ChangedError, LakeError
from fleetcast.assets.lake.query_limits import QueryLimits, QueryTimer
from fleetcast.assets.lake.read_only_query import parse_read_only_query
from fleetcast.assets.lake.schemas import LAKE_VERSION, PARTITIONS, SCHEMAS
from fleetcast.assets.lake.sql_docs import comment_statements
from fleetcast.assets.lake.sql_files import load_macros_and_marts, read_sql, words_of_query
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.table_files import LakeVersionError, TableFiles
from fleetcast.assets.lake.table_queries import empty_table_query, table_rows_query

__all__ = [
    "LAKE_VERSION",
    "Connection",
    "Lake",
    "LakeError",
    "LakeVersionError",
    "one_line_errors",
]

RESULT_BATCH_ROWS = 100_000  # of an answer at a time
STORAGE_VERSION = "v1.5.0"  # of the duckdb on PyPI


class Lake(TableFiles):
    """The lake under one root; partitions go by name: lake.read("demand", trace="office", day=day)."""

    def __init__(self, root: LakePath | str = LAKE) -> None:
        super().__init__(root)

    def read(self, table: str, **partition: Any) -> pa.Table:
        """Read a table or some of its partitions, with the partition keys as columns."""
        if not self.files(table, **partition):
            wanted = ", ".join(f"{key} {value}" for key, value in partition.items()) or "any partition"
            there = sorted({self.below(p.parent).removeprefix(f"{table}/") for p in self.files(table)})
            raise LakeError(
                f"The lake has no {table} of {wanted}; it has: {', '.join(there[-5:]) or 'none at all'}."
            )
        with open_duckdb(self.root) as con, one_line_errors(f"Reading {table}"):
            return con.sql(table_rows_query(table, self.path(table, "*", **partition))).to_arrow_table()

    @contextmanager
    def connect(
        self, database: Path | str = IN_MEMORY, query: str | None = None, **config: str
    ) -> Iterator[Connection]:
        """A DuckDB connection with a view per table that has files, the macros, and the marts as views.

        A view opens every file of its table. Given the one `query` that will be asked, only what it names,
        and what that is made from, is there.
        """
        temp = "temp" if database == IN_MEMORY else ""  # in memory others may be on the same instance
        # A view is bound, with all below it, where it is read; who opens a published file sees its columns.
        bound = "with (defer_binding)" if temp or query else ""
        with open_duckdb(self.root, database, **config) as con:
            # A mart named like a table of the lake is the recipe of that table, the others are views.
            waiting = {p: sql for p, sql in load_macros_and_marts().items() if p.stem not in PARTITIONS}
            words = words_of_query(query, waiting.values())
            waiting = {p: sql for p, sql in waiting.items() if words is None or words & sql.defined_names}
            known = set[str]()
            named = sorted(name for name in PARTITIONS if words is None or name in words)
            filled = store.folders_with_rows(self.root, named)
            for table in named:
                if table in filled:
                    rows = table_rows_query(table, self.path(table, "*"))
                elif table in SCHEMAS:
                    rows = empty_table_query(table)
                else:
                    continue
                con.execute(f"create {temp} view {table} {bound} as {rows}")
                known.add(table)
            while ready := [p for p, sql in waiting.items() if known.issuperset(sql.listed("reads"))]:
                for path in ready:
                    text = waiting.pop(path).text
                    if path.parent.name == "macros":
                        con.execute(text.replace("replace macro", f"replace {temp} macro"))
                    else:
                        con.execute(f"create {temp} view {path.stem} {bound} as {text}")
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
        with self._open_query(query, params) as (_, relation):
            return relation.to_arrow_table()

    @contextmanager
    def answer(self, query: str, limits: QueryLimits, **params: Any) -> Iterator[pa.RecordBatchReader]:
        """The answer of `sql` batch by batch, never whole in memory, within limits of memory, disk and time.

        LakeError, also while it is read, for a query that needs more; it names what may be given.
        """
        with self._open_query(query, params, **limits.config()) as (con, relation):
            watch = QueryTimer(con.interrupt, limits.time_limit_s)
            try:
                with watch.working():
                    reader = cast_for_arrow(relation).to_arrow_reader(RESULT_BATCH_ROWS)
                yield pa.RecordBatchReader.from_batches(reader.schema, watch.iterate_timed(reader))
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in str(error):
                    raise LakeError(limits.too_large()) from error
                if watch.is_over:
                    raise LakeError(limits.too_long()) from error
                raise

    @contextmanager
    def _open_query(
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
                if config:  # a person typed the query: no function of it may change a setting
                    con.execute("set lock_configuration = true")
                try:
                    named = parse_read_only_query(con, text, params).named_parameters
                    relation = con.sql(text, params={name: params.get(name) for name in named} or None)
                except duckdb.CatalogException as error:
                    if there is not None:
                        continue
                    raise LakeError(
                        f"The query failed: {one_line_message(error)} {self._contents(con)}"
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

    def publish(self) -> LakePath:
        """Build warehouse.duckdb (views only) aside and bring it to its place; sweep what killed runs left.

        Who lists the tables later also writes later, so that no table is hidden. On a disk one publishes at a
        time; in a bucket the file is put only where it is still the one that was there before the tables were
        listed, else they are listed again.
        """
        target = self.root / "warehouse.duckdb"
        store.sweep_scratch_folders(self.root)
        if isinstance(target, Path):
            with store.exclusive_lock(target.with_name(".publishing")), self.replacing(target) as temporary:
                self._write_views(temporary)
            return target
        while True:
            before = store.change_tag(target)
            with (
                contextlib.suppress(ChangedError),
                self.scratch() as folder,
                one_line_errors(f"Writing {target}"),
            ):
                self._write_views(folder / target.name)
                store.put_if_unchanged(folder / target.name, target, before)
                return target

    def _write_views(self, file: Path) -> None:
        with self.connect(file, storage_compatibility_version=STORAGE_VERSION) as con:
            con.execute(";\n".join(["begin", *comment_statements(view_columns(con)), "commit"]))
