"""The difference of two methods' errors, with a bootstrap interval."""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats


class WapeDifference(NamedTuple):
    """How much lower one method's WAPE is than another's, as a share of the other's, with a 95 % interval.

    Both ends are nan where there is only one block, because the spread between days is then unknown.
    """

    saved_share: float
    low: float
    high: float


def bootstrap_difference(
    errors: Floats, other_errors: Floats, blocks: int, seed: int = 0, draws: int = 1000
) -> WapeDifference:
    """Compare the WAPE of two methods by a moving-block bootstrap (Kuensch, 1989), paired over the methods.

    errors, other_errors : sum of absolute errors of each cutoff over all series, in order of time, shape
        (cutoffs,). The demand is the same for both methods, so the ratio of the sums is the ratio of the
        WAPEs. Buckets of unknown demand are left out.
    blocks : cutoffs in a block: use those of a day, since errors of neighbouring hours are correlated
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
