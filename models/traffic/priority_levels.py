"""Levels of priority for requests that have none (multi-tier Llumnix 4.2): 0 is the highest.

uniform     each level alike
gaussian    exp(-((p - m) / s)^2 / 2) with m = (K - 1) / 2, s = K / 4: most in the middle
enterprise  a tenth at the top, a fifth at the bottom, the rest alike; of two levels a quarter at the top
shares      drawn with shares that somebody says
tier        not drawn: the trace's own tiers, in the catalogue's order, all below the last level in that
app         not drawn: the trace's applications, whose requests want their first token soonest first
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats
from fleetcast.models.world.option_names import LEVELS_BY_SHARES, LEVELS_BY_TIER

LevelCodes = NDArray[np.int16]


def level_shares(by: str, count: int) -> Floats:
    """The share of the requests that each level of a sampler has, shape (K,); they sum to 1."""
    p = np.arange(count)
    if by == "gaussian":
        weight = np.exp(-(((p - (count - 1) / 2) / (count / 4)) ** 2) / 2)
    elif by == "enterprise" and count > 1:
        middle = 0.70 / max(1, count - 2)
        weight = np.array([0.10, *[middle] * (count - 2), 0.20]) if count > 2 else np.array([0.25, 0.75])
    else:
        weight = np.ones(count)
    return weight / weight.sum()


def assign_levels(
    tier: NDArray[np.int16], by: str, count: int, seed: int, said: Sequence[float] | None = None
) -> LevelCodes:
    """The level of each request, shape (R,), by its tier or by a draw; the same for every policy.

    `said` are the shares of `by = "shares"`, one for each level.
    """
    if by == LEVELS_BY_TIER:
        return np.minimum(tier, count - 1).astype(np.int16)
    chances = (
        level_shares(by, count) if by != LEVELS_BY_SHARES or said is None else np.array(said) / np.sum(said)
    )
    drawn = np.random.default_rng([seed, 0x1E7E1]).choice(count, tier.size, p=chances)
    return drawn.astype(np.int16)


def assign_levels_by_app(app: NDArray[np.int64], need_s: Floats, count: int) -> LevelCodes:
    """The level of each request, shape (R,), by its application, a code without gaps.

    Applications stand in order of the time that their requests want in the geometric mean; levels have as
    equal shares of the requests as whole applications allow.
    """
    requests = np.bincount(app)
    order = np.argsort(np.bincount(app, np.log(need_s)) / requests, kind="stable")
    level = np.empty(order.size, np.int16)
    level[order] = levels_of_steps(requests[order] / requests.sum(), np.full(count, 1 / count))
    return level[app]


def levels_of_steps(steps: Floats, levels: Floats) -> LevelCodes:
    """The level of each step, both given by their shares from the top: in whose share its middle lies."""
    middle = np.cumsum(steps) - steps / 2
    return np.searchsorted(np.cumsum(levels)[:-1], middle, side="right").astype(np.int16)
