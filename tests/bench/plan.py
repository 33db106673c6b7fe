"""Plans: building and solving one hour, small and large."""

import numpy as np
from measure import Figures, Target, wall_seconds

from models.plan.ilp import solve
from models.plan.problem import Plan, Problem, violations

HOW = "build and solve with HiGHS to a gap of 0.5 %, caps with slack; wall"
TARGETS = {
    "plan_4_3_1_seconds": Target("s", f"4 llms, 3 regions, 1 GPU type: {HOW}, best of 3", at_most=0.05),
    "plan_20_20_5_seconds": Target("s", f"20 llms, 20 regions, 5 GPU types: {HOW}", at_most=10.0),
    "plan_20_20_5_gap": Target("", "the same: what the plan may be dearer than the best one", at_most=0.01),
}


def small_hour() -> Figures:
    """An hour of 4 llms, 3 regions and 1 GPU type."""
    problem = random_hour(4, 3, 1)
    checked_plan(problem)  # imports the solver
    return {"plan_4_3_1_seconds": wall_seconds(lambda: checked_plan(problem), repeats=3)}


def large_hour() -> Figures:
    """An hour of 20 llms, 20 regions and 5 GPU types."""
    checked_plan(random_hour(4, 3, 1))
    plans: list[Plan] = []
    spent = wall_seconds(lambda: plans.append(checked_plan(random_hour(20, 20, 5))))
    return {"plan_20_20_5_seconds": spent, "plan_20_20_5_gap": plans[0].gap_share}


def checked_plan(problem: Problem) -> Plan:
    """Solve, and refuse to measure a plan that breaks its own programme."""
    plan = solve(problem, time_limit_s=60.0)
    if broken := violations(problem, plan):
        raise RuntimeError(f"The plan breaks: {broken[0]}")
    return plan


def random_hour(llms: int, regions: int, gpus: int) -> Problem:
    """A seeded hour whose caps leave about twice the room that its demand needs."""
    rng = np.random.default_rng([llms, regions, gpus])
    size = rng.integers(1, 9, (llms, gpus))
    theta = rng.uniform(2e3, 2e4, (llms, gpus)) * size / 4
    demand = rng.uniform(5e3, 2e5, (llms, regions, 1)) * rng.uniform(0.7, 1.0, (llms, regions, 4))
    usd = size * rng.uniform(1.0, 6.0, (1, gpus)) * rng.uniform(0.9, 1.1, (1, gpus))
    peaks = demand.max(axis=2)
    needed = (peaks / theta.mean(axis=1)[:, None] * size.mean(axis=1)[:, None]).sum(axis=0)
    limits = np.ones((llms, regions), np.int64)
    return Problem(
        llms=tuple(f"llm{i}" for i in range(llms)),
        regions=tuple(f"region{j}" for j in range(regions)),
        gpus=tuple(f"gpu{k}" for k in range(gpus)),
        instances_now=rng.integers(0, 10, (llms, regions, gpus)),
        tokens_per_s=theta,
        usd_per_hour=usd,
        start_usd=usd / 6,
        demand_tokens_per_s=demand,
        buffer_tokens_per_s=0.03 * peaks,
        gpus_per_instance=size,
        cap_gpus=np.repeat(np.ceil(2.0 * needed / gpus + 16).astype(np.int64)[:, None], gpus, axis=1),
        min_instances=limits,
        max_instances=400 * limits,
        epsilon=0.8,
    )


FUNCTIONS = (small_hour, large_hour)
