"""Columns that many tables and marts have: one definition each, for every header that does not have its own.

A header that describes such a column begins with the definition: "urgency class, or all".
"""

import re
from collections.abc import Mapping

SHARED_COLUMNS: Mapping[str, str] = {
    "trace": "name of the trace",
    "day": "UTC",
    "policy": "the scaling policy",
    "llm": "the served network",
    "region": "where the requests come from",
    "served_region": "where the instances are",
    "tier": "urgency class",
    "app": "the application",
    "role": "phase of the instances: whole, prefill or decode",
    "gpu": "the GPU type; with the name of its engine, if it has one: h100-80gb:fp8",
    "gpus_per_instance": "GPUs of one instance",
    "hour_start": "first instant of the hour",
    "bucket_start": "first instant of the bucket",
    "method": "the forecast method",
}

RENAMED_COLUMNS: Mapping[str, str] = {  # until 0.3: old names, and what to write instead
    "region": "Where the instances are is served_region; where the requests come from is region.",
}


def column_meaning(column: str, described: Mapping[str, str]) -> str | None:
    """Return what a column means, by its own header, else by the shared definition; None without either."""
    return described.get(column) or SHARED_COLUMNS.get(column)


def renamed_column_hint(message: str) -> str:
    """Return what to write for the unknown column of DuckDB's message, if it has a new name; else ""."""
    found = re.search(r'column "?(\w+)"?', message, re.IGNORECASE)
    return RENAMED_COLUMNS.get(found[1], "") if found else ""
