"""Land all files of data/landing: a bad file is refused with its reason, and the others land."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.lake.duckdb_connection import one_line_message
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.bulk_refusals import bulk_remedy
from fleetcast.assets.traces.data_quality import assess_trace
from fleetcast.assets.traces.ingest import IngestError, IngestReport, ingest_file, landed_files, lone_mappings
from fleetcast.assets.traces.metrics_ingest import land_metrics
from fleetcast.assets.traces.prometheus_answers import METRICS_SUFFIX, is_metrics_folder
from fleetcast.assets.traces.staging import remove_from_trace, withdraw_file
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.toml_dataclasses import suggest_name

LANDING_COLUMNS = (
    *("file", "trace", "format", "rows_in", "rows_kept", "rows_quarantined", "days", "note"),
    *("columns", "mend"),  # which columns were read by their names; how to mend rows refused in bulk
)
SHOWN_REASONS = 5


class LandingOutcome(NamedTuple):
    """Reports of the files that landed, and a line for each file that was refused."""

    reports: list[IngestReport]
    refused: list[str]


def land_all_files(settings: RunSettings, progress: Progress | None = None) -> LandingOutcome:
    """Ingest every trace file of data/landing, whatever llms the config deploys.

    A file that lands for the first time is ingested again if a later file adds a tier verdict on its apps.
    """
    landing, catalogue = LandingOutcome([], []), load_catalogue()
    files_before, verdicts_before = _known_files(settings), settings.lake.count("tier_verdicts")
    paths = list[Path]()
    for mapping in lone_mappings():
        landing.refused.append(
            f"{mapping.name} describes no file: none next to it is called {mapping.stem} with the ending of "
            "a trace (.csv, .jsonl.gz, ...). Name it after its trace, or remove it."
        )
    for path in landed_files():
        try:
            landing.reports.append(land_file(path, settings.lake, catalogue, progress))
            paths.append(path)
        except ValueError as error:  # IngestError, ConfigError and LakeError are written for users
            landing.refused.append(escape_controls(str(error)))
        except Exception as error:  # whatever a file does to a reader, the others land
            reason = escape_controls(one_line_message(error))
            landing.refused.append(f"{path.name} cannot be read: {reason} Remove it from data/landing.")
    if settings.lake.count("tier_verdicts") > verdicts_before:
        without_verdict = _files_before_verdicts(settings) - files_before
        for number, (path, report) in enumerate(zip(paths, landing.reports, strict=True)):
            if (report.trace, report.file) in without_verdict:
                withdraw_file(settings.lake, report.trace, report.file)
                again = ingest_file(path, settings.lake, catalogue, progress)
                landing.reports[number] = dataclasses.replace(again, moved_from=report.moved_from)
    changed = {
        report.trace
        for report in landing.reports
        if report.is_new or not settings.lake.path("quality", trace=report.trace).is_file()
    }
    for trace in changed | {trace for report in landing.reports for trace in report.moved_from}:
        assess_trace(settings.lake, trace)
    return landing


def escape_controls(line: str) -> str:
    """Return a line that quotes a file, its control characters as escapes, like a name of a column."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in line
    )


def land_file(
    path: Path,
    lake: Lake,
    catalogue: Catalogue,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> IngestReport:
    """Ingest a trace file or a metrics folder; raises the errors of `ingest_file` and `land_metrics`.

    `columns` name columns of a log; a metrics folder has none.
    """
    if not path.name.isprintable() or any("\ud800" <= letter <= "\udfff" for letter in path.name):
        raise IngestError(f"The name of {path.name!a} is no printable UTF-8 text. Rename the file.")
    if path.is_dir() and not is_metrics_folder(path):
        raise IngestError(
            f"{path.name} is a folder. Name a trace file in it; saved answers of a Prometheus server belong "
            f"into a folder whose name ends in {METRICS_SUFFIX}."
        )
    if is_metrics_folder(path):
        return land_metrics(path, lake, catalogue, progress)
    return ingest_file(path, lake, catalogue, progress, columns)


def forget_file(settings: RunSettings, file: str) -> list[str]:
    """Remove a landed file from the lake and return its traces; IngestError if it never landed."""
    rows = settings.lake.sql("select distinct trace, file from ingests order by trace").to_pylist()
    traces = [row["trace"] for row in rows if row["file"] == file]
    if not traces:
        known = sorted({row["file"] for row in rows})
        raise IngestError(f"No file {file!r} has landed. {suggest_name(file, known)}")
    for trace in traces:
        remove_from_trace(settings.lake, trace, file)
        assess_trace(settings.lake, trace)
    settings.lake.publish()
    return traces


def report_texts(report: IngestReport) -> Mapping[str, str]:
    """Return a report as a row of texts, for the terminal and for Dagster's page."""
    days = " .. ".join(map(str, sorted({*report.days[:1], *report.days[-1:]}))) or "no day"
    notes = [f"{rows:,} x {reason}" for reason, rows in list(report.reasons.items())[:SHOWN_REASONS]]
    if len(report.reasons) > SHOWN_REASONS:
        notes.append(f"{len(report.reasons) - SHOWN_REASONS:,} more reasons in the table quarantine")
    if report.rows_out_of_order:
        notes.append(f"{report.rows_out_of_order:,} out of order, sorted")
    counts = (f"{n:,}" for n in (report.rows_in, report.rows_kept, report.rows_quarantined))
    if report.moved_from:
        notes.insert(0, f"moved here from the trace {', '.join(report.moved_from)}")
    note = "; ".join(notes if report.is_new else ["known already", *notes])
    texts = (
        *(report.file, report.trace, report.format, *counts, days, note),
        *(report.columns or "", bulk_remedy(report) or ""),
    )
    return dict(zip(LANDING_COLUMNS, texts, strict=True))


def _known_files(settings: RunSettings) -> set[tuple[str, str]]:
    """Return trace and name of every file that has landed."""
    rows = settings.lake.sql("select trace, file from ingests").to_pylist()
    return {(row["trace"], row["file"]) for row in rows}


def _files_before_verdicts(settings: RunSettings) -> set[tuple[str, str]]:
    """Return trace and name of files with requests of a random tier, though their app has a verdict."""
    rows = settings.lake.sql(
        "select distinct requests.trace, source from requests inner join tier_verdicts using (trace, app) "
        "where tier_source = 'dealt' and tier_verdicts.tier is not null"
    ).to_pylist()
    return {(row["trace"], row["source"]) for row in rows}
