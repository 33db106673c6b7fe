"""Data-parallel ranks: engines of one instance that run every step together (models/replay/engine/ranks.py).

tests/naive.py plays them too (test_replay.py), and vLLM's own schedulers do (test_vllm_decisions.py).
"""

import dataclasses
from typing import Any

import numpy as np
import pytest
from one_endpoint import a_fleet, a_trace, some_rules, with_ranks

from fleetcast.assets.lake.settings import build_settings, load_settings
from fleetcast.assets.replays.policy_inputs import fleet_and_rules
from fleetcast.models.latency.aiconfigurator_package import ask_package
from fleetcast.models.latency.aiconfigurator_profiles import aiconfigurator_profile, build_engine_query
from fleetcast.models.latency.latency_errors import scale_profile
from fleetcast.models.latency.pipeline_stages import split_into_stages
from fleetcast.models.replay.kernel_inputs import ALL_STEPS, FleetArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens
from fleetcast.models.world.mechanisms import Batching
from fleetcast.models.world.pool_pairing import check_pools
from fleetcast.models.world.toml_dataclasses import ConfigError

MIXTURE, GPU = "gpt-oss-20b", "h100-80gb"


def ranked_fleet(instances: int, ranks: int, **changes: Any) -> FleetArrays:
    """Instances of so many ranks, with chunked engines."""
    return with_ranks(a_fleet(instances, 8, batching=np.array([Batching.CHUNKED]), **changes), ranks)


def play(fleet: FleetArrays, arrival_s: Any, inputs: Any, outputs: Any, steps: int = ALL_STEPS) -> Outcome:
    count = int(fleet.slots[-1])
    rules = some_rules(steps_per_event=steps)
    return replay_trace(a_trace(arrival_s, inputs, outputs), fleet, Schedule([[count]]), rules, 3600.0)


def test_ranks_with_the_same_work_are_as_fast_as_instances_of_their_own() -> None:
    """Three requests arrive at a time, one for each rank: no rank ever waits for another."""
    times = np.repeat([0.0, 1.0, 1.5, 4.0], 3)
    sizes = np.repeat([700, 90, 1500, 33], 3), np.repeat([40, 200, 5, 90], 3)
    together, apart = play(ranked_fleet(1, 3), times, *sizes), play(ranked_fleet(3, 1), times, *sizes)
    np.testing.assert_array_equal(together.finish_s, apart.finish_s)
    assert together.instance_s.sum() * 3 == apart.instance_s.sum()  # one instance, not three
    assert sorted(together.slot[:3].tolist()) == [0, 1, 2]


def test_a_step_takes_as_long_as_that_of_the_slowest_rank() -> None:
    """A long answer at one rank; a prompt at the other holds up its step, and its cache every step after."""
    fleet = ranked_fleet(1, 2)
    alone = play(ranked_fleet(1, 1), [0.0], [16], [64])
    held_up = play(fleet, [0.0, 1.0], [16, 2048], [64, 64])
    assert held_up.slot.tolist() == [0, 1]
    prompt_s = 2048 / 1024  # of the other rank, in which the first makes one token, as in each step
    steps_before = np.ceil((1.0 - 16 / 1024) * 32 * 0.999)  # 1/32 s a step and a little for the cache
    after = 63 - int(steps_before) - 1
    slower_s = sum((2048 + n - (16 + steps_before + 1 + n)) / 65536 for n in range(after))
    longer_s = held_up.finish_s[0] - alone.finish_s[0]
    assert longer_s == pytest.approx(prompt_s - 1 / 32 + slower_s, abs=2 / 1024)


def test_experts_compute_the_tokens_of_all_ranks_together() -> None:
    """Half of a pass is in experts. A prompt at one rank of four is a quarter of what they may compute. It is
    padded in a recorded pass, of up to twice the eight seats.
    """
    fleet = with_ranks(ranked_fleet(1, 1), 4, expert_share=0.5)
    for prompts, seconds in (
        ([2048], 1 + 1 / 4),
        ([2048] * 4, 2),
        ([2048, 1024], 1 + 3 / 8),
        ([16], 16 / 1024),
    ):
        size = len(prompts)
        first_s = play(fleet, np.zeros(size), np.array(prompts), np.full(size, 2)).first_token_s
        np.testing.assert_array_equal(first_s, seconds)


def test_a_stretch_is_the_sum_of_its_slowest_steps() -> None:
    """The closed form equals single steps. One rank has a long cache, the other two requests: after 284 steps
    its cache is longer, and it is the slower one. Then many requests at random.
    """
    rng = np.random.default_rng(5)
    many = np.cumsum(rng.exponential(0.5, 200)), rng.integers(8, 200, 200), rng.integers(1, 600, 200)
    for instances, ranks, rows in ((1, 2, ([0.0, 0.25, 0.75], [50, 400, 50], 600)), (2, 4, many)):
        fleet = ranked_fleet(instances, ranks)
        latency = fleet.latency._replace(decode_s=np.arange(9.0)[None] / 256 + 1 / 32)
        fleet = fleet._replace(latency=latency._replace(decode_kv_s=np.full((1, 9), 1 / 4096)))
        leapt, stepped = play(fleet, *rows), play(fleet, *rows, steps=1)
        np.testing.assert_allclose(leapt.finish_s, stepped.finish_s, rtol=1e-12)
        assert leapt.events < stepped.events / 2


