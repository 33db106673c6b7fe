"""The numbers of the day to come: the plan hour by hour, what is foreseen, and what to watch."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from fleetcast.assets.advice.advice_config import SizedDeployment
from fleetcast.assets.advice.short_trace import HourSize
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.demand.demand_history import unknown_history_sentence
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.studies.latency_error import usd_error_share
from fleetcast.models.aliases import Numbers

INTAKE_ROLES = ("whole", "prefill")  # roles that take what is asked


def next_day_section(settings: RunSettings, day: date, table: str = "day_ahead_plans") -> Numbers:
    """The plan of a day to come, hour by hour, with what is foreseen."""
    asked = {"trace": settings.trace, "day": day}
    rows = settings.lake.sql("reads/advice_plan.sql", table=table, **asked).to_pylist()
    method = settings.config.forecast.method
    foreseen = settings.lake.sql(
        "reads/advice_forecast.sql", method=method, tier=INTERACTIVE, **asked
    ).to_pylist()
    held = [{k: v for k, v in row.items() if k != "why"} for row in rows if row["instances"] > 0]
    told = {"day": day, "basis": "forecast", "method": method, "hours": held}
    changes = [f"{row['hour']:02d}:00 {row['why']}" for row in rows if row["why"]]
    summed = _plan_totals(settings, rows, _by_hour(rows, foreseen), changes)
    return {**told, **summed, "not_known": unknown_history_sentence(settings, day)}


def _plan_totals(
    settings: RunSettings, rows: Sequence[Numbers], by_hour: Sequence[Numbers], changes: Sequence[str] = ()
) -> Numbers:
    """A plan's rows by hour and in all."""
    return {
        "by_hour": by_hour,
        "changes": list(changes),
        "gpu_hours": sum(row["gpus"] for row in by_hour),
        "usd": sum(row["usd"] for row in by_hour),
        "usd_error_share": usd_error_share(settings, rows),
        "short_hours": sum(row["short_tokens_per_s"] > 0 for row in by_hour),
    }


def _by_hour(rows: Sequence[Numbers], foreseen: Sequence[Numbers]) -> list[Numbers]:
    """The plan summed by hour, and what is foreseen in GPUs too: tokens of several llms are not alike."""
    found = []
    for hour in range(HOURS_OF_DAY):
        own = [row for row in rows if row["hour"] == hour]
        known = [row for row in foreseen if row["hour"] == hour]
        first = [row for row in own if row["role"] in INTAKE_ROLES]
        told = _hour_totals(hour, own)
        for name in ("forecast", "p90"):
            rate = f"{name}_tokens_per_s"
            told[rate] = sum(row[rate] for row in known) if known else None
            told[f"{name}_gpus"] = _gpus_filled(known, rate, own) if known else None
        told["carries_tokens_per_s"] = sum(row["instances"] * row["capacity_tokens_per_s"] for row in first)
        told["short_tokens_per_s"] = sum(row["short_tokens_per_s"] or 0.0 for row in own)
        found.append(told)
    return found


def _hour_totals(hour: int, own: Sequence[Numbers]) -> Numbers:
    """What a plan holds in an hour."""
    return {
        "hour": hour,
        "instances": sum(row["instances"] for row in own),
        "gpus": sum(row["instances"] * row["gpus_per_instance"] for row in own),
        "usd": sum(row["usd"] for row in own),
    }


def _gpus_filled(known: Sequence[Numbers], rate: str, plan: Sequence[Numbers]) -> float:
    """How many GPUs the load of an hour fills, on the mean GPU of each llm and role in the plan."""
    total = 0.0
    for llm, role in dict.fromkeys((row["llm"], row["role"]) for row in plan):
        own = [row for row in plan if (row["llm"], row["role"]) == (llm, role)]
        held = [row for row in own if row["instances"]] or [{**row, "instances": 1} for row in own]
        gpus = sum(row["instances"] * row["gpus_per_instance"] for row in held)
        carried = sum(row["instances"] * row["capacity_tokens_per_s"] for row in held)
        total += sum(row[rate] for row in known if row["llm"] == llm) * gpus / carried
    return total


