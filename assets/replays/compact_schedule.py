"""The schedule of the policy `compact`: the fewest instances that sustain the work, in one pool of each llm.

    work = prompts that arrive, those that wait / catch_up_s, and deferred ones that are due     tokens/s
    needed = the least n with n c(n) >= work                                 (models/plan/pool_capacity.py)
    target = max of needed over the time that an unused instance is held

It decides every 15 s, during the replay. An unused instance is held as long as another one may take to boot,
shorter or longer where that would have cost less on the week before (assets/replays/hold_times.py). All work
of an llm counts at its home: one of n instances sustains more than one alone. The home is the pool with the
largest minimum, which runs anyway, then with most instances. Other pools get the work that a full home does
not sustain at its measured capacity: no request is sent to what the knob holds besides. A further pool with a
minimum runs anyway too, so requests of its region are sent there: it is a home of the work that it gets.
"""

from collections import deque
from datetime import date
from functools import cache
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.replays.hold_times import STEP_S, pool_holds_s
from fleetcast.assets.replays.own_schedule import own_schedule
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.pool_capacity import instances_for_work, size_shares, sustained_work
from fleetcast.models.replay.run import Schedule
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.own_policies import FleetObservation, OwnPolicy
from fleetcast.models.world.plan_grid import Grid
from fleetcast.models.world.toml_dataclasses import ConfigError

DECISIONS_PER_HOUR = round(HOUR_S / STEP_S)


class CompactRule(NamedTuple):
    """What the rule knows of the pools on a day."""

    llms: Ints  # (pools,) number of each pool's llm, or of a further home of it
    shares: Floats  # (4, pools) of `size_shares`
    of_four: Floats  # (pools,) tokens/s of one of four instances, as measured
    capacity: Floats  # (pools,) the same times the knob
    least: Ints  # (pools,) instances
    most: Ints  # (pools,) instances
    held_decisions: Ints  # (pools,) for so many decisions an unused instance is held


def compact_schedule(
    settings: RunSettings, day: date, capacity: Floats, of_four: Floats, start: Floats
) -> Schedule:
    """Return the schedule of a day.

    capacity, of_four : (services, regions, options) tokens/s of one option of four; `capacity` times the knob
    start : (pools,) instances

    When it is played, ConfigError for instances that only decode and are not paired: they get no prompts.
    """
    grid, replay = settings.grid, settings.config.replay
    recent = deque[Floats]()

    @cache
    def rule() -> CompactRule:  # measured when the replay begins
        of_pools = (grid.instance_capacity(of_four), grid.instance_capacity(capacity))
        return with_own_homes(measure_rule(settings, day, *of_pools), grid)

    def decide(seen: FleetObservation) -> Floats:
        running = seen.serving + seen.booting
        if not recent:  # the fleet that serves at the start is held too
            recent.append(running.astype(np.float64))
        work = seen.arriving_tokens_per_s + seen.waiting_tokens / replay.catch_up_s + seen.due_tokens_per_s
        work = np.where(grid.is_leading_pool, work, 0.0)
        recent.appendleft(needed_instances(work, running, rule()))
        if len(recent) > rule().held_decisions.max() + 1:
            recent.pop()
        return largest_held(np.array(recent), rule().held_decisions)

    return own_schedule("compact", OwnPolicy("", decide), grid, capacity, start, DECISIONS_PER_HOUR)


def measure_rule(settings: RunSettings, day: date, of_four: Floats, capacity: Floats) -> CompactRule:
    """Return what the rule knows of a day's pools.

    `of_four`: (pools,) tokens/s of one of four instances; `capacity`: the same times the knob. ConfigError
    for instances that only decode and are not paired: they get no prompts.
    """
    grid, names = settings.grid, list(settings.catalogue.llms)
    apart = next((llm for llm, role in grid.services if role == "decode"), None)
    if apart is not None:
        raise ConfigError(
            f"compact: {apart} has instances that only decode, needed whole or paired ones. Leave "
            "compact out."
        )
    shares = pool_size_shares(settings, day, of_four)
    held_s = pool_holds_s(settings, day, of_four, shares)
    held_decisions = np.ceil(held_s * DECISIONS_PER_HOUR / HOUR_S).astype(np.int64)
    llms = np.array([names.index(row.kind.llm) for row in grid.pools])
    least = np.array([row.min_instances for row in grid.pools])
    most = np.array([row.max_instances for row in grid.pools])
    return CompactRule(llms, shares, of_four, capacity, least, most, held_decisions)


def with_own_homes(rule: CompactRule, grid: Grid) -> CompactRule:
    """Return the rule in which each pool with a minimum is a home."""
    homes, llms = {grid.home_pool(row.kind.llm) for row in grid.pools}, rule.llms.copy()
    for pool in np.flatnonzero(grid.is_leading_pool & (rule.least > 0)):
        if pool not in homes:
            llms[pool] = llms.max() + 1
    return rule._replace(llms=llms)


def largest_held(recent: Floats, held_decisions: Ints) -> Floats:
    """Return each pool's largest need over its held decisions; `recent`: (decisions, pools), newest first."""
    is_held = np.arange(len(recent))[:, None] <= held_decisions
    held: Floats = np.max(recent, axis=0, where=is_held, initial=0.0)
    return held


def needed_instances(work: Floats, running: Floats | Ints, rule: CompactRule) -> Floats:
    """Return the instances that each pool needs for the work of its llm, shape (pools,); a home keeps one.

    `work`: (pools,) tokens/s; `running`: (pools,) instances that serve or boot.
    """
    llm, needed = np.unique(rule.llms, return_inverse=True)[1], np.zeros(work.size)
    order = np.lexsort((-running, -rule.least, llm))  # by llm, its home first
    pools, rest = np.bincount(llm), np.bincount(llm, work)
    first = np.cumsum(pools) - pools
    for rank in range(pools.max()):
        at = order[first[pools > rank] + rank]  # one pool of each llm that has so many
        capacity, share = rule.capacity[at], rule.shares[:, at]
        needed[at] = np.minimum(instances_for_work(rest[llm[at]], capacity, share), rule.most[at])
        sustained = sustained_work(needed[at], np.maximum(capacity, rule.of_four[at]), share)
        rest[llm[at]] = np.maximum(0.0, rest[llm[at]] - sustained)
        if not rest.any():
            break
    needed[order[first]] = np.maximum(1.0, needed[order[first]])
    return needed


def pool_size_shares(settings: RunSettings, day: date, of_four: Floats) -> Floats:
    """Return `size_shares` of the pools, measured on the requests that the day's plans know; (4, pools).

    `of_four`: (pools,) tokens/s of one of four instances, as planned.
    """
    measured = measured_capacity.measure_small_pools(settings, day)
    of_one, of_two = (pool_capacity(settings.grid, of_options) for of_options in measured)
    return size_shares(of_one, of_two, of_four / settings.config.plan.corrected_capacity_share)


def pool_capacity(grid: Grid, of_options: Floats) -> Floats:
    """Return tokens/s of one instance of each pool, (pools,), from those of `grid.service_options`."""
    numbers = [grid.service_options.index(option) for option in grid.pool_options]
    capacity: Floats = of_options[numbers] / grid.instances_per_option
    return capacity
