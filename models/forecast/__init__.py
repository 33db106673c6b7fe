"""Demand in the next hours from demand so far. METHODS names every way of doing it."""

import difflib

from models.forecast.arima import arima
from models.forecast.method import Method
from models.forecast.prophet_ import prophet
from models.forecast.seasonal import last_value, seasonal_naive

METHODS: dict[str, Method] = {
    "last_value": last_value,
    "seasonal_naive": seasonal_naive,
    "arima": arima,
    "prophet": prophet,
}


def method_named(name: str) -> Method:
    """The method of that name; ValueError with the nearest one where there is none."""
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(METHODS)}."
        raise ValueError(f"Unknown forecast method {name!r}. {hint}")
    return METHODS[name]
