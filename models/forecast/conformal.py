"""Calibrated quantiles of any method's forecasts, from the errors of the latest forecasts of the same series.

A residual is actual minus forecast, in units of the forecast plus a share of the series' level: relative
where demand is high, absolute where it is low, so that an error in an empty hour does not inflate a busy one.
It counts once its hour ahead is known. Quantiles at a cutoff are calibrated in these steps:

- They are read from the last RESIDUAL_WINDOW residuals (split conformal prediction).
- Only residuals of the same kind count, empty or busy by their forecast (Mondrian conformal prediction, Vovk
  et al., 2003): correctly forecast empty nights carry no information about days.
- The level that is read moves after every hit and miss of its kind (adaptive conformal inference, Gibbs and
  Candes, 2021, equation 2), so that coverage holds while a series changes. Steps shrink as more residuals are
  known (Angelopoulos, Barber and Bates, 2024), and with the lag, because forecasts that overlap err together.
- This is slow far ahead. So while errors of the next hour exceed the usual, later hours have larger units.
- A series with fewer than LEAST_ALIKE residuals borrows from its kin, the series that are forecast with it:
  residuals have no unit and can be pooled. Its own weigh their number over LEAST_ALIKE.
- Where no residual is known so far ahead, the spread of the hour before it is used.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast.backtest import CEILING

QUANTILE_LEVELS = (0.50, 0.90, 0.95)
RESIDUAL_WINDOW = 168  # cutoffs: a week of hours
BASE_SHARE = 0.3  # of the level, added to the forecast
EMPTY_HOUR_SHARE = 0.1  # of the level; a forecast below it is of an empty hour
LEAST_ALIKE = 20  # residuals of the same kind; with fewer, all residuals count
FIRST_STEP = 0.25  # of the level, after the first scored forecast; falls with the root of their number
LEAST_STEP = 0.05
OVERLAP = 7  # consecutive cutoffs whose forecasts far ahead err together
FURTHEST_SHARE = 0.8  # largest part of the way to 0 or 1 that a level may move
UNSETTLED_RATIO = 1.5  # units grow where the error of the next hour exceeds this multiple of the usual
UNSETTLED_MOST = 3.0  # largest growth factor of the units
UNSETTLED_HALF_LIFE, USUAL_HALF_LIFE = 4, 168  # cutoffs
FAR_HOURS = 2  # first hour ahead whose units grow
ROWS_TOGETHER = 500  # series times buckets that go through the cutoffs together: quickest


class Quantiles(NamedTuple):
    """Quantiles at QUANTILE_LEVELS, in the unit of the forecast."""

    bucket_quantiles: Floats  # shape (series, cutoffs, horizon, levels)
    hour_quantiles: Floats  # of the maximum of each whole hour, shape (series, cutoffs, hours, levels)


def calibrate_quantiles(
    mean: Floats, actual: Floats, level: Floats, highest: Floats, lags: Sequence[int], hour: int
) -> Quantiles:
    """Calibrate the quantiles at every cutoff from the errors at the cutoffs before it.

    mean, actual : forecast and actual rates, shape (series, cutoffs, horizon); actual is nan where it is not
        known
    level : mean rate of each series, as known at each cutoff, shape (series, cutoffs)
    highest : highest rate known at each cutoff, shape (series, cutoffs). No quantile exceeds CEILING times
        that, or times the forecast where that is higher (a known event).
    lags : for each hour ahead, the number of cutoffs after which it is known
    hour : buckets of an hour. The maximum of each whole hour ahead has separate residuals: the largest bucket
        of a mean forecast is more often below than above the largest actual bucket.
    """
    steps = mean.shape[-1]
    values = np.concatenate([mean, hourly_peaks(mean, hour)], axis=-1)
    observed = np.concatenate([actual, hourly_peaks(actual, hour)], axis=-1)
    of_hour = np.array([*(step // hour for step in range(steps)), *range(values.shape[-1] - steps)])
    is_busy = values > EMPTY_HOUR_SHARE * level[:, :, None]
    unit = values + BASE_SHARE * level[:, :, None]
    if len(lags) > FAR_HOURS:
        next_hour = np.abs(observed - values)[:, :, steps] / unit[:, :, steps]
        unit[:, :, of_hour >= FAR_HOURS] *= unsettled_ratio(next_hour, lags[0])[:, :, None]
    residuals = (observed - values) / unit
    spread = np.empty((*residuals.shape, len(QUANTILE_LEVELS)))
    has_demand = highest > 0
    together = max(1, ROWS_TOGETHER // (len(mean) * (hour + 1)))
    for first in range(0, len(lags), together):
        chosen = (of_hour >= first) & (of_hour < first + together)
        lag = np.array(lags)[of_hour[chosen]]
        spread[:, :, chosen] = _rolling(residuals[:, :, chosen], is_busy[:, :, chosen], lag, has_demand)
    for column in range(hour, spread.shape[2]):
        if column != steps:  # the first maximum has no hour before it
            before = spread[:, :, column - (hour if column < steps else 1)]
            spread[:, :, column] = np.where(np.isnan(spread[:, :, column]), before, spread[:, :, column])
    spread = np.nan_to_num(spread)
    most = CEILING * np.maximum(highest[:, :, None], values)[..., None]
    quantiles = np.clip(values[..., None] + unit[..., None] * spread, 0.0, most)
    quantiles = np.maximum.accumulate(quantiles, axis=-1)  # levels adapt independently: they must not cross
    return Quantiles(quantiles[:, :, :steps], quantiles[:, :, steps:])


def unsettled_ratio(error: Floats, lag: int) -> Floats:
    """Return the recent error of the next hour over UNSETTLED_RATIO times the usual, 1 to UNSETTLED_MOST.

    `error` at each cutoff is known `lag` cutoffs later; it and the result have the shape (series, cutoffs).
    """
    ratios = np.ones(error.shape)
    halves = np.array((UNSETTLED_HALF_LIFE, USUAL_HALF_LIFE))[:, None]
    total, count = np.zeros((2, 2, len(error)))
    for now in range(lag, error.shape[1]):
        known = ~np.isnan(error[:, now - lag])
        keep = np.where(known, 0.5 ** (1 / halves), 1.0)
        total = keep * total + np.where(known, error[:, now - lag], 0.0)
        count = keep * count + known
        latest, usual = total / np.maximum(count, 1)
        ratio = np.divide(latest, UNSETTLED_RATIO * usual, out=np.ones_like(usual), where=usual > 0)
        ratios[:, now] = np.clip(ratio, 1.0, UNSETTLED_MOST)
    return ratios


def hourly_peaks(rate: Floats, hour: int) -> Floats:
    """Return the maximum of each whole hour, shape (..., hours), of rates (..., buckets); nan spreads."""
    hours = rate.shape[-1] // hour
    return np.max(rate[..., : hours * hour].reshape(*rate.shape[:-1], hours, hour), axis=-1)


def _rolling(
    residuals: Floats, is_busy: NDArray[np.bool_], lag: Ints, has_demand: NDArray[np.bool_]
) -> Floats:
    """Return residual quantiles at each cutoff, shape (series, cutoffs, steps, levels); nan where unknown.

    `residuals` (nan where unknown) and `is_busy` have the shape (series, cutoffs, steps). `lag`, shape
    (steps,), is the number of cutoffs after which a step is known. `has_demand`, shape (series, cutoffs), is
    false until a series has had demand: it has no kin until then.
    """
    series, cutoffs, steps = residuals.shape
    spread = np.full((series, cutoffs, steps, len(QUANTILE_LEVELS)), np.nan)
    with_kin = spread.copy()
    wanted = np.array(QUANTILE_LEVELS)
    lowest, highest = (1 - FURTHEST_SHARE) * wanted, wanted + FURTHEST_SHARE * (1 - wanted)
    scored = np.arange(cutoffs)[:, None] - lag  # the latest cutoff whose forecast of a step can be scored
    latest, latest_kind = _by_time_known(residuals, is_busy, scored)
    # The first axis of `level` and `count`: empty hours, busy hours.
    level = np.broadcast_to(wanted, (2, series, steps, len(QUANTILE_LEVELS))).copy()
    count = np.zeros((2, series, steps))  # moves of the level so far
    for now in range(lag.min(), cutoffs):
        residual = latest[:, :, now, None]
        before = spread[:, np.maximum(scored[now], 0), np.arange(steps)]
        # The first cutoffs have no spread to score.
        is_scored = ~np.isnan(residual) & ~np.isnan(before) & (scored[now] > lag)[:, None]
        is_below = np.where(is_scored, residual <= before, wanted)
        for busy in range(2):
            of_kind = is_scored[..., 0] & (latest_kind[:, :, now] == busy)
            count[busy] += of_kind
            step = np.maximum(FIRST_STEP / np.sqrt(np.maximum(count[busy], 1)), LEAST_STEP)
            moved = level[busy] + (step * of_kind)[..., None] / lag[:, None] * (wanted - is_below)
            level[busy] = np.clip(moved, lowest, highest)
        seen, kind = slice(max(now + 1 - RESIDUAL_WINDOW, 0), now + 1), is_busy[:, now, :, None]
        window, is_alike = latest[:, :, seen], latest_kind[:, :, seen] == kind
        is_alike |= ((is_alike & ~np.isnan(window)).sum(axis=2) < LEAST_ALIKE)[..., None]
        window = np.sort(np.where(is_alike, window, np.nan), axis=2)  # nan sorts last
        known = (~np.isnan(window)).sum(axis=2)[..., None]
        at = np.where(kind, level[1], level[0])
        outwards = (np.minimum(lag, OVERLAP) - 1)[:, None] * (2 * at - 1)  # 0 for the median
        rank = np.ceil((known + 1) * at + outwards).astype(np.int64)
        picked = np.take_along_axis(window, np.clip(rank, 1, np.maximum(known, 1)) - 1, axis=2)
        with_kin[:, now] = spread[:, now] = np.where(known > 0, picked, np.nan)
        few = has_demand[:, now, None] & (known[..., 0] < LEAST_ALIKE)
        if few.any():
            late = slice(max(now + 1 - LEAST_ALIKE, 0), now + 1)
            kin = latest[:, :, late], latest_kind[:, :, late]
            with_kin[:, now] = _borrow(spread[:, now], known, few, kind, *kin)
    return with_kin


def _by_time_known(
    residuals: Floats, is_busy: NDArray[np.bool_], scored: Ints
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the residuals and kinds of the cutoffs `scored`, shape (cutoffs, steps), with time as last axis.

    A residual of a cutoff below 0 is nan.
    """
    steps = np.arange(scored.shape[1])
    latest = residuals[:, np.maximum(scored, 0), steps].transpose(0, 2, 1)
    kind = is_busy[:, np.maximum(scored, 0), steps].transpose(0, 2, 1)
    latest = np.where(scored.T >= 0, latest, np.nan)
    return np.ascontiguousarray(latest), np.ascontiguousarray(kind)


