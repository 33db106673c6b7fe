"""Fit the clients of a trace: rates by hour of the week, apps with levels of their own, shared noise.

A week of a small client is mostly chance. So its weekly rate is that of its endpoint and tier, moved towards
its counts as far as there are enough of them. The prior of an endpoint and tier is a flat rate.
"""

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.clients import Noise
from fleetcast.models.world.calendar import HOURS_PER_WEEK

# Weight of the prior of a ratio in requests, compared with the requests that the ratio is made from. It is
# lower where the ratios of a series differ by more than chance.
PRIOR_REQUESTS = 30.0
MOST_LAG_MINUTES = 120
LEAST_AUTOCORRELATION = 0.1  # of the noise; its memory is cut at the first lag below
LEAST_MEMORY_MINUTES = 0.1
LEAST_OWN_CV = 0.25  # of the hours of an app about its week, without chance; below, shared noise suffices
SIGMAS = 4.0
LEAST_HOURS = 48  # fully recorded hours that a fit of levels needs


def weekly_rates(counts: Floats, recorded: Floats, hour_of_week: Ints, prior: Floats) -> Floats:
    """Return the requests per hour of the week, shape (series, 168).

    They are the prior times three successive ratios of recorded to expected requests: by hour of the day, by
    that hour on working days and on weekends, by weekday. Hours that were never recorded keep the prior.

    counts : requests per clock hour, shape (series, hours)
    recorded : recorded share of each clock hour, 0 to 1, shape (hours,)
    hour_of_week : of each clock hour, Monday 00:00 is 0, shape (hours,)
    prior : requests per hour of the week, shape (series, 168)
    """
    hours = np.arange(HOURS_PER_WEEK)
    hour, weekday = hours % 24, hours // 24
    rates = prior
    for slot in (hour, hour + 24 * (weekday >= 5), weekday):
        of_hour = slot[hour_of_week]
        seen = _sums(counts, of_hour, slot.max() + 1)
        expected = _sums(recorded * rates[:, hour_of_week], of_hour, slot.max() + 1)
        prior_requests = _prior_requests(seen, expected)[:, None]
        rates = rates * ((seen + prior_requests) / (expected + prior_requests))[:, slot]
    expected = (recorded * rates[:, hour_of_week]).sum(axis=1)
    total = counts.sum(axis=1)
    return rates * np.divide(total, expected, out=np.zeros_like(total), where=expected > 0)[:, None]


def _prior_requests(seen: Floats, expected: Floats) -> Floats:
    """Return one over the variance of each series' ratios beyond chance, (series,), PRIOR_REQUESTS at most.

    It is the shape of a Gamma prior of the ratios: weekly_rates takes the posterior mean of a Poisson rate.
    `seen` and `expected` are requests, shape (series, slots).
    """
    beyond, error, square = _beyond_chance(seen, expected)
    return np.minimum(PRIOR_REQUESTS, square / np.maximum(beyond - SIGMAS * error, square / PRIOR_REQUESTS))


def _beyond_chance(counts: Floats, expected: Floats) -> tuple[Floats, Floats, Floats]:
    """Compare counts with expected counts, both (series, hours), nan where unknown; all results (series,).

    Returns
    -------
    beyond : squared deviations in excess of a Poisson process
    error : standard error of `beyond` for a Poisson process
    square : sum of the squared expected counts
    """
    beyond = np.nansum((counts - expected) ** 2, axis=1) - np.nansum(expected, axis=1)
    error = np.sqrt(np.nansum(expected + 2 * expected**2, axis=1))
    return beyond, error, np.nansum(expected**2, axis=1)


def has_own_levels(counts: Floats, expected: Floats) -> NDArray[np.bool_]:
    """Whether an app deviates so much from its weekly rate that it needs levels of its own, shape (apps,).

    counts, expected : recorded requests of each hour and those of the weekly rate, shape (apps, hours); nan
        where the hour was not recorded in full
    """
    if (~np.isnan(counts).any(axis=0)).sum() < LEAST_HOURS:
        return np.zeros(len(counts), bool)
    beyond, error, square = _beyond_chance(counts, expected)
    return beyond > np.maximum(LEAST_OWN_CV**2 * square, SIGMAS * error)


