"""All files of data/landing at once: a bad one is refused with its reason and keeps no other from landing."""

from collections.abc import Mapping
from typing import NamedTuple

from assets.ingest import IngestReport, ingest, landed_files
from assets.settings import Settings


class Landing(NamedTuple):
    """What became of the files: a report of each that landed, a line for each that was refused."""

    reports: list[IngestReport]
    refused: list[str]


def land_all(settings: Settings) -> Landing:
    """Ingest every trace file of data/landing."""
    landing = Landing([], [])
    for path in landed_files():
        try:
            landing.reports.append(ingest(path, settings.lake, settings.catalogue))
        except ValueError as error:  # IngestError, ConfigError and LakeError are written for a person
            landing.refused.append(str(error))
    return landing


def texts(report: IngestReport) -> Mapping[str, str]:
    """A report as a row of text, for the terminal and for Dagster's page."""
    days = (
        " .. ".join(str(day) for day in sorted({report.days[0], report.days[-1]}))
        if report.days
        else "no day"
    )
    notes = [f"{rows:,} x {reason}" for reason, rows in report.reasons.items()]
    if report.rows_out_of_order:
        notes.append(f"{report.rows_out_of_order:,} out of order, sorted")
    return {
        "file": report.file,
        "trace": report.trace,
        "format": report.format,
        "rows_in": f"{report.rows_in:,}",
        "rows_kept": f"{report.rows_kept:,}",
        "rows_quarantined": f"{report.rows_quarantined:,}",
        "days": days,
        "note": "; ".join(notes if report.is_new else ["known already", *notes]),
    }
