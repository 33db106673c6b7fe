"""Recorded days that a generated day follows: one day of the original, and hours with a similar load.

A generated day follows a recorded day of its kind (working day or weekend). Within a stretch each recorded
day is used about equally often, and days with similar levels are matched. Tokens follow the load by the hour
too: those of an app are from the recorded hour, nearest to that of the recorded day, in which its level was
as high. Otherwise the heavy requests of quiet hours would be combined with the load of busy hours.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.app_levels import LevelStretch
from fleetcast.models.traffic.random_streams import random_stream
from fleetcast.models.world.calendar import SATURDAY

TIES = 1e-9  # scale of the random part that breaks ties between similar days
QUIET_LEVEL = 0.05  # of the mean: levels below it count as equal
HOUR_APART = 0.04  # an hour of distance costs as much as a 4 % difference in level
PAIRS_NEAR = 50  # requests nearest to the recorded hour whose tokens are sampled


class RecordedDays(NamedTuple):
    """Properties of the recorded days, in order of time."""

    weekday: Ints  # (days,) Monday is 0
    gap_cv: NDArray[np.float32]  # (senders, days, 144) of the gaps in ten minutes
    pair_hour: Ints  # (pairs,) 24 x day + hour at which the request of each pair of tokens arrived
    levels: Floats  # (apps with levels, 24 x days) of each hour; nan where it was not recorded in full
    input_share: Floats  # (apps with levels,) of all input tokens: the weight of an app's level


def pick_recorded_day(history: RecordedDays, stretch: LevelStretch, seed: int) -> int:
    """Pick the recorded day that a generated day follows: of its kind, each about as often in a stretch.

    Days with the most similar levels are matched, so that tokens stay with the load they were recorded at; at
    random where no app has a level.
    """
    from scipy.optimize import linear_sum_assignment

    is_weekend = stretch.weekday >= SATURDAY
    same_kind = np.flatnonzero((history.weekday >= SATURDAY) == is_weekend[stretch.place])
    days = np.flatnonzero(is_weekend == is_weekend[stretch.place])
    if not same_kind.size:
        same_kind, days = np.arange(history.weekday.size), np.arange(is_weekend.size)
    cost = TIES * random_stream(seed, stretch.first_day, "history").random((days.size, same_kind.size))
    generated = stretch.levels.mean(axis=2)
    for share, level, seen in zip(history.input_share, generated, _by_day(history.levels), strict=True):
        cost += (share * (level[days, None] - seen[same_kind])) ** 2
    _, matched = linear_sum_assignment(np.tile(cost, -(-days.size // same_kind.size)))
    return int(same_kind[matched[np.searchsorted(days, stretch.place)] % same_kind.size])


def pick_recorded_hours(history: RecordedDays, stretch: LevelStretch, recorded_day: int) -> Ints:
    """Pick the recorded hour, 24 x day + hour, whose tokens each hour has, shape (apps with levels + 1, 24).

    The last row is that of all other apps: the hours of the recorded day.
    """
    same = 24 * recorded_day + np.arange(24)
    cost = HOUR_APART * np.abs(np.arange(24 * history.weekday.size) - same[:, None])
    hours = np.tile(same, (len(history.levels) + 1, 1))
    for app, (level, seen) in enumerate(zip(stretch.day_levels(), history.levels, strict=True)):
        total_cost = np.abs(np.log((level[:, None] + QUIET_LEVEL) / (seen + QUIET_LEVEL))) + cost
        hours[app] = np.where(np.isnan(total_cost), np.inf, total_cost).argmin(axis=1)
    return hours


def _by_day(levels: Floats) -> Floats:
    """Return the mean level of each day, (apps, days), of levels (apps, 24 x days); 1 where none is known."""
    of_day = levels.reshape(len(levels), levels.shape[1] // 24, 24)
    known = ~np.isnan(of_day)
    total = np.where(known, of_day, 0.0).sum(axis=2)
    return np.where(known.any(axis=2), total / np.maximum(known.sum(axis=2), 1), 1.0)


def draw_token_pairs(
    rng: np.random.Generator,
    history: RecordedDays,
    first_pair: Ints,
    pool: Ints,
    recorded_hours: Ints,
    cell: Ints,
) -> Ints:
    """Sample a pair of tokens for each request, shape (requests,), from the pairs of the recorded hour.

    Where this hour has less than PAIRS_NEAR pairs, the PAIRS_NEAR nearest in time are used. The pairs of an
    hour are used evenly, each once before any is repeated, so that sampling adds no variance to the hourly
    mean. For an hour in which nothing was recorded, all pairs of the pool are used.

    first_pair : position of the first pair of each pool, shape (pools + 1,)
    pool, recorded_hours : of each kind of client: the pool of pairs, shape (kinds,), and the recorded hour of
        each hour of the day, shape (kinds, 24)
    cell : 24 x kind + hour of each request, shape (requests,)
    """
    first, last = first_pair[pool][:, None], first_pair[pool + 1][:, None]
    hours = 24 * history.weekday.size
    key = np.repeat(np.arange(first_pair.size - 1), np.diff(first_pair)) * hours + history.pair_hour
    wanted = pool[:, None] * hours + recorded_hours
    low, high = (np.searchsorted(key, wanted, side=side) for side in ("left", "right"))
    is_enough = (high - low >= PAIRS_NEAR).ravel()
    middle = (low + high) // 2
    low = np.minimum(low, np.clip(middle - PAIRS_NEAR // 2, first, np.maximum(last - PAIRS_NEAR, first)))
    high = np.maximum(high, np.minimum(low + PAIRS_NEAR, last))
    unseen = np.bincount(history.pair_hour, minlength=hours)[recorded_hours] == 0
    low, high = np.where(unseen, first, low), np.where(unseen, last, high)
    place = rng.random(cell.size)
    place = np.where(is_enough[cell], _evenly(rng, cell, place, is_enough.size), place)
    low, size = low.ravel()[cell], (high - low).ravel()[cell]
    return low + (place * size).astype(np.int64)


def _evenly(rng: np.random.Generator, cell: Ints, number: Floats, cells: int) -> Floats:
    """Return places 0 to 1, (requests,), spread evenly over the requests of each cell, in random order.

    `cell` and `number`, which are random numbers 0 to 1, have the shape (requests,).
    """
    order = np.argsort(cell + number)
    requests = np.bincount(cell, minlength=cells)
    rank = np.empty(cell.size)
    rank[order] = np.arange(cell.size) - np.repeat(np.cumsum(requests) - requests, requests)
    return (rank + rng.random(cells)[cell]) / requests[cell]
