"""Readings of counters: their increases between readings, and processes that were read twice.

A counter restarts at 0 with its process. Times are seconds since 1970; an increase lies in (t0, t1].
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.calendar import HOUR_S

Flags = NDArray[np.bool_]
CounterCurve = tuple[Floats, Floats]  # times (s) and values of a counter, both (readings,)

YOUNG_COUNT = 20.0  # count that a new process may have before its first reading, whatever its later rate
LEAST_GAIN = 50.0  # requests below which two processes cannot be distinguished
SEPARATE_STEPS = 3.0  # requests per reading, in standard deviations of the drift between two processes
LEAST_READINGS = 25
ENOUGH_REQUESTS = 60  # requests whose lengths are sampled together; fixes their distribution to 1-2 %


class CounterReadings(NamedTuple):
    """Readings of several counters, one counter after the other, each in order of time; shape (readings,)."""

    series: Ints  # number of the counter
    t: Floats  # s
    value: Floats

    def at(self, where: Flags | Ints) -> "CounterReadings":
        """Return some of the readings, by a mask (readings,) or indices (K,)."""
        return CounterReadings(self.series[where], self.t[where], self.value[where])


class CounterIncreases(NamedTuple):
    """Increases of counters; arrays of shape (increases,)."""

    series: Ints  # number of the counter
    t0: Floats  # s, start of the interval
    t1: Floats  # s, its end
    by: Floats  # the increase
    is_first: Flags  # the first reading of its counter: the increase is the count before it
    is_reset: Flags  # the counter restarted within the interval

    def at(self, where: Flags | Ints) -> "CounterIncreases":
        """Return some of the increases, by a mask (increases,) or indices (K,)."""
        return CounterIncreases._make(column[where] for column in self)


def counter_increases(readings: CounterReadings, step_s: float) -> CounterIncreases:
    """Return the increase at every reading, shape (readings,).

    The increase at a counter's first reading is its value, over the `step_s` seconds before.
    """
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
    """Return the median time between two readings at times t (s), shape (readings,); 60 s where unknown."""
    times = np.unique(t)
    return float(np.median(np.diff(times))) if times.size > 1 else 60.0


def span_numbers(t1: Floats, span_s: float) -> Ints:
    """Return the number of the span in which an interval that ends at t1 (s) lies; all (intervals,).

    An interval that ends with its span still belongs to it.
    """
    return ((t1 - 1e-3) // span_s).astype(np.int64)


def span_rows(spans: Ints, t1: Floats, span_s: float) -> Ints:
    """Return the row in `spans`, ascending (spans,), of intervals that end at t1 (s), (intervals,).

    Where a span is missing, the row is that of the span before it.
    """
    return np.maximum(np.searchsorted(spans, span_numbers(t1, span_s), side="right") - 1, 0)


def process_age_s(found: CounterIncreases, row: int, step_s: float) -> float | None:
    """Estimate the age of a process at the reading `row`: its count over the rate of the hour after it.

    None where the estimate exceeds an hour: the process is then older by an unknown time.
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
    """Find processes that were read twice under different keys; return groups of keys.

    Two keys are one process if each counter of the one lies, at every reading, between the values of the
    other at the reading before and the reading after. Two processes behind one load balancer may be that
    close in requests, but not in tokens: their difference grows as the root of the requests. Only counters
    with enough requests for this difference to exceed the increase of one reading are compared.
    """
    groups: list[set[int]] = []
    for key in sorted(requests):
        same = next((group for group in groups if _are_same(requests, tokens, min(group), key)), None)
        if same is None:
            groups.append({key})
        else:
            same.add(key)
    return [group for group in groups if len(group) > 1]


def _are_same(
    requests: dict[int, CounterCurve], tokens: dict[int, CounterCurve], key: int, other: int
) -> bool:
    if not _interleave(*tokens[key], *tokens[other]) or not _interleave(*requests[key], *requests[other]):
        return False
    gains = [np.maximum(np.diff(requests[each][1]), 0.0) for each in (key, other)]
    least, busiest = min(gain.sum() for gain in gains), max(gain.max(initial=0.0) for gain in gains)
    return bool(least >= LEAST_GAIN and np.sqrt(least) >= busiest / SEPARATE_STEPS)


def _interleave(t: Floats, value: Floats, other_t: Floats, other: Floats) -> bool:
    """Whether the values of one counter, (readings,) at times t (s), enclose those of another, likewise."""
    _, at, other_at = np.intersect1d(t, other_t, assume_unique=True, return_indices=True)
    inner = (at > 0) & (at < t.size - 1)
    at, other_at = at[inner], other_at[inner]
    if at.size < max(LEAST_READINGS, 0.5 * min(t.size, other_t.size)):
        return False
    low, high = np.minimum(value[at - 1], value[at]), np.maximum(value[at], value[at + 1])
    return bool(np.mean((low <= other[other_at]) & (other[other_at] <= high)) > 0.99)


def group_neighbours(requests: Ints, tokens: Ints, span: Ints) -> tuple[Ints, Ints]:
    """Join neighbouring intervals until a group has ENOUGH_REQUESTS or its span ends.

    A sum over few requests restricts the distribution of their lengths, so groups should be large. Each group
    has at least one token per request: the counter of requests may be read just before that of tokens, and
    the group then continues beyond its span.

    requests, tokens, span : counts, and number of the span, of each interval, shape (intervals,)

    Returns
    -------
    group : number of the group of each interval, shape (intervals,)
    totals : tokens of each group, shape (groups,)
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
    if n or s:  # the rest at the end joins the last group with tokens
        last = max((k for k, total in enumerate(totals) if total), default=0)
        s += sum(totals[last:])
        group[group > last] = last
        totals = [*totals[:last], max(s, int(requests[group == last].sum()))]
    return group, np.array(totals, np.int64)
