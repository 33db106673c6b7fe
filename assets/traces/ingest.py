"""Landing: a trace file becomes canonical requests in the lake, and every row is kept or quarantined.

What a format's columns mean stands in sql/sources/FORMAT.sql, what it says nothing about in a mapping file
beside the trace, the rules that a row must keep in sql/staging/staged.sql. DuckDB streams the file through a
scratch database, so memory stays bounded. The row in `ingests` is written last: an ingest that was
interrupted is simply done again.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from assets.lake.settings import Progress
from assets.lake.sql_files import SQL, SqlFile, read_sql
from assets.lake.store import removal
from assets.lake.warehouse import Connection, Lake, one_line_errors
from assets.traces.bounds import Guard, IngestError
from assets.traces.formats import COPY_AGAIN, LandedFile, recognise
from assets.traces.mapping import TraceMapping, mapping_file, read_bounds, read_mapping
from assets.traces.rows import rows_query
from assets.traces.samples import FOLDER, is_metrics
from assets.traces.traces import write_tiers
from models.world.catalogue import Catalogue
from models.world.places import HOME

LANDING = HOME / "data" / "landing"
MACROS = ("mapping", "chances", "tiers")
STAGED = {False: ("staged", "patterns", "duplicates"), True: ("staged_answers",)}  # True: of answers
ANSWERS = "answers"  # the format, and the table, of what llms answered
NO_TRACES = {".toml", ".md", ".part", ".tmp"}  # mapping files, notes, files that are still being copied


@dataclass(frozen=True)
class IngestReport:
    """What became of a landed file."""

    file: str
    trace: str
    format: str  # a file of sql/sources; that of ANSWERS brings no requests
    rows_in: int
    rows_kept: int
    rows_quarantined: int
    rows_out_of_order: int  # kept rows earlier than the row before them; they were sorted
    first_at: datetime | None
    last_at: datetime | None
    largest_step_back_s: float | None
    clock: str | None  # what the source's timestamps mean
    days: tuple[date, ...]
    reasons: Mapping[str, int]  # of the quarantined rows, the most frequent first
    is_new: bool  # False: ingested before with the same content, mapping and catalogue; nothing was done


def landed_files(folder: Path = LANDING) -> list[Path]:
    """The trace files and folders of metrics in the landing folder, by name."""
    files = (p for p in folder.glob("*") if (p.is_file() or is_metrics(p)) and not p.name.startswith("."))
    return sorted(p for p in files if p.suffix not in NO_TRACES)


def lone_mappings(folder: Path = LANDING) -> list[Path]:
    """The mapping files of the landing folder beside which no trace lies."""
    return sorted(set(folder.glob("*.toml")) - {mapping_file(path) for path in landed_files(folder)})


def ingest(path: Path, lake: Lake, catalogue: Catalogue, progress: Progress | None = None) -> IngestReport:
    """Bring one file into the lake; the same content, mapping and catalogue a second time changes nothing.

    Raises
    ------
    IngestError
        The file is unknown, unreadable or empty: what it is, which formats there are, what to do.
        Its trace is made, not landed.
    ConfigError
        The mapping file beside it names what the catalogue does not have.
    """
    guard = Guard(path, read_bounds(path), progress)
    landed = recognise(path, guard)
    mapping = read_mapping(path, landed.format, catalogue)
    has_answers = landed.format == ANSWERS
    if not has_answers:
        require_not_made(lake, mapping.trace, path)
        require_alone(lake, mapping.trace, path)
    variables = {
        **mapping.variables(),
        "file": path.name,
        "format": landed.format,
        "clock": landed.source.fields.get("clock"),
        "has_given_ids": "ids" in landed.source.fields,
        "is_archive": landed.source.fields["format"] == "tar",
        "sha256": fingerprint(landed, mapping, catalogue),
        "regions": list(catalogue.regions),
        "llms": list(catalogue.llms),
        "tiers": list(catalogue.tiers),
        "deadlines_s": [tier.deadline_s for tier in catalogue.tiers.values()],
    }
    if is_known(lake, mapping.trace, path.name, variables["sha256"]):
        return report(lake, mapping.trace, path.name, is_new=False)
    with (
        one_line_errors(f"Ingesting {path.name}"),
        lake.scratch() as folder,
        lake.connect(folder / "stage.duckdb", query=staging(landed.source)) as con,
    ):
        stage(con, landed, variables, folder / "members", guard)
        with guard.watching(con, "days"):
            if has_answers:
                kept = read_sql("staging/landed_answers.sql").text
                lake.copy(con, kept, ANSWERS, file=path.name, trace=mapping.trace)
            else:
                keep_verdicts(con, lake, mapping.trace)
                keep(con, lake, mapping.trace)
                write_tiers(lake, mapping.trace, catalogue)
            quarantine = read_sql("staging/quarantine.sql").text
            lake.copy(con, quarantine, "quarantine", file=path.name, trace=mapping.trace)
            record = read_sql("staging/ingest.sql").text
            lake.copy(con, record, "ingests", file=path.name, trace=mapping.trace)
    return report(lake, mapping.trace, path.name, is_new=True)


def staging(*sources: SqlFile) -> str:
    """All that is asked of a connection while a file lands: sql/staging, and how its source is read."""
    asked = (*sources, *(read_sql(path) for path in sorted(SQL.glob("staging/*.sql"))))
    return "\n".join(file.text for file in asked)


def require_not_made(lake: Lake, trace: str, path: Path) -> None:
    """Refuse a file whose trace is made by a config or by `fleetcast generate`, which would overwrite it."""
    if lake.made_from(trace).is_file():
        raise IngestError(
            f"{path.name} would land in {trace!r}, a trace whose days are made, and be overwritten. "
            f"Give it another trace in {mapping_file(path).name}, "
            f"or remove that one: {removal(lake.root, f'*/trace={trace}')}"
        )


def require_alone(lake: Lake, trace: str, path: Path) -> None:
    """Refuse logs and metrics in one trace, and metrics of two folders: they may know the same requests."""
    others = [file.stem for file in lake.files("ingests", trace=trace) if file.stem != path.name]
    if others and any(name.endswith(FOLDER) for name in (*others, path.name)):
        raise IngestError(
            f"{path.name} would land in the trace {trace!r} beside {others[0]}: requests that both know "
            f"would count twice. Give it another trace in {mapping_file(path).name}, or run: "
            f"fleetcast forget {others[0]}"
        )


def is_known(lake: Lake, trace: str, file: str, sha256: Any) -> bool:
    """Whether the file landed before as it is; the same content under another name is refused."""
    query = "select file from ingests where trace = $trace and sha256 = $sha256"
    files = lake.sql(query, trace=trace, sha256=sha256)["file"].to_pylist()
    if files and file not in files:
        raise IngestError(
            f"{file} has the same content as {files[0]}, which is in the trace {trace} already. "
            "Remove it, or give it a mapping file with another trace."
        )
    return bool(files)


def fingerprint(landed: LandedFile, mapping: TraceMapping, catalogue: Catalogue) -> str:
    """SHA-256 of all that the result depends on: the file's bytes, its reader, the mapping, the catalogue."""
    with landed.path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    staging = (*MACROS, *STAGED[landed.format == ANSWERS])
    for text in (landed.source.text, *(read_sql(f"staging/{name}.sql").text for name in staging)):
        digest.update(text.encode())
    deadlines = {name: tier.deadline_s for name, tier in catalogue.tiers.items()}
    digest.update(repr((mapping, list(catalogue.regions), list(catalogue.llms), deadlines)).encode())
    return digest.hexdigest()


