"""Compute the sections of the next day: the plan hour by hour, the forecast, and what to watch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import pandas as pd

from fleetcast.assets.advice.advice_config import SizedDeployment
from fleetcast.assets.advice.short_trace import HourSize
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.demand.demand_history import unknown_history_sentence
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.studies.latency_error import usd_error_share
from fleetcast.models.aliases import Numbers, Row

INTAKE_ROLES = ("whole", "prefill")  # roles that take new requests


def next_day_section(settings: RunSettings, day: date, table: str = "day_ahead_plans") -> Numbers:
    """Return the plan of a coming day, hour by hour, with the forecast."""
    scope = {"trace": settings.trace, "day": day}
    rows = settings.lake.sql("reads/advice_plan.sql", table=table, **scope).to_pylist()
    method = settings.config.forecast.method
    forecast = settings.lake.sql(
        "reads/advice_forecast.sql", method=method, tier=INTERACTIVE, **scope
    ).to_pylist()
    hours = [{k: v for k, v in row.items() if k != "why"} for row in rows if row["instances"] > 0]
    changes = [f"{row['hour']:02d}:00 {row['why']}" for row in rows if row["why"]]
    return {
        "day": day,
        "basis": "forecast",
        "method": method,
        "hours": hours,
        **_plan_totals(settings, rows, _by_hour(rows, forecast), changes),
        "target_share": None,
        "least_in_time_share": None,
        "least_instances": None,
        "missed_hours": 0,
        "sized_hours": 0,
        "remedy": "",
        "not_known": unknown_history_sentence(settings, day),
    }


def _plan_totals(
    settings: RunSettings, rows: Sequence[Numbers], by_hour: Sequence[Numbers], changes: Sequence[str] = ()
) -> Numbers:
    """Return a plan by hour, with its changes and totals."""
    return {
        "by_hour": by_hour,
        "changes": list(changes),
        "gpu_hours": sum(row["gpus"] for row in by_hour),
        "usd": sum(row["usd"] for row in by_hour),
        "usd_error_share": whole_instance_error_share(settings, rows),
        "short_hours": sum(row["short_tokens_per_s"] > 0 for row in by_hour),
    }


def whole_instance_error_share(settings: RunSettings, rows: Sequence[Row]) -> float | None:
    """Return `usd_error_share`; None where it moves no endpoint by a whole instance: there are no others."""
    share = usd_error_share(settings, rows)
    endpoints: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        place = (row.get("hour_start", row.get("hour")), row.get("served_region", row.get("region")))
        endpoints.setdefault((*place, row["llm"], row.get("role")), []).append(row)
    return share if any(_moves_an_instance(pools, share) for pools in endpoints.values()) else None


def _moves_an_instance(pools: Sequence[Row], share: float) -> bool:
    """Whether the pools of an endpoint need an instance more or fewer if the load of one is off by `share`.

    `pools`: rows of a plan for one hour, llm, role and region, which share its demand. Without a demand or a
    capacity in them the instances alone count.
    """
    demand = pools[0].get("demand_tokens_per_s")
    capacity = [row.get("capacity_tokens_per_s") or 0.0 for row in pools]
    if demand is None or not any(capacity):
        return share * max(row["instances"] for row in pools) >= 1
    demand += pools[0].get("buffer_tokens_per_s") or 0.0
    carried = sum(row["instances"] * each for row, each in zip(pools, capacity, strict=True))
    without_one = carried - min(each for each in capacity if each > 0)
    return demand * (1 + share) > carried or demand * (1 - share) <= without_one < demand


def _by_hour(rows: Sequence[Numbers], forecast: Sequence[Numbers]) -> list[Numbers]:
    """Return the plan's totals by hour, with the forecast in tokens/s and in the GPUs that it fills."""
    by_hour = []
    for hour in range(HOURS_OF_DAY):
        planned = [row for row in rows if row["hour"] == hour]
        forecast_rows = [row for row in forecast if row["hour"] == hour]
        intake = [row for row in planned if row["role"] in INTAKE_ROLES]
        totals = _hour_totals(hour, planned)
        for name in ("forecast", "p90"):
            rate = f"{name}_tokens_per_s"
            totals[rate] = sum(row[rate] for row in forecast_rows) if forecast_rows else None
            totals[f"{name}_gpus"] = _gpus_filled(forecast_rows, rate, planned) if forecast_rows else None
        totals["carries_tokens_per_s"] = sum(row["sustained_tokens_per_s"] for row in intake)
        totals["short_tokens_per_s"] = sum(row["short_tokens_per_s"] or 0.0 for row in planned)
        by_hour.append(totals)
    return by_hour


