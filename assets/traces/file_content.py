"""What a trace file contains: its container, columns, separator and first rows, whatever its name is.

Containers: csv (also with other separators, and the COPY block of a database dump), jsonl, text, parquet and
tar. csv, jsonl and text may be packed with gzip or zstd.
"""

import gzip
import io
import json
import lzma
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.models.world.toml_dataclasses import shorten_text

COPY_AGAIN = "Copy the file here again, completely."
MAX_LINE_BYTES = 1 << 24
MOST_BLANK_LINES = 100_000  # at the beginning of a file
LEAST_ROW_BYTES = 24  # smallest unpacked row of a Parquet file: an id, an instant, two numbers
SHOWN_COLUMN_CHARACTERS = 200
SAMPLE_ROWS, SAMPLE_BYTES = 1000, 1 << 22
PARQUET_SAMPLE_ROWS = 100
MOST_DEPTH = 6  # of a field in fields
PACKING_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
SEPARATORS = ",;\t|"
COPY_LINE = re.compile(r"COPY .+ \((.+)\) FROM stdin;", re.IGNORECASE)
DUMP_LINES = 20_000  # of a dump, in which its COPY block begins
LOG_LINES = {  # name of a format's lines -> pattern of such a line
    "Received request": re.compile(r"(Received request|Generated response) \S+"),
    "Finish: obj=": re.compile(r"(Receive|Finish): obj=\w+\("),
}
# Text logs begin with [ too, like [2025-05-27 20:00:05]: a value of JSON must follow, or nothing.
JSON_ARRAY = re.compile(r"\[\s*($|[\[{\"]|(-?\d[\d.eE+-]*|true|false|null)\s*(,|\]?\s*$)|\]\s*$)")

ColumnPath = tuple[str, ...]  # a column, or a field in a field


class FileContent(NamedTuple):
    """Container, columns, packing and first rows of a file."""

    container: str  # csv, jsonl, text, parquet or tar
    columns: tuple[str, ...]
    header_lines: int  # before the first row
    packing: str  # none, gzip or zstd
    separator: str = ","
    is_dump: bool = False  # the COPY block of a database dump: no quotes, \N is null, \. ends it
    sample: tuple[Mapping[str, Any], ...] = ()  # the first rows of csv and jsonl
    fields: tuple[ColumnPath, ...] = ()  # columns and fields in fields, in the order of the file

    def __str__(self) -> str:
        columns = ", ".join(self.columns) or "no columns"
        if len(columns) > SHOWN_COLUMN_CHARACTERS:
            columns = f"{columns[:SHOWN_COLUMN_CHARACTERS]} ..."
        return f"{self.container} with {columns}"


def inspect_file(path: Path, guard: IngestGuard) -> FileContent:
    """Find what a file contains from its first bytes; IngestError if it is unreadable or no trace at all."""
    try:
        with path.open("rb") as opened:
            magic = opened.read(4)
        if magic == b"PAR1":
            metadata = pq.read_metadata(path)
            guard.passed(metadata.num_rows * LEAST_ROW_BYTES)
            schema = metadata.schema.to_arrow_schema()
            _require_distinct(schema.names, path.name)
            return FileContent(
                "parquet", tuple(schema.names), 0, "none", fields=tuple(_schema_fields(schema))
            )
        if tarfile.is_tarfile(path):
            with tarfile.open(path) as archive:
                kinds = {member_pattern(member.name) for member in iterate_members(archive, guard)}
                return FileContent("tar", tuple(sorted(kinds)), 0, "none")
        packing = next((name for start, name in PACKING_MAGIC.items() if magic.startswith(start)), "none")
        with open_unpacked(path, packing) as opened:
            before, first = _first_line(opened, path.name)
            return _inspect_text(path, packing, before, first, opened)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, pa.ArrowException) as error:
        reason = " ".join((getattr(error, "strerror", None) or str(error)).split()).rstrip(".")
        raise IngestError(f"{path.name} cannot be read: {reason}. {COPY_AGAIN}") from error


def _inspect_text(path: Path, packing: str, before: int, first: str, opened: IO[bytes]) -> FileContent:
    """Find what a text contains, from its first line with text and the lines that follow."""
    if not first:
        raise IngestError(f"{path.name} is empty. {COPY_AGAIN}")
    if "\x00" in first or "\ufffd" in first:
        raise IngestError(
            f"{path.name} is neither text nor Parquet. Unpack it, or convert it to UTF-8 text or Parquet."
        )
    if JSON_ARRAY.match(first):
        raise IngestError(
            f"{path.name} is one JSON array. Write one object a line, for example: jq -c '.[]' {path.name}"
        )
    if first.startswith("{"):
        documents = (_first_document(path, first), *_documents(opened))
        fields = dict.fromkeys(path for document in documents for path in _document_fields(document))
        columns = tuple(dict.fromkeys(path[0] for path in fields))
        return FileContent("jsonl", columns, 0, packing, sample=documents, fields=tuple(fields))
    lines = _sample_lines(opened)
    if first.startswith("--") or COPY_LINE.match(first):
        with open_unpacked(path, packing) as again:
            found = _copy_block(again)
        if found is not None:
            return found._replace(packing=packing)
    logs = (name for line in (first, *lines) for name, log in LOG_LINES.items() if log.search(line))
    if (log_lines := next(logs, None)) is not None:
        return FileContent("text", (log_lines,), 0, packing)
    separator = max(SEPARATORS, key=lambda s: (len(split_fields(first, s)), s == ","))
    columns = tuple(column.strip(' "') for column in split_fields(first, separator))
    _require_distinct(columns, path.name)
    rows = tuple(_named_fields(columns, split_fields(line, separator)) for line in lines if line.strip())
    content = FileContent("csv", columns, before + 1, packing, separator, sample=rows)
    return content._replace(fields=tuple(_csv_fields(content)))