def sized_hours_section(
    settings: RunSettings, sizes: Sequence[HourSize], stands: Mapping[str, SizedDeployment]
) -> Numbers:
    """The same from a trace without history: hours that it has as they were, others as the largest."""
    hours = _sized_hours(settings, sizes, stands)
    by_hour = []
    for hour in range(HOURS_OF_DAY):
        own = [row for row in hours if row["hour"] == hour]
        rates = [row["demand_tokens_per_s"] for row in own if row["demand_tokens_per_s"] is not None]
        told = {**_hour_totals(hour, own), "forecast_tokens_per_s": sum(rates) if rates else None}
        told |= dict.fromkeys(("forecast_gpus", "p90_tokens_per_s", "p90_gpus", "carries_tokens_per_s"))
        by_hour.append({**told, "short_tokens_per_s": 0.0})
    day = max(one.hour_start for one in sizes).date() + timedelta(days=1)
    told = {"day": day, "basis": "trace", "method": None, "hours": hours}
    return {**told, **_plan_totals(settings, hours, by_hour), "not_known": ""}


def _sized_hours(
    settings: RunSettings, sizes: Sequence[HourSize], stands: Mapping[str, SizedDeployment]
) -> list[Numbers]:
    """A row per hour, region and llm that was asked in that hour of the day, or in one that is not known."""
    usd = {llm: _usd_per_hour(settings, stand) for llm, stand in stands.items()}
    most: dict[tuple[str, str], HourSize] = {}
    seen: dict[tuple[int, str, str], HourSize] = {}
    for one in sorted(sizes, key=lambda one: one.instances):  # the largest is kept
        most[one.region, one.llm] = seen[one.hour_start.hour, one.region, one.llm] = one
    rows, known = list[Numbers](), {one.hour_start.hour for one in sizes}
    for hour in range(HOURS_OF_DAY):
        for (region, llm), largest in most.items():
            size = seen.get((hour, region, llm)) if hour in known else largest
            if size is None:
                continue
            pool = stands[llm].deployment
            rows.append(
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
                    "requests": size.requests if hour in known else 0,
                }
            )
    return rows


def _usd_per_hour(settings: RunSettings, stand: SizedDeployment) -> float:
    return stand.deployment.gpus * settings.catalogue.gpus[stand.deployment.gpu].usd_per_hour


# --- what to watch -----------------------------------------------------------------------------------------


def watch_section(settings: RunSettings, tomorrow: Numbers | None, first: date, last: date) -> Numbers:
    """Loads above which a plan is too small, the hours that are least sure, the endpoints that weigh most."""
    rows = settings.lake.sql(
        "reads/advice_endpoints.sql", trace=settings.trace, first=first, last=last
    ).to_pylist()
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
        "surge_share": settings.config.replay.reactive_share,
        "surges": [] if tomorrow is None else _surges(tomorrow, settings.config.replay.reactive_share),
        "unsure_hours": [] if tomorrow is None else _least_certain_hours(tomorrow),
        "endpoints": endpoints,
    }


def _surges(tomorrow: Numbers, reactive_share: float) -> list[Numbers]:
    """For each llm its fullest hour, all regions together, and the load from which to pass the plan."""
    sums: dict[tuple[str, int], list[float]] = {}
    for row in tomorrow["hours"]:
        if row["capacity_tokens_per_s"] is not None and row["role"] in INTAKE_ROLES:
            both = sums.setdefault((row["llm"], row["hour"]), [0.0, 0.0])
            both[0] += row["demand_tokens_per_s"]
            both[1] += row["instances"] * row["capacity_tokens_per_s"]
    fullest: dict[str, Numbers] = {}
    for (llm, hour), (planned, carries) in sums.items():
        own = {
            "llm": llm,
            "hour": hour,
            "planned_tokens_per_s": planned,
            "carries_tokens_per_s": carries,
            "surge_tokens_per_s": carries * reactive_share,
            "fullest_share": planned / carries,
        }
        if llm not in fullest or own["fullest_share"] > fullest[llm]["fullest_share"]:
            fullest[llm] = own
    return sorted(fullest.values(), key=lambda one: -one["fullest_share"])


def _least_certain_hours(tomorrow: Numbers) -> list[Numbers]:
    """The three hours whose P90 lies farthest above what is expected."""
    rows = [row for row in tomorrow["by_hour"] if row["forecast_tokens_per_s"] and row["p90_tokens_per_s"]]
    ratio = {row["hour"]: row["p90_tokens_per_s"] / row["forecast_tokens_per_s"] for row in rows}
    return [{"hour": hour, "p90_ratio": ratio[hour]} for hour in sorted(ratio, key=lambda h: -ratio[h])[:3]]
