"""Fitting the clients of a trace: their rate by hour of the week, and the noise that they share.

A week of a small client is mostly chance. Its rhythm is therefore that of its endpoint and tier, moved
towards its own counts as far as there are many of them; theirs in turn begins from a flat rate.
"""

import numpy as np
from numpy.typing import NDArray

from models.clients import HOURS_PER_WEEK, Noise, minute_rates
from models.drawing import Floats, Integers

PRIOR_REQUESTS = (
    30.0  # a ratio counts as much as the requests that it is made from, beside so many of the prior
)
MOST_LAG_MINUTES = 120
LEAST_AUTOCOVARIANCE = 0.1  # of that at one minute: the noise is forgotten from there on


def weekly_rates(counts: Floats, recorded: Floats, hour_of_week: Integers, prior: Floats) -> Floats:
    """Requests per hour of the week, shape (series, 168).

    The prior times three ratios of requests to what was expected so far: of the hour of the day, of that hour
    on working days and on weekends, of the weekday. What was never recorded keeps the prior.

    Parameters
    ----------
    counts : Floats
        Requests per clock hour, shape (series, hours).
    recorded : Floats
        How much of each clock hour was recorded, 0 to 1, shape (hours,).
    hour_of_week : Integers
        Of each clock hour, Monday 00:00 is 0, shape (hours,).
    prior : Floats
        Requests per hour of the week, shape (series, 168).
    """
    hours = np.arange(HOURS_PER_WEEK)
    hour, weekday = hours % 24, hours // 24
    rates = prior
    for slot in (hour, hour + 24 * (weekday >= 5), weekday):
        of_hour = slot[hour_of_week]
        seen = _sums(counts, of_hour, slot.max() + 1)
        expected = _sums(recorded * rates[:, hour_of_week], of_hour, slot.max() + 1)
        rates = rates * ((seen + PRIOR_REQUESTS) / (expected + PRIOR_REQUESTS))[:, slot]
    expected = (recorded * rates[:, hour_of_week]).sum(axis=1)
    total = counts.sum(axis=1)
    return rates * np.divide(total, expected, out=np.zeros_like(total), where=expected > 0)[:, None]


def fit_noise(per_minute: Floats, requests_per_hour: Floats, first_hour: float) -> Noise:
    """What the minutes of each series do beyond its expected rate.

    Autocovariances from one minute on are free of the chance of single arrivals: that at lag 1 gives the size
    of the noise, their sum how long it lasts. A day's level shows only beyond a week: weekdays are fitted.

    Parameters
    ----------
    per_minute : Floats
        Requests, shape (series, minutes); nan where nobody recorded.
    requests_per_hour : Floats
        Expected, by hour of the week, shape (series, 168).
    first_hour : float
        Hour of the week at which the first minute begins.
    """
    expected = minute_rates(requests_per_hour, first_hour, per_minute.shape[1])
    fits = [_fit_series(seen, usual) for seen, usual in zip(per_minute, expected, strict=True)]
    return Noise(*np.array(fits).reshape(-1, 3).T)


def _fit_series(seen: Floats, expected: Floats) -> tuple[float, float, float]:
    """Daily share, minute share and memory of one series."""
    known = ~np.isnan(seen)
    usual, came = np.where(known, expected, 0.0), np.where(known, seen, 0.0)
    day = np.arange(seen.size) // 1440
    by_day, usual_by_day = (np.bincount(day, values).astype(float) for values in (came, usual))
    level = np.divide(by_day, usual_by_day, out=np.ones_like(by_day), where=usual_by_day > 0)
    usual = usual * level[day]
    rest = came - usual
    lags = np.arange(1, min(MOST_LAG_MINUTES, seen.size // 2) + 1)
    together = np.array(
        [[(series[lag:] * series[:-lag]).sum() for series in (rest, usual)] for lag in lags]
    ).reshape(-1, 2)
    shared = np.divide(together[:, 0], together[:, 1], out=np.zeros(len(lags)), where=together[:, 1] > 0)
    if not shared.size or shared[0] <= 0:
        return _daily_share(level, by_day, 0.0), 0.0, 1.0
    forgotten = np.flatnonzero(shared < LEAST_AUTOCOVARIANCE * shared[0])
    last = forgotten[0] if forgotten.size else shared.size
    memory = max(float(shared[:last].sum() / shared[0]), 1.0)
    variance = float(shared[0]) * np.exp(1 / memory)
    return _daily_share(level, by_day, variance * 2 * memory / 1440), float(np.sqrt(variance)), memory


def _daily_share(level: Floats, requests: Floats, of_minutes: float) -> float:
    """Standard deviation of the level of days beyond that of their minutes and of chance."""
    full = requests > 0
    if full.sum() <= 7:
        return 0.0
    variance = ((level[full] - 1) ** 2).sum() / (full.sum() - 7) - of_minutes - (1 / requests[full]).mean()
    return float(np.sqrt(max(variance, 0.0)))


def _sums(values: Floats, slot: NDArray[np.int64], slots: int) -> Floats:
    """Sums over the hours of each slot, shape (series, slots)."""
    sums = np.zeros((len(values), slots))
    np.add.at(sums.T, slot, values.T)
    return sums
