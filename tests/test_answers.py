"""Answers, their model, judges and the join with a trace: laws, and the figures that were fitted."""

import dataclasses

import numpy as np
import pytest
from copula_fit import class_means, fit, normal_correlation
from hypothesis import given
from hypothesis import strategies as st
from quality_oracles import skill

from fleetcast.models.quality.answer_copula import AnswerModel, draw_conditional_normals
from fleetcast.models.quality.answers import SELECTION_RULES, JudgedAnswers, mean_quality, select_answers
from fleetcast.models.quality.judges import Judge, apply_judge, load_quality
from fleetcast.models.quality.trace_answers import (
    LandedAnswers,
    ServedRequests,
    generate_answers,
    sample_landed_answers,
    sample_request_answers,
)
from fleetcast.models.world.toml_dataclasses import ConfigError

SHIPPED = load_quality()
MODEL, JUDGES = SHIPPED.answers["mmlu_pro"], SHIPPED.judges
MANY = 40_000
DRAWN = generate_answers(MODEL, JUDGES["learned"], MANY, seed=3)


@given(st.floats(-0.9, 0.9))
def test_two_halves_of_a_normal_have_the_tetrachoric_correlation(r: float) -> None:
    """Sheppard: both are above their median with probability 1/4 + asin(r) / (2 pi)."""
    both = round(10_000 * (0.25 + np.arcsin(r) / (2 * np.pi)))
    x = np.repeat([0, 0, 1, 1], [both, 5000 - both, 5000 - both, both])
    y = np.repeat([0, 1, 0, 1], [both, 5000 - both, 5000 - both, both])
    (mean_x, of_x), (mean_y, of_y) = class_means(x), class_means(y)
    assert normal_correlation(mean_x, mean_y, of_x, of_y) == pytest.approx(r, abs=2e-3)


def test_samples_have_the_marginals_and_correlations_of_the_model() -> None:
    for n, shares in enumerate(MODEL.grade_shares):
        error = np.sqrt(shares[1] * shares[0] / MANY)
        assert DRAWN.score[:, n].mean() == pytest.approx(shares[1], abs=4 * error)
        assert np.median(DRAWN.output_tokens[:, n]) == pytest.approx(MODEL.output_tokens[n][21], rel=0.02)
    again = fit(DRAWN, "drawn")
    np.testing.assert_allclose(again.matrix, MODEL.matrix, atol=0.03)


def test_known_values_stay_and_the_rest_is_conditional_on_them() -> None:
    rng = np.random.default_rng(0)
    correlation = np.array([[1.0, 0.6, 0.3], [0.6, 1.0, 0.5], [0.3, 0.5, 1.0]])
    z = rng.standard_normal((MANY, 1))
    drawn = draw_conditional_normals(correlation, [1], z, rng)
    np.testing.assert_array_equal(drawn[:, [1]], z)
    np.testing.assert_allclose(np.corrcoef(drawn.T), correlation, atol=0.02)


def requests(
    inputs: np.ndarray, outputs: np.ndarray, llm: str = "llama3.1-8b", app: np.ndarray | None = None
) -> ServedRequests:
    """Requests that one llm served, without query ids."""
    no_ids = np.full(inputs.size, None)
    return ServedRequests(np.full(inputs.size, llm), no_ids if app is None else app, inputs, outputs, no_ids)


def test_a_request_keeps_its_own_lengths_and_long_ones_are_answered_worse() -> None:
    rng = np.random.default_rng(1)
    inputs, outputs = rng.integers(1, 5000, 20_000), np.round(rng.lognormal(5, 1, 20_000)).astype(int) + 1
    app = rng.integers(0, 3, 20_000)
    served = requests(inputs, outputs, app=app)
    answers = sample_request_answers(MODEL, JUDGES["learned"], served, seed=5)
    np.testing.assert_array_equal(answers.input_tokens, inputs)
    np.testing.assert_array_equal(answers.output_tokens[:, 1], outputs)
    short = outputs <= np.quantile(outputs, 0.2)
    assert answers.score[short, 1].mean() > answers.score[~short, 1].mean() + 0.05
    again = sample_request_answers(MODEL, JUDGES["learned"], served, seed=5)
    for one, other in zip(answers[1:], again[1:], strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ConfigError, match=r"unknown llm 'llama2-70b'"):
        sample_request_answers(MODEL, JUDGES["learned"], requests(inputs, outputs, "llama2-70b"), seed=5)


