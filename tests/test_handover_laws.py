"""Separate prefill and decode: what depends on their GPUs, the link between them and its queue."""

import dataclasses

import numpy as np
import pytest
import theory
from hypothesis import given, settings
from hypothesis import strategies as st
from one_endpoint import DECODE_S, KV_S, PREFILL_S_PER_TOKEN, a_fleet, a_pair, a_trace, run

from fleetcast.models.latency import LatencyTables
from fleetcast.models.replay.kernel_inputs import FleetArrays
from fleetcast.models.replay.session.draft_tables import make_draft_tables
from fleetcast.models.trials.goodput import goodput_per_s
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment

PROMPTS, OUTPUTS, LINKS = st.integers(1, 4000), st.integers(2, 80), st.integers(0, 64)
TICK_S = 1 / 65536  # of links, so that sums of seconds are exact


def two_kinds(link_token_s: float) -> FleetArrays:
    """One prefill instance, and one decode instance of another GPU type whose steps are four times faster."""
    tables = LatencyTables(
        np.array([[0.0, 1024.0]] * 2),
        np.array([[0.0, 1.0], [0.0, 5.0]]),
        np.array([[PREFILL_S_PER_TOKEN] * 2, [5 * PREFILL_S_PER_TOKEN] * 2]),
        np.array([[DECODE_S] * 2, [DECODE_S / 4] * 2]),
        np.array([[KV_S] * 2, [KV_S / 2] * 2]),
        np.zeros(2),
        *np.zeros((2, 2, 2)),
    )
    ones, zeros = np.ones(2, np.int64), np.zeros(2, np.int64)
    return a_pair(1, 1, 0.0)._replace(
        kind=np.array([0, 1]), slot_kind=np.array([0, 1]), ranks=ones, latency=tables,
        boot_factor=np.ones(2),
        link_token_s=np.array([link_token_s / 2, link_token_s]), link_layers=ones, gpu=zeros, gpus=ones,
        kv_capacity=1_000_000 * ones, request_blocks=zeros, batching=zeros, max_batch=ones,
        max_prefill_tokens=8192 * ones, is_async=np.zeros(2, bool),
        drafts=make_draft_tables([(), ()], [0.0, 0.0]),
    )  # fmt: skip


@settings(max_examples=40)
@given(PROMPTS, OUTPUTS, LINKS)
def test_each_phase_has_the_speed_of_its_own_gpus(prompt: int, output: int, link: int) -> None:
    """The slower end of the link sets the transfer time; each decode step has the time of the decode GPU."""
    found = run(a_trace([0.0], prompt, output), two_kinds(link * TICK_S), horizon_s=3600.0)
    prefill_s = prompt * PREFILL_S_PER_TOKEN
    cached = prompt + np.arange(output - 1)
    steps_s = (output - 1) * DECODE_S / 4 + cached.sum() * KV_S / 2
    assert found.first_token_s[0] == pytest.approx(prefill_s, abs=1e-12)
    assert found.finish_s[0] == pytest.approx(prefill_s + prompt * link * TICK_S + steps_s, abs=1e-9)


@settings(max_examples=40)
@given(st.lists(st.tuples(PROMPTS, OUTPUTS), min_size=1, max_size=12))
def test_an_instant_link_equals_one_whole_instance(tokens) -> None:
    """Identical to the last bit, whichever instances prefill and decode."""
    prompt, output = np.array(tokens).T
    trace = a_trace(64.0 * np.arange(prompt.size), prompt, output)
    apart, whole = (run(trace, fleet, horizon_s=4096.0) for fleet in (a_pair(2, 3, 0.0), a_fleet(1)))
    assert (apart.sent_from >= 0).all()
    np.testing.assert_array_equal(apart.first_token_s, whole.first_token_s)
    np.testing.assert_array_equal(apart.finish_s, whole.finish_s)
    assert apart.recomputed_tokens == 0
    assert apart.cached_tokens == whole.cached_tokens == (prompt + output - 1).sum()


@settings(max_examples=40)
@given(PROMPTS, OUTPUTS, LINKS, LINKS, st.integers(1, 40))
def test_a_faster_link_or_layerwise_transfer_never_delays(prompt, output, link, wider, layers) -> None:
    trace = a_trace([0.0], prompt, output)

    def finish_s(ticks: int, parts: int) -> float:
        return float(run(trace, a_pair(1, 1, ticks * TICK_S, parts), horizon_s=3600.0).finish_s[0])

    assert finish_s(min(link, wider), layers) <= finish_s(max(link, wider), layers) + 1e-12
    assert finish_s(link, layers) <= finish_s(link, 1) + 1e-12


def test_a_link_under_poisson_arrivals_is_an_m_d_1_queue() -> None:
    """Equal caches of forty idle instances queue on the link of the one decode instance."""
    requests, prompt, busy_share = 150_000, 256, 0.7
    taken_s = prompt / 4096
    came_s = np.cumsum(np.random.default_rng(7).exponential(taken_s / busy_share, requests))
    found = run(a_trace(came_s, prompt, 2), a_pair(40, 1, 1 / 4096, max_batch=64))
    under_way_s = (found.came_s - found.sent_s)[: requests - 1000]
    assert np.nanmin(under_way_s) == pytest.approx(taken_s, abs=1e-9)
    expected_s = theory.mean_wait_s(busy_share / taken_s, taken_s, taken_s**2)
    assert under_way_s.mean() - taken_s == pytest.approx(expected_s, rel=0.02)


def test_one_token_answers_need_only_the_prefill_pool() -> None:
    """No KV transfer happens, whatever the link. More of every resource never lowers the rate."""
    catalogue = load_catalogue().of_era("2023", "here")
    config = load_config("sageserve", catalogue)
    tier = dataclasses.replace(catalogue.tiers["iw_fast"], ttft_slo_s=1.0)
    inputs = np.random.default_rng(5).integers(100, 3000, 3000).astype(np.int32)
    whole = Deployment("h100-80gb", 1)
    pools = {role: dataclasses.replace(whole, role=role) for role in ("prefill", "decode")}

    def rate(*team: tuple[Deployment, int], output: int = 1, teams: int | None = None) -> float:
        outputs = np.full(3000, output, np.int32)
        return goodput_per_s(
            "llama3.1-8b", team, catalogue, config, tier, inputs, outputs, 20.0, teams
        )  # fmt: skip

    apart = rate((pools["prefill"], 2), (pools["decode"], 2), teams=2)
    assert apart == pytest.approx(2 * rate((whole, 1), teams=4), rel=0.01)
    long = [rate((pools["prefill"], n), (pools["decode"], n), output=100) / n for n in (1, 2)]
    assert long[1] >= 0.98 * long[0]
