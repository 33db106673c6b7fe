"""Search the factors of a profile with which its replay has the seconds that were measured.

Each round multiplies a factor by measured over replayed seconds, to the power of a weight, 1 at first:

    factor *= (measured / replayed) ** weight

Near saturation queues grow much faster than a factor, so full steps would swing around the answer for ever. A
step whose sign flips halves its weight, and each other one raises it by REGROWTH, as in Rprop (Riedmiller and
Braun 1993). Far from saturation few signs flip, so most steps are full. The round that was nearest counts.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats

MOST_ROUNDS = 40
SMALLEST_STEP = 1e-3  # of a factor, a share: below, the search has ended
FIT_MISS_SHARE = 0.02  # a larger miss is no fit: well below the errors that a profile may have
DAMPING, REGROWTH = 0.5, 1.2  # of a step's weight: where its sign flips, and where it does not
FARTHEST_FACTOR = 100.0  # no engine leaves its profile by more, either way


class FactorFit(NamedTuple):
    """The best factors of a search, and how far the replay with them is off what was measured.

    The miss is that of the phase which is farther off: the larger over the smaller seconds, less 1.
    """

    factors: Floats
    miss_share: float

    @property
    def is_near(self) -> bool:
        """Whether the replay has about the measured seconds."""
        return self.miss_share <= FIT_MISS_SHARE


def search_factors(log_misses: Callable[[Floats], Floats], factors: Floats) -> FactorFit:
    """Return the factors, shape (n,), that a search from those given finds.

    `log_misses` returns log(measured / replayed seconds) with some factors; both have shape (n,).
    """
    weights, before, best = np.ones_like(factors), np.zeros_like(factors), FactorFit(factors, np.inf)
    for _ in range(MOST_ROUNDS):
        logs = log_misses(factors)
        miss_share = float(np.expm1(np.abs(logs).max()))
        if miss_share < SMALLEST_STEP:
            return FactorFit(factors * np.exp(logs), miss_share)
        if miss_share < best.miss_share:
            best = FactorFit(factors, miss_share)
        weights = np.where(logs * before < 0, DAMPING * weights, np.minimum(REGROWTH * weights, 1.0))
        factors = np.clip(factors * np.exp(weights * logs), 1 / FARTHEST_FACTOR, FARTHEST_FACTOR)
        before = logs
    return best
