"""Sessions and block hashes of a made trace: prompts grow and repeat as those of the original, by stream."""

import itertools
import shutil
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from fleetcast.assets.demand.generate_trace import GenerationRequest, generate_trace
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.traffic import sessions as of_sessions
from fleetcast.models.traffic.prefixes import draw_prefixes, fit_prefixes
from fleetcast.models.traffic.sessions import Turns
from fleetcast.models.traffic.trace_changes import TraceChanges
from fleetcast.models.world.catalogue import load_catalogue

CATALOGUE = load_catalogue()
MOONCAKE = (
    Path(__file__).resolve().parents[2] / "shared" / "data" / "traces" / "mooncake_synthetic_trace.jsonl.gz"
)
BLOCK_TOKENS = 100


def sessions(count: int, rng: np.random.Generator) -> list[list[int]]:
    """Sessions of one to four turns, each two blocks longer; half of them begin with a system prompt."""
    prompts, fresh = [], iter(range(100, 10_000_000))
    waiting = []
    while len(prompts) < count:
        if len(waiting) < 60:
            begin = [7] if rng.random() < 0.5 else []
            waiting.append((begin + [next(fresh) for _ in range(rng.integers(2, 9))], rng.integers(0, 4)))
        chain, turns = waiting.pop(rng.integers(len(waiting)))
        prompts.append(chain)
        if turns:
            waiting.append(([*chain, next(fresh), next(fresh)], turns - 1))
    return prompts


