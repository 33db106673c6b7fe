"""Methods that repeat the past, and the seasonal profile that others take out of it."""

from typing import Any

import numpy as np

from models.forecast.method import DAYS, Floats, Forecast, Ints, Past, last_value

PULL_WEEKS = 2.0  # weight of the day's shape against one value of the same bucket of the week
NO_PULL = 1e-9  # weeks: only where a bucket of the week has no value
MOST_LEVEL_RATIO = 5.0  # a level is not adjusted by more than this factor


def seasonal_naive(past: Past, state: Any = None) -> Forecast:
    """Repeat the latest known bucket of the same time of the week, else of the day, else the last value."""
    return Forecast(_repeated(past, (DAYS * past.season, past.season))[0])


def seasonal_naive_day(past: Past, state: Any = None) -> Forecast:
    """Repeat the latest known bucket of the same time of the day, else the last value."""
    return Forecast(_repeated(past, (past.season,))[0])


def seasonal_mean(past: Past, state: Any = None) -> Forecast:
    """The mean of all known weeks at the same time, within half an hour; of all days where no week has it."""
    week = profile(past.demand, past.behind, past.season, NO_PULL)
    return Forecast(np.take_along_axis(week, past.ahead, axis=1))


def seasonal_level(past: Past, state: Any = None) -> Forecast:
    """The seasonal naive forecast times the level: the last hour over the same hour a season ago."""
    mean, source = _repeated(past, (DAYS * past.season, past.season))
    buckets = past.demand.shape[1]
    then = np.where(source[:, 0] >= 0, source[:, 0], buckets)  # without a season: no adjustment
    back = then[:, None] - np.arange(1, past.hour + 1)
    before = np.take_along_axis(past.demand, np.maximum(back, 0), axis=1) if buckets else np.zeros(back.shape)
    now = past.demand[:, buckets - past.hour :]
    is_known = ~np.isnan(before).any(axis=1) & ~np.isnan(now).any(axis=1) & (back[:, -1] >= 0)
    earlier, later = before.sum(axis=1), now.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(is_known & (earlier > 0), later / earlier, 1.0)
    return Forecast(mean * np.clip(ratio, 1 / MOST_LEVEL_RATIO, MOST_LEVEL_RATIO)[:, None])


def _repeated(past: Past, periods: tuple[int, ...]) -> tuple[Floats, Ints]:
    """The latest known buckets of the same phase, by the first period that has one, and where they lie.

    Both of shape (series, horizon); the place is -1 where there is none.
    """
    mean = last_value(past).mean
    source = np.full(mean.shape, -1)
    if past.demand.shape[1] == 0:
        return mean, source
    row, bucket = np.nonzero(~np.isnan(past.demand))  # in order of time
    for period in periods:
        latest = np.full((len(mean), period), -1)
        latest[row, past.behind[row, bucket] % period] = bucket  # of several the last one stays
        found = np.take_along_axis(latest, past.ahead % period, axis=1)
        source = np.where(source < 0, found, source)
    repeated = np.take_along_axis(past.demand, np.maximum(source, 0), axis=1)
    return np.where(source < 0, mean, repeated), source


def profile(values: Floats, phase: Ints, season: int, pull_weeks: float = PULL_WEEKS) -> Floats:
    """The mean week of each series, shape (series, 7 * season), of `values` and `phase` (series, buckets).

    A bucket of the week is the mean of its own values and, with the weight of pull_weeks more weeks, of the
    same time on all days, so that two noisy weeks do not pass for a season; then a moving mean over an hour.
    """
    series, week = len(values), DAYS * season
    known = ~np.isnan(values)
    cell = (np.arange(series)[:, None] * week + phase)[known]
    count = np.bincount(cell, minlength=series * week).reshape(series, DAYS, season)
    total = np.bincount(cell, weights=values[known], minlength=series * week).reshape(series, DAYS, season)
    in_day = count.sum(axis=1)
    overall = (total.sum(axis=(1, 2)) / np.maximum(count.sum(axis=(1, 2)), 1))[:, None]
    day = np.where(in_day > 0, total.sum(axis=1) / np.maximum(in_day, 1), overall)
    mean = (total + pull_weeks * day[:, None]) / (count + pull_weeks)
    half_hour = season // 48
    around = np.pad(mean.reshape(series, week), ((0, 0), (half_hour, half_hour)), mode="wrap")
    width = 2 * half_hour + 1
    return np.lib.stride_tricks.sliding_window_view(around, width, axis=1).mean(axis=-1)
