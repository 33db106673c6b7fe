"""The requirement of a quality plan, the plan itself, and the reason where there is none."""

import math
from typing import NamedTuple

import numpy as np

from fleetcast.assets.plans.quality_markets import Market
from fleetcast.models.plan.quality_milp import PointPlan
from fleetcast.models.plan.quality_objectives import least_cost_plan, least_latency_plan
from fleetcast.models.trials.model_routing import RoutingOutcome
from fleetcast.models.world.toml_dataclasses import ConfigError


class QualityRequirement(NamedTuple):
    """The quality, latency and budget that a plan must keep."""

    quality: float  # least mean score, 0 to 1
    latency_s: float  # largest P95 of the latency
    budget_usd_per_hour: float = np.inf

    def check(self) -> None:
        """Raise ConfigError for a value out of range."""
        for name, value, most, what in (
            ("--quality", self.quality, 1.0, "a mean score, above 0 and up to 1"),
            ("--latency", self.latency_s, 1e6, "seconds, above 0"),
            ("--budget", self.budget_usd_per_hour, np.inf, "USD per hour, above 0"),
        ):
            if not 0 < value <= most:
                raise ConfigError(f"{name} {value:g}: needed {what}.")

    @property
    def name(self) -> str:
        """Return its name in the lake's folders."""
        budget = "" if math.isinf(self.budget_usd_per_hour) else f"_{self.budget_usd_per_hour:g}usd"
        return f"{self.quality:g}_{self.latency_s:g}s{budget}"


class QualityPlan(NamedTuple):
    """A row of quality_plans: a plan with its replay."""

    name: str
    kind: str  # chosen, baseline, policy, whatif or front
    market: Market
    rule: str  # of routing
    answer: PointPlan
    served: RoutingOutcome  # of the replay on the evaluation set


def explain_infeasible(market: Market, requirement: QualityRequirement, replayed: bool = False) -> str:
    """Return a message on which requirement binds, and on the nearest plan."""
    llms = market.quality_config.llms
    best = max(float(offer.quality.max()) for offer in market.offers.values())
    if best < requirement.quality:
        return (
            f"No plan has a quality of {requirement.quality:g}: the best of {', '.join(llms)} together "
            f"by the judge {market.name} is {best:.3f}. Lower --quality, or add a better llm to [quality]."
        )
    demand = market.demand._replace(budget_usd_per_hour=requirement.budget_usd_per_hour)
    offers = market.offers.values()
    target = f"quality {requirement.quality:g} within {requirement.latency_s:g} s"
    if not math.isinf(requirement.budget_usd_per_hour):
        plans = [
            least_cost_plan(offer, market.demand, requirement.quality, requirement.latency_s)
            for offer in offers
        ]
        if costs := [plan.usd_per_hour for plan in plans if plan]:
            return (
                f"No plan gives {target} for {requirement.budget_usd_per_hour:g} USD/h: the budget binds; "
                f"tables need {min(costs):.2f} USD/h. Raise --budget, or lower the requirement."
            )
    quickest = [plan for offer in offers if (plan := least_latency_plan(offer, demand, requirement.quality))]
    if not quickest:
        return f"No plan gives {target}: these GPUs do not carry the load. Add GPUs to [quality] gpus."
    least = min(plan.latency_s for plan in quickest)
    binds = "the replays of the proposed plans miss it" if replayed else "the latency binds"
    return (
        f"No plan gives {target}: {binds}; tables promise {least:.1f} s at the least. Raise --latency, or "
        "add GPUs to [quality] gpus."
    )
