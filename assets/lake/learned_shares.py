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
ATTAINED_SQL = "select policy, attainment_by_tier from scoreboard where trace = $trace and day = $day"


def learning_policies(config: RunConfig) -> list[str]:
    """Return the config's policies that learn their capacity share."""
    return [name for name, custom in config.policies.items() if custom.learns_capacity_share]


def with_learned_shares(settings: RunSettings, day: date) -> RunSettings:
    """Return the settings in which each learning policy has the share that the days before `day` gave it."""
    names = learning_policies(settings.config)
    if not names or not settings.lake.files("learned_shares", trace=settings.trace):
        return settings
    rows = settings.lake.sql(BEFORE_SQL, trace=settings.trace, day=day).to_pylist()
    learned = {row["policy"]: row["next_capacity_share"] for row in rows if row["policy"] in names}
    policies = {
        name: replace(custom, capacity_share=learned.get(name, custom.capacity_share))
        for name, custom in settings.config.policies.items()
    }
    return settings.with_config(policies=policies)


def write_learned_shares(settings: RunSettings, day: date) -> None:
    """Write what the scored `day` says of each learning policy; `settings` have the shares that it used.

    A day without a request that has a target says nothing: the share stays.
    """
    names = learning_policies(settings.config)
    if not names:
        return
    lake, trace = settings.lake, settings.trace
    board = lake.sql(ATTAINED_SQL, trace=trace, day=day).to_pylist(maps_as_pydicts="strict")
    attained = {row["policy"]: row["attainment_by_tier"] for row in board}
    earlier = (
        lake.sql(BEFORE_SQL, trace=trace, day=day).to_pylist()
        if lake.files("learned_shares", trace=trace)
        else []
    )
    rows = list[dict[str, Any]]()
    for name in names:
        targets = {tier: entry.attainment_target_share for tier, entry in settings.catalogue.tiers.items()}
        ratios = {
            tier: share / targets[tier] for tier, share in attained.get(name, {}).items() if share is not None
        }
        if not ratios:
            continue
        worst = min(ratios, key=lambda tier: ratios[tier])
        used = settings.config.under(name).plan.capacity_share_of(settings.config.rules[name].plan)
        before = [row for row in earlier if row["policy"] == name]
        days = [ScoredDay(row["capacity_share"], row["attained_ratio"]) for row in before]
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
    lake.write("learned_shares", pa.Table.from_pylist(rows, SCHEMAS["learned_shares"]), trace=trace, day=day)
