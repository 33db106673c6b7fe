"""Metrics of single requests: the only formula of each in Python. Those of tables are in sql/macros/slo.sql.

All arrays have shape (n,), one entry per request; targets are scalars or broadcast to it. Times are seconds
from the arrival of the request. NaN: the token was never made, or the tier has no such target.
tests/test_scorecard.py compares these functions with the macros.
"""

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Bools, Floats
from fleetcast.models.world.catalogue_entries import Tier

SecondsLike = Floats | float


def tpot_s(ttft_s: Floats, e2e_s: Floats, output_tokens: npt.NDArray[np.integer]) -> Floats:
    """Return the time per output token: seconds from first to last token / tokens after the first.

    ttft_s, e2e_s : shape (n,), seconds to the first and the last token from the same instant; NaN: never made
    output_tokens : shape (n,), tokens

    Returns
    -------
    Shape (n,), seconds; NaN where the last token was never made, or where the first one was the only one.
    """
    later = np.where(output_tokens > 1, output_tokens - 1.0, np.nan)
    return (e2e_s - ttft_s) / later


def waited_percentile_s(seconds: Floats, percent: float) -> float:
    """Return a percentile of times to a token; NaN where it falls on a request that never had it.

    `seconds`: shape (n,); NaN: the token was never made, so that the request waited longer than all others.
    """
    served = np.sort(seconds[~np.isnan(seconds)])
    rank = max(0, seconds.size - 1) * percent / 100
    if np.ceil(rank) >= served.size:
        return float("nan")
    return float(np.interp(rank, np.arange(served.size), served))


def known_percentile_s(seconds: Floats, percent: float) -> float:
    """Return a percentile of the times that are known; NaN without any. `seconds`: shape (n,), NaN: none."""
    known = seconds[~np.isnan(seconds)]
    return float(np.quantile(known, percent / 100)) if known.size else float("nan")


def is_ttft_met(ttft_s: Floats, ttft_slo_s: SecondsLike) -> Bools:
    """Return which requests had their first token within the target, shape (n,); arguments in seconds."""
    return np.asarray(ttft_s <= ttft_slo_s)


def is_tpot_met(tpot_s: Floats, e2e_s: Floats, tpot_slo_s: SecondsLike) -> Bools:
    """Return which requests met their TPOT target, shape (n,); one token meets any; arguments in seconds."""
    return ~np.isnan(e2e_s) & ~np.isnan(tpot_slo_s) & ((tpot_s <= tpot_slo_s) | np.isnan(tpot_s))


def is_slo_met(
    ttft_s: Floats,
    tpot_s: Floats,
    e2e_s: Floats,
    ttft_slo_s: SecondsLike,
    tpot_slo_s: SecondsLike,
    deadline_s: SecondsLike,
) -> Bools:
    """Return which requests met all their targets, shape (n,); arguments in seconds.

    Without a `ttft_slo_s` the deadline counts.
    """
    in_time = np.where(np.isnan(ttft_slo_s), e2e_s <= deadline_s, is_ttft_met(ttft_s, ttft_slo_s))
    return np.asarray(in_time & (np.isnan(tpot_slo_s) | is_tpot_met(tpot_s, e2e_s, tpot_slo_s)))


def is_tier_slo_met(
    tier: Tier, ttft_s: Floats, e2e_s: Floats, output_tokens: npt.NDArray[np.integer]
) -> Bools:
    """Return which requests of a tier met all its targets, shape (n,); times in seconds, shape (n,)."""
    ttft_slo_s, tpot_slo_s = (np.nan if slo is None else slo for slo in (tier.ttft_slo_s, tier.tpot_slo_s))
    request_tpot_s = tpot_s(ttft_s, e2e_s, output_tokens)
    return is_slo_met(ttft_s, request_tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, tier.deadline_s)
