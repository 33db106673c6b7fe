"""Plans of a day: instances per llm and region for each hour, with the reason for every change.

Each kind of plan (assets/plans/plan_loads.py) is made hour by hour in open loop: every hour starts from
what the
hour before it planned. `forecast` and `peak` are planned by the paper's programme, `melange` by Melange's,
the others by the corrected one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    run_parallel,
)
from fleetcast.assets.plans.nightly_quality import apply_quality_plan, plan_nightly_quality
from fleetcast.assets.plans.plan_loads import PlanLoad, day_ahead_load, day_loads, split_load_into_slots
from fleetcast.assets.plans.plan_tables import PlannedHours, write_plan_bounds, write_plans
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.models.plan import corrected_plan, melange, sageserve_plan
from fleetcast.models.plan.day_plans import HourSolver, hourly_plans, peak_plan
from fleetcast.models.plan.plan_violations import find_violations
from fleetcast.models.plan.problem import HourPlan, Problem
from fleetcast.models.plan.solver import SolverOptions
from fleetcast.models.replay.compiled import is_kernel_cached
from fleetcast.models.replay.session import background_compile
from fleetcast.models.trials.capacity import measure_capacity_tokens_per_s
from fleetcast.models.world.config import PlanConfig
from fleetcast.models.world.plan_grid import ServiceOption
from fleetcast.models.world.pool_pairing import partner_pool

PLAN_SOLVERS = {
    "forecast": sageserve_plan.solve_sageserve,
    "peak": sageserve_plan.solve_sageserve,
    "melange": melange.plan_melange_hour,
    "corrected": corrected_plan.solve_corrected,
    "day_ahead": corrected_plan.solve_corrected,
    "truth": corrected_plan.solve_corrected,
}
ALL_DAY_PLAN_KINDS = ("peak", "melange")  # one allocation for all hours, of the largest loads of the history


class PlanRequest(NamedTuple):
    """What a plan is asked."""

    kind: str
    figures: PlanConfig  # that it counts on
    slots: int = 1  # per hour, each with a plan of its own
    answers: str | None = None  # whose plan says which llms answer


class PlanInputs(NamedTuple):
    """What plans with the same answers have in common."""

    settings: RunSettings  # with who answers
    sustained: Sequence[float]  # input tokens/s of one of each of `kinds`
    loads: Mapping[float, dict[str, PlanLoad]]  # by the quantile that is counted on and the kind of plan


def plan_day(settings: RunSettings, day: date, progress: Progress) -> pa.Table:
    """Plan the hours of `day` for every policy that follows a plan, all from the same fleet."""
    plan_nightly_quality(settings, day, progress)
    asked = {name: plan_request_of_policy(settings, name) for name in hourly_planned_policies(settings)}
    worlds = gather_plan_inputs(settings, day, asked, progress)
    followed = plan_policies(settings, day, asked, worlds, progress)
    write_plan_bounds(settings, day, worlds[None].sustained, true_load(worlds[None]))
    return write_plans(settings, day, followed)


def hourly_planned_policies(settings: RunSettings) -> list[str]:
    """The policies of a night with a plan of each hour before the day."""
    rules = settings.config.rules
    return [
        name
        for name in settings.config.nightly_policies
        if rules[name].programme and not rules[name].is_closed
    ]


def plan_request_of_policy(settings: RunSettings, policy: str) -> PlanRequest:
    """What a policy's plan is asked."""
    rule, config = settings.config.rules[policy], settings.config
    return PlanRequest(str(rule.plan), config.under(policy).plan, config.slots(policy), rule.answers)


def gather_plan_inputs(
    settings: RunSettings, day: date, asked: Mapping[str, PlanRequest], progress: Progress
) -> dict[str | None, PlanInputs]:
    """By who answers, what the plans that policies ask for are made from; that of the config first."""
    worlds: dict[str | None, PlanInputs] = {}
    for answers in dict.fromkeys([None, *(one.answers for one in asked.values())]):
        policy = next((name for name, one in asked.items() if one.answers == answers), None)
        own = settings if policy is None else apply_quality_plan(settings, day, policy)
        figures = [settings.config.plan, *(one.figures for one in asked.values() if one.answers == answers)]
        loads = {
            one.quantile: loads_by_plan_kind(with_plan_config(own, one), day)
            for one in dict.fromkeys(figures)
        }
        worlds[answers] = PlanInputs(own, measure_capacities(own, day, progress), loads)
    return worlds


def plan_policies(
    settings: RunSettings,
    day: date,
    asked: Mapping[str, PlanRequest],
    worlds: Mapping[str | None, PlanInputs],
    progress: Progress,
    days: dict[PlanRequest, PlannedHours] | None = None,
) -> dict[str, PlannedHours]:
    """The plans that policies follow; all start from hour 0 of LT-I's, the paper's hourly plan.

    So the policies differ in what they do, not in what they are given; the replay starts there as well, and
    there too the rest of the fleet is donated. `days` has what was planned before, and is given the rest.
    """
    papers = plan_request_of_policy(settings, "lt_i")
    days = {} if days is None else days
    chosen = [one for one in dict.fromkeys([papers, *asked.values()]) if one not in days]
    with progress.bar(f"plan {day}", sum(one.slots for one in chosen) * HOURS_OF_DAY) as done:
        counted = StepCounter(done)
        for one in chosen:
            start = days[papers][0][1].instances if papers in days else None
            days[one] = solve_plan_request(worlds[one.answers], one, start, counted)
    return {name: days[one] for name, one in asked.items()}


