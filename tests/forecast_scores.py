"""The scores of sql/macros/forecast_losses.sql in Python. Buckets with unknown demand (nan) do not count."""

from collections.abc import Sequence

import numpy as np

from fleetcast.models.aliases import Floats


def wape(actual: Floats, predicted: Floats) -> float:
    """Sum of absolute errors over the sum of the actual demand, a share; nan where that sum is 0."""
    known = ~np.isnan(actual)
    demanded = float(actual[known].sum())
    return float(np.abs(actual - predicted)[known].sum()) / demanded if demanded > 0 else float("nan")


def pinball(actual: Floats, quantiles: Floats, levels: Sequence[float]) -> Floats:
    """Pinball loss of each quantile, in the unit of the demand; nan where the actual is.

    `quantiles` has the shape of `actual` and a last axis of `levels`. A demand above the quantile of level q
    costs q per unit, one below it 1 - q: in expectation least at the true quantile (Koenker, Bassett, 1978).
    """
    error = actual[..., None] - quantiles
    level = np.array(levels)
    return np.maximum(level * error, (level - 1) * error)


def covered_share(actual: Floats, quantile: Floats) -> float:
    """Share of the known buckets at or below the quantile."""
    known = ~np.isnan(actual)
    return float((actual <= quantile)[known].mean()) if known.any() else float("nan")


def under_forecast_share(actual: Floats, predicted: Floats) -> float:
    """Share of forecasts whose maximum over the horizon (last axis) lies below the actual maximum.

    A plan is sized for the maximum of the hour (SageServe 6.3): this share of hours is planned too small.
    """
    known = ~np.isnan(actual)
    rows = known.any(axis=-1)
    highest = np.where(known, actual, -np.inf).max(axis=-1)[rows]
    expected = np.where(known, predicted, -np.inf).max(axis=-1)[rows]
    return float((expected < highest).mean()) if highest.size else float("nan")
