"""The corrected model: the MILP of SageServe section 5, with the parts that the paper leaves open.

It is the default of every plan.

Sets       i services, j regions, k options on which service i runs, g GPU types, w windows of the hour
Data       n[i,j,k] serving instances, s[i,j,k] donated instances of the same service, theta[i,k] tokens/s and
           uses[i,k,g] GPUs of one instance, c[m,i,k] what each of m instances sustains as a share of theta, 1
           from four on, alpha[i,k] USD per instance-hour, rho[i,j,w] forecast tokens/s (a quantile), b[i,j]
           tokens/s of buffer for the batch tier, cap[j,g] GPUs, min[i,j], max[i,j] instances, min[i,j,k],
           max[i,j,k] of an option with its own limits, most[i,j,k] that fit, epsilon, budget USD per hour, h
           hours that the plan holds, as shares of alpha pi the earnings of a donated instance and eta the
           expected later cost of releasing one, kappa[i] USD of serving 1 token/s in another region for a
           window, reclaim[i,k] and cold[i,j,k] USD of GPU time lost in booting, tauW[i,k] and tauC[i,j,k] the
           first window in which a start counts
Decisions  aW, aC, d[i,j,k] integer >= 0: reclaimed, started cold, donated; x = n + aW + aC - d
           e[i,j,w] >= 0: tokens/s of the region's demand that other regions serve
           z, v, y[i,j,w] >= 0, q[i,j] >= 0: unserved, too far from home, buffer not kept, below the minimum
           f[i,j,k,t,m] binary for m = 1 to 4: m instances are up, 4 or more for m = 4; r[i,j,k,t] >= 0 those
           above four. t is the number of kinds of starts (of aW, aC) that count in the window

min  sum h alpha x + (1 - pi) h alpha (s + d - aW)                      (hold: a donated instance earns pi)
   + sum reclaim aW + cold aC + eta alpha d                             (start, release)
   + sum kappa e                                                        (latency)
   + penalty(z >> v > q > y)                                            (short)
 (home)      C[i,j,w] + e + z + y >= rho + b                                                    for i,j,w
 (pool)      sum_j C[i,j,w] + z + y >= sum_j rho + b                                            for i,w
             with C[i,j,w] = sum_k theta (u - sum_m (1 - c[m]) m f[m]), u = n - d + aW[w >= tauW]
             + aC[w >= tauC]
 (size)      u = sum_m m f[m] + r, r <= (most - 4) f[4]                                         for i,j,k,t
 (locality)  e <= (1 - epsilon) rho + v                                                         for i,j,w
 (buffer)    y <= b                                                                             for i,j,w
 (cap)       sum_ik uses x <= cap                                                               for j,g
 (least)     sum_k x + q >= min, x + q >= min of the option                                     for i,j(,k)
 (most)      sum_k x <= max, x <= max of the option                                             for i,j(,k)
 (budget)    sum alpha x <= budget
 (spot)      aW <= s                                                                            for i,j,k
 (own)       d <= n                                                                             for i,j,k

(size) finds the m that loses least: to split three instances into one and two never loses less, as c rises.
(pool) means that exports of one region are imports of another: it is the condition under which imports m >= 0
with C + e + z + y - m >= rho + b and sum_j m = sum_j e exist. So the model needs no variables m. The model is
always feasible: unserved demand is part of the plan, by service, region and window. Once the integers are
known, models/plan/window_flows.py computes e, m, z, v and y from them. The plan reports these values, which
are free of the solver's rounding.
"""

from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.optimisation_model import (
    LinearTerms,
    OptimisationModel,
    VariableKey,
    VariablesByKey,
    add_instance_limits,
    add_variables,
    counts_array,
    linear_sum,
)
from fleetcast.models.plan.pool_capacity import LARGE
from fleetcast.models.plan.problem import (
    BELOW_MINIMUM_PENALTY,
    BUFFER_PENALTY,
    REMOTE_PENALTY,
    UNSERVED_PENALTY,
    HourPlan,
    Problem,
)
from fleetcast.models.plan.problem_checks import require_sound_problem
from fleetcast.models.plan.solver import DEFAULT_SOLVER, SolverOptions, solve_model
from fleetcast.models.plan.window_flows import plan_from_changes


def solve_corrected(problem: Problem, options: SolverOptions = DEFAULT_SOLVER) -> HourPlan:
    """Return the cheapest plan of the hour; PlanError names every contradiction in the problem."""
    require_sound_problem(problem)
    started = perf_counter()
    found = solve_model(build_corrected_model(problem), options)
    integers = (counts_array(problem.instances_now.shape, found.values[name]) for name in ("aW", "aC", "d"))
    return found.add_solver_bounds(
        plan_from_changes(problem, *net_changes(*integers)), perf_counter() - started
    )


