"""What a forecasting method is: a plain function of the known past."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Forecast(NamedTuple):
    """What a method says at one cutoff."""

    mean: Floats  # expected tokens/s per bucket, shape (horizon,)
    state: Any = None  # what the next cutoff of the same series may reuse
    fallback: str = ""  # which method answered instead, and why


# (history, horizon, season, state) -> Forecast. `history` is tokens/s per bucket from the first of the series
# to the cutoff, nan where a bucket is missing; `season` is the buckets of a day; `state` is what the same
# series' previous cutoff returned (None at first), so that a method can refit rarely and update often.
Method = Callable[[Floats, int, int, Any], Forecast]

FLOOR_SHARE = 0.01  # of the mean


def to_logs(history: Floats) -> tuple[Floats, float]:
    """Logarithms of a series, and the floor added before: an empty bucket is low, not minus infinity."""
    floor = FLOOR_SHARE * float(np.nanmean(history))
    return np.log(history + floor), floor


def from_logs(logs: Floats, floor: float) -> Floats:
    """The way back from `to_logs`, never negative."""
    with np.errstate(over="ignore"):  # what diverges becomes inf, and the walk forward sees that
        return np.maximum(np.exp(logs) - floor, 0.0)
