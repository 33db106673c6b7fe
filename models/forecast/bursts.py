"""Bursts under way: they are forecast to last as long as past ones of the same series did.

A burst begins with a bucket above BURST_RATIO times the usual, the median of the day before, and a share of
that day's mean. Of the past ones that lasted as long as this one has, the share that lasted on is the chance
that it is still there so many buckets ahead: Kaplan and Meier's estimate where nothing is censored.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast.forecast_method import Forecast, Past, last_known_values

BURST_DEMAND_RATIO = 2.0
LEVEL_SHARE = 0.3  # of the mean, so that noise about a low median is no burst
LEAST_BURSTS = 3  # past ones that lasted as long; of fewer nothing is learnt


class BurstState(NamedTuple):
    """What has been seen of the bursts of each series; the last three have the shape (series,)."""

    read: int  # buckets
    duration_counts: Ints  # how many past bursts had so many buckets or more, shape (series, season + 2)
    age: Ints  # buckets of the one under way, 0 where none is
    threshold: Floats  # above it a bucket is of a burst
    before: Floats  # the last rate that was of none


def forecast_bursts(past: Past, state: BurstState | None = None) -> Forecast:
    """The last value; of a burst only while it is likelier there than over, then the rate before it.

    A burst that has outlived nearly all others is held for as long again as it has lasted.
    """
    if state is None:
        state = _nothing_read(len(past.demand), past.season)
    state = _read(past, state)
    ahead, age = np.arange(1, past.horizon + 1), state.age[:, None]
    at_least = np.minimum(age + np.insert(ahead, 0, 0), past.season + 1)
    lasted = np.take_along_axis(state.duration_counts, at_least, axis=1)
    goes_on = np.where(lasted[:, :1] >= LEAST_BURSTS, lasted[:, 1:] > 0.5 * lasted[:, :1], ahead <= age)
    is_held = goes_on | (age == 0)
    return Forecast(np.where(is_held, last_known_values(past.demand)[:, None], state.before[:, None]), state)


def _nothing_read(series: int, season: int) -> BurstState:
    none = np.zeros(series, np.int64)
    never, empty = np.full(series, np.inf), np.zeros(series)
    return BurstState(0, np.zeros((series, season + 2), np.int64), none, never, empty)


def _read(past: Past, state: BurstState) -> BurstState:
    """The state with the buckets that came since; a run longer than a day is a new level, no burst."""
    lasted, age, threshold, before = state.duration_counts.copy(), state.age, state.threshold, state.before
    for at in range(state.read, past.demand.shape[1]):
        if at and at % past.season == 0:
            threshold = _threshold(past.demand[:, at - past.season : at], threshold)
        rate = past.demand[:, at]
        known, is_on = ~np.isnan(rate), rate > threshold
        is_over = known & ~is_on & (age > 0)
        for series in np.flatnonzero(is_over):
            lasted[series, : age[series] + 1] += 1
        age = np.where(known, np.where(is_on, age + 1, 0), age)
        age[age > past.season] = 0
        before = np.where(known & ~is_on, rate, before)
    return BurstState(past.demand.shape[1], lasted, age, threshold, before)


def _threshold(day: Floats, threshold: Floats) -> Floats:
    """From the latest day of each series, shape (series, season); as it was where nothing of it is known."""
    is_known = ~np.isnan(day).all(axis=1)
    known = day[is_known]
    found = threshold.copy()
    found[is_known] = BURST_DEMAND_RATIO * np.nanmedian(known, axis=1) + LEVEL_SHARE * np.nanmean(
        known, axis=1
    )
    return found
