"""How long `compact` holds an unused instance: what would have cost least on the week before."""

import math
from collections.abc import Sequence
from datetime import date

import numpy as np

from fleetcast.assets.demand.demand import INTERACTIVE, read_demand_matrix
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Floats
from fleetcast.models.plan.hold_time import cheapest_hold_minutes
from fleetcast.models.world.calendar import WEEKDAYS

LONGER_HOLDS_MINUTES = (5, 10, 20, 40)  # besides the longest boot
MINUTE_S = 60.0
KEPT_HOLDS_S: dict[tuple[object, ...], Floats] = {}  # of pool_holds_s, by what they depend on


def pool_holds_s(settings: RunSettings, day: date, of_four: Floats, shares: Floats) -> Floats:
    """Return how long each pool holds an unused instance, shape (pools,) seconds; pools of an llm are equal.

    It is the cheapest time on the week before `day`, and the longest boot where no day of it has demand.

    Parameters
    ----------
    of_four : (pools,) tokens/s of one of four instances
    shares : (4, pools) of `size_shares`
    """
    grid, replay = settings.grid, settings.config.replay
    boot_s = max(replay.boot_spot_s, replay.boot_spot_max_s)
    there = set(settings.lake.days("demand", settings.trace))
    week = [past for past in settings.history(day) if past in there][-len(WEEKDAYS) :]
    if not week:
        return np.full(len(grid.pools), boot_s)
    content = tuple(settings.lake.content("demand", trace=settings.trace, day=past) for past in week)
    key = (content, repr(replay), of_four.tobytes(), shares.tobytes())
    if key not in KEPT_HOLDS_S:
        KEPT_HOLDS_S[key] = MINUTE_S * cheapest_holds_minutes(settings, week, of_four, shares)
    return KEPT_HOLDS_S[key]


def cheapest_holds_minutes(
    settings: RunSettings, week: Sequence[date], of_four: Floats, shares: Floats
) -> Floats:
    """Return the time for which each pool should have held an unused instance on these days, shape (pools,).

    Parameters
    ----------
    of_four : (pools,) tokens/s of one of four instances
    shares : (4, pools) of `size_shares`
    """
    grid, replay = settings.grid, settings.config.replay
    longest = math.ceil(max(replay.boot_spot_s, replay.boot_spot_max_s) / MINUTE_S)
    choices = [longest, *(longer for longer in LONGER_HOLDS_MINUTES if longer > longest)]
    demand = read_demand_matrix(settings.lake, settings.trace, week[0], week[-1], 1, settings.catalogue)
    by_llm = np.nan_to_num(demand.tier_series(INTERACTIVE)).sum(axis=1)
    held = np.zeros(len(grid.pools))
    for llm, work in zip(settings.catalogue.llms, settings.serving_load(by_llm, axis=0), strict=True):
        home = grid.home_pool(llm)
        held[[row.kind.llm == llm for row in grid.pools]] = cheapest_hold_minutes(
            work,
            choices,
            math.ceil(replay.boot_spot_s / MINUTE_S),
            max(1.0, grid.pools[home].min_instances),
            of_four[home],
            shares[:, home],
        )
    return held
