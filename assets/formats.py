"""Which trace format a landed file has, by its content, and the query that reads it row by row.

Every file of sql/sources declares a container (csv, jsonl, parquet; any of the first two may be gzipped)
and the columns that it is recognised by, so a new format is one SQL file and nothing else.
"""

import gzip
import json
import zlib
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from assets.sql_files import SQL, SqlFile, read_sql
from assets.warehouse import LakeError

COPY_AGAIN = "Copy the file here again, whole."
HEAD_BYTES = 1 << 20  # of a text file, looked at to recognise it


class IngestError(LakeError):
    """A landed file that cannot become requests; the message is one line with the remedy."""


class LandedFile(NamedTuple):
    """A file in the landing folder and how to read it."""

    path: Path
    source: SqlFile
    columns: tuple[str, ...]  # as the file names them
    header_lines: int  # before the first row
    is_gzip: bool

    @property
    def format(self) -> str:
        """Name of the format: that of its file in sql/sources."""
        return self.source.name.removesuffix(".sql")


class Content(NamedTuple):
    """What the beginning of a file shows."""

    container: str
    columns: tuple[str, ...]
    header_lines: int
    is_gzip: bool


def recognise(path: Path) -> LandedFile:
    """Find the format whose columns the file has, or say what it has and which formats there are."""
    content = look_into(path)
    formats = [read_sql(file) for file in sorted((SQL / "sources").glob("*.sql"))]
    alike = [f for f in formats if f.fields["format"] == content.container]
    has = ", ".join(content.columns[:12]) or "no columns"
    for source in sorted(alike, key=lambda f: (len(_lacking(f, content)), -len(f.listed("recognised by")))):
        lacking = _lacking(source, content)
        if not lacking:
            return LandedFile(path, source, content.columns, content.header_lines, content.is_gzip)
        if len(lacking) < len(source.listed("recognised by")):
            raise IngestError(
                f"{path.name} looks like {source.name.removesuffix('.sql')} but lacks the columns "
                f"{', '.join(lacking)}; it has {has}. Add them, or describe the file in sql/sources/NAME.sql."
            )
    known = "; ".join(
        f"{f.name.removesuffix('.sql')} ({f.fields['format']} with {f.fields['recognised by']})"
        for f in formats
    )
    raise IngestError(
        f"{path.name} is no trace format known here: {content.container} with {has}. Known: {known}. "
        "Bring it to one of these, or describe it in sql/sources/NAME.sql."
    )


def _lacking(source: SqlFile, content: Content) -> list[str]:
    return [column for column in source.listed("recognised by") if column not in content.columns]


def look_into(path: Path) -> Content:
    """Tell container and columns from the first bytes, whatever the file is called."""
    try:
        with path.open("rb") as opened:
            magic = opened.read(4)
        if magic == b"PAR1":
            return Content("parquet", tuple(pq.read_schema(path).names), 0, False)
        is_gzip = magic[:2] == b"\x1f\x8b"
        with gzip.open(path) if is_gzip else path.open("rb") as opened:
            head = opened.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        said = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise IngestError(f"{path.name} cannot be read: {said}. {COPY_AGAIN}") from error
    lines = head.decode("utf-8-sig", errors="replace").splitlines()
    first = next((n for n, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise IngestError(f"{path.name} is empty. {COPY_AGAIN}")
    if "\x00" in lines[first] or "\ufffd" in lines[first]:
        raise IngestError(
            f"{path.name} is neither text nor Parquet. Unpack it, or convert it to one of these."
        )
    if not lines[first].lstrip().startswith("{"):
        columns = tuple(column.strip(' "') for column in lines[first].split(","))
        return Content("csv", columns, first + 1, is_gzip)
    try:
        return Content("jsonl", tuple(json.loads(lines[first])), 0, is_gzip)
    except json.JSONDecodeError as error:
        raise IngestError(
            f"{path.name} begins like JSON, but its first line is no whole object: {error}. "
            "Write one object a line."
        ) from error


def rows_query(landed: LandedFile) -> str:
    """The SELECT over the file: row, raw text, complaint, dice, and the columns that the format reads.

    `row` counts from 1 after the header; `dice` is a stable 64-bit number of file and row, from which ids and
    shares are drawn; `complaint` is set where a row is not even of the shape of its container.
    """
    wanted = landed.source.listed("recognised by")
    path = str(landed.path.resolve()).replace("'", "''")
    dice = "md5_number_lower(getvariable('file') || ':' || row) as dice"
    container = landed.source.fields["format"]
    if container == "parquet":
        columns = ", ".join(f'"{column}"' for column in wanted)
        raw = ", ".join(f"'{column}': \"{column}\"" for column in wanted)
        return (
            f"select row, {dice}, null::varchar as complaint, to_json({{{raw}}})::varchar as raw, {columns} "
            f"from (select *, file_row_number + 1 as row from read_parquet('{path}', file_row_number = true, "
            "hive_partitioning = false))"
        )
    # One column a line, bytes taken as they are (latin-1): a spoilt line spoils its own row, not the file.
    lines = (
        "select row_number() over () as row, rtrim(line, chr(13)) as raw from read_csv("
        f"'{path}', columns = {{'line': 'varchar'}}, auto_detect = false, header = false, delim = '\x1f', "
        f"quote = '', escape = '', skip = {landed.header_lines}, encoding = 'latin-1', strict_mode = false, "
        f"compression = '{'gzip' if landed.is_gzip else 'none'}', max_line_size = 16777216)"
    )
    if container == "jsonl":
        columns = ", ".join(f'json_extract_string(document, \'$."{c}"\') as "{c}"' for c in wanted)
        shaped = "select row, raw, if(json_valid(raw), raw, null) as document"
        complaint = "if(document is null, 'not a JSON object', null)"
    else:
        width = len(landed.columns)
        columns = ", ".join(f'trim(fields[{landed.columns.index(c) + 1}], \' "\') as "{c}"' for c in wanted)
        shaped = "select row, raw, string_split(raw, ',') as fields"
        complaint = f"if(len(fields) = {width}, null, len(fields) || ' fields where the header has {width}')"
    return (
        f"select row, raw, {dice}, {complaint} as complaint, {columns} "
        f"from ({shaped} from ({lines}) where trim(raw) <> '')"
    )
