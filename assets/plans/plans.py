"""Plans of a day: instances per llm and region for each hour, with the reason for every change.

Each kind of plan (assets/plans/plan_loads.py) is solved hour by hour in open loop: every hour starts from the
plan of the hour before. `forecast` and `peak` use the paper's optimisation model, `melange` uses Melange's,
the others use the corrected model.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.settings import (
    HOURS_OF_DAY,
    Progress,
    RunSettings,
    Step,
    StepCounter,
)
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.plans.nightly_quality import apply_quality_plan, plan_nightly_quality
from fleetcast.assets.plans.plan_loads import PlanLoad, day_ahead_load, day_loads, split_load_into_slots
from fleetcast.assets.plans.plan_tables import PlannedHours, write_plan_bounds, write_plans
from fleetcast.assets.plans.plan_warnings import warn_before_plan
from fleetcast.assets.plans.problems import hour_problems, problem_template, with_size_shares
from fleetcast.models.aliases import Ints
from fleetcast.models.plan import corrected_plan, melange, sageserve_plan
from fleetcast.models.plan.day_plans import HourSolver, hourly_plans, peak_plan
from fleetcast.models.plan.plan_violations import find_violations
from fleetcast.models.plan.problem import HourPlan, Problem
from fleetcast.models.plan.solver import SolverOptions
from fleetcast.models.world.config import PlanConfig

PLAN_SOLVERS = {
    "forecast": sageserve_plan.solve_sageserve,
    "peak": sageserve_plan.solve_sageserve,
    "melange": melange.plan_melange_hour,
    "corrected": corrected_plan.solve_corrected,
    "day_ahead": corrected_plan.solve_corrected,
    "truth": corrected_plan.solve_corrected,
}
FIRST_POLICY = "lt_i"  # every policy starts from the first hour of its plan
ALL_DAY_PLAN_KINDS = ("peak", "melange")  # one allocation for all hours, of the largest loads of the history

ProblemLimit = Callable[[Problem, str], Problem]  # of an hour's problem and the kind of its plan


class PlanRequest(NamedTuple):
    """The options of one day's plan; policies with equal requests share the plan."""

    kind: str  # of PLAN_SOLVERS
    plan_config: PlanConfig
    slots: int  # control intervals per hour
    routing: str | None  # kind of the quality plan that sets the model routing, None for the config's


class PlanInputs(NamedTuple):
    """The inputs that plans with the same model routing share."""

    settings: RunSettings  # with this model routing
    capacities: Sequence[float]  # input tokens/s of one instance of each of `grid.service_options`
    loads: Mapping[float, dict[str, PlanLoad]]  # by the plan's quantile and the kind of plan


def plan_day(settings: RunSettings, day: date, progress: Progress) -> pa.Table:
    """Plan the hours of `day` for every policy with a plan, all from the same fleet; return the plans."""
    warn_before_plan(settings, day)
    plan_nightly_quality(settings, day, progress)
    requests = {name: plan_request_of_policy(settings, name) for name in hourly_planned_policies(settings)}
    inputs = gather_plan_inputs(settings, day, requests, progress)
    plans = plan_policies(settings, day, requests, inputs, progress)
    write_plan_bounds(settings, day, inputs[None].capacities, true_load(inputs[None]))
    return write_plans(settings, day, plans)


def hourly_planned_policies(settings: RunSettings) -> list[str]:
    """Return the policies of a nightly run whose hours are all planned before the day."""
    rules = settings.config.rules
    return [
        name
        for name in settings.config.nightly_policies
        if rules[name].programme and not rules[name].is_closed
    ]


def plan_request_of_policy(settings: RunSettings, policy: str) -> PlanRequest:
    """Return the plan request of a policy."""
    rule, config = settings.config.rules[policy], settings.config
    return PlanRequest(str(rule.plan), config.under(policy).plan, config.slots(policy), rule.answers)


def gather_plan_inputs(
    settings: RunSettings, day: date, requests: Mapping[str, PlanRequest], progress: Progress
) -> dict[str | None, PlanInputs]:
    """Return the inputs of the requested plans by model routing; None, the config's routing, is the first."""
    inputs: dict[str | None, PlanInputs] = {}
    for routing in dict.fromkeys([None, *(request.routing for request in requests.values())]):
        same = {policy: request for policy, request in requests.items() if request.routing == routing}
        policy = next(iter(same), None)
        routed = settings if policy is None else apply_quality_plan(settings, day, policy)
        configs = [settings.config.plan, *(request.plan_config for request in same.values())]
        loads = {
            config.quantile: loads_by_plan_kind(with_plan_config(routed, config), day)
            for config in dict.fromkeys(configs)
        }
        inputs[routing] = PlanInputs(
            routed, measured_capacity.measure_capacities(routed, day, progress), loads
        )
    return inputs


