"""The hourly programme of SageServe section 5, in PuLP, with what the paper leaves open closed.

Sets       i llms, j regions, k GPU types, w windows of the hour
Data       n[i,j,k] instances now, theta[i,k] tokens/s and gpus[i,k] of one instance, cap[j,k] GPUs,
           alpha[i,k] USD per instance-hour, sigma[i,k] USD to start an instance,
           need[i,j,w] tokens/s (forecast rho + buffer), epsilon, min[i,j], max[i,j]
Decisions  x[i,j,k] instances of the hour, integer >= 0, where llm i runs on k; delta = x - n, so delta >= -n
           up[i,j,k] >= 0 started; v[i,j], z[i], q[i,j] >= 0 short at home, short in all, below the minimum

min  sum alpha x  +  sum sigma up  +  penalty(v, z, q)                           (hold, start, short)
 (start)   up[i,j,k] >= x[i,j,k] - n[i,j,k]                                      for i,j,k
 (local)   sum_k theta[i,k] x[i,j,k] + v[i,j] >= epsilon max_w need[i,j,w]       for i,j
 (global)  sum_jk theta[i,k] x[i,j,k] + z[i] >= sum_j need[i,j,w]                for i,w
 (cap)     sum_i gpus[i,k] x[i,j,k] <= cap[j,k]                                  for j,k
 (least)   sum_k x[i,j,k] + q[i,j] >= min[i,j]                                   for i,j
 (most)    sum_k x[i,j,k] <= max[i,j]                                            for i,j

The paper minimises alpha delta + sigma max(0, delta). Its first term is the holding cost less the constant
alpha n, so both have the same best plans; the paper has no (cap), (least), (most), and no plan when short.
v, z and q are zero in a first attempt. Only where that has no solution are they set free, at a price far
above any capacity: so a plan that could cover its demand never trades a shortage for dollars.
"""

from importlib.util import find_spec
from itertools import product
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from models.plan.contradictions import contradictions
from models.plan.problem import TOLERANCE, Floats, Ints, Plan, PlanError, Problem

SOLVERS = ("highs", "cbc")
SEED = 1
# What a shortage weighs against the dearest capacity that would cure it: unserved, remote, too few.
UNSERVED, REMOTE, BELOW_MINIMUM = 1000.0, 100.0, 10.0


class Program(NamedTuple):
    """A PuLP problem and its decisions x by (i, j, k)."""

    lp: Any
    x: dict[tuple[int, int, int], Any]


def solve(
    problem: Problem, solver: str = "highs", gap_share: float = 0.005, time_limit_s: float = 10.0
) -> Plan:
    """Find the cheapest plan of the hour (SageServe section 5).

    Parameters
    ----------
    problem
        The hour; PlanError names every contradiction in it.
    solver
        "highs" or "cbc". Where HiGHS is not installed, CBC answers, and `Plan.solver` says so.
    gap_share
        Relative gap to the bound at which the search may stop.
    time_limit_s
        Seconds after which the best plan found so far is returned with its gap. A plan that turns out to be
        short may take half as long again.
    """
    if wrong := contradictions(problem):
        raise PlanError("The plan contradicts itself:\n" + "\n".join(f"  {line}" for line in wrong))
    if solver not in SOLVERS:
        raise PlanError(f"Unknown solver {solver!r}. Known: {', '.join(SOLVERS)}. Mend [plan] solver.")
    if solver == "highs" and find_spec("highspy") is None:
        solver = "cbc"
    started = perf_counter()
    for may_be_short in (False, True):
        program = build(problem, may_be_short)
        left_s = max(time_limit_s - (perf_counter() - started), time_limit_s / 2)
        status = _run(program, solver, gap_share, left_s)
        if status != "none":
            break
    else:
        raise PlanError(f"{solver} found no plan within {time_limit_s:g} s. Raise [plan] time_limit_s.")
    instances = np.zeros_like(problem.instances_now)
    for ijk, x in program.x.items():
        instances[ijk] = round(x.value())
    plan = answer(problem, instances, _bound_usd(program, solver, status, gap_share))
    return plan._replace(status=status, solver=solver, seconds=perf_counter() - started)


