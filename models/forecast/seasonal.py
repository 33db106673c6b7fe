"""Methods that repeat the past, and the seasonal profile that others take out of it."""

from typing import Any

import numpy as np

from models.forecast.method import Floats, Forecast

DAYS = 7  # of the longest season
PULL_WEEKS = 2.0  # weight of the day's shape against one value of the same bucket of the week


def last_value(history: Floats, horizon: int, season: int, state: Any = None) -> Forecast:
    """Hold the last known value; zero where nothing is known."""
    known = history[~np.isnan(history)]
    return Forecast(np.full(horizon, known[-1] if known.size else 0.0))


def seasonal_naive(history: Floats, horizon: int, season: int, state: Any = None) -> Forecast:
    """Repeat the same bucket of the latest known week, else of the latest known day, else the last value."""
    mean = last_value(history, horizon, season).mean
    for step in range(horizon):
        target = history.size + step
        for period in (DAYS * season, season):
            past = history[target % period :: period]
            known = past[~np.isnan(past)]
            if known.size:
                mean[step] = known[-1]
                break
    return Forecast(mean)


def profile(history: Floats, season: int) -> Floats:
    """The mean week of a series, shape (7 * season,), starting at the weekday on which `history` starts.

    A bucket of the week is the mean of its own values and, with the weight of PULL_WEEKS more weeks, of the
    same time on all days, so that two noisy weeks do not pass for a season; then a moving mean over an hour.
    """
    weeks = -(-history.size // (DAYS * season))
    padded = np.full(weeks * DAYS * season, np.nan)
    padded[: history.size] = history
    table = padded.reshape(weeks, DAYS, season)
    known = ~np.isnan(table)
    filled = np.where(known, table, 0.0)
    overall = filled.sum() / max(known.sum(), 1)
    in_day = known.sum(axis=(0, 1))
    day = np.where(in_day > 0, filled.sum(axis=(0, 1)) / np.maximum(in_day, 1), overall)
    week = (filled.sum(axis=0) + PULL_WEEKS * day) / (known.sum(axis=0) + PULL_WEEKS)
    half_hour = season // 48
    around = np.pad(week.ravel(), half_hour, mode="wrap")
    width = 2 * half_hour + 1
    return np.convolve(around, np.full(width, 1 / width), mode="valid")
