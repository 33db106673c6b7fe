"""Describe an advice page for Dagster's asset metadata."""

from typing import Any

import dagster as dg

from fleetcast.assets.pages.asset_metadata import Metadata


def describe_advice(trace: str, numbers: dict[str, Any]) -> Metadata:
    """Return the metadata of an advice page: the answer, its limitations, cost and saving."""
    tomorrow, saving = numbers["tomorrow"] or {}, numbers["saving"] or {}
    return {
        "trace": trace,
        "answer": dg.MetadataValue.md("\n\n".join(numbers["answer"])),
        "cannot_say": dg.MetadataValue.md("\n\n".join(row["line"] for row in numbers["cannot"])),
        "tomorrow_usd": float(tomorrow.get("usd") or 0.0),
        "saved_usd": float(saving.get("usd") or 0.0),
    }
