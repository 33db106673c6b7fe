"""Walk-forward: at every cutoff a method sees what was known then, and nothing else.

This is the only place that cuts a series, so that no method can see past its cutoff: it is handed a copy that
ends there, and a state that its own earlier cutoffs made.
"""

import logging
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.forecast import method_named
from models.forecast.method import Floats, Method
from models.forecast.seasonal import last_value

CEILING = 3.0  # a forecast above this multiple of all that was ever seen has diverged
log = logging.getLogger(__name__)


class Walk(NamedTuple):
    """The forecasts of all series at all cutoffs."""

    predicted: Floats  # tokens/s, shape (series, cutoffs, horizon)
    fallbacks: NDArray[np.str_]  # which method answered instead and why, shape (series, cutoffs); "" if none


def cutoffs(buckets: int, first_cutoff: int, cutoffs_every: int) -> range:
    """The cutoffs of a walk over so many buckets; at cutoff c the buckets 0 .. c - 1 are known."""
    return range(first_cutoff, buckets, cutoffs_every)


def walk(
    demand: Floats, method: str, first_cutoff: int, cutoffs_every: int, horizon: int, season: int
) -> Walk:
    """Forecast every series at every cutoff, from its past only.

    Parameters
    ----------
    demand
        Tokens/s per bucket, shape (series, buckets); nan is a missing bucket, not an empty one. To forecast
        beyond the record, append nan.
    method
        A name in METHODS.
    first_cutoff, cutoffs_every
        The cutoffs are first_cutoff, first_cutoff + cutoffs_every, ... below the number of buckets.
    horizon
        Buckets to forecast: c .. c + horizon - 1.
    season
        Buckets of a day. The first bucket may be any time of any weekday.
    """
    forecast = method_named(method)
    _check(demand, first_cutoff, {"cutoffs_every": cutoffs_every, "horizon": horizon, "season": season})
    ends = cutoffs(demand.shape[1], first_cutoff, cutoffs_every)
    rows = [_walk_series(series, forecast, ends, horizon, season) for series in demand]
    predicted = np.array([row[0] for row in rows]).reshape(len(rows), len(ends), horizon)
    return Walk(predicted, np.array([row[1] for row in rows], dtype=np.str_).reshape(len(rows), len(ends)))


def walk_forward(
    demand: Floats, method: str, first_cutoff: int, cutoffs_every: int, horizon: int, season: int
) -> Floats:
    """The forecasts of `walk`, shape (series, cutoffs, horizon); fallbacks are logged."""
    result = walk(demand, method, first_cutoff, cutoffs_every, horizon, season)
    for reason, count in Counter(result.fallbacks[result.fallbacks != ""].tolist()).items():
        log.warning("%s: %d of %d forecasts by %s", method, count, result.fallbacks.size, reason)
    return result.predicted


def actuals(demand: Floats, first_cutoff: int, cutoffs_every: int, horizon: int) -> Floats:
    """What came after each cutoff, shaped like the forecasts; nan beyond the record."""
    ends = np.array(cutoffs(demand.shape[1], first_cutoff, cutoffs_every))
    longer = np.pad(demand, ((0, 0), (0, horizon)), constant_values=np.nan)
    return longer[:, ends[:, None] + np.arange(horizon)]


def _walk_series(
    series: Floats, forecast: Method, ends: range, horizon: int, season: int
) -> tuple[list[Floats], list[str]]:
    """One series through all its cutoffs: the state goes from one to the next, never back."""
    state, means, fallbacks = None, [], []
    for end in ends:
        history = series[:end].copy()
        mean, state, fallback = forecast(history, horizon, season, state)
        if not np.all(mean <= CEILING * np.max(history, initial=0.0, where=~np.isnan(history))):
            mean, _, _ = last_value(history, horizon, season)
            fallback = "last_value: the forecast diverged"
        means.append(np.maximum(mean, 0.0))
        fallbacks.append(fallback)
    return means, fallbacks


def _check(demand: Floats, first_cutoff: int, counts: dict[str, int]) -> None:
    if demand.ndim != 2:
        raise ValueError(f"demand has the shape {demand.shape}, needed (series, buckets).")
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name}: got {value}, needed at least 1 bucket.")
    if not 0 <= first_cutoff <= demand.shape[1]:
        raise ValueError(
            f"first_cutoff: got {first_cutoff}, needed 0 .. {demand.shape[1]}, the buckets of demand."
        )
    wrong = np.argwhere((demand < 0) | np.isinf(demand))
    if wrong.size:
        series, bucket = wrong[0]
        raise ValueError(
            f"demand of series {series}, bucket {bucket}: got {demand[series, bucket]}, "
            "needed tokens/s >= 0, or nan where the bucket is missing."
        )
