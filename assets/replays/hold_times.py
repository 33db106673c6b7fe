"""How long `compact` holds an unused instance: what would have cost least on the week before."""

import math
from collections.abc import Sequence
from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Floats
from fleetcast.models.plan.hold_time import cheapest_hold
from fleetcast.models.replay.fleet.scaling_signal import SMOOTHED_S
from fleetcast.models.world.calendar import DAY_S, WEEKDAYS

STEP_S = 15.0
LONGER_HOLDS_S = (300.0, 600.0, 1200.0, 2400.0)  # besides the longest boot and the usual one
KEPT_HOLDS_S: dict[tuple[object, ...], Floats] = {}  # of pool_holds_s, by what they depend on


def pool_holds_s(settings: RunSettings, day: date, of_four: Floats, shares: Floats) -> Floats:
    """Return how long each pool holds an unused instance, shape (pools,) seconds; pools of an llm are equal.

    It is the cheapest time on the week before `day`, and the longest boot where no day of it has requests.

    of_four : (pools,) tokens/s of one of four instances
    shares : (4, pools) of `size_shares`
    """
    grid, replay = settings.grid, settings.config.replay
    there = set(settings.lake.days("requests", settings.trace))
    week = [past for past in settings.history(day) if past in there][-len(WEEKDAYS) :]
    if not week:
        return np.full(len(grid.pools), replay.boot_spot_max_s)
    content = tuple(settings.lake.content("requests", trace=settings.trace, day=past) for past in week)
    key = (content, repr(replay), of_four.tobytes(), shares.tobytes())
    if key not in KEPT_HOLDS_S:
        KEPT_HOLDS_S[key] = cheapest_holds_s(settings, week, of_four, shares)
    return KEPT_HOLDS_S[key]


def cheapest_holds_s(settings: RunSettings, week: Sequence[date], of_four: Floats, shares: Floats) -> Floats:
    """Return how long each pool should have held an unused instance on these days, shape (pools,) seconds.

    of_four : (pools,) tokens/s of one of four instances
    shares : (4, pools) of `size_shares`
    """
    grid, replay = settings.grid, settings.config.replay
    longest_boot_s = replay.boot_spot_max_s
    longer_s = (hold_s for hold_s in LONGER_HOLDS_S if hold_s > longest_boot_s)
    choices_s = [longest_boot_s, replay.boot_spot_s, *longer_s]
    choices = [math.ceil(choice_s / STEP_S) for choice_s in choices_s]
    share = STEP_S / SMOOTHED_S
    held_s = np.zeros(len(grid.pools))
    for llm, work in zip(settings.catalogue.llms, interactive_work(settings, week), strict=True):
        home = grid.home_pool(llm)
        # The smoothed rate: rate += share * (work of the step before - rate).
        observed = pd.Series(work).shift(fill_value=0.0).ewm(alpha=share, adjust=False).mean().to_numpy()
        held_s[[row.kind.llm == llm for row in grid.pools]] = STEP_S * cheapest_hold(
            work,
            observed,
            choices,
            math.ceil(replay.boot_spot_s / STEP_S),
            max(1.0, grid.pools[home].min_instances),
            of_four[home],
            shares[:, home],
        )
    return held_s


def interactive_work(settings: RunSettings, days: Sequence[date]) -> Floats:
    """Return the work of each serving llm, shape (llms, steps) tokens/s, from the first to the last day.

    It is the prompts of interactive tiers; 0 where no request arrived.
    """
    rows = settings.lake.sql(
        "reads/work_by_step.sql",
        trace=settings.trace,
        first_day=days[0],
        last_day=days[-1],
        tiers=list(settings.catalogue.interactive_tiers),
        step_s=STEP_S,
    ).to_pandas()
    names = list(settings.catalogue.llms)
    work = np.zeros((len(names), ((days[-1] - days[0]).days + 1) * round(DAY_S / STEP_S)))
    work[rows["llm"].map(names.index), rows["step"]] = rows["tokens_per_s"]
    return settings.serving_load(work, axis=0)
