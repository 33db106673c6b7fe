"""Answers for the requests of a trace: what every llm would have made of each, given its own lengths.

Length and difficulty go together: requests that are sent on are longer than others. So the ranks of a request
among those of its llm and app are kept as the normals of its lengths, and the rest is drawn given these; or
it takes the answers that landed for its query, else for one whose lengths rank alike. Output tokens of
another llm are the request's own, times the ratio of the two llms' answers. The llm that the trace asks for
keeps the request's own tokens.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats, Ints
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

QUALITY_SEED = 0x9A17  # of the seed, that quality is drawn from
TOKEN_RATIO_LIMITS = (1 / 64, 64.0)  # of the ratio of two llms' output tokens
Texts = npt.NDArray[Any]


class ServedRequests(NamedTuple):
    """N requests of a trace."""

    llm: Texts  # (N,) that served each
    app: Texts  # (N,) requests of an app have like lengths: ranks are taken within each
    input_tokens: Ints  # (N,)
    output_tokens: Ints  # (N,)
    query_id: Texts  # (N,) of the query that it is; None: it does not say

    def rows(self, picked: Ints) -> "ServedRequests":
        """Some of the requests."""
        return ServedRequests(*(column[picked] for column in self))


class LandedAnswers(NamedTuple):
    """Answers that were landed, to queries that all of their llms have answered."""

    query_id: Texts  # (Q,)
    answers: JudgedAnswers


def generate_answers(model: AnswerModel, judge: Judge, size: int, seed: int) -> JudgedAnswers:
    """So many questions with their answers, drawn from the model."""
    rng = np.random.default_rng([seed, QUALITY_SEED])
    return apply_judge(answers_from_normals(model, draw_normals(model.matrix, size, rng)), judge, rng)


def sample_landed_answers(landed: LandedAnswers, judge: Judge, size: int, seed: int) -> JudgedAnswers:
    """So many of the queries that were answered, drawn with replacement, each half from its own half."""
    rng = np.random.default_rng([seed, QUALITY_SEED])
    halves = [half_of_queries(landed.query_id.size, half) for half in (0, 1)]
    drawn = np.array([half[rng.integers(0, half.size, (size + 1) // 2)] for half in halves])
    return apply_judge(landed.answers.rows(drawn.T.ravel()[:size]), judge, rng)


def half_of_queries(queries: int, half: int) -> Ints:
    """Every other query: what is chosen on one half of the questions is judged on other answers."""
    return np.arange(half if queries > 1 else 0, queries, 2)


def sample_request_answers(
    source: AnswerModel | LandedAnswers, judge: Judge, requests: ServedRequests, seed: int
) -> JudgedAnswers:
    """What every llm of the source makes of each request, in their order, judged together.

    Every other request has the answers of every other query, but for those that name theirs. ConfigError for
    a request that another llm served, and where queries are named and none has answers.
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
    """Refuse requests that name their queries, none of which has answers."""
    named = [query for query in requests.query_id if query is not None]
    if named and not set(named) & set(landed.query_id):
        raise ConfigError(
            f"None of the {len(named):,} requests with a query_id (such as {named[0]!r}) is among the "
            f"{landed.query_id.size:,} queries that were answered (such as {landed.query_id[0]!r}). Land "
            "answers to these queries, or requests without query_id, which are joined by their lengths."
        )


def answers_from_model(
    model: AnswerModel, requests: ServedRequests, llm: str, rng: np.random.Generator
) -> JudgedAnswers:
    """The answers to requests that were served by one llm of the model; ConfigError for another llm."""
    require_known(llm, model.llms, "llm", "the answers' model")
    own, at = model.llms.index(llm), CopulaColumns(len(model.llms))
    _, group = np.unique(requests.app.astype(str), return_inverse=True)
    both = (requests.input_tokens, requests.output_tokens)
    lengths = np.column_stack([normal_ranks(tokens, group, rng) for tokens in both])
    z = draw_conditional_normals(model.matrix, [at.input, at.output.start + own], lengths, rng)
    return with_own_lengths(answers_from_normals(model, z), own, requests)


def match_landed_answers(
    landed: LandedAnswers, requests: ServedRequests, llm: str, half: int, rng: np.random.Generator
) -> JudgedAnswers:
    """Rows of answers that landed, for requests that one of their llms served; ConfigError for another llm.

    A request whose query was answered takes its row, another one a row of this half whose lengths stand as
    high among them.
    """
    require_known(llm, landed.answers.llms, "llm", "the answers that landed")
    own, free = landed.answers.llms.index(llm), half_of_queries(landed.query_id.size, half)
    theirs = landed.answers.rows(free)
    rising = free[np.argsort(length_scores(theirs.input_tokens, theirs.output_tokens[:, own], rng))]
    inputs = requests.input_tokens * bool(landed.answers.input_tokens.any())
    wanted = np.argsort(np.argsort(length_scores(inputs, requests.output_tokens, rng)))
    drawn = (wanted + rng.random(wanted.size)) * rising.size / max(wanted.size, 1)
    row_of = {query: row for row, query in enumerate(landed.query_id)}
    by_query = np.array([row_of.get(query, -1) for query in requests.query_id], np.int64)
    rows = np.where(by_query >= 0, by_query, rising[drawn.astype(np.int64)])
    return with_own_lengths(landed.answers.rows(rows), own, requests)


def with_own_lengths(answers: JudgedAnswers, own: int, requests: ServedRequests) -> JudgedAnswers:
    """The answers, long as those of requests that the llm at place `own` has served."""
    ratio = answers.output_tokens / answers.output_tokens[:, [own]]
    outputs = np.maximum(
        np.round(requests.output_tokens[:, None] * ratio.clip(*TOKEN_RATIO_LIMITS)), 1
    ).astype(np.int64)
    return answers._replace(input_tokens=requests.input_tokens, output_tokens=outputs)


def normal_ranks(values: Ints, group: Ints, rng: np.random.Generator) -> Floats:
    """Each value as the normal of its rank within its group, ties in an order that is drawn."""
    from scipy.special import ndtri

    order = np.lexsort((rng.random(values.size), values, group))
    counts = np.bincount(group)
    place = np.empty(values.size)
    place[order] = np.arange(values.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(ndtri((place + 0.5) / counts[group]))


def length_scores(input_tokens: Ints, output_tokens: Ints, rng: np.random.Generator) -> Floats:
    """How long requests are among all: the sum of the normals of both lengths.

    Input tokens that are not known, all zero, say nothing.
    """
    one = np.zeros(input_tokens.size, np.int64)
    known = [tokens for tokens in (input_tokens, output_tokens) if tokens.any()]
    return np.sum([normal_ranks(tokens, one, rng) for tokens in known], axis=0)
