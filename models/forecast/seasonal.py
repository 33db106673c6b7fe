"""Methods that repeat the past, and the weekly profile that other methods subtract."""

from typing import Any, NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast.forecast_method import (
    SEASON_DAYS,
    Forecast,
    Past,
    from_logs,
    last_value,
    log_floor,
)
from fleetcast.models.world.calendar import SATURDAY

PULL_WEEKS = 2.0  # weight of the mean day, relative to one value of the same bucket of the week
NO_PULL = 1e-9  # the mean day counts only where a bucket of the week has no value
MOST_LEVEL_RATIO = 5.0  # largest factor by which a level is adjusted
DAY_KEEP = 0.6  # weight of a day relative to the day after it
LEVEL_KEEP = 0.9  # share of the level's logarithm that is left after each hour ahead


class LatestBuckets(NamedTuple):
    """The latest known bucket of each phase, -1 where there is none."""

    read: int  # number of buckets read
    places: tuple[Ints, ...]  # bucket, for each period of shape (series, period)


class WeekSums(NamedTuple):
    """Counts and sums of the known values of each bucket of the week, updated incrementally."""

    read: int  # number of buckets added
    known: Floats  # number of known values, shape (series, days, season)
    total: Floats  # their sum, same shape


def seasonal_naive(past: Past, state: LatestBuckets | None = None) -> Forecast:
    """Repeat the latest known bucket of the same time of the week, else of the day, else the last value."""
    mean, _, state = _repeated(past, (SEASON_DAYS * past.season, past.season), state)
    return Forecast(mean, state)


def seasonal_naive_day(past: Past, state: LatestBuckets | None = None) -> Forecast:
    """Repeat the latest known bucket of the same time of the day, else the last value."""
    mean, _, state = _repeated(past, (past.season,), state)
    return Forecast(mean, state)


