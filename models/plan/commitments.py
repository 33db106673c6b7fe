"""What to commit to: GPUs that are paid for at every hour, against those bought by the hour or from spot.

A commitment R costs the reserved price at every hour. Where interactive load needs more, the rest is bought
on demand. What may wait is done on committed GPUs that the interactive load leaves idle on the same day, else
on spot. Without what may wait the cheapest R is the quantile of the need that is exceeded in as large a share
of the hours as a reserved GPU-hour costs of one on demand (the newsvendor's).
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats


class CommitmentPrices(NamedTuple):
    """USD per GPU-hour."""

    reserved: float
    on_demand: float
    spot: float


class CommitmentCosts(NamedTuple):
    """What each commitment of 0, 1, ... GPUs leads to on each day, each of shape (commitments, days)."""

    on_demand_gpu_hours: Floats
    spot_gpu_hours: Floats
    usd: Floats


def commitment_costs(need: Floats, held: Floats, prices: CommitmentPrices) -> CommitmentCosts:
    """Follow every commitment from none to the most that was ever needed.

    Parameters
    ----------
    need, held
        GPUs that the interactive load fills and that what may wait would fill, shape (days, hours).
    """
    levels = np.arange(np.ceil(need.max(initial=0.0)) + 1)[:, None, None]
    on_demand = np.maximum(need - levels, 0.0).sum(axis=2)
    idle = np.maximum(levels - need, 0.0).sum(axis=2)
    spot = np.maximum(held.sum(axis=1) - idle, 0.0)
    committed = levels[:, :, 0] * need.shape[1]
    usd = committed * prices.reserved + on_demand * prices.on_demand + spot * prices.spot
    return CommitmentCosts(on_demand, spot, usd)


def commitment_regrets(usd: Floats, days_per_week: int = 7) -> Floats:
    """What each commitment cost above the best one of each week in hindsight: (commitments, weeks).

    `usd` by day, shape (commitments, days), a whole number of weeks.
    """
    weekly = usd.reshape(usd.shape[0], -1, days_per_week).sum(axis=2)
    return weekly - weekly.min(axis=0)
