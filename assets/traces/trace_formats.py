"""Recognise the trace format of a file by its content.

Every file of sql/sources declares a container (csv, jsonl or text, plain or packed with gzip or zstd;
parquet; tar) and the columns that identify the format, in any case and with any separators. So a new format
needs one SQL file and nothing else. The columns of an archive are the names of its members, with # for a
number. A file of no such format is read as a log, by the names of its columns (log_columns.py).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.lake.sql_files import SQL, SqlFile, read_sql
from fleetcast.assets.traces.file_content import FileContent, inspect_file
from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.assets.traces.log_columns import (
    LogColumns,
    contradicts_format,
    describe_missing,
    find_log_columns,
    known_columns,
    missing_columns,
    plain_name,
    read_log_columns,
)

LOG_CONTAINERS = ("csv", "jsonl", "parquet")


class ReadingOptions(NamedTuple):
    """What the mapping file of a trace sets about how its file is read."""

    columns: Mapping[str, str] = {}  # column of a log -> column of the file, empty: not read
    clock: str | None = None  # unit of numeric times; of texts the time zone, or how they are written
    assumes_outputs: bool = False  # output tokens are set, so their column may be missing


class LandedFile(NamedTuple):
    """A file in the landing folder and how to read it."""

    path: Path
    source: SqlFile
    content: FileContent
    actual: Mapping[str, str]  # column that the format reads -> its name in the file
    log: LogColumns | None = None  # of a log: where its columns are

    @property
    def format(self) -> str:
        """Name of the format: of its file in sql/sources, or of the gateway that wrote the log."""
        return self.source.stem if self.log is None else self.log.format

    @property
    def container(self) -> str:
        """Container of the file: csv, jsonl, text, parquet or tar."""
        return self.content.container


def recognise_format(
    path: Path, guard: IngestGuard | None = None, options: ReadingOptions | None = None
) -> LandedFile:
    """Find the format of a file: the one of sql/sources with most columns, all of which it has; else a log.

    IngestError if the file is neither, with the needed columns that it lacks. ConfigError for a column that
    the user named and that does not exist.
    """
    options = options or ReadingOptions()
    content = inspect_file(path, guard or IngestGuard(path))
    if set(content.columns) >= {"status", "data"}:
        raise IngestError(
            f"{path.name} is an answer of Prometheus. Put all answers of a trace into a folder "
            "data/landing/NAME.metrics."
        )
    if not options.columns and (found := _find_format(path, content, options)) is not None:
        return found
    if content.container not in LOG_CONTAINERS:
        _require_members(path, content)
        known = ", ".join(source.stem for source in _sources())
        raise IngestError(
            f"{path.name} is no trace format known here: {content}. Known: {known}, and logs in CSV, JSON "
            "lines or Parquet. Bring it to one of these (data/landing/README.md), or describe it in "
            "sql/sources/NAME.sql."
        )
    columns = find_log_columns(path, content, options.columns, options.clock)
    if missing := missing_columns(columns, options.assumes_outputs):
        raise IngestError(f"{path.name} {describe_missing(path, content, columns, missing)}")
    return LandedFile(
        path, read_sql("sources/log.sql"), content, {name: name for name in known_columns()}, columns
    )


def source_of_format(form: str) -> SqlFile | None:
    """Return the SQL that reads a format, which is that of any log for a gateway's; None for metrics."""
    path = SQL / "sources" / f"{form}.sql"
    if path.is_file():
        return read_sql(path)
    return read_sql("sources/log.sql") if form in read_log_columns()[1] else None


def _require_members(path: Path, content: FileContent) -> None:
    """Raise an IngestError for an archive that lacks members of a format: their names are of no other one."""
    for source in _sources():
        wanted = source.listed("recognised by")
        missing = [name for name in wanted if name not in content.columns]
        if source.fields["format"] == content.container == "tar" and 0 < len(missing) < len(wanted):
            raise IngestError(
                f"{path.name} looks like {source.stem} but lacks {', '.join(missing)}; it is "
                f"{content}. "
                "Pack them too."
            )


def _sources() -> list[SqlFile]:
    files = (read_sql(file) for file in sorted((SQL / "sources").glob("*.sql")))
    return [source for source in files if source.fields["format"] != "log"]


def _find_format(path: Path, content: FileContent, options: ReadingOptions) -> LandedFile | None:
    """Return the format with most columns, of those whose columns and kind of times the file has."""
    candidates = []
    for source in _sources():
        if source.fields["format"] != content.container:
            continue
        actual = _match_columns(source, content)
        missing = [column for column in source.listed("recognised by") if column not in actual]
        lacks_outputs = options.assumes_outputs and missing == [_output_column(source)]
        if (not missing or lacks_outputs) and not contradicts_format(path, content, source.text, actual):
            candidates.append(
                (not missing, len(source.listed("recognised by")), LandedFile(path, source, content, actual))
            )
    return max(candidates, key=lambda entry: entry[:2])[2] if candidates else None


def _match_columns(source: SqlFile, content: FileContent) -> dict[str, str]:
    """Return the file's name of each column of a format that it has; the same spelling comes first."""
    plain = {plain_name(column): column for column in reversed(content.columns)}
    exact = source.fields["format"] in ("tar", "text")
    wanted = (*source.listed("recognised by"), *source.listed("may have"))
    found = {}
    for column in wanted:
        actual = column if column in content.columns else None if exact else plain.get(plain_name(column))
        if actual is not None and not column.endswith("*"):
            found[column] = actual
    return found


def _output_column(source: SqlFile) -> str | None:
    """Return the column of a format's output tokens; None if the format derives them otherwise."""
    found = re.search(r'whole\("?([\w ]+)"?\)\s+as output_tokens', source.text)
    return None if found is None else found[1]
