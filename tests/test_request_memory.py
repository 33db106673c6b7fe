"""Memory that a request takes whatever its length: states, and windows."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_endpoint import a_fleet, a_trace, run
from typer.testing import CliRunner

from fleetcast.models.latency.roofline import deployment_work, roofline_decode_s, roofline_profile
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.trials.capacity import trial_fleet
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_entries import Llm
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.instance_kv_memory import (
    fixed_kv_blocks,
    kv_capacity_tokens,
    longest_request_tokens,
)
from fleetcast.models.world.mechanisms import Batching
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines.cli import cli_app

CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
LLM, GPU = "qwen3-32b", "h100-80gb"
BLOCK_TOKENS = 64


def play_one_block(blocks: int, fixed_blocks: int, batching: Batching, seed: int) -> Outcome:
    """Replay requests of a block each at an instance with so many blocks; each takes `fixed_blocks` more."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.integers(0, 16, 40)) / 128
    trace = a_trace(arrival_s, rng.integers(1, 32, 40), rng.integers(1, 32, 40))
    fleet = a_fleet(
        1,
        max_batch=40,
        batching=np.array([batching]),
        kv_block_tokens=BLOCK_TOKENS,
        kv_capacity=np.array([blocks * BLOCK_TOKENS]),
        request_blocks=np.array([fixed_blocks]),
    )
    return run(trace, fleet, horizon_s=1e6)


@given(
    held=st.integers(1, 6),
    spare=st.integers(0, 3),
    fixed_blocks=st.integers(0, 3),
    batching=st.sampled_from(Batching),
    seed=st.integers(0, 9),
)
def test_an_instance_holds_as_many_requests_as_their_whole_memory_fits(
    held: int, spare: int, fixed_blocks: int, batching: Batching, seed: int
) -> None:
    """Where each request fits one block: M blocks with F more each are as M // (1 + F) blocks with none."""
    blocks = held * (1 + fixed_blocks) + min(spare, fixed_blocks)
    with_fixed = play_one_block(blocks, fixed_blocks, batching, seed)
    without = play_one_block(held, 0, batching, seed)
    np.testing.assert_array_equal(with_fixed.finish_s, without.finish_s)
    np.testing.assert_array_equal(with_fixed.preemptions, without.preemptions)
    assert np.isfinite(with_fixed.finish_s).all()


def with_cache(**keys: float | int) -> Llm:
    return dataclasses.replace(CATALOGUE.llms[LLM], **keys)


def test_what_a_request_takes_by_hand() -> None:
    """qwen3-32b with a quarter of its layers: 2 * 16 * 8 * 128 * 2 bytes a token, 16 tokens a block."""
    arch = with_cache(cache_layers=16, request_cache_mb=150.0)
    assert arch.kv_bytes_per_token == 65_536
    block_bytes = 65_536 * OFFICE.fleet.kv_block_tokens
    assert fixed_kv_blocks(arch, OFFICE.fleet, 1) == -(-150_000_000 // block_bytes)
    assert fixed_kv_blocks(arch, OFFICE.fleet, 16) == -(-75_000_000 // block_bytes)  # two copies of a head
    assert fixed_kv_blocks(with_cache(), OFFICE.fleet, 1) == 0
    catalogue = dataclasses.replace(CATALOGUE, llms={LLM: arch})
    capacity = kv_capacity_tokens(catalogue, OFFICE.fleet, LLM, GPU, 2)
    longest = longest_request_tokens(catalogue, OFFICE.fleet, LLM, GPU, 2)
    assert capacity - longest == fixed_kv_blocks(arch, OFFICE.fleet, 2) * OFFICE.fleet.kv_block_tokens
    profiled = dataclasses.replace(catalogue, latency=(roofline_profile(catalogue, LLM, GPU, 2),))
    fleet = trial_fleet(LLM, Deployment(GPU, 2), profiled, OFFICE, instances=1)
    assert fleet.request_blocks.tolist() == [fixed_kv_blocks(arch, OFFICE.fleet, 2)]
    assert (fleet.kv_capacity[0], fleet.max_request_tokens[0]) == (capacity, longest)


def test_a_step_of_the_roofline_reads_what_each_request_keeps() -> None:
    """Of 2 x H100 and 100 MB a request: 100 MB at twice 3.35 TB/s times the share that engines reach."""
    arch, gpu, efficiency = with_cache(request_cache_mb=100.0), CATALOGUE.gpus[GPU], CATALOGUE.efficiency
    batch = np.array([1, 10])
    longer_s = roofline_decode_s(deployment_work(arch, gpu, 2), batch, efficiency) - roofline_decode_s(
        deployment_work(with_cache(), gpu, 2), batch, efficiency
    )
    expected_s = 100e6 / (2 * gpu.bandwidth_tb_per_s * 1e12 * efficiency.bandwidth_share)
    np.testing.assert_allclose(longer_s, batch * expected_s, rtol=1e-6)


def test_an_instance_without_room_for_one_request_is_refused() -> None:
    catalogue = dataclasses.replace(CATALOGUE, llms={LLM: with_cache(request_cache_mb=100_000.0)})
    with pytest.raises(ConfigError, match=r"weights take 61 GiB, a request 100,000 MB, 1 x h100-80gb have"):
        kv_capacity_tokens(catalogue, OFFICE.fleet, LLM, GPU, 1)
    kept = dataclasses.replace(CATALOGUE, llms={LLM: with_cache(request_cache_mb=150.0)})
    profiled = dataclasses.replace(kept, latency=(roofline_profile(kept, LLM, GPU, 2),))
    with pytest.raises(ConfigError, match=r"qwen3-32b: kv_tokens = 500 hold no request, which takes 576 at"):
        trial_fleet(LLM, Deployment(GPU, 2, kv_tokens=500), profiled, OFFICE, instances=1)


def test_try_serves_an_llm_whose_layers_keep_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen3.5-27B on one H100: memory bounds its batch, and 256 clients wait; 32 do not."""
    pytest.importorskip("aiconfigurator_core", reason="aiconfigurator-core has no wheel for this platform")
    monkeypatch.chdir(tmp_path)
    model = "Qwen/Qwen3.5-27B"
    load = ["--concurrency", "32", "--concurrency", "256", "--input", "1024", "--output", "64"]
    found = CliRunner().invoke(
        cli_app, ["try", model, *load, "--fleet", f"1 x {model}@{GPU}"], env={"COLUMNS": "400"}
    )
    assert found.exit_code == 0, found.output
    ttft_p50 = [
        float(row.replace(",", "").split()[10]) for row in re.findall(r"^\d+ at once.*", found.stdout, re.M)
    ]
    assert ttft_p50[1] > 5 * ttft_p50[0], found.stdout
