"""Answer tables by replay and whole plans replayed: extreme thresholds, and what a table promises."""

import dataclasses

import numpy as np
import pytest
import quality_gears
import quality_shift as shift

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.plans.quality_offers import (
    JudgeSetup,
    add_shadow_share,
    judged_answers_per_request,
    length_mixes,
    measure_quality_offer,
    router_calls_per_request,
    routing_points,
)
from fleetcast.models.plan.quality_milp import (
    PointPlan,
    QualityDemand,
    QualityOffer,
    cheapest_point_plan,
    replica_capacity_per_s,
)
from fleetcast.models.plan.quality_objectives import least_cost_plan
from fleetcast.models.quality.answers import JudgedAnswers, SelectedAnswers, mean_quality, select_answers
from fleetcast.models.quality.judges import load_quality
from fleetcast.models.quality.trace_answers import generate_answers
from fleetcast.models.replay.session.legs import choose_answers
from fleetcast.models.trials.latency_curves import (
    LengthMix,
    ReplicaShape,
    add_roofline_profiles,
    feasible_shapes,
    measure_latency_curve,
)
from fleetcast.models.trials.model_routing import (
    RoutingOutcome,
    RoutingPlan,
    poisson_arrivals_s,
    replay_routing_plan,
    weighted_pools,
)
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.replay_config import Cascade
from fleetcast.models.world.toml_dataclasses import ConfigError

GPU = "h100-80gb"
SMALL, LARGE = ReplicaShape("llama3.1-8b", GPU, 1, 1), ReplicaShape("llama3.1-70b", GPU, 4, 1)
CONFIG = load_config("sageserve", load_catalogue())
CATALOGUE = add_roofline_profiles(load_catalogue(), [SMALL, LARGE])
SHIPPED = load_quality()
DRAWN = generate_answers(SHIPPED.answers["mmlu_pro"], SHIPPED.judges["learned"], 8_000, 3).of(
    ["llama3.1-8b", "llama3.1-70b"]
)
ARRIVAL_S = poisson_arrivals_s(3_000, 12.0, seed=1)
JUDGE_S = 0.25


def play(
    rule: str, threshold: float, judge_s: float = JUDGE_S, answers: JudgedAnswers = DRAWN
) -> RoutingOutcome:
    pools = {SMALL: (2, 1.0), LARGE: (3, 1.0)}
    rows = answers.rows(slice(0, ARRIVAL_S.size))
    return replay_routing_plan(
        RoutingPlan(rule, (threshold,), pools, judge_s), rows, ARRIVAL_S, CATALOGUE, CONFIG
    )


@pytest.mark.parametrize("at_arrival", [False, True])
def test_at_arrival_the_hardness_decides_and_after_an_answer_its_score(at_arrival: bool) -> None:
    """The same share gets the larger llm's answer; of these the smaller one has seen all, or none."""
    cascade = Cascade(DRAWN.llms, (0.25,), 0.1, at_arrival=at_arrival)
    found = choose_answers(cascade, DRAWN)
    assert (found.kept == 1).mean() == pytest.approx(0.25, abs=0.02)
    assert found.reached[:, 0][found.kept == 1].all() == (not at_arrival)
    decisive, other = (DRAWN.hardness, -DRAWN.judged) if at_arrival else (-DRAWN.judged, DRAWN.hardness)
    assert decisive[found.kept == 1].min() >= decisive[found.kept == 0].max()
    assert other[found.kept == 1].min() < other[found.kept == 0].max()


@pytest.mark.parametrize(("longer", "mixes"), [(0.01, 1), (0.019, 1), (0.021, 2), (0.2, 2)])
def test_mixes_that_differ_by_two_percent_are_measured_apart(longer: float, mixes: int) -> None:
    """Two points: one sends the llm the short half of the questions, the other one the long half."""
    is_long = np.arange(2000) >= 1000
    tokens = np.where(is_long, round(10_000 * (1 + longer)), 10_000)
    nothing = np.zeros((2000, 0))
    answers = JudgedAnswers(("m",), tokens, tokens[:, None], tokens[:, None] > 0, nothing, nothing)
    points = [SelectedAnswers(half[:, None], np.zeros(2000, np.int64)) for half in (~is_long, is_long)]
    found, place = length_mixes(answers, points, 0)
    assert len(found) == mixes
    np.testing.assert_array_equal(place, [0, mixes - 1])
    np.testing.assert_array_equal(found[0], ~is_long)


@pytest.fixture(scope="module")
def alone() -> RoutingOutcome:
    rows = DRAWN.rows(slice(0, ARRIVAL_S.size))
    return replay_routing_plan(
        RoutingPlan("route", (1.0,), {SMALL: (2, 1.0)}, 0.0), rows, ARRIVAL_S, CATALOGUE, CONFIG
    )


