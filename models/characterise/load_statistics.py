"""Statistics of a load: dispersion, bursts, seasons, autocorrelation, and predictability.

A load is requests per minute (or per hour, where noted), shape (buckets,); nan is a bucket that was not
recorded, not an empty one.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.backtest import BacktestClock, actual_demand, walk_forward

HOUR_BUCKETS, DAY_BUCKETS, WEEK_BUCKETS = 1, 24, 168  # in buckets of an hour
BURST_LOAD_RATIO = 2.0  # a burst has at least this multiple of the load around it
BURST_SIGMAS = 6.0  # and is this many Poisson standard deviations above it
AROUND_STEP = 10  # minutes
AROUND_MINUTES = 121  # the load around a minute is the median of an hour on either side
FORECAST_MINUTES = 10
HORIZONS_MINUTES = (10, 60, 120)
SIMPLE_METHODS = ("last_value", "seasonal_naive", "seasonal_level")


class LoadBurst(NamedTuple):
    """Consecutive minutes with far more requests than the hours around them."""

    start: int  # minute
    minutes: int
    ratio: float  # its largest minute over the load around
    extra_requests: float  # beyond the load around


class ForecastSkill(NamedTuple):
    """The improvement of the best simple forecast over holding the last value."""

    method: str
    share: float  # 1 - its mean absolute error over that of the last value; 0 where the last value is best


def rebin(load: Floats, buckets: int) -> Floats:
    """Return the mean of each run of `buckets` buckets, shape (len // buckets,); nan spreads."""
    whole = load.size // buckets * buckets
    return load[:whole].reshape(-1, buckets).mean(axis=1)


def dispersion_index(per_minute: Floats) -> float:
    """Return the index of dispersion of the minutes of an hour: variance over mean, weighted by load.

    The variance is that about the straight line through the hour, so that the daily pattern does not count.
    It is 1 for a Poisson process of any rate. `per_minute` has the shape (minutes,), nan where unknown.
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
    """Find the bursts of a load of requests per minute, shape (minutes,), in order of time."""
    around = _median_around(per_minute)
    floor = np.maximum(BURST_LOAD_RATIO * around, around + BURST_SIGMAS * np.sqrt(np.maximum(around, 1.0)))
    above = np.concatenate([[False], per_minute > floor, [False]])
    starts, ends = (np.flatnonzero(np.diff(above.astype(int)) == step) for step in (1, -1))
    bursts = []
    for start, end in zip(starts, ends, strict=True):
        load, usual = per_minute[start:end], np.maximum(around[start:end], 1.0)
        bursts.append(
            LoadBurst(int(start), int(end - start), float((load / usual).max()), float((load - usual).sum()))
        )
    return bursts


def season_strengths(hourly: Floats) -> tuple[float, float]:
    """Return the strength of the daily and of the weekly season, 0 to 1, of a load by hour, (hours,).

    The strength F is 1 - Var(remainder) / Var(season + remainder) (Wang, Smith and Hyndman 2006), for a
    decomposition by STL with a periodic season; the week is decomposed after the day is subtracted. A mean
    over k periods explains 1 / k of pure noise, so the result is (F - 1 / k) / (1 - 1 / k), about 0 for
    noise. It is nan where there are less than two periods.
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
    """Return the correlation of a load, (buckets,), with itself `lag` buckets before.

    It is nan for less than ten known pairs or a constant load.
    """
    before, after = load[:-lag], load[lag:]
    known = ~np.isnan(before) & ~np.isnan(after)
    before, after = before[known], after[known]
    if before.size < 10 or before.std() == 0 or after.std() == 0:
        return float("nan")
    return float(np.corrcoef(before, after)[0, 1])


def forecast_skills(per_minute: Floats) -> dict[int, ForecastSkill]:
    """Return, per horizon (minutes), the best simple forecast of ten minutes and its skill.

    The forecasts walk forward hour by hour over the second half of the record, with at least a day of history
    (a week, where the record has two). There is no entry where the record is shorter than two days.
    `per_minute` has the shape (minutes,), nan where unknown.
    """
    load = rebin(per_minute, FORECAST_MINUTES)
    per_hour, season = 60 // FORECAST_MINUTES, 24 * 60 // FORECAST_MINUTES
    if load.size < 2 * season:
        return {}
    first = max(load.size // 2 // season, 1) * season
    ahead = HORIZONS_MINUTES[-1] // FORECAST_MINUTES
    clock = BacktestClock(first, per_hour, ahead, season)
    actual = actual_demand(load[None], clock)[0]
    errors = {
        method: np.abs(walk_forward(load[None], method, clock).mean[0] - actual) for method in SIMPLE_METHODS
    }
    skills = {}
    for minutes in HORIZONS_MINUTES:
        mean = {method: _mean(error[:, minutes // FORECAST_MINUTES - 1]) for method, error in errors.items()}
        best = min(mean, key=lambda method: mean[method])
        if mean["last_value"] > 0:
            skills[minutes] = ForecastSkill(best, 1 - mean[best] / mean["last_value"])
    return skills


def _median_around(per_minute: Floats) -> Floats:
    """Return the median of an hour on either side, (minutes,), in steps of AROUND_STEP; nan if unknown."""
    half = AROUND_MINUTES // 2
    padded = np.pad(per_minute, (half, half + AROUND_STEP), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, AROUND_MINUTES)
    windows = windows[AROUND_STEP // 2 :: AROUND_STEP]
    medians = np.full(len(windows), np.nan)
    known = ~np.isnan(windows).all(axis=1)
    medians[known] = np.nanmedian(windows[known], axis=1)
    return np.repeat(medians, AROUND_STEP)[: per_minute.size]


def _mean(errors: Floats) -> float:
    """Return the mean of the known errors, shape (cutoffs,); nan without any."""
    known = errors[~np.isnan(errors)]
    return float(known.mean()) if known.size else float("nan")
