"""What an instance sustains within its SLO: the theta of the plans, measured by the replay itself."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from models.metrics import tpot_s
from models.replay.fleet import make_fleet, make_rules
from models.replay.run import Drive, replay
from models.replay.state import Bools, Fleet, Floats, Trace
from models.world.catalogue import Catalogue, Region, Tier
from models.world.config import Config, Deployment

REQUESTS = 20_000  # per trial: shorter ones end before a load that is slightly too high has built its queue
INSTANCES = 4  # a small endpoint, because load is shared: one instance alone would look worse than it is
PARTNERS = 64  # of the pool that does the other part of each request: so many that none waits there
HALVINGS = 12  # of the bracket, to a thousandth of the rate
IDLE_PER_S = 1e-3  # so slow that no request meets another


def capacity_tokens_per_s(
    llm: str,
    deployment: Deployment,
    catalogue: Catalogue,
    config: Config,
    input_tokens: npt.NDArray[np.int32],
    output_tokens: npt.NDArray[np.int32],
    partner: Deployment | None = None,
    cached_tokens: npt.NDArray[np.int32] | None = None,
) -> float:
    """Input tokens/s that one instance serves with enough requests within all targets of the strictest tier.

    Bisection over the rate of Poisson arrivals, at an endpoint of INSTANCES whose requests are drawn from
    the given mix. Enough is the tier's attainment target times what an idle fleet attains: a prompt too
    long for its SLO on an empty instance says nothing about load. Of instances that decode what others
    prefill it is the last token that counts, within the deadline of the same tier.

    Parameters
    ----------
    input_tokens, output_tokens : shape (n,), the interactive requests of the llm
    cached_tokens : shape (n,), of these inputs, what need not be computed; None: nothing
    partner : of a deployment that prefills who decodes, of one that decodes who prefills

    Raises
    ------
    ValueError : an empty mix; targets that no request meets even on an idle fleet
    """
    if input_tokens.size == 0:
        raise ValueError(f"No interactive request of {llm} to measure its capacity with. Give some history.")
    name = catalogue.strictest_tier(catalogue.tiers)
    if name is None:
        raise ValueError("No interactive tier has a target to measure capacity by. Give one in tiers.toml.")
    tier = of_role(deployment.role, catalogue.tiers[name])
    rng = np.random.default_rng(0xCA9)
    picks, gaps = rng.integers(0, input_tokens.size, REQUESTS), rng.exponential(1.0, REQUESTS)
    nobody = np.zeros(REQUESTS, np.int16)
    given = "none" if cached_tokens is None else "given"
    config = dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, prefix=given))
    fleet = trial_fleet(llm, deployment, catalogue, config, partner=partner)
    rules = make_rules(catalogue, config.replay, "follow")

    def attained_share(requests_per_s: float) -> float:
        arrival_s = np.cumsum(gaps) / requests_per_s
        trace = Trace(arrival_s, nobody, nobody, nobody, input_tokens[picks], output_tokens[picks])
        if cached_tokens is not None:
            trace = trace._replace(cached_tokens=cached_tokens[picks])
        until_s = float(arrival_s[-1]) + 1.0
        outcome = replay(trace, fleet, Drive(np.diff(fleet.slots), hour_s=until_s), rules, until_s)
        ttft_s, e2e_s = outcome.first_token_s - arrival_s, outcome.finish_s - arrival_s
        return float(np.mean(meets(tier, ttft_s, e2e_s, trace.output_tokens)))

    idle_share = attained_share(IDLE_PER_S)
    if idle_share == 0:
        raise ValueError(
            f"No request of {llm} meets the targets of {name} on an idle {deployment.gpus} x "
            f"{deployment.gpu}. Loosen them in tiers.toml or deploy it on faster GPUs."
        )
    target_share = tier.attainment_target_share * idle_share
    low, high = IDLE_PER_S, 1.0
    while attained_share(high) >= target_share:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if attained_share(middle) >= target_share else (low, middle)
    return low * float(input_tokens[picks].mean()) / INSTANCES


def of_role(role: str, tier: Tier) -> Tier:
    """The targets of a tier that an instance in this role answers for.

    Who prefills answers for the first token, who decodes for the pace of the others and for the last one.
    """
    if role == "prefill":
        return dataclasses.replace(tier, tpot_slo_s=None)
    return dataclasses.replace(tier, ttft_slo_s=None) if role == "decode" else tier


def meets(tier: Tier, ttft_s: Floats, e2e_s: Floats, output_tokens: npt.NDArray[np.int32]) -> Bools:
    """Which requests meet every target that a tier has, shape (n,): as `is_met` of sql/macros/slo.sql."""
    met = e2e_s <= tier.deadline_s if tier.ttft_slo_s is None else ttft_s <= tier.ttft_slo_s
    if tier.tpot_slo_s is not None:
        pace_s = tpot_s(ttft_s, e2e_s, output_tokens)
        met &= (pace_s <= tier.tpot_slo_s) | ((output_tokens == 1) & ~np.isnan(e2e_s))
    return met


def trial_fleet(
    llm: str,
    deployment: Deployment,
    catalogue: Catalogue,
    config: Config,
    instances: int = INSTANCES,
    partner: Deployment | None = None,
) -> Fleet:
    """One endpoint of so many instances of `llm` that always serve, and of a partner PARTNERS."""
    sized = [(deployment, instances)] + ([] if partner is None else [(partner, PARTNERS)])
    return standing_fleet({llm: sized}, catalogue.serving([llm]), config)


def standing_fleet(
    pools: Mapping[str, Sequence[tuple[Deployment, int]]], catalogue: Catalogue, config: Config
) -> Fleet:
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
