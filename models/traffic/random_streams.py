"""Random parts of generated traces: streams per day and subject, noise, bursts, sorting, weighted choice."""

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime, time

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.traffic_config import TRAFFIC_DAY_MINUTES, BurstConfig

MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000
STREAM_SUBJECTS = (
    *("noise", "jobs", "counts", "times", "apps", "input", "output", "tile"),
    *("gaps", "tokens", "moved", "copies", "levels", "history", "cells"),
    *("prefixes", "sessions", "lengths"),
)


def random_stream(seed: int, day: date, subject: str) -> np.random.Generator:
    """Return the random stream of a subject on a day: independent of all others and of the order of use."""
    return np.random.default_rng([seed, day.toordinal(), STREAM_SUBJECTS.index(subject)])


def minute_noise(
    rng: np.random.Generator,
    daily_share: Floats | float,
    minute_share: Floats | float,
    memory_minutes: Floats | float,
    shape: tuple[int, ...],
) -> Floats:
    """Sample factors of mean 1, shape (*shape, 1440): lognormal, first-order autocorrelated over the minutes.

    daily_share, minute_share : standard deviation of a day's level and of a minute about it, relative to the
        mean; broadcast to `shape`
    memory_minutes : correlation time of the minutes
    """
    sigma = np.sqrt(np.log1p(np.square(minute_share)))
    walk = minute_walk(rng, sigma, memory_minutes, shape)
    daily_sigma = np.sqrt(np.log1p(np.square(daily_share)))
    level = rng.normal(0.0, daily_sigma, shape) - daily_sigma**2 / 2
    return np.exp(np.moveaxis(walk - sigma**2 / 2, 0, -1) + level[..., None])


def minute_walk(
    rng: np.random.Generator, sigma: Floats | float, memory_minutes: Floats | float, shape: tuple[int, ...]
) -> Floats:
    """Sample normal values of mean 0, shape (1440, *shape), first-order autocorrelated over the minutes.

    `sigma`, their standard deviation, and `memory_minutes`, their correlation time, broadcast to `shape`.
    """
    memory = np.exp(-1 / np.asarray(memory_minutes))
    walk = rng.normal(0.0, sigma, (TRAFFIC_DAY_MINUTES, *shape))
    fresh = np.sqrt(1 - memory**2)
    for minute in range(1, TRAFFIC_DAY_MINUTES):
        walk[minute] = memory * walk[minute - 1] + fresh * walk[minute]
    return walk


def minutes_within_day(start: datetime, minutes: int, day: date) -> slice:
    """Return the minutes of the day that a period covers; a start without a time zone is UTC."""
    start = start if start.tzinfo else start.replace(tzinfo=UTC)
    first = math.floor((start - datetime.combine(day, time(), UTC)).total_seconds() / 60)
    return slice(min(max(first, 0), TRAFFIC_DAY_MINUTES), min(max(first + minutes, 0), TRAFFIC_DAY_MINUTES))


def burst_factor(bursts: Iterable[BurstConfig], day: date) -> Floats:
    """Return the factor of bursts on the load of each minute of the day, shape (1440,)."""
    factor = np.ones(TRAFFIC_DAY_MINUTES)
    for burst in bursts:
        factor[minutes_within_day(burst.start, burst.minutes, day)] *= burst.factor
    return factor


def sort_by_arrival(arrived_us: Ints, code: Ints, codes: int) -> tuple[Ints, Ints]:
    """Sort requests by time, then by code 0 .. codes - 1; all (requests,).

    Both are packed into one integer, which sorts several times faster than argsort.
    """
    bits = codes.bit_length()
    packed = arrived_us << bits | code
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)


def draw_by_row(rng: np.random.Generator, shares: Floats, row: Ints) -> Ints:
    """Sample a column for each entry of `row`, (K,), by that row of `shares`, (rows, columns)."""
    return pick_columns(shares, row, rng.random(row.size))


def pick_columns(shares: Floats, row: Ints, dice: Floats) -> Ints:
    """Return the column, (K,), at the quantile `dice` (0 to 1) of rows of `shares`, (rows, columns).

    `row` and `dice` have the shape (K,).
    """
    below = np.cumsum(shares, axis=1) + np.arange(len(shares))[:, None]
    below[:, -1] = np.arange(len(shares)) + 1  # exact, so that rounding cannot select another row
    return np.searchsorted(below.ravel(), row + dice, side="right") - row * shares.shape[1]