@pytest.mark.parametrize(("rule", "threshold"), [("cascade", 0.0), ("route", 1.0)])
def test_threshold_zero_equals_the_small_llm_alone_bit_by_bit(
    rule: str, threshold: float, alone: RoutingOutcome
) -> None:
    found = play(rule, threshold)
    np.testing.assert_array_equal(found.answer_latency_s, alone.answer_latency_s)
    np.testing.assert_array_equal(found.score, alone.score)


def test_threshold_one_takes_all_legs() -> None:
    found = play("cascade", 1.0)
    assert (found.kept == 1).all()
    assert [leg.size for leg in found.leg_s] == [ARRIVAL_S.size] * 2
    # the judge's seconds are added to both legs, and to the one leg of an accepted answer
    accepted = play("cascade", 0.5)
    first = accepted.kept == 0
    np.testing.assert_allclose(
        accepted.answer_latency_s[first], accepted.leg_s[0][first] + JUDGE_S, rtol=1e-9
    )
    both_s = found.leg_s[0] + found.leg_s[1] + JUDGE_S
    np.testing.assert_allclose(found.answer_latency_s, both_s, rtol=1e-9)


@pytest.mark.parametrize(("rule", "thresholds"), [("cascade", (0.2, 0.5, 0.8)), ("route", (0.8, 0.5, 0.2))])
def test_the_replay_keeps_the_answers_that_the_thresholds_choose(
    rule: str, thresholds: tuple[float, ...]
) -> None:
    rows, before = DRAWN.rows(slice(0, ARRIVAL_S.size)), -1
    for threshold in thresholds:
        found, expected = play(rule, threshold), select_answers(rows, rule, [threshold])
        np.testing.assert_array_equal(found.kept, expected.kept)
        assert found.quality == pytest.approx(mean_quality(rows, expected))
        assert found.leg_s[1].size > before
        before = found.leg_s[1].size
    (low, high), (worst, best) = found.intervals()
    assert low <= found.p95_s <= high
    assert worst < found.quality < best


def test_a_router_equals_two_separate_replays() -> None:
    """The requests of two llms never meet: each llm serves its own as if the others did not arrive."""
    rows = DRAWN.rows(slice(0, ARRIVAL_S.size))
    both = play("route", 0.5)
    for place, (shape, count) in enumerate(((SMALL, 2), (LARGE, 3))):
        own = both.kept == place
        alone = replay_routing_plan(
            RoutingPlan("route", (1.0 - place,), {shape: (count, 1.0)}, 0.0),
            rows.rows(own), ARRIVAL_S[own], CATALOGUE, CONFIG,
        )  # fmt: skip
        assert 0.3 < own.mean() < 0.7
        np.testing.assert_array_equal(both.answer_latency_s[own], alone.answer_latency_s)


def test_an_llm_without_instances_routes_to_the_next_larger_llm() -> None:
    rows = DRAWN.rows(slice(0, ARRIVAL_S.size))
    found = replay_routing_plan(
        RoutingPlan("route", (0.5,), {LARGE: (3, 1.0)}, 0.0), rows, ARRIVAL_S, CATALOGUE, CONFIG
    )
    np.testing.assert_array_equal(found.score, rows.score[:, 1])


JUDGE = ReplicaShape("qwen3-8b", GPU, 1, 1)
RUBRIC = 100


def play_with_llm_judge(threshold: float) -> RoutingOutcome:
    """Play the cascade with an llm of the fleet as judge; its verdicts are those of the external service."""
    pools = {SMALL: (2, 1.0), LARGE: (3, 1.0), JUDGE: (1, 1.0)}
    serving = RoutingPlan("cascade", (threshold,), pools, 0.0, JUDGE.llm, RUBRIC)
    world = add_roofline_profiles(CATALOGUE, [JUDGE])
    return replay_routing_plan(serving, DRAWN.rows(slice(0, ARRIVAL_S.size)), ARRIVAL_S, world, CONFIG)


def test_an_llm_judge_gives_equal_verdicts_and_adds_its_leg(alone: RoutingOutcome) -> None:
    """An accepted draft's latency ends at its verdict; a request that goes on has all three legs."""
    external, internal = play("cascade", 0.5, judge_s=0.0), play_with_llm_judge(0.5)
    np.testing.assert_array_equal(internal.kept, external.kept)
    np.testing.assert_array_equal(internal.score, external.score)
    size, gone = ARRIVAL_S.size, internal.kept == 1
    assert internal.llms == ("llama3.1-8b", "llama3.1-70b", "qwen3-8b")
    assert [leg.size for leg in internal.leg_s] == [size, gone.sum(), size]
    # the small llm never waits for the judge: its legs are those of a fleet without a judge
    np.testing.assert_array_equal(internal.leg_s[0], alone.leg_s[0])
    waited_s = internal.answer_latency_s - internal.leg_s[0] - internal.leg_s[2]
    np.testing.assert_allclose(waited_s[~gone], 0.0, atol=1e-9)
    np.testing.assert_allclose(waited_s[gone], internal.leg_s[1], rtol=1e-9)
    none = play_with_llm_judge(0.0)
    assert none.leg_s[2].size == 0, "no answer can be rejected: no judge runs"
    np.testing.assert_array_equal(none.answer_latency_s, alone.answer_latency_s)


