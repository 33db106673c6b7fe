"""Lower bounds of the cost of one hour of true demand, for any fleet and any planner.

Each bound drops one constraint of the bound below it. Their differences are the costs of these constraints.

fluid    instances are divisible, and follow the demand from window to window and from region to region
whole    the same in whole instances
minimum  the same with the operator's minimum number of instances of each llm
hour     the same instances for the whole hour, as an hourly plan needs

All bounds serve the demand alone: no buffer, no separate regions, no boot time, no cap. An instance sustains
theta tokens/s within its SLO (models/trials/capacity.py). A fleet below `fluid` therefore misses SLOs.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.problem import TOLERANCE, Problem
from fleetcast.models.plan.solver import DEFAULT_SOLVER


class CostBounds(NamedTuple):
    """USD of an hour: fluid <= whole <= minimum <= hour <= cost of any plan without shortage."""

    fluid_usd: float
    whole_usd: float
    with_minimum_usd: float
    whole_hours_usd: float


def hour_cost_bounds(problem: Problem) -> CostBounds:
    """Return the bounds of an hour, from the true `demand_tokens_per_s` and the full theta of an instance."""
    p, runs = problem, problem.runs
    usd_per_token = np.where(runs, p.usd_per_hour / np.where(runs, p.tokens_per_s, 1.0), np.inf).min(axis=1)
    demand = p.demand_tokens_per_s.sum(axis=1)  # all regions count as one
    min_total, min_option = p.min_instances.sum(axis=1), p.min_option_instances.sum(axis=1)
    fluid_usd = float(usd_per_token @ demand.mean(axis=1))
    without_minimum = _window_usd(p, demand, 0 * min_total, 0 * min_option)
    with_minimum = _window_usd(p, demand, min_total, min_option)
    # By rounding, the solver's bound may be slightly below the previous one.
    whole_usd = max(sum(float(np.mean(usd)) for usd in without_minimum), fluid_usd)
    with_minimum_usd = max(sum(float(np.mean(usd)) for usd in with_minimum), whole_usd)
    whole_hours_usd = max(sum(max(usd) for usd in with_minimum), with_minimum_usd)  # of the busiest window
    return CostBounds(fluid_usd, whole_usd, with_minimum_usd, whole_hours_usd)


def _window_usd(problem: Problem, demand: Floats, min_total: Ints, min_option: Ints) -> list[list[float]]:
    """Return the cost of whole instances that serve the demand, by service and window.

    `demand` (i, w) in tokens/s; minimum instances `min_total` (i,) and `min_option` (i, k).
    """
    p, found = problem, []
    services = zip(demand.tolist(), p.runs, p.tokens_per_s, p.usd_per_hour, min_option, strict=True)
    for (needs, runs, *of_options), least in zip(services, min_total.tolist(), strict=True):
        theta, usd, each = (tuple(values[runs].tolist()) for values in of_options)
        found.append([_covering_usd(need, theta, usd, least, each) for need in needs])
    return found


@lru_cache(maxsize=10_000)  # hours without demand, and days that are planned again, have the same problems
def _covering_usd(
    need: float, theta: tuple[float, ...], usd: tuple[float, ...], min_total: int, min_option: tuple[int, ...]
) -> float:
    """Return min usd x s.t. theta x >= need, sum x >= min_total, x >= min_option, x whole.

    `theta`, `usd` and `min_option` have one value for each option of a service.
    """
    if len(theta) == 1:
        return float(usd[0] * max(np.ceil(need / theta[0] * (1 - TOLERANCE)), min_total, min_option[0]))
    from scipy import optimize

    found = optimize.milp(
        usd,
        integrality=np.ones(len(usd)),
        bounds=optimize.Bounds(min_option, np.inf),
        constraints=optimize.LinearConstraint(np.stack([theta, np.ones(len(theta))]), [need, min_total]),
        options={"mip_rel_gap": 0.0, "time_limit": DEFAULT_SOLVER.time_limit_s},
    )
    return float(found.mip_dual_bound)
