"""Policies beside ours: each one's own plan, on the same requests, prices and replays.

What a policy says for rising costs is replayed until a plan keeps quality and latency, with the same errors
to spare as ours: so no policy pays for cautious tables, and none is told cheap that is late. Where none of
its plans keeps both, its dearest stands on the board and is not kept.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.plans.quality_markets import EVALUATION_SEED, Market
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement
from fleetcast.assets.plans.quality_search import LATENCY_FACTORS, choose_quality_plan, is_requirement_met
from fleetcast.models.aliases import Ints
from fleetcast.models.plan import boute, cascade_planners
from fleetcast.models.plan.cascadia import LatencyByGpus, latency_by_gpus
from fleetcast.models.plan.quality_milp import LEAST_LOAD_SHARE, PointPlan, QualityDemand
from fleetcast.models.world.toml_dataclasses import ConfigError

OWN_QUALITY_POLICIES = ("quality", "quality_oracle")
MIN_QUALITY = 1e-6  # asked of the smallest llm, which is asked for its time alone

PlansByCost = Iterator[tuple[str, PointPlan]]  # plans with their rule, by rising cost


def plan_quality_policies(
    ours: QualityPlan, knowing: Market, question: QualityRequirement, progress: Progress
) -> list[QualityPlan]:
    """A row for each policy that says anything, and ours, also with the judge that knows."""
    found = [
        one
        for name, say in QUALITY_POLICIES.items()
        if (one := first_sufficient_plan(ours.market, question, name, say(ours.market, question))) is not None
    ]
    best = choose_quality_plan(knowing, question, progress)
    return [
        *found,
        *(
            one._replace(name=n, kind="policy")
            for n, one in zip(OWN_QUALITY_POLICIES, (ours, best), strict=True)
        ),
    ]


def first_sufficient_plan(
    market: Market, question: QualityRequirement, name: str, said: PlansByCost
) -> QualityPlan | None:
    """The first plan that keeps what is asked, else the last; None where nothing is said."""
    asked = question._replace(quality=MIN_QUALITY) if name == "alone_small" else question
    last: tuple[str, PointPlan] | None = None
    for last in islice(said, market.said.replays):
        if is_requirement_met(market, asked, *last):
            break
    return last and QualityPlan(name, "policy", market, *last, market.play(*last, EVALUATION_SEED))


def plan_single_llm(market: Market, question: QualityRequirement, llm: int) -> PlansByCost:
    """One llm answers all: the plan that our search finds for it, whatever its quality is."""
    offer = market.offers.get("route")
    points = [] if offer is None else np.flatnonzero(offer.shares[:, llm] > 1 - LEAST_LOAD_SHARE).tolist()
    for point in points[:1]:
        assert offer is not None
        only = offer.only(points=np.arange(len(offer.quality)) == point)
        asked = question._replace(quality=MIN_QUALITY)
        try:
            found = choose_quality_plan(market._replace(offers={"route": only}), asked, Progress())
        except ConfigError:  # it cannot be in time
            return
        yield "route", found.answer._replace(point=point)


def plan_equal_budget(market: Market, question: QualityRequirement) -> PlansByCost:
    """RouteLLM's: a router, and as much money for each llm."""
    offer, demand = market.offers.get("route"), budgeted_demand(market, question)
    return router_plans_by_cost(
        boute.cheapest_equal_spend_plan(offer, demand, question.quality, factor * question.latency_s)
        for factor in LATENCY_FACTORS
        if offer is not None
    )


def plan_boute(market: Market, question: QualityRequirement) -> PlansByCost:
    """BoUTE's: its candidates, all gone through."""
    offer, demand = market.offers.get("route"), budgeted_demand(market, question)
    if offer is not None:
        for one in boute.boute_plans(
            offer, demand, question.quality, max(LATENCY_FACTORS) * question.latency_s
        ):
            yield "route", one


def plan_boute_one_gpu_type(market: Market, question: QualityRequirement) -> PlansByCost:
    """BoUTE's on GPUs of one type: that with the dearest ones."""
    offer, demand = market.offers.get("route"), budgeted_demand(market, question)
    if offer is not None:
        is_own = offer.gpu == offer.gpu[(offer.usd_per_hour / offer.gpus).argmax()]
        latency_s = max(LATENCY_FACTORS) * question.latency_s
        for one in boute.boute_plans(offer.only(shapes=is_own), demand, question.quality, latency_s):
            yield "route", expand_to_all_shapes(one, is_own)


def make_cascade_planner(
    planner: Callable[[LatencyByGpus, float], Callable[[int], cascade_planners.PointAndGpus]],
) -> Callable[..., PlansByCost]:
    """Plans of a cascade on each GPU type alone, by cost."""

    def say(market: Market, question: QualityRequirement) -> PlansByCost:
        offer, demand = market.offers.get("cascade"), budgeted_demand(market, question)
        found = []
        for gpu in [] if offer is None else np.unique(offer.gpu):
            assert offer is not None
            is_own = offer.gpu == gpu
            own = offer.only(shapes=is_own)
            if np.unique(own.llm).size == own.shares.shape[1]:
                tables = latency_by_gpus(own, demand, int(demand.cap_gpus[gpu]))
                said = cascade_planners.plans_by_gpus(
                    tables, question.latency_s, planner(tables, question.quality)
                )
                found += [expand_to_all_shapes(one, is_own) for one in said]
        for one in sorted(found, key=lambda one: one.usd_per_hour):
            yield "cascade", one

    return say


def budgeted_demand(market: Market, question: QualityRequirement) -> QualityDemand:
    """What comes, and what may be spent."""
    return market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)


def router_plans_by_cost(found: Iterator[PointPlan | None]) -> PlansByCost:
    """Those that are plans of a router, by cost."""
    for one in sorted((one for one in found if one is not None), key=lambda one: one.usd_per_hour):
        yield "route", one


def expand_to_all_shapes(one: PointPlan, is_own: Ints) -> PointPlan:
    """A plan of some of the shapes as one of all."""
    instances = np.zeros(is_own.size, np.int64)
    instances[is_own] = one.instances
    return one._replace(instances=instances)


QUALITY_POLICIES: dict[str, Callable[[Market, QualityRequirement], PlansByCost]] = {
    "alone_small": lambda market, question: plan_single_llm(market, question, 0),
    "alone_large": lambda market, question: plan_single_llm(market, question, -1),
    "uniform": plan_equal_budget,
    "uniform_cascade": make_cascade_planner(cascade_planners.uniform_planner),
    "cascade_serve": make_cascade_planner(cascade_planners.cascadeserve_planner),
    "cascadia": make_cascade_planner(cascade_planners.cascadia_planner),
    "boute": plan_boute,
    "boute_homo": plan_boute_one_gpu_type,
}
