"""Tables by the replay and plans replayed whole: what thresholds at their ends are, what a table promises."""

import dataclasses

import numpy as np
import pytest

from assets.lake.settings import Progress
from assets.studies import quality_shift as shift
from assets.studies.offers import offer_of, points_of
from models.plan.quality import Answer, Demand, Offer, carries, cheapest, least_cost
from models.quality.answers import Answers, quality, taken
from models.quality.join import made_up
from models.quality.judges import load_quality
from models.replay.answering import Served, Serving, arrivals_s, pools_of, served
from models.replay.performance import Mix, Shape, carried_per_s, curve, shapes_of, with_estimates
from models.world.catalogue import load_catalogue
from models.world.loading import load_config
from models.world.reading import ConfigError

GPU = "h100-80gb"
SMALL, LARGE = Shape("llama3.1-8b", GPU, 1, 1), Shape("llama3.1-70b", GPU, 4, 1)
CONFIG = load_config("office", load_catalogue())
CATALOGUE = with_estimates(load_catalogue(), [SMALL, LARGE])
SHIPPED = load_quality()
DRAWN = made_up(SHIPPED.answers["mmlu_pro"], SHIPPED.judges["learned"], 8_000, 3).of(
    ["llama3.1-8b", "llama3.1-70b"]
)
ARRIVAL_S = arrivals_s(3_000, 12.0, seed=1)
JUDGE_S = 0.25


def play(rule: str, threshold: float, judge_s: float = JUDGE_S, answers: Answers = DRAWN) -> Served:
    pools = {SMALL: (2, 1.0), LARGE: (3, 1.0)}
    rows = answers.rows(slice(0, ARRIVAL_S.size))
    return served(Serving(rule, (threshold,), pools, judge_s), rows, ARRIVAL_S, CATALOGUE, CONFIG)


@pytest.fixture(scope="module")
def alone() -> Served:
    rows = DRAWN.rows(slice(0, ARRIVAL_S.size))
    return served(Serving("route", (1.0,), {SMALL: (2, 1.0)}, 0.0), rows, ARRIVAL_S, CATALOGUE, CONFIG)


@pytest.mark.parametrize(("rule", "threshold"), [("cascade", 0.0), ("route", 1.0)])
def test_where_nobody_goes_on_the_small_llm_is_alone_bit_by_bit(
    rule: str, threshold: float, alone: Served
) -> None:
    found = play(rule, threshold)
    np.testing.assert_array_equal(found.took_s, alone.took_s)
    np.testing.assert_array_equal(found.score, alone.score)


def test_where_everybody_goes_on_all_legs_are_taken() -> None:
    found = play("cascade", 1.0)
    assert (found.kept == 1).all()
    assert [leg.size for leg in found.leg_s] == [ARRIVAL_S.size] * 2
    # the judge's seconds come on top of both legs
    both_s = found.leg_s[0] + found.leg_s[1] + JUDGE_S
    np.testing.assert_allclose(found.took_s, both_s, rtol=1e-9)


@pytest.mark.parametrize(("rule", "thresholds"), [("cascade", (0.2, 0.5, 0.8)), ("route", (0.8, 0.5, 0.2))])
def test_the_replay_keeps_the_answers_that_the_thresholds_choose(
    rule: str, thresholds: tuple[float, ...]
) -> None:
    rows, before = DRAWN.rows(slice(0, ARRIVAL_S.size)), -1
    for threshold in thresholds:
        found, expected = play(rule, threshold), taken(rows, rule, [threshold])
        np.testing.assert_array_equal(found.kept, expected.kept)
        assert found.quality == pytest.approx(quality(rows, expected))
        assert found.leg_s[1].size > before
        before = found.leg_s[1].size
    (low, high), (worst, best) = found.intervals()
    assert low <= found.p95_s <= high
    assert worst < found.quality < best


def test_what_a_router_sends_to_nobody_goes_to_the_next_larger_llm() -> None:
    rows = DRAWN.rows(slice(0, ARRIVAL_S.size))
    found = served(Serving("route", (0.5,), {LARGE: (3, 1.0)}, 0.0), rows, ARRIVAL_S, CATALOGUE, CONFIG)
    np.testing.assert_array_equal(found.score, rows.score[:, 1])


def test_a_curve_rises_and_a_longer_mix_lies_above_it() -> None:
    short = Mix(np.full(50, 100), np.full(50, 40))
    long = Mix(np.full(50, 100), np.full(50, 80))
    one, two = (curve(SMALL, mix, CATALOGUE, CONFIG) for mix in (short, long))
    for found in (one, two):
        assert (np.diff(found.load_per_s) > 0).all()
        assert (np.diff(found.p95_s) >= 0).all()
    assert (two.p95_s > one.p95_s).all()
    assert (two.load_per_s < one.load_per_s).all()
    middle = carried_per_s(one, one.p95_s[[4]])
    assert one.load_per_s[4] <= middle[0] <= one.load_per_s[5]
    assert carried_per_s(one, np.array([one.p95_s[0] / 2])) == 0


def test_shapes_hold_the_weights_and_the_longest_request() -> None:
    found = shapes_of(["llama3.1-8b", "llama3.1-70b"], [GPU, "rtx5090-32gb"], CATALOGUE, CONFIG, 8_000)
    assert Shape("llama3.1-70b", GPU, 1, 1) not in found
    assert {SMALL, LARGE, Shape("llama3.1-8b", "rtx5090-32gb", 1, 1)} <= set(found)
    assert not [shape for shape in found if shape.gpu == "rtx5090-32gb" and shape.pipeline_parallel > 1]
    assert str(found[-1]).startswith("llama3.1-70b@")
    with pytest.raises(
        ConfigError, match=r"llama3.1-70b and a request of 8,000 tokens fit on none of rtx4090"
    ):
        shapes_of(["llama3.1-70b"], ["rtx4090-24gb"], CATALOGUE, CONFIG, 8_000, tensor_parallel=(1,))


