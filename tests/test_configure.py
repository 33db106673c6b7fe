"""Engine settings: the bound against the replay, the search against all points, the answer against `try`."""

import dataclasses
import json
import os
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies import configure_answer, configure_limits, try_fleet
from fleetcast.assets.studies.configure_files import (
    describe_point,
    engine_commands,
    render_commands,
    render_kubernetes,
)
from fleetcast.assets.studies.configure_traffic import ConfigureTraffic
from fleetcast.assets.traces.landing import land_file
from fleetcast.models.configure import engine_points, fleet_trials, point_search
from fleetcast.models.configure.cost_bound import TokenWork, shape_busy_s
from fleetcast.models.configure.engine_points import EnginePoint, EngineSettings, EngineShape, EngineVariant
from fleetcast.models.configure.fleet_trials import TrafficWindow
from fleetcast.models.latency.aiconfigurator_profiles import aiconfigurator_profile, build_engine_query
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens
from fleetcast.models.world.project_paths import HOME
from fleetcast.pipelines.cli import cli_app

CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
pytest.importorskip("aiconfigurator_core", reason="without the package no engine is priced")
GPUS = ("h100-80gb",)


def window(requests: int, seconds: float, seed: int = 1) -> TrafficWindow:
    """Requests of two interactive tiers in bursts."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(rng.uniform(0, seconds, requests) ** 1.1)
    zeros = np.zeros(requests, np.int16)
    trace = TraceArrays(
        arrival_s - arrival_s[0], zeros, zeros, (np.arange(requests) % 2).astype(np.int16),
        rng.integers(200, 4000, requests).astype(np.int32), rng.integers(1, 400, requests).astype(np.int32),
    )  # fmt: skip
    return TrafficWindow({"none": trace})


@pytest.fixture(scope="module")
def market() -> engine_points.EngineMarket:
    return engine_points.price_engines(CATALOGUE, "llama3.1-8b", GPUS, "fp8", OFFICE, 8000)


@pytest.fixture(scope="module")
def trials(market: engine_points.EngineMarket) -> point_search.FleetTrials:
    return point_search.FleetTrials(market, [window(2500, 120.0)])


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 60), st.integers(0, 45))
def test_bisection_finds_the_least_number_from_any_guess(low: int, more: int, first: int, guess: int) -> None:
    high = low + more
    expected = next((n for n in range(low, high + 1) if n >= first), None)
    guess = min(max(guess, low), high)
    assert point_search.least_true(lambda n: n >= first, low, high, guess) == expected
    coarse = point_search.least_true(lambda n: n >= first, low, high, guess, 16)
    assert (coarse is None) == (expected is None)
    assert expected is None or coarse is None or 0 <= coarse - expected <= coarse // 16


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(engine_points.BATCHES),
    st.sampled_from(engine_points.TOKEN_BUDGETS),
    st.sampled_from(
        [EngineShape("h100-80gb", 1), EngineShape("h100-80gb", 4), EngineShape("h100-80gb", 1, 2)]
    ),
    st.sampled_from([(10, 20), (3000, 20), (200, 700), (1500, 300)]),
)
def test_no_engine_is_faster_than_its_bound(
    batch: int, budget: int, shape: EngineShape, means: tuple[int, int]
) -> None:
    """The replay of a flood on one instance takes at least the bound, and for long prompts little more."""
    market = priced()
    rng = np.random.default_rng(means[0])
    zeros = np.zeros(400, np.int16)
    inputs, outputs = (rng.integers(1, 2 * mean, 400).astype(np.int32) for mean in means)
    trace = TraceArrays(np.zeros(400), zeros, zeros, zeros, inputs, outputs)
    point = EnginePoint(
        EngineVariant(16, 16, False), shape, EngineSettings(batch, budget, "none", "least_kv")
    )
    fleet = fixed_fleet({market.llm: point.pools((1,))}, market.catalogue_of(point), market.config_of(point))
    rules = make_rules(market.catalogue_of(point), market.config_of(point).replay, "follow")
    outcome = replay_trace(trace, fleet, Schedule(np.diff(fleet.slots), hour_s=9e4), rules, 9e4)
    taken_s = float(outcome.finish_s.max()) - OFFICE.fleet.frontend_s
    later = outputs - 1.0
    work = TokenWork(
        float(inputs.sum()), float(later.sum()), float((later * (inputs + 1 + later / 2)).sum()), 1.0
    )
    bound_s = shape_busy_s(market, point, shape, work)
    assert bound_s <= taken_s
    if means[0] == 3000:
        assert taken_s < 1.6 * bound_s


def priced(cache: dict[str, engine_points.EngineMarket] = {}) -> engine_points.EngineMarket:  # noqa: B006
    """The market of the module, for properties, which take no fixture."""
    if not cache:
        cache["one"] = engine_points.price_engines(CATALOGUE, "llama3.1-8b", GPUS, None, OFFICE, 8000)
    return cache["one"]


def traffic_of(
    arrival_s: np.ndarray, inputs: np.ndarray, outputs: np.ndarray, tier: int = 0
) -> TrafficWindow:
    """Requests of one tier; the cache of the prefix mode given has a part of every second prompt."""
    zeros = np.zeros(arrival_s.size, np.int16)
    trace = TraceArrays(
        np.sort(arrival_s - arrival_s.min()), zeros, zeros, zeros + np.int16(tier),
        inputs.astype(np.int32), outputs.astype(np.int32),
    )  # fmt: skip
    cached = np.where(np.arange(inputs.size) % 2, 0.9 * trace.input_tokens, 0).astype(np.int32)
    return TrafficWindow({"none": trace, "given": trace._replace(cached_tokens=cached)})


def fewest_by_counting(trials: point_search.FleetTrials, point: EnginePoint, most: int = 40) -> int | None:
    """The fewest instances that attain, by every count from one on."""
    return next((n for n in range(1, most) if trials.score(point, (n,)).is_attained), None)


def score_of(point: EnginePoint, *counts: int) -> fleet_trials.FleetScore:
    """A score that attains."""
    return fleet_trials.FleetScore(point, counts, 1.0, 1.0, {}, True, 0.0, {})


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000), st.integers(0, 1), st.sampled_from(["none", "given"]),
    st.sampled_from([None, 0.03]), st.floats(0.7, 2.5), st.integers(200, 900),
    st.sampled_from([8.0, 40.0, 200.0]), st.booleans(),
)  # fmt: skip
def test_no_fleet_attains_below_the_bound(
    seed: int, tier: int, prefix: str, tpot_slo_s: float | None, tail: float, requests: int, seconds: float,
    is_heavy_last: bool,
) -> None:  # fmt: skip
    """Lengths with heavy tails, a few or all requests late: the bound is at most the fewest instances."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(100 * (1 + rng.pareto(tail, (2, requests))), 7900).astype(int)
    if is_heavy_last:
        sizes = sizes[:, np.argsort(sizes[0])]
    traffic = traffic_of(rng.uniform(0, seconds, requests), sizes[0], np.minimum(sizes[1], 2000), tier)
    market = with_tpot_target(priced(), tpot_slo_s)
    point = EnginePoint(
        EngineVariant(16, 16, False), EngineShape("h100-80gb", 1), engine_points.default_settings(prefix)
    )
    for part in (traffic, fleet_trials.cut_window(traffic, requests // 4, requests // 2)):
        trials = point_search.FleetTrials(market, [part])
        fewest = fewest_by_counting(trials, point, 12)
        if fewest is not None:
            assert trials.least_instances(point)[0] <= fewest
            found = point_search.fewest_attaining(trials, point)
            assert found is not None
            between = range(fewest, found.counts[0])  # bisection may pass over counts only if one is too few
            assert found.is_attained
            assert not between or not all(trials.score(point, (n,)).is_attained for n in between)


def with_tpot_target(
    market: engine_points.EngineMarket, tpot_slo_s: float | None
) -> engine_points.EngineMarket:
    """The market with a TPOT target of the strictest tier."""
    query = configure_answer.ConfigureQuery("llama3.1-8b", GPUS, tpot_slo_s=tpot_slo_s)
    tiers = configure_answer.with_targets(CATALOGUE, query).tiers
    return market._replace(
        catalogues={
            variant: dataclasses.replace(catalogue, tiers=tiers)
            for variant, catalogue in market.catalogues.items()
        }
    )


def test_requests_that_may_be_late_are_not_in_the_bound() -> None:
    """A hundred large requests at the end: one instance attains, because 95 % are the small ones."""
    inputs, outputs = np.repeat([200, 24_000], [2000, 100]), np.repeat([20, 1500], [2000, 100])
    last = traffic_of(np.concatenate([np.linspace(0, 40, 2000), np.full(100, 40.0)]), inputs, outputs)
    point = EnginePoint(
        EngineVariant(16, 16, False), EngineShape("h100-80gb", 1), engine_points.default_settings("none")
    )
    trials = point_search.FleetTrials(priced(), [last])
    assert trials.least_instances(point) == (1,) == point_search.fewest_attaining(trials, point).counts
    rng = np.random.default_rng(1)
    even = traffic_of(rng.uniform(0, 300, 30_000), np.full(30_000, 1500), np.full(30_000, 150))
    trials = point_search.FleetTrials(priced(), [even])
    fewest = fewest_by_counting(trials, point)
    assert fewest is not None
    assert fewest > 4
    assert trials.least_instances(point)[0] > 0.7 * fewest  # not only low


@pytest.mark.parametrize("seed", range(3))
def test_no_cache_saves_more_than_the_prompt_tokens_say(seed: int) -> None:
    """One instance with room for all blocks computes at least them, also in a part with more reuse."""
    rng = np.random.default_rng(seed)
    inputs, block = rng.integers(600, 4000, 300), 64
    counts = inputs // block
    first = np.concatenate([[0], np.cumsum(counts)])
    hashes = np.arange(first[-1]) + 1000
    for row in range(150, 300):  # the second half is turns of a few sessions
        shared = rng.integers(1, counts[row] + 1)
        hashes[first[row] : first[row] + shared] = np.arange(shared)
    plain = traffic_of(rng.uniform(0, 300, 300), inputs, rng.integers(1, 50, 300)).trace
    whole = TrafficWindow({"none": plain, "blocks": plain._replace(first_hash=first, hashes=hashes)}, block)
    config = dataclasses.replace(
        OFFICE, fleet=dataclasses.replace(OFFICE.fleet, prefix="blocks", prefix_block_tokens=block)
    )
    catalogue = next(iter(priced().catalogues.values()))
    fleet = fixed_fleet({"llama3.1-8b": [(Deployment("h100-80gb", 1), 1)]}, catalogue, config)
    rules = make_rules(catalogue, config.replay, "follow")
    for part in (whole, fleet_trials.cut_window(whole, 150, 300), fleet_trials.thin_window(whole, 100)):
        trace = part.traces["blocks"]
        outcome = replay_trace(trace, fleet, Schedule(np.diff(fleet.slots), hour_s=1e4), rules, 1e4)
        computed = trace.input_tokens.sum() - outcome.reused.sum()
        assert 0.9 * computed < part.prompt_tokens("blocks") <= computed


def test_a_step_may_read_more_cached_tokens_than_fit_where_requests_share_them() -> None:
    """All prompts share their blocks, so that 512 requests decode at once in the memory of one hundred."""
    prompts, block = np.full(500, 4097), 512
    plain = traffic_of(np.linspace(0, 1e-3, 500), prompts, np.full(500, 400)).trace
    first, hashes = np.arange(501) * 8, np.tile(np.arange(8), 500)
    shared = TrafficWindow({"none": plain, "blocks": plain._replace(first_hash=first, hashes=hashes)}, block)
    point = EnginePoint(
        EngineVariant(16, 16, False),
        EngineShape("h100-80gb", 1),
        EngineSettings(512, 8192, "blocks", "least_kv"),
    )
    market = priced()
    fleet = fixed_fleet({market.llm: point.pools((1,))}, market.catalogue_of(point), market.config_of(point))
    rules = make_rules(market.catalogue_of(point), market.config_of(point).replay, "follow")
    schedule = Schedule(np.diff(fleet.slots), hour_s=9e4)
    outcome = replay_trace(shared.traces["blocks"], fleet, schedule, rules, 9e4)
    work = shared.steady_work("blocks")
    assert shape_busy_s(market, point, point.shape, work) <= outcome.finish_s.max()


def test_more_of_anything_never_costs_attainment(trials: point_search.FleetTrials) -> None:
    kinds = engine_points.list_kinds(trials.market, 8000, ["none"])
    for kind in kinds[:: len(kinds) // 4]:
        line = point_search.count_line(trials, kind)
        slack = [trials.score(kind, line.counts(sum(line.low) + n)).slack for n in range(5)]
        assert all(b >= a - 0.002 for a, b in pairwise(slack)), kind
        faster = point_search.FleetTrials(trials.market.with_slower_engines(0.7, 0.7), trials.windows)
        assert faster.score(kind, line.counts(sum(line.low))).slack >= slack[0] - 0.002


def least_of_all_counts(trials: point_search.FleetTrials, kinds: list[EnginePoint]) -> float:
    """The least USD per hour of all points, each with every count from one up, without bound or guess."""
    least = np.inf
    for point in (point for kind in kinds for point in engine_points.list_settings(kind)):
        catalogue = trials.market.catalogue_of(point)
        for count in range(1, 30):
            usd = point.usd_per_hour(catalogue, (count,))
            if usd >= least:
                break
            if trials.score(point, (count,)).is_attained:
                least = usd
    return float(least)


def test_the_search_finds_what_all_points_have(
    market: engine_points.EngineMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On windows that differ, with more kinds than reach the second stage."""
    monkeypatch.setattr(configure_answer, "SHORT", (600, 10.0))
    monkeypatch.setattr(configure_answer, "MIDDLE", (1800, 40.0))
    hour = window(5000, 120.0, seed=3)
    short, middle, whole = configure_answer.nest_trials(market, [hour])
    sizes = [trials.windows[0].trace.arrival_s.size for trials in (short, middle, whole)]
    assert sizes == sorted(set(sizes))
    kinds = engine_points.list_kinds(market, 8000, ["none"], "together")[::2]
    assert len(kinds) > 2 * point_search.BEST_KINDS
    found = point_search.search_engines(short, middle, whole, kinds)
    assert found is not None
    assert found.considered == sum(len(list(engine_points.list_settings(kind))) for kind in kinds)
    alone = point_search.FleetTrials(market, [hour])
    assert found.finalists[0].usd_per_hour == least_of_all_counts(alone, kinds)
    assert found.finalists[0].usd_per_hour > min(kind.usd_per_hour(CATALOGUE, (1,)) for kind in kinds)
    assert all(score.is_attained for score in (*found.finalists, *found.front))
    tpot = [score.seconds["tpot_p95_s"] for score in found.front]
    assert tpot == sorted(tpot, reverse=True)


def test_points_that_are_equal_on_a_short_window_all_go_on(trials: point_search.FleetTrials) -> None:
    """One instance serves the light windows whatever its settings; the whole window needs the right ones."""
    light = point_search.FleetTrials(trials.market, [window(60, 120.0)])
    [kind] = [
        kind
        for kind in engine_points.list_kinds(trials.market, 8000, ["none"], "together")
        if kind.variant == (16, 16, False) and kind.shape == EngineShape("h100-80gb", 1)
    ]
    found = point_search.search_engines(light, light, trials, [kind])
    points = list(engine_points.list_settings(kind))
    assert len(points) > point_search.MIDDLE_POINTS
    assert len({light.score(point, (1,)).slack for point in points}) == 1  # all are equal there
    alone = point_search.FleetTrials(trials.market, trials.windows)
    assert found is not None
    assert found.finalists[0].usd_per_hour == least_of_all_counts(alone, [kind])


def test_a_hopeless_replay_ends_early_with_the_same_verdict(
    trials: point_search.FleetTrials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watched or not, a fleet attains or does not; one that attains has the same figures."""
    [traffic] = trials.windows
    double = [fleet_trials.change_window(traffic, 2.0, 1.0)]
    kinds = engine_points.list_kinds(trials.market, 8000, ["none"])
    points = [kinds[0], next(kind for kind in kinds if kind.decode is not None)]
    cases = [(point, (n,) * len(point.shapes)) for point in points for n in (1, 2, 3, 5, 8)]
    plain = [fleet_trials.score_fleet(trials.market, point, counts, double) for point, counts in cases]
    ends = list[bool]()
    monkeypatch.setattr(fleet_trials, "WATCHED_REQUESTS", 1)
    has_lost_tier = fleet_trials.AttainingSession.has_lost_tier

    def noted(session: fleet_trials.AttainingSession, now_s: float) -> bool:
        ends.append(has_lost_tier(session, now_s))
        return ends[-1]

    monkeypatch.setattr(fleet_trials.AttainingSession, "has_lost_tier", noted)
    for (point, counts), score in zip(cases, plain, strict=True):
        watched = fleet_trials.score_fleet(trials.market, point, counts, double)
        assert watched.is_attained == score.is_attained
        if score.is_attained:
            assert watched == score
    assert 0 < sum(ends) < len(cases)


def test_bits_reach_the_memory_and_the_kernels() -> None:
    def served(llm: str, **changes: object) -> Catalogue:
        return dataclasses.replace(CATALOGUE, llms={llm: dataclasses.replace(CATALOGUE.llms[llm], **changes)})

    llm, gpu = "llama3.1-8b", "h100-80gb"
    whole, half = served(llm), served(llm, kv_bits=8)
    rooms = [kv_capacity_tokens(c, OFFICE.fleet, llm, gpu, 1) for c in (whole, half)]
    assert rooms[1] == pytest.approx(2 * rooms[0], rel=0.001)
    slopes = [aiconfigurator_profile(c, llm, gpu, 1).decode_per_kv_token_s for c in (whole, half)]
    assert slopes[1] < 0.7 * slopes[0]
    quick = aiconfigurator_profile(served(llm, weight_bits=8), llm, gpu, 1)
    assert quick.decode_s[0] < 0.8 * aiconfigurator_profile(whole, llm, gpu, 1).decode_s[0]
    query = build_engine_query(served("gpt-oss-20b", is_expert_parallel=True), "gpt-oss-20b", gpu, 2)
    assert (query.gemm_bits, query.expert_bits, query.expert_parallel) == ("", "", 2)  # its own 4 bits


def test_more_gpus_than_kv_heads_keep_copies_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a token, and the replay's; deepseek-v3 with one head is configured on eight GPUs."""
    llm, gpu, block = "qwen3-30b-a3b", "h100-80gb", OFFICE.fleet.kv_block_tokens
    arch = CATALOGUE.llms[llm]
    assert arch.kv_heads == 4
    for degree, stages, copies in ((2, 1, 1), (4, 1, 1), (8, 1, 2), (4, 2, 1)):
        gpus = degree * stages
        room_bytes = gpus * 80 * 2**30 * OFFICE.fleet.kv_memory_share - arch.weight_bytes
        blocks = int(room_bytes // (copies * arch.kv_bytes_per_token * block))
        assert kv_capacity_tokens(CATALOGUE, OFFICE.fleet, llm, gpu, gpus, stages) == blocks * block
        pool = Deployment(gpu, degree, pipeline_parallel=stages)
        catalogue = dataclasses.replace(CATALOGUE.serving([llm]), latency=())
        catalogue = try_fleet.complete_for_fleets(catalogue, [[try_fleet.TryPool(1, llm, pool)]], OFFICE)
        assert fixed_fleet({llm: [(pool, 1)]}, catalogue, OFFICE).kv_capacity[0] == blocks * block
    monkeypatch.setattr(engine_points, "TENSOR_DEGREES", (8,))
    market = engine_points.price_engines(CATALOGUE, "deepseek-v3", ("h200-141gb",), None, OFFICE, 8000)
    kinds = engine_points.list_kinds(market, 8000, ["none"], "together")
    assert {kind.shape for kind in kinds} == {EngineShape("h200-141gb", 8)}


def test_windows_keep_requests_and_their_blocks() -> None:
    whole = window(900, 300.0)
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 5, 900)
    trace = whole.trace._replace(
        first_hash=np.concatenate([[0], np.cumsum(counts)]), hashes=np.arange(counts.sum())
    )
    both = TrafficWindow({"none": whole.trace, "blocks": trace}, 512)
    tokens = whole.trace.input_tokens + whole.trace.output_tokens
    [busiest] = fleet_trials.busiest_windows(both, 60.0, 1)
    last = round(both.until_s / 60.0) - 1
    parts = np.minimum(whole.trace.arrival_s // 60.0, last)
    assert busiest.tokens == max(tokens[parts == part].sum() for part in range(last + 1))
    thin = fleet_trials.thin_window(both, 100).traces["blocks"]
    for part in (busiest.traces["blocks"], thin):
        for row in range(part.arrival_s.size):
            blocks = part.hashes[part.first_hash[row] : part.first_hash[row + 1]]
            old = (
                np.flatnonzero(np.isin(trace.first_hash[:-1], blocks[:1]) & (counts > 0))
                if blocks.size
                else []
            )
            assert all(trace.input_tokens[old] == part.input_tokens[row])
    assert thin.arrival_s.size == 100
    double = fleet_trials.change_window(both, 2.0, 1.5)
    assert double.until_s - 1.0 == pytest.approx((both.until_s - 1.0) / 2)
    more = double.trace.input_tokens.sum() - whole.trace.input_tokens.sum()
    assert double.prompt_tokens("blocks") - both.prompt_tokens("blocks") == more > 0


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half an hour of a service."""
    return write_trace(window(1500, 900.0, seed=4), tmp_path_factory.mktemp("configure") / "service.parquet")


def write_trace(part: TrafficWindow, path: Path) -> Path:
    """The requests of a window as a file."""
    trace = part.trace
    frame = pd.DataFrame(
        {
            "request_id": np.arange(trace.arrival_s.size).astype(np.uint64),
            "arrived_at": pd.Timestamp("2025-03-03T10:00", tz="UTC")
            + pd.to_timedelta((trace.arrival_s * 1e6).astype(int), unit="us"),
            "llm": "llama3.1-8b",
            "tier": np.where(trace.tier == 0, "iw_fast", "iw_normal"),
            "input_tokens": trace.input_tokens,
            "output_tokens": trace.output_tokens,
        }
    )
    frame.to_parquet(path)
    return path


def run_configure(
    monkeypatch: pytest.MonkeyPatch, folder: Path, source: Path | str | None, *options: str
) -> tuple[dict[str, Any], str]:
    """The answer of the command in a small space, and what it printed."""
    monkeypatch.chdir(folder)
    for name, values in (("BATCHES", (64, 256)), ("TOKEN_BUDGETS", (2048, 8192)), ("TENSOR_DEGREES", (1, 2))):
        monkeypatch.setattr(engine_points, name, values)
    trace = [] if source is None else ["--trace", str(source)]
    arguments = ["configure", "llama3.1-8b", *trace, "--gpus", "h100-80gb", *options]
    result = CliRunner().invoke(cli_app, [*arguments, "--quiet", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return json.loads((folder / "answer.json").read_text()), result.output


def try_fleet_toml(monkeypatch: pytest.MonkeyPatch, folder: Path, source: Path) -> dict[str, float]:
    """What the command in the first line of fleet.toml finds."""
    first, *_ = (folder / "fleet.toml").read_text().splitlines()
    words = [str(source) if word == "FILE" else word for word in shlex.split(first.removeprefix("# "))]
    return try_command_row(monkeypatch, words[1:])


def try_command_row(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> dict[str, float]:
    """The row of the one fleet of a `fleetcast try` command."""
    seen, run = list[dict[str, float]](), try_fleet.run_fleet_trial

    def noted(*arguments: object) -> try_fleet.FleetTrial:
        trial = run(*arguments)  # type: ignore[arg-type]
        seen.append(trial.row)
        return trial

    with monkeypatch.context() as patch:
        patch.setattr(try_fleet, "run_fleet_trial", noted)
        result = CliRunner().invoke(cli_app, [*words, "--quiet"])
    assert result.exit_code == 0, result.output
    [row] = seen
    return row


BASE = """
based_on = "office"
[trace]
name = "own"
first_day = 2025-07-01
days = 2
seed = 0
[fleet]
kv_memory_share = 0.5
frontend_s = 0.1
[catalogue.tiers.iw_normal]
ttft_slo_s = 2.0
"""


@pytest.mark.parametrize(
    ("base", "options"),
    [
        ("office", ["--disaggregated", "--quality-floor", "fp8"]),
        ("sageserve", ["--colocated", "--ttft-slo-s", "0.12", "--tpot-slo-s", "0.02"]),
        ("path", ["--colocated", "--prices", "prices.toml", "--tpot-slo-s", "0.012"]),
    ],
)
def test_try_replays_fleet_toml_at_the_same_cost(
    base: str, options: list[str], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With targets and prices of the command line, and a base that is no shipped config."""
    (tmp_path / "prices.toml").write_text("h100-80gb = 5.5")
    own = tmp_path / "configs" / "own.toml"
    own.parent.mkdir()
    own.write_text(BASE)
    config = str(own) if base == "path" else base
    answer, _ = run_configure(monkeypatch, tmp_path, file, "--config", config, *options)
    best, row = answer["best"], try_fleet_toml(monkeypatch, tmp_path, file)
    rows = pd.read_parquet(file)
    tokens = int(rows["input_tokens"].sum() + rows["output_tokens"].sum())
    assert 1e6 * row["usd"] / tokens == pytest.approx(best["usd_per_million_tokens"])
    assert row["gpus"] == best["gpus"]
    for tier, share in best["attainment_share"].items():
        assert row[f"{tier}_attainment_share"] == share
    assert row["ttft_p95_s"] == pytest.approx(best["ttft_p95_s"])
    low, high = answer["usd_per_million_tokens_interval"]
    assert low <= 1.0001 * best["usd_per_million_tokens"] <= 1.0002 * high


def options_of(words: list[str]) -> dict[str, str]:
    """The options of a command by name; one without a value has the value yes."""
    pairs = zip(words, [*words[1:], "--"], strict=True)
    return {
        word: "yes" if value.startswith("--") else value for word, value in pairs if word.startswith("--")
    }


@pytest.mark.parametrize("prefix", ["none", "blocks"])
@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("is_expert_parallel", [False, True])
def test_commands_of_both_engines_carry_every_setting(
    prefix: str, bits: int, is_expert_parallel: bool, market: engine_points.EngineMarket
) -> None:
    """All that a point sets, but its router, and the [fleet] keys that the replay used."""
    variant = EngineVariant(bits, 8 if bits < 16 else 16, is_expert_parallel)
    point = EnginePoint(variant, EngineShape("h100-80gb", 4, 2), EngineSettings(64, 4096, prefix, "least_kv"))
    fleet = dataclasses.replace(OFFICE.fleet, kv_memory_share=0.83, kv_block_tokens=32)
    market = market._replace(config=dataclasses.replace(OFFICE, fleet=fleet))
    arch = CATALOGUE.llms["llama3.1-8b"]
    [command] = engine_commands("llama3.1-8b", arch, market, score_of(point, 3))
    vllm, sglang = options_of(command.vllm), options_of(command.sglang)
    pairs = {
        "--tensor-parallel-size": ("--tp-size", "4"),
        "--pipeline-parallel-size": ("--pp-size", "2"),
        "--max-num-seqs": ("--max-running-requests", "64"),
        "--max-num-batched-tokens": ("--chunked-prefill-size", "4096"),
        "--gpu-memory-utilization": ("--mem-fraction-static", "0.83"),
        "--block-size": ("--page-size", "32"),
        "--enable-expert-parallel": ("--ep-size", None if not is_expert_parallel else "4"),
        "--quantization": ("--quantization", "fp8" if bits == 8 else None),
        "--kv-cache-dtype": ("--kv-cache-dtype", "fp8" if bits < 16 else None),
        "--no-enable-prefix-caching": ("--disable-radix-cache", "yes" if prefix == "none" else None),
    }
    for name, (other, value) in pairs.items():
        assert vllm.get(name) == ("yes" if name == "--enable-expert-parallel" and value else value), name
        assert sglang.get(other) == ("fp8_e4m3" if other == "--kv-cache-dtype" and value else value), other
    model = "/path/to/llama3.1-8b-nvfp4" if bits == 4 else arch.model
    assert command.vllm[2] == sglang["--model-path"] == model


def test_files_say_what_the_commands_do_not_set(market: engine_points.EngineMarket) -> None:
    """The checkpoint of fp4 weights and the router, in words; neither where it does not matter."""
    arch = CATALOGUE.llms["llama3.1-8b"]
    point = EnginePoint(
        EngineVariant(4, 8, False), EngineShape("h100-80gb", 1), EngineSettings(64, 4096, "none", "least_kv")
    )
    for bits, count in ((4, 2), (8, 1)):
        score = score_of(point._replace(variant=EngineVariant(bits, 8, False)), count)
        commands = engine_commands("llama3.1-8b", arch, market, score)
        for render in (render_commands, render_kubernetes):
            text = render("llama3.1-8b", commands, arch, score)
            comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
            assert ("a checkpoint of meta-llama/Meta-Llama-3.1-8B in this format" in comments) == (bits == 4)
            assert ("/path/to/llama3.1-8b-nvfp4" in text) == (bits == 4)
            assert ("least_kv, to the instance with the least used KV cache" in comments) == (count > 1)
            assert ("A plain Service spreads connections by chance" in comments) == (count > 1)


def test_pods_run_on_the_chosen_gpu_type_behind_the_chosen_router(market: engine_points.EngineMarket) -> None:
    arch = CATALOGUE.llms["llama3.1-8b"]
    settings = EngineSettings(64, 4096, "none", "round_robin")
    point = EnginePoint(EngineVariant(16, 16, False), EngineShape("h200-141gb", 2), settings)
    commands = engine_commands("llama3.1-8b", arch, market, score_of(point, 3))
    deployment, service = yaml.safe_load_all(
        render_kubernetes("llama3.1-8b", commands, arch, score_of(point, 3))
    )
    pod = deployment["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert (deployment["spec"]["replicas"], container["resources"]["limits"]["nvidia.com/gpu"]) == (3, 2)
    assert container["command"] == commands[0].vllm
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    for routing, mode in (("round_robin", "round-robin"), ("least_prefill", "kv")):
        apart = point._replace(
            settings=settings._replace(routing=routing), decode=EngineShape("b200-180gb", 1)
        )
        commands = engine_commands("llama3.1-8b", arch, market, score_of(apart, 3, 1))
        text = render_kubernetes("llama3.1-8b", commands, arch, score_of(apart, 3, 1))
        [graph] = yaml.safe_load_all(text)
        services = graph["spec"]["services"]
        assert services["Frontend"]["envs"] == [{"name": "DYN_ROUTER_MODE", "value": mode}]
        assert ("Its mode kv is near, not equal" in text) == (mode == "kv")
        for role, product, count in (("prefill", "NVIDIA-H200", 3), ("decode", "NVIDIA-B200", 1)):
            worker = services[f"Vllm{role.capitalize()}Worker"]
            assert worker["extraPodSpec"]["nodeSelector"] == {"nvidia.com/gpu.product": product}
            assert worker["replicas"] == count
            assert (
                options_of(worker["extraPodSpec"]["mainContainer"]["args"])["--disaggregation-mode"] == role
            )


def test_engines_sh_starts_every_role_at_once(
    market: engine_points.EngineMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a vllm that ends only when the other role runs too; each has its own port and its own GPUs."""
    (tmp_path / "vllm").write_text(
        '#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" "$@" > "$RUNS/$CUDA_VISIBLE_DEVICES"\n'
        'for n in 1 2 3 4 5 6 7 8 9 10; do [ "$(ls "$RUNS" | wc -l)" = 2 ] && exit 0; sleep 0.2; done\n'
        'rm "$RUNS"/*\n'
    )
    (tmp_path / "vllm").chmod(0o755)
    runs = tmp_path / "runs"
    runs.mkdir()
    arch = CATALOGUE.llms["llama3.1-8b"]
    point = EnginePoint(
        EngineVariant(16, 16, False), EngineShape("h100-80gb", 2),
        EngineSettings(64, 4096, "none", "least_kv"), EngineShape("h100-80gb", 1),
    )  # fmt: skip
    score = score_of(point, 1, 1)
    commands = engine_commands("llama3.1-8b", arch, market, score)
    script = tmp_path / "engines.sh"
    script.write_text(render_commands("llama3.1-8b", commands, arch, score))
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["sh", str(script)], env={"PATH": path, "RUNS": str(runs)}, check=True, timeout=30)
    ports = {file.name: options_of(shlex.split(file.read_text()))["--port"] for file in runs.iterdir()}
    assert ports == {"0,1": "8000", "2": "8001"}


ONE_GPU = EnginePoint(
    EngineVariant(16, 16, False), EngineShape("h100-80gb", 1), EngineSettings(256, 8192, "none", "least_kv")
)


@pytest.mark.parametrize(
    ("requests", "tokens", "tpot_slo_s", "kv_memory_share", "causes"),
    [
        (3000, (4000, 2), None, 0.9, {"prefill"}),
        (1200, (2000, 400), None, 0.25, {"decode", "KV memory"}),
        (2000, (500, 300), 0.012, 0.9, {"prefill", "decode", "the TPOT target"}),
        (100, (500, 100), None, 0.9, set()),
    ],
)
def test_what_binds_is_what_lets_one_instance_fewer_attain(
    requests: int, tokens: tuple[int, int], tpot_slo_s: float | None, kv_memory_share: float, causes: set[str]
) -> None:
    """Prompts alone bind at prefill, a small cache at KV memory, a tight target at TPOT; or whole ones do."""
    fleet = dataclasses.replace(OFFICE.fleet, kv_memory_share=kv_memory_share)
    market = with_tpot_target(priced(), tpot_slo_s)
    market = market._replace(config=dataclasses.replace(OFFICE, fleet=fleet))
    arrival_s = np.random.default_rng(1).uniform(0, 60, requests)
    traffic = traffic_of(arrival_s, *(np.full(requests, n) for n in tokens))
    trials = point_search.FleetTrials(market, [traffic])
    best = point_search.fewest_attaining(trials, ONE_GPU)
    assert best is not None
    [limit] = configure_limits.find_limits(trials, best)
    assert set(limit.causes) == causes
    text = configure_limits.describe_limit(limit)
    assert f"{limit.steady:.2f} of {best.counts[0]} instances" in text
    assert text.startswith("whole instances bind" if not causes else " and ".join(limit.causes))


def test_a_changed_traffic_is_answered_as_by_every_count() -> None:
    """Twice the requests: the least of all points; the present point's own cost; what is said of them."""
    market = with_tpot_target(priced(), 0.012)
    points = [ONE_GPU._replace(shape=EngineShape("h100-80gb", degree)) for degree in (4, 1, 2)]
    traffic = traffic_of(
        np.random.default_rng(1).uniform(0, 60, 1500), np.full(1500, 500), np.full(1500, 300)
    )
    middle = point_search.FleetTrials(market, [traffic])
    changed = configure_answer.try_change(middle, points, points[0], "traffic doubles", 2.0, 1.0)
    alone = point_search.FleetTrials(market, [fleet_trials.change_window(traffic, 2.0, 1.0)])
    costs = []
    for point in points:
        count = fewest_by_counting(alone, point)
        assert count is not None
        costs.append(alone.score(point, (count,)).usd_per_hour)
    assert changed.kept is not None
    assert changed.best is not None
    assert (changed.kept.usd_per_hour, changed.best.usd_per_hour) == (costs[0], min(costs))
    assert costs[0] > min(costs)
    cheapest = points[costs.index(min(costs))]
    same = configure_answer.try_change(middle, points, cheapest, "traffic doubles", 2.0, 1.0)
    assert same.best == same.kept == changed.best
    more = f"{costs[0] / min(costs) - 1:.0%}"
    name = describe_point(changed.best.point)
    texts = (
        (changed, f"traffic doubles: {name} is the best; the present one would cost {more} more."),
        (
            changed._replace(kept=None),
            f"traffic doubles: {name} is the best; the present one does not attain.",
        ),
        (changed._replace(best=changed.kept), "traffic doubles: the same deployment stays the best."),
        (changed._replace(best=None), "traffic doubles: no deployment of those compared attains every tier."),
    )
    for each, text in texts:
        assert configure_answer.describe_change(each) == text


def test_the_answer_says_what_the_second_best_and_the_defaults_lose() -> None:
    best = score_of(ONE_GPU, 2)._replace(usd_per_hour=10.0, usd_per_million_tokens=1.0, slack=0.04)
    other = ONE_GPU._replace(shape=EngineShape("h100-80gb", 4))
    dear = score_of(other, 1)._replace(usd_per_hour=12.5, usd_per_million_tokens=1.25, slack=0.05)
    equal = dear._replace(usd_per_hour=10.0, usd_per_million_tokens=1.0, slack=0.01)
    query, name = configure_answer.ConfigureQuery("llama3.1-8b", GPUS), describe_point(other)
    for finalists, text in (
        ([best], "no other deployment is within half of its cost again."),
        ([best, dear], f"{name} costs 25% more."),
        ([best, equal], f"{name} costs as much; its attainment is 3.0 points lower in the worst tier."),
    ):
        search = point_search.EngineSearch(finalists, finalists, [], 1, 1, 1)
        bounds = [0.5] * len(finalists)
        answer = configure_answer.EngineAnswer(query, priced(), search, bounds, (0.9, 1.1), 0.1, [], [], dear)
        lines = configure_answer.explain_answer(answer)
        assert f"second   {text}" in lines
        assert "defaults vLLM's defaults on h100-80gb cost 1.25 times as much." in lines
    lines = configure_answer.explain_answer(answer._replace(defaults=None))
    assert "defaults vLLM's defaults on h100-80gb attain with no number of instances." in lines


def test_the_answer_has_vllm_s_defaults_on_its_gpu_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fleetcast try` attains with as many instances and not with one fewer; a row names them."""
    file = write_trace(window(1500, 60.0, seed=4), tmp_path / "busy.parquet")
    answer, printed = run_configure(
        monkeypatch, tmp_path, file, "--quality-floor", "fp8", "--tpot-slo-s", "0.012"
    )
    found = answer["vllm_defaults"]
    settings = {
        "max_batch": 1024,
        "token_budget": 8192,
        "routing": "round_robin",
        "weight_bits": 16,
        "kv_bits": 16,
    }
    assert settings.items() <= found.items()
    [pool] = found["pools"]
    assert (pool["gpu"], pool["tensor_parallel"], pool["pipeline_parallel"]) == ("h100-80gb", 1, 1)
    fleet = ["--fleet", f"{pool['instances']} x llama3.1-8b@h100-80gb", "--config", "defaults.toml"]
    (tmp_path / "defaults.toml").write_text(
        BASE.split("[fleet]")[0]
        + "[fleet]\nmax_batch = 1024\nmax_prefill_tokens = 8192\nbatching = 'chunked'\n"
        "async_scheduling = true\n[replay]\nrouting = 'round_robin'\n"
        "[catalogue]\nlatency_source = 'aiconfigurator-core'\n"
        "[catalogue.tiers.iw_fast]\ntpot_slo_s = 0.012\n"
    )
    for more, attains in ((0, True), (-1, False)):
        fleet[1] = f"{pool['instances'] + more} x llama3.1-8b@1xh100-80gb"
        row = try_command_row(monkeypatch, ["try", str(file), *fleet])
        shares = {tier: row[f"{tier}_attainment_share"] for tier in found["attainment_share"]}
        assert (min(shares.values()) >= 0.95) == attains
        if attains:
            assert shares == found["attainment_share"]
    assert f"vLLM's defaults: {found['engine']}" in " ".join(printed.split())


def test_a_trace_of_the_lake_is_answered_as_its_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, or without a name where the lake has one trace; else one line that names them."""
    lake = Lake(tmp_path / "lake")
    monkeypatch.setattr("fleetcast.assets.lake.environment.LAKE", str(lake.root))
    result = CliRunner().invoke(cli_app, ["configure", "llama3.1-8b", "--quiet"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "No --trace is given, and the lake has no trace." in result.stderr
    land_file(file, lake, CATALOGUE)
    options = ["--colocated", "--tpot-slo-s", "0.02"]
    answers = []
    for source in (str(file), "canonical", None):
        answer, _ = run_configure(monkeypatch, tmp_path, source, *options)
        answers.append({key: answer[key] for key in ("best", "others", "vllm_defaults", "explanation")})
    assert answers[0] == answers[1] == answers[2]
    rows = pd.DataFrame({"TIMESTAMP": ["2025-03-03T09:00"], "ContextTokens": 5, "GeneratedTokens": 1})
    rows.to_csv(tmp_path / "azure.csv", index=False)
    land_file(tmp_path / "azure.csv", lake, CATALOGUE)
    result = CliRunner().invoke(cli_app, ["configure", "llama3.1-8b", "--quiet"])
    assert "the lake has 2 traces: azure_llm, canonical." in result.stderr


TOOL = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --save-dir) folder=$2;; --serving-mode) way=$2;; esac; shift; done
%s
"""
ROW = {
    "agg": "tp,pp,dp,moe_ep,bs\\n2,1,1,1,100",
    "disagg": "(p)tp,(p)pp,(p)dp,(p)moe_ep,(d)tp,(d)pp,(d)dp,(d)moe_ep,(d)bs\\n1,1,1,1,2,1,1,1,100",
}


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    """The bench of this subject."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HOME / "tests" / "bench")
        return runpy.run_path(str(HOME / "tests" / "bench" / "configure.py"))


def advised(bench: dict[str, Any], folder: Path, way: str, script: str) -> list[EnginePoint]:
    """The points that the bench reads from a command that runs this script."""
    tool = folder / "aiconfigurator"
    tool.write_text(TOOL % script)
    tool.chmod(0o755)
    kinds = engine_points.list_kinds(priced(), 8000, ["none"])
    traffic = ConfigureTraffic("bursts", [window(300, 60.0)], ("none",), "")
    return list(bench["recommended_points"](str(tool), "llama3.1-8b", "h100-80gb", way, kinds, traffic))


@pytest.mark.parametrize("way", ["agg", "disagg"])
def test_the_bench_replays_what_aiconfigurator_advises(
    way: str, bench: dict[str, Any], tmp_path: Path
) -> None:
    """Its shapes with both batches; no point is no advice of cost 0, and a failure is no missing point."""
    save = (
        'mkdir -p $folder/$way; printf "%b" "ROW" > $folder/$way/best_config_topn.csv\n'
        'echo \'--max-num-seqs "1" --max-num-batched-tokens 2655 --max-num-seqs "300"\' '
        "> $folder/$way/run_0.sh"
    )
    points = advised(bench, tmp_path, way, save.replace("ROW", ROW[way]))
    one, two = EngineShape("h100-80gb", 1), EngineShape("h100-80gb", 2)
    assert {point.shapes for point in points} == {(two,) if way == "agg" else (one, two)}
    assert [point.settings.max_batch for point in points] == [300, 100]
    assert {point.settings.token_budget for point in points} == {2655}
    assert {point.variant for point in points} == {(16, 16, False)}
    replicated = ROW[way].replace("2,1,1,1,100", "2,1,4,1,100")  # attention dp
    assert advised(bench, tmp_path, way, save.replace("ROW", replicated)) == []
    assert advised(bench, tmp_path, way, "exit 0") == []
    with pytest.raises(RuntimeError, match="no kernels"):
        advised(bench, tmp_path, way, "echo no kernels >&2; exit 1")


def test_a_comparison_without_a_cost_is_left_out_of_the_median(bench: dict[str, Any]) -> None:
    assert bench["median_compared"]([0.5, None, 0.9, None]) == pytest.approx(0.7)
    with pytest.raises(RuntimeError, match="with no llm"):
        bench["median_compared"]([None])
    busy = ConfigureTraffic("bursts", [window(300, 60.0)], ("none",), "")
    market = with_tpot_target(priced(), 0.0005)
    assert bench["least_usd_per_hour"](market, busy, [ONE_GPU]) is None


def refusals(file: Path) -> Iterator[tuple[list[str], str]]:
    """Options, and a part of the one line that refuses them."""
    few = file.parent / "few.parquet"
    pd.read_parquet(file).head(10).to_parquet(few)
    known = ["--trace", str(file)]
    yield ["llama3.1-8b", *known, "--gpus", "h100"], "unknown gpu 'h100'. Did you mean 'h100-80gb'?"
    yield ["llama3.1-9b", *known], "unknown llm 'llama3.1-9b'"
    yield (
        ["gpt-oss-20b", *known, "--quality-floor", "bf16"],
        "gpt-oss-20b has 4 bits a weight, the floor is 16",
    )
    yield ["llama3.1-8b", *known, "--quality-floor", "fp6"], "unknown quality floor 'fp6'"
    yield ["llama3.1-405b-fp8", *known, "--gpus", "l40s-48gb"], "fits nowhere on l40s-48gb"
    yield ["llama3.1-8b", "--trace", str(few)], "busiest hours have 10 requests, at least 200 are needed"
    yield ["llama3.1-8b", "--trace", "nothing"], "no such file, and no trace of this name in the lake"
    yield (
        ["llama3.1-8b", *known, "--gpus", "h100-80gb", "--colocated", "--ttft-slo-s", "0.002"],
        "attains every tier",
    )


def test_bad_input_is_refused_in_one_line(file: Path) -> None:
    for options, message in refusals(file):
        result = CliRunner().invoke(cli_app, ["configure", *options, "--quiet"])
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert message in result.stderr
