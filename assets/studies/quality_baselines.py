"""What stands beside the plan that was chosen: others' plans, the front, what one step more would cost."""

import numpy as np

from fleetcast.assets.plans.quality_markets import EVALUATION_SEED, Market
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement
from fleetcast.models.plan import boute
from fleetcast.models.plan.quality_milp import PointPlan
from fleetcast.models.plan.quality_objectives import (
    best_quality_plan,
    cost_front,
    least_cost_plan,
    least_latency_plan,
)

QUALITY_STEP, LATENCY_STEP_SHARE = 0.01, 0.1  # what one step of a requirement is


def plan_baselines(market: Market, question: QualityRequirement) -> list[QualityPlan]:
    """The cheapest plans of others that tables know: the largest llm alone, equal money, one GPU type."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    found: list[tuple[str, str, PointPlan | None]] = []
    for rule, offer in market.offers.items():
        own = least_cost_plan(offer, demand, question.quality, question.latency_s)
        found.append((f"{rule}_by_tables", rule, own))
        if rule == "route":
            found.append(("alone", rule, boute.cheapest_last_llm_plan(offer, demand, question.latency_s)))
            equal = boute.cheapest_equal_spend_plan(offer, demand, question.quality, question.latency_s)
            found.append(("equal_money", rule, equal))
    for code in np.unique(np.concatenate([offer.gpu for offer in market.offers.values()])):
        gpu = list(market.catalogue.gpus)[code]
        for rule, offer in market.offers.items():
            own = least_cost_plan(
                offer.only(shapes=offer.gpu == code), demand, question.quality, question.latency_s
            )
            if own is not None:
                instances = np.zeros(offer.gpu.size, np.int64)
                instances[offer.gpu == code] = own.instances
                own = own._replace(instances=instances)
            found.append((f"{rule}_{gpu}_only", rule, own))
    return [
        QualityPlan(name, "baseline", market, rule, answer, market.play(rule, answer, EVALUATION_SEED))
        for name, rule, answer in found
        if answer is not None
    ]


def plan_fronts(market: Market, question: QualityRequirement) -> list[QualityPlan]:
    """Least cost over quality within the latency, by rule, each plan replayed."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    return [
        QualityPlan(
            f"{rule}_{market.name}_{n:02d}",
            "front",
            market,
            rule,
            one,
            market.play(rule, one, EVALUATION_SEED),
        )
        for rule, offer in market.offers.items()
        for n, one in enumerate(cost_front(offer, demand, question.latency_s), start=1)
    ]


def requirement_step_costs(market: Market, question: QualityRequirement) -> dict[str, float | None]:
    """What one step of either requirement costs by the tables, USD per hour; None where it cannot be."""

    def least(quality: float, latency_s: float) -> float:
        found = (
            least_cost_plan(offer, market.demand, quality, latency_s) for offer in market.offers.values()
        )
        return min((one.usd_per_hour for one in found if one), default=np.inf)

    now = least(question.quality, question.latency_s)
    more = {
        f"{QUALITY_STEP:g} of quality more": least(question.quality + QUALITY_STEP, question.latency_s),
        f"{LATENCY_STEP_SHARE:.0%} of latency less": least(
            question.quality, (1 - LATENCY_STEP_SHARE) * question.latency_s
        ),
    }
    return {name: usd - now if np.isfinite(usd - now) else None for name, usd in more.items()}


def best_plans_by_tables(
    market: Market, question: QualityRequirement
) -> dict[str, tuple[float, PointPlan] | None]:
    """The least latency for the quality, the most quality within the latency: quality and plan, by tables."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    found: dict[str, list[tuple[float, PointPlan]]] = {"least latency": [], "most quality": []}
    for offer in market.offers.values():
        quick = least_latency_plan(offer, demand, question.quality)
        good = best_quality_plan(offer, demand, question.latency_s)
        for name, one in zip(found, (quick, good), strict=True):
            if one is not None:
                found[name].append((float(offer.quality[one.point]), one))
    return {
        "least latency": min(found["least latency"], key=lambda one: one[1].latency_s, default=None),
        "most quality": max(
            found["most quality"], key=lambda one: (round(one[0], 6), -one[1].usd_per_hour), default=None
        ),
    }
