"""Costs of commitments: GPUs reserved for every hour, compared with GPUs on demand or from spot.

A commitment of R GPUs costs the reserved price at every hour. Where the interactive load needs more, the rest
is bought on demand. Batch work runs on committed GPUs that the interactive load leaves idle on the same day,
else on spot, or on demand where spot is no cheaper. Without batch work the cheapest R is a quantile of the
need: the share of hours in which the need exceeds R is the ratio of the reserved price to the price on demand
(newsvendor problem).
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
    """Purchases and cost of each commitment of 0, 1, ... GPUs on each day, each (commitments, days)."""

    on_demand_gpu_hours: Floats
    spot_gpu_hours: Floats
    usd: Floats


def commitment_costs(need: Floats, deferred: Floats, prices: CommitmentPrices) -> CommitmentCosts:
    """Return the costs of every commitment from 0 GPUs to those that carry each day's whole work.

    Above these nothing is bought, so that more GPUs cost more at any price.

    Parameters
    ----------
    need, deferred
        GPUs that the interactive load and that the batch work fill, shape (days, hours).
    """
    whole = need.max(axis=1) + deferred.mean(axis=1)
    levels = np.arange(np.ceil(whole.max(initial=0.0)) + 1)[:, None, None]
    on_demand = np.maximum(need - levels, 0.0).sum(axis=2)
    idle = np.maximum(levels - need, 0.0).sum(axis=2)
    spot = np.maximum(deferred.sum(axis=1) - idle, 0.0)
    if prices.spot >= prices.on_demand:
        on_demand, spot = on_demand + spot, np.zeros_like(spot)
    committed = levels[:, :, 0] * need.shape[1]
    usd = committed * prices.reserved + on_demand * prices.on_demand + spot * prices.spot
    return CommitmentCosts(on_demand, spot, usd)


def commitment_regrets(usd: Floats, days_per_week: int = 7) -> Floats:
    """Return USD of each commitment above the best one of the same week, shape (commitments, weeks).

    `usd` of each day is of shape (commitments, days), a whole number of weeks.
    """
    weekly = usd.reshape(usd.shape[0], -1, days_per_week).sum(axis=2)
    return weekly - weekly.min(axis=0)
