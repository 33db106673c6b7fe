"""Describe an advice page for Dagster's asset metadata."""

from typing import Any

import dagster as dg

from fleetcast.assets.advice.advised_days import RELIABILITY_QUERY
from fleetcast.assets.advice.phrases import reliability_sentence
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import Metadata, markdown_table


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


def describe_grade(lake: Lake, trace: str, graded: dict[str, Any] | None) -> Metadata:
    """Return what came of the advice for a day and how reliable advice was so far; {} without advice."""
    if graded is None:
        return {}
    table = lake.sql(RELIABILITY_QUERY, trace=trace)
    tiers = lake.sql("from graded_tiers where trace = $trace and day = $day", trace=trace, day=graded["day"])
    return {
        **{
            f"advice_{row['tier']}_kept": float(row["is_interval_kept"])
            for row in tiers.to_pylist()
            if row["attainment_share"] is not None
        },
        "advice_kept": float(graded["is_on_target"]),  # numbers, because Dagster plots no bool
        "advice_inside": float(graded["is_inside"]),
        "advice_in_time_share": float(graded["in_time_share"]),
        "advice_usd": float(graded["usd"]),
        "advice_so_far": reliability_sentence(table.to_pylist()),
        "reliability": dg.MetadataValue.md(markdown_table(table)),
    }
