"""The hourly MILP of SageServe section 5: the formulas of the paper, and the limits that its text describes.

Sets       i services, j regions, k options on which service i runs, g GPU types, w windows of the hour
Data       n[i,j,k] instances, theta[i,k] tokens/s of one, alpha[i,k] USD per instance-hour, sigma[i,k] USD to
           start one, need[i,j,w] tokens/s (forecast rho + buffer, section 6.3), epsilon
Decisions  delta[i,j,k] integer, up[i,j,k] >= 0

min  sum alpha delta  +  sum sigma up
 (start)   up >= delta, which makes it max(0, delta)                             for i,j,k
 (remove)  delta >= -n                                                           for i,j,k
 (local)   sum_k theta (n + delta) >= epsilon max_w need                         for i,j
 (global)  sum_jk theta (n + delta) >= sum_j need                                for i,w

These are the formulas. The text adds limits without formulas: "within the available VM capacities" (5), and a
minimum and a maximum of instances (7.1). With them a fleet can be too small. So shortages are allowed, at a
penalty.
 (cap)     sum_ik uses (n + delta) <= cap                                        for j,g
 (least)   sum_k (n + delta) + q >= min, q >= 0 below the minimum                for i,j
 (most)    sum_k (n + delta) <= max                                              for i,j
           and the same of an option with its own minimum or maximum             for i,j,k
 and + v, v >= 0 in (local), + z, z >= 0 in (global), penalty(z >> v > q) in the objective.
Where no limit binds, the model is exactly the paper's (tests/test_plan.py compares them).

It is simpler than models/plan/corrected_plan.py: a start counts at once, routing is only implied by epsilon,
there is no spot, and instances that stay cost nothing. (alpha delta refunds removed instances, so the optimal
plans are the same as with a cost of all instances. An HourPlan reports the cost of all instances.)
"""

from itertools import product
from time import perf_counter

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.optimisation_model import (
    OptimisationModel,
    add_instance_limits,
    add_variables,
    counts_array,
    linear_sum,
)
from fleetcast.models.plan.problem import (
    BELOW_MINIMUM_PENALTY,
    REMOTE_PENALTY,
    TOLERANCE,
    UNSERVED_PENALTY,
    HourPlan,
    Problem,
)
from fleetcast.models.plan.problem_checks import require_sound_problem
from fleetcast.models.plan.solver import DEFAULT_SOLVER, SolverOptions, solve_model


def solve_sageserve(problem: Problem, options: SolverOptions = DEFAULT_SOLVER) -> HourPlan:
    """Return the paper's plan of the hour; PlanError names every contradiction in the problem."""
    require_sound_problem(problem)
    started = perf_counter()
    found = solve_model(build_sageserve_model(problem), options)
    delta = counts_array(problem.instances_now.shape, found.values["delta"])
    return found.add_solver_bounds(
        plan_from_instances(problem, problem.instances_now + delta), perf_counter() - started
    )


def build_sageserve_model(p: Problem) -> OptimisationModel:
    """Build the MILP of this file's docstring, constraint by constraint."""
    import pulp

    lp = pulp.LpProblem("hour", pulp.LpMinimize)
    services, regions, options, windows = (range(size) for size in (*p.instances_now.shape, p.windows))
    on = [[k for k in options if p.runs[i, k]] for i in services]  # the options that service i runs on
    ij = list(product(services, regions))
    ijk = [(i, j, k) for i, j in ij for k in on[i]]
    n, theta, need = p.instances_now, p.tokens_per_s, p.need_tokens_per_s
    alpha, sigma = p.usd_per_hour, p.reclaim_usd
    per_token, per_instance = p.penalty_usd

    delta = add_variables(lp, "delta", ijk, lower=-n, integer=True)  # (remove)
    up = add_variables(lp, "up", ijk)
    v, q = (add_variables(lp, name, ij) for name in "vq")
    z = add_variables(lp, "z", [(i,) for i in services])

    gamma = linear_sum((delta[i, j, k], alpha[i, k]) for i, j, k in ijk)
    mu = linear_sum((up[i, j, k], sigma[i, k]) for i, j, k in ijk)
    unserved = [(x, UNSERVED_PENALTY * per_token[i]) for (i,), x in z.items()]
    remote = [(x, REMOTE_PENALTY * per_token[i]) for (i, _), x in v.items()]
    below = [(x, BELOW_MINIMUM_PENALTY * per_instance[i]) for (i, _), x in q.items()]
    now_usd = float((n * np.where(p.runs, alpha, 0.0)[:, None, :]).sum())
    cost = gamma + mu + now_usd
    lp += cost + linear_sum([*unserved, *remote, *below])

    for key in ijk:
        lp += linear_sum([(up[key], 1.0), (delta[key], -1.0)]) >= 0, "start_{}_{}_{}".format(*key)
    more = {(i, j): [(delta[i, j, k], theta[i, k]) for k in on[i]] for i, j in ij}
    serves = np.einsum("ijk,ik->ij", n, np.where(p.runs, theta, 0.0))
    for i, j in ij:
        least = p.epsilon * need[i, j].max() - serves[i, j]
        lp += linear_sum([*more[i, j], (v[i, j], 1.0)]) >= least, f"local_{i}_{j}"
    for i, w in product(services, windows):
        everywhere = [*(term for j in regions for term in more[i, j]), (z[i,], 1.0)]
        lp += linear_sum(everywhere) >= need[i, :, w].sum() - serves[i].sum(), f"global_{i}_{w}"
    add_instance_limits(lp, p, {key: [(x, 1.0)] for key, x in delta.items()}, q)
    return OptimisationModel(lp, cost, {"delta": delta})


def plan_from_instances(problem: Problem, instances: Ints) -> HourPlan:
    """Return the plan of given instances, shape (i, j, k), with its cost and shortages."""
    delta, need = instances - problem.instances_now, problem.need_tokens_per_s
    up, nothing = np.maximum(delta, 0), np.zeros_like(delta)
    serves = np.einsum("ijk,ik->ij", instances, np.where(problem.runs, problem.tokens_per_s, 0.0))
    v = _missing(problem.epsilon * need.max(axis=2), serves)
    z = _missing(need.sum(axis=1).max(axis=1), serves.sum(axis=1))
    q = problem.missing_instances(instances)
    alpha = np.where(problem.runs, problem.usd_per_hour, 0.0)[:, None, :]
    usd = float((alpha * instances + problem.reclaim_usd[:, None, :] * up).sum())
    per_token, per_instance = problem.penalty_usd
    unserved, remote = UNSERVED_PENALTY * per_token @ z, REMOTE_PENALTY * per_token @ v.sum(axis=1)
    return HourPlan(
        programme="paper",
        instances=instances,
        reclaimed=nothing,
        started=up,
        donated=up - delta,
        windows=None,
        short_tokens_per_s=v,
        short_llm_tokens_per_s=z,
        missing_instances=q,
        objective_usd=usd,
        full_usd=usd + float(unserved + remote + BELOW_MINIMUM_PENALTY * per_instance @ q.sum(axis=1)),
    )


def _missing(needed: Floats, served: Floats) -> Floats:
    """Return the unserved tokens/s, 0 where it is only a rounding error; shapes alike."""
    return np.where(needed - served > TOLERANCE * needed, needed - served, 0.0)
