"""Levels of apps by the hour: whether an app is awake, and its load level, with a memory of hours to days.

Both are autoregressive-to-anything processes (Cario and Nelson 1996): a Gaussian process z selects the
quantile Q of the recorded values,

    x(t) = Q(Phi(z(t))),   z = season + sd x (sqrt(a) slow + sqrt(1 - a) fast),

with `season` by hour of the week, and `slow` and `fast` first-order autoregressive. For sleep Q is 0 or 1: a
period lasts as long as z stays on one side of a threshold. For the level Q is of the hours awake.

With such a memory two fortnights can differ by half and more. But a generated trace shall have the number of
requests of the original. So within every stretch as long as the record, the quantile of an hour is its rank
in the stretch instead of Phi(z): each recorded quantile occurs as often as in the record.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.random_streams import random_stream

LEVEL_QUANTILES = 200
WARM_UP_DAYS = 28  # days simulated before a stretch, so that it depends on the seed and its dates only


@dataclass(frozen=True)
class LevelProcess:
    """A random process of each app by the hour; all arrays of shape (apps, ...)."""

    quantiles: Floats  # (apps, LEVEL_QUANTILES) ascending
    season: Floats  # (apps, 168) mean of z from Monday 00:00 UTC
    deviation: Floats  # of z about its season
    slow_share: Floats  # share of the slow part in the variance of z about its season
    fast_hours: Floats  # correlation time
    slow_hours: Floats  # correlation time

    def of(self, apps: Ints) -> "LevelProcess":
        """Return the process of some apps, indices of shape (K,)."""
        return LevelProcess(*(values[apps] for values in vars(self).values()))

    def draw(self, steps: Floats, hour_of_week: Ints) -> Floats:
        """Sample the values of a stretch, shape (apps, hours); each quantile occurs equally often.

        steps : independent standard normals, shape (apps, 2, warm-up hours + hours)
        hour_of_week : hour of the week whose season each hour has, shape (hours,)
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
    """When apps are awake, 0 or 1, and their load then, relative to the mean of all hours."""

    awake: LevelProcess
    level: LevelProcess
    stretch_days: int  # days in which every quantile occurs equally often

    def with_copies(self, apps: Ints) -> "AppLevels":
        """Append independent copies of some apps, indices of shape (K,)."""
        every = np.concatenate([np.arange(self.level.deviation.size), apps])
        return AppLevels(self.awake.of(every), self.level.of(every), self.stretch_days)


class LevelStretch(NamedTuple):
    """The levels of a stretch of days, in which each quantile occurs equally often."""

    levels: Floats  # (apps, days, 24) relative to the mean
    weekday: Ints  # (days,) weekday whose season each day has, Monday is 0
    place: int  # position of the requested day
    first_day: date

    def day_levels(self) -> Floats:
        """Return the levels of the requested day, shape (apps, 24)."""
        return self.levels[:, self.place]


def draw_level_stretch(
    levels: AppLevels, seed: int, day: date, first_day: date, weekday: int
) -> LevelStretch:
    """Sample the stretch that contains a day; the same for all requested days, but for `weekday`.

    first_day : first day of the first stretch
    weekday : weekday whose season the day has, Monday is 0
    """
    shape = (levels.level.deviation.size, 4, 24)
    place = (day - first_day).days % levels.stretch_days
    days = [day + timedelta(days=n - place) for n in range(-WARM_UP_DAYS, levels.stretch_days)]
    steps = np.concatenate(
        [random_stream(seed, each, "levels").standard_normal(shape) for each in days], axis=2
    )
    weekdays = np.array([each.weekday() for each in days[WARM_UP_DAYS:]])
    weekdays[place] = weekday
    hour_of_week = (24 * weekdays[:, None] + np.arange(24)).ravel()
    awake = levels.awake.draw(steps[:, :2], hour_of_week)
    level = levels.level.draw(steps[:, 2:], hour_of_week)
    return LevelStretch(
        (awake * level).reshape(shape[0], levels.stretch_days, 24), weekdays, place, days[WARM_UP_DAYS]
    )


def quantile_at(quantiles: Floats, share: Floats) -> Floats:
    """Return Q of each app at shares 0 to 1, both (apps, hours); `quantiles` (apps, LEVEL_QUANTILES)."""
    place = np.minimum((share * LEVEL_QUANTILES).astype(np.int64), LEVEL_QUANTILES - 1)
    return np.take_along_axis(quantiles, place, axis=1)
