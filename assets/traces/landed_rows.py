"""The query that reads a file row by row: a damaged line is one bad row and does not stop the file."""

import codecs
import json
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from fleetcast.assets.lake.table_queries import escape_quotes
from fleetcast.assets.traces.file_content import (
    COPY_AGAIN,
    MAX_LINE_BYTES,
    ColumnPath,
    iterate_members,
    member_pattern,
    open_unpacked,
)
from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.assets.traces.trace_formats import LandedFile

TEXT_BLOCK_BYTES = 1 << 20
DICE = "md5_number_lower(getvariable('file') || ':' || row) as dice"


def ensure_utf8(landed: LandedFile, folder: Path, guard: IngestGuard) -> LandedFile:
    """Return a file whose text is UTF-8: the file itself, or a copy in `folder` with bad bytes replaced.

    DuckDB rejects a whole file for one byte that is not UTF-8, and reads a truncated zstd file without an
    error. So Python reads the text to its end first. IngestError for a file that cannot be read.
    """
    try:
        if _recode(landed, None, guard):
            return landed
    except (OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise IngestError(f"{landed.path.name} cannot be read: {reason}. {COPY_AGAIN}") from error
    folder.mkdir()
    with (folder / landed.path.name).open("wb") as copy:
        _recode(landed, copy, guard)
    content = landed.content._replace(packing="none")
    return landed._replace(path=folder / landed.path.name, content=content)


def _recode(landed: LandedFile, copy: IO[bytes] | None, guard: IngestGuard) -> bool:
    """Write the text as UTF-8 into `copy`; without a copy, return whether it is UTF-8 already."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict" if copy is None else "replace")
    label, total = f"text of {landed.path.name}", 0
    with (
        open_unpacked(landed.path, landed.content.packing) as opened,
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
    if landed.container == "tar":
        return _members_query(landed, folder, guard)
    if landed.container == "parquet":
        return _parquet_query(landed)
    landed = ensure_utf8(landed, folder, guard)
    lines = f"from ({_lines_query(landed)}) where ltrim(raw) <> ''"
    if landed.container == "text":
        return f"select row, raw, {DICE}, null::varchar as complaint, raw as line {lines}"
    if landed.container == "jsonl":
        present = [c for c in _wanted_columns(landed) if landed.log is None or c in landed.log.paths]
        columns = ", ".join(f'fields[{n}] as "{c}"' for n, c in enumerate(present, start=1))
        shaped, complaint = _json_shape([_path_of(landed, c) for c in present], lines)
    else:
        present = [
            c for c in _wanted_columns(landed) if c in (landed.log.paths if landed.log else landed.actual)
        ]
        columns = ", ".join(f'{_field_expression(landed, _path_of(landed, c))} as "{c}"' for c in present)
        maps = [c for c in landed.source.listed("may have") if c.endswith("*")]
        columns += "".join(f', {_columns_as_map(landed, c)} as "{c}"' for c in maps)
        shaped, complaint = _csv_shape(landed, lines)
    absent = _absent_columns(landed, present)
    return f"select row, raw, {DICE}, {complaint} as complaint, {columns}{absent} from ({shaped})"


def _wanted_columns(landed: LandedFile) -> list[str]:
    """Return the columns that the format reads, without those that stand for several columns."""
    both = (*landed.source.listed("recognised by"), *landed.source.listed("may have"))
    return [column for column in both if not column.endswith("*")]


def _path_of(landed: LandedFile, column: str) -> ColumnPath:
    if landed.log is not None:
        return landed.log.paths[column]
    return (landed.actual.get(column, column),)


def _absent_columns(landed: LandedFile, present: Sequence[str]) -> str:
    """Return the columns that the file lacks, as null."""
    kind = "null" if landed.log is None else "null::varchar"
    return "".join(f', {kind} as "{c}"' for c in _wanted_columns(landed) if c not in present)


def json_path(path: ColumnPath) -> str:
    """Return the SQL text of the JSON path of a field."""
    keys = "".join("." + json.dumps(key, ensure_ascii=False) for key in path)
    return f"'{escape_quotes(f'${keys}')}'"


def _parquet_query(landed: LandedFile) -> str:
    """Return the query for a Parquet file: typed columns of a format, texts of a log's."""
    known = landed.log.paths if landed.log is not None else landed.actual
    present = [c for c in _wanted_columns(landed) if c in known]
    columns = ", ".join(f'{_parquet_value(landed, c)} as "{c}"' for c in present)
    raw = ", ".join(f"'{c}': {quote_name(_path_of(landed, c)[0])}" for c in present)
    path = escape_quotes(landed.path.resolve())
    return (
        f"select row, {DICE}, null::varchar as complaint, to_json({{{raw}}})::varchar as raw, {columns}"
        f"{_absent_columns(landed, present)} from (select *, file_row_number + 1 as row from "
        f"read_parquet('{path}', file_row_number = true, hive_partitioning = false))"
    )


def _parquet_value(landed: LandedFile, column: str) -> str:
    path = _path_of(landed, column)
    if landed.log is None:
        return quote_name(path[0])
    field = f"({quote_name(path[0])})" + "".join(f"[{quote_text(key)}]" for key in path[1:])
    return f"to_json({field})::varchar" if column == "prefix_hashes" else f"({field})::varchar"


def quote_name(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a text as an SQL literal."""
    return f"'{escape_quotes(text)}'"


def _json_shape(paths: Sequence[ColumnPath], lines: str) -> tuple[str, str]:
    """Return the SELECT that reads these fields of lines of JSON, and its complaint about a line.

    A line that has one of the fields twice is refused: JSON readers take either the first or the last.
    """
    inner: dict[ColumnPath, list[str]] = {}
    for *parent, key in paths:
        inner.setdefault(tuple(parent), []).append(quote_text(key))
    walked = ", ".join(json_path(path) for path in paths)  # one walk for all columns
    keys = "".join(f", json_keys(doc, {json_path(path)}) as keys{n}" for n, path in enumerate(inner))
    twice = ", ".join(
        f"list_filter(keys{n}, lambda k, n: k in ({', '.join(names)}) and list_position(keys{n}, k) < n)[1]"
        for n, names in enumerate(inner.values())
    )
    shaped = (
        f"select row, raw, fields, coalesce({twice}) as twice from (select row, raw, "
        f"json_extract_string(doc, [{walked}]) as fields{keys} from (select row, raw, "
        f"if(json_valid(raw), raw, null) as doc {lines}))"
    )
    complaint = (
        "case when fields is null then 'not a JSON object' "
        "when twice is not null then 'has the key ' || twice || ' more than once' end"
    )
    return shaped, complaint


def _csv_shape(landed: LandedFile, lines: str) -> tuple[str, str]:
    """Return the SELECT that splits the lines of a CSV file, and its complaint about a line."""
    width, content = len(landed.content.columns), landed.content
    if content.is_dump:
        fields = (
            r"list_transform(string_split(raw, chr(9)), lambda f: if(f = '\N', null, replace(f, '\\', '\')))"
        )
    elif content.separator == ",":
        fields = "csv_fields(raw)"
    else:
        fields = f"fields_by(raw, {_separator_text(landed)})"
    unclosed = (
        """if(len(string_split(raw, '"')) % 2 = 0, ', and a quote that does not end in the line', '')"""
    )
    shape = f"len(fields) || ' fields where the header has {width}' || {unclosed}"
    return f"select row, raw, {fields} as fields {lines}", f"if(len(fields) = {width}, null, {shape})"


def _separator_text(landed: LandedFile) -> str:
    return "chr(9)" if landed.content.separator == "\t" else f"'{landed.content.separator}'"


def _field_expression(landed: LandedFile, path: ColumnPath) -> str:
    """Return the SQL of a CSV column's text, or of a field in the JSON that it holds."""
    field = f"fields[{landed.content.columns.index(path[0]) + 1}]"
    text = field if landed.content.is_dump else f"trim({field}, ' \"')"
    if len(path) == 1:
        return text
    return f"if(json_valid({text}), json_extract_string({text}, {json_path(path[1:])}), null)"


def _columns_as_map(landed: LandedFile, pattern: str) -> str:
    """Return the SQL of a map of the CSV columns that match NAME_*."""
    prefix = pattern.removesuffix("*")
    columns = [column for column in landed.content.columns if column.startswith(prefix)]
    names = ", ".join(quote_text(column.removeprefix(prefix)) for column in columns)
    fields = ", ".join(_field_expression(landed, (column,)) for column in columns)
    return f"map([{names}]::varchar[], [{fields}]::varchar[])"


def _lines_query(landed: LandedFile) -> str:
    """Return the query for the lines of a text file, as one column.

    A line is trimmed only if it ends in a carriage return: `rtrim` is linear in its length. The rows of a
    dump end with the line `\\.`.
    """
    marked = "if(row = 1, ltrim(line, '\ufeff'), line)"  # a byte order mark
    lines = (
        f"select row, {marked} as line from (select row_number() over () as row, line from "
        f"read_csv('{escape_quotes(landed.path.resolve())}', columns = {{'line': 'varchar'}}, "
        f"auto_detect = false, "
        f"header = false, delim = '\x1f', quote = '', escape = '', skip = {landed.content.header_lines}, "
        f"strict_mode = false, compression = '{landed.content.packing}', max_line_size = {MAX_LINE_BYTES}))"
    )
    if landed.content.is_dump:
        lines = f"select * from ({lines}) qualify count_if(line = '\\.') over (order by row) = 0"
    return f"select row, if(ends_with(line, chr(13)), rtrim(line, chr(13)), line) as raw from ({lines})"


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
