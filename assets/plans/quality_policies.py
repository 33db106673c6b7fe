"""Quality plans of other policies, on the same requests, prices and replays as fleetcast's.

The plans of a policy are replayed by rising cost until one meets quality and latency, with the same standard
errors to spare as fleetcast's plan. So no policy pays for cautious tables, and no late plan counts as cheap.
Where none of its plans meets both, its most expensive plan is reported, and does not meet the requirement.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.plans.quality_markets import EVALUATION_SEED, Market
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement
from fleetcast.assets.plans.quality_search import LATENCY_FACTORS, choose_quality_plan, is_requirement_met
from fleetcast.models.aliases import Bools
from fleetcast.models.plan import boute, cascade_planners
from fleetcast.models.plan.cascadia import LatencyByGpus, latency_by_gpus
from fleetcast.models.plan.quality_milp import LEAST_LOAD_SHARE, PointPlan, QualityDemand
from fleetcast.models.world.toml_dataclasses import ConfigError

OWN_QUALITY_POLICIES = ("quality", "quality_oracle")
MIN_QUALITY = 1e-6  # required of a single llm: only its latency counts

PlansByCost = Iterator[tuple[str, PointPlan]]  # (routing rule, plan), by rising cost


def plan_quality_policies(
    chosen: QualityPlan, oracle: Market, requirement: QualityRequirement, progress: Progress
) -> list[QualityPlan]:
    """Return the plan of each policy that has one, then `chosen` and the plan with the oracle judge."""
    market = chosen.market
    found = (
        first_sufficient_plan(market, requirement, name, plans_by_cost(market, requirement))
        for name, plans_by_cost in QUALITY_POLICIES.items()
    )
    plans = [plan for plan in found if plan is not None]
    best = choose_quality_plan(oracle, requirement, progress)
    return plans + [
        plan._replace(name=name, kind="policy")
        for name, plan in zip(OWN_QUALITY_POLICIES, (chosen, best), strict=True)
    ]


def first_sufficient_plan(
    market: Market, requirement: QualityRequirement, name: str, plans: PlansByCost
) -> QualityPlan | None:
    """Return the first plan that meets the requirement, else the last one; None where there is no plan."""
    if name == "alone_small":
        requirement = requirement._replace(quality=MIN_QUALITY)
    last: tuple[str, PointPlan] | None = None
    for last in islice(plans, market.quality_config.replays):
        if is_requirement_met(market, requirement, *last):
            break
    return last and QualityPlan(name, "policy", market, *last, market.play(*last, EVALUATION_SEED))


def plan_single_llm(market: Market, requirement: QualityRequirement, llm: int) -> PlansByCost:
    """Yield the plan that fleetcast's search finds for one llm alone, whatever its quality is."""
    offer = market.offers.get("route")
    points = [] if offer is None else np.flatnonzero(offer.shares[:, llm] > 1 - LEAST_LOAD_SHARE).tolist()
    for point in points[:1]:
        assert offer is not None
        only = offer.only(points=np.arange(len(offer.quality)) == point)
        latency_only = requirement._replace(quality=MIN_QUALITY)
        try:
            plan = choose_quality_plan(market._replace(offers={"route": only}), latency_only, Progress())
        except ConfigError:  # it cannot meet the latency
            return
        yield "route", plan.answer._replace(point=point)


def plan_equal_budget(market: Market, requirement: QualityRequirement) -> PlansByCost:
    """Yield RouteLLM's plans: a router, and the same spending for each llm."""
    offer, demand = market.offers.get("route"), budgeted_demand(market, requirement)
    return router_plans_by_cost(
        boute.cheapest_equal_spend_plan(offer, demand, requirement.quality, factor * requirement.latency_s)
        for factor in LATENCY_FACTORS
        if offer is not None
    )


def plan_boute(market: Market, requirement: QualityRequirement) -> PlansByCost:
    """Yield BoUTE's plans: all its candidates."""
    offer, demand = market.offers.get("route"), budgeted_demand(market, requirement)
    if offer is not None:
        latency_s = max(LATENCY_FACTORS) * requirement.latency_s
        for plan in boute.boute_plans(offer, demand, requirement.quality, latency_s):
            yield "route", plan


def plan_boute_one_gpu_type(market: Market, requirement: QualityRequirement) -> PlansByCost:
    """Yield BoUTE's plans on GPUs of one type: the most expensive one."""
    offer, demand = market.offers.get("route"), budgeted_demand(market, requirement)
    if offer is not None:
        is_used = offer.gpu == offer.gpu[(offer.usd_per_hour / offer.gpus).argmax()]
        latency_s = max(LATENCY_FACTORS) * requirement.latency_s
        for plan in boute.boute_plans(offer.only(shapes=is_used), demand, requirement.quality, latency_s):
            yield "route", expand_to_all_shapes(plan, is_used)


def make_cascade_planner(
    planner: Callable[[LatencyByGpus, float], Callable[[int], cascade_planners.PointAndGpus]],
) -> Callable[..., PlansByCost]:
    """Return a policy that plans a cascade on each GPU type alone, by cost."""

    def plans_by_cost(market: Market, requirement: QualityRequirement) -> PlansByCost:
        offer, demand = market.offers.get("cascade"), budgeted_demand(market, requirement)
        plans = []
        for gpu in [] if offer is None else np.unique(offer.gpu):
            assert offer is not None
            is_used = offer.gpu == gpu
            only = offer.only(shapes=is_used)
            if np.unique(only.llm).size == only.shares.shape[1]:
                tables = latency_by_gpus(only, demand, int(demand.cap_gpus[gpu]))
                found = cascade_planners.plans_by_gpus(
                    tables, requirement.latency_s, planner(tables, requirement.quality)
                )
                plans += [expand_to_all_shapes(plan, is_used) for plan in found]
        for plan in sorted(plans, key=lambda plan: plan.usd_per_hour):
            yield "cascade", plan

    return plans_by_cost


def budgeted_demand(market: Market, requirement: QualityRequirement) -> QualityDemand:
    """Return the demand with the budget of the requirement."""
    return market.demand._replace(budget_usd_per_hour=requirement.budget_usd_per_hour)


def router_plans_by_cost(found: Iterator[PointPlan | None]) -> PlansByCost:
    """Yield the plans that are not None, by cost, as plans of a router."""
    for plan in sorted((plan for plan in found if plan is not None), key=lambda plan: plan.usd_per_hour):
        yield "route", plan


def expand_to_all_shapes(plan: PointPlan, is_used: Bools) -> PointPlan:
    """Return a plan of some shapes as a plan of all; `is_used`, (shapes,), marks the plan's shapes."""
    instances = np.zeros(is_used.size, np.int64)
    instances[is_used] = plan.instances
    return plan._replace(instances=instances)


QUALITY_POLICIES: dict[str, Callable[[Market, QualityRequirement], PlansByCost]] = {
    "alone_small": lambda market, requirement: plan_single_llm(market, requirement, 0),
    "alone_large": lambda market, requirement: plan_single_llm(market, requirement, -1),
    "uniform": plan_equal_budget,
    "uniform_cascade": make_cascade_planner(cascade_planners.uniform_planner),
    "cascade_serve": make_cascade_planner(cascade_planners.cascadeserve_planner),
    "cascadia": make_cascade_planner(cascade_planners.cascadia_planner),
    "boute": plan_boute,
    "boute_homo": plan_boute_one_gpu_type,
}
