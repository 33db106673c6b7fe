"""Levels of apps by the hour: they sleep and wake, and remember over days how much they send.

Both are autoregressive to anything (Cario and Nelson 1996): a Gaussian process z decides which quantile of
what was seen an hour takes,

    x(t) = Q(Phi(z(t))),   z = season + sd x (sqrt(a) slow + sqrt(1 - a) fast),

with `season` by hour of the week, and `slow` and `fast` first-order autoregressive. For sleep Q is 0 or 1: a
stay lasts as long as z remembers on which side of a threshold it is. For the level Q is of the hours awake.

Such a memory makes one fortnight differ from the next by half and more. A trace that is like another one has
its requests: in every stretch as long as the record, the quantile of an hour is its rank in the stretch
instead of Phi(z), so that each quantile comes as often as it did.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.random_streams import random_stream

LEVEL_QUANTILES = 200
WARM_UP_DAYS = 28  # before a stretch, so that it depends on the seed and on itself only, and still remembers


@dataclass(frozen=True)
class LevelProcess:
    """What apps draw hour by hour; all arrays of shape (apps, ...)."""

    quantiles: Floats  # (apps, QUANTILES) ascending
    season: Floats  # (apps, 168) mean of z from Monday 00:00 UTC
    deviation: Floats  # of z about its season
    slow_share: Floats  # of its variance
    fast_hours: Floats  # correlation times
    slow_hours: Floats

    def of(self, apps: Ints) -> "LevelProcess":
        """That of some apps."""
        return LevelProcess(*(values[apps] for values in vars(self).values()))

    def draw(self, steps: Floats, hour_of_week: Ints) -> Floats:
        """The hours of a stretch, shape (apps, hours): each quantile comes as often as any other.

        Parameters
        ----------
        steps : Floats
            Independent and normal, shape (apps, 2, hours before the stretch and its own).
        hour_of_week : Ints
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
class AppLevels:
    """When apps are awake, 0 or 1, and how much they send then, in the mean of all hours."""

    awake: LevelProcess
    level: LevelProcess
    stretch_days: int  # in which every quantile comes once

    def with_copies(self, apps: Ints) -> "AppLevels":
        """These and once more those of some apps, which then go their own way."""
        every = np.concatenate([np.arange(self.level.deviation.size), apps])
        return AppLevels(self.awake.of(every), self.level.of(every), self.stretch_days)


class LevelStretch(NamedTuple):
    """The days among which each quantile of a level comes as often as any other."""

    levels: Floats  # (apps, days, 24)
    weekday: Ints  # (days,) whose season each has, Monday is 0
    place: int  # of the day that was asked for
    first_day: date

    def day_levels(self) -> Floats:
        """The levels of the day, shape (apps, 24)."""
        return self.levels[:, self.place]


def draw_level_stretch(
    levels: AppLevels, seed: int, day: date, first_day: date, weekday: int
) -> LevelStretch:
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
    steps = np.concatenate(
        [random_stream(seed, one, "levels").standard_normal(shape) for one in days], axis=2
    )
    weekdays = np.array([one.weekday() for one in days[WARM_UP_DAYS:]])
    weekdays[place] = weekday
    hour_of_week = (24 * weekdays[:, None] + np.arange(24)).ravel()
    awake, level = (
        levels.awake.draw(steps[:, :2], hour_of_week),
        levels.level.draw(steps[:, 2:], hour_of_week),
    )
    return LevelStretch(
        (awake * level).reshape(shape[0], levels.stretch_days, 24), weekdays, place, days[WARM_UP_DAYS]
    )


def quantile_at(quantiles: Floats, share: Floats) -> Floats:
    """Q at shares from 0 to 1 of each app, shape (apps, hours)."""
    place = np.minimum((share * LEVEL_QUANTILES).astype(np.int64), LEVEL_QUANTILES - 1)
    return np.take_along_axis(quantiles, place, axis=1)
