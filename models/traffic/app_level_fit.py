"""Fit the levels of apps: the quantiles, the season and the memory of their hours (app_levels.py).

The memory of z is fitted to the autocorrelation of x itself, through the Hermite expansion of Q(Phi).
"""

import numpy as np
from scipy.special import ndtr, ndtri

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.app_levels import LEVEL_QUANTILES, AppLevels, LevelProcess, quantile_at
from fleetcast.models.world.calendar import HOURS_PER_WEEK

MOST_WEEKS = 8  # of a stretch
LAGS = (1, 2, 3, 6, 12, 24, 48, 72, 96)  # hours at which the memory is fitted
FAST_HOURS = (0.3, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 9.0, 13.0, 18.0)
SLOW_HOURS = (24.0, 48.0, 96.0, 192.0)
SLOW_SHARES = tuple(np.arange(10) / 10)
LEAST_DEVIATION = 0.2  # of z about its season
HERMITE_TERMS, LATE_TERM = 24, 60
PLACES = np.linspace(-5, 5, 801)  # values of z at which Q(Phi) is expanded


def fit_app_levels(counts: Floats, hour_of_week: Ints) -> AppLevels:
    """Fit the levels of apps to their requests by the hour.

    Requests are sampled around a level, so quiet hours can be empty by chance. An app sleeps in the empty
    hours beyond those expected by chance; without any it never sleeps.

    counts : requests, shape (apps, hours); nan where an hour was not recorded in full
    hour_of_week : of each hour, Monday 00:00 is 0, shape (hours,)
    """
    known, some = ~np.isnan(counts), counts > 0
    hours = np.maximum(known.sum(axis=1), 1)
    by_chance = np.where(some, np.exp(-np.where(some, counts, 0.0)), 0.0).sum(axis=1)
    asleep = ((known & ~some).sum(axis=1) - by_chance) / hours
    asleep = np.where(asleep > 1 / LEVEL_QUANTILES, asleep, 0.0)
    awake = _fit(np.where(known, some | (asleep == 0)[:, None], np.nan), hour_of_week)
    places = (np.arange(LEVEL_QUANTILES) + 0.5) / LEVEL_QUANTILES
    awake = LevelProcess(**{**vars(awake), "quantiles": (places > asleep[:, None]).astype(float)})
    level = _fit(np.where(some | (asleep == 0)[:, None], counts, np.nan), hour_of_week)
    mean = level.quantiles.mean(axis=1) * awake.quantiles.mean(axis=1)
    quantiles = level.quantiles / np.maximum(mean, 1e-300)[:, None]
    weeks = min(max(round(hour_of_week.size / HOURS_PER_WEEK), 1), MOST_WEEKS)
    return AppLevels(awake, LevelProcess(**{**vars(level), "quantiles": quantiles}), 7 * weeks)


def _fit(seen: Floats, hour_of_week: Ints) -> LevelProcess:
    """Fit a process to each row of values, shape (apps, hours), nan where unknown."""
    apps = len(seen)
    places = (np.arange(LEVEL_QUANTILES) + 0.5) / LEVEL_QUANTILES
    quantiles, scores = np.zeros((apps, LEVEL_QUANTILES)), np.full(seen.shape, np.nan)
    season, deviation = np.zeros((apps, HOURS_PER_WEEK)), np.ones(apps)
    memory = np.tile([0.0, FAST_HOURS[0], SLOW_HOURS[0]], (apps, 1))
    for app, values in enumerate(seen):
        known = np.flatnonzero(~np.isnan(values))
        if not known.size:
            continue
        quantiles[app] = np.quantile(values[known], places, method="inverted_cdf")
        if np.ptp(values[known]) == 0:
            continue
        scores = _scores(values[known])
        # Scores of equal hours are averaged, so their variance is only a part of the variance of z.
        season[app] = _season(scores, hour_of_week[known]) / scores.var()
        of_season = season[app, hour_of_week[known]].var()
        season[app] *= min(1.0, np.sqrt((1 - LEAST_DEVIATION**2) / max(of_season, 1e-9)))
        deviation[app] = np.sqrt(1 - season[app, hour_of_week[known]].var())
        memory[app] = _memory(values, quantiles[app], season[app], deviation[app])
    return LevelProcess(quantiles, season, deviation, *memory.T)


