"""Ridge regression of the logarithm of a series on its recent means, in closed form for all series at once.

`regression` subtracts the mean week first (the calendar's part). `autoregression` does not: it is for series
without a season. Each bucket ahead has separate coefficients: no forecast is the input of another.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast.forecast_method import (
    SEASON_DAYS,
    Forecast,
    Past,
    from_logs,
    last_value,
    log_floor,
)
from fleetcast.models.forecast.seasonal import weekly_profile

HOURS_BACK = (1, 3, 12)  # features besides the last bucket: the mean over these hours
RIDGE = 1.0  # weight, in buckets, of the prior: coefficients of 0, which forecast the mean week
# Days of known buckets before a mean week is subtracted: a single day would explain itself perfectly.
LEAST_REGRESSION_DAYS = 2.0
LEAST_BUCKETS = 12  # known buckets before anything is fitted


class RegressionState(NamedTuple):
    """The coefficients of the last fit, and the transform to their scale."""

    fitted_at: int  # number of buckets known at the fit
    floor: Floats  # rate added before logarithms, (series, 1)
    week: Floats  # mean week of the logarithms, shape (series, 7 * season)
    beta: Floats  # (series, horizon, features)
    lowest: Floats  # lowest value of the adjusted series, (series, 1)
    highest: Floats  # highest value, (series, 1)
    reasons: tuple[str, ...]  # per series: why it has no forecast, "" where it has one


def regression(past: Past, state: RegressionState | None = None) -> Forecast:
    """Forecast the deviation from the mean week from recent deviations; refitted once a day."""
    return _forecast(past, state, is_seasonal=True)


def autoregression(past: Past, state: RegressionState | None = None) -> Forecast:
    """Forecast the series from its recent means alone; refitted once a day."""
    return _forecast(past, state, is_seasonal=False)


def _forecast(past: Past, state: RegressionState | None, is_seasonal: bool) -> Forecast:
    buckets = past.demand.shape[1]
    if state is None or buckets - state.fitted_at >= past.season:
        state = _fit(past, is_seasonal)
    first = max(buckets - HOURS_BACK[-1] * past.hour, 0)
    recent = _adjusted(past.demand[:, first:], past.behind[:, first:], state.floor, state.week)
    features = np.nan_to_num(_latest_features(recent, past.hour))
    deviation = np.einsum("sf,shf->sh", features, state.beta)
    has_recent = ~np.isnan(recent).all(axis=1, keepdims=True)
    latest_seen = np.where(np.isnan(recent), 0.0, recent)
    lowest = np.minimum(state.lowest, latest_seen.min(axis=1, keepdims=True, initial=0.0))
    highest = np.maximum(state.highest, latest_seen.max(axis=1, keepdims=True, initial=0.0))
    deviation = np.where(has_recent, np.clip(deviation, lowest, highest), 0.0)
    mean = from_logs(deviation + np.take_along_axis(state.week, past.ahead, axis=1), state.floor)
    is_unfitted = np.array([reason != "" for reason in state.reasons])[:, None]
    fallbacks = [reason and f"last_value: {reason}" for reason in state.reasons]
    return Forecast(np.where(is_unfitted, last_value(past).mean, mean), state, fallbacks)


def _fit(past: Past, is_seasonal: bool) -> RegressionState:
    """Fit least squares with a small ridge, one set of coefficients per bucket ahead."""
    demand, floor = past.demand, log_floor(past.demand)
    known = (~np.isnan(demand)).sum(axis=1)
    logs = np.log(demand + floor)
    level = np.where(known > 0, np.nansum(logs, axis=1) / np.maximum(known, 1), 0.0)
    week = np.repeat(level[:, None], SEASON_DAYS * past.season, axis=1)
    if is_seasonal:
        enough = known >= LEAST_REGRESSION_DAYS * past.season
        week = np.where(enough[:, None], weekly_profile(logs, past.behind, past.season), week)
    adjusted = logs - np.take_along_axis(week, past.behind, axis=1)
    features = _features(adjusted, past.hour)
    is_missing: NDArray[np.bool_] = np.asarray(np.isnan(features).any(axis=-1))
    features[is_missing] = 0.0  # such a row does not count
    steps = range(past.horizon)
    beta = np.stack([_solve(features, is_missing, adjusted[:, h:]) for h in steps], axis=1)
    seen = np.where(np.isnan(adjusted), 0.0, adjusted)
    lowest = seen.min(axis=1, keepdims=True, initial=0.0)
    highest = seen.max(axis=1, keepdims=True, initial=0.0)
    reason = f"needs {LEAST_BUCKETS} known buckets"
    reasons = tuple("" if count >= LEAST_BUCKETS else reason for count in known)
    return RegressionState(demand.shape[1], floor, week, beta, lowest, highest, reasons)


def _adjusted(demand: Floats, phase: Ints, floor: Floats, week: Floats) -> Floats:
    """Return logarithms less the mean week, shape (series, buckets), as `demand` and `phase`."""
    return np.log(demand + floor) - np.take_along_axis(week, phase, axis=1)


def _features(adjusted: Floats, hour: int) -> Floats:
    """Return the features before each bucket and after the last, shape (series, buckets + 1, features).

    The features are the last bucket, the mean over each of HOURS_BACK, and 1; nan where nothing is known.
    `adjusted` has the shape (series, buckets).
    """
    known = ~np.isnan(adjusted)
    edge = ((0, 0), (1, 0))
    total = np.pad(np.cumsum(np.where(known, adjusted, 0.0), axis=1), edge)
    count = np.pad(np.cumsum(known, axis=1), edge)
    features = np.ones((*total.shape, 2 + len(HOURS_BACK)))
    for column, width in enumerate((1, *(hours * hour for hours in HOURS_BACK))):
        inside, sums = count.copy(), total.copy()
        inside[:, width:] -= count[:, :-width]
        sums[:, width:] -= total[:, :-width]
        with np.errstate(invalid="ignore"):
            features[:, :, column] = np.where(inside > 0, sums / inside, np.nan)
    return features


def _latest_features(adjusted: Floats, hour: int) -> Floats:
    """Return the features after the last bucket, (series, features), of `adjusted` (series, buckets)."""
    columns = [np.ones(len(adjusted))]
    for width in (1, *(hours * hour for hours in HOURS_BACK)):
        last = adjusted[:, -width:]
        known = ~np.isnan(last)
        count, total = known.sum(axis=1), np.where(known, last, 0.0).sum(axis=1)
        columns.insert(-1, np.where(count > 0, total / np.maximum(count, 1), np.nan))
    return np.stack(columns, axis=-1)


def _solve(features: Floats, is_missing: NDArray[np.bool_], target: Floats) -> Floats:
    """Return the ridge coefficients of each series, shape (series, features).

    `features` are (series, rows, features), `is_missing` (series, rows), `target` (series, buckets). Rows
    that are missing or have no target (nan) do not count.
    """
    buckets = target.shape[1]
    use = ~np.isnan(target) & ~is_missing[:, :buckets]
    x, y = features[:, :buckets], target
    if np.isnan(target).any():
        x, y = np.where(use[..., None], x, 0.0), np.where(use, y, 0.0)
    gram = x.transpose(0, 2, 1) @ x
    moment = (x.transpose(0, 2, 1) @ y[..., None])[..., 0]
    spread = np.sqrt(np.einsum("sii->si", gram) / np.maximum(use.sum(axis=1), 1)[:, None])
    spread = np.where(spread > 1e-9, spread, 1.0)
    scaled = gram / (spread[:, :, None] * spread[:, None, :]) + RIDGE * np.eye(gram.shape[1])
    solved: Any = np.linalg.solve(scaled, (moment / spread)[..., None])[..., 0]
    return solved / spread
