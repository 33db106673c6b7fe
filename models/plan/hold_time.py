"""How long to hold an instance that no work needs: the time that would have cost least on known requests.

    need_t    = the least n >= least with n u c(n) >= observed_t         instances
    held_t    = max of need over step t and the h steps before it
    serving_t = min of held over step t and the b steps before it
    queue_t   = max(0, queue_{t-1} + w_t - serving_t c(serving_t))       work that waits
    late      = sum of min(w_t, queue_t) / sum of w_t
    u_h       = the largest u with late <= LATE_SHARE
    cost_h    = sum of held at u_h

w_t is the work of a step, observed_t what the rule knows of it by then, b a boot, c(n) what each of n
instances sustains (models/plan/pool_capacity.py). u is the part of it that a rule counts on. So all times are
compared at the same share of late work: a rule that lets instances go between two bursts must count on less
of each, and then it holds more all day.

The queue is fluid, so costs are rough. Another time than the first must save SHORTER_SAVES_SHARE or
LONGER_SAVES_SHARE.
"""

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
import pandas as pd

from fleetcast.models.aliases import Floats
from fleetcast.models.plan.pool_capacity import instances_for_work, sustained_work

LATE_SHARE = 0.01
SHORTER_SAVES_SHARE = 0.05  # boards found costs up to 7 % above the estimate
LONGER_SAVES_SHARE = 0.1  # up to 12 %
LEAST_USED, MOST_USED = 1 / 64, 8.0  # between which u is searched
BISECTIONS = 10  # to within 1 %


def cheapest_hold(
    work: Floats,
    observed: Floats,
    choices: Sequence[int],
    boot: int,
    least: float,
    capacity: float,
    shares: Floats,
) -> int:
    """Return which of `choices` costs least, in steps: the first, or another that saves enough.

    Parameters
    ----------
    work, observed : (steps,) tokens/s
    choices, boot : steps
    least : minimum of instances
    capacity : tokens/s of one of four instances, above 0
    shares : (4,) c(n) / c(4), of `size_shares`
    """
    each, of_size = np.full(work.size, capacity), np.repeat(shares[:, None], work.size, axis=1)

    def hold(steps: int, used: float) -> Floats:
        need = np.maximum(least, instances_for_work(observed, used * each, of_size))
        return trailing_maximum(need, steps)

    def late_share(held: Floats) -> float:
        serving = -trailing_maximum(-held, boot)
        sustained = np.where(serving > 0, sustained_work(serving, each, of_size), 0.0)
        backlog = np.cumsum(work - sustained)
        queue = backlog - np.minimum.accumulate(np.minimum(backlog, 0.0))
        return float(np.minimum(work, queue).sum() / work.sum())

    def cost(steps: int) -> float:
        low, high = LEAST_USED, MOST_USED
        if late_share(hold(steps, low)) > LATE_SHARE:
            return inf
        for _ in range(BISECTIONS):
            middle = sqrt(low * high)
            low, high = (middle, high) if late_share(hold(steps, middle)) <= LATE_SHARE else (low, middle)
        return float(hold(steps, low).sum())

    first = choices[0]
    if not work.any():
        return first
    costs = {steps: cost(steps) for steps in choices}
    saves = {steps: SHORTER_SAVES_SHARE if steps < first else LONGER_SAVES_SHARE for steps in choices[1:]}
    worth_it = [steps for steps, share in saves.items() if costs[steps] <= (1 - share) * costs[first]]
    return min(worth_it, key=costs.__getitem__, default=first)


def trailing_maximum(values: Floats, before: int) -> Floats:
    """Return the largest of each value and so many before it, shape as `values`."""
    return pd.Series(values).rolling(before + 1, min_periods=1).max().to_numpy()