def _scores(values: Floats) -> Floats:
    """Return normal scores, shape (hours,): the mean of z over the share of the hours with this value."""
    ordered = np.sort(values)
    low, high = (np.searchsorted(ordered, values, side=side) / values.size for side in ("left", "right"))
    density = [np.exp(-(ndtri(share) ** 2) / 2) / np.sqrt(2 * np.pi) for share in (low, high)]
    return (density[0] - density[1]) / (high - low)


def _season(scores: Floats, hour_of_week: Ints) -> Floats:
    """Return the mean score by hour of the week, shape (168,), of scores and their hours, both (hours,).

    It is the sum of the effects of the hour of the day, of the hour on working days or weekends, and of the
    hour of the week. Each effect is shrunk to the variance that the scatter of the days in its slots does not
    explain. (James and Stein shrink more: they minimise the error of the season instead of keeping its
    variance.)
    """
    hours = np.arange(HOURS_PER_WEEK)
    hour = hours % 24
    season = np.full(HOURS_PER_WEEK, scores.mean())
    for slot in (hour, hour + 24 * (hours >= 120), hours):
        rest = scores - season[hour_of_week]
        at, slots = slot[hour_of_week], slot.max() + 1
        days = np.bincount(at, minlength=slots)
        if (days > 1).sum() <= slots / 2:
            continue
        mean = np.bincount(at, rest, minlength=slots) / np.maximum(days, 1)
        scatter = ((rest - mean[at]) ** 2).sum() / (days - 1).clip(0).sum()
        found = (mean[days > 0] ** 2).mean()
        if found > 0:
            reliable = 1 - scatter * np.mean(1 / days[days > 0]) / found
            season = season + np.sqrt(max(reliable, 0.0)) * mean[slot]
    return season


def _memory(values: Floats, quantiles: Floats, season: Floats, deviation: float) -> Floats:
    """Return slow share, fast and slow correlation time (h) that best fit the autocorrelations at LAGS.

    Subtracting the mean of a record lowers its autocorrelation by the variance of that mean. The candidates
    are lowered alike. `values` (nan where unknown) has the shape (hours,), `season` (168,).
    """
    hours = values.size
    lags = np.array([lag for lag in LAGS if lag < hours // 2])
    rest = values - np.nanmean(values)
    pairs = [rest[lag:] * rest[:-lag] for lag in lags]
    seen = np.array([np.nanmean(pair) if (~np.isnan(pair)).any() else 0.0 for pair in pairs])
    seen = seen / np.nanmean(rest**2)
    grid = np.array([(a, f, s) for a in SLOW_SHARES for f in FAST_HOURS for s in SLOW_HOURS])
    share, fast, slow = grid.T[:, :, None]

    def of_rest(lag: Ints) -> Floats:
        """Return the autocorrelation of z about its season, shape (candidates, lags)."""
        return share * np.exp(-lag / slow) + (1 - share) * np.exp(-lag / fast)

    all_lags = np.arange(1, hours, max(hours // 200, 1))
    weights = (1 - all_lags / hours) * max(hours // 200, 1)
    of_mean = deviation**2 * (1 + 2 * (of_rest(all_lags) @ weights)) / hours
    centred = season - season.mean()
    of_season = np.array([centred @ np.roll(centred, -lag) for lag in lags]) / HOURS_PER_WEEK
    of_grid = _shown(of_season + deviation**2 * of_rest(lags), quantiles)
    of_grid = (of_grid - of_mean[:, None]) / (1 - of_mean[:, None])
    return grid[((of_grid - seen) ** 2 @ (1 / lags)).argmin()]


def _shown(correlation: Floats, quantiles: Floats) -> Floats:
    """Return the autocorrelation of Q(Phi(z)), shape as `correlation`, that of z.

    It is the sum of b_k r^k with the Hermite coefficients b. The terms after HERMITE_TERMS, of which a step
    has many, count as one term of the order LATE_TERM.
    """
    density = np.exp(-(PLACES**2) / 2)
    density = density / density.sum()
    values = quantile_at(quantiles[None], ndtr(PLACES)[None])[0]
    before, now = np.ones_like(PLACES), PLACES
    shown, total = np.zeros_like(correlation), 0.0
    for term in range(1, HERMITE_TERMS + 1):
        weight = float(values @ (density * now)) ** 2
        shown, total = shown + weight * correlation**term, total + weight
        before, now = now, (PLACES * now - np.sqrt(term) * before) / np.sqrt(term + 1)
    variance = float(density @ (values - density @ values) ** 2)
    return (shown + max(variance - total, 0.0) * correlation**LATE_TERM) / max(variance, total, 1e-300)
