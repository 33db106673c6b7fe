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
from fleetcast.assets.plans.quality_asked import Plan, Question, why_none
from fleetcast.assets.plans.quality_markets import FRESH, Market
from fleetcast.models.plan.quality import LEAST_LOAD_SHARE, Answer, Offer, cheapest, loads, most_loads
from fleetcast.models.world.reading import ConfigError

BEYOND = (1.0, 1.1, 1.2, 1.35, 1.5)  # of the asked latency, at which tables propose
BEYOND_LOAD = 1.15  # of the largest load of its table, that a replica may get where a whole replay bears it
ERRORS = 3.92  # standard errors between the ends of an interval of 95 %
CHOOSING = (0, 2)  # seeds of the arrivals that choose


def chosen(market: Market, question: Question, progress: Progress) -> Plan:
    """The cheapest plan that keeps all requirements in the replay."""
    best: tuple[str, Answer] | None = None
    tried: set[tuple[str, int, bytes]] = set()
    with progress.bar("replay plans", market.said.replays) as done:
        waiting = proposed(market, question)
        while len(tried) < market.said.replays:
            one = next((one for one in waiting if _is_worth_it(one, best, tried)), None)
            if one is None:
                break
            tried.add(_key(one))
            done(len(tried))
            if keeps(market, question, *one):
                best = one
                more = sorted(neighbours(market, *best), key=lambda near: near[1].usd_per_hour)
                waiting = chain(waiting, more)
    if best is None:
        raise ConfigError(why_none(market, question, replayed=bool(tried)))
    return Plan("chosen", "chosen", market, *best, market.play(*best, FRESH))


def _is_worth_it(
    one: tuple[str, Answer], best: tuple[str, Answer] | None, tried: set[tuple[str, int, bytes]]
) -> bool:
    is_cheaper = best is None or one[1].usd_per_hour < best[1].usd_per_hour - 1e-9
    return is_cheaper and _key(one) not in tried


def _key(one: tuple[str, Answer]) -> tuple[str, int, bytes]:
    return one[0], one[1].point, one[1].instances.tobytes()


def proposed(market: Market, question: Question) -> Iterator[tuple[str, Answer]]:
    """The cheapest replicas of every point with the quality: at the asked latency, then above it."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    for factor in BEYOND:
        found = [
            (rule, plan)
            for rule, offer in market.offers.items()
            for point in np.flatnonzero(offer.quality - offer.error >= question.quality).tolist()
            if (plan := cheapest(offer, demand, point, factor * question.latency_s)) is not None
        ]
        yield from sorted(found, key=lambda one: one[1].usd_per_hour)


def neighbours(market: Market, rule: str, plan: Answer) -> Iterator[tuple[str, Answer]]:
    """A replica fewer of a shape; a cheaper one in its place; the same replicas at the points beside."""
    offer = market.offers[rule]
    for shape in np.flatnonzero(plan.instances):
        fewer = plan.instances.copy()
        fewer[shape] -= 1
        yield rule, repriced(market, offer, plan._replace(instances=fewer))
        is_like = (offer.llm == offer.llm[shape]) & (offer.usd_per_hour < offer.usd_per_hour[shape])
        for other in np.flatnonzero(is_like):
            swapped = fewer.copy()
            swapped[other] += 1
            used = np.bincount(offer.gpu, swapped * offer.gpus, market.demand.cap_gpus.size)
            if (used <= market.demand.cap_gpus).all():
                yield rule, repriced(market, offer, plan._replace(instances=swapped))
    for point in (plan.point - 1, plan.point + 1):
        if 0 <= point < len(offer.quality):
            yield rule, repriced(market, offer, plan._replace(point=point))


def repriced(market: Market, offer: Offer, plan: Answer) -> Answer:
    """The plan at what its replicas cost."""
    judging_usd = offer.judging_usd(plan.point, market.demand.requests_per_s)
    return plan._replace(usd_per_hour=float(plan.instances @ offer.usd_per_hour) + judging_usd)


def keeps(market: Market, question: Question, rule: str, plan: Answer) -> bool:
    """Whether a plan keeps the requirements in two replays, both with a standard error to spare."""
    offer = market.offers[rule]
    serves = np.bincount(offer.llm, plan.instances, offer.shares.shape[1]) > 0
    if not serves[offer.shares[plan.point] > LEAST_LOAD_SHARE].all():
        return False
    if (loads(offer, market.demand, plan) > BEYOND_LOAD * most_loads(offer, plan.point)).any():
        return False
    for seed in CHOOSING:
        found = market.play(rule, plan, seed)
        if found.p95_s > question.latency_s or found.quality < question.quality:
            return False
        (low_s, high_s), (low, high) = found.intervals()
        spare_s, spare = (high_s - low_s) / ERRORS, (high - low) / ERRORS
        if found.p95_s + spare_s > question.latency_s or found.quality - spare < question.quality:
            return False
    return True