def stage(
    con: Connection, landed: LandedFile, variables: Mapping[str, Any], folder: Path, guard: Guard
) -> None:
    """Read the file once, into the table `staged`: its rows, each with what speaks against it.

    An archive is unpacked into `folder`.
    """
    _tell(con, variables)
    staged, *updates = STAGED[landed.format == ANSWERS]
    for macros in MACROS:
        con.execute(read_sql(f"staging/{macros}.sql").text)
    con.execute(f"create temp view source as {rows_query(landed, folder, guard)}")
    with one_line_errors(f"Preparing sql/sources/{landed.source.name}", "Mend that file.", IngestError):
        con.execute(f"create temp view parsed as {landed.source.text}")
    remedy = "" if variables["is_archive"] else COPY_AGAIN  # an archive was read whole to be unpacked
    with guard.watching(con, "rows"):
        with one_line_errors(f"Reading {landed.path.name} as {landed.format}", remedy, IngestError):
            con.execute(f"create table staged as {read_sql(f'staging/{staged}.sql').text}")
        for update in updates:
            con.execute(read_sql(f"staging/{update}.sql").text)
    if con.execute("select count(*) from staged").fetchall() == [(0,)]:
        raise IngestError(f"{landed.path.name} ({landed.format}) has no row. {COPY_AGAIN}")


