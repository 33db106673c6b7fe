"""Read the plan of a day for export: its rows, its changes, and JSON with the reasons."""

import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from itertools import groupby
from typing import Any, NamedTuple

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Row
from fleetcast.models.world.plan_grid import Grid
from fleetcast.models.world.policies import planned_policies
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

WORKLOAD_KIND_COLUMNS = ("llm", "gpu", "gpus_per_instance", "role")
INSTANCE_CHANGE_COLUMNS = ("instances_before", "instances", "reclaimed", "started", "donated", "why")
ROLLING_POLICY = "rolling"  # the policy whose plan is made again during the day
PLAN_LOAD_COLUMNS = ("demand_tokens_per_s", "buffer_tokens_per_s", "short_tokens_per_s")


def read_plan_rows(
    settings: RunSettings, day: date, policy: str, region: str | None = None, is_required: bool = True
) -> list[Row]:
    """Return the plan of a policy, in order of region, llm, kind and hour.

    ValueError where there is none, unless it is not required.
    """
    require_planned_policy(settings, policy, "plan")
    if region is not None:
        require_known(region, settings.catalogue.regions, "region", "plan")
    rows = settings.lake.sql(
        "reads/plan_rows.sql", trace=settings.trace, first=day, last=day, policy=policy, region=region
    ).to_pylist()
    if not rows and is_required:
        raise ValueError(
            f"The trace {settings.trace!r} has no plan of {policy} on {day}. "
            f"Make it: {settings.command(f'nightly --date {day}')}, or for hours to come: "
            f"{settings.command('plan ahead')} or {settings.command('plan rolling')}"
        )
    return rows


def require_planned_policy(settings: RunSettings, policy: str, place: str) -> None:
    """Raise ConfigError for a policy that can have no plan in the lake; the rolling one can."""
    rules = settings.config.rules
    if policy in rules and rules[policy].programme is None:
        command = settings.command("serve scaler --from URL")
        live = f" To run it: {command}" if policy == "compact" else ""
        raise ConfigError(
            f"{place}: {policy} decides during the day and has no plan. What it held in its replay: "
            f"fleetcast sql \"from fleet_by_hour where policy = '{policy}'\".{live}"
        )
    require_known(policy, [*planned_policies(rules), ROLLING_POLICY], "policy with a plan", place)


def drop_empty_places(grid: Grid, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a plan without those of kinds of instances that have nothing in a region.

    That is no load and no instance in any of the rows, and no pool that the config deploys there.
    """
    names = ("region", "llm", "role", "gpu", "gpus_per_instance")
    figures = ("instances", "instances_before", "demand_tokens_per_s", "buffer_tokens_per_s")
    pools = zip(grid.pools, grid.pool_options, strict=True)
    kept = {(pool.region, *option.label) for pool, option in pools if pool.max_instances > 0}
    kept |= {tuple(row[name] for name in names) for row in rows if any(row[name] for name in figures)}
    return [row for row in rows if tuple(row[name] for name in names) in kept]


def ordered_plan_steps(rows: Iterable[Row]) -> list[Row]:
    """Return all rows of the first hour, then every change, in order of time."""
    ordered = sorted(rows, key=lambda row: row["hour_start"])
    return [row for row in ordered if row["hour_start"] == ordered[0]["hour_start"] or row["why"] is not None]


def describe_deployment(row: Row) -> str:
    """Return the GPUs of an instance, with its phase if it serves only prefill or decode."""
    gpus = f"{row['gpus_per_instance']} x {row['gpu']}"
    return gpus if row["role"] == "whole" else f"{gpus}, {row['role']}"


class EarlyBoots(NamedTuple):
    """What a plan's replicas use before they serve, from when they are requested on."""

    boot_gpu_hours: float
    boot_usd: float


def plan_to_json(rows: Iterable[Row], boots: EarlyBoots) -> str:
    """Return a plan as JSON: by hour, the load, instances, cost and changes of each endpoint, and why.

    `gpu_hours` and `usd` are of serving instances; `usd_with_boots` is with those that boot early.
    """
    ordered = sorted(rows, key=lambda row: row["hour_start"])
    hours = [
        _hour(start, list(of_hour)) for start, of_hour in groupby(ordered, key=lambda row: row["hour_start"])
    ]
    first = ordered[0]
    plan = {name: first[name] for name in ("trace", "policy", "programme")}
    whole = {"gpu_hours": sum(hour["gpus"] for hour in hours), "usd": sum(hour["usd"] for hour in hours)}
    paid = {**boots._asdict(), "usd_with_boots": whole["usd"] + boots.boot_usd}
    return json.dumps({**plan, "day": first["day"].isoformat(), **whole, **paid, "hours": hours}, indent=2)


def _hour(start: datetime, rows: list[Row]) -> dict[str, Any]:
    endpoints = [_endpoint(row) for row in rows]
    whole = {name: sum(endpoint[name] for endpoint in endpoints) for name in ("gpus", "usd")}
    return {"hour_start": start.isoformat(), **whole, "endpoints": endpoints}


def _endpoint(row: Row) -> dict[str, Any]:
    names = ("decision_id", "region", *WORKLOAD_KIND_COLUMNS, *INSTANCE_CHANGE_COLUMNS, *PLAN_LOAD_COLUMNS)
    capacity = row["sustained_tokens_per_s"]
    gpus = row["instances"] * row["gpus_per_instance"]
    return {name: row[name] for name in (*names, "usd")} | {"capacity_tokens_per_s": capacity, "gpus": gpus}
