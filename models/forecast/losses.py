"""How wrong a forecast was. Buckets whose demand is unknown (nan) do not count."""

import numpy as np

from models.forecast.method import Floats


def wape(actual: Floats, predicted: Floats) -> float:
    """Sum of absolute errors over the sum of the actual demand, a share; nan where nothing was demanded."""
    known = ~np.isnan(actual)
    demanded = float(actual[known].sum())
    return float(np.abs(actual - predicted)[known].sum()) / demanded if demanded > 0 else float("nan")


def under_forecast_share(actual: Floats, predicted: Floats) -> float:
    """Share of forecasts whose maximum over the horizon (last axis) lies below the actual maximum.

    A plan is sized for the maximum of the hour (SageServe 6.3): this share of hours is planned too small.
    """
    known = ~np.isnan(actual)
    rows = known.any(axis=-1)
    highest = np.where(known, actual, -np.inf).max(axis=-1)[rows]
    expected = np.where(known, predicted, -np.inf).max(axis=-1)[rows]
    return float((expected < highest).mean()) if highest.size else float("nan")
