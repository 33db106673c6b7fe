"""From a programme to its integers: HiGHS or CBC solves what PuLP wrote, and the bound is kept.

HiGHS goes up to three steps on one model: the linear relaxation, whose value bounds every plan; relax and
fix, where every integer is held between the whole numbers around its relaxed value, and only a few others may
move by one; and, where that leaves more than the asked gap, the whole programme, from the plan just found.
"""

from importlib.util import find_spec
from time import perf_counter
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.plan.optimisation_model import OptimisationModel, VariableKey
from fleetcast.models.plan.problem import HourPlan, PlanError
from fleetcast.models.world.option_names import SOLVERS

SOLVER_SEED = 1
INTEGER_TOLERANCE = 1e-6  # from a whole number: the solver's arithmetic
ALTERNATIVES = 2  # integers per llm and region, those nearest to paying, that relax and fix leaves free


class SolverOptions(NamedTuple):
    """How long and how well to search."""

    solver: str = "highs"  # or cbc, which also answers where HiGHS is not installed
    gap_share: float = 0.005  # of the cost without penalties: that near to the bound, the search ends
    time_limit_s: float = 5.0  # after it the best plan found so far is returned with its gap


DEFAULT_SOLVER = SolverOptions()


class SolverResult(NamedTuple):
    """Ints that the solver found, and what it proved."""

    values: dict[str, dict[VariableKey, int]]
    lp_bound_usd: float
    bound_usd: float
    is_near: bool  # within the asked gap
    solver: str

    def add_solver_bounds(self, plan: HourPlan, seconds: float) -> HourPlan:
        """The plan of these integers with what is known of its distance from the best."""
        bound_usd = min(max(self.bound_usd, self.lp_bound_usd), plan.full_usd)
        return plan._replace(
            lp_bound_usd=min(self.lp_bound_usd, bound_usd),
            bound_usd=bound_usd,
            gap_share=(plan.full_usd - bound_usd) / plan.full_usd if plan.full_usd > 0 else 0.0,
            status="optimal" if self.is_near or plan.full_usd <= bound_usd else "time_limit",
            solver=self.solver,
            seconds=seconds,
        )


def solve_model(programme: OptimisationModel, options: SolverOptions) -> SolverResult:
    """The best integers within the options; PlanError where the solver found none at all."""
    if options.solver not in SOLVERS:
        raise PlanError(
            f"Unknown solver {options.solver!r}. Known: {', '.join(SOLVERS)}. Mend [plan] solver."
        )
    has_highs = options.solver == "highs" and find_spec("highspy") is not None
    found = (_by_highs if has_highs else _by_cbc)(programme, options)
    if found is None:
        name = "highs" if has_highs else "cbc"
        raise PlanError(f"{name} found no plan within {options.time_limit_s:g} s. Raise [plan] time_limit_s.")
    return found


# --- HiGHS ---------------------------------------------------------------------------------------------


