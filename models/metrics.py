"""Metrics of single requests: the one formula of each in Python. Those of tables are in sql/macros/slo.sql.

Seconds count from the arrival of the request. nan: the token never came, or there is no such target.
Targets broadcast. tests/test_scorecard.py compares these functions with the macros.
"""

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Bools, Floats
from fleetcast.models.world.catalogue_entries import Tier

SecondsLike = Floats | float


def tpot_s(ttft_s: Floats, e2e_s: Floats, output_tokens: npt.NDArray[np.integer]) -> Floats:
    """Time per output token: seconds from the first token to the last, for each one after the first.

    Parameters
    ----------
    ttft_s, e2e_s : shape (n,), seconds to the first and the last token from one same instant; nan: never came

    Returns
    -------
    Shape (n,), nan where the last token never came, or where the first one was the only one.
    """
    later = np.where(output_tokens > 1, output_tokens - 1.0, np.nan)
    return (e2e_s - ttft_s) / later


def is_ttft_met(ttft_s: Floats, ttft_slo_s: SecondsLike) -> Bools:
    """Which requests had their first token within the target."""
    return np.asarray(ttft_s <= ttft_slo_s)


def is_tpot_met(tpot_s: Floats, e2e_s: Floats, tpot_slo_s: SecondsLike) -> Bools:
    """Which requests ended at the pace of the target; a single token meets any target."""
    return ~np.isnan(e2e_s) & ~np.isnan(tpot_slo_s) & ((tpot_s <= tpot_slo_s) | np.isnan(tpot_s))


def is_slo_met(
    ttft_s: Floats,
    tpot_s: Floats,
    e2e_s: Floats,
    ttft_slo_s: SecondsLike,
    tpot_slo_s: SecondsLike,
    deadline_s: SecondsLike,
) -> Bools:
    """Which requests met every target that they have: without a `ttft_slo_s` the deadline counts."""
    in_time = np.where(np.isnan(ttft_slo_s), e2e_s <= deadline_s, is_ttft_met(ttft_s, ttft_slo_s))
    return np.asarray(in_time & (np.isnan(tpot_slo_s) | is_tpot_met(tpot_s, e2e_s, tpot_slo_s)))


def is_tier_slo_met(
    tier: Tier, ttft_s: Floats, e2e_s: Floats, output_tokens: npt.NDArray[np.integer]
) -> Bools:
    """Which requests of a tier met every target that it has, shape (n,)."""
    ttft_slo_s, tpot_slo_s = (np.nan if slo is None else slo for slo in (tier.ttft_slo_s, tier.tpot_slo_s))
    pace_s = tpot_s(ttft_s, e2e_s, output_tokens)
    return is_slo_met(ttft_s, pace_s, e2e_s, ttft_slo_s, tpot_slo_s, tier.deadline_s)
