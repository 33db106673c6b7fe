"""Capacity of an instance: theta in the plans, measured by replaying load trials.

[plan] capacity selects one of two definitions. `slo` is the highest load within the SLO targets; size a fleet
by this one. `throughput` is the highest load at all, however long requests wait, as in SageServe's Fig. 9.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Ints
from fleetcast.models.metrics import is_tier_slo_met
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.replay.session.trace_rows import single_tier_trace
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Region, Tier
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment

# Per trial. A shorter trial ends before a load that is slightly too high has built a queue.
TRIAL_REQUESTS = 20_000
INSTANCES = 4  # of the trial endpoint; a single instance would measure worse, as it shares no load
PARTNERS = 64  # instances of the pool for the other phase; so many that no request waits there
RATE_HALVINGS = 12  # of the bracket, to a thousandth of the rate
IDLE_PER_S, FLOOD_PER_S = 1e-3, 1e6  # requests/s: requests never overlap; all requests wait at once
FLOOD_S = 86_400.0  # time to serve the flood
STEADY = (0.25, 0.75)  # shares of the ended requests; between them an overloaded endpoint is full


def measure_capacity_tokens_per_s(
    llm: str,
    deployment: Deployment,
    catalogue: Catalogue,
    config: RunConfig,
    input_tokens: npt.NDArray[np.int32],
    output_tokens: npt.NDArray[np.int32],
    partner: Deployment | None = None,
    cached_tokens: npt.NDArray[np.int32] | None = None,
    instances: int = INSTANCES,
) -> float:
    """Measure the input tokens/s that one instance, or team, sustains, by the definition in [plan] capacity.

    The trial is an endpoint of so many `instances` whose requests are sampled from the given mix.

    slo         the highest rate of Poisson arrivals, by bisection, at which enough requests meet all targets
                of the strictest tier. Enough is its attainment target times the attainment of an idle fleet,
                because a prompt that is too long for its SLO on an idle instance does not depend on load. For
                instances that only decode, the last token counts, within the deadline of that tier. The
                result is never more than the throughput.
    throughput  the rate at which requests end while others always wait. At a lower arrival rate the queue
                does not grow, at a higher one it grows without end (Baccelli and Foss 1995). No target
                counts.

    input_tokens, output_tokens : shape (n,), tokens of the llm's interactive requests
    cached_tokens : shape (n,), of the input tokens, those that need not be computed; None: none
    partner : the deployment of the other phase, for one that only prefills or only decodes. With teams, the
        trial measures a whole team, for all targets

    ValueError for an empty mix, for targets that no request meets even on an idle fleet, or where no request
    fits.
    """
    if input_tokens.size == 0:
        raise ValueError(f"No interactive request of {llm} to measure its capacity with. Give some history.")
    sample = sample_requests(input_tokens, output_tokens, cached_tokens)
    trial, count, role = make_trial(llm, deployment, catalogue, config, sample, partner, instances)
    throughput = throughput_tokens_per_s(trial, llm, role)
    if config.plan.capacity == "throughput":
        return throughput / count
    within_slo = max_rate_within_slo(trial, llm, deployment, role, catalogue)
    within_slo *= float(sample.input_tokens.mean())
    # First tokens may be in time while batches grow without end.
    return min(within_slo, throughput) / count


def measure_idle_share(
    llm: str,
    deployment: Deployment,
    catalogue: Catalogue,
    config: RunConfig,
    tier: Tier,
    input_tokens: npt.NDArray[np.int32],
    output_tokens: npt.NDArray[np.int32],
    partner: Deployment | None = None,
    cached_tokens: npt.NDArray[np.int32] | None = None,
) -> float:
    """Measure the share of requests, shape (n,), in time for a tier where each is alone on the instance.

    No number of instances serves more of them in time. Requests are sampled as for the capacity.
    """
    sample = sample_requests(input_tokens, output_tokens, cached_tokens)
    trial, _, role = make_trial(llm, deployment, catalogue, config, sample, partner, instances=1)
    return trial.attained_share(IDLE_PER_S, role_targets(role, tier))


def make_trial(
    llm: str,
    deployment: Deployment,
    catalogue: Catalogue,
    config: RunConfig,
    sample: TraceArrays,
    partner: Deployment | None,
    instances: int,
) -> tuple["LoadTrial", int, str]:
    """Return a trial, its number of instances or teams, and the phases that it measures, a role."""
    prefix = "given" if sample.cached_tokens.size else "none"
    config = dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, prefix=prefix))
    if partner is not None and deployment.team:
        count, role = trial_team_count(deployment.team + partner.team), "whole"
        pools = [(pool, count * pool.team) for pool in (deployment, partner)]
        fleet = fixed_fleet({llm: pools}, catalogue.serving([llm]), config)
    else:
        count, role = instances, deployment.role
        fleet = trial_fleet(llm, deployment, catalogue, config, instances, partner)
    return LoadTrial(sample, fleet, trial_rules(llm, catalogue, config)), count, role


def trial_team_count(instances: int) -> int:
    """Return how many teams of so many instances have about INSTANCES instances."""
    return max(1, round(INSTANCES / instances))


def sample_requests(
    input_tokens: npt.NDArray[np.int32],
    output_tokens: npt.NDArray[np.int32],
    cached_tokens: npt.NDArray[np.int32] | None = None,
) -> TraceArrays:
    """Sample TRIAL_REQUESTS requests of a mix with Poisson arrivals, one per second on average.

    The arguments have shape (n,), tokens.
    """
    rng = np.random.default_rng(0xCA9)
    picks, gaps = rng.integers(0, input_tokens.size, TRIAL_REQUESTS), rng.exponential(1.0, TRIAL_REQUESTS)
    tokens = (input_tokens, output_tokens, *(() if cached_tokens is None else (cached_tokens,)))
    return single_tier_trace(np.cumsum(gaps), *(column[picks] for column in tokens))


class LoadTrial(NamedTuple):
    """An endpoint, and the sampled requests of its trial, one per second on average."""

    sampled_trace: TraceArrays
    fleet: FleetArrays
    rules: Rules

    def replay_at_rate(self, requests_per_s: float, longer_s: float = 1.0) -> tuple[TraceArrays, Outcome]:
        """Replay the requests at another rate, up to `longer_s` seconds after the last arrival."""
        trace = self.sampled_trace._replace(arrival_s=self.sampled_trace.arrival_s / requests_per_s)
        until_s = float(trace.arrival_s[-1]) + longer_s
        return trace, replay_fixed_fleet(trace, self.fleet, self.rules, until_s)

    def attained_share(self, requests_per_s: float, tier: Tier) -> float:
        """Return the share of requests that meet the tier's targets at this rate."""
        trace, outcome = self.replay_at_rate(requests_per_s)
        ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
        return float(np.mean(is_tier_slo_met(tier, ttft_s, e2e_s, trace.output_tokens)))


