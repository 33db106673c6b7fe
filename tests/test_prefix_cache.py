"""What prompts share: closed forms, who is forgotten first, cold instances, the router, real hashes."""

import dataclasses
import gzip
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from one_endpoint import PREFILL_S_PER_TOKEN, a_fleet, a_trace, run, some_rules
from wired import DAY, changed

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.assets.replays.replay_workloads import prompt_arrays, read_workload
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.world.mechanisms import Prefix, Routing
from fleetcast.models.world.toml_dataclasses import ConfigError

BLOCK = 64
MOONCAKE = Path(__file__).parents[2] / "shared" / "data" / "traces" / "mooncake_synthetic_trace.jsonl.gz"


def with_hashes(trace: TraceArrays, prompts: Sequence[Sequence[int]]) -> TraceArrays:
    """The same requests, whose prompts have these blocks."""
    return trace._replace(
        first_hash=np.cumsum([0, *map(len, prompts)]),
        hashes=np.array([one for prompt in prompts for one in prompt], np.int64),
    )


def caching(instances: int, room_tokens: int = 1 << 20, **more: Any) -> FleetArrays:
    return a_fleet(
        instances, max_batch=8, prefix=Prefix.BLOCKS, prefix_block_tokens=BLOCK, kv_block_tokens=16,
        kv_capacity=np.array([room_tokens]), **more,
    )  # fmt: skip


def reused(
    prompts: Sequence[Sequence[int]], fleet: FleetArrays, tokens: int = 3 * BLOCK, **rules: Any
) -> list[int]:
    """Tokens that each of these requests reuses, who come so far apart that they never meet."""
    trace = with_hashes(a_trace(100.0 * np.arange(len(prompts)), tokens, 2), prompts)
    return run(trace, fleet, some_rules(**rules)).reused.tolist()


def test_what_is_cached_is_not_computed_again_and_its_context_is_paid_for() -> None:
    context_s = 2.0**-20
    fleet = caching(1)
    fleet = fleet._replace(latency=fleet.latency._replace(prefill_context_s=np.array([context_s])))
    trace = a_trace([0.0, 100.0, 200.0], [200, 250, 200], [1, 1, 1])
    outcome = run(with_hashes(trace, [[1, 2, 3, 4], [1, 2, 3, 9], [1, 2, 3, 4]]), fleet)
    assert outcome.reused.tolist() == [0, 3 * BLOCK, 3 * BLOCK]  # the fourth block of the first is not whole
    ttft_s = outcome.first_token_s - trace.arrival_s
    own = np.array([200, 250 - 192, 200 - 192])
    np.testing.assert_array_equal(ttft_s, own * PREFILL_S_PER_TOKEN + context_s * own * [0, 192, 192])
    assert outcome.reused_tokens == 2 * 192
    assert outcome.cached_tokens == own.sum()


def test_the_last_block_of_a_prompt_is_always_computed() -> None:
    assert reused([[1, 2], [1, 2]], caching(1), tokens=2 * BLOCK) == [0, 2 * BLOCK - 16]


def test_as_much_as_the_trace_says_is_reused_wherever_it_goes() -> None:
    trace = a_trace([0.0, 100.0, 200.0], 100, 1)._replace(cached_tokens=np.array([0, 60, 100], np.int32))
    outcome = run(trace, a_fleet(3, prefix=Prefix.GIVEN), some_rules(routing=Routing.ROUND_ROBIN))
    assert outcome.reused.tolist() == [0, 60, 99]
    np.testing.assert_allclose(
        outcome.first_token_s - trace.arrival_s, np.array([100, 40, 1]) * PREFILL_S_PER_TOKEN
    )


def test_the_block_used_least_recently_goes_first_and_of_one_prompt_the_last() -> None:
    """Room for eight blocks; prompts of three, and what they generate."""
    fleet = caching(1, 8 * BLOCK)
    a, b, c = [1, 2, 3], [11, 12, 13], [21, 22, 23]
    assert reused([a, b, a, b], fleet)[2:] == [3 * BLOCK - 16] * 2
    assert reused([a, b, c, a], fleet)[3] == BLOCK  # c took the place of the last two blocks of a
    assert reused([a, b, a, c, a, b], fleet)[4:] == [3 * BLOCK - 16, BLOCK]  # of b, since a was used again


