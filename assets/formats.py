"""Which trace format a landed file has, by its content, and the query that reads it row by row.

Every file of sql/sources declares a container (csv and jsonl, which may be packed with gzip or zstd, parquet,
tar) and the columns that it is recognised by, so a new format is one SQL file and nothing else. The columns
of an archive are the names of its members, with # for a number.
"""

import codecs
import gzip
import io
import json
import lzma
import re
import tarfile
import zlib
from pathlib import Path
from typing import IO, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from assets.schemas import quoted
from assets.sql_files import SQL, SqlFile, read_sql
from assets.warehouse import LakeError

COPY_AGAIN = "Copy the file here again, whole."
MAX_LINE_BYTES = 1 << 24
BLOCK_BYTES = 1 << 20
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class IngestError(LakeError):
    """A landed file that cannot become requests; the message is one line with the remedy."""


class LandedFile(NamedTuple):
    """A file in the landing folder and how to read it."""

    path: Path
    source: SqlFile
    columns: tuple[str, ...]  # as the file names them
    header_lines: int  # before the first row
    packing: str  # none, gzip or zstd

    @property
    def format(self) -> str:
        """Name of the format: that of its file in sql/sources."""
        return self.source.name.removesuffix(".sql")


class Content(NamedTuple):
    """What the beginning of a file shows."""

    container: str
    columns: tuple[str, ...]
    header_lines: int
    packing: str


def recognise(path: Path) -> LandedFile:
    """Find the format most of whose columns the file has, or say what it has and which formats there are."""
    content = look_into(path)
    formats = [read_sql(file) for file in sorted((SQL / "sources").glob("*.sql"))]
    has = ", ".join(content.columns[:12]) or "no columns"
    alike = [f for f in formats if f.fields["format"] == content.container and _shared(f, content)]
    if not alike:
        known = ", ".join(f.name.removesuffix(".sql") for f in formats)
        raise IngestError(
            f"{path.name} is no trace format known here: {content.container} with {has}. Known: {known}. "
            "Bring it to one of these (data/landing/README.md), or describe it in sql/sources/NAME.sql."
        )
    source = max(alike, key=lambda f: (_shared(f, content), -len(f.listed("recognised by"))))
    lacking = [column for column in source.listed("recognised by") if column not in content.columns]
    if lacking:
        raise IngestError(
            f"{path.name} looks like {source.name.removesuffix('.sql')} but lacks the columns "
            f"{', '.join(lacking)}; it has {has}. Add them, or describe the file in sql/sources/NAME.sql."
        )
    return LandedFile(path, source, *content[1:])


def _shared(source: SqlFile, content: Content) -> int:
    return len(set(source.listed("recognised by")) & set(content.columns))


def look_into(path: Path) -> Content:
    """Tell container, columns and packing from the first bytes, whatever the file is called."""
    try:
        with path.open("rb") as opened:
            magic = opened.read(4)
        if magic == b"PAR1":
            return Content("parquet", tuple(pq.read_schema(path).names), 0, "none")
        if tarfile.is_tarfile(path):
            with tarfile.open(path) as archive:
                return Content("tar", tuple(sorted({_kind(name) for name in archive.getnames()})), 0, "none")
        packing = next((name for start, name in MAGIC.items() if magic.startswith(start)), "none")
        with _unpacked(path, packing) as opened:
            before, first = _first_line(opened)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, pa.ArrowException) as error:
        said = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise IngestError(f"{path.name} cannot be read: {said}. {COPY_AGAIN}") from error
    if not first:
        raise IngestError(f"{path.name} is empty. {COPY_AGAIN}")
    if "\x00" in first or "\ufffd" in first:
        raise IngestError(
            f"{path.name} is neither text nor Parquet. Unpack it, or convert it to UTF-8 text or Parquet."
        )
    if not first.startswith("{"):
        return Content("csv", tuple(column.strip(' "') for column in first.split(",")), before + 1, packing)
    try:
        return Content("jsonl", tuple(json.loads(first)), 0, packing)
    except json.JSONDecodeError as error:
        raise IngestError(
            f"{path.name} begins like JSON, but its first line is no whole object: {error}. "
            "Write one object a line."
        ) from error


def _kind(member: str) -> str:
    return re.sub(r"\d+", "#", Path(member).name)


def _unpacked(path: Path, packing: str) -> IO[bytes]:
    if packing == "gzip":
        return cast(IO[bytes], gzip.open(path))
    if packing == "zstd":
        return io.BufferedReader(cast(io.RawIOBase, pa.CompressedInputStream(path, "zstd")))
    return path.open("rb")


def _first_line(opened: IO[bytes]) -> tuple[int, str]:
    """How many blank lines a file begins with, and the first that is not; empty where there is none."""
    before = 0
    while line := opened.readline(MAX_LINE_BYTES):
        if text := line.decode("utf-8-sig", errors="replace").strip():
            return before, text
        before += 1
    return before, ""


