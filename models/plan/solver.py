"""Solve a PuLP model with HiGHS or CBC, and keep the lower bound.

HiGHS takes up to three steps on one model:
1. the linear relaxation, whose value is a lower bound of every plan;
2. relax and fix: every integer stays between the whole numbers around its relaxed value, and only a few
   integers that are already whole may move by one;
3. where the gap is still larger than requested, the whole MILP, started from the plan of step 2.
"""

from importlib.util import find_spec
from time import perf_counter
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.plan.optimisation_model import OptimisationModel, VariableKey
from fleetcast.models.plan.problem import TOLERANCE, HourPlan, PlanError
from fleetcast.models.world.option_names import SOLVERS

SOLVER_SEED = 1
INTEGER_TOLERANCE = 1e-6  # distance to a whole number that is rounding of the solver
ALTERNATIVES = 2  # integers per service and region, those of the least reduced cost, left free by step 2


class SolverOptions(NamedTuple):
    """Which solver to use, how long to search, and to which gap."""

    solver: str = "highs"  # or cbc, which is also used where HiGHS is not installed
    gap_share: float = 0.005  # gap at which the search ends, as a share of the cost without penalties
    time_limit_s: float = 5.0  # after it the best plan found so far is returned with its gap


DEFAULT_SOLVER = SolverOptions()


class SolverResult(NamedTuple):
    """The integers that the solver found, and the bounds that it proved."""

    values: dict[str, dict[VariableKey, int]]
    lp_bound_usd: float
    bound_usd: float
    is_near: bool  # within the requested gap
    solver: str

    def gap_share(self, objective: float) -> float:
        """Return how far an objective may be from the optimum, by the better bound, as a share of it."""
        bound = max(self.bound_usd, self.lp_bound_usd)
        return max(objective - bound, 0.0) / max(abs(objective), TOLERANCE)

    def add_solver_bounds(self, plan: HourPlan, seconds: float) -> HourPlan:
        """Return the plan of these integers with its bounds, gap, status and solver time."""
        bound_usd = min(max(self.bound_usd, self.lp_bound_usd), plan.full_usd)
        return plan._replace(
            lp_bound_usd=min(self.lp_bound_usd, bound_usd),
            bound_usd=bound_usd,
            gap_share=(plan.full_usd - bound_usd) / plan.full_usd if plan.full_usd > 0 else 0.0,
            status="optimal" if self.is_near or plan.full_usd <= bound_usd else "time_limit",
            solver=self.solver,
            seconds=seconds,
        )


def solve_model(model: OptimisationModel, options: SolverOptions) -> SolverResult:
    """Solve the model within the options; PlanError for an unknown solver or no solution in time."""
    if options.solver not in SOLVERS:
        raise PlanError(
            f"Unknown solver {options.solver!r}. Known: {', '.join(SOLVERS)}. Correct [plan] solver."
        )
    has_highs = options.solver == "highs" and find_spec("highspy") is not None
    found = (_solve_with_highs if has_highs else _solve_with_cbc)(model, options)
    if found is None:
        name = "highs" if has_highs else "cbc"
        raise PlanError(f"{name} found no plan within {options.time_limit_s:g} s. Raise [plan] time_limit_s.")
    return found


# --- HiGHS ---------------------------------------------------------------------------------------------


