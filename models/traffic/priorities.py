"""Levels of priority drawn for requests that have none (multi-tier Llumnix 4.2): 0 is the highest.

uniform     each level alike
gaussian    exp(-((p - m) / s)^2 / 2) with m = (K - 1) / 2, s = K / 4: most in the middle
enterprise  a tenth at the top, a fifth at the bottom, the rest alike; of two levels a quarter at the top
tier        not drawn: the trace's own tiers, in the catalogue's order, all below the last level in that
"""

import numpy as np
from numpy.typing import NDArray

Levels = NDArray[np.int16]


def shares(by: str, count: int) -> NDArray[np.float64]:
    """The share of the requests that each level has, shape (K,); they sum to 1."""
    p = np.arange(count)
    if by == "gaussian":
        weight = np.exp(-(((p - (count - 1) / 2) / (count / 4)) ** 2) / 2)
    elif by == "enterprise" and count > 1:
        middle = 0.70 / max(1, count - 2)
        weight = np.array([0.10, *[middle] * (count - 2), 0.20]) if count > 2 else np.array([0.25, 0.75])
    else:
        weight = np.ones(count)
    return weight / weight.sum()


def levels_of(tier: NDArray[np.int16], by: str, count: int, seed: int) -> Levels:
    """The level of each request, shape (R,), by its tier or by a draw; the same for every policy."""
    if by == "tier":
        return np.minimum(tier, count - 1).astype(np.int16)
    drawn = np.random.default_rng([seed, 0x1E7E1]).choice(count, tier.size, p=shares(by, count))
    return drawn.astype(np.int16)