def as_utf8(landed: LandedFile, folder: Path) -> LandedFile:
    """Read a text file to its end; where bytes are not UTF-8, a copy in `folder` that marks them stands in.

    DuckDB refuses such a file as a whole, and takes a truncated zstd file without a word: Python sees both.
    """
    try:
        if _recode(landed, None):
            return landed
    except (OSError, EOFError, zlib.error) as error:
        said = str(error).rstrip(".")
        raise IngestError(f"{landed.path.name} cannot be read: {said}. {COPY_AGAIN}") from error
    folder.mkdir()
    with (folder / landed.path.name).open("wb") as copy:
        _recode(landed, copy)
    return landed._replace(path=folder / landed.path.name, packing="none")


def _recode(landed: LandedFile, copy: IO[bytes] | None) -> bool:
    """Write the text as UTF-8 into `copy`; without one, whether it is UTF-8 already."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict" if copy is None else "replace")
    with _unpacked(landed.path, landed.packing) as opened:
        block = b"more"
        while block:
            block = opened.read(BLOCK_BYTES)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                return False
            if copy is not None:
                copy.write(text.encode())
    return True


def rows_query(landed: LandedFile, folder: Path) -> str:
    """The SELECT over the file: row, raw text, complaint, dice, and the columns that the format reads.

    `row` counts from 1 after the header; `dice` is a stable 64-bit number of file and row, from which ids and
    shares are drawn; `complaint` is set where a row is not even of the shape of its container. A column that
    the format may have and the file lacks is null; a nested JSON value is its text. An archive is unpacked
    into `folder`; its rows are its members, with name and content, whatever the archive is called.
    """
    wanted, optional = landed.source.listed("recognised by"), landed.source.listed("may have")
    container = landed.source.fields["format"]
    if container == "tar":
        return _members_query(landed, folder)
    dice = "md5_number_lower(getvariable('file') || ':' || row) as dice"
    there = [c for c in (*wanted, *optional) if container == "jsonl" or c in landed.columns]
    absent = "".join(f', null as "{column}"' for column in optional if column not in there)
    if container == "parquet":
        columns = ", ".join(f'"{column}"' for column in there)
        raw = ", ".join(f"'{column}': \"{column}\"" for column in there)
        path = quoted(landed.path.resolve())
        return (
            f"select row, {dice}, null::varchar as complaint, to_json({{{raw}}})::varchar as raw, {columns}"
            f"{absent} from (select *, file_row_number + 1 as row from read_parquet('{path}', "
            "file_row_number = true, hive_partitioning = false))"
        )
    landed = as_utf8(landed, folder)
    if container == "jsonl":
        columns = ", ".join(f'json_extract_string(document, \'$."{c}"\') as "{c}"' for c in there)
        shaped = "select row, raw, if(json_valid(raw), raw, null) as document"
        complaint = "if(document is null, 'not a JSON object', null)"
    else:
        width = len(landed.columns)
        columns = ", ".join(f'trim(fields[{landed.columns.index(c) + 1}], \' "\') as "{c}"' for c in there)
        shaped = "select row, raw, string_split(raw, ',') as fields"
        complaint = f"if(len(fields) = {width}, null, len(fields) || ' fields where the header has {width}')"
    return (
        f"select row, raw, {dice}, {complaint} as complaint, {columns}{absent} "
        f"from ({shaped} from ({_lines_query(landed)}) where trim(raw) <> '')"
    )


def _lines_query(landed: LandedFile) -> str:
    """One column a line: a spoilt line spoils its own row, not the file."""
    mark = "if(row = 1, ltrim(line, '\ufeff'), line)"  # a byte order mark
    return (
        f"select row, rtrim({mark}, chr(13)) as raw from (select row_number() over () as row, line from "
        f"read_csv('{quoted(landed.path.resolve())}', columns = {{'line': 'varchar'}}, auto_detect = false, "
        f"header = false, delim = '\x1f', quote = '', escape = '', skip = {landed.header_lines}, "
        f"strict_mode = false, compression = '{landed.packing}', max_line_size = {MAX_LINE_BYTES}))"
    )


def _members_query(landed: LandedFile, folder: Path) -> str:
    wanted = landed.source.listed("recognised by")
    with tarfile.open(landed.path) as archive:
        members = (member for member in archive if member.isfile() and _kind(member.name) in wanted)
        try:
            archive.extractall(folder, members, filter="data")
        except tarfile.TarError as error:  # a member that would lie outside of the folder
            raise IngestError(f"{landed.path.name} cannot be unpacked: {error}. Pack it anew.") from error
    return (
        "select *, md5_number_lower(name) as dice, null::varchar as complaint, name as raw from (select "
        f"row_number() over (order by filename) as row, substr(filename, {len(str(folder)) + 2}) as name, "
        f"content from read_text('{quoted(folder)}/**'))"
    )
