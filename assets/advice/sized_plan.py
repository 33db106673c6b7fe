"""Write the plan of a sized rule, which every command then reads as the plan of the day."""

from typing import Any

import numpy as np
import pyarrow as pa

from fleetcast.assets.advice.rule_replays import MidnightPlan, SizedRule, sized_targets
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.replays.compact_schedule import pool_size_shares
from fleetcast.models.plan.pool_capacity import LARGE, sustained_work
from fleetcast.models.world.fleet_config import gpu_type


def write_sized_plan(settings: RunSettings, plan: MidnightPlan, sized: SizedRule) -> None:
    """Write the instances of a sized rule into day_ahead_plans, which every command reads."""
    lake, trace, day = settings.lake, settings.trace, plan.day
    table = lake.read("day_ahead_plans", trace=trace, day=day).drop_columns(["trace", "day"])
    grid = settings.grid
    targets = sized_targets(settings, plan, sized)
    capacity = grid.instance_capacity(plan.capacity)
    shares = np.ones((LARGE, len(grid.pools)))
    if settings.config.plan.capacity_by_size:
        shares = pool_size_shares(settings, day, capacity)
    sustained = sustained_work(targets, capacity, shares[:, None])
    sized_pools = {
        (hour, row.kind.llm, row.role, row.region, row.deployment.gpu_title, row.kind.gpus): {
            "instances": int(targets[hour, pool]),
            "sustained_tokens_per_s": float(sustained[hour, pool]),
        }
        for hour in range(HOURS_OF_DAY)
        for pool, row in enumerate(grid.pools)
    }
    rows = table.to_pylist()
    before = dict[tuple[Any, ...], int]()
    for row in sorted(rows, key=lambda row: row["hour_start"]):
        place = tuple(row[name] for name in ("llm", "role", "served_region", "gpu", "gpus_per_instance"))
        row |= sized_pools.get((row["hour_start"].hour, *place), {})
        planned = row["instances"]
        usd = settings.catalogue.gpus[gpu_type(row["gpu"])].usd_per_hour * row["gpus_per_instance"]
        was = before.get(place, planned)
        grown = {"started": max(0, planned - was), "reclaimed": 0, "donated": max(0, was - planned)}
        why = f"{row['llm']}: {was} to {planned} instances ({sized.rule}, sized by replay)"
        row |= {"instances_before": was, "delta": planned - was, "usd": planned * usd}
        row |= {**grown, "why": why if planned != was else None}
        before[place] = planned
    lake.write("day_ahead_plans", pa.Table.from_pylist(rows, table.schema), trace=trace, day=day)
