"""Rows of a landed file: read into a scratch database, written into the lake, and withdrawn from it."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from fleetcast.assets.lake.sql_files import SQL, SqlFile, read_sql
from fleetcast.assets.lake.table_queries import escape_quotes
from fleetcast.assets.lake.warehouse import Connection, Lake, one_line_errors
from fleetcast.assets.traces.file_content import COPY_AGAIN
from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.assets.traces.landed_rows import landed_rows_query
from fleetcast.assets.traces.servegen_requests import write_sampled_requests
from fleetcast.assets.traces.trace_formats import LandedFile

STAGING_MACROS = ("mapping", "tiers")
STAGING_QUERIES = {
    False: ("staged", "clock", "patterns", "duplicates"),
    True: ("staged_answers",),
}  # True: of answers
ANSWERS_TABLE = "answers"  # name of the format and of the table of llms' answers


def staging_sql(*sources: SqlFile) -> str:
    """Return all SQL that runs while a file lands: sql/staging, and the SQL of its source."""
    files = (*sources, *(read_sql(path) for path in sorted(SQL.glob("staging/*.sql"))))
    return "\n".join(file.text for file in files)


def stage_file(
    con: Connection, landed: LandedFile, variables: Mapping[str, Any], folder: Path, guard: IngestGuard
) -> None:
    """Read the file once, into the table `staged`: its rows, each with the reason to quarantine it, if any.

    An archive is unpacked into `folder`. IngestError if the file is unreadable or has no row.
    """
    set_variables(con, variables)
    staged, *updates = STAGING_QUERIES[landed.format == ANSWERS_TABLE]
    for macros in STAGING_MACROS:
        con.execute(read_sql(f"staging/{macros}.sql").text)
    con.execute(f"create temp view source as {landed_rows_query(landed, folder, guard)}")
    if landed.container == "tar":
        sampled = folder.with_suffix(".parquet")
        write_sampled_requests(folder, sampled, variables["rate_scale"], guard)
        con.execute(f"create temp view sampled as select * from read_parquet('{escape_quotes(sampled)}')")
    with one_line_errors(f"Preparing sql/sources/{landed.source.name}", "Correct that file.", IngestError):
        con.execute(f"create temp view parsed as {landed.source.text}")
    remedy = "" if variables["is_archive"] else COPY_AGAIN  # an archive was read whole to be unpacked
    with guard.watch_query(con, "rows"):
        with one_line_errors(f"Reading {landed.path.name} as {landed.format}", remedy, IngestError):
            con.execute(f"create table staged as {read_sql(f'staging/{staged}.sql').text}")
        for update in updates:
            con.execute(read_sql(f"staging/{update}.sql").text)
    if con.execute("select count(*) from staged").fetchall() == [(0,)]:
        raise IngestError(f"{landed.path.name} ({landed.format}) has no row. {COPY_AGAIN}")


def set_variables(con: Connection, variables: Mapping[str, Any]) -> None:
    """Set DuckDB variables on a connection."""
    for name, value in variables.items():
        con.execute(f"set variable {name} = $value", {"value": value})


def write_staged_days(con: Connection, lake: Lake, trace: str) -> None:
    """Write each day of the file's rows, and drop the days that only its previous ingest had.

    A day has one file per source, so that several sources can land at the same time.
    """
    split_days_by_source(con, lake, trace)
    [(source,)] = con.execute("select getvariable('file')").fetchall()
    rows = con.execute("select day, count(*) from staged where reason is null group by day order by day")
    landed = {day for day, _ in rows.fetchall()}
    for day in sorted(landed):
        con.execute("set variable day = $day::date", {"day": day})
        query = read_sql("staging/landed_day.sql").text
        lake.copy(con, query, "requests", file=source, trace=trace, day=day)
    for day in set(lake.days("requests", trace)) - landed:
        lake.remove(lake.path("requests", source, trace=trace, day=day))
        if not lake.files("requests", trace=trace, day=day):
            lake.drop_day(trace, day)


def split_days_by_source(con: Connection, lake: Lake, trace: str) -> None:
    """Split days of earlier versions, which had one file for all sources, into a file per source."""
    for path in lake.files("requests", trace=trace):
        if path.stem != "part":
            continue
        day = date.fromisoformat(lake.partition_of(path)["day"])
        rows = "from read_parquet(getvariable('part'), hive_partitioning = false)"
        set_variables(con, {"part": str(path)})
        for (source,) in con.execute(f"select distinct source {rows}").fetchall():
            set_variables(con, {"of_part": source})
            query = f"{rows} where source = getvariable('of_part') order by arrived_at, request_id"
            lake.copy(con, query, "requests", file=source, trace=trace, day=day)
        lake.remove(path)


def write_verdicts(con: Connection, lake: Lake, trace: str) -> None:
    """Write the tier verdicts on the trace's apps. Call it before their requests are written."""
    if con.execute("select count(*) from new_verdicts").fetchall() != [(0,)]:
        query = "select * replace (hours::bigint as hours) from verdicts order by app"
        lake.copy(con, query, "tier_verdicts", trace=trace)


def withdraw_file(lake: Lake, trace: str, file: str) -> None:
    """Remove a landed file from a trace: its rows, its quarantine, and last its row in `ingests`."""
    with lake.connect(query=f"requests {staging_sql()}") as con:
        set_variables(con, {"trace": trace, "file": file})
        no_rows = (
            "select 1 as row, 1 as part, 'x' as reason, * exclude (trace, source) from requests where false"
        )
        con.execute(f"create temp table staged as {no_rows}")
        write_staged_days(con, lake, trace)
    for table in (ANSWERS_TABLE, "quarantine", "ingests"):
        lake.remove(lake.path(table, file, trace=trace))


def remove_from_trace(lake: Lake, trace: str, file: str) -> None:
    """Remove a landed file from a trace, and what was decided about the trace if it was its last file."""
    withdraw_file(lake, trace, file)
    if not lake.files("ingests", trace=trace):
        for table in ("tier_verdicts", "metric_findings", "engine_histograms"):
            lake.remove(lake.path(table, trace=trace))
