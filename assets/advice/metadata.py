"""What the asset of a page says of itself on Dagster's page."""

from typing import Any

import dagster as dg

from fleetcast.assets.pages.asset_metadata import Metadata


def describe_advice(trace: str, numbers: dict[str, Any]) -> Metadata:
    """The answer, and what it cannot say."""
    tomorrow, saving = numbers["tomorrow"] or {}, numbers["saving"] or {}
    return {
        "trace": trace,
        "answer": dg.MetadataValue.md("\n\n".join(numbers["answer"])),
        "cannot_say": dg.MetadataValue.md("\n\n".join(one["line"] for one in numbers["cannot"])),
        "tomorrow_usd": float(tomorrow.get("usd") or 0.0),
        "saved_usd": float(saving.get("usd") or 0.0),
    }
