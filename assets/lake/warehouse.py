"""The lake: its tables as files, and DuckDB over them.

All data is in Parquet files. DuckDB only reads them: through views on an in-memory connection here, and
through the views of warehouse.duckdb, which can be deleted and published again at any time.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa

from fleetcast.assets.lake import store
from fleetcast.assets.lake.duckdb_connection import (
    IN_MEMORY,
    Connection,
    cast_for_arrow,
    confine_to_folders,
    new_spill_folder,
    one_line_errors,
    one_line_message,
    open_duckdb,
    view_columns,
)
from fleetcast.assets.lake.errors import ChangedError, LakeError
from fleetcast.assets.lake.lake_views import Needed, create_macros_and_marts, find_needed
from fleetcast.assets.lake.query_days import files_of_days
from fleetcast.assets.lake.query_limits import QueryLimits
from fleetcast.assets.lake.query_process import QueryProcess
from fleetcast.assets.lake.read_only_query import parse_read_only_query
from fleetcast.assets.lake.schemas import LAKE_VERSION, PARTITIONS, SCHEMAS
from fleetcast.assets.lake.shared_columns import renamed_column_hint
from fleetcast.assets.lake.sql_docs import comment_statements
from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.table_files import LakeVersionError, TableFiles
from fleetcast.assets.lake.table_queries import empty_table_query, table_rows_query

__all__ = ["LAKE_VERSION", "Connection", "Lake", "LakeError", "LakeVersionError", "one_line_errors"]

RESULT_BATCH_ROWS = 100_000  # rows per batch of a result
ALLOW_REMEDY = "A query reads files of the lake, and of a folder that you name with --allow FOLDER."
STORAGE_VERSION = "v1.5.0"  # the format that the duckdb on PyPI reads
DIGEST_MACRO = "digest_of_views"  # of the published file


class Lake(TableFiles):
    """The lake under one root; partitions go by name: lake.read("demand", trace="office", day=day)."""

    def read(self, table: str, **partition: Any) -> pa.Table:
        """Read a table or some of its partitions, with the partition keys as columns."""
        if not self.files(table, **partition):
            wanted = ", ".join(f"{key} {value}" for key, value in partition.items()) or "any partition"
            known = sorted({self.below(p.parent).removeprefix(f"{table}/") for p in self.files(table)})
            raise LakeError(
                f"The lake has no {table} of {wanted}; it has: {', '.join(known[-5:]) or 'none at all'}."
            )
        with open_duckdb(self.root) as con, one_line_errors(f"Reading {table}"):
            return con.sql(table_rows_query(table, self.path(table, "*", **partition))).to_arrow_table()

    @contextmanager
    def connect(
        self,
        database: Path | str = IN_MEMORY,
        query: str | None = None,
        files: Mapping[str, Sequence[LakePath]] = MappingProxyType({}),
        needed: Needed | None = None,
        **config: Any,
    ) -> Iterator[Connection]:
        """Open a DuckDB connection with a view per table that has files, the macros, and the marts as views.

        A view opens every file of its table, or those in `files`. With `query`, the connection has only the
        views and macros that this query needs, or those in `needed`.
        """
        temp = "temp" if database == IN_MEMORY else ""  # connections in memory may share the instance
        # Views are bound when they are read. A published file's are bound now, so that it shows columns.
        bound = "with (defer_binding)" if temp or query else ""
        with open_duckdb(self.root, database, **config) as con:
            recipes, named = needed or find_needed(self, query)
            filled, known = store.folders_with_rows(self.root, named), list[str]()
            for table in named:
                if table in filled and (found := files.get(table, [self.path(table, "*")])):
                    rows = table_rows_query(table, *found)
                elif table in SCHEMAS:
                    rows = empty_table_query(table)
                else:
                    continue
                con.execute(f"create {temp} view {table} {bound} as {rows}")
                known.append(table)
            create_macros_and_marts(con, recipes, known, temp, bound)
            try:
                yield con
            except RuntimeError as error:
                if "interrupted" not in str(error):
                    raise
                raise KeyboardInterrupt from error  # DuckDB reports Ctrl-C as a RuntimeError

    def sql(self, query: str, **params: Any) -> pa.Table:
        """Run a query, or a file of sql/ ("checks/demand_conserves_tokens.sql"), and return an Arrow table.

        Parameters of the query ($trace) without a value are null: a check without trace and day covers the
        whole lake. LakeError if the text is not one query.
        """
        with self._open_query(query, params) as relation:
            return relation.to_arrow_table()

    @contextmanager
    def answer(
        self, query: str, limits: QueryLimits, folders: Sequence[Path] = (), **params: Any
    ) -> Iterator[pa.RecordBatchReader]:
        """Yield the result of a typed query batch by batch, within limits of memory, disk and time.

        The query reads files of the lake and of these folders only. It runs in a process of its own, which is
        ended at a limit. LakeError, also while the result is read, for a query that needs more; it names the
        option that raises the limit.
        """
        spill = new_spill_folder(self.root)
        store.OPEN_SCRATCH_FOLDERS.add(spill)  # the process may be killed before it removes it

        @contextmanager
        def open_result() -> Iterator[pa.RecordBatchReader]:
            lake = self if isinstance(self.root, Path) else Lake(str(self.root))  # its threads are not forked
            config = {**limits.config(), "temp_directory": str(spill)}
            with lake._open_query(query, params, [str(lake.root), *map(str, folders)], **config) as relation:
                try:
                    yield cast_for_arrow(relation).to_arrow_reader(RESULT_BATCH_ROWS)
                except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
                    is_memory = isinstance(error, (duckdb.OutOfMemoryException, MemoryError))
                    if is_memory or "Out of Memory" in str(error):
                        raise LakeError(limits.too_large()) from error
                    raise

        try:
            with QueryProcess(open_result, limits).result() as reader:
                yield reader
        finally:
            store.remove_scratch_folder(spill)

    @contextmanager
    def _open_query(
        self, query: str, params: Mapping[str, Any], folders: Sequence[str] | None = None, **config: Any
    ) -> Iterator[duckdb.DuckDBPyRelation]:
        """Bind the single query of a text, or of a file of sql/, to its parameters, without running it.

        It is bound to the views that it names. If one is missing, it is bound to all views of the lake, so
        that DuckDB can suggest a name. With `folders`, it reads the files in these only.
        """
        text = read_sql(query).text if query.endswith(".sql") else query
        for views_of in (text, None):
            needed = find_needed(self, views_of)
            files = files_of_days(self, text, needed, params, folders) if views_of else {}
            with (
                one_line_errors("Opening the lake"),
                self.connect(query=views_of, files=files, needed=needed, **config) as con,
                one_line_errors("The query"),
            ):
                if folders is not None:
                    confine_to_folders(con, folders)
                try:
                    names = parse_read_only_query(con, text, params).named_parameters
                    relation = con.sql(text, params={name: params.get(name) for name in names} or None)
                except duckdb.CatalogException as error:
                    if views_of is not None:
                        continue
                    raise LakeError(
                        f"The query failed: {one_line_message(error)} {self._contents(con)}"
                    ) from error
                except duckdb.BinderException as error:
                    if hint := renamed_column_hint(str(error), text):
                        raise LakeError(f"The query failed: {one_line_message(error)} {hint}") from error
                    raise
                except duckdb.PermissionException as error:
                    raise LakeError(f"The query failed: {one_line_message(error)} {ALLOW_REMEDY}") from error
                yield relation
                return

    def _contents(self, con: Connection) -> str:
        """Describe which tables with rows and which marts a query can read, in a sentence."""
        filled = sorted(path.name for path in self.root.glob("*") if path.name in PARTITIONS)
        views = con.execute("select view_name from duckdb_views() where not internal").fetchall()
        tables = ", ".join(filled) or "(none yet: run fleetcast nightly)"
        marts = ", ".join(sorted({name for (name,) in views} - set(PARTITIONS)))
        return f"The lake has the tables {tables}" + (f" and the marts {marts}." if marts else ".")

    def publish(self) -> LakePath:
        """Build warehouse.duckdb (views only), move it into place, and remove the scratch of killed runs.

        On a disk it is built only if its views have changed: if a table has its first files, or sql/ changes.
        A process that lists the tables later must also write later, else it would hide new tables. On a disk
        one process publishes at a time. In a bucket the file is put only if it has not changed since before
        the tables were listed; else they are listed again.
        """
        target = self.root / "warehouse.duckdb"
        store.sweep_scratch_folders(self.root)
        if isinstance(target, Path):
            with store.exclusive_lock(target.with_name(".publishing")):
                if _read_digest(target) != self._views_digest():
                    with self.replacing(target) as temporary:
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
        digest = self._views_digest()  # before the tables are listed: a later table changes it
        with self.connect(file, storage_compatibility_version=STORAGE_VERSION) as con:
            con.execute(f"create macro {DIGEST_MACRO}() as '{digest}'")
            con.execute(";\n".join(["begin", *comment_statements(view_columns(con)), "commit"]))

    def _views_digest(self) -> str:
        """Return a digest of what the published views and their comments are made from."""
        _, tables = find_needed(self, None)
        filled = store.folders_with_rows(self.root, tables)
        rows = [table_rows_query(table, self.path(table, "*")) for table in tables if table in filled]
        texts = [path.read_text("utf-8") for path in sorted(SQL.glob("*/*.sql"))]
        parts = [duckdb.__version__, STORAGE_VERSION, *rows, *texts]
        return sha256("\0".join(parts).encode()).hexdigest()


def _read_digest(database: Path) -> str:
    """Return the digest of the views of a published file; empty if it has none, as one of an old release."""
    with contextlib.suppress(duckdb.Error), duckdb.connect(str(database), read_only=True) as con:
        ((digest,),) = con.execute(f"select {DIGEST_MACRO}()").fetchall()
        return str(digest)
    return ""