def _hour_totals(hour: int, planned: Sequence[Numbers]) -> Numbers:
    """Return a plan's instances, GPUs and USD in an hour."""
    return {
        "hour": hour,
        "instances": sum(row["instances"] for row in planned),
        "gpus": sum(row["instances"] * row["gpus_per_instance"] for row in planned),
        "usd": sum(row["usd"] for row in planned),
    }


def _gpus_filled(forecast_rows: Sequence[Numbers], rate: str, plan: Sequence[Numbers]) -> float:
    """Return the GPUs that an hour's load fills, at the plan's mean capacity per GPU of each llm and role."""
    total = 0.0
    for llm, role in dict.fromkeys((row["llm"], row["role"]) for row in plan):
        planned = [row for row in plan if (row["llm"], row["role"]) == (llm, role)]
        deployed = [row for row in planned if row["instances"]]
        deployed = deployed or [{**row, "instances": 1} for row in planned]
        gpus = sum(row["instances"] * row["gpus_per_instance"] for row in deployed)
        carried = sum(row["instances"] * row["capacity_tokens_per_s"] for row in deployed)
        total += sum(row[rate] for row in forecast_rows if row["llm"] == llm) * gpus / carried
    return total


def sized_hours_section(
    settings: RunSettings, sizes: Sequence[HourSize], deployments: Mapping[str, SizedDeployment]
) -> Numbers:
    """Return the plan of a trace without history: its hours as sized, all others like the largest."""
    hours = _sized_hours(settings, sizes, deployments)
    target = settings.catalogue.tiers[settings.catalogue.strictest].attainment_target_share
    by_hour = []
    for hour in range(HOURS_OF_DAY):
        planned = [row for row in hours if row["hour"] == hour]
        rates = [row["demand_tokens_per_s"] for row in planned if row["demand_tokens_per_s"] is not None]
        totals = {**_hour_totals(hour, planned), "forecast_tokens_per_s": sum(rates) if rates else None}
        totals |= dict.fromkeys(("forecast_gpus", "p90_tokens_per_s", "p90_gpus", "carries_tokens_per_s"))
        by_hour.append({**totals, "short_tokens_per_s": 0.0})
    return {
        "day": max(size.hour_start for size in sizes).date() + timedelta(days=1),
        "basis": "trace",
        "method": None,
        "hours": hours,
        **_plan_totals(settings, hours, by_hour),
        "target_share": target,
        "least_in_time_share": min(size.attainment_share for size in sizes),
        "least_instances": min(size.instances for size in sizes),
        "missed_hours": sum(size.attainment_share < target for size in sizes),
        "sized_hours": len(sizes),
        "remedy": "",
        "not_known": "",
    }


def rented_saving(plan: Numbers, rented: Numbers) -> Numbers:
    """Return the section `split` of a short trace: USD a day that the plan `rented` saves, if any.

    Both of `sized_hours_section`. {} where `rented` costs no less, or one of them misses the target.
    """
    saved = plan["usd"] - rented["usd"]
    if saved <= 0 or plan["missed_hours"] or rented["missed_hours"]:
        return {}
    by_hour: dict[str, Counter[int]] = {}
    for row in rented["hours"]:
        name = f"{row['llm']}@{row['gpus_per_instance']}x{row['gpu']}"
        by_hour.setdefault(name, Counter())[row["hour"]] += row["instances"]
    fleet = ", ".join(f"{max(counts.values())} x {name}" for name, counts in by_hour.items())
    return {"gpu_type": {"fleet": fleet, "usd": saved, "usd_low": None, "usd_high": None}}


