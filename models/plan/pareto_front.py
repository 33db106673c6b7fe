"""Fronts: what of many plans is worth a look."""

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats


def not_dominated(costs: Floats) -> NDArray[np.bool_]:
    """Which rows no other row beats in one column and equals or beats in all, shape (N,); less is better.

    Of equal rows the first stays.
    """
    kept = np.ones(len(costs), bool)
    for n, row in enumerate(costs):
        if kept[n]:
            beaten = (costs >= row).all(axis=1)
            beaten[n] = False
            beaten[:n] &= (costs[:n] > row).any(axis=1)
            kept &= ~beaten
    return kept