def true_load(world: PlanInputs) -> PlanLoad:
    """What really came, as the plans with these answers see it."""
    return world.loads[world.settings.config.plan.quantile]["truth"]


def loads_by_plan_kind(settings: RunSettings, day: date) -> dict[str, PlanLoad]:
    """The load of each hour as each kind of plan sees it."""
    loads = day_loads(settings, day)
    return {**loads, "melange": loads["peak"], "day_ahead": day_ahead_load(settings, day)}


def with_plan_config(settings: RunSettings, plan: PlanConfig) -> RunSettings:
    """The settings with other figures to plan by."""
    return replace(settings, config=replace(settings.config, plan=plan))


def measure_capacities(settings: RunSettings, day: date, progress: Progress) -> list[float]:
    """What an instance of each of `kinds` sustains within its SLO, measured on the mix of the day before."""
    mixes, config, measured = token_mixes(settings, day), settings.config, settings.grid.service_options
    if background_compile.is_compiling():
        with progress.bar("compile the replay, once", 0) as passed:
            background_compile.wait_for_compilation(passed)
    first = "" if is_kernel_cached() else "compile the replay, "  # half a minute, once
    with progress.bar(f"{first}measure capacity", len(measured)) as done:
        counted = StepCounter(done)

        def one(kind: ServiceOption) -> float:
            own, fleet = config.fleet.deployments[kind.llm], config.fleet
            pool = next(pool for pool in own if settings.grid.option_of(kind.llm, pool) == kind)
            mix = mixes[kind.llm]
            found = measure_capacity_tokens_per_s(
                kind.llm,
                pool,
                settings.catalogue.with_tiers(mix.tiers),
                config,
                mix.input_tokens,
                mix.output_tokens,
                partner_pool(fleet, kind.llm, pool),
                mix.cached_tokens,
            )
            counted.count_step()
            return found * mix.prompt_token_ratio

        return run_parallel(one, measured)


def solve_plan_request(
    world: PlanInputs, asked: PlanRequest, start: np.ndarray | None, counted: StepCounter
) -> PlannedHours:
    """Plan the hours of a day, from these instances or from all that serve at the start."""
    own = with_plan_config(world.settings, asked.figures)
    template = problem_template(own.grid, own.config, world.sustained, asked.kind)
    template = template._replace(hours=1 / asked.slots)
    hours = hour_problems(
        template, split_load_into_slots(world.loads[asked.figures.quantile][asked.kind], asked.slots)
    )
    whole = hours[0].instances_now
    start = whole if start is None else start
    spot = np.maximum(whole - start, 0)
    solve = checked_solver(own, asked.kind, lambda _: counted.count_step())
    if asked.kind in ALL_DAY_PLAN_KINDS:
        at_start = [problem._replace(instances_now=start, spot=spot) for problem in hours]
        return _hold_all_day(at_start, peak_plan(at_start, solve))
    return plan_open_loop(hours, start, spot, solve)


def checked_solver(settings: RunSettings, kind: str, done: Step = lambda solved: None) -> HourSolver:
    """The programme of a kind of plan with the config's options; each answer is re-checked and counted."""
    config, solved = settings.config.plan, 0
    solve = partial(
        PLAN_SOLVERS[kind], options=SolverOptions(config.solver, config.gap_share, config.time_limit_s)
    )

    def one_hour(problem: Problem) -> HourPlan:
        nonlocal solved
        plan = solve(problem)
        if broken := find_violations(problem, plan):
            raise RuntimeError(f"The solver {plan.solver} broke its own programme: {broken[0]}")
        solved += 1
        done(solved)
        return plan

    return one_hour


def plan_open_loop(
    hours: list[Problem], start: np.ndarray, spot: np.ndarray, solve: HourSolver
) -> PlannedHours:
    """Plan the hours one after the other, and keep with each answer what was asked."""
    plans = hourly_plans(hours, start, spot, solve)
    return [
        (problem._replace(instances_now=plan.instances - plan.delta), plan)
        for problem, plan in zip(hours, plans, strict=True)
    ]


def _hold_all_day(history: list[Problem], peak: HourPlan) -> PlannedHours:
    """One allocation for all hours of the day, asked for the largest load that each region has had."""
    asked = history[0]._replace(
        demand_tokens_per_s=np.max([p.demand_tokens_per_s for p in history], axis=0),
        buffer_tokens_per_s=np.max([p.buffer_tokens_per_s for p in history], axis=0),
    )
    nothing = np.zeros_like(peak.started)
    unchanged = peak._replace(started=nothing, donated=nothing)
    return [(asked, peak)] + [(asked._replace(instances_now=peak.instances), unchanged)] * (HOURS_OF_DAY - 1)
