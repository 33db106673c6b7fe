"""What any fleet must spend at least on an hour of true demand, however well it is planned.

Each bound drops something that a real fleet cannot: read upwards, their differences are what it costs.

fluid   instances can be divided, and follow the demand from window to window and from region to region
whole   the same in whole instances
hour    the same held for the whole hour

All three serve the demand alone: no buffer, no minimum, no region apart, no boot time. An instance sustains
theta tokens/s within its SLO (models/capacity.py), so that a fleet below `fluid` misses SLOs on this trace.
"""

from typing import NamedTuple

import numpy as np

from models.plan import paper
from models.plan.problem import Problem
from models.plan.solver import Options

EXACT = Options(gap_share=0.0)


class Bounds(NamedTuple):
    """USD of an hour: fluid <= whole <= hour <= what any plan without shortage holds."""

    fluid_usd: float
    whole_usd: float
    hour_usd: float


def bounds(problem: Problem) -> Bounds:
    """The three bounds of an hour; its `demand_tokens_per_s` must be the true one, its theta undiminished."""
    p = pooled(problem)
    usd_per_token = np.where(p.runs, p.usd_per_hour / np.where(p.runs, p.tokens_per_s, 1.0), np.inf).min(
        axis=1
    )
    fluid_usd = float(usd_per_token @ p.demand_tokens_per_s[:, 0].mean(axis=1))
    each = [
        paper.solve(p._replace(demand_tokens_per_s=p.demand_tokens_per_s[:, :, w : w + 1]), EXACT).bound_usd
        for w in range(p.windows)
    ]
    whole_usd = max(float(np.mean(each)), fluid_usd)  # the solver's arithmetic may end a hair below
    return Bounds(fluid_usd, whole_usd, max(paper.solve(p, EXACT).bound_usd, whole_usd))


def pooled(problem: Problem) -> Problem:
    """The same hour as if all regions were one, which has no instance yet, no limit but its GPUs, no boot."""
    llms, _, gpus = problem.instances_now.shape
    nothing, one = np.zeros((llms, 1, gpus), np.int64), np.ones((llms, 1), np.int64)
    cap_gpus = problem.cap_gpus.sum(axis=0, keepdims=True)
    return problem._replace(
        regions=("everywhere",),
        instances_now=nothing,
        spot=nothing,
        demand_tokens_per_s=problem.demand_tokens_per_s.sum(axis=1, keepdims=True),
        buffer_tokens_per_s=np.zeros((llms, 1)),
        cap_gpus=cap_gpus,
        min_instances=0 * one,
        max_instances=int(cap_gpus.sum()) * one,
        budget_usd=np.inf,
        epsilon=1.0,
        boot_spot_s=np.zeros_like(problem.boot_spot_s),
        boot_cold_s=np.zeros((llms, 1)),
    )
