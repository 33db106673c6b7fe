"""Rows that were refused in bulk: a wrong column, unit or name spoils all of them, and one line mends it."""

from collections.abc import Mapping

from fleetcast.assets.traces.ingest import IngestReport

BULK_SHARE, BULK_ROWS = 0.1, 10  # of the rows of a file, and at least so many; or all of its rows
REMEDIES: Mapping[str, str] = {  # beginning of a reason -> what mends it
    "the timestamp is missing": "Name the column of times (--columns arrived_at=COLUMN), or write its times "
    "like 2025-02-01T00:00:05Z (ISO 8601)",
    "the timestamp lies outside": 'Give the unit of its times (clock = "s", "ms", "us" or "ns") or their '
    "start in {mapping}",
    "the turn has neither": "Add a timestamp to the first turn of each session, and a delay to the others",
    "unknown region": 'Map them (label_names = {{ "{name}" = "east" }} in {mapping}), or add ["{name}"] to '
    "data/catalogue/regions.toml ([catalogue.regions] of a config does not count here) and ingest again",
    "unknown tier": 'Map them (label_names = {{ "{name}" = "iw_fast" }} in {mapping}), or add ["{name}"] to '
    "data/catalogue/tiers.toml ([catalogue.tiers] of a config does not count here) and ingest again",
    "unknown llm": "Read the column as names of the source (--columns source_llm=llm), and map them: "
    'llm_names = {{ "{name}" = "llama3.1-70b" }} in {mapping}',
    "input_tokens": "Name the column of input tokens: --columns input_tokens=COLUMN",
    "output_tokens": "Name the column of output tokens (--columns output_tokens=COLUMN), or set a mean: "
    "output_tokens = 200 in {mapping}",
    "request_id is missing": "Leave the ids out: --columns request_id=",
    "its request_id is used by": "If the column is no id of requests, leave it out: --columns request_id=",
    "another request has its request_id": "If ids begin again in each file, leave them out "
    "(--columns request_id=) or "
    'give the file a trace of its own (trace = "NAME" in {mapping})',
    "deadline_s": "Give deadlines in seconds above 0, or none",
    "has the key": "Write each key once, for example: jq -c . {file}",
    "not a JSON object": "Write one JSON object a line, for example: jq -c . {file}",
}
EXPECTED = ("failure:", "no request:", "its request_id is already", "the same request", "its query_id")


def bulk_remedy(report: IngestReport) -> str | None:
    """Return a line with the number of rows that were refused in bulk and what mends it; None if few were.

    Failures, lines that are no requests, and requests that another file has, are no refusals.
    """
    refused = {why: rows for why, rows in report.reasons.items() if not why.startswith(EXPECTED)}
    rows = sum(refused.values())
    if not rows or (rows < report.rows_in and rows < max(BULK_ROWS, BULK_SHARE * report.rows_in)):
        return None
    why, most = max(refused.items(), key=lambda entry: entry[1])
    found = next((remedy for start, remedy in REMEDIES.items() if why.startswith(start)), None)
    remedy = (found or "See them: fleetcast sql \"from quarantine where file = '{file}'\"").format(
        mapping=f"{report.file.split('.')[0]}.toml next to the file",
        file=report.file,
        name=" ".join(why.split()[2:]),
    )
    also = "" if most == rows else f" ({most:,} rows)"
    return f"{report.file}: {rows:,} of {report.rows_in:,} rows are in quarantine: {why}{also}. {remedy}."
