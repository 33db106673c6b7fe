"""Requests of a trace as the sum of its clients: an app in a region, with one llm and tier.

The rate of a client is the product of its rate in the hour of the week, the level of its app (app_levels.py),
noise of its endpoint and tier, and noise common to all. A sender, an app or one client of it, spaces its
requests by a renewal process (renewal_arrivals.py). Every generated day follows one recorded day in the
variation of its gaps and in its tokens, so that they drift by client and hour as in the original.
"""

from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.app_levels import AppLevels, draw_level_stretch
from fleetcast.models.traffic.length_scores import LengthScores, exchange_pairs
from fleetcast.models.traffic.random_streams import (
    HOUR_US,
    MINUTE_US,
    burst_factor,
    draw_by_row,
    minute_noise,
    minutes_within_day,
    random_stream,
    sort_by_arrival,
)
from fleetcast.models.traffic.recorded_days import (
    RecordedDays,
    draw_token_pairs,
    pick_recorded_day,
    pick_recorded_hours,
)
from fleetcast.models.traffic.renewal_arrivals import SECOND_US, Spacing, draw_arrivals, snap_to_grid
from fleetcast.models.traffic.trace_changes import Outage, TraceChanges, require_possible_change
from fleetcast.models.traffic.trace_columns import DayColumns, TraceNames
from fleetcast.models.world.calendar import HOURS_PER_WEEK
from fleetcast.models.world.traffic_config import TRAFFIC_DAY_MINUTES

SUNDAY = 6
EDGE_SHARE = 0.05  # a client begins or ends at an hour with less than this share of its neighbour's rate


class Noise(NamedTuple):
    """Noise of the load (minute_noise) by endpoint and tier, shape (groups + 1,); the last is common."""

    daily_share: Floats  # standard deviation of a day's level, relative to the mean
    minute_share: Floats  # standard deviation of a minute about it, likewise
    memory_minutes: Floats  # correlation time of the minutes


@dataclass(frozen=True)
class ClientTraffic:
    """A fitted trace; the arrays up to `pool` have the shape (clients, ...)."""

    region: NDArray[np.int16]
    llm: NDArray[np.int16]
    tier: NDArray[np.int16]
    app: NDArray[np.int16]
    requests_per_hour: Floats  # (clients, 168) from Monday 00:00 UTC
    group: Ints  # of clients with common noise
    sender: Ints  # row of `spacing`, whose gaps the requests have
    level: Ints  # row of `levels`; -1: the level is always 1
    pool: Ints  # of token pairs that the requests have
    noise: Noise
    levels: AppLevels
    spacing: Spacing
    history: RecordedDays
    first_pair: Ints  # (pools + 1,) where the pairs of a pool begin, in order of time
    pairs: NDArray[np.int32]  # (pairs, 2) input and output tokens of the recorded requests
    lengths: LengthScores  # of each pool
    grid_us: int = 1  # all instants lie on this grid
    grid_first_us: int = 0  # through this instant, since 1970


