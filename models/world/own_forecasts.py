"""Forecast methods of installed packages: the entry point `fleetcast.forecasts` names a function.

    [project.entry-points."fleetcast.forecasts"]
    tirex = "my_package:forecast"

A config may then name it as `[forecast] method`, and `fleetcast backtest` compares it with the shipped ones.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint

import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.world.installed_objects import load_group, load_installed
from fleetcast.models.world.option_names import ENSEMBLES, METHOD_NAMES
from fleetcast.models.world.toml_dataclasses import ConfigError, KnownName, require_known

FORECAST_GROUP = "fleetcast.forecasts"

# (demand (series, buckets), rates, nan where unknown; buckets to forecast) -> rates (series, buckets ahead)
OwnForecast = Callable[[Floats, int], npt.ArrayLike]


@cache
def installed_forecasts() -> dict[str, OwnForecast]:
    """Return the forecast methods of installed packages by name; `load_forecast` refuses some, left out."""
    return load_group(FORECAST_GROUP, load_forecast)


def load_forecast(point: EntryPoint) -> OwnForecast:
    """Return the forecast method of an entry point.

    ConfigError where it cannot be imported, is no function, or has a taken or invalid name.
    """
    found, place = load_installed(point, (*METHOD_NAMES, *ENSEMBLES), "method")
    if not callable(found):
        raise ConfigError(f"{place}: got {type(found).__name__}, needed a function. Change the object.")
    method: OwnForecast = found
    return method


class ForecastMethodName(KnownName):
    """Rule for a text: a shipped forecast method, or one of an installed package."""

    def check(self, value: str, where: str) -> None:
        """Raise ConfigError for an unknown name, and suggest the nearest known one."""
        if value not in self.names:  # packages are not searched for a shipped name
            require_known(value, (*self.names, *installed_forecasts()), self.what, where)
