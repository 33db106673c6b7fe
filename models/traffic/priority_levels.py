"""Priority levels for requests that have none (multi-tier Llumnix 4.2): 0 is the highest.

uniform     sampled, equal shares of all levels
gaussian    sampled, exp(-((p - m) / s)^2 / 2) with m = (K - 1) / 2, s = K / 4: most in the middle
enterprise  sampled, 10 % at the top, 20 % at the bottom, the rest equal; of two levels 25 % at the top
shares      sampled with given shares
tier        the tiers of the requests, the most urgent first; those beyond the last level are in it
app         the applications of the trace, those with the shortest time to the first token first
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats
from fleetcast.models.world.option_names import LEVELS_BY_SHARES

LevelCodes = NDArray[np.int16]


def level_shares(by: str, count: int) -> Floats:
    """Return the share of the requests in each level of a sampler, shape (count,); they sum to 1."""
    p = np.arange(count)
    if by == "gaussian":
        weight = np.exp(-(((p - (count - 1) / 2) / (count / 4)) ** 2) / 2)
    elif by == "enterprise" and count > 1:
        middle = 0.70 / max(1, count - 2)
        weight = np.array([0.10, *[middle] * (count - 2), 0.20]) if count > 2 else np.array([0.25, 0.75])
    else:
        weight = np.ones(count)
    return weight / weight.sum()


def draw_levels(
    requests: int, by: str, count: int, seed: int, given: Sequence[float] | None = None
) -> LevelCodes:
    """Return the sampled level of each request, shape (requests,); the same for every policy.

    `given` are the weights of the levels for `by = "shares"`.
    """
    if by == LEVELS_BY_SHARES and given is not None:
        shares = np.array(given) / np.sum(given)
    else:
        shares = level_shares(by, count)
    return np.random.default_rng([seed, 0x1E7E1]).choice(count, requests, p=shares).astype(np.int16)


def assign_levels_by_tier(tier: NDArray[np.int16], need_s: Floats, count: int) -> LevelCodes:
    """Return the level of each request, shape (R,), by the rank of its tier among those that have requests.

    tier : positions in `need_s`, shape (R,).
    need_s : required time of each tier, shape (tiers,); those with the least come first
    """
    present = np.bincount(tier, minlength=need_s.size) > 0
    ranked = np.argsort(np.where(present, need_s, np.inf), kind="stable")
    level = np.empty(need_s.size, np.int16)
    level[ranked] = np.minimum(np.arange(need_s.size), count - 1)
    return level[tier]


def assign_levels_by_app(app: NDArray[np.int64], need_s: Floats, count: int) -> LevelCodes:
    """Return the level of each request, shape (R,), by its application.

    Applications are ordered by the geometric mean of the required time of their requests. Levels have shares
    of the requests that are as equal as whole applications allow.

    app : codes 0, 1, ... without gaps, shape (R,).
    need_s : required time to the first token, shape (R,)
    """
    requests = np.bincount(app)
    order = np.argsort(np.bincount(app, np.log(need_s)) / requests, kind="stable")
    level = np.empty(order.size, np.int16)
    level[order] = levels_of_steps(requests[order] / requests.sum(), np.full(count, 1 / count))
    return level[app]


def levels_of_steps(steps: Floats, levels: Floats) -> LevelCodes:
    """Return the level of each step, shape (steps,): the level whose share contains the middle of the step's.

    `steps`, (steps,), and `levels`, (levels,), are shares from the top.
    """
    middle = np.cumsum(steps) - steps / 2
    return np.searchsorted(np.cumsum(levels)[:-1], middle, side="right").astype(np.int16)
