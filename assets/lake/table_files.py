"""The tables of the lake as files: listing, digests, reading and writing.

A file is written in a scratch folder and then moved into place, so that a reader never sees half of it.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from glob import glob
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fleetcast.assets.lake import store
from fleetcast.assets.lake.duckdb_connection import Connection, one_line_errors
from fleetcast.assets.lake.environment import LAKE
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.file_digests import digest_path, digest_text, record_digest, recorded_digest
from fleetcast.assets.lake.schemas import LAKE_VERSION, OPTIONAL_COLUMNS, PARTITIONS, SCHEMAS
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.table_queries import OLD_NAMES, escape_quotes
from fleetcast.models.world.toml_dataclasses import suggest_name

ROW_GROUP_ROWS = 100_000
MADE_FROM_KEY = b"made_from"  # key of a file's metadata


class LakeVersionError(LakeError):
    """The lake was written by a newer version of this code."""


class TableFiles:
    """The files under one root; partitions go by name: tables.path("demand", trace="office", day=day)."""

    def __init__(self, root: LakePath | str = LAKE) -> None:
        self.root, self._has_version_file = store.resolve_lake_root(root), False
        version, found = self.root / "VERSION", str(LAKE_VERSION)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = version.read_bytes().decode(errors="replace").strip()
            self._has_version_file = True
        if not found.isdecimal():
            raise LakeVersionError(
                f"{version} is damaged: it contains {found[:20]!r}, not the version of the lake. "
                f"Write {LAKE_VERSION} into it."
            )
        if int(found) > LAKE_VERSION:
            raise LakeVersionError(
                f"The lake in {self.root} has version {found}, this code reads up to {LAKE_VERSION}. "
                "Update fleetcast, or move that folder away and run again to build a new one."
            )
        self._has_version_file = self._has_version_file and int(found) == LAKE_VERSION

    def path(self, table: str, file: str = "part", **partition: Any) -> LakePath:
        """Return the path of one partition's file, with * for a key that is not given."""
        if table not in PARTITIONS:
            raise LakeError(f"The lake has no table {table!r}. {suggest_name(table, PARTITIONS)}")
        if unknown := set(partition) - set(PARTITIONS[table]):
            raise LakeError(
                f"{table} is not partitioned by {unknown.pop()}, but by {', '.join(PARTITIONS[table])}."
            )
        folders = (f"{key}={partition.get(key, '*')}" for key in PARTITIONS[table])
        return self.root.joinpath(table, *folders, f"{file}.parquet")

    def files(self, table: str, **partition: Any) -> list[LakePath]:
        """Return the files of a table, or of some of its partitions."""
        return sorted(self.root.glob(self.below(self.path(table, "*", **partition))))

    def marks(self, table: str, **partition: Any) -> dict[str, str]:
        """Return the change tag of each file of a table, by name."""
        return store.change_tags(self.root, self.below(self.path(table, "*", **partition)))

    def below(self, path: LakePath) -> str:
        """Return the path of a file relative to the root."""
        return store.name_below_root(path, self.root)

    def partition_of(self, path: LakePath) -> dict[str, str]:
        """Return the partition of a file of a table, as its folders name it."""
        _, *folders, _ = self.below(path).split("/")
        return dict(folder.split("=", 1) for folder in folders)

    def traces(self, table: str) -> list[str]:
        """Return the traces of a table in the lake, in order."""
        return sorted({self.partition_of(path)["trace"] for path in self.files(table)})

    def days(self, table: str, trace: str) -> list[date]:
        """Return the days of a trace's table in the lake, in order."""
        days = {self.partition_of(path)["day"] for path in self.files(table, trace=trace)}
        return sorted(map(date.fromisoformat, days))

    def day_folders(self, table: str) -> list[str]:
        """Return the names below the root of the folders of a table's days; on disk some may be empty."""
        keys = PARTITIONS[table][: PARTITIONS[table].index("day") + 1]
        if isinstance(self.root, Path):
            return glob("/".join((table, *(f"{key}=*" for key in keys))), root_dir=self.root)
        names = (self.below(file).split("/") for file in self.files(table))
        return sorted({"/".join(name[: len(keys) + 1]) for name in names})

    def content(self, table: str, **partition: Any) -> str:
        """Return a digest of a table's content: the name and the footer of each file.

        A footer has sizes and statistics of all columns. Unlike the time of writing, the digest is the same
        on every machine and every disk.
        """
        digest = hashlib.sha256()
        for path in self.files(table, **partition):
            digest.update(self.below(path).encode() + _footer(path))
        return digest.hexdigest()

    def version(self, tables: Iterable[str], **partition: Any) -> str:
        """Return a digest of the digests of the tables' files: the same bytes have the same version."""
        files = sorted(path for table in tables for path in self.files(table, **partition))
        lines = [digest_text(self.root, path, recorded_digest(self.root, path)) for path in files]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def is_made_from(self, table: str, content: str, **partition: Any) -> bool:
        """Return whether the partition exists and its metadata has this `made_from` content."""
        path = self.path(table, **partition)
        try:
            return (_metadata(path).metadata or {}).get(MADE_FROM_KEY) == content.encode()
        except FileNotFoundError:
            return False

    def made_from(self, trace: str) -> LakePath:
        """Return the file of a trace that is made, not landed, with what its days were made from."""
        return self.root / "requests" / f"trace={trace}" / "made_from"

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a folder of this machine that no view reads, and remove it when the block ends."""
        with one_line_errors(f"Writing under {store.scratch_root(self.root).parent}"):
            folder = store.create_scratch_folder(self.root)
        try:
            yield folder
        finally:
            store.remove_scratch_folder(folder)

    @contextmanager
    def replacing(self, target: LakePath) -> Iterator[Path]:
        """Yield a temporary path; move it to `target` in one step if the block ends without an error."""
        with self.scratch() as folder, one_line_errors(f"Writing {self.below(target)}"):
            yield folder / target.name
            if not self._has_version_file:
                (folder / "VERSION").write_text(f"{LAKE_VERSION}\n")
                store.move_into_place(folder / "VERSION", self.root / "VERSION")
                self._has_version_file = True
            if target.suffix == ".parquet":
                record_digest(self.root, folder / target.name, target, folder)
            store.move_into_place(folder / target.name, target)

    def write(
        self, table: str, rows: pa.Table, file: str = "part", made_from: str = "", **partition: Any
    ) -> LakePath:
        """Write one partition, cast to the table's registered schema if there is one.

        `made_from` is the content digest of its inputs, for `is_made_from`.
        """
        with self.writing(table, file, made_from, **partition) as append:
            append(rows)
        return self.path(table, file, **partition)

    @contextmanager
    def writing(
        self, table: str, file: str = "part", made_from: str = "", **partition: Any
    ) -> Iterator[Callable[[pa.Table], None]]:
        """Yield a function that appends rows to one partition; it is written if the block raises no error."""
        if missing := [key for key in PARTITIONS[table] if key not in partition]:
            raise LakeError(f"Writing {table} needs its partition {', '.join(missing)}.")
        with ExitStack() as stack:
            temporary = stack.enter_context(self.replacing(self.path(table, file, **partition)))
            writer: pq.ParquetWriter | None = None

            def append(rows: pa.Table) -> None:
                nonlocal writer
                conformed = _conform(table, rows)
                if writer is None:
                    metadata = {MADE_FROM_KEY: made_from} if made_from else conformed.schema.metadata
                    schema = conformed.schema.with_metadata(metadata)
                    # Timestamps and measurements rarely repeat: a dictionary is larger and twice as slow.
                    repeated = [field.name for field in schema if not _is_measured(field.type)]
                    opened = pq.ParquetWriter(
                        temporary,
                        schema,
                        compression="zstd",
                        use_dictionary=repeated,
                        write_page_checksum=True,
                    )
                    writer = stack.enter_context(opened)
                writer.write_table(conformed, ROW_GROUP_ROWS)

            yield append

    def remove(self, path: LakePath) -> None:
        """Remove a file of a table with its digest; nothing if it is not there."""
        digest_path(self.root, path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def drop_day(self, trace: str, day: date) -> None:
        """Remove a day of a trace from every table."""
        for table in (name for name, keys in PARTITIONS.items() if "day" in keys):
            for part in self.files(table, trace=trace, day=day):
                self.remove(part)

    def copy(self, con: Connection, query: str, table: str, file: str = "part", **partition: Any) -> LakePath:
        """Write one partition from a query on `con`, without loading it into Python's memory."""
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
        """Return the number of rows of a table or of some of its partitions."""
        return sum(_metadata(path).num_rows for path in self.files(table, **partition))

    def part(self, table: str, **partition: Any) -> pa.Table:
        """Read the rows of one partition as they were written, without the partition keys.

        Columns have their present names (OLD_NAMES).

        LakeError where a page differs from its checksum.
        """
        source = store.parquet_source(self.path(table, **partition))
        with one_line_errors(f"Reading {table}", "Verify the lake: fleetcast check"):
            rows = pq.ParquetFile(source, page_checksum_verification=True).read()
        present = {old: name for name, old in OLD_NAMES.get(table, {}).items()}
        return rows.rename_columns([present.get(name, name) for name in rows.column_names])


def _metadata(path: LakePath) -> pq.FileMetaData:
    return pq.read_metadata(store.parquet_source(path))


def _footer(path: LakePath) -> bytes:
    """Return the footer of a Parquet file: rows, sizes and statistics of every column chunk."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        return file.read(length)


def _is_measured(kind: pa.DataType) -> bool:
    """Return whether few values of a column of this type repeat."""
    return bool(pa.types.is_floating(kind) or pa.types.is_timestamp(kind) or pa.types.is_uint64(kind))


def _conform(table: str, rows: pa.Table) -> pa.Table:
    """Cast to the registered schema; LakeError for missing or unknown columns and values that do not fit."""
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
