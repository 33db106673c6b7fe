"""What is asked of plans for quality: the least cost, the least latency, the most quality, and a front.

The points are few, so the least cost for (Q, L), the least L for (Q, budget) and the most Q for (L, budget)
are found by going through them; each is one programme for HiGHS (by scipy), the least L some more, by
bisection.
"""

import numpy as np

from fleetcast.models.plan.quality_milp import PointPlan, QualityDemand, QualityOffer, cheapest_point_plan

NEAR_LATENCY_SHARE = 0.005  # to which the least latency is found


def least_cost_plan(
    offer: QualityOffer, demand: QualityDemand, quality: float, latency_s: float
) -> PointPlan | None:
    """The cheapest plan for a quality, a standard error on top, and a latency; None where there is none."""
    best: PointPlan | None = None
    for point in np.flatnonzero(offer.quality - offer.error >= quality):
        limit = demand.budget_usd_per_hour if best is None else best.usd_per_hour * (1 - 1e-6)
        found = cheapest_point_plan(offer, demand._replace(budget_usd_per_hour=limit), int(point), latency_s)
        best = found or best
    return best


def quickest_point_plan(
    offer: QualityOffer, demand: QualityDemand, point: int, below_s: float = np.inf
) -> PointPlan | None:
    """The least latency of a point within budget and GPUs, to NEAR_SHARE; None where none is below."""
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
    """Least cost over quality within a latency, no plan dominated; the best quality first."""
    found: list[PointPlan] = []
    for point in np.argsort(-offer.quality, kind="stable"):
        limit = found[-1].usd_per_hour * (1 - 1e-6) if found else demand.budget_usd_per_hour
        one = cheapest_point_plan(offer, demand._replace(budget_usd_per_hour=limit), int(point), latency_s)
        if one is not None:
            found.append(one)
    return found


def best_quality_plan(offer: QualityOffer, demand: QualityDemand, latency_s: float) -> PointPlan | None:
    """The best quality within a latency and a budget; None where no point has a plan."""
    for point in np.argsort(-offer.quality, kind="stable"):
        one = cheapest_point_plan(offer, demand, int(point), latency_s)
        if one is not None:
            return one
    return None


def least_latency_plan(offer: QualityOffer, demand: QualityDemand, quality: float) -> PointPlan | None:
    """The least latency for a quality, a standard error on top, and a budget; None where there is none."""
    best: PointPlan | None = None
    for point in np.flatnonzero(offer.quality - offer.error >= quality):
        best = (
            quickest_point_plan(offer, demand, int(point), np.inf if best is None else best.latency_s) or best
        )
    return best