def seasonal_mean(past: Past, state: WeekSums | None = None) -> Forecast:
    """Forecast the mean of all known weeks at the same time +- half an hour, else of all days."""
    if state is None:
        cells = np.zeros((2, len(past.demand), SEASON_DAYS, past.season))
        state = WeekSums(0, *cells)
    state = _added(state, past.demand[:, state.read :], past.behind[:, state.read :])
    around = past.ahead[:, :, None] + np.arange(-(past.season // 48), past.season // 48 + 1)
    cells_ahead = around.reshape(len(around), -1) % (SEASON_DAYS * past.season)
    mean = _mean_at(state, cells_ahead, NO_PULL).reshape(around.shape).mean(axis=-1)
    return Forecast(mean, state)


def seasonal_level(past: Past, state: LatestBuckets | None = None) -> Forecast:
    """Forecast seasonal_naive times the level: the last hour over the same hour a season before."""
    mean, source, state = _repeated(past, (SEASON_DAYS * past.season, past.season), state)
    buckets = past.demand.shape[1]
    then = np.where(source[:, 0] >= 0, source[:, 0], buckets)  # no adjustment without a season
    back = then[:, None] - np.arange(1, past.hour + 1)
    before = np.take_along_axis(past.demand, np.maximum(back, 0), axis=1) if buckets else np.zeros(back.shape)
    now = past.demand[:, buckets - past.hour :]
    is_known = ~np.isnan(before).any(axis=1) & ~np.isnan(now).any(axis=1) & (back[:, -1] >= 0)
    earlier, later = before.sum(axis=1), now.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(is_known & (earlier > 0), later / earlier, 1.0)
    return Forecast(mean * np.clip(ratio, 1 / MOST_LEVEL_RATIO, MOST_LEVEL_RATIO)[:, None], state)


def recent_days(past: Past, state: Any = None) -> Forecast:
    """Forecast the mean of the latest days at the same time, times a level that fades.

    It is for series without a full week since they began or since their level broke. Working days and
    weekends are separate: a Monday uses the Friday before it. The mean is of logarithms; a day weighs less
    than the day after it. The level is the last hour over the mean of the days before at that hour.
    """
    begin = max(past.demand.shape[1] - (SEASON_DAYS + 1) * past.season - past.hour, 0)
    demand = past.demand[:, begin:]
    floor, buckets = log_floor(demand), demand.shape[1]
    hour = min(past.hour, buckets)
    at = np.arange(buckets - hour, buckets + past.horizon)
    logs = _of_days(demand, floor, past.phase[:, begin:] // past.season, at, past.season)
    now, expected = demand[:, buckets - hour :], from_logs(logs[:, :hour], floor)
    known = ~np.isnan(now + expected)
    actual, usual = (np.where(known, rate, 0.0).sum(axis=1) + floor[:, 0] for rate in (now, expected))
    fading = LEVEL_KEEP ** (np.arange(1, past.horizon + 1) / past.hour)
    ahead = from_logs(logs[:, hour:] + np.log(actual / usual)[:, None] * fading, floor)
    return Forecast(np.where(np.isnan(ahead), last_value(past).mean, ahead))


def _of_days(demand: Floats, floor: Floats, weekday: Ints, at: Ints, season: int) -> Floats:
    """Return the mean logarithm of the days before each bucket at the same time; nan where none is known.

    Only days of the same kind (working day, weekend) count where any is known, else all days.

    demand, floor : rate per bucket, shape (series, buckets), and the rate added before logarithms, shape
        (series, 1)
    weekday : of each bucket, Monday is 0, shape (series, buckets + horizon)
    at : the buckets, shape (steps,); the result has the shape (series, steps)
    """
    shape = (2, len(demand), at.size)  # first axis: days of the same kind, all days
    total, weight = np.zeros(shape), np.zeros(shape)
    is_weekend = weekday >= SATURDAY
    for days in range(1, (int(at[-1]) if at.size else 0) // season + 1):
        source = at - days * season
        exists = (source >= 0) & (source < demand.shape[1])
        logs = np.log(np.where(exists, demand[:, source * exists], np.nan) + floor)
        is_alike = is_weekend[:, source * exists] == is_weekend[:, at]
        known = ~np.isnan(logs)
        for kind, counts in enumerate((known & is_alike, known)):
            total[kind] += np.where(counts, DAY_KEEP**days * logs, 0.0)
            weight[kind] += DAY_KEEP**days * counts
    with np.errstate(invalid="ignore"):
        alike, every = total / weight
    return np.where(np.isnan(alike), every, alike)


def _repeated(
    past: Past, periods: tuple[int, ...], state: LatestBuckets | None
) -> tuple[Floats, Ints, LatestBuckets]:
    """Repeat the latest known bucket of the same phase, of the first period that has one.

    Returns
    -------
    mean : rate, shape (series, horizon); the last value where no period has one
    source : the repeated bucket, shape (series, horizon), -1 where there is none
    state : updated with the new buckets
    """
    mean = last_value(past).mean
    source = np.full(mean.shape, -1)
    if state is None:
        state = LatestBuckets(0, tuple(np.full((len(mean), period), -1) for period in periods))
    row, bucket = np.nonzero(~np.isnan(past.demand[:, state.read :]))  # in order of time
    bucket += state.read
    for latest, period in zip(state.places, periods, strict=True):
        latest[row, past.behind[row, bucket] % period] = bucket  # the last of several wins
        source = np.where(source < 0, np.take_along_axis(latest, past.ahead % period, axis=1), source)
    state = state._replace(read=past.demand.shape[1])
    if state.read == 0:
        return mean, source, state
    repeated = np.take_along_axis(past.demand, np.maximum(source, 0), axis=1)
    return np.where(source < 0, mean, repeated), source, state


def weekly_profile(values: Floats, phase: Ints, season: int, pull_weeks: float = PULL_WEEKS) -> Floats:
    """Return the mean week of each series, shape (series, 7 * season).

    Each bucket of the week is the mean of its values and, with the weight of `pull_weeks` more weeks, of the
    same time on all days, so that two noisy weeks do not look like a season. A moving mean over an hour
    follows. `values` (nan where unknown) and `phase` have the shape (series, buckets); the unit is kept.
    """
    series, week = len(values), SEASON_DAYS * season
    sums = _added(WeekSums(0, *np.zeros((2, series, SEASON_DAYS, season))), values, phase)
    mean = _mean_at(sums, np.tile(np.arange(week), (series, 1)), pull_weeks)
    half_hour = season // 48
    around = np.pad(mean, ((0, 0), (half_hour, half_hour)), mode="wrap")
    width = 2 * half_hour + 1
    return np.lib.stride_tricks.sliding_window_view(around, width, axis=1).mean(axis=-1)


def _added(sums: WeekSums, values: Floats, phase: Ints) -> WeekSums:
    """Return the sums with new buckets added; `values` (nan if unknown) and `phase` are (series, buckets)."""
    row, bucket = np.nonzero(~np.isnan(values))  # in order of time
    cell = row * sums.known[0].size + phase[row, bucket]
    np.add.at(sums.known.reshape(-1), cell, 1.0)
    np.add.at(sums.total.reshape(-1), cell, values[row, bucket])
    return sums._replace(read=sums.read + values.shape[1])


def _mean_at(sums: WeekSums, cells: Ints, pull_weeks: float) -> Floats:
    """Return the pulled means of buckets `cells` of the week, before smoothing; both (series, cells)."""
    series, _, season = sums.known.shape
    overall = (sums.total.sum(axis=(1, 2)) / np.maximum(sums.known.sum(axis=(1, 2)), 1))[:, None]
    of_day = (cells % season)[:, None, :]
    in_day, day_total = (np.take_along_axis(of, of_day, axis=2).sum(axis=1) for of in sums[1:])
    day = np.where(in_day > 0, day_total / np.maximum(in_day, 1), overall)
    count, total = (np.take_along_axis(of.reshape(series, -1), cells, axis=1) for of in sums[1:])
    mean: Floats = (total + pull_weeks * day) / (count + pull_weeks)
    return mean