def max_rate_within_slo(
    trial: LoadTrial, llm: str, deployment: Deployment, role: str, catalogue: Catalogue
) -> float:
    """Return the highest requests/s at which enough meet the targets of the strictest tier.

    ValueError if no tier has a target, or if no request meets them even on an idle fleet.
    """
    name = catalogue.strictest_tier(catalogue.tiers)
    if name is None:
        raise ValueError("No interactive tier has a target to measure capacity by. Give one in tiers.toml.")
    tier = role_targets(role, catalogue.tiers[name])
    rate = max_rate_for_tier(trial, tier)
    if rate is None:
        raise ValueError(
            f"No request of {llm} meets the targets of {name} on an idle {deployment.gpus} x "
            f"{deployment.gpu}. Loosen them in tiers.toml or deploy it on faster GPUs."
        )
    return rate


def max_rate_for_tier(
    trial: LoadTrial, tier: Tier, near_per_s: float = 1.0, halvings: int = RATE_HALVINGS
) -> float | None:
    """Return the highest requests/s at which enough meet the tier's targets; None if an idle fleet does not.

    The search begins at `near_per_s`. It ends near FLOOD_PER_S where even all requests at once are in time.
    """
    idle_share = trial.attained_share(IDLE_PER_S, tier)
    if idle_share == 0:
        return None
    target_share = tier.attainment_target_share * idle_share
    low, high = IDLE_PER_S, near_per_s
    while high < FLOOD_PER_S and trial.attained_share(high, tier) >= target_share:
        low, high = high, 2 * high
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if trial.attained_share(middle, tier) >= target_share else (low, middle)
    return low


