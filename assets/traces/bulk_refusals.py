"""Rows that were refused in bulk: a wrong column, unit or name spoils all of them, and one line mends it."""

import json
from collections.abc import Mapping
from pathlib import Path

from fleetcast.assets.traces.ingest import IngestReport
from fleetcast.assets.traces.trace_mapping import mapping_file

BULK_SHARE, BULK_ROWS = 0.1, 10  # of the rows of a file, and at least so many; or all of its rows
REMEDIES: Mapping[str, str] = {  # beginning of a reason -> what mends it
    "the timestamp is missing": "Name the column of times (--columns arrived_at=COLUMN), or write its times "
    "like 2025-02-01T00:00:05Z (ISO 8601), or say how they are written: "
    'clock = "%d/%m/%Y %H:%M:%S" in {mapping}',
    "the timestamp lies outside": 'Give the unit of its times (clock = "s", "ms", "us" or "ns") or their '
    "start in {mapping}",
    "the turn has neither": "Add a timestamp to the first turn of each session, and a delay to the others",
    "unknown region": "Map them (label_names = {{ {pairs} }} in {mapping}), or add {tables} to "
    "data/catalogue/regions.toml ([catalogue.regions] of a config does not count here) and ingest again",
    "unknown tier": "Map them (label_names = {{ {pairs} }} in {mapping}), or add {tables} to "
    "data/catalogue/tiers.toml ([catalogue.tiers] of a config does not count here) and ingest again",
    "unknown llm": "Read the column as names of the source (--columns source_llm=llm) and map them "
    "(llm_names = {{ {pairs} }} in {mapping}), or add {tables} to data/catalogue/llms.toml and ingest again",
    "input_tokens": "Name the column of input tokens: --columns input_tokens=COLUMN",
    "output_tokens": "Name the column of output tokens (--columns output_tokens=COLUMN), or set a mean: "
    "output_tokens = 200 in {mapping}",
    "request_id is missing": "Leave the ids out: --columns request_id=",
    "its request_id is used by": "If the column is no id of requests, leave it out: --columns request_id=",
    "another request has its request_id": "If ids begin again in each file, leave them out "
    "(--columns request_id=) or "
    'give the file a trace of its own (trace = "NAME" in {mapping})',
    "the row is a sum": "Each row must be one request: take the log of single requests. If that column "
    "counts something else, leave it out: --columns requests=",
    "deadline_s": "Give deadlines in seconds above 0, or none",
    "has the key": "Write each key once, for example: jq -c . {file}",
    "not a JSON object": "Write one JSON object a line, for example: jq -c . {file}",
}
NAMES_SHOWN = 3  # of the unknown ones, in a remedy
MAPPED_TO = {  # an example for each: the same for two would make them one
    "unknown region": ("east", "west", "central"),
    "unknown tier": ("iw_fast", "iw_normal", "niw"),
    "unknown llm": ("llama3.1-70b", "llama3.1-8b", "qwen3-32b"),
}
EXPECTED = ("failure:", "no request:", "its request_id is already", "the same request", "its query_id")


def bulk_remedy(report: IngestReport, folder: Path = Path("data/landing")) -> str | None:
    """Return a line with the number of rows that were refused in bulk and what mends it; None if few were.

    `folder` is that of the file and its mapping file. Failures, lines that are no requests, and requests that
    another file has, are no refusals.
    """
    refused = {why: rows for why, rows in report.reasons.items() if not why.startswith(EXPECTED)}
    rows = sum(refused.values())
    if not rows or (rows < report.rows_in and rows < max(BULK_ROWS, BULK_SHARE * report.rows_in)):
        return None
    why, most = max(refused.items(), key=lambda entry: entry[1])
    start = next((start for start in REMEDIES if why.startswith(start)), "")
    names = [json.dumps(other.removeprefix(f"{start} "), ensure_ascii=False)
             for other in refused if start and other.startswith(start)]  # fmt: skip
    shown, more = names[:NAMES_SHOWN], names[NAMES_SHOWN:] and ["..."]
    mapped = zip(shown, MAPPED_TO.get(start, ()), strict=False)
    remedy = REMEDIES.get(start, "See them: fleetcast sql \"from quarantine where file = '{file}'\"").format(
        mapping=folder / mapping_file(Path(report.file)),
        file=report.file,
        pairs=", ".join([*(f'{name} = "{to}"' for name, to in mapped), *more]),
        tables=", ".join([*(f"[{name}]" for name in shown), *more]),
    )
    also = "" if most == rows else f" ({most:,} rows)"
    reason = " ".join(why.split())
    return f"{report.file}: {rows:,} of {report.rows_in:,} rows are in quarantine: {reason}{also}. {remedy}."
