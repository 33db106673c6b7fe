"""Forecasts of the demand of the next hours from past demand.

FORECAST_METHODS has one function for each method of models/world/option_names.py; ensemble.py combines them.
"""

from fleetcast.models.forecast.bursts import forecast_bursts
from fleetcast.models.forecast.forecast_method import ForecastMethod, last_value, lift_to_panel
from fleetcast.models.forecast.intermittent import on_off
from fleetcast.models.forecast.own_method import lift_own_forecast
from fleetcast.models.forecast.prophet_method import prophet
from fleetcast.models.forecast.regression import autoregression, regression
from fleetcast.models.forecast.seasonal import (
    recent_days,
    seasonal_level,
    seasonal_mean,
    seasonal_naive,
    seasonal_naive_day,
)
from fleetcast.models.forecast.statespace import adjusted_arima, arima, harmonic, stl_ets
from fleetcast.models.world.option_names import ENSEMBLES
from fleetcast.models.world.own_forecasts import installed_forecasts
from fleetcast.models.world.toml_dataclasses import require_known

FORECAST_METHODS: dict[str, ForecastMethod] = {
    "last_value": last_value,
    "seasonal_naive": seasonal_naive,
    "seasonal_naive_day": seasonal_naive_day,
    "seasonal_level": seasonal_level,
    "seasonal_mean": seasonal_mean,
    "recent_days": recent_days,
    "bursts": forecast_bursts,
    "on_off": on_off,
    "regression": regression,
    "autoregression": autoregression,
    "arima": lift_to_panel(arima),
    "adjusted_arima": lift_to_panel(adjusted_arima),
    "harmonic": lift_to_panel(harmonic),
    "stl_ets": lift_to_panel(stl_ets),
    "prophet": lift_to_panel(prophet),
}
# These fit each series daily, in up to a second; the others forecast all series together in milliseconds.
SLOW_METHODS = frozenset(("arima", "adjusted_arima", "harmonic", "stl_ets", "prophet"))
ENSEMBLE_MEMBERS = (
    *("last_value", "seasonal_naive", "seasonal_level", "seasonal_mean", "regression", "autoregression"),
    *("recent_days", "bursts", "on_off", "seasonal_naive_day"),
)
# These count only in the first week of a series or after a break of its level, when no week has repeated yet.
YOUNG_MEMBERS, YOUNG_DAYS = ("recent_days",), 7
# These count only far ahead, and only where they were at least as good as their rival.
FAR_RIVALS = {"seasonal_naive_day": "seasonal_naive"}
INTERMITTENT_MEMBERS = ("on_off",)  # the only members of a series that is mostly empty


def find_method(name: str) -> ForecastMethod:
    """Return the shipped or installed method of this name; ValueError for an unknown one."""
    if name in FORECAST_METHODS:
        return FORECAST_METHODS[name]
    own = installed_forecasts()
    require_known(name, (*FORECAST_METHODS, *own), "forecast method", "forecast")
    return lift_own_forecast(name, own[name])


def is_slow(name: str) -> bool:
    """Return whether a method or ensemble takes long; methods of installed packages are expected to."""
    return name in SLOW_METHODS or name not in (*FORECAST_METHODS, *ENSEMBLES)
