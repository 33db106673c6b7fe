"""Fronts: what of many plans is worth a look, and how much room a front leaves below it."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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


def hypervolume(costs: Floats, reference: Floats) -> float:
    """The area that points of two costs dominate below a reference point; less is better."""
    inside = costs[(costs < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    order = inside[np.lexsort((inside[:, 1], inside[:, 0]))]
    floor = np.minimum.accumulate(order[:, 1])
    widths = np.diff(np.append(order[:, 0], reference[0]))
    return float((widths * (reference[1] - floor)).sum())