@pytest.fixture(scope="module")
def offer() -> Offer:
    answers = DRAWN.rows(slice(0, 4_000))
    wide = dataclasses.replace(CONFIG, fleet=dataclasses.replace(CONFIG.fleet, max_batch=128))
    grid = points_of(answers, "route", 5)
    return offer_of(
        answers, "route", grid, [SMALL, LARGE], CATALOGUE, wide, SHIPPED.judges["random"], Progress()
    )


@pytest.mark.parametrize("latency_s", [13.0, 20.0])
def test_a_plan_keeps_what_its_tables_promise(offer: Offer, latency_s: float) -> None:
    """Replayed on questions and arrivals that it has not seen."""
    demand = Demand(20.0, np.where(np.arange(len(CATALOGUE.gpus)) == 0, 64, 0))
    wide = dataclasses.replace(CONFIG, fleet=dataclasses.replace(CONFIG.fleet, max_batch=128))
    rows = DRAWN.rows(slice(4_000, 8_000))
    arrival_s = arrivals_s(4_000, 20.0, seed=9)
    plans: list[Answer | None] = [cheapest(offer, demand, point, latency_s) for point in (1, 3)]
    plans.append(least_cost(offer, demand, 0.5, latency_s))
    assert any(plans)
    for plan in plans:
        if plan is not None:
            pools = pools_of([SMALL, LARGE], plan.instances, carries(offer, plan.point, plan.within_s))
            serving = Serving("route", tuple(offer.thresholds[plan.point]), pools, 0.0)
            found = served(serving, rows, arrival_s, CATALOGUE, wide)
            assert found.p95_s <= 1.05 * latency_s
            assert found.quality == pytest.approx(offer.quality[plan.point], abs=0.03)


# --- shifts

SERVICE = shift.Service([SMALL, LARGE], 40, SHIPPED.judges["learned"], 0.5, 25.0, CATALOGUE, CONFIG)
STAYS = shift.Plan(np.array([2, 3]), np.array([0.4]), 12.0, 213.0, 400.0, 0.4)


def test_a_plan_that_stays_is_the_replay_of_the_plan_bit_by_bit() -> None:
    """Row after row, on a fleet that could grow, and with gears that all say the same."""
    rows = DRAWN.rows(slice(0, ARRIVAL_S.size))
    load = shift.Load(rows, ARRIVAL_S, np.zeros(ARRIVAL_S.size, np.int64))
    judge_s = SERVICE.judge.seconds
    whole = play("cascade", 0.4, judge_s)
    alike = [(0.0, STAYS.thresholds), (3.0, STAYS.thresholds)]
    for table in ([], alike):
        rules = shift.rules_of(SERVICE, STAYS, table)
        found = shift.play(SERVICE, load, STAYS, rules, anew=False)
        np.testing.assert_array_equal(found.served.took_s, whole.took_s)
        np.testing.assert_array_equal(found.served.score, whole.score)
        assert found.usd_per_hour == pytest.approx(14 * CATALOGUE.gpus[GPU].usd_per_hour)


def test_a_new_plan_is_made_where_the_load_has_left_the_band_and_the_fleet_follows_by_ones() -> None:
    phases = [shift.Phase(600.0, 6.0), shift.Phase(900.0, 24.0)]
    load = shift.loaded(DRAWN, phases, seed=3)
    small = STAYS._replace(instances=np.array([1, 1]), requests_per_s=6.0)
    calm, found = (
        shift.play(SERVICE, of, small, shift.rules_of(SERVICE, small), anew=True)
        for of in (shift.loaded(DRAWN, phases[:1], seed=3), load)
    )
    assert (calm.plans, found.plans) == (0, 1)
    assert found.usd_per_hour > calm.usd_per_hour
    assert (found.served.kept >= 0).all()
    assert found.served.took_s.size == load.arrival_s.size, "shadows are nobody's"
    target = np.array([2, 3])
    for wanted, after in (([4, 3], [3, 3]), ([1, 4], [2, 4]), ([1, 3], [1, 3]), ([2, 3], [2, 3])):
        np.testing.assert_array_equal(shift.step_towards(target, np.array(wanted), SERVICE), after)
    full = SERVICE._replace(gpus=14)  # no room for one more: one that is not wanted goes first
    np.testing.assert_array_equal(shift.step_towards(target, np.array([1, 4]), full), [1, 3])


def test_lengths_rate_and_scores_each_are_a_shift() -> None:
    seen = DRAWN.rows(slice(0, 4_000))
    first = seen.output_tokens[:, 0]
    plan = STAYS._replace(output_tokens=float(first.mean()), deviation_tokens=float(first.std()))

    def shifted(answers: Answers, rate: float) -> float:
        rng = np.random.default_rng(1)
        return float(np.mean([shift.has_shifted(plan, answers, rate, rng) for _ in range(100)]))

    longer = seen._replace(output_tokens=2 * seen.output_tokens)
    worse = seen._replace(judged=seen.judged / 2)
    assert shifted(seen, 12.0) < 0.1
    assert shifted(seen, 14.0) == 1.0
    assert shifted(longer, 12.0) > 0.3
    assert shifted(worse, 12.0) > 0.9
