"""A fleet planned by bucket: which GPU types for which requests, each bucket told before its answers are.

Of instances that do both phases. What an option sustains of a bucket is found by replay on the bucket's own
requests; shares.py says how many of which and who serves what; requests are dealt out as planned. Combos are
left to the mix: a plan by bucket divides an option's time, yet a team prefills for one while it decodes for
another.
"""

from collections.abc import Mapping

import numpy as np

from fleetcast.assets.plans.request_mixes import RequestMix
from fleetcast.assets.studies.rent_fleets import (
    FACTORS,
    RentedFleet,
    RentOptions,
    build_rent_offer,
    combo_goodput,
    team_pools,
)
from fleetcast.assets.studies.rent_hour import BusiestHour, replay_hour
from fleetcast.assets.studies.rent_query import RentScenario
from fleetcast.models.aliases import Ints
from fleetcast.models.plan import share_program
from fleetcast.models.plan.phase_costs import MeanRequest
from fleetcast.models.plan.problem import PlanError
from fleetcast.models.plan.rental import RentalPlan, describe_shortage
from fleetcast.models.plan.request_buckets import BucketEdges, distribute_requests
from fleetcast.models.plan.solver import DEFAULT_SOLVER

BUCKET_KIND = "by_bucket"
MIN_BUCKET_REQUESTS = 200  # requests of an hour that make a bucket; those of a rarer one go with the next


def parse_bucket_edges(text: str) -> BucketEdges:
    """Edges as the command line says them, INPUTS/OUTPUTS, like 512,2048/256; PlanError for others."""
    inputs, _, outputs = text.partition("/")
    numbers = [[one.strip() for one in part.split(",") if one.strip()] for part in (inputs, outputs)]
    if not text.count("/") == 1 or not all(one.isdecimal() for part in numbers for one in part):
        raise PlanError(f"--buckets {text}: it must be INPUTS/OUTPUTS in tokens, like 512,2048/256.")
    first, last = (tuple(map(int, part)) for part in numbers)
    return BucketEdges(first, last)


def best_fleet_by_bucket(
    setting: RentScenario,
    options: RentOptions,
    caps: Mapping[str, int],
    hour: BusiestHour,
    edges: BucketEdges,
) -> tuple[RentedFleet | None, str]:
    """The cheapest fleet by bucket that attains the target; else who is short."""
    bucket, titles = assign_buckets(hour, edges)
    rates = np.bincount(bucket) / bucket.size * setting.per_s
    alone = scenarios_by_bucket(setting, hour, bucket)
    rate = np.array([[combo_goodput(own, combo) for combo, _ in options] for own in alone])
    offer, target = build_rent_offer(options, caps), setting.tier.attainment_target_share
    best: RentedFleet | None = None
    for factor in FACTORS:
        rented = share_program.solve_shares(offer, factor * rates, rate, options=DEFAULT_SOLVER)
        if short := describe_shortage(offer, rented, factor * rates, titles):
            return (None, short) if factor <= 1 else (best, "")
        fleet = replay_bucket_fleet(setting, options, rented, bucket, hour)
        if best is None or fleet.met.attainment_share > best.met.attainment_share:
            best = fleet
        if fleet.met.attainment_share >= target:
            break
    return best, ""


def assign_buckets(hour: BusiestHour, edges: BucketEdges) -> tuple[Ints, list[str]]:
    """The bucket of each request of the hour, from 0 on without a gap, and their names."""
    every, present = find_common_buckets(hour, edges)
    place = np.minimum(np.searchsorted(present, every), present.size - 1)
    return place, [edges.title(int(b)) for b in present]


def describe_rare_buckets(hour: BusiestHour, edges: BucketEdges) -> str:
    """Which buckets have no traffic of their own; "" where all have."""
    _, present = find_common_buckets(hour, edges)
    rare = [edges.title(int(b)) for b in np.setdiff1d(np.arange(edges.count), present)]
    if not rare:
        return ""
    names = "; ".join(rare)
    return (
        f"Buckets with fewer than {MIN_BUCKET_REQUESTS} requests in that hour go with the next one: {names}."
    )


def find_common_buckets(hour: BusiestHour, edges: BucketEdges) -> tuple[Ints, Ints]:
    """The bucket of each request as the edges have it, and the buckets that are not rare."""
    every = edges.bucket(hour.trace.input_tokens, hour.expected_tokens)
    count = np.bincount(every)
    return every, np.flatnonzero(count >= min(MIN_BUCKET_REQUESTS, count.max()))


def scenarios_by_bucket(setting: RentScenario, hour: BusiestHour, bucket: Ints) -> list[RentScenario]:
    """The world with the requests of each bucket alone."""
    own = []
    for b in range(int(bucket.max()) + 1):
        inputs, outputs = hour.trace.input_tokens[bucket == b], hour.trace.output_tokens[bucket == b]
        load = MeanRequest(float(inputs.mean()), float(outputs.mean()))
        own.append(setting._replace(mix=RequestMix(inputs, outputs, None), load=load))
    return own


def replay_bucket_fleet(
    setting: RentScenario, options: RentOptions, rented: RentalPlan, bucket: Ints, hour: BusiestHour
) -> RentedFleet:
    """The chosen fleet in the busiest hour, each option serving what was dealt to it."""
    held = [int(n) for n in np.flatnonzero(rented.counts)]
    combos = tuple((options[n][0], int(rented.counts[n])) for n in held)
    pools = [pool for combo, count in combos for pool in team_pools(setting, combo, count)]
    option = distribute_requests(bucket, rented.shares[:, held])
    met = replay_hour(setting.catalogue, setting.config, setting.tier, pools, hour, option)
    return RentedFleet(combos, tuple(options[n][1] for n in held), met, rented.usd_per_hour)