class _Search:
    """The integer steps on the model whose linear relaxation HiGHS has just solved."""

    def __init__(
        self, programme: OptimisationModel, deadline: float, lp_bound: float, tolerance: float
    ) -> None:
        import highspy

        self.model, self.deadline = programme.lp.solverModel, deadline
        self.bound, self.tolerance = lp_bound, tolerance
        self.best, self.is_near = np.inf, False
        self.values: list[float] | None = None
        self.integers = [x for by_key in programme.integers.values() for x in by_key.values()]
        keys = np.array([key[:2] for by_key in programme.integers.values() for key in by_key])
        self.endpoint = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
        self.columns = np.array([x.index for x in self.integers], np.int32)
        self.lower = np.array([x.lowBound for x in self.integers], float)
        self.upper = np.array([np.inf if x.upBound is None else x.upBound for x in self.integers])
        whole = np.full(self.columns.size, highspy.HighsVarType.kInteger)
        self.model.changeColsIntegrality(self.columns.size, self.columns, whole)
        self.model.setOptionValue("mip_rel_gap", 0.0)
        self.model.setOptionValue("mip_abs_gap", tolerance)
        self.model.setOptionValue("objective_target", lp_bound + tolerance)

    def around_the_relaxed(self) -> tuple[Floats, Floats]:
        """Bounds of relax and fix: the whole numbers around each value; one more or less for ALTERNATIVES."""
        relaxed, lost = (np.array([getattr(x, name) for x in self.integers]) for name in ("varValue", "dj"))
        low = np.floor(relaxed + INTEGER_TOLERANCE)
        is_split = relaxed - low > INTEGER_TOLERANCE
        order = np.lexsort((np.abs(lost), is_split, self.endpoint))
        place = np.arange(order.size)
        is_first = np.diff(self.endpoint[order], prepend=-1) != 0
        rank = np.empty_like(place)
        rank[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
        is_free = ~is_split & (rank < ALTERNATIVES)
        return low - is_free, low + (is_split | is_free)

    def run(self, low: Floats, high: Floats) -> float:
        """Search between these bounds, from the best so far; the bound that holds between them."""
        import highspy

        low, high = np.maximum(low, self.lower), np.minimum(high, self.upper)
        self.model.changeColsBounds(self.columns.size, self.columns, low, high)
        if self.values is not None:
            start = highspy.HighsSolution()
            start.col_value = self.values
            self.model.setSolution(start)
        left_s = max(self.deadline - perf_counter(), 0.0)
        self.model.setOptionValue("time_limit", self.model.getRunTime() + left_s)
        self.model.run()
        info = self.model.getInfo()
        is_found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if is_found and info.objective_function_value < self.best:
            self.best, self.values = info.objective_function_value, list(self.model.getSolution().col_value)
        self.is_near = self.best - self.bound <= self.tolerance
        return float(info.mip_dual_bound)

    def is_proven(self) -> bool:
        """Whether the last search ended by itself."""
        import highspy

        ends = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kObjectiveTarget)
        return self.model.getModelStatus() in ends


def _by_highs(programme: OptimisationModel, options: SolverOptions) -> SolverResult | None:
    import pulp

    deadline = perf_counter() + options.time_limit_s
    lp = programme.lp
    lp.solve(pulp.HiGHS(mip=False, msg=False, threads=1, random_seed=SOLVER_SEED))
    constant_usd = float(lp.objective.constant)  # which HiGHS is not told
    relaxed_usd, cost_usd = float(pulp.value(lp.objective)), float(pulp.value(programme.cost))
    search = _Search(programme, deadline, relaxed_usd - constant_usd, options.gap_share * cost_usd)
    search.run(*search.around_the_relaxed())
    if not search.is_near:
        search.bound = max(search.bound, search.run(search.lower, search.upper))
        search.is_near |= search.is_proven()
    if (values := search.values) is None:
        return None
    at = {
        name: {key: round(values[x.index]) for key, x in by_key.items()}
        for name, by_key in programme.integers.items()
    }
    return SolverResult(at, relaxed_usd, search.bound + constant_usd, search.is_near, "highs")


# --- CBC -----------------------------------------------------------------------------------------------


def _by_cbc(programme: OptimisationModel, options: SolverOptions) -> SolverResult | None:
    """CBC keeps its bound to itself, but promises the gap when it ends before the time limit."""
    import pulp

    lp = programme.lp
    lp.solve(pulp.PULP_CBC_CMD(msg=False, mip=False))  # asked for one thread, it sometimes hangs
    relaxed_usd = float(pulp.value(lp.objective))
    tolerance = options.gap_share * float(pulp.value(programme.cost))
    seeds = [f"randomSeed {SOLVER_SEED}", f"randomCbcSeed {SOLVER_SEED}"]
    limits = {"gapRel": 0.0, "gapAbs": tolerance, "timeLimit": options.time_limit_s}
    lp.solve(pulp.PULP_CBC_CMD(msg=False, options=seeds, **limits))
    if lp.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return None
    is_near = lp.sol_status == pulp.LpSolutionOptimal
    bound_usd = float(pulp.value(lp.objective)) - tolerance if is_near else relaxed_usd
    at = {
        name: {key: round(x.value()) for key, x in by_key.items()}
        for name, by_key in programme.integers.items()
    }
    return SolverResult(at, relaxed_usd, bound_usd, is_near, "cbc")
