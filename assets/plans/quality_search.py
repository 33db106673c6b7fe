"""The search for a plan: tables propose, the replay of the whole decides.

For (quality, latency) every point with the quality gets its cheapest replicas at the asked latency and at
some above it: what tables promise lies above what whole plans take. They are replayed, the cheapest first,
until one keeps both; then a replica fewer of each shape and the neighbouring points are tried, while that is
cheaper. Choosing is done on one half of the questions; what is told is replayed on the other, with other
arrivals.
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

LATENCY_FACTORS = (1.0, 1.1, 1.2, 1.35, 1.5)  # of the asked latency, at which tables propose
MAX_LOAD_FACTOR = (
    1.15  # of the largest load of its table, that a replica may get where a whole replay bears it
)
CI95_STANDARD_ERRORS = 3.92  # standard errors between the ends of an interval of 95 %
SELECTION_SEEDS = (0, 2)  # seeds of the arrivals that choose


def choose_quality_plan(market: Market, question: QualityRequirement, progress: Progress) -> QualityPlan:
    """The cheapest plan that keeps all requirements in the replay."""
    best: tuple[str, PointPlan] | None = None
    tried: set[tuple[str, int, bytes]] = set()
    with progress.bar("replay plans", market.said.replays) as done:
        waiting = propose_plans(market, question)
        while len(tried) < market.said.replays:
            one = next((one for one in waiting if _is_worth_it(one, best, tried)), None)
            if one is None:
                break
            tried.add(_key(one))
            done(len(tried))
            if is_requirement_met(market, question, *one):
                best = one
                more = sorted(neighbour_plans(market, *best), key=lambda near: near[1].usd_per_hour)
                waiting = chain(waiting, more)
    if best is None:
        raise ConfigError(explain_infeasible(market, question, replayed=bool(tried)))
    return QualityPlan("chosen", "chosen", market, *best, market.play(*best, EVALUATION_SEED))


def _is_worth_it(
    one: tuple[str, PointPlan], best: tuple[str, PointPlan] | None, tried: set[tuple[str, int, bytes]]
) -> bool:
    is_cheaper = best is None or one[1].usd_per_hour < best[1].usd_per_hour - 1e-9
    return is_cheaper and _key(one) not in tried


def _key(one: tuple[str, PointPlan]) -> tuple[str, int, bytes]:
    return one[0], one[1].point, one[1].instances.tobytes()


def propose_plans(market: Market, question: QualityRequirement) -> Iterator[tuple[str, PointPlan]]:
    """The cheapest replicas of every point with the quality: at the asked latency, then above it."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    for factor in LATENCY_FACTORS:
        found = [
            (rule, plan)
            for rule, offer in market.offers.items()
            for point in np.flatnonzero(offer.quality - offer.error >= question.quality).tolist()
            if (plan := cheapest_point_plan(offer, demand, point, factor * question.latency_s)) is not None
        ]
        yield from sorted(found, key=lambda one: one[1].usd_per_hour)


def neighbour_plans(market: Market, rule: str, plan: PointPlan) -> Iterator[tuple[str, PointPlan]]:
    """A replica fewer of a shape; a cheaper one in its place; the same replicas at the points beside."""
    offer = market.offers[rule]
    for shape in np.flatnonzero(plan.instances):
        fewer = plan.instances.copy()
        fewer[shape] -= 1
        yield rule, reprice_plan(market, offer, plan._replace(instances=fewer))
        is_like = (offer.llm == offer.llm[shape]) & (offer.usd_per_hour < offer.usd_per_hour[shape])
        for other in np.flatnonzero(is_like):
            swapped = fewer.copy()
            swapped[other] += 1
            used = np.bincount(offer.gpu, swapped * offer.gpus, market.demand.cap_gpus.size)
            if (used <= market.demand.cap_gpus).all():
                yield rule, reprice_plan(market, offer, plan._replace(instances=swapped))
    for point in (plan.point - 1, plan.point + 1):
        if 0 <= point < len(offer.quality):
            yield rule, reprice_plan(market, offer, plan._replace(point=point))


def reprice_plan(market: Market, offer: QualityOffer, plan: PointPlan) -> PointPlan:
    """The plan at what its replicas cost."""
    judging_usd = offer.judging_usd(plan.point, market.demand.requests_per_s)
    return plan._replace(usd_per_hour=float(plan.instances @ offer.usd_per_hour) + judging_usd)


def is_requirement_met(market: Market, question: QualityRequirement, rule: str, plan: PointPlan) -> bool:
    """Whether a plan keeps the requirements in two replays, both with a standard error to spare."""
    offer = market.offers[rule]
    serves = np.bincount(offer.llm, plan.instances, offer.shares.shape[1]) > 0
    if not serves[offer.shares[plan.point] > LEAST_LOAD_SHARE].all():
        return False
    if (
        replica_loads(offer, market.demand, plan) > MAX_LOAD_FACTOR * table_end_loads(offer, plan.point)
    ).any():
        return False
    for seed in SELECTION_SEEDS:
        found = market.play(rule, plan, seed)
        if found.p95_s > question.latency_s or found.quality < question.quality:
            return False
        (low_s, high_s), (low, high) = found.intervals()
        spare_s, spare = (high_s - low_s) / CI95_STANDARD_ERRORS, (high - low) / CI95_STANDARD_ERRORS
        if found.p95_s + spare_s > question.latency_s or found.quality - spare < question.quality:
            return False
    return True
