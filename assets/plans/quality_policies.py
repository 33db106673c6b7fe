"""Policies beside ours: each one's own plan, on the same requests, prices and replays.

What a policy says for rising costs is replayed until a plan keeps quality and latency, with the same errors
to spare as ours: so no policy pays for cautious tables, and none is told cheap that is late. Where none of
its plans keeps both, its dearest stands on the board and is not kept.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.plans.quality_asked import Plan, Question
from fleetcast.assets.plans.quality_markets import FRESH, Market
from fleetcast.assets.plans.quality_search import BEYOND, chosen, keeps
from fleetcast.models.aliases import Ints
from fleetcast.models.plan import boute, gears
from fleetcast.models.plan.cascadia import Tables, latency_tables
from fleetcast.models.plan.quality import LEAST_LOAD_SHARE, Answer, Demand
from fleetcast.models.world.reading import ConfigError

OURS = ("quality", "quality_oracle")
LEAST_QUALITY = 1e-6  # asked of the smallest llm, which is asked for its time alone

Said = Iterator[tuple[str, Answer]]  # plans with their rule, by rising cost


def policies(ours: Plan, knowing: Market, question: Question, progress: Progress) -> list[Plan]:
    """A row for each policy that says anything, and ours, also with the judge that knows."""
    found = [
        one
        for name, say in POLICIES.items()
        if (one := sized(ours.market, question, name, say(ours.market, question))) is not None
    ]
    best = chosen(knowing, question, progress)
    return [*found, *(one._replace(name=n, kind="policy") for n, one in zip(OURS, (ours, best), strict=True))]


def sized(market: Market, question: Question, name: str, said: Said) -> Plan | None:
    """The first plan that keeps what is asked, else the last; None where nothing is said."""
    asked = question._replace(quality=LEAST_QUALITY) if name == "alone_small" else question
    last: tuple[str, Answer] | None = None
    for last in islice(said, market.said.replays):
        if keeps(market, asked, *last):
            break
    return last and Plan(name, "policy", market, *last, market.play(*last, FRESH))


def alone(market: Market, question: Question, llm: int) -> Said:
    """One llm answers all: the plan that our search finds for it, whatever its quality is."""
    offer = market.offers.get("route")
    points = [] if offer is None else np.flatnonzero(offer.shares[:, llm] > 1 - LEAST_LOAD_SHARE).tolist()
    for point in points[:1]:
        assert offer is not None
        only = offer.only(points=np.arange(len(offer.quality)) == point)
        asked = question._replace(quality=LEAST_QUALITY)
        try:
            found = chosen(market._replace(offers={"route": only}), asked, Progress())
        except ConfigError:  # it cannot be in time
            return
        yield "route", found.answer._replace(point=point)


def equal_money(market: Market, question: Question) -> Said:
    """RouteLLM's: a router, and as much money for each llm."""
    offer, demand = market.offers.get("route"), demand_of(market, question)
    return rising(
        boute.equal_money(offer, demand, question.quality, factor * question.latency_s)
        for factor in BEYOND
        if offer is not None
    )


def mixed(market: Market, question: Question) -> Said:
    """BoUTE's: its candidates, all gone through."""
    offer, demand = market.offers.get("route"), demand_of(market, question)
    if offer is not None:
        for one in boute.plans(offer, demand, question.quality, max(BEYOND) * question.latency_s):
            yield "route", one


def of_one_type(market: Market, question: Question) -> Said:
    """BoUTE's on GPUs of one type: that with the dearest ones."""
    offer, demand = market.offers.get("route"), demand_of(market, question)
    if offer is not None:
        is_own = offer.gpu == offer.gpu[(offer.usd_per_hour / offer.gpus).argmax()]
        latency_s = max(BEYOND) * question.latency_s
        for one in boute.plans(offer.only(shapes=is_own), demand, question.quality, latency_s):
            yield "route", spread_over(one, is_own)


def cascade_by(planner: Callable[[Tables, float], Callable[[int], gears.Found]]) -> Callable[..., Said]:
    """Plans of a cascade on each GPU type alone, by cost."""

    def say(market: Market, question: Question) -> Said:
        offer, demand = market.offers.get("cascade"), demand_of(market, question)
        found = []
        for gpu in [] if offer is None else np.unique(offer.gpu):
            assert offer is not None
            is_own = offer.gpu == gpu
            own = offer.only(shapes=is_own)
            if np.unique(own.llm).size == own.shares.shape[1]:
                tables = latency_tables(own, demand, int(demand.cap_gpus[gpu]))
                said = gears.answers(tables, question.latency_s, planner(tables, question.quality))
                found += [spread_over(one, is_own) for one in said]
        for one in sorted(found, key=lambda one: one.usd_per_hour):
            yield "cascade", one

    return say


def demand_of(market: Market, question: Question) -> Demand:
    """What comes, and what may be spent."""
    return market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)


def rising(found: Iterator[Answer | None]) -> Said:
    """Those that are plans of a router, by cost."""
    for one in sorted((one for one in found if one is not None), key=lambda one: one.usd_per_hour):
        yield "route", one


def spread_over(one: Answer, is_own: Ints) -> Answer:
    """A plan of some of the shapes as one of all."""
    instances = np.zeros(is_own.size, np.int64)
    instances[is_own] = one.instances
    return one._replace(instances=instances)


POLICIES: dict[str, Callable[[Market, Question], Said]] = {
    "alone_small": lambda market, question: alone(market, question, 0),
    "alone_large": lambda market, question: alone(market, question, -1),
    "uniform": equal_money,
    "uniform_cascade": cascade_by(gears.by_equal_parts),
    "cascade_serve": cascade_by(gears.by_mean_lengths),
    "cascadia": cascade_by(gears.by_algorithm1),
    "boute": mixed,
    "boute_homo": of_one_type,
}
