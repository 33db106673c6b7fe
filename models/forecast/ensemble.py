"""Combine methods per series by how they have done lately; an aperiodic series ends up with a robust one.

weighted  the mean of all members, each with the weight (least loss / its loss) ** SHARPNESS
choice    the one member of the least loss; another one takes over only when it is clearly better
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.forecast.method import Floats

HALF_LIFE = 48  # cutoffs after which a loss counts half
SHARPNESS = 8.0
HYSTERESIS = 0.05  # a newcomer's loss must be lower by this share
NOTHING = 1e-12  # next to any loss
NAMED_SHARE = 0.10  # smaller weights are not told


def recent_loss(mean: Floats, actual: Floats, lag: int) -> Floats:
    """Discounted mean absolute error of one method as it is known at each cutoff; nan before the first one.

    That is twice the pinball loss of the forecast as a median: what calibration repairs does not count.
    `mean` and `actual` (nan where unknown) have the shape (series, cutoffs, horizon), the losses (series,
    cutoffs); a forecast can be judged `lag` cutoffs later.
    """
    error = np.abs(actual - mean)
    known = ~np.isnan(actual)
    of_cutoff = np.where(known, error, 0.0).sum(axis=2) / np.maximum(known.sum(axis=2), 1)
    has_any = np.asarray(known.any(axis=2))
    keep = 0.5 ** (1 / HALF_LIFE)
    total, weight = np.zeros(len(mean)), np.zeros(len(mean))
    recent = np.full(of_cutoff.shape, np.nan)
    for now in range(lag, of_cutoff.shape[1]):
        is_new = has_any[:, now - lag]
        total = np.where(is_new, keep * total + of_cutoff[:, now - lag], total)
        weight = np.where(is_new, keep * weight + 1.0, weight)
        recent[:, now] = np.where(weight > 0, total / np.maximum(weight, 1.0), np.nan)
    return recent


def weighted(recent: Floats) -> Floats:
    """Weights by recent loss, both of shape (members, series, cutoffs); without any, the first member's."""
    least = recent.min(axis=0) + NOTHING
    weights = (least / (recent + NOTHING)) ** SHARPNESS
    first = np.zeros_like(weights)
    first[0] = 1.0
    weights = np.where(np.isnan(least), first, weights)
    return weights / weights.sum(axis=0)


def choice(recent: Floats) -> Floats:
    """Weights of 0 and 1: the member chosen at each cutoff, with hysteresis; the first one to begin with."""
    _, series, cutoffs = recent.shape
    weights, rows = np.zeros(recent.shape), np.arange(series)
    chosen = np.zeros(series, np.int64)
    for now in range(cutoffs):
        losses = np.where(np.isnan(recent[:, :, now]), np.inf, recent[:, :, now])
        best = losses.argmin(axis=0)
        is_clear = losses[best, rows] + NOTHING < (1 - HYSTERESIS) * (losses[chosen, rows] + NOTHING)
        chosen = np.where(is_clear, best, chosen)
        weights[chosen, rows, now] = 1.0
    return weights


def told(weights: Floats, names: Sequence[str]) -> NDArray[np.str_]:
    """Who made each forecast, in words, the heaviest first; `weights` (members, series, cutoffs)."""

    def words(shares: Floats) -> str:
        order = np.argsort(-shares, kind="stable")
        return ", ".join(f"{names[i]} {shares[i]:.0%}" for i in order if shares[i] >= NAMED_SHARE)

    _, series, cutoffs = weights.shape
    said = [[words(weights[:, i, k]) for k in range(cutoffs)] for i in range(series)]
    return np.array(said, dtype=np.str_).reshape(series, cutoffs)
