"""The figures of a day that are worth a trend: Dagster plots each by partition."""

from datetime import date
from typing import Any

import pyarrow as pa

from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts.forecasts import PLANNED_MEASURE
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.pages.tier_columns import attainment_column
from fleetcast.assets.plans.day_ahead import DAY_AHEAD_POLICY

TREND_COLUMNS = ("usd", "gpu_hours", "backlog_gpu_hours")  # of the scoreboard


def trend_policy(board: pa.Table) -> str:
    """Return the policy of the trend: the plan that is advised a day ahead, else the first of the config."""
    policies = board["policy"].to_pylist()
    return DAY_AHEAD_POLICY if DAY_AHEAD_POLICY in policies else policies[0]


def read_trend_figures(settings: RunSettings, day: date, board: pa.Table) -> dict[str, float]:
    """Return the figures of the trend's policy on a day: cost, attainment by tier, backlog, regret and WAPE.

    `board`: the day's scoreboard. `on_target` is 1 where every tier attains its target, else 0. Unknown
    figures are left out.
    """
    policy = trend_policy(board)
    row = next(row for row in board.to_pylist(maps_as_pydicts="strict") if row["policy"] == policy)
    attained: dict[str, float | None] = row["attainment_by_tier"]
    found: dict[str, Any] = {name: row[name] for name in TREND_COLUMNS}
    found |= {attainment_column(tier): share for tier, share in attained.items()}
    key = {"trace": settings.trace, "day": day}
    parts = settings.lake.sql("reads/parts_of_cost.sql", **key, policy=policy).to_pylist()
    found |= {part["metric"]: part["value"] for part in parts if part["metric"] == "regret_usd"}
    method = settings.config.forecast.method
    [error] = settings.lake.sql(
        "reads/day_wape.sql", **key, method=method, measure=PLANNED_MEASURE, tier=INTERACTIVE
    ).to_pylist()
    found |= error
    targets = {name: tier.attainment_target_share for name, tier in settings.catalogue.tiers.items()}
    found["on_target"] = all(share is None or share >= targets[tier] for tier, share in attained.items())
    return {name: float(value) for name, value in found.items() if value is not None}
