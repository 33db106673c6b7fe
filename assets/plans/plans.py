"""Plans of a day: instances per llm and region for each hour, with the reason for every change.

Each kind of plan (assets/plans/inputs.py) is made hour by hour in open loop: every hour starts from what the
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

from fleetcast.assets.lake.settings import HOURS, Counted, Progress, Settings, Step, side_by_side
from fleetcast.assets.plans.inputs import Load, day_ahead_load, day_loads, in_slots
from fleetcast.assets.plans.mixes import token_mixes
from fleetcast.assets.plans.plan_tables import Day, write_bounds, write_plans
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.assets.plans.quality_nights import as_planned, plan_night
from fleetcast.models.plan import corrected, melange, paper
from fleetcast.models.plan.day_plans import Solve, hourly_plans, peak_plan
from fleetcast.models.plan.problem import Plan, Problem
from fleetcast.models.plan.solver import Options
from fleetcast.models.plan.violations import violations
from fleetcast.models.replay.compiled import is_cached
from fleetcast.models.replay.session import background_compile
from fleetcast.models.trials.capacity import capacity_tokens_per_s
from fleetcast.models.world.config import PlanConfig
from fleetcast.models.world.grid import ServiceOption
from fleetcast.models.world.pools import partner_of

PROGRAMMES = {
    "forecast": paper.solve,
    "peak": paper.solve,
    "melange": melange.standing,
    "corrected": corrected.solve,
    "day_ahead": corrected.solve,
    "truth": corrected.solve,
}
HELD = ("peak", "melange")  # one allocation for all hours, of the largest loads of the history


class Asked(NamedTuple):
    """What a plan is asked."""

    kind: str
    figures: PlanConfig  # that it counts on
    slots: int = 1  # per hour, each with a plan of its own
    answers: str | None = None  # whose plan says which llms answer


class World(NamedTuple):
    """What plans with the same answers have in common."""

    settings: Settings  # with who answers
    sustained: Sequence[float]  # input tokens/s of one of each of `kinds`
    loads: Mapping[float, dict[str, Load]]  # by the quantile that is counted on and the kind of plan


def plan_day(settings: Settings, day: date, progress: Progress) -> pa.Table:
    """Plan the hours of `day` for every policy that follows a plan, all from the same fleet."""
    plan_night(settings, day, progress)
    asked = {name: asked_by(settings, name) for name in with_hours(settings)}
    worlds = worlds_of(settings, day, asked, progress)
    followed = followed_plans(settings, day, asked, worlds, progress)
    write_bounds(settings, day, worlds[None].sustained, truth_of(worlds[None]))
    return write_plans(settings, day, followed)


def with_hours(settings: Settings) -> list[str]:
    """The policies of a night with a plan of each hour before the day."""
    rules = settings.config.rules
    return [
        name for name in settings.config.of_a_night if rules[name].programme and not rules[name].is_closed
    ]


def asked_by(settings: Settings, policy: str) -> Asked:
    """What a policy's plan is asked."""
    rule, config = settings.config.rules[policy], settings.config
    return Asked(str(rule.plan), config.under(policy).plan, config.slots(policy), rule.answers)


def worlds_of(
    settings: Settings, day: date, asked: Mapping[str, Asked], progress: Progress
) -> dict[str | None, World]:
    """By who answers, what the plans that policies ask for are made from; that of the config first."""
    worlds: dict[str | None, World] = {}
    for answers in dict.fromkeys([None, *(one.answers for one in asked.values())]):
        policy = next((name for name, one in asked.items() if one.answers == answers), None)
        own = settings if policy is None else as_planned(settings, day, policy)
        figures = [settings.config.plan, *(one.figures for one in asked.values() if one.answers == answers)]
        loads = {one.quantile: all_loads(with_plan(own, one), day) for one in dict.fromkeys(figures)}
        worlds[answers] = World(own, sustained_tokens_per_s(own, day, progress), loads)
    return worlds


def followed_plans(
    settings: Settings,
    day: date,
    asked: Mapping[str, Asked],
    worlds: Mapping[str | None, World],
    progress: Progress,
    days: dict[Asked, Day] | None = None,
) -> dict[str, Day]:
    """The plans that policies follow; all start from hour 0 of LT-I's, the paper's hourly plan.

    So the policies differ in what they do, not in what they are given; the replay starts there as well, and
    there too the rest of the fleet is donated. `days` has what was planned before, and is given the rest.
    """
    papers = asked_by(settings, "lt_i")
    days = {} if days is None else days
    chosen = [one for one in dict.fromkeys([papers, *asked.values()]) if one not in days]
    with progress.bar(f"plan {day}", sum(one.slots for one in chosen) * HOURS) as done:
        counted = Counted(done)
        for one in chosen:
            start = days[papers][0][1].instances if papers in days else None
            days[one] = plans_of(worlds[one.answers], one, start, counted)
    return {name: days[one] for name, one in asked.items()}


