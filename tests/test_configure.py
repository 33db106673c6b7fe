"""Engine settings: the bound against the replay, and the search against all points."""

import dataclasses
from collections.abc import Iterable
from itertools import pairwise, product

import numpy as np
import pytest
from engine_market import (
    CATALOGUE,
    OFFICE,
    fewest_by_counting,
    priced,
    score_of,
    traffic_of,
    window,
    with_tpot_target,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fleetcast.assets.studies import configure_answer, try_fleet
from fleetcast.models.configure import engine_points, fleet_trials, point_search
from fleetcast.models.configure.cost_bound import StepGrid, TokenWork, busy_bound_s, shape_busy_s
from fleetcast.models.configure.engine_points import EnginePoint, EngineSettings, EngineShape, EngineVariant
from fleetcast.models.configure.fleet_trials import TrafficWindow
from fleetcast.models.latency.aiconfigurator_profiles import aiconfigurator_profile, build_engine_query
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens

OWN = engine_points.default_settings("none")


@pytest.fixture(scope="module")
def market() -> engine_points.EngineMarket:
    return priced("fp8")


@pytest.fixture(scope="module")
def trials(market: engine_points.EngineMarket) -> point_search.FleetTrials:
    return point_search.FleetTrials(market, [window(2500, 120.0)])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1), st.integers(1, 8))
def test_points_that_equal_a_chosen_one_are_chosen_and_no_others(
    rows: list[tuple[int, int]], count: int
) -> None:
    kinds = [EnginePoint(EngineVariant(16, 16, False), EngineShape("h100-80gb", 2**n), OWN) for n in range(3)]
    scores = [score_of(kinds[kind], 1)._replace(usd_per_hour=usd) for kind, usd in sorted(rows)]
    found = point_search.spread_kinds(scores, count)
    ranks = {point_search.rank_score(score) for score in found[:count]}
    assert len(found) >= min(count, len(scores))
    assert len(found) == sum(point_search.rank_score(score) in ranks for score in scores)


def test_of_answers_of_one_cost_the_one_that_changes_the_llm_least_comes_first() -> None:
    """Fewer bits leave more slack, so slack alone would always take them."""
    bits = [(16, 16), (16, 8), (8, 16), (8, 8)]
    points = [EnginePoint(EngineVariant(*pair, False), EngineShape("h100-80gb", 1), OWN) for pair in bits]
    scores = [score_of(point, 1)._replace(slack=0.01 * n) for n, point in enumerate(points)]
    dear = scores[0]._replace(usd_per_hour=2 * scores[0].usd_per_hour)
    slack = scores[3]._replace(slack=0.04)
    found = sorted([dear, *reversed(scores), slack], key=point_search.rank_answer)
    assert found == [*scores[:3], slack, scores[3], dear]