def fit_noise(per_minute: Floats, expected: Floats, chance: Floats) -> Noise:
    """Fit the noise of the minutes of each series about its expected rate.

    The variance of the minutes beyond chance gives the size of the noise, their autocovariances give its
    memory. The daily part needs more than a week of days, because weekdays are fitted. The noise s0 common to
    all series is what independent noise does not explain in the variance of their sum. This variance is
    s0^2 + sum of (w s)^2 over the series, with w their shares of the load and s their independent noise.

    per_minute : requests, shape (series, minutes); nan where nothing was recorded
    expected : requests of each minute without noise, shape (series, minutes)
    chance : variance over mean of a minute without noise, shape (series,): the squared CV of the gaps, 1 if
        Poisson

    Returns: of shape (series + 1,): the last one is common to all.
    """
    shares = np.nansum(per_minute, axis=1) / max(np.nansum(per_minute), 1.0)
    per_minute = np.vstack([per_minute, per_minute.sum(axis=0)])
    expected = np.vstack([expected, expected.sum(axis=0)])
    series = zip(per_minute, expected, [*chance, shares @ chance], strict=True)
    daily, minute, memory = np.array([_fit_series(*each) for each in series]).T
    return Noise(_split_common(daily, shares), _split_common(minute, shares), memory)


def _split_common(noise: Floats, shares: Floats) -> Floats:
    """Split noise into that of each series and that common to all, shape (series + 1,), the last is common.

    `noise`, same shape, is that of each series and of their sum; `shares`, of the load, has shape (series,).
    """
    variance, squares = noise**2, shares**2
    if squares.sum() >= 1:
        return np.append(noise[:-1], 0.0)
    common = max((variance[-1] - squares @ variance[:-1]) / (1 - squares.sum()), 0.0)
    return np.sqrt(np.append(np.maximum(variance[:-1] - common, 0.0), common))


def _fit_series(seen: Floats, expected: Floats, chance: float) -> tuple[float, float, float]:
    """Fit daily share, minute share and memory (minutes) of one series; `seen`, `expected` (minutes,)."""
    known = ~np.isnan(seen)
    usual, actual = np.where(known, expected, 0.0), np.where(known, seen, 0.0)
    day = np.arange(seen.size) // 1440
    by_day, usual_by_day = (np.bincount(day, values).astype(float) for values in (actual, usual))
    level = np.divide(by_day, usual_by_day, out=np.ones_like(by_day), where=usual_by_day > 0)
    usual = usual * level[day]
    rest, square = actual - usual, float((usual**2).sum())
    variance = float((rest**2).sum() - chance * usual.sum()) / max(square, 1e-300)
    error = chance * np.sqrt(2 * square + usual.sum()) / max(square, 1e-300)
    if variance < 2 * error:  # not distinguishable from chance
        return _daily_share(level, by_day, 0.0), 0.0, 1.0
    lags = range(1, min(MOST_LAG_MINUTES, seen.size // 2) + 1)
    shared = np.array([(rest[lag:] * rest[:-lag]).sum() / square / variance for lag in lags])
    forgotten = np.flatnonzero(shared < LEAST_AUTOCORRELATION)
    lasting = float(shared[: forgotten[0] if forgotten.size else shared.size].sum())
    memory = -1 / np.log(lasting / (1 + lasting)) if lasting > 0 else LEAST_MEMORY_MINUTES
    of_minutes = variance * (1 + 2 * lasting) / 1440
    return _daily_share(level, by_day, of_minutes), float(np.sqrt(variance)), float(memory)


def _daily_share(level: Floats, requests: Floats, of_minutes: float) -> float:
    """Return the standard deviation of daily levels, shape (days,), beyond that of minutes and of chance."""
    full = requests > 0
    if full.sum() <= 7:
        return 0.0
    variance = ((level[full] - 1) ** 2).sum() / (full.sum() - 7) - of_minutes - (1 / requests[full]).mean()
    return float(np.sqrt(max(variance, 0.0)))


def _sums(values: Floats, slot: NDArray[np.int64], slots: int) -> Floats:
    """Sum values, shape (series, hours), over the hours of each slot, shape (series, slots)."""
    sums = np.zeros((len(values), slots))
    np.add.at(sums.T, slot, values.T)
    return sums