def net_changes(reclaimed: Ints, cold: Ints, donated: Ints) -> tuple[Ints, Ints, Ints]:
    """Remove pairs of a donation and a start of the same option in one hour.

    They are never better than neither. But a solver may choose both where they cost nothing.

    Parameters
    ----------
    reclaimed, cold, donated : shape (i, j, k), instances

    Returns
    -------
    The same three, with the same instances at the end of the hour.
    """
    pairs = np.minimum(donated, cold)
    cold, donated = cold - pairs, donated - pairs
    pairs = np.minimum(donated, reclaimed)
    return reclaimed - pairs, cold, donated - pairs


def build_corrected_model(p: Problem) -> OptimisationModel:
    """Build the MILP of this file's docstring, constraint by constraint."""
    import pulp

    lp = pulp.LpProblem("hour", pulp.LpMinimize)
    services, regions, options, windows = (range(size) for size in (*p.instances_now.shape, p.windows))
    on = [[k for k in options if p.runs[i, k]] for i in services]  # the options that service i runs on
    ij, ijw = list(product(services, regions)), list(product(services, regions, windows))
    ijk = [(i, j, k) for i, j in ij for k in on[i]]
    need, far = p.need_tokens_per_s, (1 - p.epsilon) * p.demand_tokens_per_s

    a_w = add_variables(lp, "aW", ijk, upper=p.spot, integer=True)  # (spot)
    a_c = add_variables(lp, "aC", ijk, integer=True)
    d = add_variables(lp, "d", ijk, upper=p.instances_now, integer=True)  # (own)
    e, z, v = (add_variables(lp, name, ijw) for name in "ezv")
    y = add_variables(
        lp, "y", ijw, upper=np.broadcast_to(p.buffer_tokens_per_s[:, :, None], need.shape)
    )  # (buffer)
    q = add_variables(lp, "q", ij)

    hold, change = holding_cost(p, a_w, a_c, d), starting_cost(p, a_w, a_c, d)
    kappa = p.export_usd
    cost = hold + change + linear_sum((e[key], kappa[key[0]]) for key in e)
    lp += cost + shortage_penalty(p, z, v, y, q)

    serving, more = serving_tokens_per_s(p), added_capacity_terms(p, on, a_w, a_c, d)
    lost, f = add_small_pools(lp, p, a_w, a_c, d)
    for key in ijw:
        i, j, w = key
        more[key] += [*lost[key], (z[key], 1.0), (y[key], 1.0)]
        lp += linear_sum([*more[key], (e[key], 1.0)]) >= need[key] - serving[i, j], f"home_{i}_{j}_{w}"
        lp += linear_sum([(e[key], 1.0), (v[key], -1.0)]) <= far[key], f"locality_{i}_{j}_{w}"
    for i, w in product(services, windows):
        everywhere = linear_sum(term for j in regions for term in more[i, j, w])
        lp += everywhere >= need[i, :, w].sum() - serving[i].sum(), f"pool_{i}_{w}"

    delta: dict[VariableKey, LinearTerms] = {key: [(a_w[key], 1), (a_c[key], 1), (d[key], -1)] for key in ijk}
    add_instance_limits(lp, p, delta, q)
    if np.isfinite(p.budget_usd):
        now_usd = float((p.instances_now * np.where(p.runs, p.usd_per_hour, 0.0)[:, None, :]).sum())
        spent = linear_sum((x, p.usd_per_hour[i, k] * sign) for i, j, k in ijk for x, sign in delta[i, j, k])
        lp += spent <= p.budget_usd - now_usd, "budget"
    return OptimisationModel(lp, cost, {"aW": a_w, "aC": a_c, "d": d}, list(f.values()))


def holding_cost(p: Problem, a_w: VariablesByKey, a_c: VariablesByKey, d: VariablesByKey) -> Any:
    """Return (hold) h alpha x + (1 - pi) h alpha (s + d - aW): a reclaim loses pi, a donation earns it."""
    alpha, pi = p.hours * p.usd_per_hour, p.spot_earning_share
    now = p.instances_now + (1 - pi) * p.spot
    fixed = float((np.where(p.runs, alpha, 0.0)[:, None, :] * now).sum())
    reclaimed = [(a_w[i, j, k], alpha[i, k] * pi) for i, j, k in a_w]
    cold = [(a_c[i, j, k], alpha[i, k]) for i, j, k in a_c]
    return linear_sum([*reclaimed, *cold, *((d[i, j, k], -alpha[i, k] * pi) for i, j, k in d)]) + fixed


