"""Plans: building and solving an hour of the corrected programme, small and large, and a week of hours."""

import numpy as np
from measure import Figures, Target, peak_gb, wall_seconds

from fleetcast.models.plan import corrected_plan, sageserve_plan
from fleetcast.models.plan.day_plans import HourSolver, hourly_plans
from fleetcast.models.plan.plan_violations import find_violations
from fleetcast.models.plan.problem import HourPlan, Problem
from fleetcast.models.plan.solver import SolverOptions

HOW = "build and solve with HiGHS to a gap of 0.5 %; wall"
SLACK, TIGHT = 2.0, 0.35  # GPUs of each type, of what a region would need if it used only the cheapest
PER_ENDPOINT = 20  # instances (SageServe 7.1)
WEEK = 168
LARGE, HUGE = (20, 20, 5), (50, 20, 5)  # llms, regions, GPU types
TARGETS = {
    "plan_4_3_1_seconds": Target("s", f"4 llms, 3 regions, 1 GPU type: {HOW}, best of 3", at_most=0.05),
    "plan_20_20_5_seconds": Target(
        "s", f"20 llms, 20 regions, 5 GPU types, caps slack: {HOW}, best of 3", at_most=2.0
    ),
    "plan_20_20_5_gap": Target("", "the same: what the plan may be dearer than the best one", at_most=0.01),
    "plan_20_20_5_paper_seconds": Target("s", "the same hour by the paper's programme (SageServe: 33 s)"),
    "plan_20_20_5_tight_seconds": Target(
        "s", "the same with caps that bind: until the plan is there", at_most=5.0
    ),
    "plan_20_20_5_tight_gap": Target("", "the same: what the plan may be dearer than the best one"),
    "plan_50_20_5_seconds": Target("s", f"50 llms, 20 regions, 5 GPU types, caps slack: {HOW}"),
    "plan_50_20_5_gap": Target("", "the same: what the plan may be dearer than the best one"),
    "plan_peak_gb": Target("GB", "memory of solving the 50, 20, 5 hour, with Python", at_most=1.0),
    "plan_week_seconds": Target("s", "168 hours of 4, 3, 1, each from the one before; wall", at_most=30.0),
}


def small_hour() -> Figures:
    """An hour of 4 llms, 3 regions and 1 GPU type."""
    problem = running_hour(4, 3, 1, SLACK)
    checked(corrected_plan.solve_corrected)(problem)  # imports the solver
    return {
        "plan_4_3_1_seconds": wall_seconds(
            lambda: checked(corrected_plan.solve_corrected)(problem), repeats=3
        )
    }


def large_hour() -> Figures:
    """An hour of 20 llms, 20 regions and 5 GPU types, with slack caps, and by the paper's programme."""
    problem = running_hour(*LARGE, SLACK)
    plans: list[HourPlan] = []
    spent = wall_seconds(lambda: plans.append(checked(corrected_plan.solve_corrected)(problem)), repeats=3)
    by_paper = wall_seconds(lambda: checked(sageserve_plan.solve_sageserve)(problem))
    return {
        "plan_20_20_5_seconds": spent,
        "plan_20_20_5_gap": plans[0].gap_share,
        "plan_20_20_5_paper_seconds": by_paper,
    }


def tight_hour() -> Figures:
    """The same with caps so tight that dear GPU types are used as well."""
    problem, plans = running_hour(*LARGE, TIGHT), list[HourPlan]()
    spent = wall_seconds(lambda: plans.append(checked(corrected_plan.solve_corrected)(problem)))
    return {"plan_20_20_5_tight_seconds": spent, "plan_20_20_5_tight_gap": plans[0].gap_share}


def huge_hour() -> Figures:
    """An hour of 50 llms, 20 regions and 5 GPU types: how time and memory grow."""
    problem, plans = running_hour(*HUGE, SLACK), list[HourPlan]()
    solve = checked(corrected_plan.solve_corrected, time_limit_s=30.0)
    spent = wall_seconds(lambda: plans.append(solve(problem)))
    return {"plan_50_20_5_seconds": spent, "plan_50_20_5_gap": plans[0].gap_share, "plan_peak_gb": peak_gb()}


