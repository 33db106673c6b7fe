"""How wrong a forecast was. Buckets whose demand is unknown (nan) do not count."""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats


class WapeDifference(NamedTuple):
    """How much lower one method's WAPE is than another's, a share of the other's, with its 95 % interval.

    Both ends are nan where there is but one block: nothing tells how much days differ.
    """

    saved_share: float
    low: float
    high: float


def bootstrap_difference(
    errors: Floats, other_errors: Floats, blocks: int, seed: int = 0, draws: int = 1000
) -> WapeDifference:
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
        return WapeDifference(saved_share, float("nan"), float("nan"))
    starts = np.random.default_rng(seed).integers(0, count - blocks + 1, (draws, -(-count // blocks)))
    index = (starts[:, :, None] + np.arange(blocks)).reshape(draws, -1)[:, :count]
    with np.errstate(divide="ignore", invalid="ignore"):
        saved = 1 - errors[index].sum(axis=1) / other_errors[index].sum(axis=1)
        low, high = np.nanquantile(saved, (0.025, 0.975))
    return WapeDifference(saved_share, float(low), float(high))
