"""The numbers of a page, from what lies in the lake: the page shows these and nothing else.

Keys are told in README.md beside this file. A number that is not known is null, never nan.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from assets.advice.brief import Sized
from assets.advice.brought import Brought, shares
from assets.advice.world import Stand
from assets.demand.demand import INTERACTIVE
from assets.demand.history import not_known
from assets.lake.settings import HOURS, Settings
from assets.studies.latency_error import usd_error_share
from assets.studies.rent_asked import targets_said
from assets.studies.renting import Answer

VERSION = 1
Numbers = dict[str, Any]
ADVISED = (
    "day_ahead",
    "corrected",
    "lt_ua",
)  # whose day is held against today's, the first that was replayed
PLAINEST = "static"
FIRST = ("whole", "prefill")  # roles that take what is asked
PLAN = """
select
    hour(hour_start)::bigint as hour, region, llm, role, gpu, gpus_per_instance, instances,
    demand_tokens_per_s, capacity_tokens_per_s, short_tokens_per_s, usd, why
from {table}
where trace = $trace and day = $day and policy = $policy
order by hour_start, region, llm, role, gpu
"""
HISTORY = """
select date_trunc('hour', bucket_start) as hour_start, sum(input_tokens)::double / 3600 as tokens_per_s
from demand
where trace = $trace and list_contains($tiers, tier) and day between $first and $last
group by all
order by all
"""
FORESEEN = """
with buckets as (
    select bucket_start, llm, region, forecast_per_s, peak_p90_per_s
    from day_ahead_forecasts
    where trace = $trace and day = $day and method = $method and tier = $tier and measure = 'input_tokens'
),

endpoints as (
    select
        hour(bucket_start)::bigint as hour, llm, region,
        avg(forecast_per_s) as forecast_tokens_per_s, max(peak_p90_per_s) as p90_tokens_per_s
    from buckets
    group by all
)

select hour, sum(forecast_tokens_per_s) as forecast_tokens_per_s, sum(p90_tokens_per_s) as p90_tokens_per_s
from endpoints
group by hour
order by hour
"""
COVERAGE = """
select
    sum(hours)::bigint as hours,
    sum(hours * wape_share) / sum(hours) as wape_share,
    sum(hours * peak_below_p90_share) / sum(hours) as peak_below_p90_share
from forecast_coverage
where trace = $trace and measure = 'input_tokens' and tier = $tier and method = $method and made = 'day_ahead'
"""
BOARD = """
with attained as (
    select
        policy,
        attainment_share(
            sum(met) filter (where not may_wait(is_held, tier)),
            sum(requests) filter (where not may_wait(is_held, tier)),
            sum(pending) filter (where not may_wait(is_held, tier))
        ) as in_time_share
    from scorecard
    where trace = $trace and day = $day
    group by policy
),

spent as (
    select policy, sum(usd) as usd, sum(paid_gpu_hours) as gpu_hours
    from fleet_by_hour
    where trace = $trace and day = $day
    group by policy
)

