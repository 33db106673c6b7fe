"""Quantiles that hold: from how wrong the latest forecasts of the same series were, whatever the method.

A residual is actual minus forecast, in units of the forecast and a share of the series' level: relative where
demand is high, absolute where it is low, so that an error in an empty hour does not blow up a busy one. It
counts once the hour ahead that it lies in is known. At each cutoff a quantile is read from the last WINDOW of
them (split conformal prediction), and only from those whose forecast was empty where this one is, and busy
where this one is (Mondrian conformal prediction, Vovk et al., 2003): nights that are empty, and foreseen so,
say nothing of the days. The level at which it is read moves after every miss and hit of its kind (adaptive
conformal inference, Gibbs and Candes, 2021, equation 2), so that it holds while a series changes: by much
while few are known, by less later (decaying steps: Angelopoulos, Barber and Bates, 2024), and by less where
many forecasts are made before the first of them can be judged: they overlap and err together. Far ahead that
is slow, so while the next hour is off by more than usual the later ones have larger units.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.backtest import CEILING

QUANTILE_LEVELS = (0.50, 0.90, 0.95)
RESIDUAL_WINDOW = 168  # cutoffs: a week of hours
BASE_SHARE = 0.3  # of the level, added to the forecast
EMPTY_HOUR_SHARE = 0.1  # of the level; below it a forecast is of an empty hour
LEAST_ALIKE = 20  # residuals of the same kind; where there are fewer, all count
FIRST_STEP = 0.25  # of the level, after the first judged forecast; falls with the root of their number
LEAST_STEP = 0.05
OVERLAP = 7  # cutoffs, one after the other, whose forecasts far ahead err as one
FURTHEST_SHARE = 0.8  # of the way to 0 or 1 that a level may go
UNSETTLED_RATIO = 1.5  # error of the next hour above this multiple of the usual: the units grow
UNSETTLED_MOST = 3.0  # times
UNSETTLED_HALF_LIFE, USUAL_HALF_LIFE = 4, 168  # cutoffs
FAR_HOURS = 2  # hours ahead, from which on units grow


class Quantiles(NamedTuple):
    """Quantiles at LEVELS, in the unit of the forecast."""

    bucket_quantiles: Floats  # shape (series, cutoffs, horizon, levels)
    hour_quantiles: Floats  # of the maximum of each whole hour, shape (series, cutoffs, hours, levels)


def calibrate_quantiles(
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
    values = np.concatenate([mean, hourly_peaks(mean, hour)], axis=-1)
    came = np.concatenate([actual, hourly_peaks(actual, hour)], axis=-1)
    of_hour = np.array([*(step // hour for step in range(steps)), *range(values.shape[-1] - steps)])
    is_busy = values > EMPTY_HOUR_SHARE * level[:, :, None]
    unit = values + BASE_SHARE * level[:, :, None]
    if len(lags) > FAR_HOURS:
        next_hour = np.abs(came - values)[:, :, steps] / unit[:, :, steps]
        unit[:, :, of_hour >= FAR_HOURS] *= unsettled_ratio(next_hour, lags[0])[:, :, None]
    residuals = (came - values) / unit
    spread = np.empty((*residuals.shape, len(QUANTILE_LEVELS)))
    for ahead, lag in enumerate(lags):
        own = of_hour == ahead
        spread[:, :, own] = _rolling(residuals[:, :, own], is_busy[:, :, own], lag)
    most = CEILING * np.maximum(highest[:, :, None], values)[..., None]
    found = np.clip(values[..., None] + unit[..., None] * spread, 0.0, most)
    found = np.maximum.accumulate(found, axis=-1)  # levels that adapt by themselves must not cross
    return Quantiles(found[:, :, :steps], found[:, :, steps:])


def unsettled_ratio(error: Floats, lag: int) -> Floats:
    """How far the errors of the next hour lie above UNSETTLED_RATIO times the usual, 1 to UNSETTLED_MOST.

    `error` of each cutoff, known `lag` cutoffs later, and what is found have the shape (series, cutoffs).
    """
    found = np.ones(error.shape)
    halves = np.array((UNSETTLED_HALF_LIFE, USUAL_HALF_LIFE))[:, None]
    total, count = np.zeros((2, 2, len(error)))
    for now in range(lag, error.shape[1]):
        known = ~np.isnan(error[:, now - lag])
        keep = np.where(known, 0.5 ** (1 / halves), 1.0)
        total = keep * total + np.where(known, error[:, now - lag], 0.0)
        count = keep * count + known
        latest, usual = total / np.maximum(count, 1)
        ratio = np.divide(latest, UNSETTLED_RATIO * usual, out=np.ones_like(usual), where=usual > 0)
        found[:, now] = np.clip(ratio, 1.0, UNSETTLED_MOST)
    return found


def hourly_peaks(rate: Floats, hour: int) -> Floats:
    """The maximum of each whole hour of the last axis, nan where a bucket is; shape (..., hours)."""
    hours = rate.shape[-1] // hour
    return np.max(rate[..., : hours * hour].reshape(*rate.shape[:-1], hours, hour), axis=-1)


def _rolling(residuals: Floats, is_busy: NDArray[np.bool_], lag: int) -> Floats:
    """Residual quantiles at each cutoff, shape (series, cutoffs, steps, levels); 0 while none is known."""
    series, cutoffs, steps = residuals.shape
    spread = np.full((series, cutoffs, steps, len(QUANTILE_LEVELS)), np.nan)
    wanted = np.array(QUANTILE_LEVELS)
    lowest, highest = (1 - FURTHEST_SHARE) * wanted, wanted + FURTHEST_SHARE * (1 - wanted)
    by_time, kind = (np.ascontiguousarray(of.transpose(0, 2, 1)) for of in (residuals, is_busy))
    level = np.broadcast_to(
        wanted, (2, series, steps, len(QUANTILE_LEVELS))
    ).copy()  # of empty hours, of busy ones
    count = np.zeros((2, series, steps))  # by how many it has moved
    for now in range(lag, cutoffs):
        judged = now - lag
        came = residuals[:, judged, :, None]
        if judged > lag:  # before that there was nothing to judge by
            is_judged = ~np.isnan(came) & ~np.isnan(spread[:, judged])
            is_below = np.where(is_judged, came <= spread[:, judged], wanted)
            for busy in range(2):
                own = is_judged[..., 0] & (kind[:, :, judged] == busy)
                count[busy] += own
                step = np.maximum(FIRST_STEP / np.sqrt(np.maximum(count[busy], 1)), LEAST_STEP)
                moved = level[busy] + (step * own)[..., None] / lag * (wanted - is_below)
                level[busy] = np.clip(moved, lowest, highest)
        seen = slice(max(judged + 1 - RESIDUAL_WINDOW, 0), judged + 1)
        window, is_alike = by_time[:, :, seen], kind[:, :, seen] == kind[:, :, now, None]
        is_alike |= ((is_alike & ~np.isnan(window)).sum(axis=2) < LEAST_ALIKE)[..., None]
        window = np.sort(np.where(is_alike, window, np.nan), axis=2)  # nan come last
        known = (~np.isnan(window)).sum(axis=2)[..., None]
        at = np.where(kind[:, :, now, None], level[1], level[0])
        outwards = (min(lag, OVERLAP) - 1) * (2 * at - 1)  # the median stays where it is
        rank = np.ceil((known + 1) * at + outwards).astype(np.int64)
        picked = np.take_along_axis(window, np.clip(rank, 1, np.maximum(known, 1)) - 1, axis=2)
        spread[:, now] = np.where(known > 0, picked, np.nan)
    return np.nan_to_num(spread)