def test_a_request_goes_to_the_rank_with_the_least_that_waits_or_runs() -> None:
    """A waiting request counts four times: the rank with three running ones comes before one that waits."""
    fleet = ranked_fleet(1, 2, max_prefill_tokens=np.array([512]))
    outcome = play(fleet, [0.0, 0.0, 0.0, 4.0], [100, 5000, 100, 10], [400, 2, 400, 5])
    assert outcome.slot.tolist() == [0, 1, 0, 1]


def mixture(ranks: int) -> Catalogue:
    return load_catalogue().as_served(MIXTURE, Deployment(GPU, 1, data_parallel_size=ranks).llm_changes)


def test_ranks_share_the_experts_and_each_holds_the_rest() -> None:
    arch, fleet = load_catalogue().llms[MIXTURE], load_config("office", load_catalogue()).fleet
    common = arch.parameters_b - arch.expert_parameters_b
    used = common + arch.expert_parameters_b * arch.experts_per_token / arch.experts
    assert used == pytest.approx(arch.active_parameters_b)
    for ranks in (2, 8):
        served = mixture(ranks)
        bits = arch.weight_bits / 8 * 1e9
        weights = (common + arch.expert_parameters_b / ranks) * bits
        assert served.llms[MIXTURE].weight_bytes == pytest.approx(weights)
        assert kv_capacity_tokens(served, fleet, MIXTURE, GPU, 1) > kv_capacity_tokens(
            load_catalogue(), fleet, MIXTURE, GPU, 1
        )
        query = build_engine_query(served, MIXTURE, GPU, 1)
        assert (query.ranks, query.expert_parallel, query.tensor_parallel) == (ranks, 1, 1)
        whole = dataclasses.replace(served.llms[MIXTURE], is_expert_parallel=True)
        query = build_engine_query(dataclasses.replace(served, llms={MIXTURE: whole}), MIXTURE, GPU, 2)
        assert query.expert_parallel == 2 * ranks


def test_a_pass_of_ranks_sends_tokens_to_the_experts_of_others() -> None:
    """The package itself, not what was kept of its answers. Attention of more than a few tokens takes longer
    than sending them, so experts are never the whole of a pass.
    """
    alone, shared = (
        ask_package(build_engine_query(catalogue, MIXTURE, GPU, 1))
        for catalogue in (load_catalogue(), mixture(4))
    )
    assert shared["tables"][3][0] > alone["tables"][3][0]
    assert alone["expert_s"] == []
    share = np.array(shared["expert_s"]) / shared["tables"][1]
    assert share.min() > 0.55  # with sending; without, a half
    assert share.max() < 0.95


def test_the_part_of_experts_is_the_same_with_stages_and_errors() -> None:
    catalogue = mixture(4)
    profile = aiconfigurator_profile(catalogue, MIXTURE, GPU, 1)
    share = np.divide(profile.expert_s, profile.prefill_s)
    for changed in (split_into_stages(profile, 2, 0.0), scale_profile(catalogue, profile, 2.0, 3.0)):
        np.testing.assert_allclose(np.divide(changed.expert_s, changed.prefill_s), share)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"llm": "llama3.1-8b"}, "a dense llm shares no experts: its ranks are instances of their own"),
        ({"batching": "whole", "max_prefill_tokens": 8192}, r'needs role = "whole" .* batching = "chunked"'),
        ({"speculative_acceptance": (0.5,)}, "no speculative_acceptance"),
    ],
)
def test_ranks_that_cannot_be_are_refused(changes: dict[str, Any], says: str) -> None:
    catalogue = load_catalogue()
    fleet, llm = load_config("office", catalogue).fleet, changes.pop("llm", MIXTURE)
    pool = Deployment(GPU, 1, data_parallel_size=2, **changes)
    fleet = dataclasses.replace(fleet, deployments={llm: (pool,)})
    with pytest.raises(ConfigError, match=says):
        check_pools("here", fleet, catalogue)


def test_an_instance_of_a_config_has_its_ranks_and_the_policies_that_know_them() -> None:
    """Freeness, INFAaS and live moves look at one batch and one memory of an instance."""
    catalogue = load_catalogue()
    config = load_config("office", catalogue)
    pools = tuple(
        dataclasses.replace(pool, data_parallel_size=4) for pool in config.fleet.deployments[MIXTURE]
    )
    fleet = dataclasses.replace(config.fleet, deployments={**config.fleet.deployments, MIXTURE: pools})
    settings = build_settings(
        load_settings("office").lake, catalogue, dataclasses.replace(config, fleet=fleet)
    )
    arrays, _ = fleet_and_rules(settings, "compact")
    [kind] = np.flatnonzero(arrays.ranks > 1)
    of_kind = np.flatnonzero(arrays.kind == kind)
    instances = int(np.diff(arrays.slots)[of_kind].sum())
    assert arrays.gpus[kind] == 4 * pools[0].tensor_parallel
    assert arrays.pool.size == arrays.slots[-1] + 3 * instances
    assert np.bincount(arrays.instance_slot).max() == 4
    first = arrays.slots[of_kind[0]]
    assert (arrays.instance_slot[arrays.second_rank[first] :][:3] == first).all()
    with pytest.raises(
        ConfigError, match=r"llumnix .* serves no instances with a data_parallel_size above 1"
    ):
        fleet_and_rules(settings, "llumnix")