class _Search:
    """The integer steps on the model whose linear relaxation HiGHS has just solved."""

    def __init__(self, model: OptimisationModel, deadline: float, lp_bound: float, tolerance: float) -> None:
        import highspy

        self.highs, self.deadline = model.lp.solverModel, deadline
        self.bound, self.tolerance = lp_bound, tolerance
        self.best, self.is_near = np.inf, False
        self.values: list[float] | None = None
        self.integers = [x for by_key in model.integers.values() for x in by_key.values()]
        keys = np.array([key[:2] for by_key in model.integers.values() for key in by_key])
        self.endpoint = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
        self.columns = np.array([x.index for x in self.integers], np.int32)
        self.lower = np.array([x.lowBound for x in self.integers], float)
        self.upper = np.array([np.inf if x.upBound is None else x.upBound for x in self.integers])
        every = np.array([*self.columns, *(x.index for x in model.binaries)], np.int32)
        whole = np.full(every.size, highspy.HighsVarType.kInteger)
        self.highs.changeColsIntegrality(every.size, every, whole)
        self.highs.setOptionValue("mip_rel_gap", 0.0)
        self.highs.setOptionValue("mip_abs_gap", tolerance)
        self.highs.setOptionValue("objective_target", lp_bound + tolerance)

    def bounds_around_relaxation(self) -> tuple[Floats, Floats]:
        """Return lower and upper bounds for relax and fix, each of shape (integers,).

        They are the whole numbers around each relaxed value, and one less and one more for ALTERNATIVES.
        """
        relaxed, reduced_cost = (
            np.array([getattr(x, name) for x in self.integers]) for name in ("varValue", "dj")
        )
        low = np.floor(relaxed + INTEGER_TOLERANCE)
        is_split = relaxed - low > INTEGER_TOLERANCE
        order = np.lexsort((np.abs(reduced_cost), is_split, self.endpoint))
        place = np.arange(order.size)
        is_first = np.diff(self.endpoint[order], prepend=-1) != 0
        rank = np.empty_like(place)
        rank[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
        is_free = ~is_split & (rank < ALTERNATIVES)
        return low - is_free, low + (is_split | is_free)

    def run(self, low: Floats, high: Floats) -> float:
        """Search between bounds of shape (integers,), from the best so far; return the dual bound."""
        import highspy

        low, high = np.maximum(low, self.lower), np.minimum(high, self.upper)
        self.highs.changeColsBounds(self.columns.size, self.columns, low, high)
        if self.values is not None:
            start = highspy.HighsSolution()
            start.col_value = self.values
            self.highs.setSolution(start)
        left_s = max(self.deadline - perf_counter(), 0.0)
        self.highs.setOptionValue("time_limit", self.highs.getRunTime() + left_s)
        self.highs.run()
        info = self.highs.getInfo()
        is_found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if is_found and info.objective_function_value < self.best:
            self.best, self.values = info.objective_function_value, list(self.highs.getSolution().col_value)
        self.is_near = self.best - self.bound <= self.tolerance
        return float(info.mip_dual_bound)

    def is_proven(self) -> bool:
        """Return whether the last search ended before its time limit."""
        import highspy

        ends = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kObjectiveTarget)
        return self.highs.getModelStatus() in ends


def _solve_with_highs(model: OptimisationModel, options: SolverOptions) -> SolverResult | None:
    import pulp

    deadline = perf_counter() + options.time_limit_s
    lp = model.lp
    lp.solve(pulp.HiGHS(mip=False, msg=False, threads=1, random_seed=SOLVER_SEED))
    constant_usd = float(lp.objective.constant)  # PuLP does not pass it to HiGHS
    relaxed_usd, cost_usd = float(pulp.value(lp.objective)), float(pulp.value(model.cost))
    search = _Search(model, deadline, relaxed_usd - constant_usd, options.gap_share * cost_usd)
    search.run(*search.bounds_around_relaxation())
    if not search.is_near:
        search.bound = max(search.bound, search.run(search.lower, search.upper))
        search.is_near |= search.is_proven()
    if (values := search.values) is None:
        return None
    integers = {
        name: {key: round(values[x.index]) for key, x in by_key.items()}
        for name, by_key in model.integers.items()
    }
    return SolverResult(integers, relaxed_usd, search.bound + constant_usd, search.is_near, "highs")


# --- CBC -----------------------------------------------------------------------------------------------


def _solve_with_cbc(model: OptimisationModel, options: SolverOptions) -> SolverResult | None:
    """Solve with CBC, which reports no bound, but keeps the gap when it ends before the time limit."""
    import pulp

    lp = model.lp
    lp.solve(pulp.PULP_CBC_CMD(msg=False, mip=False))  # with threads=1 CBC sometimes hangs
    relaxed_usd = float(pulp.value(lp.objective))
    tolerance = options.gap_share * float(pulp.value(model.cost))
    seeds = [f"randomSeed {SOLVER_SEED}", f"randomCbcSeed {SOLVER_SEED}"]
    limits = {"gapRel": 0.0, "gapAbs": tolerance, "timeLimit": options.time_limit_s}
    lp.solve(pulp.PULP_CBC_CMD(msg=False, options=seeds, **limits))
    if lp.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return None
    is_near = lp.sol_status == pulp.LpSolutionOptimal
    bound_usd = float(pulp.value(lp.objective)) - tolerance if is_near else relaxed_usd
    integers = {
        name: {key: round(x.value()) for key, x in by_key.items()} for name, by_key in model.integers.items()
    }
    return SolverResult(integers, relaxed_usd, bound_usd, is_near, "cbc")
