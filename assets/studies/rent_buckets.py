"""Plan a fleet by bucket: GPU types for requests grouped by prompt length and expected output length.

All instances do both phases. The goodput of an option on a bucket is measured by replay of the bucket's own
requests; models/plan/share_program.py chooses how many of each option to rent and which share of each bucket
each serves; the replay distributes requests by these shares. Disaggregated combos are not planned by bucket:
the plan divides an option's time among buckets, but a combo prefills for one bucket while it decodes for
another.
"""

from collections.abc import Mapping

import numpy as np

from fleetcast.assets.plans.request_mixes import RequestMix
from fleetcast.assets.studies.rent_fleets import (
    RentedFleet,
    RentOptions,
    build_rent_offer,
    combo_goodput,
    smallest_attaining_fleet,
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
MIN_BUCKET_REQUESTS = 200  # in an hour; requests of a rarer bucket go with the next one


def parse_bucket_edges(text: str) -> BucketEdges:
    """Parse bucket edges INPUTS/OUTPUTS, like 512,2048/256; PlanError for any other form."""
    inputs, _, outputs = text.partition("/")
    numbers = [[edge.strip() for edge in part.split(",") if edge.strip()] for part in (inputs, outputs)]
    if text.count("/") != 1 or not all(edge.isdecimal() for part in numbers for edge in part):
        raise PlanError(f"--buckets {text}: it must be INPUTS/OUTPUTS in tokens, like 512,2048/256.")
    input_edges, output_edges = (tuple(map(int, part)) for part in numbers)
    return BucketEdges(input_edges, output_edges)


def best_fleet_by_bucket(
    scenario: RentScenario,
    options: RentOptions,
    caps: Mapping[str, int],
    hour: BusiestHour,
    edges: BucketEdges,
) -> tuple[RentedFleet | None, str]:
    """Return the cheapest fleet by bucket that attains the target; else why it is short of GPUs."""
    bucket, titles = assign_buckets(hour, edges)
    rates = np.bincount(bucket) / bucket.size * scenario.per_s
    by_bucket = scenarios_by_bucket(scenario, hour, bucket)
    rate = np.array(
        [[combo_goodput(bucket_scenario, combo) for combo, _ in options] for bucket_scenario in by_bucket]
    )
    offer = build_rent_offer(options, caps)

    def solve(factor: float) -> tuple[RentalPlan, str]:
        rented = share_program.solve_shares(offer, factor * rates, rate, options=DEFAULT_SOLVER)
        return rented, describe_shortage(offer, rented, factor * rates, titles)

    def replay(rented: RentalPlan) -> RentedFleet:
        return replay_bucket_fleet(scenario, options, rented, bucket, hour)

    return smallest_attaining_fleet(scenario, solve, replay)


def assign_buckets(hour: BusiestHour, edges: BucketEdges) -> tuple[Ints, list[str]]:
    """Return each request's bucket, shape (R,), numbered from 0 without gaps, and the buckets' titles."""
    bucket, present = find_common_buckets(hour, edges)
    compact = np.minimum(np.searchsorted(present, bucket), present.size - 1)
    return compact, [edges.title(int(b)) for b in present]


def describe_rare_buckets(hour: BusiestHour, edges: BucketEdges) -> str:
    """Return a sentence that names the rare buckets; "" if no bucket is rare."""
    _, present = find_common_buckets(hour, edges)
    rare = [edges.title(int(b)) for b in np.setdiff1d(np.arange(edges.count), present)]
    if not rare:
        return ""
    names = "; ".join(rare)
    return (
        f"Buckets with fewer than {MIN_BUCKET_REQUESTS} requests in that hour go with the next one: {names}."
    )


def find_common_buckets(hour: BusiestHour, edges: BucketEdges) -> tuple[Ints, Ints]:
    """Return each request's bucket by the edges, shape (R,), and the numbers of buckets that are not rare."""
    bucket = edges.bucket(hour.trace.input_tokens, hour.expected_tokens)
    count = np.bincount(bucket)
    return bucket, np.flatnonzero(count >= min(MIN_BUCKET_REQUESTS, count.max()))


def scenarios_by_bucket(scenario: RentScenario, hour: BusiestHour, bucket: Ints) -> list[RentScenario]:
    """Return a scenario for each bucket, with its requests alone; `bucket`: of each request, shape (R,)."""
    scenarios = []
    for b in range(int(bucket.max()) + 1):
        inputs, outputs = hour.trace.input_tokens[bucket == b], hour.trace.output_tokens[bucket == b]
        load = MeanRequest(float(inputs.mean()), float(outputs.mean()))
        scenarios.append(scenario._replace(mix=RequestMix(inputs, outputs, None), load=load))
    return scenarios


def replay_bucket_fleet(
    scenario: RentScenario, options: RentOptions, rented: RentalPlan, bucket: Ints, hour: BusiestHour
) -> RentedFleet:
    """Replay the rented fleet in the busiest hour; each option serves its share of each `bucket`, (R,)."""
    rented_options = [int(n) for n in np.flatnonzero(rented.counts)]
    combos = tuple((options[n][0], int(rented.counts[n])) for n in rented_options)
    pools = [pool for combo, count in combos for pool in team_pools(scenario, combo, count)]
    option_of_request = distribute_requests(bucket, rented.shares[:, rented_options])
    met = replay_hour(scenario.catalogue, scenario.config, scenario.tier, pools, hour, option_of_request)
    return RentedFleet(combos, tuple(options[n][1] for n in rented_options), met, rented.usd_per_hour)