def truth_of(world: World) -> Load:
    """What really came, as the plans with these answers see it."""
    return world.loads[world.settings.config.plan.quantile]["truth"]


def all_loads(settings: Settings, day: date) -> dict[str, Load]:
    """The load of each hour as each kind of plan sees it."""
    loads = day_loads(settings, day)
    return {**loads, "melange": loads["peak"], "day_ahead": day_ahead_load(settings, day)}


def with_plan(settings: Settings, plan: PlanConfig) -> Settings:
    """The settings with other figures to plan by."""
    return replace(settings, config=replace(settings.config, plan=plan))


def sustained_tokens_per_s(settings: Settings, day: date, progress: Progress) -> list[float]:
    """What an instance of each of `kinds` sustains within its SLO, measured on the mix of the day before."""
    mixes, config, measured = token_mixes(settings, day), settings.config, settings.grid.service_options
    if background_compile.is_compiling():
        with progress.bar("compile the replay, once", 0) as passed:
            background_compile.wait(passed)
    first = "" if is_cached() else "compile the replay, "  # half a minute, once
    with progress.bar(f"{first}measure capacity", len(measured)) as done:
        counted = Counted(done)

        def one(kind: ServiceOption) -> float:
            own, fleet = config.fleet.deployments[kind.llm], config.fleet
            pool = next(pool for pool in own if settings.grid.option_of(kind.llm, pool) == kind)
            mix = mixes[kind.llm]
            found = capacity_tokens_per_s(
                kind.llm,
                pool,
                settings.catalogue.asked_by(mix.tiers),
                config,
                mix.input_tokens,
                mix.output_tokens,
                partner_of(fleet, kind.llm, pool),
                mix.cached_tokens,
            )
            counted.one_more()
            return found * mix.asked_share

        return side_by_side(one, measured)


def plans_of(world: World, asked: Asked, start: np.ndarray | None, counted: Counted) -> Day:
    """Plan the hours of a day, from these instances or from all that serve at the start."""
    own = with_plan(world.settings, asked.figures)
    template = problem_template(own.grid, own.config, world.sustained, asked.kind)
    template = template._replace(hours=1 / asked.slots)
    hours = hour_problems(template, in_slots(world.loads[asked.figures.quantile][asked.kind], asked.slots))
    whole = hours[0].instances_now
    start = whole if start is None else start
    spot = np.maximum(whole - start, 0)
    solve = checked_solve(own, asked.kind, lambda _: counted.one_more())
    if asked.kind in HELD:
        at_start = [problem._replace(instances_now=start, spot=spot) for problem in hours]
        return _held(at_start, peak_plan(at_start, solve))
    return open_loop(hours, start, spot, solve)


def checked_solve(settings: Settings, kind: str, done: Step = lambda solved: None) -> Solve:
    """The programme of a kind of plan with the config's options; each answer is re-checked and counted."""
    config, solved = settings.config.plan, 0
    solve = partial(PROGRAMMES[kind], options=Options(config.solver, config.gap_share, config.time_limit_s))

    def one_hour(problem: Problem) -> Plan:
        nonlocal solved
        plan = solve(problem)
        if broken := violations(problem, plan):
            raise RuntimeError(f"The solver {plan.solver} broke its own programme: {broken[0]}")
        solved += 1
        done(solved)
        return plan

    return one_hour


def open_loop(hours: list[Problem], start: np.ndarray, spot: np.ndarray, solve: Solve) -> Day:
    """Plan the hours one after the other, and keep with each answer what was asked."""
    plans = hourly_plans(hours, start, spot, solve)
    return [
        (problem._replace(instances_now=plan.instances - plan.delta), plan)
        for problem, plan in zip(hours, plans, strict=True)
    ]


def _held(history: list[Problem], peak: Plan) -> Day:
    """One allocation for all hours of the day, asked for the largest load that each region has had."""
    asked = history[0]._replace(
        demand_tokens_per_s=np.max([p.demand_tokens_per_s for p in history], axis=0),
        buffer_tokens_per_s=np.max([p.buffer_tokens_per_s for p in history], axis=0),
    )
    nothing = np.zeros_like(peak.started)
    unchanged = peak._replace(started=nothing, donated=nothing)
    return [(asked, peak)] + [(asked._replace(instances_now=peak.instances), unchanged)] * (HOURS - 1)