def _tell(con: Connection, variables: Mapping[str, Any]) -> None:
    for name, value in variables.items():
        con.execute(f"set variable {name} = $value", {"value": value})


def keep(con: Connection, lake: Lake, trace: str) -> None:
    """Write each day that the file has rows on, and drop those that it had when it was ingested before.

    A day has a file of its own from each source, so that several may land at once.
    """
    by_source(con, lake, trace)
    [(source,)] = con.execute("select getvariable('file')").fetchall()
    rows = con.execute("select day, count(*) from staged where reason is null group by day order by day")
    landed = {day for day, _ in rows.fetchall()}
    for day in sorted(landed):
        con.execute("set variable day = $day::date", {"day": day})
        query = read_sql("staging/landed_day.sql").text
        lake.copy(con, query, "requests", file=source, trace=trace, day=day)
    for day in set(lake.days("requests", trace)) - landed:
        lake.path("requests", source, trace=trace, day=day).unlink(missing_ok=True)
        if not lake.files("requests", trace=trace, day=day):
            lake.drop_day(trace, day)


def by_source(con: Connection, lake: Lake, trace: str) -> None:
    """Part days of earlier versions, which had one file of all sources, into a file of each."""
    for path in lake.files("requests", trace=trace):
        if path.stem != "part":
            continue
        day, part = path.parent.name.removeprefix("day="), {"part": str(path)}
        rows = "from read_parquet(getvariable('part'), hive_partitioning = false)"
        con.execute("set variable part = $part", part)
        sources = con.execute(f"select distinct source {rows}").fetchall()
        for (source,) in sources:
            con.execute("set variable of_part = $source", {"source": source})
            query = f"{rows} where source = getvariable('of_part') order by arrived_at, request_id"
            lake.copy(con, query, "requests", file=source, trace=trace, day=date.fromisoformat(day))
        path.unlink()


def keep_verdicts(con: Connection, lake: Lake, trace: str) -> None:
    """Write how the trace's apps were judged, before any request that was judged so."""
    if con.execute("select count(*) from new_verdicts").fetchall() != [(0,)]:
        query = "select * replace (hours::bigint as hours) from verdicts order by app"
        lake.copy(con, query, "tier_verdicts", trace=trace)


def withdraw(lake: Lake, trace: str, file: str) -> None:
    """Take a landed file out of a trace again: what it brought, its quarantine, last its row of ingests."""
    with lake.connect(query=f"requests {staging()}") as con:
        _tell(con, {"trace": trace, "file": file})
        nothing = (
            "select 1 as row, 1 as part, 'x' as reason, * exclude (trace, source) from requests where false"
        )
        con.execute(f"create temp table staged as {nothing}")
        keep(con, lake, trace)
    for table in (ANSWERS, "quarantine", "ingests"):
        lake.path(table, file, trace=trace).unlink(missing_ok=True)


def report(lake: Lake, trace: str, file: str, is_new: bool) -> IngestReport:
    """What the lake says became of a file."""
    row = lake.sql("staging/report.sql", trace=trace, file=file).to_pylist()[0]
    days, reasons = row.pop("days") or [], row.pop("reasons") or []
    return IngestReport(
        **row,
        days=tuple(days),
        reasons={entry["reason"]: entry["rows"] for entry in reasons},
        is_new=is_new,
    )
