"""What a made day lives through again: a day of the original, and of each app hours in which it sent as much.

A day is like one of its kind, each about as often in a stretch, and of these the days go together whose
levels are most alike. Tokens go with the load by the hour too: those of an app are of the hour nearest to
that of the day that is lived through in which its level was as high. At the same hour whatever its level
was, the heavy requests of quiet hours would come with the load of busy ones.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.app_levels import LevelStretch
from fleetcast.models.traffic.random_streams import random_stream
from fleetcast.models.world.calendar import SATURDAY

TIES = 1e-9  # between days that are as much alike, chance decides
QUIET_LEVEL = 0.05  # of the mean: levels below are all alike
HOUR_APART = 0.04  # an hour away is as unlike as a level that is 4 % off: tokens last longer than levels
PAIRS_NEAR = 50  # requests of a client, nearest to the hour that is lived through, whose tokens are drawn


class RecordedDays(NamedTuple):
    """What was seen on each recorded day, in order of time."""

    weekday: Ints  # (days,) Monday is 0
    gap_cv: NDArray[np.float32]  # (senders, days, 144) of the gaps in ten minutes
    pair_hour: Ints  # (pairs,) 24 x day + hour at which the request of each pair of tokens came
    levels: Floats  # (apps with levels, 24 x days) of each hour; nan where it was not recorded as a whole
    input_share: Floats  # of each of these apps, of all input tokens: what its level weighs


def pick_recorded_day(history: RecordedDays, stretch: LevelStretch, seed: int) -> int:
    """The day of the original that a day lives through: of its kind, each about as often in a stretch.

    Of these the days go together whose levels are most alike, so that tokens stay with the load that they
    came with; by chance where no app has a level.
    """
    is_weekend = stretch.weekday >= SATURDAY
    alike = np.flatnonzero((history.weekday >= SATURDAY) == is_weekend[stretch.place])
    days = np.flatnonzero(is_weekend == is_weekend[stretch.place])
    if not alike.size:
        alike, days = np.arange(history.weekday.size), np.arange(is_weekend.size)
    apart = TIES * random_stream(seed, stretch.first_day, "history").random((days.size, alike.size))
    made = stretch.levels.mean(axis=2)
    for share, one, seen in zip(history.input_share, made, _by_day(history.levels), strict=True):
        apart += (share * (one[days, None] - seen[alike])) ** 2
    _, lived = linear_sum_assignment(np.tile(apart, -(-days.size // alike.size)))
    return int(alike[lived[np.searchsorted(days, stretch.place)] % alike.size])


def pick_recorded_hours(history: RecordedDays, stretch: LevelStretch, lived: int) -> Ints:
    """The hour of the original whose tokens each hour has, 24 x day + hour, shape (apps with levels + 1, 24).

    The last row is that of all others: the hours of the day that is lived through.
    """
    same = 24 * lived + np.arange(24)
    apart = HOUR_APART * np.abs(np.arange(24 * history.weekday.size) - same[:, None])
    found = np.tile(same, (len(history.levels) + 1, 1))
    for app, (made, seen) in enumerate(zip(stretch.day_levels(), history.levels, strict=True)):
        unlike = np.abs(np.log((made[:, None] + QUIET_LEVEL) / (seen + QUIET_LEVEL))) + apart
        found[app] = np.where(np.isnan(unlike), np.inf, unlike).argmin(axis=1)
    return found


def _by_day(levels: Floats) -> Floats:
    """Mean level of each day, 1 where no hour of it is known, shape (apps, days)."""
    of_day = levels.reshape(len(levels), levels.shape[1] // 24, 24)
    known = ~np.isnan(of_day)
    total = np.where(known, of_day, 0.0).sum(axis=2)
    return np.where(known.any(axis=2), total / np.maximum(known.sum(axis=2), 1), 1.0)


def draw_token_pairs(
    rng: np.random.Generator,
    history: RecordedDays,
    first_pair: Ints,
    pool: Ints,
    lived: Ints,
    cell: Ints,
) -> Ints:
    """A pair of tokens for each request: of the hour that is lived, or the PAIRS_NEAR nearest to it in time.

    An hour's own pairs are gone through evenly, each once before any comes again: their mean wanders from
    hour to hour by chance already. An hour in which nobody at all was seen says nothing: all pairs of the
    pool are drawn from.

    Parameters
    ----------
    first_pair : Ints
        Where the pairs of each pool begin, shape (pools + 1,).
    pool, lived : Ints
        Of clients that are alike, whose pairs they have, shape (kinds,), and the hour of the original that
        each hour of the day has, shape (kinds, 24).
    cell : Ints
        24 x kind + hour of each request.
    """
    first, last = first_pair[pool][:, None], first_pair[pool + 1][:, None]
    hours = 24 * history.weekday.size
    key = np.repeat(np.arange(first_pair.size - 1), np.diff(first_pair)) * hours + history.pair_hour
    wanted = pool[:, None] * hours + lived
    low, high = (np.searchsorted(key, wanted, side=side) for side in ("left", "right"))
    is_own = (high - low >= PAIRS_NEAR).ravel()
    middle = (low + high) // 2
    low = np.minimum(low, np.clip(middle - PAIRS_NEAR // 2, first, np.maximum(last - PAIRS_NEAR, first)))
    high = np.maximum(high, np.minimum(low + PAIRS_NEAR, last))
    unseen = np.bincount(history.pair_hour, minlength=hours)[lived] == 0
    low, high = np.where(unseen, first, low), np.where(unseen, last, high)
    place = rng.random(cell.size)
    place = np.where(is_own[cell], _evenly(rng, cell, place, is_own.size), place)
    low, size = low.ravel()[cell], (high - low).ravel()[cell]
    return low + (place * size).astype(np.int64)


def _evenly(rng: np.random.Generator, cell: Ints, number: Floats, cells: int) -> Floats:
    """Places 0 to 1 that are spread evenly over those of each cell, in the order of random numbers."""
    order = np.argsort(cell + number)
    requests = np.bincount(cell, minlength=cells)
    rank = np.empty(cell.size)
    rank[order] = np.arange(cell.size) - np.repeat(np.cumsum(requests) - requests, requests)
    return (rank + rng.random(cells)[cell]) / requests[cell]
