"""The numbers of a page, from what lies in the lake: the page shows these and nothing else.

Keys are told in README.md beside this file. A number that is not known is null, never nan.
"""

import math
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from fleetcast.assets.advice.imported_trace import ImportedTrace, count_shares
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.studies.level_search import describe_endpoint_levels as level_answers
from fleetcast.assets.studies.rent_answer import RentAnswer
from fleetcast.assets.studies.rent_query import describe_targets
from fleetcast.models.aliases import Numbers

ADVICE_VERSION = 1


def to_json_values(value: Any) -> Any:
    """The value as JSON has it: no nan and no infinity, instants and days as text."""
    if isinstance(value, Mapping):
        return {str(key): to_json_values(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_values(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.isoformat() if hasattr(value, "isoformat") else value


# --- the trace ---------------------------------------------------------------------------------------------


def trace_section(brought: ImportedTrace) -> Numbers:
    """What the trace is."""
    seconds = max((brought.last_at - brought.first_at).total_seconds(), 1.0)
    return {
        "name": brought.trace,
        "source": brought.source,
        "format": brought.format,
        "requests": brought.requests,
        "left_out": dict(brought.left_out),
        "first_at": brought.first_at,
        "last_at": brought.last_at,
        "hours": seconds / 3600,
        "requests_per_s": brought.requests / seconds,
        "mean_input_tokens": brought.input_tokens / brought.requests,
        "mean_output_tokens": brought.output_tokens / brought.requests,
        "llms": list(brought.llms),
        "named_llms": dict(brought.requests_by_source_llm),
        "unprofiled_llms": dict(brought.unprofiled),
        "as_llm": brought.as_llm,
        "regions": list(brought.regions),
        "tiers": list(brought.tiers),
        "lacks": sorted(brought.lacks),
        "assumed_output_tokens": brought.output_tokens_assumed,
    }


def history_section(settings: RunSettings, last: date) -> list[Numbers]:
    """Interactive input tokens/s by hour, of the days that a forecast may use."""
    rows = settings.lake.sql(
        "reads/advice_history.sql",
        trace=settings.trace,
        tiers=list(settings.catalogue.interactive_tiers),
        first=last - timedelta(days=settings.config.forecast.history_days - 1),
        last=last,
    ).to_pylist()
    return [{"at": row["hour_start"], "tokens_per_s": row["tokens_per_s"]} for row in rows]


# --- GPUs --------------------------------------------------------------------------------------------------


def gpu_section(answers: Mapping[str, RentAnswer]) -> list[Numbers]:
    """Which GPUs to rent for each llm, by kind of fleet, and what parting prefill from decode can save."""
    return [
        {
            "llm": llm,
            "requests_per_s": found.setting.per_s,
            "targets": describe_targets(found.setting.tier),
            "target_share": found.setting.tier.attainment_target_share,
            "disaggregation_saving_bound_share": found.bound.saving_share,
            "best": found.best,
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


def llm_section(brought: ImportedTrace, settings: RunSettings, first: date, last: date) -> list[Numbers]:
    """Which llms are asked for, by share of requests."""
    rows = settings.lake.sql(
        "reads/advice_endpoints.sql", trace=settings.trace, first=first, last=last
    ).to_pylist()
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["llm"]] = counts.get(row["llm"], 0) + row["requests"]
    return [{"llm": llm, "requests_share": share} for llm, share in count_shares(counts)]


LEVEL_TRIAL_ENDPOINTS_QUERY = """
select distinct llm, region from level_trials where trace = $trace and day = $day order by all
"""


def levels_section(settings: RunSettings, day: date) -> list[str]:
    """What the trials of levels answered, endpoint by endpoint."""
    rows = settings.lake.sql(LEVEL_TRIAL_ENDPOINTS_QUERY, trace=settings.trace, day=day).to_pylist()
    return [line for row in rows for line in level_answers(settings, day, row["llm"], row["region"])]
