"""Answers for the requests of a trace: what every llm would have answered, given the request's lengths.

Length and difficulty are correlated: escalated requests are longer than others. There are two sources:

model    the ranks of a request's lengths within its llm and app become the normals of its lengths, and the
         other variables are sampled conditional on these
landed   the landed answers to the request's query, else to a query whose lengths have a similar rank

Output tokens of another llm are the request's tokens times the ratio of the two llms' answers. The llm that
served the request keeps the recorded tokens.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.normal_scores import normal_scores
from fleetcast.models.quality.answer_copula import (
    AnswerModel,
    CopulaColumns,
    answers_from_normals,
    draw_conditional_normals,
    draw_normals,
)
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.quality.judges import Judge, apply_judge
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

QUALITY_SEED = 0x9A17  # second word of the seed: the random stream of quality
TOKEN_RATIO_LIMITS = (1 / 64, 64.0)  # of the ratio of two llms' output tokens
Texts = npt.NDArray[Any]


class ServedRequests(NamedTuple):
    """N requests of a trace."""

    llm: Texts  # (N,) that served the request
    app: Texts  # (N,) ranks are taken within an app, whose requests have similar lengths
    input_tokens: Ints  # (N,)
    output_tokens: Ints  # (N,)
    query_id: Texts  # (N,) the request's query; None where the trace has none

    def rows(self, picked: Ints) -> "ServedRequests":
        """Return the requests at the indices `picked`, shape (K,)."""
        return ServedRequests(*(column[picked] for column in self))


class LandedAnswers(NamedTuple):
    """Landed answers to Q queries, each of which all llms have answered."""

    query_id: Texts  # (Q,)
    answers: JudgedAnswers


def generate_answers(model: AnswerModel, judge: Judge, size: int, seed: int) -> JudgedAnswers:
    """Sample `size` questions with their answers from the model."""
    rng = np.random.default_rng([seed, QUALITY_SEED])
    return apply_judge(answers_from_normals(model, draw_normals(model.matrix, size, rng)), judge, rng)


def sample_landed_answers(landed: LandedAnswers, judge: Judge, size: int, seed: int) -> JudgedAnswers:
    """Sample `size` landed queries with replacement: even places from the even queries, odd from the odd."""
    rng = np.random.default_rng([seed, QUALITY_SEED])
    halves = [half_of_queries(landed.query_id.size, half) for half in (0, 1)]
    sampled = np.array([half[rng.integers(0, half.size, (size + 1) // 2)] for half in halves])
    return apply_judge(landed.answers.rows(sampled.T.ravel()[:size]), judge, rng)


def half_of_queries(queries: int, half: int) -> Ints:
    """Return the places of every other query, shape (K,).

    What is chosen on one half of the questions is evaluated on the answers of the other half.
    """
    return np.arange(half if queries > 1 else 0, queries, 2)


def sample_request_answers(
    source: AnswerModel | LandedAnswers, judge: Judge, requests: ServedRequests, seed: int
) -> JudgedAnswers:
    """Sample the answer of every llm of the source to each request, in the order of the requests.

    Even requests get answers of even queries, odd of odd ones, except requests with a known query_id. All
    answers are judged together.

    Raises
    ------
    ConfigError
        An llm outside the source served a request, or requests have query ids and none has answers.
    """
    rng = np.random.default_rng([seed, QUALITY_SEED])
    turn = np.arange(requests.llm.size) % 2
    if isinstance(source, LandedAnswers):
        require_overlap(source, requests)
    parts, places = [], []
    for llm in np.unique(requests.llm):
        if not isinstance(source, LandedAnswers):
            places.append(np.flatnonzero(requests.llm == llm))
            parts.append(answers_from_model(source, requests.rows(places[-1]), str(llm), rng))
            continue
        for half in np.unique(turn[requests.llm == llm]).tolist():
            places.append(np.flatnonzero((requests.llm == llm) & (turn == half)))
            parts.append(match_landed_answers(source, requests.rows(places[-1]), str(llm), half, rng))
    order = np.argsort(np.concatenate(places))
    columns = zip(*(part[1:] for part in parts), strict=True)
    whole = JudgedAnswers(parts[0].llms, *(np.concatenate(column)[order] for column in columns))
    return apply_judge(whole, judge, rng)


def require_overlap(landed: LandedAnswers, requests: ServedRequests) -> None:
    """Raise ConfigError where requests have query ids and none of these queries has answers."""
    named = [query for query in requests.query_id if query is not None]
    if named and not set(named) & set(landed.query_id):
        raise ConfigError(
            f"None of the {len(named):,} requests with a query_id (such as {named[0]!r}) is among the "
            f"{landed.query_id.size:,} queries with landed answers (such as {landed.query_id[0]!r}). Land "
            "answers to these queries, or requests without query_id, which are matched by their lengths."
        )


def answers_from_model(
    model: AnswerModel, requests: ServedRequests, llm: str, rng: np.random.Generator
) -> JudgedAnswers:
    """Sample answers to requests that one llm of the model served; ConfigError for another llm."""
    require_known(llm, model.llms, "llm", "the answers' model")
    served, at = model.llms.index(llm), CopulaColumns(len(model.llms))
    _, group = np.unique(requests.app.astype(str), return_inverse=True)
    both = (requests.input_tokens, requests.output_tokens)
    lengths = np.column_stack([normal_ranks(tokens, group, rng) for tokens in both])
    z = draw_conditional_normals(model.matrix, [at.input, at.output.start + served], lengths, rng)
    return with_own_lengths(answers_from_normals(model, z), served, requests)


def match_landed_answers(
    landed: LandedAnswers, requests: ServedRequests, llm: str, half: int, rng: np.random.Generator
) -> JudgedAnswers:
    """Match landed answers to requests that one of their llms served; ConfigError for another llm.

    A request whose query has answers takes that row. Another request takes a row of this half whose lengths
    have the same rank.
    """
    require_known(llm, landed.answers.llms, "llm", "the answers that landed")
    served, in_half = landed.answers.llms.index(llm), half_of_queries(landed.query_id.size, half)
    candidates = landed.answers.rows(in_half)
    rising = in_half[
        np.argsort(length_scores(candidates.input_tokens, candidates.output_tokens[:, served], rng))
    ]
    inputs = requests.input_tokens * bool(landed.answers.input_tokens.any())
    rank = np.argsort(np.argsort(length_scores(inputs, requests.output_tokens, rng)))
    place = (rank + rng.random(rank.size)) * rising.size / max(rank.size, 1)
    row_of = {query: row for row, query in enumerate(landed.query_id)}
    by_query = np.array([row_of.get(query, -1) for query in requests.query_id], np.int64)
    rows = np.where(by_query >= 0, by_query, rising[place.astype(np.int64)])
    return with_own_lengths(landed.answers.rows(rows), served, requests)


def with_own_lengths(answers: JudgedAnswers, served: int, requests: ServedRequests) -> JudgedAnswers:
    """Return the answers with the lengths of `requests`, which the llm at place `served` has served."""
    ratio = answers.output_tokens / answers.output_tokens[:, [served]]
    outputs = np.maximum(
        np.round(requests.output_tokens[:, None] * ratio.clip(*TOKEN_RATIO_LIMITS)), 1
    ).astype(np.int64)
    return answers._replace(input_tokens=requests.input_tokens, output_tokens=outputs)


def normal_ranks(values: Ints, group: Ints, rng: np.random.Generator) -> Floats:
    """Return the normal score of each value within its group, ties in random order; all (N,)."""
    place = np.empty(values.size)
    place[np.lexsort((rng.random(values.size), values))] = np.arange(values.size)
    return normal_scores(group, place)


def length_scores(input_tokens: Ints, output_tokens: Ints, rng: np.random.Generator) -> Floats:
    """Return the length of each request relative to all: the sum of the normals of both lengths; all (N,).

    Lengths that are all zero are unknown and do not count.
    """
    one_group = np.zeros(input_tokens.size, np.int64)
    known = [tokens for tokens in (input_tokens, output_tokens) if tokens.any()]
    return np.sum([normal_ranks(tokens, one_group, rng) for tokens in known], axis=0)
