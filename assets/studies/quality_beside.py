"""What stands beside the plan that was chosen: others' plans, the front, what one step more would cost."""

import numpy as np

from fleetcast.assets.plans.quality_asked import Plan, Question
from fleetcast.assets.plans.quality_markets import FRESH, Market
from fleetcast.models.plan import boute
from fleetcast.models.plan.quality import Answer
from fleetcast.models.plan.quality_modes import cost_front, least_cost, least_latency, most_quality

QUALITY_STEP, LATENCY_STEP_SHARE = 0.01, 0.1  # what one step of a requirement is


def baselines(market: Market, question: Question) -> list[Plan]:
    """The cheapest plans of others that tables know: the largest llm alone, equal money, one GPU type."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    found: list[tuple[str, str, Answer | None]] = []
    for rule, offer in market.offers.items():
        own = least_cost(offer, demand, question.quality, question.latency_s)
        found.append((f"{rule}_by_tables", rule, own))
        if rule == "route":
            found.append(("alone", rule, boute.alone(offer, demand, question.latency_s)))
            equal = boute.equal_money(offer, demand, question.quality, question.latency_s)
            found.append(("equal_money", rule, equal))
    for code in np.unique(np.concatenate([offer.gpu for offer in market.offers.values()])):
        gpu = list(market.catalogue.gpus)[code]
        for rule, offer in market.offers.items():
            own = least_cost(
                offer.only(shapes=offer.gpu == code), demand, question.quality, question.latency_s
            )
            if own is not None:
                instances = np.zeros(offer.gpu.size, np.int64)
                instances[offer.gpu == code] = own.instances
                own = own._replace(instances=instances)
            found.append((f"{rule}_{gpu}_only", rule, own))
    return [
        Plan(name, "baseline", market, rule, answer, market.play(rule, answer, FRESH))
        for name, rule, answer in found
        if answer is not None
    ]


def fronts(market: Market, question: Question) -> list[Plan]:
    """Least cost over quality within the latency, by rule, each plan replayed."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    return [
        Plan(f"{rule}_{market.name}_{n:02d}", "front", market, rule, one, market.play(rule, one, FRESH))
        for rule, offer in market.offers.items()
        for n, one in enumerate(cost_front(offer, demand, question.latency_s), start=1)
    ]


def steps_usd(market: Market, question: Question) -> dict[str, float | None]:
    """What one step of either requirement costs by the tables, USD per hour; None where it cannot be."""

    def least(quality: float, latency_s: float) -> float:
        found = (least_cost(offer, market.demand, quality, latency_s) for offer in market.offers.values())
        return min((one.usd_per_hour for one in found if one), default=np.inf)

    now = least(question.quality, question.latency_s)
    more = {
        f"{QUALITY_STEP:g} of quality more": least(question.quality + QUALITY_STEP, question.latency_s),
        f"{LATENCY_STEP_SHARE:.0%} of latency less": least(
            question.quality, (1 - LATENCY_STEP_SHARE) * question.latency_s
        ),
    }
    return {name: usd - now if np.isfinite(usd - now) else None for name, usd in more.items()}


def best_of_tables(market: Market, question: Question) -> dict[str, tuple[float, Answer] | None]:
    """The least latency for the quality, the most quality within the latency: quality and plan, by tables."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    found: dict[str, list[tuple[float, Answer]]] = {"least latency": [], "most quality": []}
    for offer in market.offers.values():
        quick = least_latency(offer, demand, question.quality)
        good = most_quality(offer, demand, question.latency_s)
        for name, one in zip(found, (quick, good), strict=True):
            if one is not None:
                found[name].append((float(offer.quality[one.point]), one))
    return {
        "least latency": min(found["least latency"], key=lambda one: one[1].latency_s, default=None),
        "most quality": max(
            found["most quality"], key=lambda one: (round(one[0], 6), -one[1].usd_per_hour), default=None
        ),
    }