def build(problem: Problem, may_be_short: bool) -> Program:
    """The programme of this file's docstring, line by line; with `may_be_short` v, z and q are free."""
    import pulp

    lp = pulp.LpProblem("hour", pulp.LpMinimize)
    llms, regions, gpus, windows = (range(size) for size in (*problem.instances_now.shape, problem.windows))
    on = [[k for k in gpus if problem.runs[i, k]] for i in llms]  # the GPU types that llm i runs on
    ij = list(product(llms, regions))
    ijk = [(i, j, k) for i, j in ij for k in on[i]]
    n, theta, need = problem.instances_now, problem.tokens_per_s, problem.need_tokens_per_s
    short = None if may_be_short else 0
    per_token, per_instance = penalty_usd(problem)

    x = {key: lp.add_variable("x_{}_{}_{}".format(*key), 0, cat=pulp.LpInteger) for key in ijk}
    up = {key: lp.add_variable("up_{}_{}_{}".format(*key), 0) for key in ijk}
    v, q = ({key: lp.add_variable("{}_{}_{}".format(name, *key), 0, short) for key in ij} for name in "vq")
    z = [lp.add_variable(f"z_{i}", 0, short) for i in llms]

    hold = pulp.lpSum(x[i, j, k] * problem.usd_per_hour[i, k] for i, j, k in ijk)
    start = pulp.lpSum(up[i, j, k] * problem.start_usd[i, k] for i, j, k in ijk)
    unserved = pulp.lpSum(z[i] * (UNSERVED * per_token[i]) for i in llms)
    remote = pulp.lpSum(v[i, j] * (REMOTE * per_token[i]) for i, j in ij)
    below = pulp.lpSum(q[i, j] * (BELOW_MINIMUM * per_instance[i]) for i, j in ij)
    lp += hold + start + unserved + remote + below

    serves = {(i, j): pulp.lpSum(x[i, j, k] * theta[i, k] for k in on[i]) for i, j in ij}
    held = {(i, j): pulp.lpSum(x[i, j, k] for k in on[i]) for i, j in ij}
    for i, j, k in ijk:
        lp += up[i, j, k] >= x[i, j, k] - n[i, j, k], f"start_{i}_{j}_{k}"
    for i, j in ij:
        lp += serves[i, j] + v[i, j] >= problem.epsilon * need[i, j].max(), f"local_{i}_{j}"
    for i, w in product(llms, windows):
        lp += pulp.lpSum(serves[i, j] for j in regions) + z[i] >= need[i, :, w].sum(), f"global_{i}_{w}"
    for j, k in product(regions, gpus):
        used = pulp.lpSum(x[i, j, k] * problem.gpus_per_instance[i, k] for i in llms if k in on[i])
        lp += used <= problem.cap_gpus[j, k], f"cap_{j}_{k}"
    for i, j in ij:
        lp += held[i, j] + q[i, j] >= problem.min_instances[i, j], f"least_{i}_{j}"
        lp += held[i, j] <= problem.max_instances[i, j], f"most_{i}_{j}"
    return Program(lp, x)


def answer(problem: Problem, instances: Ints, bound_usd: float = 0.0) -> Plan:
    """Turn given instances, shape (i, j, k), into a Plan: what they cost, and what they leave short."""
    delta = instances - problem.instances_now
    serves = np.einsum("ijk,ik->ij", instances, np.where(problem.runs, problem.tokens_per_s, 0.0))
    need, (per_token, per_instance) = problem.need_tokens_per_s, penalty_usd(problem)
    v = _missing(problem.epsilon * need.max(axis=2), serves)
    z = _missing(need.sum(axis=1).max(axis=1), serves.sum(axis=1))
    q = np.maximum(problem.min_instances - instances.sum(axis=2), 0)
    runs, hold, start = (a[:, None, :] for a in (problem.runs, problem.usd_per_hour, problem.start_usd))
    usd = float((hold * instances + start * np.maximum(delta, 0))[np.broadcast_to(runs, delta.shape)].sum())
    unserved, remote = UNSERVED * per_token @ z, REMOTE * per_token @ v.sum(axis=1)
    full = usd + float(unserved + remote + BELOW_MINIMUM * per_instance @ q.sum(axis=1))
    bound = min(bound_usd, full)
    gap = (full - bound) / full if full > 0 else 0.0
    return Plan(delta, instances, "given", usd, bound, gap, v, z, q, 0.0, "given")


def _missing(wanted: Floats, served: Floats) -> Floats:
    return np.where(wanted - served > TOLERANCE * wanted, wanted - served, 0.0)


def penalty_usd(problem: Problem) -> tuple[Floats, Floats]:
    """USD per missing token/s and per missing instance, each (i,): what the dearest capacity costs.

    One dollar is added to an instance, so that free instances are wanted as well.
    """
    usd = np.where(problem.runs, 1.0 + problem.usd_per_hour + problem.start_usd, 0.0)
    per_token = np.divide(usd, problem.tokens_per_s, out=np.zeros_like(usd), where=problem.runs)
    return per_token.max(axis=1), usd.max(axis=1)


def _run(program: Program, solver: str, gap_share: float, time_limit_s: float) -> str:
    """Solve in place: optimal (within the gap), time_limit (something was found) or none."""
    import pulp

    limits = {"msg": False, "gapRel": gap_share, "threads": 1, "timeLimit": time_limit_s}
    if solver == "highs":
        program.lp.solve(pulp.HiGHS(**limits, random_seed=SEED))
    else:
        program.lp.solve(pulp.PULP_CBC_CMD(**limits, options=[f"randomSeed {SEED}", f"randomCbcSeed {SEED}"]))
    found = {pulp.LpSolutionOptimal: "optimal", pulp.LpSolutionIntegerFeasible: "time_limit"}
    return found.get(program.lp.sol_status, "none")


def _bound_usd(program: Program, solver: str, status: str, gap_share: float) -> float:
    """No plan costs less, penalties included. CBC keeps its bound to itself, but has promised the gap."""
    import pulp

    if solver == "highs":
        return float(program.lp.solverModel.getInfo().mip_dual_bound)
    if status == "optimal":
        return float(pulp.value(program.lp.objective)) * (1 - gap_share)
    return lp_bound_usd(program)


def lp_bound_usd(program: Program) -> float:
    """The cost with fractional instances. It overwrites the values of the programme's decisions."""
    import pulp

    program.lp.solve(pulp.PULP_CBC_CMD(msg=False, mip=False, threads=1))
    return float(pulp.value(program.lp.objective))
