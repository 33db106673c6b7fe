"""The query that reads a file row by row: a damaged line is one bad row and does not stop the file."""

import codecs
import tarfile
import zlib
from pathlib import Path
from typing import IO

from fleetcast.assets.lake.table_queries import escape_quotes
from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.assets.traces.trace_formats import (
    COPY_AGAIN,
    MAX_LINE_BYTES,
    LandedFile,
    iterate_members,
    member_pattern,
    open_unpacked,
)

TEXT_BLOCK_BYTES = 1 << 20


def ensure_utf8(landed: LandedFile, folder: Path, guard: IngestGuard) -> LandedFile:
    """Return a file whose text is UTF-8: the file itself, or a copy in `folder` with bad bytes replaced.

    DuckDB rejects a whole file for one byte that is not UTF-8, and reads a truncated zstd file without an
    error. So Python reads the text to its end first. IngestError for a file that cannot be read.
    """
    try:
        if _recode(landed, None, guard):
            return landed
    except (OSError, EOFError, zlib.error) as error:
        reason = str(error).rstrip(".")
        raise IngestError(f"{landed.path.name} cannot be read: {reason}. {COPY_AGAIN}") from error
    folder.mkdir()
    with (folder / landed.path.name).open("wb") as copy:
        _recode(landed, copy, guard)
    return landed._replace(path=folder / landed.path.name, packing="none")


def _recode(landed: LandedFile, copy: IO[bytes] | None, guard: IngestGuard) -> bool:
    """Write the text as UTF-8 into `copy`; without a copy, return whether it is UTF-8 already."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict" if copy is None else "replace")
    label, total = f"text of {landed.path.name}", 0
    with (
        open_unpacked(landed.path, landed.packing) as opened,
        guard.progress.bar(label, guard.most_bytes) as step,
    ):
        block = b"more"
        while block:
            block = opened.read(TEXT_BLOCK_BYTES)
            guard.passed(total := total + len(block))
            step(total)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                return False
            if copy is not None:
                copy.write(text.encode())
    return True


def landed_rows_query(landed: LandedFile, folder: Path, guard: IngestGuard) -> str:
    """Return a SELECT over the file: row, raw text, complaint, dice, and the columns that the format reads.

    `row` counts from 1 after the header. `dice` is a stable 64-bit hash of file and row, the source of ids
    and random shares. `complaint` is set if a row does not have the shape of its container. A column that the
    file lacks is null; a nested JSON value is its text. Optional columns NAME_* of a CSV format become one
    map, from the text at the * to the field. An archive is unpacked into `folder`; its rows are its members,
    with name and content, whatever the name of the archive.
    """
    wanted, optional = landed.source.listed("recognised by"), landed.source.listed("may have")
    container = landed.source.fields["format"]
    if container == "tar":
        return _members_query(landed, folder, guard)
    dice = "md5_number_lower(getvariable('file') || ':' || row) as dice"
    present = [c for c in (*wanted, *optional) if container == "jsonl" or c in landed.columns]
    missing = (c for c in (*wanted, *optional) if c not in present and not c.endswith("*"))
    absent = "".join(f', null as "{column}"' for column in missing)
    if container == "parquet":
        columns = ", ".join(f'"{column}"' for column in present)
        raw = ", ".join(f"'{column}': \"{column}\"" for column in present)
        path = escape_quotes(landed.path.resolve())
        return (
            f"select row, {dice}, null::varchar as complaint, to_json({{{raw}}})::varchar as raw, {columns}"
            f"{absent} from (select *, file_row_number + 1 as row from read_parquet('{path}', "
            "file_row_number = true, hive_partitioning = false))"
        )
    landed = ensure_utf8(landed, folder, guard)
    if container == "jsonl":
        columns = ", ".join(f'fields[{n}] as "{c}"' for n, c in enumerate(present, start=1))
        paths = ", ".join(f"'$.\"{c}\"'" for c in present)  # one walk through the document for all columns
        shaped = f"select row, raw, if(json_valid(raw), json_extract_string(raw, [{paths}]), null) as fields"
        complaint = "if(fields is null, 'not a JSON object', null)"
    else:
        width = len(landed.columns)
        columns = ", ".join(f'{_field_expression(landed, c)} as "{c}"' for c in present)
        columns += "".join(f', {_columns_as_map(landed, c)} as "{c}"' for c in optional if c.endswith("*"))
        shaped = "select row, raw, csv_fields(raw) as fields"
        unclosed = (
            """if(len(string_split(raw, '"')) % 2 = 0, ', and a quote that does not end in the line', '')"""
        )
        shape = f"len(fields) || ' fields where the header has {width}' || {unclosed}"
        complaint = f"if(len(fields) = {width}, null, {shape})"
    return (
        f"select row, raw, {dice}, {complaint} as complaint, {columns}{absent} "
        f"from ({shaped} from ({_lines_query(landed)}) where ltrim(raw) <> '')"
    )


def _field_expression(landed: LandedFile, column: str) -> str:
    """Return the SQL of a CSV column's text."""
    return f"trim(fields[{landed.columns.index(column) + 1}], ' \"')"


def _columns_as_map(landed: LandedFile, pattern: str) -> str:
    """Return the SQL of a map of the CSV columns that match NAME_*."""
    prefix = pattern.removesuffix("*")
    columns = [column for column in landed.columns if column.startswith(prefix)]
    names = ", ".join("'" + escape_quotes(column.removeprefix(prefix)) + "'" for column in columns)
    fields = ", ".join(_field_expression(landed, column) for column in columns)
    return f"map([{names}]::varchar[], [{fields}]::varchar[])"


def _lines_query(landed: LandedFile) -> str:
    """Return the query for the lines of a text file, as one column.

    A line is trimmed only if it ends in a carriage return: `rtrim` is linear in its length.
    """
    marked = "if(row = 1, ltrim(line, '\ufeff'), line)"  # a byte order mark
    return (
        "select row, if(ends_with(line, chr(13)), rtrim(line, chr(13)), line) as raw from ("
        f"select row, {marked} as line from (select row_number() over () as row, line from "
        f"read_csv('{escape_quotes(landed.path.resolve())}', columns = {{'line': 'varchar'}}, "
        f"auto_detect = false, "
        f"header = false, delim = '\x1f', quote = '', escape = '', skip = {landed.header_lines}, "
        f"strict_mode = false, compression = '{landed.packing}', max_line_size = {MAX_LINE_BYTES})))"
    )


def _members_query(landed: LandedFile, folder: Path, guard: IngestGuard) -> str:
    """Unpack an archive into `folder` and return the query for its members."""
    wanted = landed.source.listed("recognised by")
    with tarfile.open(landed.path) as archive:
        inside = iterate_members(archive, guard)
        members = (member for member in inside if member.isfile() and member_pattern(member.name) in wanted)
        try:
            archive.extractall(folder, members, filter="data")
        except tarfile.TarError as error:  # e.g. a member with a path outside of the folder
            raise IngestError(f"{landed.path.name} cannot be unpacked: {error}. Pack it anew.") from error
    return (
        "select *, md5_number_lower(name) as dice, null::varchar as complaint, name as raw from (select "
        f"row_number() over (order by filename) as row, substr(filename, {len(str(folder)) + 2}) as name, "
        f"content from read_text('{escape_quotes(folder)}/**'))"
    )
