"""The schedule of the policy `compact`: the fewest instances that sustain the work, in one pool of each llm.

    work = prompts that arrive, those that wait / catch_up_s, and deferred ones that are due     tokens/s
    needed = the least n with n c(n) >= work                                 (models/plan/pool_capacity.py)
    target = max of needed over the time that an unused instance is held

It decides every 15 s, during the replay. An unused instance is held as long as another one may take to boot,
shorter or longer where that would have cost less on the week before (assets/replays/hold_times.py). All work
of an llm counts at its home: one of n instances sustains more than one alone. The home is the pool with the
largest minimum, which runs anyway, then with most instances. Other pools get the work that a full home does
not sustain at its measured capacity: no request is sent to what the knob holds besides.
"""

import hashlib
from collections import deque
from datetime import date
from functools import cache

import numpy as np

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans import plans
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.assets.replays.hold_times import STEP_S, pool_holds_s
from fleetcast.assets.replays.own_schedule import own_schedule
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.pool_capacity import instances_for_work, size_shares, sustained_work
from fleetcast.models.replay.run import Schedule
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.own_policies import FleetObservation, OwnPolicy
from fleetcast.models.world.toml_dataclasses import ConfigError

DECISIONS_PER_HOUR = round(HOUR_S / STEP_S)
MEASURED_SIZES: dict[str, list[Floats]] = {}  # capacities of one and of two instances, by what they depend on


def compact_schedule(
    settings: RunSettings, day: date, capacity: Floats, of_four: Floats, start: Floats
) -> Schedule:
    """Return the schedule of a day.

    Parameters
    ----------
    capacity, of_four : (services, regions, options) tokens/s of one option of four; `capacity` times the knob
    start : (pools,) instances

    When it is played, ConfigError for instances that only decode and are not paired: they get no prompts.
    """
    grid, replay = settings.grid, settings.config.replay
    names = list(settings.catalogue.llms)
    llms = np.array([names.index(row.kind.llm) for row in grid.pools])
    measured = grid.instance_capacity(of_four)
    recent = deque[Floats]()

    @cache
    def sizes() -> tuple[Floats, Ints]:  # measured when the replay begins
        apart = next((llm for llm, role in grid.services if role == "decode"), None)
        if apart is not None:
            raise ConfigError(
                f"compact: {apart} has instances that only decode, needed whole or paired ones. Leave "
                "compact out."
            )
        shares = pool_size_shares(settings, day, measured)
        held_s = pool_holds_s(settings, day, measured, shares)
        return shares, np.ceil(held_s * DECISIONS_PER_HOUR / HOUR_S).astype(np.int64)

    def decide(seen: FleetObservation) -> Floats:
        shares, held_decisions = sizes()
        if not recent:  # the fleet that serves at the start is held too
            recent.append((seen.serving + seen.booting).astype(np.float64))
        work = seen.arriving_tokens_per_s + seen.waiting_tokens / replay.catch_up_s + seen.due_tokens_per_s
        work = np.where(grid.is_leading_pool, work, 0.0)
        recent.appendleft(needed_instances(work, seen, llms, shares, measured))
        if len(recent) > held_decisions.max() + 1:
            recent.pop()
        is_held = np.arange(len(recent))[:, None] <= held_decisions
        return np.max(recent, axis=0, where=is_held, initial=0.0)

    return own_schedule("compact", OwnPolicy("", decide), grid, capacity, start, DECISIONS_PER_HOUR)


def needed_instances(
    work: Floats, seen: FleetObservation, pool_llms: Ints, shares: Floats, measured: Floats
) -> Floats:
    """Return the instances that each pool needs for the work of its llm, shape (pools,); a home keeps one.

    Parameters
    ----------
    work : (pools,) tokens/s
    pool_llms : (pools,) number of each pool's llm
    shares : (4, pools) of `size_shares`
    measured : (pools,) tokens/s of one of four instances; that which is observed is times the knob
    """
    llm, needed = np.unique(pool_llms, return_inverse=True)[1], np.zeros(work.size)
    order = np.lexsort((-(seen.serving + seen.booting), -seen.least, llm))  # by llm, its home first
    pools, rest = np.bincount(llm), np.bincount(llm, work)
    first = np.cumsum(pools) - pools
    for rank in range(pools.max()):
        at = order[first[pools > rank] + rank]  # one pool of each llm that has so many
        capacity, share = seen.capacity_tokens_per_s[at], shares[:, at]
        needed[at] = np.minimum(instances_for_work(rest[llm[at]], capacity, share), seen.most[at])
        sustained = sustained_work(needed[at], np.maximum(capacity, measured[at]), share)
        rest[llm[at]] = np.maximum(0.0, rest[llm[at]] - sustained)
        if not rest.any():
            break
    needed[order[first]] = np.maximum(1.0, needed[order[first]])
    return needed


def pool_size_shares(settings: RunSettings, day: date, of_four: Floats) -> Floats:
    """Return `size_shares` of the pools, measured on the requests that the day's plans know; (4, pools).

    `of_four`: (pools,) tokens/s of one of four instances. Measured once for the same requests and fleet.
    """
    grid = settings.grid
    options = [grid.service_options.index(grid.option_of(row.kind.llm, row.deployment)) for row in grid.pools]
    key = capacity_key(settings, day)
    if key not in MEASURED_SIZES:
        MEASURED_SIZES[key] = [
            np.array(plans.measure_capacities(settings, day, Progress(), count)) for count in (1, 2)
        ]
    of_one, of_two = (measured[options] / grid.instances_per_option for measured in MEASURED_SIZES[key])
    return size_shares(of_one, of_two, of_four)


def capacity_key(settings: RunSettings, day: date) -> str:
    """Return a digest of what the capacities depend on."""
    digest = hashlib.sha256(repr((settings.config.fleet, settings.catalogue)).encode())
    for llm, mix in sorted(token_mixes(settings, day).items()):
        digest.update(llm.encode())
        for tokens in (mix.input_tokens, mix.output_tokens, mix.cached_tokens):
            digest.update(b"" if tokens is None else tokens.tobytes())
    return digest.hexdigest()
