"""Objectives of plans for quality: least cost, least latency, best quality, and the Pareto front.

There are few routing points. So the least cost for (Q, L), the least L for (Q, budget) and the best Q for (L,
budget) are found by solving all of them. Each point is one MILP for HiGHS (by scipy); the least L takes
several, by bisection.
"""

import numpy as np

from fleetcast.models.plan.quality_milp import PointPlan, QualityDemand, QualityOffer, cheapest_point_plan

NEAR_LATENCY_SHARE = 0.005  # relative precision of the least latency


def least_cost_plan(
    offer: QualityOffer, demand: QualityDemand, quality: float, latency_s: float
) -> PointPlan | None:
    """Return the cheapest plan for a quality, plus its standard error, and a latency; None without any."""
    best: PointPlan | None = None
    for point in np.flatnonzero(offer.quality - offer.error >= quality):
        limit = demand.budget_usd_per_hour if best is None else best.usd_per_hour * (1 - 1e-6)
        found = cheapest_point_plan(offer, demand._replace(budget_usd_per_hour=limit), int(point), latency_s)
        best = found or best
    return best


def quickest_point_plan(
    offer: QualityOffer, demand: QualityDemand, point: int, below_s: float = np.inf
) -> PointPlan | None:
    """Return a point's plan of the least latency within budget and GPUs, or None if none is below `below_s`.

    The precision is NEAR_LATENCY_SHARE.
    """
    idle_s, most_s = float(offer.p95_s[:, :, 0].min()), float(offer.p95_s[np.isfinite(offer.p95_s)].max())
    high = min(below_s * (1 - NEAR_LATENCY_SHARE), most_s * offer.shares.shape[1] + offer.judge_s * 8)
    best = cheapest_point_plan(offer, demand, point, high)
    low = idle_s / 2
    while best is not None and high > low * (1 + NEAR_LATENCY_SHARE):
        middle = float(np.sqrt(low * high))
        found = cheapest_point_plan(offer, demand, point, middle)
        low, high, best = (low, middle, found) if found is not None else (middle, high, best)
    return best


def cost_front(offer: QualityOffer, demand: QualityDemand, latency_s: float) -> list[PointPlan]:
    """Return the Pareto front of quality and cost within a latency, the best quality first."""
    front: list[PointPlan] = []
    for point in np.argsort(-offer.quality, kind="stable"):
        limit = front[-1].usd_per_hour * (1 - 1e-6) if front else demand.budget_usd_per_hour
        plan = cheapest_point_plan(offer, demand._replace(budget_usd_per_hour=limit), int(point), latency_s)
        if plan is not None:
            front.append(plan)
    return front


def best_quality_plan(offer: QualityOffer, demand: QualityDemand, latency_s: float) -> PointPlan | None:
    """Return the plan of the best quality within a latency and a budget; None where no point has a plan."""
    for point in np.argsort(-offer.quality, kind="stable"):
        plan = cheapest_point_plan(offer, demand, int(point), latency_s)
        if plan is not None:
            return plan
    return None


def least_latency_plan(offer: QualityOffer, demand: QualityDemand, quality: float) -> PointPlan | None:
    """Return the quickest plan for a quality, plus its standard error, and a budget; None without any."""
    best: PointPlan | None = None
    for point in np.flatnonzero(offer.quality - offer.error >= quality):
        limit_s = np.inf if best is None else best.latency_s
        best = quickest_point_plan(offer, demand, int(point), limit_s) or best
    return best
