"""The schedule of the policy `lead`: each minute what the work needs until a new instance could serve.

    needed(t) = work x growth / capacity                  in instances, by pool
    target(t) = max over the last `lead` minutes of ceil(needed)

The work is what arrives and waits now, as in the reactive correction; its growth is that of past days
(models/plan/load_growth.py). An unused instance is held as long as another one would take to boot: then
it has cost as much as a boot, the break-even of ski rental. A pool that needs less than half an instance is
left empty: its work counts at the pool that has most instances of the llm, which always keeps one.
"""

import math
from collections import deque
from datetime import date

import numpy as np

from fleetcast.assets.demand.demand import INTERACTIVE, read_demand_matrix
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.replays.own_schedule import own_schedule
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.load_growth import load_growth
from fleetcast.models.replay.run import Schedule
from fleetcast.models.world.calendar import MINUTES_PER_DAY, SATURDAY
from fleetcast.models.world.own_policies import FleetObservation, OwnPolicy

COMPARABLE_DAYS = 5  # past days whose mean is the shape of a day
ROUNDED_OFF = 1e-3  # instances, as a smoothed rate never falls to zero
LEAST_NEED = 0.5  # instances; a pool that needs less is served by another one


def lead_schedule(settings: RunSettings, day: date, capacity: Floats, start: Floats) -> Schedule:
    """Return the schedule of a day.

    `capacity`: (services, regions, options) tokens/s of one option; `start`: (pools,) instances.
    """
    lead_minutes = math.ceil(settings.config.replay.boot_spot_s / 60)
    growth = load_growth(past_load(settings, day), lead_minutes)
    pool_llms = np.array([list(settings.catalogue.llms).index(row.kind.llm) for row in settings.grid.pools])
    catch_up_s = settings.config.replay.catch_up_s
    recent = deque([start], maxlen=lead_minutes + 1)

    def decide(seen: FleetObservation) -> Floats:
        work = seen.arriving_tokens_per_s + seen.waiting_tokens / catch_up_s
        work = work * growth[pool_llms, int(seen.now_s // 60)]
        running = seen.serving + seen.booting
        recent.append(needed_instances(work, seen.capacity_tokens_per_s, running, pool_llms))
        return np.max(recent, axis=0)

    return own_schedule("lead", OwnPolicy("", decide, every_minutes=1), settings.grid, capacity, start)


def needed_instances(work: Floats, capacity: Floats, running: Ints, pool_llms: Ints) -> Floats:
    """Return the instances that each pool needs for its work, and for that of small pools of its llm.

    Parameters
    ----------
    work, capacity : (pools,) tokens/s; the capacity is that of one instance
    running : (pools,) serving and booting instances
    pool_llms : (pools,) number of each pool's llm

    Returns
    -------
    (pools,) instances
    """
    needed = np.zeros(work.size)
    for llm in np.unique(pool_llms):
        own = np.flatnonzero(pool_llms == llm)
        home = own[np.lexsort((work[own], running[own]))[-1]]
        small = own[(work[own] < LEAST_NEED * capacity[own]) & (own != home)]
        kept = np.setdiff1d(own, small)
        needed[kept] = work[kept] / capacity[kept]
        needed[home] = max(1.0, needed[home] + work[small].sum() / capacity[home])
    return np.ceil(needed - ROUNDED_OFF)


def past_load(settings: RunSettings, day: date) -> Floats:
    """Return the interactive load of the comparable past days, (days, llms, minutes) tokens/s."""
    known = set(settings.lake.days("demand", settings.trace))
    days = comparable_days([past for past in settings.history(day) if past in known], day)
    if not days:
        return np.zeros((0, len(settings.catalogue.llms), MINUTES_PER_DAY))
    first, last = days[0], days[-1]
    demand = read_demand_matrix(settings.lake, settings.trace, first, last, 1, settings.catalogue)
    load = settings.serving_load(demand.tier_series(INTERACTIVE), axis=0).sum(axis=1)
    by_day = np.moveaxis(load.reshape(load.shape[0], (last - first).days + 1, -1), 1, 0)
    return by_day[[(past_day - first).days for past_day in days]]


def comparable_days(past: list[date], day: date) -> list[date]:
    """Return the last days of the same kind, working days or weekends; all days where there are none."""
    alike = [other for other in past if (other.weekday() < SATURDAY) == (day.weekday() < SATURDAY)]
    return (alike or past)[-COMPARABLE_DAYS:]
