"""Lasting changes of the level of a load, by circular binary segmentation (Olshen et al. 2004)."""

import itertools
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.characterise.load_statistics import DAY_BUCKETS, WEEK_BUCKETS, autocorrelation

CHANGE_PENALTY = 3.0  # on the logarithm of the number of hours, in long-run variances
LEAST_CHANGE = 1.1  # levels within this ratio are not distinguished
LEAST_SEGMENT_HOURS = 24
MOST_EDGES = 700  # candidate hours at which a stretch begins or ends


class LevelChange(NamedTuple):
    """An hour at which the level changes."""

    hour: int
    ratio: float  # level after over level before, without the daily pattern


def find_level_changes(hourly: Floats, first_weekday_hour: int) -> list[LevelChange]:
    """Find the hours at which the level changes for a day or more, in order of time.

    1. Take logarithms, less the mean of the same hour of the day on working days or on weekends.
    2. Keep a cut, or a stretch between two cuts (a temporary change shows little at a single cut), if it
       lowers the sum of squares by CHANGE_PENALTY x ln(hours) x long-run variance per cut, if each part lasts
       a day, and if the levels differ by LEAST_CHANGE. The long-run variance is that of the remainder times
       (1 + r) / (1 - r), r its autocorrelation.
    3. Repeat both, with the means of step 1 taken after subtracting the levels found.

    hourly : load of each hour, shape (hours,); hours of 0 or nan do not count
    first_weekday_hour : hour of the week (Monday 00:00 is 0) of the first bucket
    """
    known = np.flatnonzero(hourly > 0)
    if known.size < 2 * LEAST_SEGMENT_HOURS:
        return []
    logs = np.log(hourly[known])
    week_hour = (first_weekday_hour + known) % WEEK_BUCKETS
    slot = week_hour % DAY_BUCKETS + DAY_BUCKETS * (week_hour >= 5 * DAY_BUCKETS)
    level = np.zeros(logs.size)
    for _ in range(2):
        usual = np.bincount(slot, logs - level) / np.maximum(np.bincount(slot), 1)
        rest = logs - usual[slot]
        cuts = sorted(_cuts(rest, 0, rest.size))
        means = [part.mean() for part in np.split(rest, cuts)]
        level = np.repeat(means, np.diff([0, *cuts, rest.size]))
    return [
        LevelChange(int(known[cut]), float(np.exp(after - before)))
        for cut, before, after in zip(cuts, means[:-1], means[1:], strict=True)
    ]


def _cuts(rest: Floats, first: int, last: int) -> list[int]:
    """Return the cuts between `first` and `last`: the best one or the best two, then those of the parts.

    `rest`, the logarithms without the daily pattern, has the shape (hours,).
    """
    if last - first < 2 * LEAST_SEGMENT_HOURS:
        return []
    part = rest[first:last] - rest[first:last].mean()
    candidates = [
        found for found in (_best_cut(part), _best_stretch(part)) if _is_kept(part, found, rest.size)
    ]
    if not candidates:
        return []
    cuts = max(candidates, key=lambda found: _gain(part, found) / len(found))
    edges = [first, *(first + cut for cut in cuts), last]
    within = [cut for start, end in itertools.pairwise(edges) for cut in _cuts(rest, start, end)]
    return [*edges[1:-1], *within]


def _best_cut(part: Floats) -> list[int]:
    """Return the cut of `part`, shape (hours,), that lowers the sum of squares most."""
    at = np.arange(LEAST_SEGMENT_HOURS, part.size - LEAST_SEGMENT_HOURS + 1)
    gain = np.cumsum(part)[at - 1] ** 2 / (at * (part.size - at))
    return [int(at[gain.argmax()])]


def _best_stretch(part: Floats) -> list[int]:
    """Return start and end of the stretch of `part`, (hours,), that differs most from the rest, or []."""
    step = max(part.size // MOST_EDGES, 1)
    edges = np.arange(0, part.size + 1, step)
    sums = np.concatenate([[0.0], np.cumsum(part)])[edges]
    inside = edges[None, :] - edges[:, None]
    allowed = (inside >= LEAST_SEGMENT_HOURS) & (edges[:, None] >= LEAST_SEGMENT_HOURS)
    allowed &= edges[None, :] <= part.size - LEAST_SEGMENT_HOURS
    if not allowed.any():
        return []
    spread = np.where(allowed, inside * (part.size - inside), 1)
    gain = np.where(allowed, (sums[None, :] - sums[:, None]) ** 2 / spread, -1.0)
    return [int(edges[index]) for index in np.unravel_index(gain.argmax(), gain.shape)]


def _gain(part: Floats, cuts: list[int]) -> float:
    """Return by how much the means of the pieces lower the sum of squares of `part`, shape (hours,)."""
    return float(sum(piece.size * piece.mean() ** 2 for piece in np.split(part, cuts)))


def _is_kept(part: Floats, cuts: list[int], hours: int) -> bool:
    """Whether the cuts of `part`, shape (hours,), are significant; `hours` is the length of the record."""
    if not cuts:
        return False
    pieces = np.split(part, cuts)
    means = np.array([piece.mean() for piece in pieces])
    rest = np.concatenate([piece - mean for piece, mean in zip(pieces, means, strict=True)])
    memory = np.clip(np.nan_to_num(autocorrelation(rest, 1)), 0.0, 0.95)
    noise = rest.var() * (1 + memory) / (1 - memory)
    is_enough = _gain(part, cuts) > len(cuts) * CHANGE_PENALTY * np.log(hours) * noise
    return bool(is_enough and np.abs(np.diff(means)).min() >= np.log(LEAST_CHANGE))
