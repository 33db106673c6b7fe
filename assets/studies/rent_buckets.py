"""A fleet planned by bucket: which GPU types for which requests, each bucket told before its answers are.

Of instances that do both phases. What an option sustains of a bucket is found by replay on the bucket's own
requests; shares.py says how many of which and who serves what; requests are dealt out as planned. Combos are
left to the mix: a plan by bucket divides an option's time, yet a team prefills for one while it decodes for
another.
"""

from collections.abc import Mapping

import numpy as np

from fleetcast.assets.plans.mixes import Mix
from fleetcast.assets.studies.rent_asked import Setting
from fleetcast.assets.studies.rent_fleets import FACTORS, Fleet, Options, goodput, offer_of, team
from fleetcast.assets.studies.rent_hour import Hour, play
from fleetcast.models.aliases import Ints
from fleetcast.models.plan import shares
from fleetcast.models.plan.buckets import Edges, dealt
from fleetcast.models.plan.phases import Load
from fleetcast.models.plan.problem import PlanError
from fleetcast.models.plan.rent import Rented, short_said
from fleetcast.models.plan.solver import DEFAULTS

KIND = "by_bucket"
LEAST = 200  # requests of an hour that make a bucket; those of a rarer one go with the next


def edges_of(text: str) -> Edges:
    """Edges as the command line says them, INPUTS/OUTPUTS, like 512,2048/256; PlanError for others."""
    inputs, _, outputs = text.partition("/")
    numbers = [[one.strip() for one in part.split(",") if one.strip()] for part in (inputs, outputs)]
    if not text.count("/") == 1 or not all(one.isdecimal() for part in numbers for one in part):
        raise PlanError(f"--buckets {text}: it must be INPUTS/OUTPUTS in tokens, like 512,2048/256.")
    first, last = (tuple(map(int, part)) for part in numbers)
    return Edges(first, last)


def by_bucket(
    setting: Setting, options: Options, caps: Mapping[str, int], hour: Hour, edges: Edges
) -> tuple[Fleet | None, str]:
    """The cheapest fleet by bucket that attains the target; else who is short."""
    bucket, titles = buckets_of(hour, edges)
    rates = np.bincount(bucket) / bucket.size * setting.per_s
    alone = settings_of(setting, hour, bucket)
    rate = np.array([[goodput(own, combo) for combo, _ in options] for own in alone])
    offer, target = offer_of(options, caps), setting.tier.attainment_target_share
    best: Fleet | None = None
    for factor in FACTORS:
        rented = shares.solve(offer, factor * rates, rate, options=DEFAULTS)
        if short := short_said(offer, rented, factor * rates, titles):
            return (None, short) if factor <= 1 else (best, "")
        fleet = replayed(setting, options, rented, bucket, hour)
        if best is None or fleet.met.attainment_share > best.met.attainment_share:
            best = fleet
        if fleet.met.attainment_share >= target:
            break
    return best, ""


def buckets_of(hour: Hour, edges: Edges) -> tuple[Ints, list[str]]:
    """The bucket of each request of the hour, from 0 on without a gap, and their names."""
    every, present = told(hour, edges)
    place = np.minimum(np.searchsorted(present, every), present.size - 1)
    return place, [edges.title(int(b)) for b in present]


def rare_said(hour: Hour, edges: Edges) -> str:
    """Which buckets have no traffic of their own; "" where all have."""
    _, present = told(hour, edges)
    rare = [edges.title(int(b)) for b in np.setdiff1d(np.arange(edges.count), present)]
    of = f"Buckets with fewer than {LEAST} requests in that hour go with the next one: {'; '.join(rare)}."
    return of if rare else ""


def told(hour: Hour, edges: Edges) -> tuple[Ints, Ints]:
    """The bucket of each request as the edges have it, and the buckets that are not rare."""
    every = edges.bucket(hour.trace.input_tokens, hour.expected_tokens)
    count = np.bincount(every)
    return every, np.flatnonzero(count >= min(LEAST, count.max()))


def settings_of(setting: Setting, hour: Hour, bucket: Ints) -> list[Setting]:
    """The world with the requests of each bucket alone."""
    own = []
    for b in range(int(bucket.max()) + 1):
        inputs, outputs = hour.trace.input_tokens[bucket == b], hour.trace.output_tokens[bucket == b]
        load = Load(float(inputs.mean()), float(outputs.mean()))
        own.append(setting._replace(mix=Mix(inputs, outputs, None), load=load))
    return own


def replayed(setting: Setting, options: Options, rented: Rented, bucket: Ints, hour: Hour) -> Fleet:
    """The chosen fleet in the busiest hour, each option serving what was dealt to it."""
    held = [int(n) for n in np.flatnonzero(rented.counts)]
    combos = tuple((options[n][0], int(rented.counts[n])) for n in held)
    pools = [pool for combo, count in combos for pool in team(setting, combo, count)]
    option = dealt(bucket, rented.shares[:, held])
    met = play(setting.catalogue, setting.config, setting.tier, pools, hour, option)
    return Fleet(combos, tuple(options[n][1] for n in held), met, rented.usd_per_hour)
