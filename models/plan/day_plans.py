"""Plans of a whole day: hour after hour, or one allocation for all hours."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fleetcast.models.aliases import Ints
from fleetcast.models.plan.problem import HourPlan, Problem

HourSolver = Callable[[Problem], HourPlan]


def hourly_plans(problems: Iterable[Problem], start: Ints, spot: Ints, solve: HourSolver) -> list[HourPlan]:
    """Plan the hours in open loop: each hour starts from what the hour before it planned.

    Parameters
    ----------
    problems
        The hours in order; their own `instances_now` and `spot` are not read.
    start, spot
        Instances that serve and that are donated before the first hour, shape (services, regions, options).
    solve
        From a Problem to its Plan: `paper.solve` or `corrected.solve` with its options bound.
    """
    plans: list[HourPlan] = []
    now = start
    for problem in problems:
        here = problem._replace(instances_now=now, spot=spot)
        plans.append(solve(here))
        now, spot = plans[-1].instances, spot_after(here, plans[-1])
    return plans


def spot_after(problem: Problem, plan: HourPlan) -> Ints:
    """Donated instances at the end of the hour, shape (i, j, k).

    Those of the beginning and the new ones, less the reclaimed, less those whose VM a cold start of another
    service took because the region had no free one: from the one that has donated most, as the replay does.
    """
    return spot_that_fits(problem, plan.instances, problem.spot + plan.donated - plan.reclaimed)


def spot_that_fits(problem: Problem, instances: Ints, spot: Ints) -> Ints:
    """The donated instances that the GPUs have room for beside those that serve, shape (i, j, k).

    Where there are too many, whoever has donated most of those that hold such GPUs loses one.
    """
    spot = spot.copy()
    for j, g in np.ndindex(problem.cap_gpus.shape):
        each = problem.uses[:, :, g]
        here = spot[:, j] * (each > 0)
        over = int(((instances + spot)[:, j] * each).sum() - problem.cap_gpus[j, g])
        while over > 0 and here.any():
            most = np.unravel_index(here.argmax(), here.shape)
            here[most] -= 1
            over -= int(each[most])
        spot[:, j] = np.where(each > 0, here, spot[:, j])
    return spot


def peak_plan(problems: Sequence[Problem], solve: HourSolver) -> HourPlan:
    """Find the cheapest allocation that covers every one of these hours without change.

    The windows of all hours become the windows of one; an instance counts what it sustains in its worst hour.
    Starting is free, since what is held all day pays it once.
    """
    first = problems[0]
    return solve(
        first._replace(
            tokens_per_s=np.min([p.tokens_per_s for p in problems], axis=0),
            boot_spot_s=np.zeros_like(first.boot_spot_s),
            demand_tokens_per_s=np.concatenate([p.need_tokens_per_s for p in problems], axis=2),
            buffer_tokens_per_s=np.zeros_like(first.buffer_tokens_per_s),
        )
    )
