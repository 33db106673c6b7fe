"""How a load moves: dispersion, bursts, season, autocorrelation, and how far it can be foreseen.

A load is requests per minute (or per hour, where it says so), shape (buckets,); nan is a bucket that nobody
recorded, which is not an empty one.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.backtest import BacktestClock, actual_demand, walk_forward

HOUR_BUCKETS, DAY_BUCKETS, WEEK_BUCKETS = 1, 24, 168  # in buckets of an hour
BURST_LOAD_RATIO = 2.0  # a burst has at least this multiple of the load around it
BURST_SIGMAS = 6.0  # and lies this many Poisson standard deviations above it
AROUND_STEP = 10  # minutes
AROUND_MINUTES = 121  # the load around a minute is the median of an hour on either side
FORECAST_MINUTES = 10
HORIZONS_MINUTES = (10, 60, 120)
SIMPLE_METHODS = ("last_value", "seasonal_naive", "seasonal_level")


class LoadBurst(NamedTuple):
    """Consecutive minutes with far more requests than the hours around them."""

    start: int  # minute
    minutes: int
    ratio: float  # of its largest minute to the load around
    extra_requests: float


class ForecastSkill(NamedTuple):
    """How much better the best simple forecast is than holding the last value."""

    method: str
    share: float  # 1 - its mean absolute error in that of the last value; 0 where that is the best itself


def rebin(load: Floats, buckets: int) -> Floats:
    """Mean of each run of so many buckets, shape (len // buckets,); nan where one of them is."""
    whole = load.size // buckets * buckets
    return load[:whole].reshape(-1, buckets).mean(axis=1)


def dispersion_index(per_minute: Floats) -> float:
    """Index of dispersion of the minutes of an hour: variance in mean, averaged over hours by their load.

    The variance is that about the straight line through the hour, so that the day's rhythm does not count:
    1 for a Poisson process whatever its rate.
    """
    hours = per_minute[: per_minute.size // 60 * 60].reshape(-1, 60)
    hours = hours[~np.isnan(hours).any(axis=1)]
    total = hours.mean(axis=1).sum() if hours.size else 0.0
    if total <= 0:
        return float("nan")
    minute = np.arange(60) - 29.5
    slope = hours @ minute / (minute @ minute)
    rest = hours - hours.mean(axis=1, keepdims=True) - np.outer(slope, minute)
    return float((rest**2).sum() / 58 / total)


def find_bursts(per_minute: Floats) -> list[LoadBurst]:
    """The burst episodes of a load, in order of time."""
    around = _median_around(per_minute)
    floor = np.maximum(BURST_LOAD_RATIO * around, around + BURST_SIGMAS * np.sqrt(np.maximum(around, 1.0)))
    above = np.concatenate([[False], per_minute > floor, [False]])
    starts, ends = (np.flatnonzero(np.diff(above.astype(int)) == step) for step in (1, -1))
    found = []
    for start, end in zip(starts, ends, strict=True):
        load, usual = per_minute[start:end], np.maximum(around[start:end], 1.0)
        found.append(
            LoadBurst(int(start), int(end - start), float((load / usual).max()), float((load - usual).sum()))
        )
    return found


def season_strengths(hourly: Floats) -> tuple[float, float]:
    """Strength of the daily and of the weekly season, 0 to 1: 1 - Var(remainder) / Var(season + remainder).

    The definition of Wang, Smith and Hyndman (2006) on a decomposition by STL with a periodic season, that
    of the week on what the day leaves. A mean over k periods explains 1 / k of noise: of the strength F only
    (F - 1 / k) / (1 - 1 / k) is told, so that noise has about 0. nan where there are not two periods.
    """
    known = ~np.isnan(hourly)
    hours = int(known.sum())
    if hours < 2 * DAY_BUCKETS or np.ptp(hourly[known]) == 0:
        return float("nan"), float("nan")
    from statsmodels.tsa.seasonal import STL

    rest = np.interp(np.arange(hourly.size), np.flatnonzero(known), hourly[known])
    strengths = []
    for period in (DAY_BUCKETS, WEEK_BUCKETS):
        if hours < 2 * period:
            strengths.append(float("nan"))
            continue
        parts = STL(rest, period=period, seasonal=2 * rest.size + 1, seasonal_deg=0).fit()
        remainder, season = np.asarray(parts.resid), np.asarray(parts.seasonal)
        of_noise = period / rest.size
        strength = 1 - float(remainder.var() / (season + remainder).var())
        strengths.append(max(0.0, (strength - of_noise) / (1 - of_noise)))
        rest = rest - season
    return strengths[0], strengths[1]


def autocorrelation(load: Floats, lag: int) -> float:
    """Correlation of a load with itself `lag` buckets before; nan below ten pairs or without movement."""
    before, after = load[:-lag], load[lag:]
    known = ~np.isnan(before) & ~np.isnan(after)
    before, after = before[known], after[known]
    if before.size < 10 or before.std() == 0 or after.std() == 0:
        return float("nan")
    return float(np.corrcoef(before, after)[0, 1])


def forecast_skills(per_minute: Floats) -> dict[int, ForecastSkill]:
    """Per horizon (minutes), the best simple forecast of ten minutes and its skill over the last value.

    Walked forward hour by hour over the second half of the record, at least a day (a week, where there are
    two) behind each cutoff; no entry where the record is shorter than two days.
    """
    load = rebin(per_minute, FORECAST_MINUTES)
    per_hour, season = 60 // FORECAST_MINUTES, 24 * 60 // FORECAST_MINUTES
    if load.size < 2 * season:
        return {}
    first = max(load.size // 2 // season, 1) * season
    ahead = HORIZONS_MINUTES[-1] // FORECAST_MINUTES
    clock = BacktestClock(first, per_hour, ahead, season)
    came = actual_demand(load[None], clock)[0]
    errors = {
        method: np.abs(walk_forward(load[None], method, clock).mean[0] - came) for method in SIMPLE_METHODS
    }
    found = {}
    for minutes in HORIZONS_MINUTES:
        of = {method: _mean(error[:, minutes // FORECAST_MINUTES - 1]) for method, error in errors.items()}
        best = min(of, key=lambda method: of[method])
        if of["last_value"] > 0:
            found[minutes] = ForecastSkill(best, 1 - of[best] / of["last_value"])
    return found


def _median_around(per_minute: Floats) -> Floats:
    """Median of an hour on either side, at every AROUND_STEP minutes; nan where nothing is known."""
    half = AROUND_MINUTES // 2
    padded = np.pad(per_minute, (half, half + AROUND_STEP), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, AROUND_MINUTES)
    windows = windows[AROUND_STEP // 2 :: AROUND_STEP]
    medians = np.full(len(windows), np.nan)
    known = ~np.isnan(windows).all(axis=1)
    medians[known] = np.nanmedian(windows[known], axis=1)
    return np.repeat(medians, AROUND_STEP)[: per_minute.size]


def _mean(errors: Floats) -> float:
    known = errors[~np.isnan(errors)]
    return float(known.mean()) if known.size else float("nan")
