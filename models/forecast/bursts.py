"""Forecast of a current burst: it lasts as long as past bursts of the same series did.

A burst begins with a bucket above BURST_DEMAND_RATIO times the median of the day before, plus a share of that
day's mean. The chance that a burst of age a is still on h buckets ahead is the share, among past bursts that
reached age a, of those that reached a + h: the Kaplan-Meier estimate without censoring.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast.forecast_method import Forecast, Past, last_known_values

BURST_DEMAND_RATIO = 2.0
LEVEL_SHARE = 0.3  # of the mean, so that noise around a low median is no burst
LEAST_BURSTS = 3  # past bursts that lasted as long; with fewer, the chance is not estimated


class BurstState(NamedTuple):
    """The bursts of each series so far; the last three fields have the shape (series,)."""

    read: int  # number of buckets read
    duration_counts: Ints  # past bursts of at least n buckets, shape (series, season + 2)
    age: Ints  # buckets of the current burst, 0 where there is none
    threshold: Floats  # rate above which a bucket belongs to a burst
    before: Floats  # last rate outside bursts


def forecast_bursts(past: Past, state: BurstState | None = None) -> Forecast:
    """Hold the last value; in a burst only while it is more likely on than over, then the rate before it.

    A burst that has outlived nearly all others is forecast to last as long again as it has lasted.
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
    """Add the new buckets to the state; a run longer than a day is a new level, not a burst."""
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
    """Return the thresholds, shape (series,), from the latest day, shape (series, season).

    A series without known buckets that day keeps its threshold.
    """
    is_known = ~np.isnan(day).all(axis=1)
    known = day[is_known]
    updated = threshold.copy()
    updated[is_known] = BURST_DEMAND_RATIO * np.nanmedian(known, axis=1)
    updated[is_known] += LEVEL_SHARE * np.nanmean(known, axis=1)
    return updated