def test_requests_that_hold_a_block_together_fill_memory_once() -> None:
    """Two prompts of four blocks, three of them in common, in a memory of six: both run at once."""
    trace = with_hashes(a_trace([0.0, 0.0], 4 * BLOCK, 20), [[1, 2, 3, 4], [1, 2, 3, 5]])
    together = run(trace, caching(1, 6 * BLOCK))
    assert together.admitted_s.tolist() == [0.0, 0.0]
    apart = run(with_hashes(trace, [[1, 2, 3, 4], [6, 7, 8, 9]]), caching(1, 6 * BLOCK))
    assert apart.admitted_s[1] > apart.finish_s[0] - 1e-9


def test_an_instance_that_was_given_away_has_forgotten() -> None:
    trace = with_hashes(a_trace([0.0, 10.0, 1500.0], 2 * BLOCK + 1, 2), [[1, 2]] * 3)
    fleet = caching(1, min_instances=np.zeros(1, np.int64))
    targets = [[[1]], [[0]], [[1]]]

    def play(targets: list[list[list[int]]]) -> Outcome:
        return replay_trace(trace, fleet, Schedule(np.array(targets), hour_s=600.0), some_rules(), 1800.0)

    assert play([[[1]]] * 3).reused.tolist() == [0, 2 * BLOCK, 2 * BLOCK]
    assert play(targets).reused.tolist() == [0, 2 * BLOCK, 0]


def test_the_router_weighs_what_is_cached_against_who_has_less_to_do() -> None:
    prompts = [[1, 2, 3], [11, 12, 13]] * 4
    aware = reused(prompts, caching(2), routing=Routing.LEAST_WORK)
    blind = reused(prompts, caching(2), routing=Routing.ROUND_ROBIN)
    assert aware == [0, 0] + [3 * BLOCK - 16] * 6  # whoever is idle, the first one, has both
    assert aware == blind  # in turn each prompt comes to its own
    odd = [[1, 2, 3], [11, 12, 13], [1, 2, 3]] * 3
    assert sum(reused(odd, caching(2), routing=Routing.LEAST_WORK)) > sum(
        reused(odd, caching(2), routing=Routing.ROUND_ROBIN)
    )
    # one that is busy with little else has it: what would have to be computed elsewhere weighs more
    busy = with_hashes(
        a_trace([0.0, 50.0, 50.01], [3 * BLOCK, BLOCK, 3 * BLOCK], 50), [[1, 2, 3], [7], [1, 2, 3]]
    )
    assert run(busy, caching(2), some_rules(routing=Routing.LEAST_WORK)).slot.tolist() == [0, 0, 0]
    assert run(busy, caching(2)).slot.tolist()[2] == 1
    # a hundred at once: those that would wait too long behind the one who has it go to the other
    trace = with_hashes(a_trace([0.0, *[50.0] * 100], 3 * BLOCK, 50), [[1, 2, 3]] * 101)
    outcome = run(trace, caching(2), some_rules(routing=Routing.LEAST_WORK))
    assert set(outcome.slot.tolist()) == {0, 1}