def test_the_bound_is_at_most_the_best_steps_of_a_linear_programme_and_little_less() -> None:
    """Prompt tokens, decoded tokens and memory for the cached ones, whichever binds: scipy's best steps."""
    for seed in range(400):
        rng = np.random.default_rng(seed)
        batch, chunk = (
            axis.ravel()[1:] for axis in np.meshgrid([0, 1, 4, 16, 64, 256], [0, 64, 512, 2048.0])
        )
        seconds = rng.uniform(1e-3, 0.03) + rng.uniform(1e-6, 1e-4) * chunk + rng.uniform(0, 1e-3) * batch
        prompt, decoded = 10 ** rng.uniform(2, 6, 2)
        kv_tokens = int(10 ** rng.uniform(3, 5.5))
        cached = rng.uniform(1e-3, 1.2) * decoded / rng.choice([1, 4, 16, 64]) * kv_tokens
        done = -np.array([chunk, batch, kv_tokens * (batch > 0)])
        least_s = linprog(seconds, A_ub=done, b_ub=[-prompt, -decoded, -cached]).fun
        work = TokenWork(prompt, decoded, cached, 1.0)
        bound_s = busy_bound_s(StepGrid(chunk, batch, seconds), work, 0.0, kv_tokens)
        assert 0.85 * least_s < bound_s < least_s


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(engine_points.BATCHES),
    st.sampled_from(engine_points.TOKEN_BUDGETS),
    st.sampled_from(
        [EngineShape("h100-80gb", 1), EngineShape("h100-80gb", 4), EngineShape("h100-80gb", 1, 2)]
    ),
    st.sampled_from([(10, 20), (3000, 20), (200, 700), (1500, 300)]),
    st.sampled_from([(), (), (0.9,), (0.75, 0.5, 0.25)]),
)
def test_no_engine_is_faster_than_its_bound(
    batch: int, budget: int, shape: EngineShape, means: tuple[int, int], rates: tuple[float, ...]
) -> None:
    """The replay of a flood on one instance takes at least the bound, and for long prompts little more."""
    assume(budget > batch * (1 + len(rates)))
    market = priced()
    rng = np.random.default_rng(means[0])
    zeros = np.zeros(400, np.int16)
    inputs, outputs = (rng.integers(1, 2 * mean, 400).astype(np.int32) for mean in means)
    trace = TraceArrays(np.zeros(400), zeros, zeros, zeros, inputs, outputs)
    point = EnginePoint(
        EngineVariant(16, 16, False), shape, EngineSettings(batch, budget, "none", "least_kv", rates, 0.001)
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
    """More instances, faster engines, and a cache with more room."""
    kinds, gains = engine_points.list_kinds(trials.market, 8000, ["none"]), []
    fleet = dataclasses.replace(trials.market.config.fleet, kv_memory_share=0.22)
    config = dataclasses.replace(trials.market.config, fleet=fleet)
    crowded = point_search.FleetTrials(trials.market._replace(config=config), trials.windows)
    for kind in kinds[:: len(kinds) // 4]:
        line = point_search.count_line(trials, kind)
        slack = [trials.score(kind, line.counts(sum(line.low) + n)).slack for n in range(5)]
        assert all(b >= a - 0.002 for a, b in pairwise(slack)), kind
        faster = point_search.FleetTrials(trials.market.with_slower_engines(0.7, 0.7), trials.windows)
        gains.append(faster.score(kind, line.counts(sum(line.low))).slack - slack[0])
        gains.append(slack[2] - crowded.score(kind, line.counts(sum(line.low) + 2)).slack)
    assert min(gains) >= -0.002
    assert min(max(gains[::2]), max(gains[1::2])) > 0.1


def all_settings(kind: EnginePoint) -> list[EnginePoint]:
    """A kind with each batch, each larger token budget and each router, without the search's own list."""
    every = product(engine_points.BATCHES, engine_points.TOKEN_BUDGETS, engine_points.ROUTERS)
    return [
        kind._replace(settings=EngineSettings(batch, budget, "none", router))
        for batch, budget, router in every
        if budget > batch
    ]


def least_of_all_counts(trials: point_search.FleetTrials, points: Iterable[EnginePoint]) -> float:
    """The least USD per hour of these points, each with every count from one up, without bound or guess."""
    least = np.inf
    for point in points:
        catalogue = trials.market.catalogue_of(point)
        for count in range(1, 30):
            usd = point.usd_per_hour(catalogue, (count,))
            if usd >= least:
                break
            if trials.score(point, (count,)).is_attained:
                least = usd
    return float(least)


@pytest.mark.parametrize("tpot_slo_s", [None, 0.03])
def test_the_search_finds_what_all_points_have(
    tpot_slo_s: float | None, market: engine_points.EngineMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On windows that differ, with more kinds than reach the second stage; with a target, settings pay."""
    monkeypatch.setattr(configure_answer, "SHORT", (600, 10.0))
    monkeypatch.setattr(configure_answer, "MIDDLE", (1800, 40.0))
    hour, market = window(5000, 120.0, seed=3), with_tpot_target(market, tpot_slo_s)
    short, middle, whole = configure_answer.nest_trials(market, [hour])
    sizes = [trials.windows[0].trace.arrival_s.size for trials in (short, middle, whole)]
    assert sizes == sorted(set(sizes))
    kinds = engine_points.list_kinds(market, 8000, ["none"], "together")[::2]
    assert len(kinds) > 2 * point_search.BEST_KINDS
    found = point_search.search_engines(short, middle, whole, kinds)
    assert found is not None
    points = [point for kind in kinds for point in all_settings(kind)]
    assert found.considered == len(points)
    alone = point_search.FleetTrials(market, [hour])
    assert found.finalists[0].usd_per_hour == least_of_all_counts(alone, points)
    assert tpot_slo_s is None or found.finalists[0].usd_per_hour < least_of_all_counts(alone, kinds)
    assert found.finalists[0].usd_per_hour > min(kind.usd_per_hour(CATALOGUE, (1,)) for kind in kinds)
    assert all(score.is_attained for score in (*found.finalists, *found.front))
    tpot = [score.seconds["tpot_p95_s"] for score in found.front]
    assert tpot == sorted(tpot, reverse=True)
    first = min((point for point, _ in whole.scores), key=whole.steady_usd)
    most = max(sum(counts) for point, counts in whole.scores if point == first)
    assert most < point_search.HOPELESS * point_search.count_line(whole, first).steady, (
        "shorter windows guess"
    )


def test_each_backend_that_attains_is_among_the_finalists(
    market: engine_points.EngineMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three backends one kind goes on from the short window; the others are searched alone."""
    monkeypatch.setattr(point_search, "BEST_KINDS", 1)
    backends = ["vllm", "sglang", "trtllm"]
    of_all = engine_points.price_engines(
        CATALOGUE, market.llm, ["h100-80gb"], None, market.config, 8000, backends
    )
    trials = point_search.FleetTrials(of_all, [window(2500, 120.0)])
    kinds = [
        kind
        for kind in engine_points.list_kinds(of_all, 8000, ["none"], "together")
        if kind.shape == EngineShape("h100-80gb", 1)
    ]
    assert {kind.variant.backend for kind in kinds} == {*backends}
    first = point_search.search_engines(trials, trials, trials, kinds)
    found = point_search.search_backends(
        kinds, lambda some: point_search.search_engines(trials, trials, trials, some)
    )
    assert first is not None
    assert found is not None
    assert len({score.point.variant.backend for score in first.finalists}) == 1
    assert {score.point.variant.backend for score in found.finalists} == {*backends}
    usd = [score.usd_per_hour for score in found.finalists]
    assert usd == sorted(usd)
    assert usd[0] <= first.finalists[0].usd_per_hour


def test_fewer_bits_are_chosen_only_where_they_cost_less(market: engine_points.EngineMarket) -> None:
    """A light load needs one instance in any bits; a heavy one fewer instances in fewer bits."""
    kinds = [
        kind
        for kind in engine_points.list_kinds(market, 8000, ["none"], "together")
        if kind.shape == EngineShape("h100-80gb", 1)
    ]
    assert len({kind.variant for kind in kinds}) == len(kinds) > 1
    best = []
    for requests in (300, 20_000):
        trials = point_search.FleetTrials(market, [window(requests, 120.0)])
        found = point_search.search_engines(trials, trials, trials, kinds)
        assert found is not None
        best.append(found.finalists[0].point.variant.weight_bits)
    assert best == [16, 8]


def test_draft_tokens_are_chosen_where_they_pay(market: engine_points.EngineMarket) -> None:
    """Answers alone, few requests at a time: drafts that are accepted pay; others, or slow ones, do not."""
    requests = 60
    load = traffic_of(np.arange(requests) / 4, np.full(requests, 100), np.full(requests, 400))
    taken = {}
    for rates, draft_s in (((0.9, 0.8), 0.0), ((0.02, 0.0), 0.0), ((0.9, 0.8), 0.1)):
        fleet = dataclasses.replace(
            market.config.fleet, speculative_acceptance=rates, speculative_draft_s=draft_s
        )
        config = dataclasses.replace(market.config, fleet=fleet)
        drafted = with_tpot_target(market._replace(config=config), 0.004)
        kinds = [
            kind
            for kind in engine_points.list_kinds(drafted, 8000, ["none"], "together")
            if kind.shape == EngineShape("h100-80gb", 1) and kind.variant == EngineVariant(16, 16, False)
        ]
        assert [len(kind.settings.speculative_acceptance) for kind in kinds] == [0, 1, 2]
        trials = point_search.FleetTrials(drafted, [load])
        scores = [point_search.fewest_attaining(trials, kind) for kind in kinds]
        taken[rates, draft_s] = [score and score.counts[0] for score in scores]
    assert taken[(0.9, 0.8), 0.0] == [None, 1, 1]  # 4 ms a token are not possible with one token a step
    assert taken[(0.02, 0.0), 0.0] == taken[(0.9, 0.8), 0.1] == [None] * 3


def test_points_that_are_equal_on_a_short_window_all_go_on(trials: point_search.FleetTrials) -> None:
    """One instance serves the light windows whatever its settings; the whole window needs the right ones."""
    light = point_search.FleetTrials(trials.market, [window(60, 120.0)])
    [kind] = [
        kind
        for kind in engine_points.list_kinds(trials.market, 8000, ["none"], "together")
        if kind.variant == EngineVariant(16, 16, False) and kind.shape == EngineShape("h100-80gb", 1)
    ]
    found = point_search.search_engines(light, light, trials, [kind])
    points = all_settings(kind)
    assert len(points) > point_search.MIDDLE_POINTS
    assert len({light.score(point, (1,)).slack for point in points}) == 1  # all are equal there
    alone = point_search.FleetTrials(trials.market, trials.windows)
    assert found is not None
    assert found.finalists[0].usd_per_hour == least_of_all_counts(alone, points)


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


def test_ranks_share_whole_and_split_experts() -> None:
    """Two ranks of one GPU: with split experts each GPU has a half of every expert, and other kernels."""
    market = engine_points.price_engines(CATALOGUE, "gpt-oss-20b", ("h100-80gb",), None, OFFICE, 8000)
    kinds = engine_points.list_kinds(market, 8000, ["none"], "together")
    two = [kind for kind in kinds if kind.shape == EngineShape("h100-80gb", 1, 1, 2)]
    assert {kind.variant.is_expert_parallel for kind in two} == {False, True}
    queries = {}
    for kind in two:
        served = market.served_catalogue(kind, kind.shape)
        query = build_engine_query(served, "gpt-oss-20b", "h100-80gb", 1)
        queries[kind.variant.is_expert_parallel] = query.ranks, query.expert_parallel
    assert queries == {False: (2, 1), True: (2, 2)}


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
