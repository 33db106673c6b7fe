"""Plans of a whole day: hour by hour, or one allocation for all hours."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fleetcast.models.aliases import Ints
from fleetcast.models.plan.problem import HourPlan, Problem

HourSolver = Callable[[Problem], HourPlan]


def hourly_plans(problems: Iterable[Problem], start: Ints, spot: Ints, solve: HourSolver) -> list[HourPlan]:
    """Plan the hours in open loop: each hour starts from the plan of the hour before it.

    Parameters
    ----------
    problems
        The hours in order; their `instances_now` and `spot` are not read.
    start, spot
        Serving and donated instances before the first hour, shape (services, regions, options).
    solve
        Solver of one hour: `solve_sageserve` or `solve_corrected` with its options bound.
    """
    plans: list[HourPlan] = []
    now = start
    for problem in problems:
        hour = problem._replace(instances_now=now, spot=spot)
        plans.append(solve(hour))
        now, spot = plans[-1].instances, spot_after(hour, plans[-1])
    return plans


def spot_after(problem: Problem, plan: HourPlan) -> Ints:
    """Return the donated instances at the end of the hour, shape (i, j, k).

    They are those at the beginning plus the newly donated ones, less the reclaimed ones, less those whose VM
    a cold start of another service took because the region had no free VM. As in the replay, such a VM comes
    from the service and option with the most donated instances.
    """
    return spot_that_fits(problem, plan.instances, problem.spot + plan.donated - plan.reclaimed)


def spot_that_fits(problem: Problem, instances: Ints, spot: Ints) -> Ints:
    """Return the donated instances for which GPUs are left by the serving ones, all of shape (i, j, k).

    Where there are too few GPUs of a type, the service and option with the most donated instances on this
    type loses one, until the rest fits.
    """
    spot = spot.copy()
    for j, g in np.ndindex(problem.cap_gpus.shape):
        gpus_each = problem.uses[:, :, g]
        donated = spot[:, j] * (gpus_each > 0)
        excess = int(((instances + spot)[:, j] * gpus_each).sum() - problem.cap_gpus[j, g])
        while excess > 0 and donated.any():
            most = np.unravel_index(donated.argmax(), donated.shape)
            donated[most] -= 1
            excess -= int(gpus_each[most])
        spot[:, j] = np.where(gpus_each > 0, donated, spot[:, j])
    return spot


def peak_plan(problems: Sequence[Problem], solve: HourSolver) -> HourPlan:
    """Return the cheapest constant allocation that covers all of these hours.

    The windows of all hours become the windows of one hour. An instance has the capacity of its worst hour.
    Starting is free, since an instance that runs all day starts only once.
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