def test_requests_of_model_length_give_other_llms_model_lengths() -> None:
    served = requests(DRAWN.input_tokens, DRAWN.output_tokens[:, 1])
    found = sample_request_answers(MODEL, JUDGES["learned"], served, seed=6)
    for llm in (0, 2):
        theirs = np.quantile(found.output_tokens[:, llm], (0.1, 0.5, 0.9))
        assert theirs == pytest.approx(np.quantile(DRAWN.output_tokens[:, llm], (0.1, 0.5, 0.9)), rel=0.05)


LANDED = LandedAnswers(np.array([f"q{n}" for n in range(MANY)]), DRAWN)


def test_landed_answers_join_requests_of_similar_length() -> None:
    inputs, outputs = DRAWN.input_tokens[:5000] * 3, DRAWN.output_tokens[:5000, 1] * 2
    found = sample_request_answers(LANDED, JUDGES["learned"], requests(inputs, outputs), seed=0)
    np.testing.assert_array_equal(found.output_tokens[:, 1], outputs)
    assert found.score.mean(axis=0) == pytest.approx(DRAWN.score.mean(axis=0), abs=0.03)
    slow = outputs > np.quantile(outputs, 0.8)
    assert found.score[~slow, 1].mean() > found.score[slow, 1].mean()


def test_the_two_halves_share_no_query() -> None:
    """Every query has its own hardness, which identifies it."""
    few = LandedAnswers(LANDED.query_id[:301], DRAWN.rows(slice(0, 301)))
    served = requests(DRAWN.input_tokens[:999], DRAWN.output_tokens[:999, 1])
    for found in (
        sample_request_answers(few, JUDGES["learned"], served, 1),
        sample_landed_answers(few, JUDGES["learned"], 999, 1),
    ):
        chosen_on, judged_on = (set(half.hardness) for half in found.halves())
        assert not chosen_on & judged_on
        assert min(len(chosen_on), len(judged_on)) > 100
        assert len(found.hardness) == 999


def test_a_request_takes_the_answers_to_its_query_from_any_llm() -> None:
    """Two llms served in turn; every third names its query, the others are joined by their lengths."""
    at = np.random.default_rng(4).integers(0, MANY, 3000)
    own = np.arange(3000) % 2 + 1
    query = np.where(np.arange(3000) % 3 == 0, LANDED.query_id[at], None)
    tokens = DRAWN.input_tokens[at], 2 * DRAWN.output_tokens[at, own]
    served = ServedRequests(np.array(DRAWN.llms)[own], np.full(3000, "app"), *tokens, query)
    found = sample_request_answers(LANDED, JUDGES["learned"], served, seed=0)
    named = np.arange(3000) % 3 == 0
    np.testing.assert_array_equal(found.score[named], DRAWN.score[at[named]])
    np.testing.assert_array_equal(found.judged[named], DRAWN.judged[at[named]])
    assert (found.score[~named] != DRAWN.score[at[~named]]).any(axis=1).mean() > 0.1
    np.testing.assert_array_equal(found.output_tokens[np.arange(3000), own], tokens[1])
    other = served._replace(query_id=np.where(named, "nobody's", None))
    with pytest.raises(ConfigError, match=r"None of the 1,000 requests .* is among the 40,000 queries"):
        sample_request_answers(LANDED, JUDGES["learned"], other, seed=0)


def test_requests_that_are_sent_on_are_longer_than_others() -> None:
    """Sampling quality independently of length would give the large llm a fifth to a third too little."""
    two = DRAWN.of(["llama3.1-8b", "llama3.1-70b"])
    sent = select_answers(two, "cascade", [0.3]).reached[:, 1]
    assert two.output_tokens[sent, 1].mean() / two.output_tokens[:, 1].mean() > 1.3


