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
    stage_file,
    staging_sql,
    write_staged_days,
    write_verdicts,
)
from fleetcast.assets.traces.trace_formats import LandedFile, recognise_format
from fleetcast.assets.traces.trace_mapping import (
    TraceMapping,
    has_assumed_outputs,
    mapping_file,
    read_ingest_bounds,
    read_mapping,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.project_paths import HOME

LANDING_DIR = HOME / "data" / "landing"
NON_TRACE_SUFFIXES = {
    ".toml",
    ".md",
    ".part",
    ".tmp",
}  # mapping files, notes, files that are still being copied


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


def landed_files(folder: Path = LANDING_DIR) -> list[Path]:
    """The trace files and folders of metrics in the landing folder, by name."""
    files = (
        p for p in folder.glob("*") if (p.is_file() or is_metrics_folder(p)) and not p.name.startswith(".")
    )
    return sorted(p for p in files if p.suffix not in NON_TRACE_SUFFIXES)


def lone_mappings(folder: Path = LANDING_DIR) -> list[Path]:
    """The mapping files of the landing folder beside which no trace lies."""
    return sorted(set(folder.glob("*.toml")) - {mapping_file(path) for path in landed_files(folder)})


def ingest_file(
    path: Path, lake: Lake, catalogue: Catalogue, progress: Progress | None = None
) -> IngestReport:
    """Bring one file into the lake; the same content, mapping and catalogue a second time changes nothing.

    Raises
    ------
    IngestError
        The file is unknown, unreadable or empty: what it is, which formats there are, what to do.
        Its trace is made, not landed.
    ConfigError
        The mapping file beside it names what the catalogue does not have.
    """
    guard = IngestGuard(path, read_ingest_bounds(path), progress)
    landed = recognise_format(path, guard, has_assumed_outputs(path))
    mapping = read_mapping(path, landed.format, catalogue)
    has_answers = landed.format == ANSWERS_TABLE
    if not has_answers:
        require_landed_trace(lake, mapping.trace, path)
        require_single_source(lake, mapping.trace, path)
    variables = staging_variables(landed, mapping, catalogue)
    if is_ingested(lake, mapping.trace, path.name, variables["sha256"]):
        return read_ingest_report(lake, mapping.trace, path.name, is_new=False)
    with (
        one_line_errors(f"Ingesting {path.name}"),
        lake.scratch() as folder,
        lake.connect(folder / "stage.duckdb", query=staging_sql(landed.source)) as con,
    ):
        stage_file(con, landed, variables, folder / "members", guard)
        with guard.watch_query(con, "days"):
            if has_answers:
                kept = read_sql("staging/landed_answers.sql").text
                lake.copy(con, kept, ANSWERS_TABLE, file=path.name, trace=mapping.trace)
            else:
                write_verdicts(con, lake, mapping.trace)
                write_staged_days(con, lake, mapping.trace)
                write_tiers(lake, mapping.trace, catalogue)
            quarantine = read_sql("staging/quarantine.sql").text
            lake.copy(con, quarantine, "quarantine", file=path.name, trace=mapping.trace)
            record = read_sql("staging/ingest.sql").text
            lake.copy(con, record, "ingests", file=path.name, trace=mapping.trace)
    return read_ingest_report(lake, mapping.trace, path.name, is_new=True)


def staging_variables(landed: LandedFile, mapping: TraceMapping, catalogue: Catalogue) -> dict[str, Any]:
    """What sql/staging is told of a file."""
    return {
        **mapping.variables(),
        "file": landed.path.name,
        "format": landed.format,
        "clock": landed.source.fields.get("clock"),
        "has_given_ids": "ids" in landed.source.fields,
        "is_archive": landed.source.fields["format"] == "tar",
        "sha256": trace_file_digest(landed, mapping, catalogue),
        "regions": list(catalogue.regions),
        "llms": list(catalogue.llms),
        "tiers": list(catalogue.tiers),
        "deadlines_s": [tier.deadline_s for tier in catalogue.tiers.values()],
    }


def require_landed_trace(lake: Lake, trace: str, path: Path) -> None:
    """Refuse a file whose trace is made by a config or by `fleetcast generate`, which would overwrite it."""
    if lake.made_from(trace).is_file():
        raise IngestError(
            f"{path.name} would land in {trace!r}, a trace whose days are made, and be overwritten. "
            f"Give it another trace in {mapping_file(path).name}, "
            f"or remove that one: {removal_command(lake.root, f'*/trace={trace}')}"
        )


def require_single_source(lake: Lake, trace: str, path: Path) -> None:
    """Refuse logs and metrics in one trace, and metrics of two folders: they may know the same requests."""
    others = [file.stem for file in lake.files("ingests", trace=trace) if file.stem != path.name]
    if others and any(name.endswith(METRICS_SUFFIX) for name in (*others, path.name)):
        raise IngestError(
            f"{path.name} would land in the trace {trace!r} beside {others[0]}: requests that both know "
            f"would count twice. Give it another trace in {mapping_file(path).name}, or run: "
            f"fleetcast forget {others[0]}"
        )


def is_ingested(lake: Lake, trace: str, file: str, sha256: Any) -> bool:
    """Whether the file landed before as it is; the same content under another name is refused."""
    query = "select file from ingests where trace = $trace and sha256 = $sha256"
    files = lake.sql(query, trace=trace, sha256=sha256)["file"].to_pylist()
    if files and file not in files:
        raise IngestError(
            f"{file} has the same content as {files[0]}, which is in the trace {trace} already. "
            "Remove it, or give it a mapping file with another trace."
        )
    return bool(files)


def trace_file_digest(landed: LandedFile, mapping: TraceMapping, catalogue: Catalogue) -> str:
    """SHA-256 of all that the result depends on: the file's bytes, its reader, the mapping, the catalogue."""
    with landed.path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    asked = (*STAGING_MACROS, *STAGING_QUERIES[landed.format == ANSWERS_TABLE])
    for text in (landed.source.text, *(read_sql(f"staging/{name}.sql").text for name in asked)):
        digest.update(text.encode())
    digest.update(mapping_bytes(mapping, catalogue))
    return digest.hexdigest()


def mapping_bytes(mapping: TraceMapping, catalogue: Catalogue) -> bytes:
    """What of mapping and catalogue the requests of a trace depend on."""
    deadlines = {name: tier.deadline_s for name, tier in catalogue.tiers.items()}
    return repr((mapping, list(catalogue.regions), list(catalogue.llms), deadlines)).encode()


def read_ingest_report(lake: Lake, trace: str, file: str, is_new: bool) -> IngestReport:
    """What the lake says became of a file."""
    row = lake.sql("staging/report.sql", trace=trace, file=file).to_pylist()[0]
    days, reasons = row.pop("days") or [], row.pop("reasons") or []
    return IngestReport(
        **row,
        days=tuple(days),
        reasons={entry["reason"]: entry["rows"] for entry in reasons},
        is_new=is_new,
    )
