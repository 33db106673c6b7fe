"""What any fleet must spend at least on an hour of true demand, however well it is planned.

Each bound drops something that a real fleet cannot: read upwards, their differences are what it costs.

fluid    instances can be divided, and follow the demand from window to window and from region to region
whole    the same in whole instances
minimum  the same with the least number of instances that the operator wants of each llm
hour     the same held for the whole hour: what a plan by the hour cannot do without

All serve the demand alone: no buffer, no region apart, no boot time, no cap. An instance sustains theta
tokens/s within its SLO (models/replay/capacity.py), so that a fleet below `fluid` misses SLOs on this trace.
"""

from typing import NamedTuple

import numpy as np

from models.plan import paper
from models.plan.problem import Problem
from models.plan.solver import Options

ENDLESS = 10**6  # more GPUs than any region has
EXACT = Options(gap_share=0.0)


class Bounds(NamedTuple):
    """USD of an hour: fluid <= whole <= minimum <= hour <= what any plan without shortage holds."""

    fluid_usd: float
    whole_usd: float
    minimum_usd: float
    hour_usd: float


def bounds(problem: Problem) -> Bounds:
    """The bounds of an hour; its `demand_tokens_per_s` must be the true one, its theta undiminished."""
    p = pooled(problem)
    usd_per_token = np.where(p.runs, p.usd_per_hour / np.where(p.runs, p.tokens_per_s, 1.0), np.inf).min(
        axis=1
    )
    fluid_usd = float(usd_per_token @ p.demand_tokens_per_s[:, 0].mean(axis=1))
    at_least = p._replace(
        min_instances=problem.min_instances.sum(axis=1, keepdims=True),
        min_option_instances=problem.min_option_instances.sum(axis=1, keepdims=True),
    )
    whole_usd = max(_by_window(p), fluid_usd)  # the solver's arithmetic may end a hair below
    minimum_usd = max(_by_window(at_least), whole_usd)
    return Bounds(fluid_usd, whole_usd, minimum_usd, max(paper.solve(at_least, EXACT).bound_usd, minimum_usd))


def _by_window(problem: Problem) -> float:
    """The mean over the windows of the hour, each planned for itself."""
    demand = problem.demand_tokens_per_s
    each = (problem._replace(demand_tokens_per_s=demand[:, :, w : w + 1]) for w in range(problem.windows))
    return float(np.mean([paper.solve(window, EXACT).bound_usd for window in each]))


def pooled(problem: Problem) -> Problem:
    """The same hour as if all regions were one, without limits, that has no instance yet and no boot time."""
    services, _, options = problem.instances_now.shape
    nothing, one = np.zeros((services, 1, options), np.int64), np.ones((services, 1), np.int64)
    return problem._replace(
        regions=("everywhere",),
        instances_now=nothing,
        spot=nothing,
        demand_tokens_per_s=problem.demand_tokens_per_s.sum(axis=1, keepdims=True),
        buffer_tokens_per_s=np.zeros((services, 1)),
        cap_gpus=np.full((1, len(problem.gpus)), ENDLESS),
        min_instances=0 * one,
        max_instances=ENDLESS * one,
        min_option_instances=nothing,
        max_option_instances=nothing + ENDLESS,
        budget_usd=np.inf,
        epsilon=1.0,
        boot_spot_s=np.zeros_like(problem.boot_spot_s),
        boot_cold_s=np.zeros((services, 1, options)),
    )