@pytest.mark.skipif(not MOONCAKE.exists(), reason="no Mooncake trace next to the project")
def test_one_instance_that_forgets_nothing_reuses_what_was_there_before() -> None:
    with gzip.open(MOONCAKE, "rt") as lines:
        rows = [json.loads(line) for line in lines][:800]
    tokens = np.array([row["input_length"] for row in rows])
    blank = np.zeros(len(rows), np.int16)
    arrival_s = np.arange(len(rows)) * 500.0  # so that each has ended before the next comes
    trace = with_hashes(
        TraceArrays(arrival_s, blank, blank, blank, tokens.astype(np.int32), np.full(len(rows), 2, np.int32)),
        [row["hash_ids"] for row in rows],
    )
    fleet = a_fleet(1, max_batch=8, prefix=Prefix.BLOCKS, prefix_block_tokens=512, kv_block_tokens=16,
                    kv_capacity=np.array([1 << 26]))  # fmt: skip
    seen, expected = set[int](), []
    for row in rows:
        whole = row["hash_ids"][: row["input_length"] // 512]
        known = next((n for n, one in enumerate(whole) if one not in seen), len(whole))
        expected.append(min(512 * known, (row["input_length"] - 1) // 16 * 16))
        seen.update(whole)
    outcome = run(trace, fleet)
    assert outcome.reused.tolist() == expected
    assert sum(expected) > 0.1 * tokens.sum()


def test_the_lake_s_requests_say_what_they_share(wired_day: RunSettings) -> None:
    given = read_workload(wired_day, DAY).trace
    rows = wired_day.lake.read("requests", trace=wired_day.trace, day=DAY).to_pandas()
    assert given.cached_tokens.tolist() == rows["cached_tokens"].fillna(0).astype(int).tolist()
    assert given.cached_tokens.sum() > 0
    blocks = changed(wired_day, "fleet", prefix="blocks")
    with pytest.raises(
        ConfigError, match=r'prefix = "blocks" needs prefix_hashes, which no request of wired'
    ):
        read_workload(blocks, DAY)
    table = pa.table(
        {
            "prefix_hashes": pa.array([[7, 8], None, [7, 9, 10], [7, 8, 11, 12]], pa.list_(pa.uint64())),
            "session_id": ["a", None, None, "a"],
            "input_tokens": [130, 400, 192, 256],
            "output_tokens": [64, 64, 64, 1],
        }
    )
    fleet = dataclasses.replace(blocks.config.fleet, prefix_block_tokens=64)
    columns = prompt_arrays(table, fleet, "x.toml", "wired")
    assert columns["first_hash"].tolist() == [0, 3, 3, 6, 10]
    first, second, answer, *rest = columns["hashes"].tolist()
    assert rest[:1] == [first]
    assert rest[3:] == [first, second, answer, rest[-1]]  # the next turn of the session holds the answer
    assert len({first, second, answer, *rest}) == 6
    assert prompt_arrays(table, dataclasses.replace(fleet, prefix="none"), "x.toml", "wired") == {}


def test_capacity_is_measured_on_what_need_not_be_computed(wired_day: RunSettings, tmp_path: Path) -> None:
    for mix in token_mixes(wired_day, DAY).values():
        assert mix.cached_tokens is not None
        share = mix.cached_tokens.sum() / mix.input_tokens.sum()
        assert share == pytest.approx(0.8 / 3, abs=0.05)  # a third of four fifths of them
    none = token_mixes(changed(wired_day, "fleet", prefix="none"), DAY)
    assert all(mix.cached_tokens is None for mix in none.values())
    hashed = with_hashed_history(wired_day, tmp_path)
    for mix in token_mixes(changed(hashed, "fleet", prefix="blocks", prefix_block_tokens=64), DAY).values():
        assert mix.cached_tokens is not None
        assert (mix.cached_tokens <= np.minimum(128, mix.input_tokens)).all()
        assert (mix.cached_tokens == np.minimum(128, mix.input_tokens)).mean() > 0.9


def with_hashed_history(settings: RunSettings, folder: Path) -> RunSettings:
    """A lake whose day before has prompts that begin with the same two blocks, by llm, then go their ways."""
    before = DAY - timedelta(days=1)
    table = settings.lake.read("requests", trace=settings.trace, day=before)
    code = {llm: n for n, llm in enumerate(settings.catalogue.llms)}
    hashes = [
        [2 * code[llm], 2 * code[llm] + 1, 1000 + row] for row, llm in enumerate(table["llm"].to_pylist())
    ]
    at = table.schema.get_field_index("prefix_hashes")
    column = pa.array(hashes, table.schema.field("prefix_hashes").type)
    hashed = table.set_column(at, "prefix_hashes", column).select(SCHEMAS["requests"].names)
    own = dataclasses.replace(settings, lake=Lake(folder))
    own.lake.write("requests", hashed, trace=settings.trace, day=before)
    return own


def test_a_trace_without_what_the_fleet_needs_is_refused() -> None:
    plain = a_trace([0.0], 10, 2)
    with pytest.raises(ValueError, match=r'prefix = "given" needs cached_tokens of all requests'):
        run(plain, a_fleet(1, prefix=Prefix.GIVEN))
    with pytest.raises(ValueError, match=r'prefix = "blocks" needs the hashes of all prompts'):
        run(plain, caching(1))
    with pytest.raises(ValueError, match=r"hashes must be numbers from 0 to 2\^31"):
        run(with_hashes(plain, [[1 << 40]]), caching(1))
