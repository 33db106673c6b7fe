"""Levels of apps by the hour: they sleep and wake, and remember over days how much they send.

Both are autoregressive to anything (Cario and Nelson 1996): a Gaussian process z decides which quantile of
what was seen an hour takes,

    x(t) = Q(Phi(z(t))),   z = season + sd x (sqrt(a) slow + sqrt(1 - a) fast),

with `season` by hour of the week, and `slow` and `fast` first-order autoregressive. For sleep Q is 0 or 1: a
stay lasts as long as z remembers on which side of a threshold it is. For the level Q is of the hours awake.
The memory is fitted to the autocorrelation of x itself, through the Hermite expansion of Q(Phi).

Such a memory makes one fortnight differ from the next by half and more. A trace that is like another one has
its requests: in every stretch as long as the record, the quantile of an hour is its rank in the stretch
instead of Phi(z), so that each quantile comes as often as it did.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from models.traffic.drawing import Floats, Integers, stream

HOURS_PER_WEEK = 168
QUANTILES = 200
WARM_UP_DAYS = 28  # before a stretch, so that it depends on the seed and on itself only, and still remembers
MOST_WEEKS = 8  # of a stretch
LAGS = (1, 2, 3, 6, 12, 24, 48, 72, 96)  # hours at which the memory is fitted
FAST_HOURS = (0.3, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 9.0, 13.0, 18.0)
SLOW_HOURS = (24.0, 48.0, 96.0, 192.0)
SLOW_SHARES = tuple(np.arange(10) / 10)
LEAST_DEVIATION = 0.2  # of z about its season
HERMITE_TERMS, LATE_TERM = 24, 60
PLACES = np.linspace(-5, 5, 801)  # of z, at which Q(Phi) is expanded


@dataclass(frozen=True)
class Process:
    """What apps draw hour by hour; all arrays of shape (apps, ...)."""

    quantiles: Floats  # (apps, QUANTILES) ascending
    season: Floats  # (apps, 168) mean of z from Monday 00:00 UTC
    deviation: Floats  # of z about its season
    slow_share: Floats  # of its variance
    fast_hours: Floats  # correlation times
    slow_hours: Floats

    def of(self, apps: Integers) -> "Process":
        """That of some apps."""
        return Process(*(values[apps] for values in vars(self).values()))

    def draw(self, steps: Floats, hour_of_week: Integers) -> Floats:
        """The hours of a stretch, shape (apps, hours): each quantile comes as often as any other.

        Parameters
        ----------
        steps : Floats
            Independent and normal, shape (apps, 2, hours before the stretch and its own).
        hour_of_week : Integers
            Whose season each hour of the stretch has, shape (hours,).
        """
        memory = np.exp(-1 / np.stack([self.slow_hours, self.fast_hours]))
        fresh = np.sqrt(1 - memory**2)
        walk = steps[..., 0].T
        hours = hour_of_week.size
        before = steps.shape[2] - hours
        path = np.empty((hours, *walk.shape))
        for hour in range(1, steps.shape[2]):
            walk = memory * walk + fresh * steps[..., hour].T
            path[max(hour - before, 0)] = walk
        mixed = np.sqrt(self.slow_share) * path[:, 0] + np.sqrt(1 - self.slow_share) * path[:, 1]
        z = self.season[:, hour_of_week] + self.deviation[:, None] * mixed.T
        return quantile_at(self.quantiles, (z.argsort(axis=1).argsort(axis=1) + 0.5) / hours)


@dataclass(frozen=True)
class Levels:
    """When apps are awake, 0 or 1, and how much they send then, in the mean of all hours."""

    awake: Process
    level: Process
    stretch_days: int  # in which every quantile comes once

    def and_copies(self, apps: Integers) -> "Levels":
        """These and once more those of some apps, which then go their own way."""
        every = np.concatenate([np.arange(self.level.deviation.size), apps])
        return Levels(self.awake.of(every), self.level.of(every), self.stretch_days)


class Stretch(NamedTuple):
    """The days among which each quantile of a level comes as often as any other."""

    levels: Floats  # (apps, days, 24)
    weekday: Integers  # (days,) whose season each has, Monday is 0
    place: int  # of the day that was asked for
    first_day: date

    def of_day(self) -> Floats:
        """The levels of the day, shape (apps, 24)."""
        return self.levels[:, self.place]


def draw_stretch(levels: Levels, seed: int, day: date, first_day: date, weekday: int) -> Stretch:
    """The stretch of a day; the same whichever days are drawn.

    Parameters
    ----------
    first_day : date
        Where the first stretch begins.
    weekday : int
        Whose season the day has, Monday is 0.
    """
    shape = (levels.level.deviation.size, 4, 24)
    place = (day - first_day).days % levels.stretch_days
    days = [day + timedelta(days=n - place) for n in range(-WARM_UP_DAYS, levels.stretch_days)]
    steps = np.concatenate([stream(seed, one, "levels").standard_normal(shape) for one in days], axis=2)
    weekdays = np.array([one.weekday() for one in days[WARM_UP_DAYS:]])
    weekdays[place] = weekday
    hour_of_week = (24 * weekdays[:, None] + np.arange(24)).ravel()
    awake, level = (
        levels.awake.draw(steps[:, :2], hour_of_week),
        levels.level.draw(steps[:, 2:], hour_of_week),
    )
    return Stretch(
        (awake * level).reshape(shape[0], levels.stretch_days, 24), weekdays, place, days[WARM_UP_DAYS]
    )


def quantile_at(quantiles: Floats, share: Floats) -> Floats:
    """Q at shares from 0 to 1 of each app, shape (apps, hours)."""
    place = np.minimum((share * QUANTILES).astype(np.int64), QUANTILES - 1)
    return np.take_along_axis(quantiles, place, axis=1)


def fit_levels(counts: Floats, hour_of_week: Integers) -> Levels:
    """Fit the levels of apps to their requests by the hour.

    Requests are drawn anew about a level, so that quiet hours turn empty by chance. Where no more hours were
    empty than that, an app never sleeps; else it sleeps for the others, as often as it was seen to be empty.

    Parameters
    ----------
    counts : Floats
        Requests, shape (apps, hours); nan where an hour was not recorded as a whole.
    hour_of_week : Integers
        Of each hour, Monday 00:00 is 0, shape (hours,).
    """
    known, some = ~np.isnan(counts), counts > 0
    hours = np.maximum(known.sum(axis=1), 1)
    by_chance = np.where(some, np.exp(-np.where(some, counts, 0.0)), 0.0).sum(axis=1)
    asleep = ((known & ~some).sum(axis=1) - by_chance) / hours
    asleep = np.where(asleep > 1 / QUANTILES, asleep, 0.0)
    awake = _fit(np.where(known, some | (asleep == 0)[:, None], np.nan), hour_of_week)
    places = (np.arange(QUANTILES) + 0.5) / QUANTILES
    awake = Process(**{**vars(awake), "quantiles": (places > asleep[:, None]).astype(float)})
    level = _fit(np.where(some | (asleep == 0)[:, None], counts, np.nan), hour_of_week)
    mean = level.quantiles.mean(axis=1) * awake.quantiles.mean(axis=1)
    quantiles = level.quantiles / np.maximum(mean, 1e-300)[:, None]
    weeks = min(max(round(hour_of_week.size / HOURS_PER_WEEK), 1), MOST_WEEKS)
    return Levels(awake, Process(**{**vars(level), "quantiles": quantiles}), 7 * weeks)


def _fit(seen: Floats, hour_of_week: Integers) -> Process:
    """A process for each row of what was seen, shape (apps, hours); nan where it says nothing."""
    apps = len(seen)
    places = (np.arange(QUANTILES) + 0.5) / QUANTILES
    quantiles, scores = np.zeros((apps, QUANTILES)), np.full(seen.shape, np.nan)
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
        told = scores.var()  # of the variance of z: hours that are equal hide the rest
        season[app] = _season(scores, hour_of_week[known]) / told
        of_season = season[app, hour_of_week[known]].var()
        season[app] *= min(1.0, np.sqrt((1 - LEAST_DEVIATION**2) / max(of_season, 1e-9)))
        deviation[app] = np.sqrt(1 - season[app, hour_of_week[known]].var())
        memory[app] = _memory(values, quantiles[app], season[app], deviation[app])
    return Process(quantiles, season, deviation, *memory.T)


def _scores(values: Floats) -> Floats:
    """Normal scores: the mean of z over the share of the hours that have this value."""
    ordered = np.sort(values)
    low, high = (np.searchsorted(ordered, values, side=side) / values.size for side in ("left", "right"))
    density = [np.exp(-(ndtri(share) ** 2) / 2) / np.sqrt(2 * np.pi) for share in (low, high)]
    return (density[0] - density[1]) / (high - low)


def _season(scores: Floats, hour_of_week: Integers) -> Floats:
    """Mean score by hour of the week: of the hour, of it on working days and weekends, of the weekday.

    Each deviation is made smaller until its variance is what the scatter of the days in its slots does not
    explain. (James and Stein would make it smaller still: they want the nearest season, not one that moves as
    much.)
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
    """Share of the slow part, fast and slow correlation times (h) nearest to the autocorrelations at LAGS.

    A record whose mean was taken out shows less than there is, by the variance of that mean: so are the
    candidates.
    """
    hours = values.size
    lags = np.array([lag for lag in LAGS if lag < hours // 2])
    rest = values - np.nanmean(values)
    pairs = [rest[lag:] * rest[:-lag] for lag in lags]
    seen = np.array([np.nanmean(pair) if (~np.isnan(pair)).any() else 0.0 for pair in pairs])
    seen = seen / np.nanmean(rest**2)
    grid = np.array([(a, f, s) for a in SLOW_SHARES for f in FAST_HOURS for s in SLOW_HOURS])
    share, fast, slow = grid.T[:, :, None]

    def of_rest(lag: Integers) -> Floats:
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
    """Autocorrelation of Q(Phi(z)) where that of z is `correlation`: the sum of b_k r^k, b by Hermite.

    A step has many terms: those after HERMITE_TERMS count as one.
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