def _kin_quantiles(residuals: Floats, is_busy: NDArray[np.bool_]) -> Floats:
    """Return quantiles of the pooled residuals of busy and of empty hours, shape (2, steps, levels).

    `residuals` (nan where unknown) and `is_busy` have the shape (series, steps, cutoffs). Fewer than
    LEAST_ALIKE residuals have no quantiles: nan.
    """
    pooled, found = residuals.transpose(1, 0, 2).reshape(residuals.shape[1], -1), []
    for busy in (True, False):
        is_kin = (is_busy == busy).transpose(1, 0, 2).reshape(pooled.shape) & ~np.isnan(pooled)
        count = is_kin.sum(axis=1)[:, None]
        kin = np.sort(np.where(is_kin, pooled, np.nan), axis=1)  # nan sorts last
        at = np.maximum(count - 1, 0) * np.array(QUANTILE_LEVELS)
        place = at.astype(np.int64)
        after = np.minimum(place + 1, kin.shape[1] - 1)
        below, above = (np.take_along_axis(kin, n, axis=1) for n in (place, after))
        gap, share = above - below, at - place
        value = np.where(share < 0.5, below + gap * share, above - gap * (1 - share))  # as np.quantile
        found.append(np.where(count >= LEAST_ALIKE, value, np.nan))
    return np.array(found)


def _borrow(
    own: Floats,
    known: Ints,
    few: NDArray[np.bool_],
    kind: NDArray[np.bool_],
    residuals: Floats,
    is_busy: NDArray[np.bool_],
) -> Floats:
    """Return `own` quantiles, shape (series, steps, levels), where `few` drawn to those of the kin.

    `known`, the number of own residuals, and the `kind` of the forecast have the shape (series, steps, 1),
    `few` (series, steps), the latest `residuals` and `is_busy` of all series (series, steps, cutoffs).
    """
    steps = few.any(axis=0)
    alone, weight = own[:, steps], np.minimum(known[:, steps] / LEAST_ALIKE, 1.0)
    kin = np.where(kind[:, steps], *_kin_quantiles(residuals[:, steps], is_busy[:, steps]))
    mixed = np.where(weight > 0, weight * np.nan_to_num(alone) + (1 - weight) * kin, kin)
    found = own.copy()
    found[:, steps] = np.where(few[:, steps, None] & ~np.isnan(mixed), mixed, alone)
    return found
