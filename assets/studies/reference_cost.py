"""What a fleet costs that knows the work of each minute, at the capacity that `compact` uses; its hold."""

from datetime import date

import numpy as np

from fleetcast.assets.demand.demand import INTERACTIVE, read_demand_matrix
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.replays.compact_schedule import pool_size_shares
from fleetcast.assets.replays.hold_times import pool_holds_s
from fleetcast.assets.replays.policy_inputs import planned_capacity, read_day_plans
from fleetcast.models.aliases import Floats
from fleetcast.models.plan.known_minutes import known_minutes_instances


def known_minutes_usd(settings: RunSettings, day: date, capacity_share: float) -> float:
    """Return USD of a planned day; `capacity_share`: part of the measured capacity that is used.

    Each llm runs in its first pool with the largest minimum. Cascades and prefix caches are left out.
    """
    grid, names = settings.grid, list(settings.catalogue.llms)
    demand = read_demand_matrix(settings.lake, settings.trace, day, day, 1, settings.catalogue)
    interactive, batch = (
        np.nan_to_num(series).sum(axis=1) for series in (demand.tier_series(INTERACTIVE), demand.held())
    )  # (llms, minutes) tokens/s
    (each, shares), usd = measured_pools(settings, day), 0.0
    for llm, name in enumerate(names):
        home = grid.home_pool(name)
        kind = grid.pools[home].kind
        minutes = known_minutes_instances(
            interactive[llm],
            float(batch[llm].sum()),
            grid.pools[home].min_instances,
            float(each[home] * capacity_share),
            shares[:, home],
        )
        usd += minutes / 60 * kind.gpus * settings.catalogue.gpus[kind.gpu].usd_per_hour
    return usd


def longest_hold_s(settings: RunSettings, day: date) -> float:
    """Return the longest time for which `compact` holds an unused instance on a planned day."""
    return float(pool_holds_s(settings, day, *measured_pools(settings, day)).max())


def measured_pools(settings: RunSettings, day: date) -> tuple[Floats, Floats]:
    """Return tokens/s of one of four instances of each pool, (pools,), and its `size_shares`, (4, pools)."""
    each = settings.grid.instance_capacity(
        planned_capacity(settings.grid, settings.config, read_day_plans(settings, day))
    )
    return each, pool_size_shares(settings, day, each)