def _sized_hours(
    settings: RunSettings, sizes: Sequence[HourSize], deployments: Mapping[str, SizedDeployment]
) -> list[Numbers]:
    """Return a row per hour, region and llm: its size in that hour, or the largest in an unrecorded hour."""
    gpus = settings.catalogue.gpus
    largest: dict[tuple[str, str], HourSize] = {}
    by_hour: dict[tuple[int, str, str], HourSize] = {}
    for known in sorted(sizes, key=lambda size: size.instances):  # larger sizes overwrite smaller ones
        largest[known.region, known.llm] = by_hour[known.hour_start.hour, known.region, known.llm] = known
    rows, recorded = list[Numbers](), {known.hour_start.hour for known in sizes}
    for hour in range(HOURS_OF_DAY):
        for (region, llm), peak in largest.items():
            size = by_hour.get((hour, region, llm)) if hour in recorded else peak
            if size is None:
                continue
            pool = deployments[llm].deployment
            rows.append(
                {
                    "hour": hour,
                    "region": region,
                    "llm": llm,
                    "role": "whole",
                    "gpu": pool.gpu,
                    "gpus_per_instance": pool.gpus,
                    "instances": size.instances,
                    "demand_tokens_per_s": size.tokens_per_s if hour in recorded else None,
                    "capacity_tokens_per_s": None,
                    "short_tokens_per_s": 0.0,
                    "usd": size.instances * (pool.gpus * gpus[pool.gpu].usd_per_hour),
                    "attainment_share": size.attainment_share,
                    "requests": size.requests if hour in recorded else 0,
                }
            )
    return rows


# --- what to watch -----------------------------------------------------------------------------------------


def watch_section(settings: RunSettings, tomorrow: Numbers | None, first: date, last: date) -> Numbers:
    """Return the loads above which a plan is too small, the least certain hours and the largest endpoints."""
    rows = settings.lake.sql(
        "reads/advice_endpoints.sql", trace=settings.trace, first=first, last=last
    ).to_pylist()
    total = sum(row["input_tokens"] for row in rows) or 1.0
    endpoints = [
        {
            "llm": row["llm"],
            "region": row["region"],
            "tokens_share": row["input_tokens"] / total,
            "dispersion": row["dispersion"],
        }
        for row in rows
    ]
    return {
        "surge_share": settings.config.replay.reactive_share,
        "surges": [] if tomorrow is None else _surges(tomorrow, settings.config.replay.reactive_share),
        "unsure_hours": [] if tomorrow is None else _least_certain_hours(tomorrow),
        "endpoints": endpoints,
    }


def _surges(tomorrow: Numbers, reactive_share: float) -> list[Any]:
    """Return each llm's fullest hour, all regions together, and the load above which to exceed the plan."""
    known = [row for row in tomorrow["hours"] if row["capacity_tokens_per_s"] and row["role"] in INTAKE_ROLES]
    if not known:
        return []
    rows = pd.DataFrame(known).rename(
        columns={
            "demand_tokens_per_s": "planned_tokens_per_s",
            "sustained_tokens_per_s": "carries_tokens_per_s",
        }
    )
    sums = rows.groupby(["llm", "hour"])[["planned_tokens_per_s", "carries_tokens_per_s"]].sum()
    sums["surge_tokens_per_s"] = sums["carries_tokens_per_s"] * reactive_share
    sums["fullest_share"] = sums["planned_tokens_per_s"] / sums["carries_tokens_per_s"]
    fullest = sums.sort_values("fullest_share", ascending=False, kind="stable").reset_index()
    return fullest.drop_duplicates("llm").to_dict("records")


def _least_certain_hours(tomorrow: Numbers) -> list[Numbers]:
    """Return the three hours with the largest ratio of P90 to the mean forecast."""
    rows = [row for row in tomorrow["by_hour"] if row["forecast_tokens_per_s"] and row["p90_tokens_per_s"]]
    ratio = {row["hour"]: row["p90_tokens_per_s"] / row["forecast_tokens_per_s"] for row in rows}
    return [{"hour": hour, "p90_ratio": ratio[hour]} for hour in sorted(ratio, key=lambda h: -ratio[h])[:3]]
