"""How long to hold an instance that no work needs: the time that would have cost least on known minutes.

    need_m    = the least n >= least with n u c(n) >= w_{m-1}            instances
    held_m    = max of need over minute m and the h minutes before it
    serving_m = min of held over minute m and the b minutes before it
    queue_m   = max(0, queue_{m-1} + w_m - serving_m c(serving_m))       work that waits
    late      = sum of min(w_m, queue_m) / sum of w_m
    u_h       = the largest u with late <= LATE_SHARE
    h*        = the h with the smallest sum of held at u_h

w_m is the work of a minute, b a boot, c(n) what each of n instances sustains (models/plan/pool_capacity.py).
u is the part of it that a rule counts on. So all times are compared at the same share of late work: a rule
that lets instances go between two bursts must count on less of each, and then it holds more all day.
"""

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
from scipy.ndimage import maximum_filter1d

from fleetcast.models.aliases import Floats
from fleetcast.models.plan.pool_capacity import instances_for_work, sustained_work

LATE_SHARE = 0.01
LEAST_USED, MOST_USED = 1 / 64, 8.0  # between which u is searched
BISECTIONS = 10  # to within 1 %


def cheapest_hold_minutes(
    work: Floats, choices: Sequence[int], boot_minutes: int, least: float, capacity: float, shares: Floats
) -> int:
    """Return the time of `choices` that costs least, in minutes; of equal ones the first.

    Parameters
    ----------
    work : (minutes,) tokens/s
    least : minimum of instances
    capacity : tokens/s of one of four instances, above 0
    shares : (4,) c(n) / c(4), of `size_shares`
    """
    each, of_size = np.full(work.size, capacity), np.repeat(shares[:, None], work.size, axis=1)
    before = np.concatenate([work[:1], work[:-1]])

    def hold(minutes: int, used: float) -> Floats:
        need = np.maximum(least, instances_for_work(before, used * each, of_size))
        return trailing_maximum(need, minutes)

    def late_share(held: Floats) -> float:
        serving = -trailing_maximum(-held, boot_minutes)
        sustained = np.where(serving > 0, sustained_work(serving, each, of_size), 0.0)
        backlog = np.cumsum(work - sustained)
        queue = backlog - np.minimum.accumulate(np.minimum(backlog, 0.0))
        return float(np.minimum(work, queue).sum() / work.sum())

    def instance_minutes(minutes: int) -> float:
        low, high = LEAST_USED, MOST_USED
        if late_share(hold(minutes, low)) > LATE_SHARE:
            return inf
        for _ in range(BISECTIONS):
            middle = sqrt(low * high)
            low, high = (middle, high) if late_share(hold(minutes, middle)) <= LATE_SHARE else (low, middle)
        return float(hold(minutes, low).sum())

    return min(choices, key=instance_minutes) if work.sum() > 0 else choices[0]


def trailing_maximum(values: Floats, before: int) -> Floats:
    """Return the largest of each value and so many before it, shape as `values`."""
    return maximum_filter1d(values, before + 1, mode="nearest", origin=before // 2)
