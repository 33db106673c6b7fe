"""Questions as rows of a trace: answers that are asked for, judges' legs between them, shadows beside them.

A cascade is a chain of answers, each but the last judged: by a service outside, whose seconds lie between
two legs, or by an llm of ours, whose leg stands between them. It reads prompt, answer and rubric, writes one
token and holds the verdict: an answer before it always goes on to it. Shadows are answers that nobody waits
for: of a share of the questions every llm that serves answers, and all is judged, so that the scores stay
known (Cascadia 4.4). Each is a request of its own; an answer that was made is judged beside only if nobody
has. Where one llm serves alone there are none.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.replay.kernel_inputs import NO_INDEX, TraceArrays

GOES_ON, STAYS = -1.0, 1.0  # scores below and above a threshold of zero
SHADOWED = 0x5AD0  # of the seed, that shadows are drawn from


class CascadeLayout(NamedTuple):
    """Who answers, and who judges."""

    thresholds: Floats  # (M-1,) of the llms but the last
    codes: Ints  # (M,) of the llms in the replay's catalogue
    judge: int  # of the llm that judges; NOBODY: judged outside
    rubric_tokens: int  # that it reads besides prompt and answer
    shadow_share: float  # of the questions


class Legs(NamedTuple):
    """Rows of N questions, those of a question together."""

    question: Ints  # (R,)
    place: Ints  # (R,) of the llm whose answer it makes or judges
    leg: Ints  # (R,) of its chain
    has_next_leg: Bools  # (R,) another leg stands behind it
    judges: Bools  # (R,) it judges the answer
    is_shadow: Bools  # (R,) nobody waits for it
    score: Floats  # (R,)


def chain_legs(plan: CascadeLayout, answers: JudgedAnswers) -> Legs:
    """A chain of answers; the one at a threshold of zero is not judged, and none behind it asked for."""
    size, depth = len(answers.input_tokens), judged_depth(plan.thresholds)
    is_own = plan.judge != NO_INDEX
    width = depth * (1 + is_own) + 1
    leg = np.tile(np.arange(width), size)
    place, judges = leg // (1 + is_own), (leg % 2 == 1) & is_own
    score = np.ones((size, width))
    judged = answers.judged[:, :depth]
    if is_own:
        score[:, : width - 1 : 2] = GOES_ON
        score[:, 1::2] = judged - plan.thresholds[:depth]
    else:
        score[:, :depth] = judged
    nobody = np.zeros(leg.size, bool)
    question = np.repeat(np.arange(size), width)
    return Legs(question, place, leg, leg < width - 1, judges, nobody, score.ravel())


def cascade_legs(plan: CascadeLayout, answers: JudgedAnswers, is_whole: bool = False) -> Legs:
    """The chains with their shadows; `is_whole`: every llm stands in them, since thresholds move."""
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
    """Each question's answer by the llm at a place of so many, (N,), with the shadows of the others."""
    main, reached = routed_legs(chosen), chosen[:, None] == np.arange(llms)
    if not plan.shadow_share or llms < 2:
        return main
    return add_shadow_legs(main, plan, reached, np.zeros(reached.shape, bool))


def judged_depth(thresholds: Floats) -> int:
    """How many answers may be found wanting: those before the first threshold of zero."""
    return int(np.logical_and.accumulate(thresholds > 0).sum())


def routed_legs(chosen: Ints) -> Legs:
    """Each question's answer by the llm at a place, (N,)."""
    nobody = np.zeros(chosen.size, bool)
    rows = np.arange(chosen.size)
    return Legs(rows, chosen, np.zeros(chosen.size, np.int64), nobody, nobody, nobody, np.ones(chosen.size))


def add_shadow_legs(
    main: Legs, plan: CascadeLayout, reached: Bools, is_judged: Bools, seed: int = SHADOWED
) -> Legs:
    """The legs and the shadows beside them.

    Parameters
    ----------
    reached : shape (N, M), the llm makes an answer anyway
    is_judged : shape (N, M), which is judged
    """
    drawn = np.random.default_rng(seed).random(len(reached)) < plan.shadow_share
    is_own = plan.judge != NO_INDEX
    parts = []
    for place in range(reached.shape[1]):
        missing = np.flatnonzero(drawn & ~reached[:, place])
        parts.append(_shadow(missing, place, 0, is_own, False, GOES_ON if is_own else STAYS))
        if is_own:
            parts.append(_shadow(missing, place, 1, False, True, STAYS))
            unjudged = np.flatnonzero(drawn & reached[:, place] & ~is_judged[:, place])
            parts.append(_shadow(unjudged, place, 0, False, True, STAYS))
    beside = Legs._make(np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((beside.leg, beside.place, beside.question))
    both = Legs._make(np.concatenate([a, b[order]]) for a, b in zip(main, beside, strict=True))
    order = np.argsort(both.question, kind="stable")
    return Legs._make(column[order] for column in both)


def _shadow(rows: Ints, place: int, leg: int, goes_on: bool, judges: bool, score: float) -> Legs:
    like = (place, leg, goes_on, judges, True, score)
    return Legs._make([rows, *(np.full(rows.size, value) for value in like)])


def legs_to_trace(legs: Legs, plan: CascadeLayout, answers: JudgedAnswers, arrival_s: Floats) -> TraceArrays:
    """The rows that the kernel reads; without chains where no leg stands behind another."""
    inputs, outputs = answers.input_tokens[legs.question], answers.output_tokens[legs.question, legs.place]
    if legs.judges.any():
        inputs = np.where(legs.judges, inputs + outputs + plan.rubric_tokens, inputs)
        outputs = np.where(legs.judges, 1, outputs)
    llm = np.where(legs.judges, plan.judge, plan.codes[legs.place])
    nothing = np.zeros(legs.question.size, np.int16)
    rows = TraceArrays(
        arrival_s[legs.question],
        nothing,
        llm.astype(np.int16),
        nothing,
        inputs.astype(np.int32),
        outputs.astype(np.int32),
    )
    if not legs.has_next_leg.any():
        return rows
    behind: npt.NDArray[np.int32] = np.arange(1, nothing.size + 1, dtype=np.int32)
    return rows._replace(
        leg=legs.leg.astype(np.int8),
        then=np.where(legs.has_next_leg, behind, NO_INDEX).astype(np.int32),
        score=legs.score.astype(np.float32),
    )
