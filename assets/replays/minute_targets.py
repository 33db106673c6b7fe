"""Targets every few minutes from the load of the minutes before, without an hourly plan.

`dynamo` holds what the last minutes needed, `lead` what is needed until a new instance can serve.
"""

import math
from datetime import date

import numpy as np

from fleetcast.assets.demand.demand import INTERACTIVE, read_demand_matrix
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.lead_load import LEVEL_MINUTES, lead_load_tokens_per_s
from fleetcast.models.world.calendar import SATURDAY
from fleetcast.models.world.plan_grid import Grid

RECENT_MINUTES = 3  # the adjustment interval of Dynamo's planner (docs.nvidia.com/dynamo, planner guide)
COMPARABLE_DAYS = 5  # past days whose mean is the shape of a day
LEAST_INSTANCES = 1e-9  # below which a load needs no further instance


def recent_targets(settings: RunSettings, day: date, capacity: Floats, start: Floats) -> Floats:
    """Return instances for the interactive load of the RECENT_MINUTES before, shape (periods, pools).

    `capacity`: (services, regions, options) tokens/s of one option. `start` has shape (pools,), the targets
    of the first period.
    """
    demand = read_demand_matrix(settings.lake, settings.trace, day, day, RECENT_MINUTES, settings.catalogue)
    interactive = np.nan_to_num(demand.tier_series(INTERACTIVE))  # in a gap of the data nothing is replayed
    before = settings.serving_load(interactive[..., :-1], axis=0)
    return np.vstack([start, instances_for_load(settings.grid, before, capacity)])


def lead_targets(settings: RunSettings, day: date, capacity: Floats) -> Floats:
    """Return instances for the load until a new instance could serve, shape (minutes, pools).

    The instances of an llm are rounded up over all its regions, not in each; `capacity` as above.
    """
    past_days = comparable_days(settings.history(day), day)
    first = min(past_days, default=day)
    demand = read_demand_matrix(settings.lake, settings.trace, first, day, 1, settings.catalogue)
    load = settings.serving_load(demand.tier_series(INTERACTIVE), axis=0)
    by_day = np.moveaxis(load.reshape(*load.shape[:2], (day - first).days + 1, -1), 2, 0)
    lead_minutes = math.ceil(settings.config.replay.boot_spot_s / 60)
    past = by_day[[(past_day - first).days for past_day in past_days]]
    evening, today = np.nan_to_num(by_day[-2][..., -LEVEL_MINUTES:]), np.nan_to_num(by_day[-1])
    ahead = lead_load_tokens_per_s(past, evening, today, lead_minutes)
    grid = settings.grid
    return instances_for_load(grid, whole_instance_load(grid, ahead, capacity), capacity)


def comparable_days(past: list[date], day: date) -> list[date]:
    """Return the last days of the same kind, working days or weekends; all days where there are none."""
    alike = [other for other in past if (other.weekday() < SATURDAY) == (day.weekday() < SATURDAY)]
    return (alike or past)[-COMPARABLE_DAYS:]


def whole_instance_load(grid: Grid, load: Floats, capacity: Floats) -> Floats:
    """Round each llm's load up to whole instances over all regions, those of the largest remainders.

    `load` has shape (llms, regions, periods). An instance is one of the region's first option. A region
    without an option keeps its load.
    """
    rounded = load.copy()
    for i, (llm, _) in enumerate(grid.services):
        at = list(grid.catalogue.llms).index(llm)
        each = np.array([first_capacity(row) for row in capacity[i]])
        has_option = np.isfinite(each)
        instances = load[at, has_option] / each[has_option, None]
        whole = np.floor(instances)
        missing = np.ceil(instances.sum(axis=0) - whole.sum(axis=0))
        rank = np.argsort(np.argsort(whole - instances, axis=0, kind="stable"), axis=0, kind="stable")
        rounded[at, has_option] = (whole + (rank < missing)) * each[has_option, None]
    return rounded


def first_capacity(options: Floats) -> float:
    """Return the capacity of a region's first option, tokens/s, of (options,); inf without one."""
    found = options[np.isfinite(options) & (options > 0)]
    return float(found[0]) if found.size else np.inf


def instances_for_load(grid: Grid, load: Floats, capacity: Floats) -> Floats:
    """Return the instances that serve a load within the limits of the pools, shape (periods, pools).

    Of equal pools, the first serves what it can and the next serves the rest. Paired pools count as one
    option. `load` has shape (llms, regions, periods).
    """
    llms = [llm for llm, _ in grid.services]
    rest = load[[list(grid.catalogue.llms).index(llm) for llm in llms]].copy()
    targets, each = np.empty((load.shape[-1], len(grid.pools))), grid.instances_per_option
    for pool, (row, i, j, k) in enumerate(zip(grid.pools, *grid.cells, strict=True)):
        needed = each[pool] * np.ceil(rest[i, j] / capacity[i, j, k] - LEAST_INSTANCES)
        targets[:, pool] = np.clip(needed, row.min_instances, row.max_instances)
        if grid.is_leading_pool[pool]:
            served = targets[:, pool] / each[pool] * capacity[i, j, k]
            rest[i, j] = np.maximum(rest[i, j] - served, 0.0)
    return targets
