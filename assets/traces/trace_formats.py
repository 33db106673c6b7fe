"""Recognise the trace format of a file by its content.

Every file of sql/sources declares a container (csv or jsonl, plain or packed with gzip or zstd; parquet; tar)
and the columns that identify the format. So a new format needs one SQL file and nothing else. The columns of
an archive are the names of its members, with # for a number.
"""

import gzip
import io
import json
import lzma
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from fleetcast.assets.lake.sql_files import SQL, SqlFile, read_sql
from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.models.world.toml_dataclasses import shorten_text

CSV_FIELD = r',((?:\s*"(?:[^"]|"")*")?[^,]*)'  # as the macro csv_fields of sql/staging/mapping.sql
COPY_AGAIN = "Copy the file here again, completely."
MAX_LINE_BYTES = 1 << 24
MOST_BLANK_LINES = 100_000  # at the beginning of a file
LEAST_ROW_BYTES = 24  # smallest unpacked row of a Parquet file: an id, an instant, two numbers
SHOWN_COLUMN_CHARACTERS = 200
PACKING_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class LandedFile(NamedTuple):
    """A file in the landing folder and how to read it."""

    path: Path
    source: SqlFile
    columns: tuple[str, ...]  # names in the file
    header_lines: int  # before the first row
    packing: str  # none, gzip or zstd

    @property
    def format(self) -> str:
        """Name of the format, as of its file in sql/sources."""
        return _format_name(self.source)


class FileContent(NamedTuple):
    """Container, columns and packing of a file, from its beginning."""

    container: str
    columns: tuple[str, ...]
    header_lines: int
    packing: str

    def __str__(self) -> str:
        columns = ", ".join(self.columns) or "no columns"
        if len(columns) > SHOWN_COLUMN_CHARACTERS:
            columns = f"{columns[:SHOWN_COLUMN_CHARACTERS]} ..."
        return f"{self.container} with {columns}"


def recognise_format(
    path: Path, guard: IngestGuard | None = None, assumes_outputs: bool = False
) -> LandedFile:
    """Find the format that shares most columns with the file; IngestError if the file is of no known format.

    With `assumes_outputs`, the mapping file sets the output tokens and their column may be missing.
    """
    content = inspect_file(path, guard or IngestGuard(path))
    if set(content.columns) >= {"status", "data"}:
        raise IngestError(
            f"{path.name} is an answer of Prometheus. Put all answers of a trace into a folder "
            "data/landing/NAME.metrics."
        )
    formats = [read_sql(file) for file in sorted((SQL / "sources").glob("*.sql"))]
    similar = [f for f in formats if f.fields["format"] == content.container and _shared_columns(f, content)]
    if not similar:
        raise IngestError(f"{path.name} {_describe_mismatch(content, formats)}")
    source = max(similar, key=lambda f: (_shared_columns(f, content), -len(f.listed("recognised by"))))
    missing = [column for column in source.listed("recognised by") if column not in content.columns]
    lacks_outputs = missing == [_output_column(source)]
    if missing and not (lacks_outputs and assumes_outputs):
        assume = ", set a mean to assume (output_tokens = 200 in its mapping file, or advise --outputs 200)"
        raise IngestError(
            f"{path.name} looks like {_format_name(source)} but lacks the columns {', '.join(missing)}; it "
            f"is {content}. Add them{assume if lacks_outputs else ''}, or describe the file in "
            "sql/sources/NAME.sql."
        )
    return LandedFile(path, source, *content[1:])


def _describe_mismatch(content: FileContent, formats: Sequence[SqlFile]) -> str:
    """Describe why a file has no known format: its separator, upper and lower case, or its columns."""
    words = re.split(r"[,;|\t]", ",".join(content.columns).casefold())
    columns = {word.strip(' "') for word in words}
    for source in sorted(formats, key=lambda f: -len(f.listed("recognised by"))):
        wanted = source.listed("recognised by")
        if source.fields["format"] == content.container and columns.issuperset(map(str.casefold, wanted)):
            return (
                f"looks like {_format_name(source)}, but is {content}. "
                f"Write {', '.join(wanted)} with this spelling"
                f"{' and separated by commas' if content.container == 'csv' else ''}."
            )
    return (
        f"is no trace format known here: {content}. Known: {', '.join(map(_format_name, formats))}. "
        "Bring it to one of these (data/landing/README.md), or describe it in sql/sources/NAME.sql."
    )


