"""Plan the baselines of a quality plan: simpler plans, the cost front, and the cost of one step more."""

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

QUALITY_STEP, LATENCY_STEP_SHARE = 0.01, 0.1  # one step of each requirement


def plan_baselines(market: Market, requirement: QualityRequirement) -> list[QualityPlan]:
    """Return the cheapest baseline plans by tables: by rule, largest llm alone, equal spend, one GPU type."""
    demand = market.demand._replace(budget_usd_per_hour=requirement.budget_usd_per_hour)
    found: list[tuple[str, str, PointPlan | None]] = []
    for rule, offer in market.offers.items():
        plan = least_cost_plan(offer, demand, requirement.quality, requirement.latency_s)
        found.append((f"{rule}_by_tables", rule, plan))
        if rule == "route":
            found.append(("alone", rule, boute.cheapest_last_llm_plan(offer, demand, requirement.latency_s)))
            equal = boute.cheapest_equal_spend_plan(offer, demand, requirement.quality, requirement.latency_s)
            found.append(("equal_money", rule, equal))
    for code in np.unique(np.concatenate([offer.gpu for offer in market.offers.values()])):
        gpu = list(market.catalogue.gpus)[code]
        for rule, offer in market.offers.items():
            plan = least_cost_plan(
                offer.only(shapes=offer.gpu == code), demand, requirement.quality, requirement.latency_s
            )
            if plan is not None:
                instances = np.zeros(offer.gpu.size, np.int64)
                instances[offer.gpu == code] = plan.instances
                plan = plan._replace(instances=instances)
            found.append((f"{rule}_{gpu}_only", rule, plan))
    return [
        QualityPlan(name, "baseline", market, rule, plan, market.play(rule, plan, EVALUATION_SEED))
        for name, rule, plan in found
        if plan is not None
    ]


def plan_fronts(market: Market, requirement: QualityRequirement) -> list[QualityPlan]:
    """Return the plans of least cost over quality within the latency, by rule, each replayed."""
    demand = market.demand._replace(budget_usd_per_hour=requirement.budget_usd_per_hour)
    return [
        QualityPlan(
            f"{rule}_{market.name}_{n:02d}",
            "front",
            market,
            rule,
            plan,
            market.play(rule, plan, EVALUATION_SEED),
        )
        for rule, offer in market.offers.items()
        for n, plan in enumerate(cost_front(offer, demand, requirement.latency_s), start=1)
    ]


def requirement_step_costs(market: Market, requirement: QualityRequirement) -> dict[str, float | None]:
    """Return the cost of one step of each requirement by tables, USD per hour; None if impossible."""

    def least(quality: float, latency_s: float) -> float:
        plans = (
            least_cost_plan(offer, market.demand, quality, latency_s) for offer in market.offers.values()
        )
        return min((plan.usd_per_hour for plan in plans if plan), default=np.inf)

    now = least(requirement.quality, requirement.latency_s)
    more = {
        f"{QUALITY_STEP:g} of quality more": least(requirement.quality + QUALITY_STEP, requirement.latency_s),
        f"{LATENCY_STEP_SHARE:.0%} of latency less": least(
            requirement.quality, (1 - LATENCY_STEP_SHARE) * requirement.latency_s
        ),
    }
    return {name: usd - now if np.isfinite(usd - now) else None for name, usd in more.items()}


def best_plans_by_tables(
    market: Market, requirement: QualityRequirement
) -> dict[str, tuple[float, PointPlan] | None]:
    """Return quality and plan, by tables: least latency for the quality, and most quality in the latency."""
    demand = market.demand._replace(budget_usd_per_hour=requirement.budget_usd_per_hour)
    fastest, best = list[tuple[float, PointPlan]](), list[tuple[float, PointPlan]]()
    for offer in market.offers.values():
        if plan := least_latency_plan(offer, demand, requirement.quality):
            fastest.append((float(offer.quality[plan.point]), plan))
        if plan := best_quality_plan(offer, demand, requirement.latency_s):
            best.append((float(offer.quality[plan.point]), plan))
    return {
        "least latency": min(fastest, key=lambda pair: pair[1].latency_s, default=None),
        "most quality": max(best, key=lambda pair: (round(pair[0], 6), -pair[1].usd_per_hour), default=None),
    }
