"""Compute and assemble the sections of a page; the page shows these numbers and no others.

README.md next to this file documents the keys. An unknown number is null, never nan.
"""

import math
from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from fleetcast.assets.advice import limitations, next_day_plan, policy_comparison
from fleetcast.assets.advice.imported_trace import ImportedTrace, count_shares
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.studies.rent_answer import RentAnswer
from fleetcast.assets.studies.rent_query import describe_targets
from fleetcast.models.aliases import Numbers
from fleetcast.models.world.fleet_config import gpu_type
from fleetcast.models.world.prices import PriceList

ADVICE_VERSION = 3
SHOWN_FIELDS = (  # of ImportedTrace, by the same names
    *("source", "format", "requests", "left_out", "first_at", "last_at"),
    *("llms", "as_llm", "regions", "tiers"),
)


def to_json_values(value: Any) -> Any:
    """Return the value as JSON types: null for nan and infinity, instants and days as text."""
    if isinstance(value, Mapping):
        return {str(key): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_values(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.isoformat() if hasattr(value, "isoformat") else value


# --- the trace ---------------------------------------------------------------------------------------------


def trace_section(imported: ImportedTrace) -> Numbers:
    """Return the section of the trace."""
    seconds = max((imported.last_at - imported.first_at).total_seconds(), 1.0)
    return {
        **{name: getattr(imported, name) for name in SHOWN_FIELDS},
        "name": imported.trace,
        "hours": seconds / 3600,
        "requests_per_s": imported.requests / seconds,
        "mean_input_tokens": imported.input_tokens / imported.requests,
        "mean_output_tokens": imported.output_tokens / imported.requests,
        "named_llms": imported.requests_by_source_llm,
        "unprofiled_llms": imported.unprofiled,
        "lacks": sorted(imported.missing_keys),
        "assumed_output_tokens": imported.output_tokens_assumed,
    }


def history_section(settings: RunSettings, last: date) -> list[Numbers]:
    """Return interactive input tokens/s by hour, of the days that a forecast may use."""
    rows = settings.lake.sql(
        "reads/advice_history.sql",
        trace=settings.trace,
        tiers=list(settings.catalogue.interactive_tiers),
        first=last - timedelta(days=settings.config.forecast.history_days - 1),
        last=last,
    ).to_pylist()
    return [{"at": row["hour_start"], "tokens_per_s": row["tokens_per_s"]} for row in rows]


def prices_section(numbers: Numbers, provider: str, prices: PriceList) -> Numbers:
    """Return the price list in use: provider, date, source, USD per GPU-hour of every type on the page."""
    used = [gpu_type(row["gpu"]) for row in (numbers["tomorrow"] or {"hours": []})["hours"]]
    used += [gpu for row in numbers["gpus"] for fleet in row["fleets"] for gpu in fleet["gpus"]]
    types = [gpu for gpu in dict.fromkeys(used) if gpu in prices.on_demand]
    return {
        "provider": provider,
        "date": prices.date,
        "source": prices.source,
        "usd_per_gpu_hour": {gpu: prices.on_demand[gpu] for gpu in types},
        "spot_usd_per_gpu_hour": {gpu: prices.spot.get(gpu) for gpu in types},
        "reserved_usd_per_gpu_hour": {gpu: prices.reserved.get(gpu) for gpu in types},
    }


# --- GPUs --------------------------------------------------------------------------------------------------


def gpu_section(answers: Mapping[str, RentAnswer]) -> list[Numbers]:
    """Return the fleets to rent for each llm, by kind, and the bound on the saving of disaggregation."""
    return [
        {
            "llm": llm,
            "requests_per_s": found.setting.per_s,
            "targets": describe_targets(found.setting.tier),
            "target_share": found.setting.tier.attainment_target_share,
            "disaggregation_saving_bound_share": found.bound.saving_share,
            "best": found.best,
            "is_on_target": found.is_on_target,
            "is_disaggregated": found.fleets[found.best].is_disaggregated,
            "fleets": [
                {
                    "kind": kind,
                    "rented": " + ".join(f"{count} x ({combo.title})" for combo, count in fleet.held),
                    "gpus": fleet.gpus,
                    "usd_per_hour": fleet.usd_per_hour,
                    "is_disaggregated": fleet.is_disaggregated,
                    **fleet.met._asdict(),
                }
                for kind, fleet in found.fleets.items()
            ],
        }
        for llm, found in answers.items()
    ]


def llm_section(settings: RunSettings, first: date, last: date) -> list[Numbers]:
    """Return the llms by their share of requests."""
    rows = settings.lake.sql("reads/advice_endpoints.sql", trace=settings.trace, first=first, last=last)
    counts = Counter[str]()
    for row in rows.to_pylist():
        counts[row["llm"]] += row["requests"]
    return [{"llm": llm, "requests_share": share} for llm, share in count_shares(counts)]


# --- all of them ------------------------------------------------------------------------------------------


def empty_sections(imported: ImportedTrace) -> Numbers:
    """Return the numbers of a page with only the section of the trace filled in."""
    return {
        "version": ADVICE_VERSION,
        "answer": [],
        "trace": trace_section(imported),
        "history": [],
        "tomorrow": None,
        "promise": None,
        "choice": None,
        "grades": [],
        "reliability": [],
        "split": {},
        "prices": None,
        "gpus": [],
        "levels": [],
        "llms": [],
        "board": None,
        "saving": None,
        "certainty": None,
        "profiles": [],
        "watch": None,
        "cannot": [],
        "commands": {},
    }


def add_derived_sections(
    settings: RunSettings, found: Numbers, imported: ImportedTrace, last: date | None, today: Numbers | None
) -> None:
    """Add the sections derived from plan and policies: the saving, its certainty, what to watch."""
    first, until = imported.first_day, imported.last_at.date()
    if last is not None and found["board"] is not None:
        found["saving"] = policy_comparison.saving_section(last, found, today)
    elif found["tomorrow"] is not None:
        found["saving"] = policy_comparison.short_trace_saving_section(found["tomorrow"], today)
    found["certainty"] = policy_comparison.certainty_section(settings, last, found["board"])
    found["profiles"] = limitations.latency_profiles_section(settings)
    found["llms"] = llm_section(settings, first, until)
    found["watch"] = next_day_plan.watch_section(settings, found["tomorrow"], first, until)
