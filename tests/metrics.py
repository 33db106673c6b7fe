"""Metrics of the scorecard in plain Python, to compare the marts with."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models import metrics

Floats = NDArray[np.float64]

PERCENTILES = (0.50, 0.90, 0.95, 0.99)
PENDING = ("queued_s", "ttft_slo_s", "deadline_s")
ATTAINED = ("ttft_s", "tpot_s", "e2e_s", "queued_s", "ttft_slo_s", "tpot_slo_s", "deadline_s")
PAID_STATES = ("serving", "booting", "draining")  # a donated instance earns its own keep as spot


class Attainment(NamedTuple):
    """Requests by what became of their SLO; `share` is None when none is decided."""

    met: int
    missed: int
    pending: int

    @property
    def share(self) -> float | None:
        """Met requests in all that are decided."""
        decided = self.met + self.missed
        return self.met / decided if decided else None


def attainment(
    ttft_s: Floats,
    tpot_s: Floats,
    e2e_s: Floats,
    queued_s: Floats,
    ttft_slo_s: Floats,
    tpot_slo_s: Floats,
    deadline_s: Floats,
) -> Attainment:
    """Count the requests that met all their targets (SageServe section 2.2), by models/metrics.py."""
    met = int(metrics.is_slo_met(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s).sum())
    pending = int(is_pending(queued_s, ttft_slo_s, deadline_s).sum())
    return Attainment(met, len(ttft_s) - met - pending, pending)


def is_pending(queued_s: Floats, ttft_slo_s: Floats, deadline_s: Floats) -> NDArray[np.bool_]:
    """Whether requests, shape (n,), neither met nor missed their deadline."""
    return np.isnan(ttft_slo_s) & (queued_s < deadline_s)


def percentiles(seconds: Floats, is_left_out: NDArray[np.bool_]) -> Floats:
    """PERCENTILES of the other requests, linear between ranks; nan where one falls on a nan, the longest."""
    known = np.sort(seconds[~is_left_out])  # nan is last
    rank = np.array(PERCENTILES) * max(known.size - 1, 0)
    low, high = (np.append(known, np.nan)[at(rank).astype(int)] for at in (np.floor, np.ceil))
    return low + (high - low) * (rank % 1)


def gpu_hours(instance_s: Floats, gpus_per_instance: Floats) -> Floats:
    """GPU-hours of instance-seconds; the shapes broadcast."""
    return instance_s * gpus_per_instance / 3600.0


def usd(paid_gpu_hours: Floats, usd_per_gpu_hour: Floats) -> float:
    """What serving, booting and draining GPU-hours cost at their price; the shapes broadcast."""
    return float(np.sum(paid_gpu_hours * usd_per_gpu_hour))


def distance_share(value: float, best: float) -> float:
    """How far `value` lies above `best`, as a share of `best`."""
    return value / best - 1.0
