"""Goodput of a team: the highest requests/s at which enough requests meet their TTFT and TPOT targets.

capacity.py measures equal instances that do whole requests. This file measures any group of pools of one llm:
one that does both phases, or prefill and decode instances together. It bisects over replays of several teams,
because they share load.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fleetcast.models.trials.capacity import (
    LoadTrial,
    fixed_fleet,
    max_rate_for_tier,
    sample_requests,
    throughput_tokens_per_s,
    trial_rules,
    trial_team_count,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment

TokenCounts = npt.NDArray[np.int32]
GOODPUT_HALVINGS = 7  # of a bracket at most twice as wide as the result: to one per cent


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
    """Return the goodput of one team in requests/s; 0 where even an idle team does not meet the targets.

    It is never more than the throughput of the team.

    team : pools with their instances: one for whole requests, or one for prefill and one for decode
    tier : its targets, and the share of requests that must meet them
    input_tokens, output_tokens : shape (n,), tokens of the mix from which requests are sampled
    near_per_s : requests/s of one team at which the search begins
    teams : teams of the trial, which share its load; None: as many as have about INSTANCES instances
    """
    teams = teams or trial_team_count(sum(count for _, count in team))
    pools = [(pool, teams * count) for pool, count in team]
    alone = dataclasses.replace(catalogue.serving([llm]), tiers={"target": tier})
    fleet = fixed_fleet({llm: pools}, alone, config)
    sample = sample_requests(input_tokens, output_tokens)
    trial = LoadTrial(sample, fleet, trial_rules(llm, alone, config))
    rate = max_rate_for_tier(trial, tier, teams * near_per_s, GOODPUT_HALVINGS)
    if rate is None:
        return 0.0
    throughput_per_s = throughput_tokens_per_s(trial, llm, "whole") / float(sample.input_tokens.mean())
    return min(rate, throughput_per_s) / teams
