"""Search for a quality plan: tables propose plans, the replay of the whole plan decides.

For (quality, latency), every routing point with the quality gets its cheapest replicas at the required
latency and at some above it, because the tables' latency lies above that of whole plans. The plans are
replayed, the cheapest first, until one meets both. Then plans with one replica fewer of each shape and
neighbouring points are replayed while they are cheaper. One half of the questions selects the plan; the
reported figures are of a replay on the other half, with other arrivals.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.plans.quality_markets import EVALUATION_SEED, Market
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement, explain_infeasible
from fleetcast.models.plan.quality_milp import (
    LEAST_LOAD_SHARE,
    PointPlan,
    QualityOffer,
    cheapest_point_plan,
    replica_loads,
    table_end_loads,
)
from fleetcast.models.world.toml_dataclasses import ConfigError

LATENCY_FACTORS = (1.0, 1.1, 1.2, 1.35, 1.5)  # factors of the required latency at which tables propose
MAX_LOAD_FACTOR = 1.15  # largest load of a replica, in loads of the end of its table
CI95_STANDARD_ERRORS = 3.92  # standard errors between the ends of an interval of 95 %
SELECTION_SEEDS = (0, 2)  # seeds of the arrivals that select a plan


def choose_quality_plan(market: Market, requirement: QualityRequirement, progress: Progress) -> QualityPlan:
    """Return the cheapest plan that meets the requirement in the replay; ConfigError where there is none."""
    best: tuple[str, PointPlan] | None = None
    replayed: set[tuple[str, int, bytes]] = set()
    replays = market.quality_config.replays
    with progress.bar("replay plans", replays) as done:
        candidates = propose_plans(market, requirement)
        while len(replayed) < replays:
            candidate = next((one for one in candidates if _is_worth_replaying(one, best, replayed)), None)
            if candidate is None:
                break
            replayed.add(_key(candidate))
            done(len(replayed))
            if is_requirement_met(market, requirement, *candidate):
                best = candidate
                neighbours = sorted(neighbour_plans(market, *best), key=lambda near: near[1].usd_per_hour)
                candidates = chain(candidates, neighbours)
    if best is None:
        raise ConfigError(explain_infeasible(market, requirement, replayed=bool(replayed)))
    return QualityPlan("chosen", "chosen", market, *best, market.play(*best, EVALUATION_SEED))


def _is_worth_replaying(
    candidate: tuple[str, PointPlan],
    best: tuple[str, PointPlan] | None,
    replayed: set[tuple[str, int, bytes]],
) -> bool:
    is_cheaper = best is None or candidate[1].usd_per_hour < best[1].usd_per_hour - 1e-9
    return is_cheaper and _key(candidate) not in replayed


def _key(candidate: tuple[str, PointPlan]) -> tuple[str, int, bytes]:
    rule, plan = candidate
    return rule, plan.point, plan.instances.tobytes()


def propose_plans(market: Market, requirement: QualityRequirement) -> Iterator[tuple[str, PointPlan]]:
    """Yield the cheapest replicas of every point with the quality: at the required latency, then above it."""
    demand = market.demand._replace(budget_usd_per_hour=requirement.budget_usd_per_hour)
    for factor in LATENCY_FACTORS:
        plans = [
            (rule, plan)
            for rule, offer in market.offers.items()
            for point in np.flatnonzero(offer.quality - offer.error >= requirement.quality).tolist()
            if (plan := cheapest_point_plan(offer, demand, point, factor * requirement.latency_s)) is not None
        ]
        yield from sorted(plans, key=lambda candidate: candidate[1].usd_per_hour)


def neighbour_plans(market: Market, rule: str, plan: PointPlan) -> Iterator[tuple[str, PointPlan]]:
    """Yield plans with one replica fewer, with a cheaper one in its place, and at neighbouring points."""
    offer = market.offers[rule]
    for shape in np.flatnonzero(plan.instances):
        fewer = plan.instances.copy()
        fewer[shape] -= 1
        yield rule, reprice_plan(market, offer, plan._replace(instances=fewer))
        is_cheaper = (offer.llm == offer.llm[shape]) & (offer.usd_per_hour < offer.usd_per_hour[shape])
        for other in np.flatnonzero(is_cheaper):
            swapped = fewer.copy()
            swapped[other] += 1
            used = np.bincount(offer.gpu, swapped * offer.gpus, market.demand.cap_gpus.size)
            if (used <= market.demand.cap_gpus).all():
                yield rule, reprice_plan(market, offer, plan._replace(instances=swapped))
    for point in (plan.point - 1, plan.point + 1):
        if 0 <= point < len(offer.quality):
            yield rule, reprice_plan(market, offer, plan._replace(point=point))


def reprice_plan(market: Market, offer: QualityOffer, plan: PointPlan) -> PointPlan:
    """Return the plan with the cost of its replicas and its judge."""
    judging_usd = offer.judging_usd(plan.point, market.demand.requests_per_s)
    return plan._replace(usd_per_hour=float(plan.instances @ offer.usd_per_hour) + judging_usd)


def is_requirement_met(market: Market, requirement: QualityRequirement, rule: str, plan: PointPlan) -> bool:
    """Return whether a plan meets the requirement in two replays, each with a standard error to spare."""
    offer = market.offers[rule]
    serves = np.bincount(offer.llm, plan.instances, offer.shares.shape[1]) > 0
    if not serves[offer.shares[plan.point] > LEAST_LOAD_SHARE].all():
        return False
    if (
        replica_loads(offer, market.demand, plan) > MAX_LOAD_FACTOR * table_end_loads(offer, plan.point)
    ).any():
        return False
    for seed in SELECTION_SEEDS:
        outcome = market.play(rule, plan, seed)
        if outcome.p95_s > requirement.latency_s or outcome.quality < requirement.quality:
            return False
        (low_s, high_s), (low, high) = outcome.intervals()
        spare_s, spare = (high_s - low_s) / CI95_STANDARD_ERRORS, (high - low) / CI95_STANDARD_ERRORS
        if outcome.p95_s + spare_s > requirement.latency_s or outcome.quality - spare < requirement.quality:
            return False
    return True
