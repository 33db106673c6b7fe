"""Demand in the next hours from demand so far.

METHODS has the function of every method that models/world/names.py names; ensemble.py combines them.
"""

from fleetcast.models.forecast.bursts import bursts
from fleetcast.models.forecast.intermittent import on_off
from fleetcast.models.forecast.method import Method, last_value, per_series
from fleetcast.models.forecast.prophet_ import prophet
from fleetcast.models.forecast.regression import autoregression, regression
from fleetcast.models.forecast.seasonal import (
    recent_days,
    seasonal_level,
    seasonal_mean,
    seasonal_naive,
    seasonal_naive_day,
)
from fleetcast.models.forecast.statespace import adjusted_arima, arima, harmonic, stl_ets
from fleetcast.models.world.reading import require_known

METHODS: dict[str, Method] = {
    "last_value": last_value,
    "seasonal_naive": seasonal_naive,
    "seasonal_naive_day": seasonal_naive_day,
    "seasonal_level": seasonal_level,
    "seasonal_mean": seasonal_mean,
    "recent_days": recent_days,
    "bursts": bursts,
    "on_off": on_off,
    "regression": regression,
    "autoregression": autoregression,
    "arima": per_series(arima),
    "adjusted_arima": per_series(adjusted_arima),
    "harmonic": per_series(harmonic),
    "stl_ets": per_series(stl_ets),
    "prophet": per_series(prophet),
}
# Each series of these costs a fit of up to a second a day; the others do all series at once in milliseconds.
SLOW = frozenset(("arima", "adjusted_arima", "harmonic", "stl_ets", "prophet"))
MEMBERS = (
    *("last_value", "seasonal_naive", "seasonal_level", "seasonal_mean", "regression", "autoregression"),
    *("recent_days", "bursts", "on_off"),
)
# In the first week of a series, and after its level broke, no week has come back: these count then only.
OF_YOUNG, YOUNG_DAYS = ("recent_days",), 7
OF_INTERMITTENT = ("on_off",)  # all that counts where a series is mostly empty


def method_named(name: str) -> Method:
    """The method of that name; ValueError with the nearest one where there is none."""
    require_known(name, METHODS, "forecast method", "forecast")
    return METHODS[name]
