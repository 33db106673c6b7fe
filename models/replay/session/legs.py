"""Requests as chains of legs, and back: what goes into a replay with cascades, and what comes out of it.

A request for an llm that is a cascade becomes one row for each of its llms, and for each answer that an llm
of ours judges (Trace, questions.py). Of their answers one counts: the last that was made. Shadows are rows
that nobody waits for.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.quality.answers import JudgedAnswers, SelectedAnswers, select_answers
from fleetcast.models.replay.kernel_inputs import NO_INDEX, Rules, TraceArrays
from fleetcast.models.replay.session.answer_legs import (
    CascadeLayout,
    Legs,
    cascade_legs,
    legs_to_trace,
    routed_legs_with_shadows,
)
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.trace_rows import select_requests
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.mechanisms import Ending
from fleetcast.models.world.replay_config import Cascade


class LegTrace(NamedTuple):
    """R rows of requests, those of a request together."""

    trace: TraceArrays
    answerer: Ints  # (R,) the llm whose answer the row makes or judges
    is_shadow: Bools  # (R,) nobody waits for it


def expand_cascades(
    trace: TraceArrays,
    catalogue: Catalogue,
    cascades: Mapping[str, Cascade],
    answers_of: Callable[[Cascade, Ints], JudgedAnswers],
) -> LegTrace:
    """The requests with a row for each leg that they may take, and the shadows beside them.

    `answers_of` says what the llms of a cascade make of some requests, by their place, (N,).
    """
    llms = list(catalogue.llms)
    parts = list(_parts(trace, llms, cascades, answers_of))
    row, answerer = (np.concatenate([part[n] for part in parts]) for n in (0, 1))
    order = np.argsort(row, kind="stable")
    column = {
        name: np.concatenate([getattr(part[2], name) for part in parts])[order]
        for name in ("llm", "input_tokens", "output_tokens", "leg", "then", "score")
    }
    behind = np.arange(1, row.size + 1)
    column["then"] = np.where(column["then"] != NO_INDEX, behind, NO_INDEX).astype(np.int32)
    is_shadow = np.concatenate([part[3] for part in parts])
    return LegTrace(select_requests(trace, row[order])._replace(**column), answerer[order], is_shadow[order])


def _parts(
    trace: TraceArrays,
    llms: list[str],
    cascades: Mapping[str, Cascade],
    answers_of: Callable[[Cascade, Ints], JudgedAnswers],
) -> Iterator[tuple[Ints, Ints, TraceArrays, Bools]]:
    """Of each cascade, and of the rest: request and answerer of each row, the rows, which are shadows."""
    for asked, cascade in cascades.items():
        own = np.flatnonzero(trace.llm == llms.index(asked))
        answers = answers_of(cascade, own)
        codes = np.array([llms.index(llm) for llm in cascade.llms])
        judge = int(NO_INDEX) if cascade.judge_llm is None else llms.index(cascade.judge_llm)
        below = np.array(cascade.escalation_shares)
        plan = CascadeLayout(below, codes, judge, cascade.rubric_tokens, cascade.shadow_share)
        legs = config_cascade_legs(cascade, plan, answers)
        made = as_single_legs(legs_to_trace(legs, plan, answers, trace.arrival_s[own]))
        yield own[legs.question], codes[legs.place], made, legs.is_shadow
    rest = np.flatnonzero(~np.isin(trace.llm, [llms.index(asked) for asked in cascades]))
    yield (
        rest,
        trace.llm[rest].astype(np.int64),
        as_single_legs(select_requests(trace, rest)),
        np.zeros(rest.size, bool),
    )


def config_cascade_legs(cascade: Cascade, plan: CascadeLayout, answers: JudgedAnswers) -> Legs:
    """The legs of a cascade's requests: chains, or those whom a router chose, whose threshold is a share."""
    if not cascade.at_arrival:
        return cascade_legs(plan, answers, is_whole=cascade.is_judged_outside)
    return routed_legs_with_shadows(plan, choose_answers(cascade, answers).kept, len(cascade.llms))


def choose_answers(cascade: Cascade, answers: JudgedAnswers) -> SelectedAnswers:
    """Who makes an answer to each request, and whose counts."""
    if cascade.at_arrival:
        return select_answers(answers, "route", 1 - np.cumprod(cascade.escalation_shares))
    return select_answers(answers, "cascade", cascade.escalation_shares)


def as_single_legs(trace: TraceArrays) -> TraceArrays:
    """The rows with a place in a chain each, where they have none yet."""
    if trace.leg.size == trace.arrival_s.size:
        return trace
    rows = trace.arrival_s.size
    first, nobody = np.zeros(rows, np.int8), np.full(rows, NO_INDEX, np.int32)
    return trace._replace(leg=first, then=nobody, score=np.ones(rows, np.float32))


def request_indices(trace: TraceArrays) -> Ints:
    """The request of each row, by its position among them."""
    return np.cumsum(trace.leg == 0) - 1 if trace.leg.size else np.arange(trace.arrival_s.size)


def first_leg_rows(trace: TraceArrays) -> Ints | slice:
    """The row of each request's first leg; all as a slice, not copied, where there are no others."""
    return np.flatnonzero(trace.leg == 0) if trace.leg.size else slice(None)


def sum_legs(trace: TraceArrays, of_rows: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """The sum of each request's rows."""
    return np.add.reduceat(of_rows, np.flatnonzero(trace.leg == 0)) if trace.leg.size else of_rows


def answer_rows(trace: TraceArrays, outcome: Outcome) -> Ints | slice:
    """The row that says what became of each request, in their order.

    The leg that it waits for, else the last that was answered, else the one that was refused.
    """
    first = first_leg_rows(trace)
    if isinstance(first, slice):
        return first
    status, n = outcome.status, trace.arrival_s.size
    rows, cases = np.arange(n), (status == Ending.QUEUED, status == Ending.FINISHED, status == Ending.REFUSED)
    rank = np.select(cases, (3 * n - rows, n + 1 + rows, n - rows))  # the first, the last, the first of these
    best = np.maximum.reduceat(rank, first)
    return np.select((best > 2 * n, best > n), (3 * n - best, best - n - 1), n - best)


def leg_begin_s(trace: TraceArrays, rules: Rules, outcome: Outcome) -> Floats:
    """When each leg began, shape (R,): with the arrival, or when the answer before it had been judged."""
    if not trace.leg.size:
        return trace.arrival_s
    begun, later = trace.arrival_s.copy(), np.flatnonzero(trace.leg > 0)
    before = later - 1
    answered_s = outcome.finish_s[before] - outcome.network_s[before]
    begun[later] = answered_s + rules.judge_s[trace.llm[before]]
    return begun
