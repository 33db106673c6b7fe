"""Requests of model routing as rows of a trace: legs of answers, legs of judges, and shadow legs.

A cascade is a chain of answers; all but the last are judged. An external judge takes seconds between two
legs. An llm of the fleet as judge takes a leg between two answers: it reads prompt, answer and rubric, writes
one token, and its leg has the score, so an answer always goes on to it.

Shadow legs keep the scores known (Cascadia 4.4): for a share of the requests every serving llm makes an
answer, and all answers are judged. No user waits for them. Each shadow answer is a request by itself. An
answer that was made anyway gets a shadow judgement only if it was not judged. With one llm there are none.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.replay.kernel_inputs import NO_INDEX, TraceArrays

GOES_ON, STAYS = -1.0, 1.0  # scores below and above a threshold of zero
SHADOWED = 0x5AD0  # seed of the sample of shadowed requests


class CascadeLayout(NamedTuple):
    """The M llms of a cascade or router, from the smallest to the largest, and the judge."""

    thresholds: Floats  # (M-1,) scores, of all llms but the last
    codes: Ints  # (M,) indices of the llms in the replay's catalogue
    judge: int  # index of the llm that judges; NO_INDEX: an external judge
    rubric_tokens: int  # that the judge reads in addition to prompt and answer
    shadow_share: float  # of the requests


class Legs(NamedTuple):
    """R legs of N requests; the legs of a request are consecutive."""

    question: Ints  # (R,) index of the request
    place: Ints  # (R,) position of the llm whose answer the leg makes or judges
    leg: Ints  # (R,) position in its chain
    has_next_leg: Bools  # (R,)
    judges: Bools  # (R,) the leg judges the answer
    is_shadow: Bools  # (R,) no user waits for it
    score: Floats  # (R,)


def chain_legs(plan: CascadeLayout, answers: JudgedAnswers) -> Legs:
    """Return a chain of answers for each request; one with a threshold of zero is the last, not judged."""
    size, depth = len(answers.input_tokens), judged_depth(plan.thresholds)
    has_llm_judge = plan.judge != NO_INDEX
    width = depth * (1 + has_llm_judge) + 1
    leg = np.tile(np.arange(width), size)
    place, judges = leg // (1 + has_llm_judge), (leg % 2 == 1) & has_llm_judge
    score = np.ones((size, width))
    judged = answers.judged[:, :depth]
    if has_llm_judge:
        score[:, : width - 1 : 2] = GOES_ON
        score[:, 1::2] = judged - plan.thresholds[:depth]
    else:
        score[:, :depth] = judged
    no_shadow = np.zeros(leg.size, bool)
    question = np.repeat(np.arange(size), width)
    return Legs(question, place, leg, leg < width - 1, judges, no_shadow, score.ravel())


def cascade_legs(plan: CascadeLayout, answers: JudgedAnswers, is_whole: bool = False) -> Legs:
    """Return the chains with their shadow legs; `is_whole`: with all llms, because thresholds may change."""
    chained = plan._replace(thresholds=np.ones_like(plan.thresholds)) if is_whole else plan
    main, depth = chain_legs(chained, answers), judged_depth(plan.thresholds)
    if not plan.shadow_share or len(answers.llms) < 2:
        return main
    goes_on = answers.judged[:, :depth] < plan.thresholds[:depth]
    reached = np.zeros(answers.score.shape, bool)
    reached[:, 0] = True
    reached[:, 1 : depth + 1] = np.logical_and.accumulate(goes_on, axis=1)
    return add_shadow_legs(main, plan, reached, reached & (np.arange(len(answers.llms)) < depth))


def routed_legs_with_shadows(plan: CascadeLayout, chosen: Ints, llms: int) -> Legs:
    """Return one answer per request, by the llm at position chosen, shape (N,), with shadow legs."""
    main, reached = routed_legs(chosen), chosen[:, None] == np.arange(llms)
    if not plan.shadow_share or llms < 2:
        return main
    return add_shadow_legs(main, plan, reached, np.zeros(reached.shape, bool))


def judged_depth(thresholds: Floats) -> int:
    """Return how many answers are judged: scores in thresholds, shape (M-1,), before the first zero."""
    return int(np.logical_and.accumulate(thresholds > 0).sum())


def routed_legs(chosen: Ints) -> Legs:
    """Return one answer per request, by the llm at position chosen, shape (N,)."""
    no = np.zeros(chosen.size, bool)
    rows = np.arange(chosen.size)
    return Legs(rows, chosen, np.zeros(chosen.size, np.int64), no, no, no, np.ones(chosen.size))


def add_shadow_legs(
    main: Legs, plan: CascadeLayout, reached: Bools, is_judged: Bools, seed: int = SHADOWED
) -> Legs:
    """Return the legs together with shadow legs for a sample of the requests.

    Parameters
    ----------
    reached : shape (N, M), the llm makes an answer anyway
    is_judged : shape (N, M), this answer is judged anyway
    """
    sampled = np.random.default_rng(seed).random(len(reached)) < plan.shadow_share
    has_llm_judge = plan.judge != NO_INDEX
    parts = []
    for place in range(reached.shape[1]):
        missing = np.flatnonzero(sampled & ~reached[:, place])
        parts.append(
            _shadow_legs(missing, place, 0, has_llm_judge, False, GOES_ON if has_llm_judge else STAYS)
        )
        if has_llm_judge:
            parts.append(_shadow_legs(missing, place, 1, False, True, STAYS))
            unjudged = np.flatnonzero(sampled & reached[:, place] & ~is_judged[:, place])
            parts.append(_shadow_legs(unjudged, place, 0, False, True, STAYS))
    shadows = Legs._make(np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((shadows.leg, shadows.place, shadows.question))
    both = Legs._make(np.concatenate([a, b[order]]) for a, b in zip(main, shadows, strict=True))
    order = np.argsort(both.question, kind="stable")
    return Legs._make(column[order] for column in both)


def _shadow_legs(
    questions: Ints, place: int, leg: int, has_next_leg: bool, judges: bool, score: float
) -> Legs:
    """Return one shadow leg with these values for each of the questions, shape (n,)."""
    values = (place, leg, has_next_leg, judges, True, score)
    return Legs._make([questions, *(np.full(questions.size, value) for value in values)])


def legs_to_trace(legs: Legs, plan: CascadeLayout, answers: JudgedAnswers, arrival_s: Floats) -> TraceArrays:
    """Return the legs as a trace of R rows, without chains where no leg has a next one.

    `arrival_s`: shape (N,), seconds, of the requests.
    """
    inputs, outputs = answers.input_tokens[legs.question], answers.output_tokens[legs.question, legs.place]
    if legs.judges.any():
        inputs = np.where(legs.judges, inputs + outputs + plan.rubric_tokens, inputs)
        outputs = np.where(legs.judges, 1, outputs)
    llm = np.where(legs.judges, plan.judge, plan.codes[legs.place])
    zeros = np.zeros(legs.question.size, np.int16)
    rows = TraceArrays(
        arrival_s[legs.question],
        zeros,
        llm.astype(np.int16),
        zeros,
        inputs.astype(np.int32),
        outputs.astype(np.int32),
    )
    if not legs.has_next_leg.any():
        return rows
    behind: npt.NDArray[np.int32] = np.arange(1, zeros.size + 1, dtype=np.int32)
    return rows._replace(
        leg=legs.leg.astype(np.int8),
        then=np.where(legs.has_next_leg, behind, NO_INDEX).astype(np.int32),
        score=legs.score.astype(np.float32),
    )
