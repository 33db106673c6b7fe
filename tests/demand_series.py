"""Test series for forecasts: an office week, and odd ones."""

import numpy as np
from numpy.typing import NDArray

SEASON = 24  # hourly buckets keep the tests short
Floats = NDArray[np.float64]


def office(days: int = 10, seed: int = 0) -> Floats:
    """Hourly demand with a daily and weekly season and autocorrelated noise, shape (days * 24,)."""
    noise = np.random.default_rng(seed)
    hours = np.arange(days * SEASON)
    day = 2.0 + np.sin(2 * np.pi * hours / SEASON)
    week = np.where((hours // SEASON) % 7 < 5, 1.0, 0.5)
    drift = np.zeros(hours.size)
    for t in range(1, hours.size):
        drift[t] = 0.8 * drift[t - 1] + noise.normal(0.0, 0.05)
    return 1000.0 * day * week * np.exp(drift)


ODD = {
    "three points": np.array([3.0, 1.0, 2.0]),
    "nothing known": np.full(80, np.nan),
    "all zero": np.zeros(80),
    "constant": np.full(80, 7.0),
    "one huge spike": np.where(np.arange(80) == 60, 1e12, 1.0 + np.arange(80) % 3),
    "a day missing": np.where(np.arange(240) // 24 == 8, np.nan, office()),
    "the last day missing": np.where(np.arange(240) // 24 == 9, np.nan, office()),
    "a level five times as high": office() * np.where(np.arange(240) < 220, 1.0, 5.0),
    "a clock change": np.concatenate([office()[:200], office()[201:], office()[:1]]),
    "mostly empty": np.where(np.arange(240) % 37 == 0, 1e5, 0.0),
    "empty for a week, then busy": office() * (np.arange(240) >= 170),
    "almost constant": 1.0 + 1e-12 * (np.arange(240) % 2),
}
HOPELESS = ("three points", "nothing known", "all zero", "constant", "almost constant")  # nothing to fit
