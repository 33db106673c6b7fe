"""Capacity is the load that the replay sustains: the SLO holds at that load, not at a third more."""

import dataclasses

import numpy as np
import pytest
from small import call_once

from fleetcast.models.latency.batch_extension import extend_catalogue
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import measure_capacity_tokens_per_s, measure_idle_share
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import Region
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment

CATALOGUE = load_catalogue().of_era("2023", "here")
CONFIG = load_config("sageserve", CATALOGUE)
LLM, GPU = "llama2-70b", "h100-80gb"
RNG = np.random.default_rng(11)
MIX = (
    np.clip(RNG.lognormal(7.0, 0.5, 3000), 1, 8192).astype(np.int32),
    np.clip(RNG.lognormal(5.0, 0.8, 3000), 1, 2048).astype(np.int32),
)

measure_once = call_once(measure_capacity_tokens_per_s)


def capacity(
    tensor_parallel: int = 2,
    mix: tuple[np.ndarray, np.ndarray] = MIX,
    catalogue: Catalogue = CATALOGUE,
    config: RunConfig = CONFIG,
    llm: str = LLM,
) -> float:
    return measure_once(llm, Deployment(GPU, tensor_parallel), catalogue, config, *mix)


def with_batching(config: RunConfig, batching: str) -> RunConfig:
    """The config with another engine."""
    return dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, batching=batching))


def with_throughput_metric(batching: str = "whole") -> RunConfig:
    """The config whose plans use throughput, without the SLO."""
    plan = dataclasses.replace(CONFIG.plan, capacity="throughput")
    return with_batching(dataclasses.replace(CONFIG, plan=plan), batching)


def with_target(tier: str, **target: float) -> Catalogue:
    """The catalogue with another SLO target of a tier."""
    changed = dataclasses.replace(CATALOGUE.tiers[tier], **target)
    return dataclasses.replace(CATALOGUE, tiers={**CATALOGUE.tiers, tier: changed})


def test_capacity_rises_with_a_looser_slo() -> None:
    within = [
        capacity(catalogue=with_target("iw_fast", ttft_slo_s=seconds)) for seconds in (0.5, 1.0, 4.0, 20.0)
    ]
    assert within == sorted(set(within))


def test_a_target_per_output_token_alone_lowers_capacity_of_the_strictest_tier_only() -> None:
    """Below the pace of large batches the batches stay small; the tier that plans aim at decides."""
    paces_s = (0.038, 0.042, 0.05, 10.0)
    within = [capacity(catalogue=with_target("iw_fast", tpot_slo_s=pace_s)) for pace_s in paces_s]
    assert within == sorted(within)
    assert within[0] < 0.8 * within[-1]
    assert within[-1] == capacity() == capacity(catalogue=with_target("iw_normal", tpot_slo_s=paces_s[0]))


def test_an_slo_that_an_idle_instance_misses_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"No request of llama2-70b meets the targets of iw_fast .* 2 x h100"
    ):
        capacity(catalogue=with_target("iw_fast", tpot_slo_s=1e-6), mix=(MIX[0], np.maximum(MIX[1], 2)))


def test_capacity_rises_with_more_gpus_and_falls_with_longer_answers() -> None:
    assert capacity(tensor_parallel=4) > 1.5 * capacity(tensor_parallel=2)
    assert capacity(mix=(MIX[0], 3 * MIX[1])) < capacity() < capacity(mix=(MIX[0], np.ones_like(MIX[1])))


def test_capacity_is_the_same_when_measured_again() -> None:
    assert capacity() == measure_capacity_tokens_per_s(LLM, Deployment(GPU, 2), CATALOGUE, CONFIG, *MIX)


def waits_s(
    requests_per_instance_s: float, seed: int, tensor_parallel: int = 2, config: RunConfig = CONFIG
) -> np.ndarray:
    """Seconds to each first token at this load, in order of arrival: new samples, twice as many."""
    instances, requests = 4, 40_000
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, MIX[0].size, requests)
    tokens = [column[picks] for column in MIX]
    arrival_s = np.cumsum(rng.exponential(1 / (instances * requests_per_instance_s), requests))
    zeros = np.zeros(requests, np.int16)
    here = Region(("here",), {}, {GPU: tensor_parallel * instances}, (), "a test")
    alone = dataclasses.replace(CATALOGUE, llms={LLM: CATALOGUE.llms[LLM]}, regions={"here": here})
    same = dict.fromkeys(("instances_at_start", "min_instances", "max_instances"), instances)
    sized = dataclasses.replace(config.fleet, deployments={LLM: (Deployment(GPU, tensor_parallel),)}, **same)
    fleet = make_fleet(alone, sized, CONFIG.replay, seed=0)
    until_s = arrival_s[-1] + 1.0
    outcome = replay_trace(
        TraceArrays(arrival_s, zeros, zeros, zeros, *tokens),
        fleet,
        Schedule(np.full((1, 1), instances), hour_s=until_s),
        make_rules(CATALOGUE, CONFIG.replay, "follow"),
        until_s,
    )
    return outcome.first_token_s - arrival_s


def attained_share(load_share: float, seed: int) -> float:
    """Share of first tokens within the SLO at this share of the capacity."""
    slo_s = CATALOGUE.tiers["iw_fast"].ttft_slo_s
    assert slo_s is not None
    return float(np.mean(waits_s(load_share * capacity() / MIX[0].mean(), seed) <= slo_s))


