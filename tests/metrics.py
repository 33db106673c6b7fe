"""What a replay is judged by, plainly in Python: the twin that sql/macros/slo.sql is held against."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PERCENTILES = (0.50, 0.90, 0.95, 0.99)
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


def tpot_s(ttft_s: float, e2e_s: float, output_tokens: int) -> float:
    """Seconds per output token after the first one; nan where there is none, or where it never came."""
    return (e2e_s - ttft_s) / (output_tokens - 1) if output_tokens > 1 else math.nan


def attainment(
    ttft_s: Floats,
    tpot_s: Floats,
    e2e_s: Floats,
    queued_s: Floats,
    ttft_slo_s: Floats,
    tpot_slo_s: Floats,
    deadline_s: Floats,
) -> Attainment:
    """Count the requests that met all their targets (SageServe section 2.2, and a target per output token).

    Parameters
    ----------
    ttft_s, e2e_s
        Shape (requests,); seconds from arrival to the first and the last token, nan if they never came.
    queued_s
        Shape (requests,); seconds from arrival to the end of the replay of a request that still waited then,
        nan for every other.
    ttft_slo_s
        Shape (requests,); nan where the deadline counts instead.
    tpot_s, tpot_slo_s
        Shape (requests,); time per output token, nan for a single one; nan where any pace will do.
    deadline_s
        Shape (requests,); seconds from arrival.

    Notes
    -----
    With a `ttft_slo_s` the first token within it; one that was never served has missed. Without one the last
    token within `deadline_s`; one that still waits with its deadline ahead is pending, not missed. With a
    `tpot_slo_s` the tokens that fast as well.
    """
    is_timed = ~np.isnan(ttft_slo_s)
    is_met = np.where(is_timed, ttft_s <= ttft_slo_s, e2e_s <= deadline_s)
    is_met &= np.isnan(tpot_slo_s) | is_paced(tpot_s, e2e_s, tpot_slo_s)
    is_pending = ~is_timed & (queued_s < deadline_s)
    met, pending = int(is_met.sum()), int(is_pending.sum())
    return Attainment(met, len(ttft_s) - met - pending, pending)


def is_paced(tpot_s: Floats, e2e_s: Floats, tpot_slo_s: Floats) -> NDArray[np.bool_]:
    """Which requests ended with their tokens at the pace that was wanted; a single token meets any."""
    return ~np.isnan(e2e_s) & ~(tpot_s > tpot_slo_s)


def percentiles(seconds: Floats) -> Floats:
    """PERCENTILES of the requests that got that far (linear between ranks); nan if none did."""
    known = seconds[~np.isnan(seconds)]
    return np.quantile(known, PERCENTILES) if known.size else np.full(len(PERCENTILES), np.nan)


def gpu_hours(instance_s: Floats, gpus_per_instance: Floats) -> Floats:
    """GPU-hours of instance-seconds; the shapes broadcast."""
    return instance_s * gpus_per_instance / 3600.0


def usd(paid_gpu_hours: Floats, usd_per_gpu_hour: Floats) -> float:
    """What serving, booting and draining GPU-hours cost at their price; the shapes broadcast."""
    return float(np.sum(paid_gpu_hours * usd_per_gpu_hour))


def distance_share(value: float, best: float) -> float:
    """How far `value` lies above `best`, as a share of `best`."""
    return value / best - 1.0
