"""What is asked of a plan for quality, what a plan is, and why there may be none."""

import math
from typing import NamedTuple

import numpy as np

from fleetcast.assets.plans.quality_markets import Market
from fleetcast.models.plan.quality_milp import PointPlan
from fleetcast.models.plan.quality_objectives import least_cost_plan, least_latency_plan
from fleetcast.models.trials.model_routing import RoutingOutcome
from fleetcast.models.world.toml_dataclasses import ConfigError


class QualityRequirement(NamedTuple):
    """What is asked of a plan."""

    quality: float
    latency_s: float
    budget_usd_per_hour: float = np.inf

    def check(self) -> None:
        """Refuse what no plan could be asked."""
        for name, value, most, what in (
            ("--quality", self.quality, 1.0, "a mean score, above 0 and up to 1"),
            ("--latency", self.latency_s, 1e6, "seconds, above 0"),
            ("--budget", self.budget_usd_per_hour, np.inf, "USD per hour, above 0"),
        ):
            if not 0 < value <= most:
                raise ConfigError(f"{name} {value:g}: needed {what}.")

    @property
    def name(self) -> str:
        """As the lake's folders have it."""
        budget = "" if math.isinf(self.budget_usd_per_hour) else f"_{self.budget_usd_per_hour:g}usd"
        return f"{self.quality:g}_{self.latency_s:g}s{budget}"


class QualityPlan(NamedTuple):
    """A row of quality_plans: a plan with what became of it, or why there is none."""

    name: str
    kind: str  # chosen, baseline, policy, whatif or front
    market: Market
    rule: str
    answer: PointPlan
    served: RoutingOutcome


def explain_infeasible(market: Market, question: QualityRequirement, replayed: bool = False) -> str:
    """Which requirement binds, and what the nearest plan gives."""
    llms = market.said.llms
    best = max(float(offer.quality.max()) for offer in market.offers.values())
    if best < question.quality:
        return (
            f"No plan has a quality of {question.quality:g}: the best of {', '.join(llms)} together "
            f"by the judge {market.name} is {best:.3f}. Ask for less, or add a better llm to [quality]."
        )
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    offers = market.offers.values()
    asked = f"quality {question.quality:g} within {question.latency_s:g} s"
    if not math.isinf(question.budget_usd_per_hour):
        free = [least_cost_plan(one, market.demand, question.quality, question.latency_s) for one in offers]
        if costs := [found.usd_per_hour for found in free if found]:
            return (
                f"No plan gives {asked} for {question.budget_usd_per_hour:g} USD/h: the budget binds; tables "
                f"ask for {min(costs):.2f} USD/h. Raise --budget, or ask for less."
            )
    quick = [found for one in offers if (found := least_latency_plan(one, demand, question.quality))]
    if not quick:
        return f"No plan gives {asked}: these GPUs do not carry the load. Add GPUs to [quality] gpus."
    least = min(one.latency_s for one in quick)
    binds = "the replays of the proposed plans miss it" if replayed else "the latency binds"
    return (
        f"No plan gives {asked}: {binds}; tables promise {least:.1f} s at the least. Raise --latency, or add "
        "GPUs to [quality] gpus."
    )