def flat(prompts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    first = np.concatenate([[0], np.cumsum([len(prompt) for prompt in prompts])])
    return first, np.array([block for prompt in prompts for block in prompt], np.uint64)


def chains(first: np.ndarray, hashes: np.ndarray) -> list[list[int]]:
    return [hashes[a:b].tolist() for a, b in itertools.pairwise(first)]


def reuse(prompts: list[list[int]]) -> float:
    blocks = [block for prompt in prompts for block in prompt]
    return 1 - len(set(blocks)) / len(blocks)


@pytest.fixture
def original() -> list[list[int]]:
    return sessions(4000, np.random.default_rng(1))


def made_like(original: list[list[int]], requests: int = 12_000) -> tuple[np.ndarray, list[list[int]]]:
    """Requests of two streams, the second of which is that of all odd requests of the original."""
    stream = np.arange(len(original)) % 2
    own = [[block + 10**9 * int(of) for block in prompt] for of, prompt in zip(stream, original, strict=True)]
    tokens = BLOCK_TOKENS * np.array([len(prompt) for prompt in own])
    rng = np.random.default_rng(2)
    picked_streams = rng.integers(len(own), size=requests)
    ids = np.uint64(5 << 40) + np.arange(requests, dtype=np.uint64)
    templates = fit_prefixes(stream, tokens, *flat(own))
    return stream[picked_streams], chains(
        *draw_prefixes(templates, stream[picked_streams], tokens[picked_streams], ids, rng, *alone(requests))
    )


def alone(requests: int) -> tuple[Turns, np.ndarray]:
    """Requests of no session."""
    no_client = np.full(requests, -1)
    return Turns(no_client, no_client), no_client


def test_blocks_repeat_as_often_in_chains_that_are_trees(original):
    stream, made = made_like(original)
    for of in (0, 1):
        before = [prompt for n, prompt in enumerate(original) if n % 2 == of]
        now = [prompt for prompt, one in zip(made, stream, strict=True) if one == of]
        assert reuse(now) == pytest.approx(reuse(before), rel=0.15)
        with_system = np.mean([p[0] == 7 for p in before]), np.mean([p[0] == 7 + 10**9 * of for p in now])
        assert with_system[1] == pytest.approx(with_system[0], abs=0.05)
    above: dict[int, int] = {}
    for prompt in made:
        for before, block in zip([0, *prompt], prompt, strict=False):
            assert above.setdefault(block, before) == before  # a hash stands for all before it
    assert not {b for p, of in zip(made, stream, strict=True) if of for b in p} & {
        b for p, of in zip(made, stream, strict=True) if not of for b in p
    }


def test_a_session_grows_by_what_it_grew_and_as_long_after(original):
    def steps(prompts: list[list[int]]) -> tuple[float, float]:
        latest, grown, lags = {}, [], []
        for n, prompt in enumerate(prompts):
            had = next((d for d in range(len(prompt), 0, -1) if prompt[d - 1] in latest), 0)
            if had > 1:
                lags.append(n - latest[prompt[had - 1]])
                grown.append(len(prompt) - had)
            latest |= dict.fromkeys(prompt, n)
        return float(np.mean(grown)), float(np.median(lags))

    stream, made = made_like(original, 4000)
    for of in (0, 1):
        before = steps([prompt for n, prompt in enumerate(original) if n % 2 == of])
        now = steps([prompt for prompt, one in zip(made, stream, strict=True) if one == of])
        assert now == pytest.approx(before, rel=0.25)


def test_a_long_session_is_no_system_prompt():
    """Turns that each go on where the one before stood begin with one block, and are not a family for all."""
    session = [list(range(4 + 2 * turn)) for turn in range(20)]
    system = [[0, 1, 2, 1000 + n] for n in range(20)]
    for alike, families in ((session, {0}), (system, {0, 1})):
        prompts = [[10**6 + 100 * n] for n in range(1000)]
        prompts[30:1000:50] = alike
        found = fit_prefixes(np.zeros(1000, np.int64), np.full(1000, 50), *flat(prompts))
        assert set(found.family.tolist()) == families


def test_a_request_without_a_stream_has_no_hash(original):
    tokens = np.full(3, 500)
    templates = fit_prefixes(np.zeros(len(original), np.int64), np.full(len(original), 500), *flat(original))
    ids, rng = np.arange(3, dtype=np.uint64), np.random.default_rng(0)
    first, _ = draw_prefixes(templates, np.array([0, -1, 0]), tokens, ids, rng, *alone(3))
    assert (np.diff(first) > 0).tolist() == [True, False, True]


@pytest.mark.parametrize("is_said", [True, False], ids=["a session each", "found by blocks"])
def test_made_sessions_have_the_turns_the_growth_and_the_pauses_of_those_seen(is_said):
    """One stream has sessions of three turns, a minute apart and two blocks longer, the other has none."""
    second, sessions, rng = 1_000_000, 400, np.random.default_rng(3)
    begin = np.sort(rng.integers(0, 3600, sessions))
    rows = [(60 * turn + at, turn, n) for n, at in enumerate(begin) for turn in range(3)]
    rows = sorted([*rows, *((int(at), 0, -1) for at in rng.integers(0, 3600, 600))])
    at, turn, session = (np.array(column) for column in zip(*rows, strict=True))
    stream = (session < 0).astype(np.int64)
    fresh = iter(range(10**6, 10**9))
    prompts = [
        [10**4 * n + block for block in range(4 + 2 * t)] if n >= 0 else [next(fresh)]
        for t, n in zip(turn, session, strict=True)
    ]
    said = session if is_said else np.full(session.size, -1)
    fitted = of_sessions.fit_sessions(stream, said, at * second, *flat(prompts))
    picked_streams = np.sort(rng.integers(0, 6 * 3600 * second, 40_000))
    of = (rng.random(picked_streams.size) < 1 / 3).astype(np.int64)
    of[::100] = -1
    turns = of_sessions.draw_turns(fitted, of, picked_streams, np.random.default_rng(4))
    assert np.array_equal(turns.template >= 0, of == 0)
    goes_on = turns.previous >= 0
    assert goes_on[of == 0].mean() == pytest.approx(2 / 3, abs=0.01)
    root = of_sessions.session_roots(turns.previous)[of == 0]
    _, counts = np.unique(root, return_counts=True)
    assert np.mean(counts == 3) > 0.99  # but those that midnight ends
    before = turns.previous[goes_on]
    pause = (picked_streams[goes_on] - picked_streams[before]) / second
    assert pause.min() >= 60
    assert pause.mean() == pytest.approx(60, abs=8)  # and until a request of the stream is free
    assert np.array_equal(turn[turns.template[goes_on]], turn[turns.template[before]] + 1)
    tokens = BLOCK_TOKENS * np.array([len(prompt) for prompt in prompts])
    wanted = np.where(of == 0, tokens[turns.template], BLOCK_TOKENS)
    ids = np.arange(picked_streams.size, dtype=np.uint64)
    templates = fit_prefixes(stream, tokens, *flat(prompts))
    made = chains(*draw_prefixes(templates, of, wanted, ids, np.random.default_rng(5), turns, fitted.kept))
    assert [len(chain) for chain, one in zip(made, of, strict=True) if one == 0] == (
        (4 + 2 * turn[turns.template[of == 0]]).tolist()
    )
    for request in np.flatnonzero(goes_on)[:2000]:
        earlier = made[turns.previous[request]]
        assert made[request][: len(earlier)] == earlier
        assert not set(made[request][len(earlier) :]) & set(earlier)


def test_a_session_begins_like_one_of_its_hour_of_the_day():
    """Sixty sessions of two turns at three in the night, sixty in the afternoon; at noon there was none."""
    hour = 3600 * 1_000_000
    at = np.repeat([3 * hour, 15 * hour], 120) + np.tile(np.arange(120), 2)
    one, prompts = np.zeros(240, np.int64), [[n] for n in range(240)]
    fitted = of_sessions.fit_sessions(one, np.arange(240) // 2, at, *flat(prompts))
    picked_streams = np.repeat([3 * hour, 12 * hour, 15 * hour], 1000) + np.tile(np.arange(1000), 3)
    template = of_sessions.draw_turns(
        fitted, np.zeros(3000, np.int64), picked_streams, np.random.default_rng(0)
    ).template
    assert template[:1000].max() < 120
    assert template[2001:].min() >= 120  # the first one may still be due from noon
    assert 0.3 < (template[1000:2000] < 120).mean() < 0.7


def test_what_a_source_calls_a_session_is_made(tmp_path):
    """Of a coding agent, whose second turn is of another tier: two turns each, the second one longer."""
    lake = Lake(tmp_path / "lake")
    file = shutil.copy(Path(__file__).parent / "traces" / "copilot_agent.jsonl", tmp_path)
    ingest_file(Path(file), lake, CATALOGUE)
    generate_trace(
        lake,
        CATALOGUE,
        GenerationRequest("copilot_agent", "twin", None, 1, 0.1, 7, TraceChanges()),
        Progress(),
    )
    columns = "session_id, input_tokens, output_tokens, arrived_at"
    seen, made = (
        lake.sql(f"select {columns} from requests where trace = $trace order by arrived_at", trace=trace)
        for trace in ("copilot_agent", "twin")
    )
    turns = list(zip(seen["input_tokens"].to_pylist(), seen["output_tokens"].to_pylist(), strict=True))
    assert len(set(turns)) == 2
    by_session: dict[str, list[tuple[int, int]]] = {}
    for row in made.to_pylist():
        tokens = row["input_tokens"], row["output_tokens"]
        by_session.setdefault(row["session_id"], []).append(tokens)
    assert all(session == turns[: len(session)] for session in by_session.values())
    assert len(by_session) > 50
    assert (
        np.mean([session == turns for session in by_session.values()]) > 0.9
    )  # not those that midnight ends


def test_what_branches_off_begins_anew_and_few_turns_are_no_sessions():
    prompts = [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 5, 6], *([[10 + n] for n in range(20)])]
    nothing = np.full(len(prompts), -1)
    when, one = np.arange(len(prompts)), np.zeros(len(prompts), np.int64)
    fitted = of_sessions.fit_sessions(one, nothing, when, *flat(prompts))
    assert fitted.following[:3].tolist() == [1, 2, -1]  # the last block of a prompt is seldom full
    shorter = [*prompts[:2], [1, 2, 9, 10], *prompts[3:]]
    assert of_sessions.fit_sessions(one, nothing, when, *flat(shorter)).following[:3].tolist() == [1, -1, -1]
    many = [*prompts[:2], *([[10 + n] for n in range(200)])]
    few = np.zeros(len(many), np.int64)
    fitted = of_sessions.fit_sessions(few, few - 1, np.arange(len(many)), *flat(many))
    assert (
        of_sessions.draw_turns(fitted, few, np.arange(len(many)), np.random.default_rng(0)).template.max()
        == -1
    )


def going_on(lake: Lake, trace: str) -> tuple[float, float]:
    """The share of requests that go on from an earlier one of their llm, and the tokens that they add."""
    rows = lake.sql(
        "select dense_rank() over (order by llm) - 1 as llm, input_tokens, epoch_us(arrived_at) as at, "
        "prefix_hashes from requests where trace = $trace order by arrived_at, request_id",
        trace=trace,
    )
    llm, tokens, at = (rows[name].to_numpy() for name in ("llm", "input_tokens", "at"))
    prompts = rows["prefix_hashes"].to_pylist()
    following = of_sessions.fit_sessions(llm, np.full(at.size, -1), at, *flat(prompts)).following
    goes_on = following >= 0
    return goes_on.mean(), (tokens[following[goes_on]].astype(float) - tokens[goes_on]).mean()


def test_a_turn_goes_on_from_its_own_stream() -> None:
    """Two streams with the same prompts: each goes on from itself, though the other one came later."""
    prompts = [[1, 2], [1, 2], [1, 2, 3], [1, 2, 3]]
    found = of_sessions.fit_sessions(np.array([0, 1, 0, 1]), np.full(4, -1), np.arange(4), *flat(prompts))
    assert found.following.tolist() == [2, 3, -1, -1]


@pytest.mark.skipif(not MOONCAKE.exists(), reason="the Mooncake trace is not next to this checkout")
def test_the_share_of_repeated_blocks_of_a_real_trace_is_kept(tmp_path):
    lake = Lake(tmp_path / "lake")
    ingest_file(MOONCAKE, lake, CATALOGUE)
    order = GenerationRequest("mooncake", "twin", None, 2, 0.05, 7, TraceChanges())
    generate_trace(lake, CATALOGUE, order, Progress())
    rows = lake.sql(
        "select trace, sum(blocks)::double as blocks, sum(distinct_blocks)::double as different "
        "from prefix_reuse group by trace"
    )
    shares = {row["trace"]: 1 - row["different"] / row["blocks"] for row in rows.to_pylist()}
    assert shares["twin"] == pytest.approx(shares["mooncake"], rel=0.15)
    uses = lake.sql(
        "with blocks as (select trace, llm, unnest(prefix_hashes) as block from requests), "
        "used as (select trace, llm, block, count(*) as uses from blocks group by all) "
        "select trace, max(uses)::double as most from used group by trace"
    )
    most = {row["trace"]: row["most"] for row in uses.to_pylist()}
    assert most["twin"] <= 2.5 * most["mooncake"]
    (share, growth), (share_made, growth_made) = (going_on(lake, trace) for trace in ("mooncake", "twin"))
    assert share_made == pytest.approx(share, rel=0.1)
    assert growth_made == pytest.approx(growth, rel=0.25)  # what branches off is no next turn
    first = lake.read("requests", trace="twin", day=date(2024, 1, 2))
    lake.drop_day("twin", date(2024, 1, 2))
    generate_trace(lake, CATALOGUE, order, Progress())
    assert lake.read("requests", trace="twin", day=date(2024, 1, 2)).equals(first)
