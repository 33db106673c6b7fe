"""Quantiles that hold: from how wrong the latest forecasts of the same series were, whatever the method.

A residual is actual minus forecast, in units of the forecast and a share of the series' level: relative where
demand is high, absolute where it is low, so that an error in an empty hour does not blow up a busy one. It
counts once the hour ahead that it lies in is known. At each cutoff a quantile is read from the last WINDOW of
them (split conformal prediction), at a level that moves after every miss and hit (adaptive conformal
inference, Gibbs and Candes, 2021, equation 2), so that it holds while a series changes: by much while few are
known, by less later (decaying steps: Angelopoulos, Barber and Bates, 2024), and by less where many forecasts
are made before the first of them can be judged: they overlap and err together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.forecast.backtest import CEILING
from models.forecast.method import Floats

LEVELS = (0.50, 0.90, 0.95)
WINDOW = 168  # cutoffs: a week of hours
BASE_SHARE = 0.3  # of the level, added to the forecast
FIRST_STEP = 0.5  # of the level, after the first judged forecast; falls with the root of their number
LEAST_STEP = 0.02
HIGHEST_LEVEL = 0.995


class Quantiles(NamedTuple):
    """Quantiles at LEVELS, in the unit of the forecast."""

    of_buckets: Floats  # shape (series, cutoffs, horizon, levels)
    of_peaks: Floats  # of the maximum of each whole hour, shape (series, cutoffs, hours, levels)


def quantiles(
    mean: Floats, actual: Floats, level: Floats, highest: Floats, lags: Sequence[int], hour: int
) -> Quantiles:
    """Calibrated quantiles at every cutoff, from the cutoffs before it.

    Parameters
    ----------
    mean, actual
        Forecasts and what came, shape (series, cutoffs, horizon); actual is nan where it is not known.
    level
        The mean of each series, as far as it is known at each cutoff, shape (series, cutoffs).
    highest
        Of what each cutoff knows, shape (series, cutoffs): no quantile exceeds CEILING times that, or times
        the forecast where that is higher (a known event).
    lags
        For each hour ahead, how many cutoffs later it can be judged.
    hour
        Buckets of an hour. The maximum of each whole hour ahead has residuals of its own: the largest bucket
        of a mean forecast lies below the largest that comes more often than not.
    """
    steps = mean.shape[-1]
    values = np.concatenate([mean, peaks(mean, hour)], axis=-1)
    came = np.concatenate([actual, peaks(actual, hour)], axis=-1)
    unit = values + BASE_SHARE * level[:, :, None]
    residuals = (came - values) / unit
    of_hour = np.array([*(step // hour for step in range(steps)), *range(values.shape[-1] - steps)])
    spread = np.empty((*residuals.shape, len(LEVELS)))
    for ahead, lag in enumerate(lags):
        spread[:, :, of_hour == ahead] = _rolling(residuals[:, :, of_hour == ahead], lag)
    most = CEILING * np.maximum(highest[:, :, None], values)[..., None]
    found = np.clip(values[..., None] + unit[..., None] * spread, 0.0, most)
    found = np.maximum.accumulate(found, axis=-1)  # levels that adapt by themselves must not cross
    return Quantiles(found[:, :, :steps], found[:, :, steps:])


def peaks(rate: Floats, hour: int) -> Floats:
    """The maximum of each whole hour of the last axis, nan where a bucket is; shape (..., hours)."""
    hours = rate.shape[-1] // hour
    return np.max(rate[..., : hours * hour].reshape(*rate.shape[:-1], hours, hour), axis=-1)


def _rolling(residuals: Floats, lag: int) -> Floats:
    """Residual quantiles at each cutoff, shape (series, cutoffs, steps, levels); 0 while none is known."""
    series, cutoffs, steps = residuals.shape
    spread = np.full((series, cutoffs, steps, len(LEVELS)), np.nan)
    wanted = np.array(LEVELS)
    by_time = np.ascontiguousarray(residuals.transpose(0, 2, 1))
    level = np.broadcast_to(wanted, (series, steps, len(LEVELS))).copy()
    for now in range(lag, cutoffs):
        judged = now - lag
        came = residuals[:, judged, :, None]
        if judged > lag:  # before that there was nothing to judge by
            is_judged = ~np.isnan(came) & ~np.isnan(spread[:, judged])
            is_below = np.where(is_judged, came <= spread[:, judged], wanted)
            step = max(FIRST_STEP / np.sqrt(judged - lag), LEAST_STEP) * 2 / (1 + lag)
            level = np.clip(level + step * (wanted - is_below), 1 - HIGHEST_LEVEL, HIGHEST_LEVEL)
        window = np.sort(by_time[:, :, max(judged + 1 - WINDOW, 0) : judged + 1], axis=2)  # nan come last
        known = (~np.isnan(window)).sum(axis=2)[..., None]
        rank = np.clip(np.ceil((known + 1) * level).astype(np.int64), 1, np.maximum(known, 1)) - 1
        picked = np.take_along_axis(window, rank, axis=2)
        spread[:, now] = np.where(known > 0, picked, np.nan)
    return np.nan_to_num(spread)