def test_an_llm_judge_reads_prompt_answer_and_rubric() -> None:
    """A single question: its leg is that of a request of this length, for one token."""
    rows, once = DRAWN.rows(slice(0, 1)), np.zeros(1)
    world, pools = (
        add_roofline_profiles(CATALOGUE, [JUDGE]),
        {SMALL: (1, 1.0), LARGE: (1, 1.0), JUDGE: (1, 1.0)},
    )
    found = replay_routing_plan(
        RoutingPlan("cascade", (1.0,), pools, 0.0, JUDGE.llm, RUBRIC), rows, once, world, CONFIG
    )
    read = rows.input_tokens + rows.output_tokens[:, 0] + RUBRIC
    as_request = rows._replace(
        llms=(JUDGE.llm, LARGE.llm), input_tokens=read, output_tokens=np.ones((1, 2), np.int64)
    )
    expected = replay_routing_plan(
        RoutingPlan("route", (1.0,), {JUDGE: (1, 1.0)}, 0.0), as_request, once, world, CONFIG
    )
    np.testing.assert_allclose(found.leg_s[2], expected.answer_latency_s, rtol=1e-12)


@pytest.mark.parametrize("rule", ["cascade", "route"])
def test_shadows_add_load_but_no_latency(rule: str) -> None:
    share, size = 0.2, ARRIVAL_S.size
    pools = {SMALL: (2, 1.0), LARGE: (3, 1.0)}
    rows = DRAWN.rows(slice(0, size))
    plain, found = (
        replay_routing_plan(
            RoutingPlan(rule, (0.5,), pools, JUDGE_S, None, 0, part), rows, ARRIVAL_S, CATALOGUE, CONFIG
        )
        for part in (0.0, share)
    )
    np.testing.assert_array_equal(found.kept, plain.kept)
    assert [leg.size for leg in found.leg_s] == [leg.size for leg in plain.leg_s]
    missing = [size - leg.size for leg in plain.leg_s]
    assert found.shadow_legs == pytest.approx([share * rest for rest in missing], rel=0.1)
    assert plain.shadow_legs == [0, 0]
    assert found.leg_s[1].mean() > plain.leg_s[1].mean()


@pytest.mark.parametrize("rule", ["cascade", "route"])
@pytest.mark.parametrize("shadow_share", [0.0, 0.2])
def test_plans_cover_the_legs_verdicts_and_shadows_that_the_replay_plays(
    rule: str, shadow_share: float
) -> None:
    """By request and llm; each answer to a sampled question is judged once, whichever llm made it."""
    rows, limits = DRAWN.rows(slice(0, ARRIVAL_S.size)), np.array([[0.5]])
    pools, world = (
        {SMALL: (2, 1.0), LARGE: (3, 1.0), JUDGE: (2, 1.0)},
        add_roofline_profiles(CATALOGUE, [JUDGE]),
    )
    serving = RoutingPlan(rule, (0.5,), pools, 0.0, JUDGE.llm, RUBRIC, shadow_share)
    found = replay_routing_plan(serving, rows, ARRIVAL_S, world, CONFIG)
    who = [select_answers(rows, rule, limits[0])]
    planned = [
        *add_shadow_share(who[0].shares, shadow_share),
        *judged_answers_per_request(rule, limits, who, shadow_share),
    ]
    played = [
        (leg.size + more) / ARRIVAL_S.size for leg, more in zip(found.leg_s, found.shadow_legs, strict=True)
    ]
    assert played == pytest.approx(planned, abs=0.02)
    assert (sum(found.shadow_legs) > 0) == (shadow_share > 0)


def test_a_router_scores_every_request_where_it_has_a_choice() -> None:
    who = [select_answers(DRAWN, "route", [limit]) for limit in (0.0, 0.3, 1.0)]
    assert router_calls_per_request("route", who).tolist() == [0.0, 1.0, 0.0]
    assert router_calls_per_request("cascade", who).tolist() == [0.0, 0.0, 0.0]