def _output_column(source: SqlFile) -> str | None:
    """Return the column of a format's output tokens; None if the format derives them otherwise."""
    found = re.search(r'whole\("?([\w ]+)"?\)\s+as output_tokens', source.text)
    return None if found is None else found[1]


def _format_name(source: SqlFile) -> str:
    return source.name.removesuffix(".sql")


def _shared_columns(source: SqlFile, content: FileContent) -> int:
    return len(set(source.listed("recognised by")) & set(content.columns))


def inspect_file(path: Path, guard: IngestGuard) -> FileContent:
    """Find container, columns and packing from the first bytes, independent of the file's name."""
    try:
        with path.open("rb") as opened:
            magic = opened.read(4)
        if magic == b"PAR1":
            metadata = pq.read_metadata(path)
            guard.passed(metadata.num_rows * LEAST_ROW_BYTES)
            names = tuple(metadata.schema.to_arrow_schema().names)
            _require_distinct(names, path.name)
            return FileContent("parquet", names, 0, "none")
        if tarfile.is_tarfile(path):
            with tarfile.open(path) as archive:
                kinds = {member_pattern(member.name) for member in iterate_members(archive, guard)}
                return FileContent("tar", tuple(sorted(kinds)), 0, "none")
        packing = next((name for start, name in PACKING_MAGIC.items() if magic.startswith(start)), "none")
        with open_unpacked(path, packing) as opened:
            before, first = _first_line(opened, path.name)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, pa.ArrowException) as error:
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise IngestError(f"{path.name} cannot be read: {reason}. {COPY_AGAIN}") from error
    if not first:
        raise IngestError(f"{path.name} is empty. {COPY_AGAIN}")
    if "\x00" in first or "\ufffd" in first:
        raise IngestError(
            f"{path.name} is neither text nor Parquet. Unpack it, or convert it to UTF-8 text or Parquet."
        )
    if not first.startswith("{"):
        header = [column.strip(' "') for column in re.findall(CSV_FIELD, f",{first}")]
        _require_distinct(header, path.name)
        return FileContent("csv", tuple(header), before + 1, packing)
    try:
        return FileContent("jsonl", tuple(json.loads(first)), 0, packing)
    except RecursionError as error:
        raise IngestError(
            f"{path.name} begins like JSON, but its first line is nested too deeply to be read. "
            "Write one flat object a line, as data/landing/README.md describes."
        ) from error
    except json.JSONDecodeError as error:
        raise IngestError(
            f"{path.name} begins like JSON, but its first line is not a complete object: {error}. "
            "Write one object a line."
        ) from error


def _require_distinct(columns: Sequence[str], name: str) -> None:
    """Raise an IngestError for two columns of one name: their values would be taken from either."""
    if twice := [column for column, count in Counter(columns).items() if column and count > 1]:
        raise IngestError(
            f"{name} has {Counter(columns)[twice[0]]} columns {shorten_text(repr(twice[0]))}. "
            "Rename all but one."
        )


def member_pattern(member: str) -> str:
    """Return the name of an archive's member with # for each number."""
    return re.sub(r"\d+", "#", Path(member).name)


def iterate_members(archive: tarfile.TarFile, guard: IngestGuard) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive; the guard checks the size of each before it is unpacked."""
    total = 0
    while member := archive.next():
        total += member.size
        guard.passed(max(total, archive.offset))
        yield member


def open_unpacked(path: Path, packing: str) -> IO[bytes]:
    """Open a text file that is packed with gzip, zstd or not at all."""
    if packing == "gzip":
        return cast(IO[bytes], gzip.open(path))
    if packing == "zstd":
        return io.BufferedReader(cast(io.RawIOBase, pa.CompressedInputStream(path, "zstd")))
    return path.open("rb")


def _first_line(opened: IO[bytes], name: str) -> tuple[int, str]:
    """Return the number of blank lines at the beginning, and the first line with text; empty if none."""
    before = 0
    while line := opened.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise IngestError(f"{name} has a first line above {MAX_LINE_BYTES >> 20} MiB. Is it a trace?")
        if text := line.decode("utf-8-sig", errors="replace").strip():
            return before, text
        before += 1
        if before > MOST_BLANK_LINES:
            raise IngestError(f"{name} begins with more than {MOST_BLANK_LINES:,} blank lines. Remove them.")
    return before, ""
