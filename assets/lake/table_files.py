"""The tables of the lake as files: which there are, what they hold, and how one is written.

A table is written aside and brought to its place whole, so that a reader never sees half of one.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fleetcast.assets.lake import store
from fleetcast.assets.lake.duckdb_connection import Connection, one_line_errors
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.schemas import LAKE_VERSION, OPTIONAL_COLUMNS, PARTITIONS, SCHEMAS
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.table_queries import escape_quotes
from fleetcast.models.world.toml_dataclasses import suggest_name

ROW_GROUP_ROWS = 100_000
MADE_FROM_KEY = b"made_from"  # key of a file's metadata


class LakeVersionError(LakeError):
    """The lake was written by a newer version of this code."""


class TableFiles:
    """The files under one root; partitions go by name: tables.path("demand", trace="office", day=day)."""

    def __init__(self, root: LakePath | str) -> None:
        self.root, self._says_version = store.resolve_lake_root(root), False
        version, found = self.root / "VERSION", str(LAKE_VERSION)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = version.read_bytes().decode(errors="replace").strip()
            self._says_version = True
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

    def path(self, table: str, file: str = "part", **partition: Any) -> LakePath:
        """Where the file of one partition lies; a partition that is not given stands as *."""
        if table not in PARTITIONS:
            raise LakeError(f"The lake has no table {table!r}. {suggest_name(table, PARTITIONS)}")
        if unknown := set(partition) - set(PARTITIONS[table]):
            raise LakeError(
                f"{table} is not partitioned by {unknown.pop()}, but by {', '.join(PARTITIONS[table])}."
            )
        folders = (f"{key}={partition.get(key, '*')}" for key in PARTITIONS[table])
        return self.root.joinpath(table, *folders, f"{file}.parquet")

    def files(self, table: str, **partition: Any) -> list[LakePath]:
        """The files of a table, or of some of its partitions."""
        return sorted(self.root.glob(self.below(self.path(table, "*", **partition))))

    def marks(self, table: str, **partition: Any) -> dict[str, str]:
        """The names of the files of a table, each with what changes when it is written again."""
        return store.change_tags(self.root, self.below(self.path(table, "*", **partition)))

    def below(self, path: LakePath) -> str:
        """The name of a file from the root on."""
        return store.name_below_root(path, self.root)

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
            digest.update(self.below(path).encode() + _footer(path))
        return digest.hexdigest()

    def is_made_from(self, table: str, content: str, **partition: Any) -> bool:
        """Whether the partition is there, and says that it was made from just that."""
        path = self.path(table, **partition)
        try:
            return (_metadata(path).metadata or {}).get(MADE_FROM_KEY) == content.encode()
        except FileNotFoundError:
            return False

    def made_from(self, trace: str) -> LakePath:
        """Where a trace that is made, not landed, keeps what its days were made from."""
        return self.root / "requests" / f"trace={trace}" / "made_from"

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder of this machine, never read by a view, that is gone when the block ends."""
        with one_line_errors(f"Writing under {store.scratch_root(self.root).parent}"):
            folder = store.create_scratch_folder(self.root)
        try:
            yield folder
        finally:
            store.remove_scratch_folder(folder)

    @contextmanager
    def replacing(self, target: LakePath) -> Iterator[Path]:
        """A temporary path that becomes `target` in one step when the block ends well, else nothing."""
        with self.scratch() as folder, one_line_errors(f"Writing {self.below(target)}"):
            yield folder / target.name
            if not self._says_version:
                (folder / "VERSION").write_text(f"{LAKE_VERSION}\n")
                store.move_into_place(folder / "VERSION", self.root / "VERSION")
                self._says_version = True
            store.move_into_place(folder / target.name, target)

    def write(
        self, table: str, rows: pa.Table, file: str = "part", made_from: str = "", **partition: Any
    ) -> LakePath:
        """Write one partition, brought to its schema where one is registered.

        `made_from` is the content of what it was made from, for `is_made_from`.
        """
        with self.writing(table, file, made_from, **partition) as append:
            append(rows)
        return self.path(table, file, **partition)

    @contextmanager
    def writing(
        self, table: str, file: str = "part", made_from: str = "", **partition: Any
    ) -> Iterator[Callable[[pa.Table], None]]:
        """As `write`, for a partition that comes in pieces: it is there when the block ends well."""
        if missing := [key for key in PARTITIONS[table] if key not in partition]:
            raise LakeError(f"Writing {table} needs its partition {', '.join(missing)}.")
        with ExitStack() as stack:
            temporary = stack.enter_context(self.replacing(self.path(table, file, **partition)))
            writer: pq.ParquetWriter | None = None

            def append(rows: pa.Table) -> None:
                nonlocal writer
                conformed = _conform(table, rows)
                if writer is None:
                    said = {MADE_FROM_KEY: made_from} if made_from else conformed.schema.metadata
                    schema = conformed.schema.with_metadata(said)
                    # Of instants and figures, which hardly repeat, a dictionary is larger and twice as slow.
                    repeated = [field.name for field in schema if not _is_measured(field.type)]
                    made = pq.ParquetWriter(temporary, schema, compression="zstd", use_dictionary=repeated)
                    writer = stack.enter_context(made)
                writer.write_table(conformed, ROW_GROUP_ROWS)

            yield append

    def drop_day(self, trace: str, day: date) -> None:
        """Take a day of a trace out of every table."""
        for table in (name for name, keys in PARTITIONS.items() if "day" in keys):
            for part in self.files(table, trace=trace, day=day):
                part.unlink()

    def copy(self, con: Connection, query: str, table: str, file: str = "part", **partition: Any) -> LakePath:
        """Write one partition from a query on `con`, never holding it in Python's memory."""
        target = self.path(table, file, **partition)
        with self.replacing(target) as temporary:
            con.execute(
                f"copy (\n{query}\n) to '{escape_quotes(temporary)}' "
                f"(format parquet, compression zstd, row_group_size {ROW_GROUP_ROWS})"
            )
            written = {field.name: field.type for field in pq.read_schema(temporary)}
            if written != {field.name: field.type for field in SCHEMAS[table]}:
                raise LakeError(f"{table} must have the columns {SCHEMAS[table]}, the query gives {written}.")
        return target

    def count(self, table: str, **partition: Any) -> int:
        """The rows of a table or of some of its partitions."""
        return sum(_metadata(path).num_rows for path in self.files(table, **partition))

    def part(self, table: str, **partition: Any) -> pa.Table:
        """The rows of one partition as they were written, without its keys."""
        return pq.ParquetFile(store.parquet_source(self.path(table, **partition))).read()


def _metadata(path: LakePath) -> pq.FileMetaData:
    return pq.read_metadata(store.parquet_source(path))


def _footer(path: LakePath) -> bytes:
    """The footer of a Parquet file: rows, sizes and statistics of every column chunk."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        return file.read(length)


def _is_measured(kind: pa.DataType) -> bool:
    """Whether a column counts or measures finely, so that few of its values are alike."""
    return bool(pa.types.is_floating(kind) or pa.types.is_timestamp(kind) or pa.types.is_uint64(kind))


def _conform(table: str, rows: pa.Table) -> pa.Table:
    """Cast to the registered schema; refuse missing and unknown columns and values that do not fit."""
    schema = SCHEMAS.get(table)
    if schema is None:
        return rows
    for name in sorted(OPTIONAL_COLUMNS.get(table, frozenset()) - set(rows.column_names)):
        rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
    if set(rows.column_names) != set(schema.names):
        raise LakeError(
            f"{table} must have the columns {', '.join(schema.names)}, got {', '.join(rows.column_names)}."
        )
    with one_line_errors(f"Bringing {table} to its schema"):
        return rows.select(schema.names).cast(schema)