def _require_distinct(columns: Sequence[str], name: str) -> None:
    """Raise an IngestError for two columns of one name: their values would be taken from either."""
    if twice := [column for column, count in Counter(columns).items() if column and count > 1]:
        raise IngestError(
            f"{name} has {Counter(columns)[twice[0]]} columns {shorten_text(repr(twice[0]))}. "
            "Rename all but one."
        )


def _copy_block(opened: IO[bytes]) -> FileContent | None:
    """Find the COPY block of a database dump; None if it has none in its first lines."""
    for number, line in enumerate(islice(iter(lambda: opened.readline(MAX_LINE_BYTES), b""), DUMP_LINES)):
        if match := COPY_LINE.match(line.decode(errors="replace").strip()):
            columns = tuple(column.strip(' "') for column in match[1].split(","))
            lines = [line for line in _sample_lines(opened) if line and line != r"\."]
            fields = ([_dump_text(text) for text in line.split("\t")] for line in lines)
            rows: tuple[dict[str, Any], ...] = tuple(
                dict(zip(columns, texts, strict=False)) for texts in fields
            )
            content = FileContent("csv", columns, number + 1, "none", "\t", is_dump=True, sample=rows)
            return content._replace(fields=tuple(_csv_fields(content)))
    return None


def _dump_text(text: str) -> str | None:
    return None if text == r"\N" else text.replace("\\\\", "\\")


def split_fields(line: str, separator: str) -> list[str]:
    """Split a line of CSV as the macro csv_fields of sql/staging/mapping.sql does."""
    return re.findall(field_pattern(separator), f"{separator}{line}")


def field_pattern(separator: str) -> str:
    """Return the pattern of a separator and the field after it, which may be in quotes (RFC 4180)."""
    space, one = (r"\s" if separator == "," else " "), re.escape(separator)
    return rf'{one}((?:{space}*"(?:[^"]|"")*")?[^{one}]*)'


def _named_fields(columns: Sequence[str], fields: Sequence[str | None]) -> dict[str, Any]:
    texts = (None if f is None else f.strip(' "').replace('""', '"') for f in fields)
    return dict(zip(columns, texts, strict=False))


def _csv_fields(content: FileContent) -> Iterator[ColumnPath]:
    """Yield the columns of a CSV file, and the fields of those that hold JSON objects."""
    for column in content.columns:
        yield (column,)
        inner: dict[ColumnPath, None] = {}
        for text in (row.get(column) or "" for row in content.sample):
            if text.startswith("{"):
                try:
                    inner |= dict.fromkeys(_document_fields(json.loads(text)))
                except (ValueError, RecursionError, AttributeError):
                    continue
        yield from ((column, *path) for path in inner)


def _document_fields(document: Mapping[str, Any], depth: int = 1) -> Iterator[ColumnPath]:
    for key, value in document.items():
        yield (key,)
        if isinstance(value, dict) and depth < MOST_DEPTH:
            yield from ((key, *path) for path in _document_fields(value, depth + 1))


def _schema_fields(fields: Any, depth: int = 1) -> Iterator[ColumnPath]:
    """Yield the columns of a Parquet file, and the fields of its structs."""
    for field in fields:
        yield (field.name,)
        if pa.types.is_struct(field.type) and depth < MOST_DEPTH:
            inner = [field.type.field(n) for n in range(field.type.num_fields)]
            yield from ((field.name, *path) for path in _schema_fields(inner, depth + 1))


def sample_values(path: Path, content: FileContent, column: ColumnPath) -> list[Any]:
    """Return the values of a column in the first rows of a file, nulls and empty texts left out."""
    if content.container == "parquet":
        with pq.ParquetFile(path) as parquet:
            batches = parquet.iter_batches(PARQUET_SAMPLE_ROWS, columns=[".".join(column)])
            rows: list[Any] = next((batch.to_pylist() for batch in batches), [])
    else:
        rows = list(content.sample)
    values = [_value_at(row, column) for row in rows]
    return [value for value in values if value is not None and value != ""]


def _value_at(row: Any, column: ColumnPath) -> Any:
    for key in column:
        if isinstance(row, str) and row.startswith("{"):
            try:
                row = json.loads(row)
            except (ValueError, RecursionError):
                return None
        row = row.get(key) if isinstance(row, Mapping) else None
    return row


def _first_document(path: Path, first: str) -> dict[str, Any]:
    try:
        return cast(dict[str, Any], json.loads(first))
    except RecursionError as error:
        raise IngestError(
            f"{path.name} begins like JSON, but its first line is nested too deeply to be read. "
            "Write one flat object a line, as data/landing/README.md describes."
        ) from error
    except json.JSONDecodeError as error:
        raise IngestError(
            f"{path.name} begins like JSON, but its first line is not a complete object: {error}. "
            f"Write one object a line, for example: jq -c . {path.name}"
        ) from error


def _documents(opened: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of the next lines; a damaged line is left to the reader."""
    for line in _sample_lines(opened):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            yield document


def _sample_lines(opened: IO[bytes]) -> list[str]:
    """Return the next lines of a text; none if it breaks off, which its reader reports."""
    try:
        lines = opened.read(SAMPLE_BYTES).split(b"\n")[:SAMPLE_ROWS]
    except (OSError, EOFError, zlib.error):
        return []
    return [line.decode(errors="replace").rstrip("\r") for line in lines]


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