def client_day(
    traffic: ClientTraffic, changes: TraceChanges, day: date, first_day: date, seed: int, names: TraceNames
) -> DayColumns:
    """Generate one day; it depends on the day, the seed and the traffic, not on other generated days.

    first_day : first day of the trace, at which growth and the first stretch of levels begin
    names : names of the catalogue; the codes of the result are positions in them, but `app` in the trace's
        apps
    """
    weekday = _weekday(changes, day)
    rate = expected_rate(traffic, changes, day, first_day)
    noise = minute_noise(random_stream(seed, day, "noise"), *traffic.noise, traffic.noise[0].shape)
    rate *= noise[traffic.group] * noise[-1]
    stretch = draw_level_stretch(traffic.levels, seed, day, first_day, weekday)
    has_level = np.flatnonzero(traffic.level >= 0)
    by_hour = stretch.day_levels()[traffic.level[has_level]]
    rate[has_level] *= np.repeat(by_hour, TRAFFIC_DAY_MINUTES // 24, axis=1)
    recorded_day = pick_recorded_day(traffic.history, stretch, seed)
    by_sender = np.zeros((traffic.spacing.family.size, TRAFFIC_DAY_MINUTES))
    np.add.at(by_sender, traffic.sender, rate)
    cv = traffic.history.gap_cv[:, recorded_day].astype(float)
    minute, sender = draw_arrivals(
        random_stream(seed, day, "gaps"), by_sender, cv, traffic.spacing, max(traffic.grid_us, SECOND_US)
    )
    client = _clients(random_stream(seed, day, "cells"), traffic.sender, rate, minute, sender)
    arrived_us, client = sort_by_arrival((minute * MINUTE_US).astype(np.int64), client, len(rate))
    (pool, level), kind = np.unique([traffic.pool, traffic.level], axis=1, return_inverse=True)
    hours = pick_recorded_hours(traffic.history, stretch, recorded_day)[level]
    cell = 24 * kind.ravel()[client] + arrived_us // HOUR_US
    rng = random_stream(seed, day, "tokens")
    pair = draw_token_pairs(rng, traffic.history, traffic.first_pair, pool, hours, cell)
    pair = exchange_pairs(
        random_stream(seed, day, "lengths"),
        pair,
        traffic.pairs[:, 0],
        cell,
        arrived_us // MINUTE_US,
        traffic.lengths.of(pool),
    )
    if traffic.grid_us > 1:
        midnight_us = int(np.datetime64(day, "us").astype(np.int64))
        arrived_us = snap_to_grid(arrived_us, traffic.grid_us, traffic.grid_first_us - midnight_us)
    region = traffic.region[client]
    for number, outage in enumerate(changes.outages):
        region = _moved(region, arrived_us, outage, day, names, random_stream(seed + number, day, "moved"))
    tokens = traffic.pairs[pair]
    return DayColumns(
        arrived_us=arrived_us,
        region=region,
        llm=traffic.llm[client],
        tier=traffic.tier[client],
        app=traffic.app[client],
        input_tokens=tokens[:, 0],
        output_tokens=tokens[:, 1],
    )


def expected_rate(traffic: ClientTraffic, changes: TraceChanges, day: date, first_day: date) -> Floats:
    """Return requests per minute without noise, shape (clients, 1440), linear between middles of hours."""
    rate = minute_rates(traffic.requests_per_hour, 24 * _weekday(changes, day), TRAFFIC_DAY_MINUTES)
    weeks = (day - first_day).days // 7
    return rate * (1 + changes.growth_per_week) ** weeks * burst_factor(changes.bursts, day)


def minute_rates(requests_per_hour: Floats, first_hour: float, minutes: int) -> Floats:
    """Return requests per minute, shape (series, minutes), from those per hour of the week, (series, 168).

    They are interpolated between the middles of the hours, except where a series begins or ends at an hour.

    first_hour : hour of the week at which the first minute begins
    """
    place = first_hour + (np.arange(minutes) + 0.5) / 60 - 0.5
    below = np.floor(place).astype(np.int64)
    share = place - below
    before, after = (requests_per_hour[:, (below + step) % HOURS_PER_WEEK] for step in (0, 1))
    is_edge = np.minimum(before, after) < EDGE_SHARE * np.maximum(before, after)
    return np.where(is_edge, np.where(share < 0.5, before, after), (1 - share) * before + share * after) / 60


def _weekday(changes: TraceChanges, day: date) -> int:
    return SUNDAY if day in changes.holidays else day.weekday()


def _clients(rng: np.random.Generator, sender_of: Ints, rate: Floats, minute: Floats, sender: Ints) -> Ints:
    """Sample the client of each request, shape (requests,), by the rates of its sender's clients.

    sender_of : sender of each client, shape (clients,)
    rate : requests per minute, shape (clients, 1440)
    minute, sender : of each request, shape (requests,); `sender` ascends
    """
    order = np.argsort(sender_of, kind="stable")
    first = np.searchsorted(sender_of[order], np.arange(sender_of.max(initial=-1) + 2))
    client = order[first[sender]]
    edges = np.searchsorted(sender, np.arange(first.size))
    for several in np.flatnonzero(np.diff(first) > 1):
        members = order[first[several] : first[several + 1]]
        within = slice(edges[several], edges[several + 1])
        shares = rate[members].T
        total = shares.sum(axis=1, keepdims=True)
        shares = np.divide(shares, total, out=np.full(shares.shape, 1 / members.size), where=total > 0)
        client[within] = members[draw_by_row(rng, shares, minute[within].astype(np.int64))]
    return client


def _moved(
    region: NDArray[np.int16],
    arrived_us: Ints,
    outage: Outage,
    day: date,
    names: TraceNames,
    rng: np.random.Generator,
) -> NDArray[np.int16]:
    """Move the requests of a region that is out to the others, by their shares of the day.

    `region`, `arrived_us` (since midnight) and the result have the shape (requests,).
    """
    require_possible_change(outage.region in names.regions, f"unknown region {outage.region!r} in an outage")
    out = names.regions.index(outage.region)
    minutes = minutes_within_day(outage.start, outage.minutes, day)
    minute = arrived_us // MINUTE_US
    hit = (region == out) & (minute >= minutes.start) & (minute < minutes.stop)
    shares = np.bincount(region, minlength=len(names.regions)).astype(float)
    shares[out] = 0.0
    if hit.any():
        require_possible_change(
            shares.sum() > 0, f"the outage of {outage.region} leaves no region with requests"
        )
        sampled = draw_by_row(rng, (shares / shares.sum())[None], np.zeros(int(hit.sum()), np.int64))
        region = region.copy()
        region[hit] = sampled.astype(np.int16)
    return region
