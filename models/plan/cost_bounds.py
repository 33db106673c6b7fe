"""What any fleet must spend at least on an hour of true demand, however well it is planned.

Each bound drops something that a real fleet cannot: read upwards, their differences are what it costs.

fluid    instances can be divided, and follow the demand from window to window and from region to region
whole    the same in whole instances
minimum  the same with the least number of instances that the operator wants of each llm
hour     the same held for the whole hour: what a plan by the hour cannot do without

All serve the demand alone: no buffer, no region apart, no boot time, no cap. An instance sustains theta
tokens/s within its SLO (models/trials/capacity.py), so that a fleet below `fluid` misses SLOs on this trace.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.problem import TOLERANCE, Problem
from fleetcast.models.plan.solver import DEFAULT_SOLVER


class CostBounds(NamedTuple):
    """USD of an hour: fluid <= whole <= minimum <= hour <= what any plan without shortage holds."""

    fluid_usd: float
    whole_usd: float
    minimum_usd: float
    hour_usd: float


def hour_cost_bounds(problem: Problem) -> CostBounds:
    """The bounds of an hour; its `demand_tokens_per_s` must be the true one, its theta undiminished."""
    p, runs = problem, problem.runs
    usd_per_token = np.where(runs, p.usd_per_hour / np.where(runs, p.tokens_per_s, 1.0), np.inf).min(axis=1)
    demand = p.demand_tokens_per_s.sum(axis=1)  # as if all regions were one
    of_all, of_each = p.min_instances.sum(axis=1), p.min_option_instances.sum(axis=1)
    fluid_usd = float(usd_per_token @ demand.mean(axis=1))
    # The solver's arithmetic may end a hair below.
    whole_usd = max(_whole_usd(p, demand, 0 * of_all, 0 * of_each), fluid_usd)
    minimum_usd = max(_whole_usd(p, demand, of_all, of_each), whole_usd)
    peak = demand.max(axis=1, keepdims=True)
    hour_usd = max(_whole_usd(p, peak, of_all, of_each), minimum_usd)
    return CostBounds(fluid_usd, whole_usd, minimum_usd, hour_usd)


def _whole_usd(problem: Problem, demand: Floats, of_all: Ints, of_each: Ints) -> float:
    """The whole instances of every service that serve its demand, (i, w), in the mean over the windows."""
    return sum(
        float(np.mean([_covering_usd(need, theta[runs], usd[runs], least, each[runs]) for need in needs]))
        for needs, runs, theta, usd, least, each in zip(
            demand, problem.runs, problem.tokens_per_s, problem.usd_per_hour, of_all, of_each, strict=True
        )
    )


def _covering_usd(need: float, theta: Floats, usd: Floats, of_all: int, of_each: Ints) -> float:
    """min usd x: theta x >= need, sum x >= of_all, x >= of_each, x whole; (k,) options of one service."""
    if theta.size == 1:
        return float(usd[0] * max(np.ceil(need / theta[0] * (1 - TOLERANCE)), of_all, of_each[0]))
    from scipy import optimize

    found = optimize.milp(
        usd,
        integrality=np.ones(usd.size),
        bounds=optimize.Bounds(of_each, np.inf),
        constraints=optimize.LinearConstraint(np.stack([theta, np.ones(theta.size)]), [need, of_all]),
        options={"mip_rel_gap": 0.0, "time_limit": DEFAULT_SOLVER.time_limit_s},
    )
    return float(found.mip_dual_bound)