def test_a_curve_rises_and_a_longer_mix_lies_above_it() -> None:
    short = LengthMix(np.full(50, 100), np.full(50, 40))
    long = LengthMix(np.full(50, 100), np.full(50, 80))
    one, two = (measure_latency_curve(SMALL, mix, CATALOGUE, CONFIG) for mix in (short, long))
    for found in (one, two):
        assert (np.diff(found.load_per_s) > 0).all()
        assert (np.diff(found.p95_s) >= 0).all()
    assert (two.p95_s > one.p95_s).all()
    assert (two.load_per_s < one.load_per_s).all()


def test_shapes_hold_the_weights_and_the_longest_request() -> None:
    found = feasible_shapes(["llama3.1-8b", "llama3.1-70b"], [GPU, "rtx5090-32gb"], CATALOGUE, CONFIG, 8_000)
    assert ReplicaShape("llama3.1-70b", GPU, 1, 1) not in found
    assert {SMALL, LARGE, ReplicaShape("llama3.1-8b", "rtx5090-32gb", 1, 1)} <= set(found)
    assert not [shape for shape in found if shape.gpu == "rtx5090-32gb" and shape.pipeline_parallel > 1]
    assert str(found[-1]).startswith("llama3.1-70b@")
    with pytest.raises(
        ConfigError, match=r"llama3.1-70b and a request of 8,000 tokens fit on none of rtx4090"
    ):
        feasible_shapes(["llama3.1-70b"], ["rtx4090-24gb"], CATALOGUE, CONFIG, 8_000, tensor_parallel=(1,))


@pytest.fixture(scope="module")
def offer() -> QualityOffer:
    answers = DRAWN.rows(slice(0, 4_000))
    wide = dataclasses.replace(CONFIG, fleet=dataclasses.replace(CONFIG.fleet, max_batch=128))
    grid = routing_points(answers, "route", 5)
    return measure_quality_offer(
        answers,
        "route",
        grid,
        [SMALL, LARGE],
        CATALOGUE,
        wide,
        JudgeSetup(SHIPPED.judges["random"]),
        Progress(),
    )


@pytest.mark.parametrize("latency_s", [13.0, 20.0])
def test_a_plan_keeps_what_its_tables_promise(offer: QualityOffer, latency_s: float) -> None:
    """Replay it on unseen questions and arrivals."""
    demand = QualityDemand(20.0, np.where(np.arange(len(CATALOGUE.gpus)) == 0, 64, 0))
    wide = dataclasses.replace(CONFIG, fleet=dataclasses.replace(CONFIG.fleet, max_batch=128))
    rows = DRAWN.rows(slice(4_000, 8_000))
    arrival_s = poisson_arrivals_s(4_000, 20.0, seed=9)
    plans: list[PointPlan | None] = [cheapest_point_plan(offer, demand, point, latency_s) for point in (1, 3)]
    plans.append(least_cost_plan(offer, demand, 0.5, latency_s))
    assert any(plans)
    for plan in plans:
        if plan is not None:
            pools = weighted_pools(
                [SMALL, LARGE], plan.instances, replica_capacity_per_s(offer, plan.point, plan.within_s)
            )
            serving = RoutingPlan("route", tuple(offer.thresholds[plan.point]), pools, 0.0)
            found = replay_routing_plan(serving, rows, arrival_s, CATALOGUE, wide)
            assert found.p95_s <= 1.05 * latency_s
            # two standard errors of the data behind the tables and of the replay
            apart = 2 * np.hypot(offer.error[plan.point], found.score.std() / np.sqrt(found.score.size))
            assert found.quality == pytest.approx(offer.quality[plan.point], abs=apart)


# --- shifts

SERVICE = shift.Service([SMALL, LARGE], 40, SHIPPED.judges["learned"], 0.5, 25.0, CATALOGUE, CONFIG)
STAYS = shift.Plan(np.array([2, 3]), np.array([0.4]), 12.0, 213.0, 400.0, 0.4)


def test_without_shifts_the_run_equals_the_replay_of_its_plan() -> None:
    """Row after row, on a fleet that could grow, with gears that are all equal."""
    rows = DRAWN.rows(slice(0, ARRIVAL_S.size))
    load = shift.Load(rows, ARRIVAL_S, np.zeros(ARRIVAL_S.size, np.int64))
    judge_s = SERVICE.judge.seconds
    whole = play("cascade", 0.4, judge_s)
    alike = [(0.0, STAYS.thresholds), (3.0, STAYS.thresholds)]
    for table in ([], alike):
        rules = quality_gears.rules_of(SERVICE, STAYS, table)
        found = shift.play(SERVICE, load, STAYS, rules, anew=False)
        np.testing.assert_array_equal(found.served.answer_latency_s, whole.answer_latency_s)
        np.testing.assert_array_equal(found.served.score, whole.score)
        assert found.usd_per_hour == pytest.approx(14 * CATALOGUE.gpus[GPU].usd_per_hour)
