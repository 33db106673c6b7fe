"""Counters that were read now and then: what they grew by between readings, and which are one process twice.

A counter begins again at 0 when its process does. Times are seconds since 1970; an increase lies in (t0, t1].
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.calendar import HOUR_S

Flags = NDArray[np.bool_]
CounterCurve = tuple[Floats, Floats]  # instants and values of a counter

YOUNG_COUNT = 20.0  # that a process may have counted before it was first read, whatever it counts afterwards
LEAST_GAIN = 50.0  # requests below which two processes are not told apart
SEPARATE_STEPS = 3.0  # requests per reading, in standard deviations of how far two processes drift apart
LEAST_READINGS = 25
ENOUGH_REQUESTS = (
    60  # requests whose lengths are drawn together: the shape is then known to a per cent or two
)


class CounterReadings(NamedTuple):
    """Counters one after the other, each in order of time; arrays of shape (readings,)."""

    series: Ints
    t: Floats
    value: Floats

    def at(self, where: Flags | Ints) -> "CounterReadings":
        """Some of them."""
        return CounterReadings(self.series[where], self.t[where], self.value[where])


class CounterIncreases(NamedTuple):
    """What counters grew by; arrays of shape (increases,)."""

    series: Ints
    t0: Floats
    t1: Floats
    by: Floats
    is_first: Flags  # the first reading of its counter: what it counted before it was ever read
    is_reset: Flags  # the counter began again in between

    def at(self, where: Flags | Ints) -> "CounterIncreases":
        """Some of them."""
        return CounterIncreases(
            self.series[where],
            self.t0[where],
            self.t1[where],
            self.by[where],
            self.is_first[where],
            self.is_reset[where],
        )


def counter_increases(readings: CounterReadings, step_s: float) -> CounterIncreases:
    """The increase at every reading; of the first one of a counter its value, as of the step before it."""
    series, t, value = readings
    is_first = np.ones(series.size, np.bool_)
    is_first[1:] = series[1:] != series[:-1]
    before, t0 = np.zeros(series.size), t - step_s
    before[1:] = value[:-1]
    t0[1:] = np.where(is_first[1:], t0[1:], t[:-1])
    is_reset = ~is_first & (value < before)
    by = np.where(is_first | is_reset, value, value - before)
    return CounterIncreases(series, t0, t, by, is_first, is_reset)


def reading_step_s(t: Floats) -> float:
    """The usual distance between two readings."""
    times = np.unique(t)
    return float(np.median(np.diff(times))) if times.size > 1 else 60.0


def span_numbers(t1: Floats, span_s: float) -> Ints:
    """The hour, or other span, in which an interval that ends at t1 lies; it may end with it."""
    return ((t1 - 1e-3) // span_s).astype(np.int64)


def span_rows(spans: Ints, t1: Floats, span_s: float) -> Ints:
    """The row of intervals among spans in order; where a span is not there, that of the one before it."""
    return np.maximum(np.searchsorted(spans, span_numbers(t1, span_s), side="right") - 1, 0)


def process_age_s(found: CounterIncreases, row: int, step_s: float) -> float | None:
    """How long ago a process began that has counted so much: at the rate of the hour after it.

    None where that is more than the hour itself: then it has been there for longer, nobody knows how long.
    """
    end = np.searchsorted(found.series, found.series[row], side="right")
    after = slice(row + 1, end)
    soon = found.t1[after] <= found.t1[row] + HOUR_S
    gain, span_s = found.by[after][soon].sum(), (found.t1[after][soon] - found.t1[row]).max(initial=step_s)
    if found.by[row] > gain + YOUNG_COUNT:
        return None
    return float(np.clip(found.by[row] / max(gain, 1.0) * span_s, step_s, HOUR_S))


def find_duplicate_processes(
    requests: dict[int, CounterCurve], tokens: dict[int, CounterCurve]
) -> list[set[int]]:
    """Processes that are one and the same, read twice: groups of keys.

    Each counter of the one lies at every reading between the values that the other had a reading before and a
    reading after. Two processes behind one balancer may keep so close in requests, but never in tokens: their
    difference wanders as the root of the requests, and has to be able to leave what a reading brings.
    """
    groups: list[set[int]] = []
    for key in sorted(requests):
        mate = next((g for g in groups if _are_one(requests, tokens, min(g), key)), None)
        if mate is None:
            groups.append({key})
        else:
            mate.add(key)
    return [group for group in groups if len(group) > 1]


def _are_one(
    requests: dict[int, CounterCurve], tokens: dict[int, CounterCurve], one: int, other: int
) -> bool:
    if not _interleave(*tokens[one], *tokens[other]) or not _interleave(*requests[one], *requests[other]):
        return False
    gains = [np.maximum(np.diff(requests[key][1]), 0.0) for key in (one, other)]
    least, busiest = min(gain.sum() for gain in gains), max(gain.max(initial=0.0) for gain in gains)
    return bool(least >= LEAST_GAIN and np.sqrt(least) >= busiest / SEPARATE_STEPS)


def _interleave(t: Floats, value: Floats, other_t: Floats, other: Floats) -> bool:
    _, at, there = np.intersect1d(t, other_t, assume_unique=True, return_indices=True)
    inner = (at > 0) & (at < t.size - 1)
    at, there = at[inner], there[inner]
    if at.size < max(LEAST_READINGS, 0.5 * min(t.size, other_t.size)):
        return False
    low, high = np.minimum(value[at - 1], value[at]), np.maximum(value[at], value[at + 1])
    return bool(np.mean((low <= other[there]) & (other[there] <= high)) > 0.99)


def group_neighbours(requests: Ints, tokens: Ints, span: Ints) -> tuple[Ints, Ints]:
    """Join neighbours until each group has ENOUGH requests or its span ends, and at least a token for each.

    The fewer requests share a known sum, the less it leaves of the shape of their lengths. A counter of
    requests may be read an instant before that of their tokens: a group then goes on beyond its span.

    Returns
    -------
    group of each, tokens of each group
    """
    group = np.zeros(requests.size, np.int64)
    totals: list[int] = []
    n, s = 0, 0
    ends = np.append(span[1:] != span[:-1], True).tolist()
    for place, (count, total) in enumerate(zip(requests.tolist(), tokens.tolist(), strict=True)):
        group[place], n, s = len(totals), n + count, s + total
        if (ends[place] or n >= ENOUGH_REQUESTS) and ((n == 0 and s == 0) or (0 < n <= s)):
            totals.append(s)
            n, s = 0, 0
    if n or s:  # what is left at the end goes to the last requests before it
        last = max((k for k, total in enumerate(totals) if total), default=0)
        s += sum(totals[last:])
        group[group > last] = last
        totals = [*totals[:last], max(s, int(requests[group == last].sum()))]
    return group, np.array(totals, np.int64)