def plan_policies(
    settings: RunSettings,
    day: date,
    requests: Mapping[str, PlanRequest],
    inputs: Mapping[str | None, PlanInputs],
    progress: Progress,
    solved: dict[PlanRequest, PlannedHours] | None = None,
    limit: ProblemLimit = lambda problem, kind: problem,
) -> dict[str, PlannedHours]:
    """Return the plan of each policy; all start from hour 0 of LT-I's, the paper's hourly plan.

    So policies differ in their decisions, not in their start. The replay starts from the same fleet, and
    donates the rest of it too. `solved` has the plans so far; new ones are added to it. `limit` returns an
    hour's problem of a kind of plan with the limits of a what-if case.
    """
    first = plan_request_of_policy(settings, FIRST_POLICY)
    solved = {} if solved is None else solved
    missing = [request for request in dict.fromkeys([first, *requests.values()]) if request not in solved]
    with progress.bar(f"plan {day}", sum(request.slots for request in missing) * HOURS_OF_DAY) as done:
        counter = StepCounter(done)
        for request in missing:
            start = solved[first][0][1].instances if first in solved else None
            solved[request] = solve_plan_request(inputs[request.routing], day, request, start, counter, limit)
    return {policy: solved[request] for policy, request in requests.items()}


def true_load(inputs: PlanInputs) -> PlanLoad:
    """Return the actual load, under the inputs' model routing."""
    return inputs.loads[inputs.settings.config.plan.quantile]["truth"]


def loads_by_plan_kind(settings: RunSettings, day: date) -> dict[str, PlanLoad]:
    """Return the load of each hour as each kind of plan sees it."""
    loads = day_loads(settings, day)
    return {**loads, "melange": loads["peak"], "day_ahead": day_ahead_load(settings, day)}


def with_plan_config(settings: RunSettings, plan: PlanConfig) -> RunSettings:
    """Return the settings with another [plan] section."""
    return settings.with_config(plan=plan)


def solve_plan_request(
    inputs: PlanInputs,
    day: date,
    request: PlanRequest,
    start: Ints | None,
    counter: StepCounter,
    limit: ProblemLimit,
) -> PlannedHours:
    """Plan the hours of a day from the instances `start` (services, regions, options), else the config's."""
    settings = with_plan_config(inputs.settings, request.plan_config)
    template = problem_template(settings.grid, settings.config, inputs.capacities, request.kind)
    template = with_size_shares(template, settings, day, request.kind)._replace(hours=1 / request.slots)
    load = inputs.loads[request.plan_config.quantile][request.kind]
    hours = hour_problems(limit(template, request.kind), split_load_into_slots(load, request.slots))
    whole = hours[0].instances_now
    start = whole if start is None else start
    spot = np.maximum(whole - start, 0)
    solve = checked_solver(settings, request.kind, lambda _: counter.count_step())
    if request.kind in ALL_DAY_PLAN_KINDS:
        at_start = [problem._replace(instances_now=start, spot=spot) for problem in hours]
        return _hold_all_day(at_start, peak_plan(at_start, solve))
    return plan_open_loop(hours, start, spot, solve)


def checked_solver(settings: RunSettings, kind: str, done: Step = lambda solved: None) -> HourSolver:
    """Return the solver of a kind of plan with the config's options; it checks and counts every plan.

    RuntimeError where a plan violates its own optimisation model.
    """
    config, solved = settings.config.plan, 0
    solve = partial(
        PLAN_SOLVERS[kind], options=SolverOptions(config.solver, config.gap_share, config.time_limit_s)
    )

    def solve_hour(problem: Problem) -> HourPlan:
        nonlocal solved
        plan = solve(problem)
        if violations := find_violations(problem, plan):
            raise RuntimeError(
                f"The plan of the solver {plan.solver} violates its optimisation model: {violations[0]}"
            )
        solved += 1
        done(solved)
        return plan

    return solve_hour


def plan_open_loop(hours: list[Problem], start: Ints, spot: Ints, solve: HourSolver) -> PlannedHours:
    """Plan the hours one after the other; return each hour's problem with its plan.

    `start` and `spot`: instances that serve and that are donated at the start, each of shape (services,
    regions, options).
    """
    plans = hourly_plans(hours, start, spot, solve)
    return [
        (problem._replace(instances_now=plan.instances - plan.delta), plan)
        for problem, plan in zip(hours, plans, strict=True)
    ]


def _hold_all_day(history: list[Problem], peak: HourPlan) -> PlannedHours:
    """Return one allocation for all hours of the day; the problem has the largest load of each region."""
    problem = history[0]._replace(
        demand_tokens_per_s=np.max([p.demand_tokens_per_s for p in history], axis=0),
        buffer_tokens_per_s=np.max([p.buffer_tokens_per_s for p in history], axis=0),
    )
    nothing = np.zeros_like(peak.started)
    unchanged = peak._replace(started=nothing, donated=nothing)
    later = problem._replace(instances_now=peak.instances)
    return [(problem, peak)] + [(later, unchanged)] * (HOURS_OF_DAY - 1)
