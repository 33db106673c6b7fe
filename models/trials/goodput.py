"""Goodput of a team: the most requests/s of which enough meet their targets, to the first token and in pace.

As capacity.py has it for like instances that each do whole requests, here for any pools of one llm that stand
together: one that does both phases, or some that prefill and some that decode. Found by bisection with the
replay itself, for some teams side by side, because load is shared.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fleetcast.models.trials.capacity import (
    INSTANCES,
    LoadTrial,
    fixed_fleet,
    max_rate_for_tier,
    sample_requests,
    throughput_tokens_per_s,
    trial_rules,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment

TokenCounts = npt.NDArray[np.int32]
GOODPUT_HALVINGS = 7  # halvings of a bracket that is at most twice as wide as what is found: to one per cent


def goodput_per_s(
    llm: str,
    team: Sequence[tuple[Deployment, int]],
    catalogue: Catalogue,
    config: RunConfig,
    tier: Tier,
    input_tokens: TokenCounts,
    output_tokens: TokenCounts,
    near_per_s: float,
    teams: int | None = None,
) -> float:
    """Requests/s of one team of pools, so many instances each; 0 where no idle team meets the targets.

    Parameters
    ----------
    team : one pool that does whole requests, or one that prefills and one that decodes
    tier : whose targets count, and the share of requests that is to meet them
    input_tokens, output_tokens : shape (n,), the mix that requests are drawn from
    near_per_s : where the search begins
    teams : that stand side by side and share their load; None: as many as have INSTANCES together

    It is never more than what the team serves at all, whoever waits.
    """
    teams = teams or max(1, round(INSTANCES / sum(count for _, count in team)))
    pools = [(pool, teams * count) for pool, count in team]
    alone = dataclasses.replace(catalogue.serving([llm]), tiers={"asked": tier})
    fleet = fixed_fleet({llm: pools}, alone, config)
    drawn = sample_requests(input_tokens, output_tokens)
    trial = LoadTrial(drawn, fleet, trial_rules(llm, alone, config))
    rate = max_rate_for_tier(trial, tier, teams * near_per_s, GOODPUT_HALVINGS)
    if rate is None:
        return 0.0
    at_all = throughput_tokens_per_s(trial, llm, "whole") / float(drawn.input_tokens.mean())
    return min(rate, at_all) / teams
