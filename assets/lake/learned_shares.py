"""Capacity shares that policies learn: each scored day moves the share of the next one.

All state is the table `learned_shares`, so a day that is made again learns the same.
"""

from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.plan.learned_share import ScoredDay, learn_share
from fleetcast.models.world.config import RunConfig

BEFORE_SQL = (
    "select policy, capacity_share, attained_ratio, next_capacity_share from learned_shares "
    "where trace = $trace and day < $day order by day"
)
ATTAINED_SQL = (
    "select attainment_by_tier from scoreboard where trace = $trace and day = $day and policy = $policy"
)


def learning_policies(config: RunConfig) -> list[str]:
    """Return the config's policies that learn their capacity share."""
    return [name for name, custom in config.policies.items() if custom.learns_capacity_share]


def read_earlier_days(settings: RunSettings, day: date) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of `learned_shares` before a day by learning policy, the oldest first."""
    earlier: dict[str, list[dict[str, Any]]] = {name: [] for name in learning_policies(settings.config)}
    if earlier and settings.lake.files("learned_shares", trace=settings.trace):
        for row in settings.lake.sql(BEFORE_SQL, trace=settings.trace, day=day).to_pylist():
            earlier.get(row["policy"], []).append(row)
    return earlier


def with_learned_shares(settings: RunSettings, day: date) -> RunSettings:
    """Return the settings in which each learning policy has the share that the days before `day` gave it."""
    policies = dict(settings.config.policies)
    for name, rows in read_earlier_days(settings, day).items():
        if rows:
            policies[name] = replace(policies[name], capacity_share=rows[-1]["next_capacity_share"])
    return settings.with_config(policies=policies)


def write_learned_shares(settings: RunSettings, day: date) -> None:
    """Write what the scored `day` says of each learning policy; `settings` have the shares that it used.

    A day without a request that has a target says nothing: the share stays.
    """
    lake, trace = settings.lake, settings.trace
    rows = list[dict[str, Any]]()
    for name, earlier in read_earlier_days(settings, day).items():
        ratios = _attained_ratios(settings, day, name)
        if not ratios:
            continue
        worst, used = min(ratios, key=lambda tier: ratios[tier]), settings.config.capacity_share(name)
        days = [ScoredDay(row["capacity_share"], row["attained_ratio"]) for row in earlier]
        learned = learn_share([*days, ScoredDay(used, ratios[worst])])
        rows.append(
            {
                "policy": name,
                "capacity_share": used,
                "worst_tier": worst,
                "attained_ratio": ratios[worst],
                "margin_share": learned.margin_share,
                "next_capacity_share": learned.capacity_share,
            }
        )
    if rows:
        lake.write(
            "learned_shares", pa.Table.from_pylist(rows, SCHEMAS["learned_shares"]), trace=trace, day=day
        )


def _attained_ratios(settings: RunSettings, day: date, policy: str) -> dict[str, float]:
    """Return the attainment over target of each tier that had requests on a scored day."""
    found = settings.lake.sql(ATTAINED_SQL, trace=settings.trace, day=day, policy=policy)
    targets = {name: tier.attainment_target_share for name, tier in settings.catalogue.tiers.items()}
    return {
        tier: share / targets[tier]
        for row in found.to_pylist(maps_as_pydicts="strict")
        for tier, share in row["attainment_by_tier"].items()
        if share is not None
    }
