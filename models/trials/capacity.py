"""What an instance sustains: the theta of the plans, measured by the replay itself.

`slo` is what it serves within its targets, `throughput` what it serves at all ([plan] capacity). The first is
what a fleet must be sized by; the second is how SageServe's Fig. 9 has it, whatever anyone waits.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.metrics import is_tier_slo_met
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Region, Tier
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment

TRIAL_REQUESTS = (
    20_000  # per trial: shorter ones end before a load that is slightly too high has built its queue
)
INSTANCES = 4  # a small endpoint, because load is shared: one instance alone would look worse than it is
PARTNERS = 64  # of the pool that does the other part of each request: so many that none waits there
RATE_HALVINGS = 12  # of the bracket, to a thousandth of the rate
IDLE_PER_S, FLOOD_PER_S = 1e-3, 1e6  # so slow that no request meets another; so fast that all wait at once
FLOOD_S = 86_400.0  # in which they are served
STEADY = (0.25, 0.75)  # of the requests that end: between them an overloaded endpoint is full throughout


def measure_capacity_tokens_per_s(
    llm: str,
    deployment: Deployment,
    catalogue: Catalogue,
    config: RunConfig,
    input_tokens: npt.NDArray[np.int32],
    output_tokens: npt.NDArray[np.int32],
    partner: Deployment | None = None,
    cached_tokens: npt.NDArray[np.int32] | None = None,
) -> float:
    """Input tokens/s that one instance, or team, serves, by the sort of capacity that [plan] asks for.

    The trial is an endpoint of some INSTANCES whose requests are drawn from the given mix.

    slo         the highest rate of Poisson arrivals, by bisection, at which enough requests meet all targets
                of the strictest tier. Enough is its attainment target times what an idle fleet attains: a
                prompt too long for its SLO on an empty instance says nothing about load. Of instances that
                decode what others prefill it is the last token that counts, within the deadline of that tier.
                It is never more than the throughput.
    throughput  the rate at which requests end while more always wait. At a lower rate of arrivals the queue
                does not grow, at a higher one it grows without end (Baccelli and Foss 1995).
                No target counts.

    Parameters
    ----------
    input_tokens, output_tokens : shape (n,), the interactive requests of the llm
    cached_tokens : shape (n,), of these inputs, what need not be computed; None: nothing
    partner : of a deployment that prefills who decodes, of one that decodes who prefills. Where they stand in
        teams, these are tried as a whole, and answer for all targets

    Raises
    ------
    ValueError : an empty mix; targets that no request meets even on an idle fleet; no request that fits
    """
    if input_tokens.size == 0:
        raise ValueError(f"No interactive request of {llm} to measure its capacity with. Give some history.")
    drawn = sample_requests(input_tokens, output_tokens, cached_tokens)
    given = "none" if cached_tokens is None else "given"
    config = dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, prefix=given))
    if partner is not None and deployment.team:
        tried, role = trial_team_count(deployment.team + partner.team), "whole"
        pools = [(pool, tried * pool.team) for pool in (deployment, partner)]
        fleet = fixed_fleet({llm: pools}, catalogue.serving([llm]), config)
    else:
        tried, role = INSTANCES, deployment.role
        fleet = trial_fleet(llm, deployment, catalogue, config, partner=partner)
    trial = LoadTrial(drawn, fleet, trial_rules(llm, catalogue, config))
    at_all = throughput_tokens_per_s(trial, llm, role)
    if config.plan.capacity == "throughput":
        return at_all / tried
    in_time = max_rate_within_slo(trial, llm, deployment, role, catalogue)
    in_time *= float(drawn.input_tokens.mean())
    return min(in_time, at_all) / tried  # first tokens may be in time while batches grow and grow


def trial_team_count(instances: int) -> int:
    """How many teams of so many instances make some INSTANCES."""
    return max(1, round(INSTANCES / instances))


def sample_requests(
    input_tokens: npt.NDArray[np.int32],
    output_tokens: npt.NDArray[np.int32],
    cached_tokens: npt.NDArray[np.int32] | None = None,
) -> TraceArrays:
    """REQUESTS of a mix as they come to one place, Poisson, one a second in the mean."""
    rng = np.random.default_rng(0xCA9)
    picks, gaps = rng.integers(0, input_tokens.size, TRIAL_REQUESTS), rng.exponential(1.0, TRIAL_REQUESTS)
    nobody = np.zeros(TRIAL_REQUESTS, np.int16)
    drawn = TraceArrays(np.cumsum(gaps), nobody, nobody, nobody, input_tokens[picks], output_tokens[picks])
    return drawn if cached_tokens is None else drawn._replace(cached_tokens=cached_tokens[picks])


class LoadTrial(NamedTuple):
    """An endpoint, and the requests that it is tried with, one a second in the mean."""

    drawn: TraceArrays
    fleet: FleetArrays
    rules: Rules

    def replay_at_rate(self, requests_per_s: float, longer_s: float = 1.0) -> tuple[TraceArrays, Outcome]:
        """What becomes of them at another rate, up to so many seconds after the last has come."""
        trace = self.drawn._replace(arrival_s=self.drawn.arrival_s / requests_per_s)
        until_s = float(trace.arrival_s[-1]) + longer_s
        drive = Schedule(np.diff(self.fleet.slots), hour_s=until_s)
        return trace, replay_trace(trace, self.fleet, drive, self.rules, until_s)


def max_rate_within_slo(
    trial: LoadTrial, llm: str, deployment: Deployment, role: str, catalogue: Catalogue
) -> float:
    """Requests/s of the endpoint at which enough still meet the targets of the strictest tier."""
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
    """Requests/s at which enough still meet the targets of the tier; None where no idle fleet meets them.

    The search begins near `near_per_s`.
    """

    def attained_share(requests_per_s: float) -> float:
        trace, outcome = trial.replay_at_rate(requests_per_s)
        ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
        return float(np.mean(is_tier_slo_met(tier, ttft_s, e2e_s, trace.output_tokens)))

    idle_share = attained_share(IDLE_PER_S)
    if idle_share == 0:
        return None
    target_share = tier.attainment_target_share * idle_share
    low, high = IDLE_PER_S, near_per_s
    while attained_share(high) >= target_share:
        low, high = high, 2 * high
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if attained_share(middle) >= target_share else (low, middle)
    return low


def throughput_tokens_per_s(trial: LoadTrial, llm: str, role: str) -> float:
    """Input tokens/s of the endpoint in the steady part of a flood; ValueError where hardly any ends."""
    _, outcome = trial.replay_at_rate(FLOOD_PER_S, FLOOD_S)
    ended_s = outcome.first_token_s if role == "prefill" else outcome.finish_s
    order = np.argsort(ended_s)[: np.count_nonzero(~np.isnan(ended_s))]
    first, last = (int(share * order.size) for share in STEADY)
    if last <= first or ended_s[order[last]] <= ended_s[order[first]]:
        raise ValueError(
            f"Only {order.size:,} of {ended_s.size:,} requests of {llm} ever end on one of its instances. "
            "Deploy it on more GPUs."
        )
    tokens = trial.drawn.input_tokens[order[first:last]].sum()
    return float(tokens / (ended_s[order[last]] - ended_s[order[first]]))


def role_targets(role: str, tier: Tier) -> Tier:
    """The targets of a tier that an instance in this role answers for.

    Who prefills answers for the first token, who decodes for the pace of the others and for the last one.
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
    """One endpoint of so many instances of `llm` that always serve, and of a partner PARTNERS."""
    sized = [(deployment, instances)] + ([] if partner is None else [(partner, PARTNERS)])
    return fixed_fleet({llm: sized}, catalogue.serving([llm]), config)


def trial_rules(llm: str, catalogue: Catalogue, config: RunConfig) -> Rules:
    """The rules of such a fleet: it follows its targets, and no request has a second leg."""
    return make_rules(catalogue.serving([llm]), dataclasses.replace(config.replay, cascades={}), "follow")


def fixed_fleet(
    pools: Mapping[str, Sequence[tuple[Deployment, int]]], catalogue: Catalogue, config: RunConfig
) -> FleetArrays:
    """One region with these pools of each llm of the catalogue, so many instances each, that always serve."""
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