def test_the_target_is_attained_up_to_the_capacity_and_not_beyond() -> None:
    """The SLO that a plan relies on. Capacity is known within some per cent, and the edge is steep."""
    target = CATALOGUE.tiers["iw_fast"].attainment_target_share * attained_share(0.01, seed=1)
    assert attained_share(0.95, seed=2) >= target
    assert attained_share(1.3, seed=3) < target / 2


@pytest.mark.parametrize(("tensor_parallel", "batching"), [(2, "whole"), (2, "chunked"), (8, "whole")])
def test_below_its_throughput_an_endpoint_keeps_up_and_above_it_falls_behind(
    tensor_parallel: int, batching: str
) -> None:
    """The defining law: the waits at the end of a long stretch stay as short as before, or grow."""
    config = with_throughput_metric(batching)
    tokens_per_s = capacity(tensor_parallel, config=config)

    def growth_s(load_share: float) -> float:
        rate = load_share * tokens_per_s / MIX[0].mean()
        waits = waits_s(rate, seed=4, tensor_parallel=tensor_parallel, config=config)
        second, last = (np.nanmedian(waits[10_000:20_000]), np.nanmedian(waits[30_000:]))
        return float(last - second)

    assert abs(growth_s(0.9)) < 1.0
    assert growth_s(1.1) > 60.0
    assert capacity(tensor_parallel, config=with_batching(CONFIG, batching)) < tokens_per_s


def test_capacity_never_exceeds_throughput() -> None:
    """Where memory has room for a thousand, first tokens arrive in time while the batches keep growing."""
    alone = {LLM: (Deployment(GPU, 8),)}
    fleet = dataclasses.replace(CONFIG.fleet, deployments=alone, max_batch=4096)
    roomy = extend_catalogue(CATALOGUE, fleet, "a test")
    in_time, at_all = (
        capacity(8, config=dataclasses.replace(config, fleet=fleet), catalogue=roomy)
        for config in (CONFIG, with_throughput_metric())
    )
    assert in_time == at_all


def test_where_all_requests_at_once_are_in_time_capacity_is_the_throughput() -> None:
    tiny = (np.full(9, 5, np.int32), np.full(9, 5, np.int32))
    patient = with_target("iw_fast", ttft_slo_s=600.0)
    found = capacity(mix=tiny, catalogue=patient)
    assert found == pytest.approx(capacity(mix=tiny, config=with_throughput_metric()), rel=1e-3)


def test_throughput_ignores_slos_and_phases_have_their_own() -> None:
    config = with_throughput_metric()
    strict = with_target("iw_fast", ttft_slo_s=1e-6)  # so short that no instance can meet it
    assert capacity(config=config, catalogue=strict) == capacity(config=config)
    assert capacity(config=config, mix=(MIX[0], 3 * MIX[1])) < capacity(config=config)
    prefill, decode = (Deployment(GPU, 2, role=role) for role in ("prefill", "decode"))
    first, rest = (
        measure_once(LLM, own, CATALOGUE, config, *MIX, partner=partner)
        for own, partner in ((prefill, decode), (decode, prefill))
    )
    assert min(first, rest) > capacity(config=config)
    assert 1 / first + 1 / rest == pytest.approx(
        1 / capacity(config=config), rel=0.2
    )  # time of one after the other
    with pytest.raises(ValueError, match=r"Only 0 of 20,000 requests of llama2-70b ever end .* more GPUs"):
        capacity(config=config, mix=(np.full(9, 10_000_000, np.int32), MIX[1][:9]))


def test_prompts_too_long_for_the_slo_do_not_make_capacity_zero() -> None:
    inputs = MIX[0].copy()
    inputs[: inputs.size // 5] = 16_000  # a fifth can never make it
    assert capacity(mix=(inputs, MIX[1])) > 0.1 * capacity()


def test_an_empty_mix_is_refused() -> None:
    nothing = np.zeros(0, np.int32)
    with pytest.raises(ValueError, match=r"No interactive request of llama2-70b .*Give some history"):
        capacity(mix=(nothing, nothing))


def test_prefill_and_decode_are_measured_separately() -> None:
    """Decode does not wait for prompts, nor prefill for answers: both sustain more than the whole.

    Prefill does not depend on the length of answers; decode sustains less input as they grow. Neither
    depends on how many instances of the other the trial has, as long as there are enough.
    """
    prefill, decode = (Deployment(GPU, 2, role=role) for role in ("prefill", "decode"))

    def part(own: Deployment, partner: Deployment, mix: tuple[np.ndarray, np.ndarray] = MIX) -> float:
        return measure_once(LLM, own, CATALOGUE, CONFIG, *mix, partner=partner)

    longer = (MIX[0], 3 * MIX[1])
    assert part(prefill, decode) > 1.1 * capacity()
    assert part(prefill, decode, longer) == pytest.approx(part(prefill, decode), rel=0.02)
    assert part(decode, prefill) > 1.1 * capacity()
    assert part(decode, prefill, longer) < 0.5 * part(decode, prefill)


def test_alone_on_an_instance_the_prompts_that_are_short_enough_are_in_time() -> None:
    profile = CATALOGUE.profile(LLM, GPU, 2)
    prefill_s = np.interp(MIX[0], profile.prefill_tokens, profile.prefill_s)
    for slo_s in (0.05, 0.15, 0.2, 0.5):
        tier = dataclasses.replace(CATALOGUE.tiers["iw_fast"], ttft_slo_s=slo_s)
        share = measure_idle_share(LLM, Deployment(GPU, 2), CATALOGUE, CONFIG, tier, *MIX)
        assert share == pytest.approx(np.mean(prefill_s <= slo_s), abs=0.012)  # of 20,000 draws