select * from attained inner join spent using (policy)
"""
BY_TIER = """
select tier, attainment_share(sum(met), sum(requests), sum(pending)) as attainment_share
from scorecard
where trace = $trace and day = $day and policy = $policy
group by tier
order by tier
"""
DIFFERENCE = """
select * from scoreboard_differences
where trace = $trace and day = $day and policy = $policy and against = $against and figure = 'usd'
"""
ENDPOINTS = """
select llm, region, sum(requests)::bigint as requests, sum(input_tokens)::double as input_tokens
from demand
where trace = $trace and day between $first and $last
group by all
order by input_tokens desc
"""


def clean(value: Any) -> Any:
    """The value as JSON has it: no nan and no infinity, instants and days as text."""
    if isinstance(value, Mapping):
        return {str(key): clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.isoformat() if hasattr(value, "isoformat") else value


# --- the trace ---------------------------------------------------------------------------------------------


def of_trace(brought: Brought) -> Numbers:
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
        "named_llms": dict(brought.named),
        "unprofiled_llms": dict(brought.unprofiled),
        "as_llm": brought.as_llm,
        "regions": list(brought.regions),
        "tiers": list(brought.tiers),
        "lacks": sorted(brought.lacks),
    }


def of_history(settings: Settings, last: date) -> list[Numbers]:
    """Interactive input tokens/s by hour, of the days that a forecast may use."""
    rows = settings.lake.sql(
        HISTORY,
        trace=settings.trace,
        tiers=list(settings.catalogue.interactive_tiers),
        first=last - timedelta(days=settings.config.forecast.history_days - 1),
        last=last,
    ).to_pylist()
    return [{"at": row["hour_start"], "tokens_per_s": row["tokens_per_s"]} for row in rows]


# --- tomorrow ----------------------------------------------------------------------------------------------


def of_tomorrow(settings: Settings, day: date, table: str = "day_ahead_plans") -> Numbers:
    """The plan of a day to come, hour by hour, with what is foreseen."""
    asked = {"trace": settings.trace, "day": day}
    rows = settings.lake.sql(PLAN.format(table=table), policy="day_ahead", **asked).to_pylist()
    method = settings.config.forecast.method
    foreseen = settings.lake.sql(FORESEEN, method=method, tier=INTERACTIVE, **asked).to_pylist()
    held = [{k: v for k, v in row.items() if k != "why"} for row in rows if row["instances"] > 0]
    by_hour = _by_hour(rows, {row["hour"]: row for row in foreseen})
    return {
        "day": day,
        "basis": "forecast",
        "method": method,
        "hours": held,
        "by_hour": by_hour,
        "changes": [f"{row['hour']:02d}:00 {row['why']}" for row in rows if row["why"]],
        "gpu_hours": sum(row["gpus"] for row in by_hour),
        "usd": sum(row["usd"] for row in by_hour),
        "usd_error_share": usd_error_share(settings, rows),
        "short_hours": sum(row["short_tokens_per_s"] > 0 for row in by_hour),
        "not_known": not_known(settings, day),
    }


def _by_hour(rows: Sequence[Numbers], foreseen: Mapping[int, Numbers]) -> list[Numbers]:
    found = []
    for hour in range(HOURS):
        own = [row for row in rows if row["hour"] == hour]
        first = [row for row in own if row["role"] in FIRST]
        known = foreseen.get(hour, {})
        found.append(
            {
                "hour": hour,
                "instances": sum(row["instances"] for row in own),
                "gpus": sum(row["instances"] * row["gpus_per_instance"] for row in own),
                "usd": sum(row["usd"] for row in own),
                "forecast_tokens_per_s": known.get("forecast_tokens_per_s"),
                "p90_tokens_per_s": known.get("p90_tokens_per_s"),
                "carries_tokens_per_s": sum(r["instances"] * r["capacity_tokens_per_s"] for r in first),
                "short_tokens_per_s": sum(row["short_tokens_per_s"] or 0.0 for row in own),
            }
        )
    return found


def of_sizes(settings: Settings, sizes: Sequence[Sized], stands: Mapping[str, Stand]) -> Numbers:
    """The same from a trace without history: hours that it has as they were, others as the largest."""
    usd = {llm: _usd_per_hour(settings, stand) for llm, stand in stands.items()}
    most: dict[tuple[str, str], Sized] = {}
    seen: dict[tuple[int, str, str], Sized] = {}
    for one in sorted(sizes, key=lambda one: one.instances):  # the largest is kept
        most[one.region, one.llm] = seen[one.hour_start.hour, one.region, one.llm] = one
    hours, known = list[Numbers](), {one.hour_start.hour for one in sizes}
    for hour in range(HOURS):
        for (region, llm), largest in most.items():
            size = seen.get((hour, region, llm)) if hour in known else largest
            if size is None:
                continue
            pool = stands[llm].deployment
            hours.append(
                {
                    "hour": hour,
                    "region": region,
                    "llm": llm,
                    "role": "whole",
                    "gpu": pool.gpu,
                    "gpus_per_instance": pool.gpus,
                    "instances": size.instances,
                    "demand_tokens_per_s": size.tokens_per_s if hour in known else None,
                    "capacity_tokens_per_s": None,
                    "short_tokens_per_s": 0.0,
                    "usd": size.instances * usd[llm],
                    "attainment_share": size.attainment_share,
                }
            )
    by_hour = []
    for hour in range(HOURS):
        own = [row for row in hours if row["hour"] == hour]
        rates = [row["demand_tokens_per_s"] for row in own if row["demand_tokens_per_s"] is not None]
        by_hour.append(
            {
                "hour": hour,
                "instances": sum(row["instances"] for row in own),
                "gpus": sum(row["instances"] * row["gpus_per_instance"] for row in own),
                "usd": sum(row["usd"] for row in own),
                "forecast_tokens_per_s": sum(rates) if rates else None,
                "p90_tokens_per_s": None,
                "carries_tokens_per_s": None,
                "short_tokens_per_s": 0.0,
            }
        )
    rows = [{"llm": row["llm"], "usd": row["usd"]} for row in hours]
    return {
        "day": max(one.hour_start for one in sizes).date() + timedelta(days=1),
        "basis": "trace",
        "method": None,
        "hours": hours,
        "by_hour": by_hour,
        "changes": [],
        "gpu_hours": sum(row["gpus"] for row in by_hour),
        "usd": sum(row["usd"] for row in by_hour),
        "usd_error_share": usd_error_share(settings, rows),
        "short_hours": 0,
        "not_known": "",
    }


def _usd_per_hour(settings: Settings, stand: Stand) -> float:
    return stand.deployment.gpus * settings.catalogue.gpus[stand.deployment.gpu].usd_per_hour


# --- GPUs --------------------------------------------------------------------------------------------------


def of_gpus(answers: Mapping[str, Answer]) -> list[Numbers]:
    """Which GPUs to rent for each llm, by kind of fleet, and what parting prefill from decode can save."""
    return [
        {
            "llm": llm,
            "requests_per_s": found.setting.per_s,
            "targets": targets_said(found.setting.tier),
            "target_share": found.setting.tier.attainment_target_share,
            "apart_saving_bound_share": found.bound.saving_share,
            "best": found.best,
            "is_apart": found.fleets[found.best].is_apart,
            "fleets": [
                {
                    "kind": kind,
                    "rented": " + ".join(f"{count} x ({combo.title})" for combo, count in fleet.held),
                    "gpus": fleet.gpus,
                    "usd_per_hour": fleet.usd_per_hour,
                    "is_apart": fleet.is_apart,
                    **fleet.met._asdict(),
                }
                for kind, fleet in found.fleets.items()
            ],
        }
        for llm, found in answers.items()
    ]


# --- what it saves, and how sure it is ---------------------------------------------------------------------


def of_board(settings: Settings, day: date) -> Numbers:
    """The last known day under each policy, planned from what came before it."""
    board = {
        row["policy"]: row for row in settings.lake.sql(BOARD, trace=settings.trace, day=day).to_pylist()
    }
    order = [name for name in settings.config.replay.policies if name in board]
    advised = next((name for name in ADVISED if name in board), None)
    rows = [
        {
            "policy": name,
            "what": settings.config.rules[name].what,
            "usd": board[name]["usd"],
            "gpu_hours": board[name]["gpu_hours"],
            "in_time_share": board[name]["in_time_share"],
        }
        for name in order
    ]
    return {"day": day, "advised": advised, "policies": rows}


def of_saving(settings: Settings, day: date, board: Numbers, today: Numbers | None) -> Numbers | None:
    """What the advised policy would have saved on the last known day against what runs today."""
    own = {row["policy"]: row for row in board["policies"]}
    if board["advised"] is None or (today is None and PLAINEST not in own):
        return None
    ours, theirs = (
        own[board["advised"]],
        today or {**own[PLAINEST], "fleet": "one fleet for the peak, all day"},
    )
    saving = {
        "day": day,
        "today": theirs["fleet"],
        "is_told": today is not None,
        "today_usd": theirs["usd"],
        "advised_usd": ours["usd"],
        "usd": theirs["usd"] - ours["usd"],
        "share": 1 - ours["usd"] / theirs["usd"] if theirs["usd"] else None,
        "today_in_time_share": theirs["in_time_share"],
        "advised_in_time_share": ours["in_time_share"],
        "low_usd": None,
        "high_usd": None,
        "is_beyond_error": None,
    }
    if today is None:
        asked = {"policy": PLAINEST, "against": board["advised"]}
        for row in settings.lake.sql(DIFFERENCE, trace=settings.trace, day=day, **asked).to_pylist():
            if math.isclose(row["difference"], saving["usd"], abs_tol=1e-6):  # draws of this very board
                saving |= {
                    "low_usd": row["low"],
                    "high_usd": row["high"],
                    "is_beyond_error": row["is_carried"],
                }
    return saving


def of_certainty(settings: Settings, day: date | None, board: Numbers | None) -> Numbers:
    """How near forecasts made at midnight were, and what the advised policy attained, by tier."""
    asked = {"trace": settings.trace, "tier": INTERACTIVE, "method": settings.config.forecast.method}
    [forecast] = settings.lake.sql(COVERAGE, **asked).to_pylist()
    tiers: list[Numbers] = []
    if day is not None and board is not None and board["advised"] is not None:
        targets = {name: tier.attainment_target_share for name, tier in settings.catalogue.tiers.items()}
        rows = settings.lake.sql(BY_TIER, trace=settings.trace, day=day, policy=board["advised"]).to_pylist()
        tiers = [
            {
                "tier": row["tier"],
                "in_time_share": row["attainment_share"],
                "target_share": targets[row["tier"]],
            }
            for row in rows
        ]
    return {
        "forecast_hours": forecast["hours"] or 0,
        "forecast_wape_share": forecast["wape_share"],
        "forecast_peak_below_p90_share": forecast["peak_below_p90_share"],
        "tiers": tiers,
    }


# --- what to watch -----------------------------------------------------------------------------------------


def of_watch(settings: Settings, tomorrow: Numbers | None, first: date, last: date) -> Numbers:
    """Loads above which a plan is too small, the hours that are least sure, the endpoints that weigh most."""
    rows = settings.lake.sql(ENDPOINTS, trace=settings.trace, first=first, last=last).to_pylist()
    total = sum(row["input_tokens"] for row in rows) or 1.0
    known = settings.lake.sql(
        "select llm, region, dispersion from characterisation "
        "where trace = $trace and tier = 'all' and app = 'all' and llm <> 'all' and region <> 'all'",
        trace=settings.trace,
    ).to_pylist()
    bursty = {(row["llm"], row["region"]): row["dispersion"] for row in known}
    endpoints = [
        {
            "llm": row["llm"],
            "region": row["region"],
            "tokens_share": row["input_tokens"] / total,
            "dispersion": bursty.get((row["llm"], row["region"])),
        }
        for row in rows
    ]
    return {
        "surge_share": settings.config.replay.reflex_share,
        "surges": [] if tomorrow is None else _surges(tomorrow, settings.config.replay.reflex_share),
        "unsure_hours": [] if tomorrow is None else _unsure(tomorrow),
        "endpoints": endpoints,
    }


def _surges(tomorrow: Numbers, reflex_share: float) -> list[Numbers]:
    """For each endpoint its fullest hour, and the load from which the reflex passes the plan."""
    fullest: dict[tuple[str, str], Numbers] = {}
    for row in tomorrow["hours"]:
        if row["capacity_tokens_per_s"] is None or row["role"] not in FIRST:
            continue
        carries = row["instances"] * row["capacity_tokens_per_s"]
        own = {
            "llm": row["llm"],
            "region": row["region"],
            "hour": row["hour"],
            "planned_tokens_per_s": row["demand_tokens_per_s"],
            "carries_tokens_per_s": carries,
            "surge_tokens_per_s": carries * reflex_share,
            "fullest_share": row["demand_tokens_per_s"] / carries,
        }
        key = row["llm"], row["region"]
        if key not in fullest or own["fullest_share"] > fullest[key]["fullest_share"]:
            fullest[key] = own
    return sorted(fullest.values(), key=lambda one: -one["fullest_share"])


def _unsure(tomorrow: Numbers) -> list[Numbers]:
    """The three hours whose P90 lies farthest above what is expected."""
    rows = [row for row in tomorrow["by_hour"] if row["forecast_tokens_per_s"] and row["p90_tokens_per_s"]]
    ratio = {row["hour"]: row["p90_tokens_per_s"] / row["forecast_tokens_per_s"] for row in rows}
    return [{"hour": hour, "p90_ratio": ratio[hour]} for hour in sorted(ratio, key=lambda h: -ratio[h])[:3]]


def of_llms(brought: Brought, settings: Settings, first: date, last: date) -> list[Numbers]:
    """Which llms are asked for, by share of requests."""
    rows = settings.lake.sql(ENDPOINTS, trace=settings.trace, first=first, last=last).to_pylist()
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["llm"]] = counts.get(row["llm"], 0) + row["requests"]
    return [{"llm": llm, "requests_share": share} for llm, share in shares(counts)]
