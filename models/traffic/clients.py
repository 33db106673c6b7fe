"""Requests of a trace as the sum of its clients: an app in a region, with one llm and tier.

Each client is a renewal process in operational time: its gaps have a coefficient of variation of their own,
and time runs with its expected rate. The rate is that of the hour of the week, times noise that the clients
of an endpoint and tier share, and noise that all share. A CV of 1 is that of a Poisson process.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.characterise.gaps import draw_gaps, shape_of_cv
from models.traffic.changes import Changes, NewApp, Outage, require_possible
from models.traffic.drawing import (
    MINUTE_US,
    Floats,
    Integers,
    burst_factor,
    by_arrival,
    draw_by_row,
    minute_noise,
    minutes_of,
    stream,
)
from models.traffic.parameters import MINUTES, Columns, Names

HOURS_PER_WEEK = 168
SUNDAY = 6
WARM_UP_GAPS = 20.0  # before midnight, so that a day does not begin with an arrival


class Noise(NamedTuple):
    """How the load wanders (minute_noise), by endpoint and tier: shape (groups + 1,), the last is common."""

    daily_share: Floats
    minute_share: Floats
    memory_minutes: Floats


@dataclass(frozen=True)
class ClientTraffic:
    """A fitted trace; all arrays but the last two of shape (clients, ...)."""

    region: NDArray[np.int16]
    llm: NDArray[np.int16]
    tier: NDArray[np.int16]
    app: NDArray[np.int16]
    requests_per_hour: Floats  # (clients, 168) from Monday 00:00 UTC
    gap_cv: Floats
    group: Integers  # of the noise that it shares
    noise: Noise
    family: str  # of the gaps: gamma or weibull
    first_pair: Integers  # (clients + 1,) where the pairs of a client begin
    pairs: NDArray[np.int32]  # (pairs, 2) input and output tokens of its requests, as they were seen together


def altered(
    traffic: ClientTraffic, changes: Changes, scale: float, names: Names, apps: Sequence[str]
) -> tuple[ClientTraffic, list[str]]:
    """What holds on all days: the scale, the share of niw, new apps; with the names of all apps.

    Raises
    ------
    ValueError
        A scale or ratio that cannot be had, or a new app that is like none of the trace.
    """
    require_possible(0 < scale < np.inf, f"scale is {scale:g}, needs more than 0")
    rate = scale * traffic.requests_per_hour
    if changes.interactive_to_niw is not None:
        is_niw = np.array([tier not in names.interactive for tier in names.tiers])[traffic.tier]
        total, niw = rate.sum(), rate[is_niw].sum()
        require_possible(
            0 < niw < total, "interactive_to_niw needs a trace with interactive and niw requests"
        )
        wanted = total / (1 + changes.interactive_to_niw)
        rate = rate * np.where(is_niw, wanted / niw, (total - wanted) / (total - niw))[:, None]
    traffic = dataclasses.replace(traffic, requests_per_hour=rate)
    known, all_apps = list(apps), list(apps)
    total = rate.sum()
    for new in changes.new_apps:
        require_possible(
            new.like in known, f"the new app {new.name!r} is like {new.like!r}; known: {', '.join(known)}"
        )
        require_possible(new.name not in all_apps, f"the app {new.name!r} is there already")
        traffic = _with_app(traffic, new, known.index(new.like), len(all_apps), total)
        all_apps.append(new.name)
    return traffic, all_apps


def client_day(
    traffic: ClientTraffic, changes: Changes, day: date, first_day: date, seed: int, names: Names
) -> Columns:
    """Draw one day; it depends on the day, the seed and the traffic, not on which other days are drawn.

    Parameters
    ----------
    first_day : date
        Where growth begins.
    names : Names
        Of the catalogue; the codes of the result are positions in them, `app` one in the trace's apps.
    """
    rate = expected_rate(traffic, changes, day, first_day)
    noise = minute_noise(stream(seed, day, "noise"), *traffic.noise, traffic.noise[0].shape)
    rate *= noise[traffic.group] * noise[-1]
    rng = stream(seed, day, "gaps")
    drawn = [_arrivals(rng, traffic.family, cv, row) for cv, row in zip(traffic.gap_cv, rate, strict=True)]
    client = np.repeat(np.arange(len(drawn)), [minutes.size for minutes in drawn])
    arrived_us = (np.concatenate([*drawn, np.empty(0)]) * MINUTE_US).astype(np.int64)
    arrived_us, client = by_arrival(arrived_us, client, len(drawn))
    sizes = np.diff(traffic.first_pair)[client]
    uniform = stream(seed, day, "tokens").random(client.size)
    pair = traffic.pairs[traffic.first_pair[client] + (uniform * sizes).astype(np.int64)]
    region = traffic.region[client]
    for number, outage in enumerate(changes.outages):
        region = _moved(region, arrived_us, outage, day, names, stream(seed + number, day, "moved"))
    return Columns(
        arrived_us=arrived_us,
        region=region,
        llm=traffic.llm[client],
        tier=traffic.tier[client],
        app=traffic.app[client],
        input_tokens=pair[:, 0],
        output_tokens=pair[:, 1],
    )


def expected_rate(traffic: ClientTraffic, changes: Changes, day: date, first_day: date) -> Floats:
    """Requests per minute without noise, shape (clients, 1440): straight between the middles of the hours."""
    weekday = SUNDAY if day in changes.holidays else day.weekday()
    rate = minute_rates(traffic.requests_per_hour, 24 * weekday, MINUTES)
    weeks = (day - first_day).days // 7
    return rate * (1 + changes.growth_per_week) ** weeks * burst_factor(changes.bursts, day)


def minute_rates(requests_per_hour: Floats, first_hour: float, minutes: int) -> Floats:
    """Requests per minute, shape (series, minutes), from those per hour of the week, shape (series, 168).

    Parameters
    ----------
    first_hour : float
        Hour of the week at which the first minute begins.
    """
    place = first_hour + (np.arange(minutes) + 0.5) / 60 - 0.5
    below = np.floor(place).astype(np.int64)
    share = place - below
    before, after = (requests_per_hour[:, (below + step) % HOURS_PER_WEEK] for step in (0, 1))
    return ((1 - share) * before + share * after) / 60


def _arrivals(rng: np.random.Generator, family: str, cv: float, rate: Floats) -> Floats:
    """Minutes of the day at which a client sends, in order; `rate` per minute, shape (1440,)."""
    expected = np.concatenate([[0.0], np.cumsum(rate)])
    warm_up = WARM_UP_GAPS * (1 + cv**2)
    shape, wanted = shape_of_cv(family, cv), expected[-1] + warm_up
    at = np.empty(0)
    while at.size == 0 or at[-1] < wanted:
        more = max(wanted - at[-1] if at.size else wanted, 1.0)
        gaps = draw_gaps(rng, family, shape, (int(more + 4 * cv * np.sqrt(more)) + 10,))
        at = np.concatenate([at, np.cumsum(gaps) + (at[-1] if at.size else 0.0)])
    at = at[(at >= warm_up) & (at < wanted)] - warm_up
    return np.minimum(np.interp(at, expected, np.arange(MINUTES + 1.0)), np.nextafter(MINUTES, 0))


def _with_app(traffic: ClientTraffic, new: NewApp, like: int, code: int, total: float) -> ClientTraffic:
    """The traffic and a copy of the clients of one app, under another name and with its share of `total`."""
    copied = np.flatnonzero(traffic.app == like)
    rate = traffic.requests_per_hour[copied]
    per_client: dict[str, Any] = {
        name: np.concatenate([getattr(traffic, name), getattr(traffic, name)[copied]])
        for name in ("region", "llm", "tier", "gap_cv", "group")
    }
    sizes = np.diff(traffic.first_pair)
    pairs = [traffic.pairs[traffic.first_pair[client] :][: sizes[client]] for client in copied]
    return dataclasses.replace(
        traffic,
        **per_client,
        app=np.concatenate([traffic.app, np.full(copied.size, code, np.int16)]),
        requests_per_hour=np.concatenate([traffic.requests_per_hour, rate * new.share * total / rate.sum()]),
        first_pair=np.concatenate([[0], np.cumsum([*sizes, *sizes[copied]])]),
        pairs=np.concatenate([traffic.pairs, *pairs]),
    )


def _moved(
    region: NDArray[np.int16],
    arrived_us: Integers,
    outage: Outage,
    day: date,
    names: Names,
    rng: np.random.Generator,
) -> NDArray[np.int16]:
    """The regions when one of them is out: its requests arrive in the others, by their shares of the day."""
    require_possible(outage.region in names.regions, f"unknown region {outage.region!r} in an outage")
    out = names.regions.index(outage.region)
    minutes = minutes_of(outage.start, outage.minutes, day)
    minute = arrived_us // MINUTE_US
    hit = (region == out) & (minute >= minutes.start) & (minute < minutes.stop)
    shares = np.bincount(region, minlength=len(names.regions)).astype(float)
    shares[out] = 0.0
    if hit.any():
        require_possible(shares.sum() > 0, f"the outage of {outage.region} leaves no region with requests")
        drawn = draw_by_row(rng, (shares / shares.sum())[None], np.zeros(int(hit.sum()), np.int64))
        region = region.copy()
        region[hit] = drawn.astype(np.int16)
    return region
