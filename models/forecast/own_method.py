"""Forecast methods of installed packages, as methods of a panel."""

from typing import Any

import numpy as np

from fleetcast.models.forecast.forecast_method import Forecast, ForecastMethod, Past
from fleetcast.models.world.installed_objects import describe_own_error, to_numbers
from fleetcast.models.world.own_forecasts import OwnForecast


def lift_own_forecast(name: str, forecast: OwnForecast) -> ForecastMethod:
    """Lift a function (demand, horizon) -> rates to the interface of methods.

    The walk replaces rates that are not finite or diverge by the last value, and names that. ValueError where
    the function raises, or returns no numbers of the shape (series, horizon).
    """

    def lifted(past: Past, state: Any = None) -> Forecast:
        needed = len(past.demand), past.horizon
        try:
            found = forecast(past.demand, past.horizon)
        except Exception as error:
            raise ValueError(f"forecast method {name} {describe_own_error(error)}") from error
        mean = to_numbers(found)
        if mean.shape != needed:
            raise ValueError(
                f"forecast method {name}: got {str(found)[:40]!r} of the shape {np.shape(mean)}, needed "
                f"rates of the shape {needed}: (series, buckets ahead). Change the function."
            )
        return Forecast(mean)

    return lifted
