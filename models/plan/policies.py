"""Plans of a whole day: hour after hour, or one allocation for all hours."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from models.plan.problem import Ints, Plan, Problem

Solve = Callable[[Problem], Plan]


def hourly_plans(problems: Iterable[Problem], start: Ints, solve: Solve) -> list[Plan]:
    """Plan the hours in open loop: each hour starts from the instances that the hour before it planned.

    Parameters
    ----------
    problems
        The hours in order; their own `instances_now` is not read.
    start
        Instances before the first hour, shape (llms, regions, GPU types).
    solve
        From a Problem to its Plan: `ilp.solve` with its options bound.
    """
    plans: list[Plan] = []
    for problem in problems:
        now = plans[-1].instances if plans else start
        plans.append(solve(problem._replace(instances_now=now)))
    return plans


def peak_plan(problems: Sequence[Problem], solve: Solve) -> Plan:
    """Find the cheapest allocation that covers every one of these hours without change.

    The windows of all hours become the windows of one; an instance counts what it sustains in its worst hour.
    Starting is free, since what is held all day pays it once.
    """
    first = problems[0]
    return solve(
        first._replace(
            tokens_per_s=np.min([p.tokens_per_s for p in problems], axis=0),
            start_usd=np.zeros_like(first.start_usd),
            demand_tokens_per_s=np.concatenate([p.need_tokens_per_s for p in problems], axis=2),
            buffer_tokens_per_s=np.zeros_like(first.buffer_tokens_per_s),
        )
    )
