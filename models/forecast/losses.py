"""How wrong a forecast was. Buckets whose demand is unknown (nan) do not count."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.models.forecast.method import Floats


def wape(actual: Floats, predicted: Floats) -> float:
    """Sum of absolute errors over the sum of the actual demand, a share; nan where nothing was demanded."""
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
    """Share of the known buckets that came out at or below the quantile."""
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


class Difference(NamedTuple):
    """How much lower one method's WAPE is than another's, a share of the other's, with its 95 % interval.

    Both ends are nan where there is but one block: nothing tells how much days differ.
    """

    saved_share: float
    low: float
    high: float


def paired_bootstrap(
    errors: Floats, other_errors: Floats, blocks: int, seed: int = 0, draws: int = 1000
) -> Difference:
    """Resample whole blocks of cutoffs, the same for both methods (moving-block bootstrap, Kuensch, 1989).

    Parameters
    ----------
    errors, other_errors
        Sum of absolute errors of each cutoff over all series, in order of time, shape (cutoffs,). The demand
        is the same for both methods, so the ratio of the sums is the ratio of the WAPEs.
    blocks
        Cutoffs in a block: a day of them, since neighbouring hours err together.
    """
    count = errors.size
    saved_share = 1 - float(errors.sum() / other_errors.sum())
    if count <= blocks:
        return Difference(saved_share, float("nan"), float("nan"))
    starts = np.random.default_rng(seed).integers(0, count - blocks + 1, (draws, -(-count // blocks)))
    index = (starts[:, :, None] + np.arange(blocks)).reshape(draws, -1)[:, :count]
    with np.errstate(divide="ignore", invalid="ignore"):
        saved = 1 - errors[index].sum(axis=1) / other_errors[index].sum(axis=1)
        low, high = np.nanquantile(saved, (0.025, 0.975))
    return Difference(saved_share, float(low), float(high))