@pytest.mark.parametrize("rule", SELECTION_RULES)
def test_thresholds_at_their_ends_are_one_llm_alone(rule: str) -> None:
    alone = DRAWN.score.mean(axis=0)
    ends = ([0, 0], [1, 1]) if rule == "cascade" else ([1, 1], [0, 0])
    for thresholds, llm in zip(ends, (0, 2), strict=True):
        who = select_answers(DRAWN, rule, thresholds)
        assert (who.kept == llm).all()
        assert mean_quality(DRAWN, who) == alone[llm]
    reached = [select_answers(DRAWN, rule, pair).shares for pair in ends]
    last = [[1, 0, 0], [1, 1, 1]] if rule == "cascade" else [[1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(reached, last)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_the_share_that_goes_on_never_falls_as_thresholds_rise(four: list[float]) -> None:
    few = DRAWN.rows(slice(0, 300))
    low, high = np.minimum(four[:2], four[2:]), np.maximum(four[:2], four[2:])
    before, after = select_answers(few, "cascade", low), select_answers(few, "cascade", high)
    assert (before.reached <= after.reached).all()
    assert (after.reached[:, 1:] <= after.reached[:, :-1]).all(), "one after the other"
    routed = select_answers(few, "route", np.sort(low))
    assert (routed.reached.sum(axis=1) == 1).all()


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_quality_never_falls_with_thresholds_where_no_larger_llm_is_worse(four: list[float]) -> None:
    """On real answers it may: the best is reached before all requests go to the largest llm."""
    few = DRAWN.rows(slice(0, 300))
    never_worse = few._replace(score=np.maximum.accumulate(few.score, axis=1))
    low, high = np.minimum(four[:2], four[2:]), np.maximum(four[:2], four[2:])
    before, after = (
        mean_quality(never_worse, select_answers(never_worse, "cascade", t)) for t in (low, high)
    )
    assert before <= after + 1e-12
    knows = apply_judge(DRAWN.of(["llama3.1-8b", "llama3.1-70b"]), JUDGES["oracle"], np.random.default_rng(0))
    some, every = (mean_quality(knows, select_answers(knows, "cascade", [share])) for share in (0.6, 1.0))
    assert some > every


def test_judges_range_from_random_to_oracle() -> None:
    two = DRAWN.of(["llama3.1-8b", "llama3.1-70b"])
    rng = np.random.default_rng(2)
    found = {name: skill(apply_judge(two, judge, rng), "cascade") for name, judge in JUDGES.items()}
    assert found["random"] == pytest.approx(0.5, abs=0.01)
    assert found["random"] < found["learned"] < found["llm"] < found["oracle"]
    assert found["oracle"] == pytest.approx(0.90, abs=0.01)  # as with MMLU-Pro's own answers
    knows = apply_judge(two, JUDGES["oracle"], rng)
    sent = select_answers(knows, "cascade", [(two.score[:, 0] == 0).mean()]).reached[:, 1]
    np.testing.assert_array_equal(sent, two.score[:, 0] == 0)
    assert skill(knows, "route") == pytest.approx(0.90, abs=0.01)  # it is known before the answer, too
    half = apply_judge(two, Judge(0.0, 0.0, "", 0.5), rng)
    assert np.corrcoef(half.judged[:, 0], two.score[:, 0])[0, 1] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("rule", "thresholds", "message"),
    [
        ("cascade", [0.5], "3 llms need 2, each from 0 to 1"),
        ("cascade", [0.5, 1.5], "each from 0 to 1"),
        ("route", [0.6, 0.3], r"out of order: those of a router must not fall\. Sort them"),
    ],
)
def test_invalid_thresholds_are_refused(rule: str, thresholds: list[float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        select_answers(DRAWN, rule, thresholds)


def test_an_invalid_model_is_refused() -> None:
    rows = [*MODEL.correlation[:-1], tuple(0.99 * (-1) ** n for n in range(9))]
    with pytest.raises(ConfigError, match="is not positive definite"):
        dataclasses.replace(MODEL, correlation=tuple(rows))
    with pytest.raises(ConfigError, match=r"3 llms need 10 rows of correlation"):
        dataclasses.replace(MODEL, correlation=MODEL.correlation[:-1])
    assert isinstance(MODEL, AnswerModel)
    assert isinstance(DRAWN, JudgedAnswers)
