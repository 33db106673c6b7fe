"""How many instance-minutes a fleet needs that knows the work of each minute and starts instances at once.

    n_m = max(least, the least n with n c(n) >= w_m)            w_m: interactive work of minute m, tokens/s
    room = sum over m of n_m c(n_m) - w_m
    instance-minutes = sum over m of n_m + max(0, b - room) / max over n of ((n + 1) c(n + 1) - n c(n))

b is the work of the batch requests, tokens/s times minutes. It goes into the room of the instances that run
anyway; the rest buys instances where one more adds most. So no rule with the same capacity c(n) needs fewer
(models/plan/pool_capacity.py). The difference is what a perfect forecast could save at most.
"""

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.plan.pool_capacity import LARGE, instances_for_work, sustained_work


def known_minutes_instances(
    interactive: Floats, batch: float, least: float, capacity: float, shares: Floats
) -> float:
    """Return the instance-minutes of one llm.

    Parameters
    ----------
    interactive : (minutes,) tokens/s
    batch : tokens/s times minutes, at any time
    least : minimum of instances
    capacity : tokens/s of one of four instances
    shares : (4,) c(n) / c(4), of `size_shares`
    """
    minutes = interactive.size
    each, of_size = np.full(minutes, capacity), np.repeat(shares[:, None], minutes, axis=1)
    running = np.maximum(least, instances_for_work(interactive, each, of_size))
    room = np.where(running > 0, sustained_work(running, each, of_size), 0.0) - interactive
    sizes = np.arange(LARGE + 2)
    total = capacity * sizes * np.concatenate([[0.0], shares, [1.0]])
    most_added = np.diff(total).max()
    return float(running.sum() + max(0.0, batch - np.maximum(room, 0.0).sum()) / most_added)
