"""Capacity is what the replay itself sustains: it holds at that load, and not at a third more."""

import dataclasses

import numpy as np
import pytest

from models.replay.capacity import capacity_tokens_per_s
from models.replay.fleet import make_fleet, make_rules
from models.replay.run import Drive, replay
from models.replay.state import Trace
from models.world.catalogue import Catalogue, Region, load_catalogue
from models.world.config import Config, Deployment
from models.world.loading import load_config

CATALOGUE = load_catalogue()
CONFIG = load_config("office", CATALOGUE)
LLM, GPU = "llama2-70b", "h100-80gb"
RNG = np.random.default_rng(11)
MIX = (
    np.clip(RNG.lognormal(7.0, 0.5, 3000), 1, 8192).astype(np.int32),
    np.clip(RNG.lognormal(5.0, 0.8, 3000), 1, 2048).astype(np.int32),
)


def capacity(
    tensor_parallel: int = 2,
    mix: tuple[np.ndarray, np.ndarray] = MIX,
    catalogue: Catalogue = CATALOGUE,
    config: Config = CONFIG,
    llm: str = LLM,
) -> float:
    return capacity_tokens_per_s(llm, Deployment(GPU, tensor_parallel), catalogue, config, *mix)


def with_target(tier: str, **target: float) -> Catalogue:
    """The catalogue with another target of a tier."""
    changed = dataclasses.replace(CATALOGUE.tiers[tier], **target)
    return dataclasses.replace(CATALOGUE, tiers={**CATALOGUE.tiers, tier: changed})


def test_capacity_rises_with_a_looser_slo() -> None:
    within = [
        capacity(catalogue=with_target("iw_fast", ttft_slo_s=seconds)) for seconds in (0.5, 1.0, 4.0, 20.0)
    ]
    assert within == sorted(set(within))


def test_a_target_per_output_token_alone_lowers_capacity_of_the_strictest_tier_only() -> None:
    """Below the pace of large batches the batches must stay small; the tier that plans aim at decides."""
    paces_s = (0.038, 0.042, 0.05, 10.0)
    within = [capacity(catalogue=with_target("iw_fast", tpot_slo_s=pace_s)) for pace_s in paces_s]
    assert within == sorted(within)
    assert within[0] < 0.8 * within[-1]
    assert within[-1] == capacity() == capacity(catalogue=with_target("iw_normal", tpot_slo_s=paces_s[0]))


def test_a_target_that_no_idle_instance_meets_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"No request of llama2-70b meets the targets of iw_fast .* 2 x h100"
    ):
        capacity(catalogue=with_target("iw_fast", tpot_slo_s=1e-6), mix=(MIX[0], np.maximum(MIX[1], 2)))


def test_capacity_rises_with_more_gpus_and_falls_with_longer_answers() -> None:
    assert capacity(tensor_parallel=4) > 1.5 * capacity(tensor_parallel=2)
    assert capacity(mix=(MIX[0], 3 * MIX[1])) < capacity() < capacity(mix=(MIX[0], np.ones_like(MIX[1])))


def test_capacity_is_the_same_when_measured_again() -> None:
    assert capacity() == capacity()


def attained_share(load_share: float, seed: int) -> float:
    """Share of first tokens within the SLO at so much of the capacity: other draws, ten times as many."""
    instances, requests = 4, 40_000
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, MIX[0].size, requests)
    tokens = [column[picks] for column in MIX]
    requests_per_s = load_share * instances * capacity() / tokens[0].mean()
    arrival_s = np.cumsum(rng.exponential(1 / requests_per_s, requests))
    nobody = np.zeros(requests, np.int16)
    here = Region(("here",), {}, {GPU: 2 * instances}, (), "a test")
    alone = dataclasses.replace(CATALOGUE, llms={LLM: CATALOGUE.llms[LLM]}, regions={"here": here})
    same = dict.fromkeys(("instances_at_start", "min_instances", "max_instances"), instances)
    sized = dataclasses.replace(CONFIG.fleet, deployments={LLM: (Deployment(GPU, 2),)}, **same)
    fleet = make_fleet(alone, sized, CONFIG.replay, seed=0)
    until_s = arrival_s[-1] + 1.0
    outcome = replay(
        Trace(arrival_s, nobody, nobody, nobody, *tokens),
        fleet,
        Drive(np.full((1, 1), instances), hour_s=until_s),
        make_rules(CATALOGUE, CONFIG.replay, "follow"),
        until_s,
    )
    slo_s = CATALOGUE.tiers["iw_fast"].ttft_slo_s
    assert slo_s is not None
    return float(np.mean(outcome.first_token_s - arrival_s <= slo_s))


def test_the_target_is_attained_up_to_the_capacity_and_not_beyond() -> None:
    """The SLO that a plan relies on. Capacity is known within some per cent, and the edge is steep."""
    target = CATALOGUE.tiers["iw_fast"].attainment_target_share * attained_share(0.01, seed=1)
    assert attained_share(0.95, seed=2) >= target
    assert attained_share(1.3, seed=3) < target / 2


def test_prompts_too_long_for_the_slo_on_an_empty_instance_do_not_make_capacity_vanish() -> None:
    inputs = MIX[0].copy()
    inputs[: inputs.size // 5] = 16_000  # a fifth can never make it
    assert capacity(mix=(inputs, MIX[1])) > 0.1 * capacity()


def test_an_empty_mix_is_refused() -> None:
    nothing = np.zeros(0, np.int32)
    with pytest.raises(ValueError, match=r"No interactive request of llama2-70b .*Give some history"):
        capacity(mix=(nothing, nothing))


def test_parts_of_requests_are_measured_apart() -> None:
    """Who decodes is not held up by prompts, who prefills not by answers: both sustain more than the whole.

    Prefill does not care how long answers are, decode sustains less input the longer they are; and neither
    depends on how many instances of the other the trial has, as long as they are to spare.
    """
    prefill, decode = (Deployment(GPU, 2, role=role) for role in ("prefill", "decode"))

    def part(own: Deployment, partner: Deployment, mix: tuple[np.ndarray, np.ndarray] = MIX) -> float:
        return capacity_tokens_per_s(LLM, own, CATALOGUE, CONFIG, *mix, partner=partner)

    longer = (MIX[0], 3 * MIX[1])
    assert part(prefill, decode) > 1.1 * capacity()
    assert part(prefill, decode, longer) == pytest.approx(part(prefill, decode), rel=0.02)
    assert part(decode, prefill) > 1.1 * capacity()
    assert part(decode, prefill, longer) < 0.5 * part(decode, prefill)
