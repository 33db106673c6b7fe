"""Pareto fronts: the plans that no other plan dominates."""

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats


def not_dominated(costs: Floats) -> NDArray[np.bool_]:
    """Return whether no other row dominates a row, shape (N,); `costs` (N, columns), less is better.

    A row dominates another if it is less in one column and not more in any. Of equal rows the first stays.
    """
    kept = np.ones(len(costs), bool)
    for n, row in enumerate(costs):
        if kept[n]:
            dominated = (costs >= row).all(axis=1)
            dominated[n] = False
            dominated[:n] &= (costs[:n] > row).any(axis=1)
            kept &= ~dominated
    return kept