def starting_cost(p: Problem, a_w: VariablesByKey, a_c: VariablesByKey, d: VariablesByKey) -> Any:
    """Return (start, release) reclaim aW + cold aC + eta alpha d."""
    reclaim, cold = p.reclaim_usd, p.cold_usd
    release = p.hysteresis_share * p.usd_per_hour
    return linear_sum(
        [
            *((a_w[i, j, k], reclaim[i, k]) for i, j, k in a_w),
            *((a_c[key], cold[key]) for key in a_c),
            *((d[i, j, k], release[i, k]) for i, j, k in d),
        ]
    )


def shortage_penalty(
    p: Problem, z: VariablesByKey, v: VariablesByKey, y: VariablesByKey, q: VariablesByKey
) -> Any:
    """Return (short) the missing tokens/s and instances, each times its penalty."""
    per_token, per_instance = p.penalty_usd
    by_token = (
        (z, UNSERVED_PENALTY * per_token),
        (v, REMOTE_PENALTY * per_token),
        (y, BUFFER_PENALTY * per_token),
    )
    below = (q, BELOW_MINIMUM_PENALTY * per_instance)
    return linear_sum((x, usd[key[0]]) for missing, usd in (*by_token, below) for key, x in missing.items())


def serving_tokens_per_s(p: Problem) -> Floats:
    """Return theta n of all options, tokens/s, shape (i, j)."""
    return np.einsum("ijk,ik->ij", p.instances_now, np.where(p.runs, p.tokens_per_s, 0.0))


def added_capacity_terms(
    p: Problem, on: list[list[int]], a_w: VariablesByKey, a_c: VariablesByKey, d: VariablesByKey
) -> dict[VariableKey, LinearTerms]:
    """Return the terms of sum_k theta (u - n), by (i, j, w).

    A start counts from its window on, a donation at once. `on` lists the options that service i runs on.
    """
    theta, tau_w, tau_c = p.tokens_per_s, p.reclaim_window, p.cold_window
    terms: dict[VariableKey, LinearTerms] = {}
    for i, j, w in np.ndindex(*p.demand_tokens_per_s.shape):
        up = terms[i, j, w] = [(d[i, j, k], -theta[i, k]) for k in on[i]]
        up += [(a_w[i, j, k], theta[i, k]) for k in on[i] if w >= tau_w[i, k]]
        up += [(a_c[i, j, k], theta[i, k]) for k in on[i] if w >= tau_c[i, j, k]]
    return terms


def add_small_pools(
    lp: Any, p: Problem, a_w: VariablesByKey, a_c: VariablesByKey, d: VariablesByKey
) -> tuple[dict[VariableKey, LinearTerms], VariablesByKey]:
    """Add (size) for the options of which a few instances sustain less than theta each.

    Returns
    -------
    lost : the terms of -sum_km theta (1 - c[m]) m f[m], by (i, j, w)
    f : the variables, by (i, j, k, t, m)
    """
    lost = p.tokens_per_s * (1 - p.size_shares) * np.arange(1, LARGE + 1)[:, None, None]
    most, tau_w, tau_c = p.most_instances, p.reclaim_window, p.cold_window
    terms: dict[VariableKey, LinearTerms] = {key: [] for key in np.ndindex(*p.demand_tokens_per_s.shape)}
    every: VariablesByKey = {}
    for i, j, k in (key for key in d if lost[:, key[0], key[2]].any()):
        starts = [(tau_w[i, k], a_w[i, j, k]), (tau_c[i, j, k], a_c[i, j, k])]
        for w in range(p.windows):
            up = [(d[i, j, k], -1.0), *((start, 1.0) for tau, start in starts if w >= tau)]
            keys = [(i, j, k, len(up) - 1, m) for m in range(1, LARGE + 1) if m <= most[i, j, k]]
            if not every.keys() >= set(keys):
                one = np.broadcast_to(1, (*most.shape, 3, LARGE + 1))
                every |= (f := add_variables(lp, "f", keys, upper=one, integer=True))
                _add_size(lp, f, up, int(p.instances_now[i, j, k]), int(most[i, j, k]))
            terms[i, j, w] += [(every[key], -lost[key[-1] - 1, i, k]) for key in keys]
    return terms, every


def _add_size(lp: Any, f: VariablesByKey, up: LinearTerms, now: int, most: int) -> None:
    """Add (size) of one (i, j, k, t), whose u is `now` and the terms `up`, and of which `most` fit."""
    last = max(f)  # f[4], or of the largest size that fits
    at, name = last[:-1], "_".join(map(str, last[:-1]))
    r = add_variables(lp, "r", [at])[at]
    parts = [(x, -float(key[-1])) for key, x in f.items()]
    lp += linear_sum([*up, *parts, (r, -1.0)]) == -now, f"size_{name}"
    lp += linear_sum([(r, 1.0), (f[last], -float(max(most - LARGE, 0)))]) <= 0, f"above_four_{name}"