def throughput_tokens_per_s(trial: LoadTrial, llm: str, role: str) -> float:
    """Return the input tokens/s of the endpoint in a flood; ValueError if too few requests end."""
    requests, seconds = flood_endpoint(trial, llm, role)
    return float(trial.sampled_trace.input_tokens[requests].sum() / seconds)


def flood_endpoint(trial: LoadTrial, llm: str, role: str = "whole") -> tuple[Ints, float]:
    """Return the requests, shape (n,), that end in the STEADY part of a flood, and its seconds.

    ValueError if too few end.
    """
    _, outcome = trial.replay_at_rate(FLOOD_PER_S, FLOOD_S)
    ended_s = outcome.first_token_s if role == "prefill" else outcome.finish_s
    order = np.argsort(ended_s)[: np.count_nonzero(~np.isnan(ended_s))]
    first, last = (int(share * order.size) for share in STEADY)
    if last <= first or ended_s[order[last]] <= ended_s[order[first]]:
        raise ValueError(
            f"Only {order.size:,} of {ended_s.size:,} requests of {llm} ever end on one of its instances. "
            "Deploy it on more GPUs."
        )
    return order[first:last], float(ended_s[order[last]] - ended_s[order[first]])


def role_targets(role: str, tier: Tier) -> Tier:
    """Return the tier with the targets that an instance in this role is responsible for.

    A prefill instance is responsible for TTFT, a decode instance for TPOT and the deadline.
    """
    if role == "prefill":
        return dataclasses.replace(tier, tpot_slo_s=None)
    return dataclasses.replace(tier, ttft_slo_s=None) if role == "decode" else tier


def trial_fleet(
    llm: str,
    deployment: Deployment,
    catalogue: Catalogue,
    config: RunConfig,
    instances: int = INSTANCES,
    partner: Deployment | None = None,
) -> FleetArrays:
    """Build one endpoint of `llm` whose instances always serve, with PARTNERS instances of a partner."""
    pools = [(deployment, instances)] + ([] if partner is None else [(partner, PARTNERS)])
    return fixed_fleet({llm: pools}, catalogue.serving([llm]), config)


def trial_rules(llm: str, catalogue: Catalogue, config: RunConfig) -> Rules:
    """Build the rules of a trial fleet: it follows its targets, and no request has a second leg."""
    return make_rules(catalogue.serving([llm]), dataclasses.replace(config.replay, cascades={}), "follow")


def fixed_fleet(
    pools: Mapping[str, Sequence[tuple[Deployment, int]]], catalogue: Catalogue, config: RunConfig
) -> FleetArrays:
    """Build one region with these pools of each llm, each with so many instances that always serve."""
    cap_gpus = dict.fromkeys(catalogue.gpus, 0)
    deployments = {}
    for llm, sized in pools.items():
        for pool, count in sized:
            cap_gpus[pool.gpu] += count * pool.gpus
        deployments[llm] = tuple(
            dataclasses.replace(
                pool, regions=None, instances_at_start=count, min_instances=count, max_instances=count
            )
            for pool, count in sized
        )
    here = Region(("here",), {}, cap_gpus, (), "the one region of a trial")
    alone = dataclasses.replace(catalogue, regions={"here": here})
    fixed = dataclasses.replace(config.fleet, deployments=deployments)
    return make_fleet(alone, fixed, dataclasses.replace(config.replay, cascades={}), seed=0)


def replay_fixed_fleet(trace: TraceArrays, fleet: FleetArrays, rules: Rules, until_s: float) -> Outcome:
    """Replay requests from 0 to `until_s` seconds on a fleet whose instances always serve."""
    return replay_trace(trace, fleet, Schedule(np.diff(fleet.slots), hour_s=until_s), rules, until_s)