def week() -> Figures:
    """A week of hourly plans, demand moving with the hour of the day."""
    first = running_hour(4, 3, 1, SLACK)
    level = 0.6 + 0.4 * np.sin(2 * np.pi * np.arange(WEEK) / 24)
    hours = [first._replace(demand_tokens_per_s=first.demand_tokens_per_s * part) for part in level]
    solve = checked(corrected_plan.solve_corrected)
    solve(first)  # imports the solver
    return {
        "plan_week_seconds": wall_seconds(lambda: hourly_plans(hours, first.instances_now, first.spot, solve))
    }


def checked(programme: HourSolver, time_limit_s: float = 5.0) -> HourSolver:
    """Solve, and refuse to measure a plan that breaks its own programme."""

    def one_hour(problem: Problem) -> HourPlan:
        plan = programme(problem, SolverOptions(time_limit_s=time_limit_s))
        if broken := find_violations(problem, plan):
            raise RuntimeError(f"The plan breaks: {broken[0]}")
        return plan

    return one_hour


def running_hour(llms: int, regions: int, gpus: int, room: float) -> Problem:
    """A seeded hour of a running fleet: it holds the plan of the hour before; a third as many are donated.

    Demand fills 10 to 30 instances per endpoint and has moved by up to 15 % since.
    """
    rng = np.random.default_rng([llms, regions, gpus])
    size = rng.integers(1, 9, (llms, gpus))
    theta = rng.uniform(2e3, 2e4, (llms, gpus)) * size / 4
    usd = size * rng.uniform(1.0, 6.0, (1, gpus)) * rng.uniform(0.9, 1.1, (1, gpus))
    llm, cheapest = np.arange(llms), np.argmin(usd / theta, axis=1)
    peaks = theta[llm, cheapest][:, None] * PER_ENDPOINT * rng.uniform(0.5, 1.5, (llms, regions))
    shape = rng.uniform(0.7, 1.0, (llms, regions, 4))
    needed = (peaks * (size / theta)[llm, cheapest][:, None]).sum(axis=0)
    limits, nothing = np.ones((llms, regions), np.int64), np.zeros((llms, regions, gpus), np.int64)
    before = Problem(
        llms=tuple(f"llm{i}" for i in range(llms)),
        roles=("whole",) * llms,
        regions=tuple(f"region{j}" for j in range(regions)),
        options=tuple(f"gpu{k}" for k in range(gpus)),
        gpus=tuple(f"gpu{k}" for k in range(gpus)),
        instances_now=nothing,
        spot=nothing,
        tokens_per_s=theta,
        size_shares=np.ones((4, llms, gpus)),
        usd_per_hour=usd,
        demand_tokens_per_s=peaks[:, :, None] * shape,
        buffer_tokens_per_s=0.03 * peaks,
        uses=size[:, :, None] * np.eye(gpus, dtype=np.int64),
        cap_gpus=np.repeat(np.ceil(room * needed).astype(np.int64)[:, None], gpus, axis=1),
        min_instances=limits,
        max_instances=400 * limits,
        min_option_instances=nothing,
        max_option_instances=nothing + 400,
        budget_usd=np.inf,
        epsilon=0.8,
        window_s=900.0,
        hours=1.0,
        boot_spot_s=np.full((llms, gpus), 60.0),
        boot_cold_s=np.zeros((llms, regions, gpus)),
        spot_earning_share=1.0,
        hysteresis_share=0.05,
        export_share=0.05,
    )
    held = corrected_plan.solve_corrected(before).instances
    return before._replace(
        instances_now=held,
        spot=held // 3,
        demand_tokens_per_s=before.demand_tokens_per_s * rng.uniform(0.85, 1.15, (llms, regions, 1)),
        boot_cold_s=np.full((llms, regions, gpus), 600.0),
    )


FUNCTIONS = (small_hour, large_hour, tight_hour, huge_hour, week)
FEW = {"LARGE": (3, 3, 2), "HUGE": (4, 3, 2)}
SMOKE = {
    **dict.fromkeys(("large_hour", "tight_hour", "huge_hour"), FEW),
    "small_hour": {},
    "week": {"WEEK": 4},
}
