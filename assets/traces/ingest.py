"""Landing: a trace file becomes canonical requests in the lake, and every row is kept or quarantined.

sql/sources/FORMAT.sql has the meaning of a format's columns, a mapping file next to the trace has what the
file does not contain, and sql/staging/staged.sql has the rules of a row. DuckDB streams the file through a
scratch database, so memory stays bounded. The row in `ingests` is written last: an interrupted ingest is done
again.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.lake.store import removal_command
from fleetcast.assets.lake.warehouse import Lake, one_line_errors
from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.assets.traces.prometheus_answers import METRICS_SUFFIX, is_metrics_folder
from fleetcast.assets.traces.request_days import write_tiers
from fleetcast.assets.traces.staging import (
    ANSWERS_TABLE,
    STAGING_MACROS,
    STAGING_QUERIES,
    remove_from_trace,
    stage_file,
    staging_sql,
    write_staged_days,
    write_verdicts,
)
from fleetcast.assets.traces.trace_formats import LandedFile, recognise_format
from fleetcast.assets.traces.trace_mapping import (
    TraceMapping,
    add_mapped_llms,
    mapping_file,
    read_ingest_bounds,
    read_mapping,
    read_options,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.project_paths import HOME

LANDING_DIR = HOME / "data" / "landing"
NON_TRACE_SUFFIXES = {".toml", ".md", ".part", ".tmp"}  # mapping files, notes, files still being copied


@dataclass(frozen=True)
class IngestReport:
    """Result of ingesting a file."""

    file: str
    trace: str
    format: str  # name of a file in sql/sources; ANSWERS_TABLE has no requests
    rows_in: int
    rows_kept: int
    rows_quarantined: int
    rows_out_of_order: int  # kept rows earlier than the row before them; they were sorted
    first_at: datetime | None
    last_at: datetime | None
    largest_step_back_s: float | None
    clock: str | None  # meaning of the source's timestamps
    columns: str | None  # columns that were found by their names, with their units
    days: tuple[date, ...]
    reasons: Mapping[str, int]  # reason -> quarantined rows, the most frequent first
    is_new: bool  # False: ingested before with the same content, mapping and catalogue; nothing was done
    moved_from: tuple[str, ...] = ()  # traces that had the file before its mapping named another one


def landed_files(folder: Path = LANDING_DIR) -> list[Path]:
    """Return the trace files and metrics folders in the landing folder, by name."""
    files = (
        p for p in folder.glob("*") if (p.is_file() or is_metrics_folder(p)) and not p.name.startswith(".")
    )
    return sorted(p for p in files if p.suffix not in NON_TRACE_SUFFIXES)


def lone_mappings(folder: Path = LANDING_DIR) -> list[Path]:
    """Return the mapping files of the landing folder without a trace file of the same name."""
    return sorted(set(folder.glob("*.toml")) - {mapping_file(path) for path in landed_files(folder)})


def ingest_file(
    path: Path,
    lake: Lake,
    catalogue: Catalogue,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> IngestReport:
    """Ingest one file into the lake. With the same content, mapping and catalogue as before, change nothing.

    If its mapping names another trace than before, the file moves there. `columns` come before those of the
    mapping file.

    Raises
    ------
    IngestError
        The file has an unknown format, or is unreadable or empty, or its trace is made, not landed.
    ConfigError
        The mapping file has a name that the catalogue does not have.
    """
    guard = IngestGuard(path, read_ingest_bounds(path), progress)
    landed = recognise_format(path, guard, read_options(path, columns))
    mapping = read_mapping(path, landed.format, catalogue)
    catalogue = add_mapped_llms(catalogue, mapping)
    if landed.format != ANSWERS_TABLE:
        require_landed_trace(lake, mapping.trace, path)
        require_single_source(lake, mapping.trace, path)
    variables = staging_variables(landed, mapping, catalogue)
    is_new = not is_ingested(lake, mapping.trace, path.name, variables["sha256"])
    if is_new:
        _write_file(landed, mapping, variables, lake, catalogue, guard)
    return complete_move(lake, mapping.trace, path.name, is_new)


def _write_file(
    landed: LandedFile,
    mapping: TraceMapping,
    variables: Mapping[str, Any],
    lake: Lake,
    catalogue: Catalogue,
    guard: IngestGuard,
) -> None:
    """Read a file and write its days, its quarantine, and last its row in `ingests`."""
    path = landed.path
    has_answers = landed.format == ANSWERS_TABLE
    with (
        one_line_errors(f"Ingesting {path.name}"),
        lake.scratch() as folder,
        lake.connect(folder / "stage.duckdb", query=staging_sql(landed.source)) as con,
    ):
        stage_file(con, landed, variables, folder / "members", guard)
        with guard.watch_query(con, "days"):
            if has_answers:
                answers = read_sql("staging/landed_answers.sql").text
                lake.copy(con, answers, ANSWERS_TABLE, file=path.name, trace=mapping.trace)
            else:
                write_verdicts(con, lake, mapping.trace)
                write_staged_days(con, lake, mapping.trace)
                write_tiers(lake, mapping.trace, catalogue)
            quarantine = read_sql("staging/quarantine.sql").text
            lake.copy(con, quarantine, "quarantine", file=path.name, trace=mapping.trace)
            record = read_sql("staging/ingest.sql").text
            lake.copy(con, record, "ingests", file=path.name, trace=mapping.trace)


def staging_variables(landed: LandedFile, mapping: TraceMapping, catalogue: Catalogue) -> dict[str, Any]:
    """Return the DuckDB variables that sql/staging reads for a file."""
    return {
        **mapping.variables(),
        "file": landed.path.name,
        "format": landed.format,
        "clock": clock_text(landed, mapping.zone),
        "has_given_ids": "request_id" in landed.log.paths if landed.log else "ids" in landed.source.fields,
        "columns": landed.log.describe(landed.content.separator, mapping.zone) if landed.log else None,
        **(landed.log.variables() if landed.log else {}),
        "is_archive": landed.container == "tar",
        "sha256": trace_file_digest(landed, mapping, catalogue),
        "regions": list(catalogue.regions),
        "llms": list(catalogue.llms),
        "tiers": list(catalogue.tiers),
        "deadlines_s": [tier.deadline_s for tier in catalogue.tiers.values()],
    }


def clock_text(landed: LandedFile, zone: str | None) -> str | None:
    """Return what the timestamps of a file mean."""
    if landed.log is None:
        clock = landed.source.fields.get("clock")
        return clock.replace("UTC where", f"{zone} where") if clock and zone else clock
    times = landed.log.times
    return next((times[name].describe(zone) for name in ("arrived_at", "ended_at") if name in times), None)


def require_landed_trace(lake: Lake, trace: str, path: Path) -> None:
    """Raise an IngestError if a config or `fleetcast generate` makes the trace: it overwrites landed days."""
    if lake.made_from(trace).is_file():
        raise IngestError(
            f"{path.name} would land in {trace!r}, a trace whose days are made, and be overwritten. "
            f"Give it another trace in {mapping_file(path).name}, "
            f"or remove that one: {removal_command(lake.root, f'*/trace={trace}')}"
        )


def require_single_source(lake: Lake, trace: str, path: Path) -> None:
    """Raise an IngestError for logs and metrics, or two metrics folders, in one trace: they may overlap."""
    others = [file.stem for file in lake.files("ingests", trace=trace) if file.stem != path.name]
    if others and any(name.endswith(METRICS_SUFFIX) for name in (*others, path.name)):
        raise IngestError(
            f"{path.name} would land in the trace {trace!r} next to {others[0]}: requests that are in both "
            f"would count twice. Give it another trace in {mapping_file(path).name}, or run: "
            f"fleetcast forget {others[0]}"
        )


def complete_move(lake: Lake, trace: str, file: str, is_new: bool) -> IngestReport:
    """Remove a file that is complete in its trace from traces that had it before, and return its report.

    An interruption before this loses nothing.
    """
    former = former_traces(lake, trace, file)
    for other in former:
        remove_from_trace(lake, other, file)
    return dataclasses.replace(read_ingest_report(lake, trace, file, is_new), moved_from=former)


def former_traces(lake: Lake, trace: str, file: str) -> tuple[str, ...]:
    """Return the other traces in which a file of this name has landed."""
    query = "select distinct trace from ingests where file = $file and trace <> $trace order by trace"
    return tuple(lake.sql(query, file=file, trace=trace)["trace"].to_pylist())


def is_ingested(lake: Lake, trace: str, file: str, sha256: Any) -> bool:
    """Return whether the file has landed as it is; IngestError if its content landed under another name."""
    query = "select file from ingests where trace = $trace and sha256 = $sha256"
    files = lake.sql(query, trace=trace, sha256=sha256)["file"].to_pylist()
    if files and file not in files:
        raise IngestError(
            f"{file} has the same content as {files[0]}, which is in the trace {trace} already. "
            "Remove it, or give it a mapping file with another trace."
        )
    return bool(files)


def trace_file_digest(landed: LandedFile, mapping: TraceMapping, catalogue: Catalogue) -> str:
    """Return the SHA-256 of all inputs of an ingest: the file's bytes, its SQL, mapping and catalogue."""
    with landed.path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    names = (*STAGING_MACROS, *STAGING_QUERIES[landed.format == ANSWERS_TABLE])
    for text in (landed.source.text, *(read_sql(f"staging/{name}.sql").text for name in names)):
        digest.update(text.encode())
    digest.update(mapping_bytes(mapping, catalogue))
    return digest.hexdigest()


def mapping_bytes(mapping: TraceMapping, catalogue: Catalogue) -> bytes:
    """Return the parts of mapping and catalogue that a trace's requests depend on, as bytes to digest."""
    deadlines = {name: tier.deadline_s for name, tier in catalogue.tiers.items()}
    return repr((mapping, list(catalogue.regions), list(catalogue.llms), deadlines)).encode()


def read_ingest_report(lake: Lake, trace: str, file: str, is_new: bool) -> IngestReport:
    """Read the report of an ingested file from the lake."""
    row = lake.sql("staging/report.sql", trace=trace, file=file).to_pylist()[0]
    days, reasons = row.pop("days") or [], row.pop("reasons") or []
    return IngestReport(
        **row, days=tuple(days), reasons={entry["reason"]: entry["rows"] for entry in reasons}, is_new=is_new
    )
