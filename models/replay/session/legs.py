"""Requests as chains of legs, and back: the input of a replay with cascades, and its outcome by request.

A request for an llm that is a cascade becomes one row for each of its llms, and for each answer that an llm
of the fleet judges (answer_legs.py). The last answer that was made counts. Shadow rows are answers for which
no user waits. R rows, N requests.
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
    """A trace of R legs; the legs of a request are consecutive."""

    trace: TraceArrays
    answerer: Ints  # (R,) llm whose answer the row makes or judges
    is_shadow: Bools  # (R,) no user waits for it


def expand_cascades(
    trace: TraceArrays,
    catalogue: Catalogue,
    cascades: Mapping[str, Cascade],
    answers_of: Callable[[Cascade, Ints], JudgedAnswers],
) -> LegTrace:
    """Return the requests with a row for each leg that they may take, and with shadow rows.

    `answers_of` returns the judged answers of a cascade's llms to the requests at these rows, shape (n,).
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
    """Yield for each cascade, then for the other requests: request, llm, trace and is_shadow by row.

    The arrays have shape (rows,).
    """
    for name, cascade in cascades.items():
        requests = np.flatnonzero(trace.llm == llms.index(name))
        answers = answers_of(cascade, requests)
        codes = np.array([llms.index(llm) for llm in cascade.llms])
        judge = int(NO_INDEX) if cascade.judge_llm is None else llms.index(cascade.judge_llm)
        below = np.array(cascade.escalation_shares)
        plan = CascadeLayout(below, codes, judge, cascade.rubric_tokens, cascade.shadow_share)
        legs = config_cascade_legs(cascade, plan, answers)
        rows = as_single_legs(legs_to_trace(legs, plan, answers, trace.arrival_s[requests]))
        yield requests[legs.question], codes[legs.place], rows, legs.is_shadow
    rest = np.flatnonzero(~np.isin(trace.llm, [llms.index(name) for name in cascades]))
    yield (
        rest,
        trace.llm[rest].astype(np.int64),
        as_single_legs(select_requests(trace, rest)),
        np.zeros(rest.size, bool),
    )


def config_cascade_legs(cascade: Cascade, plan: CascadeLayout, answers: JudgedAnswers) -> Legs:
    """Return the legs of a cascade's requests: chains, or one llm each where it routes at arrival."""
    if not cascade.at_arrival:
        return cascade_legs(plan, answers, is_whole=cascade.is_judged_outside)
    return routed_legs_with_shadows(plan, choose_answers(cascade, answers).kept, len(cascade.llms))


def choose_answers(cascade: Cascade, answers: JudgedAnswers) -> SelectedAnswers:
    """Return which llms answer each request, and which answer counts."""
    if cascade.at_arrival:
        return select_answers(answers, "route", 1 - np.cumprod(cascade.escalation_shares))
    return select_answers(answers, "cascade", cascade.escalation_shares)


def as_single_legs(trace: TraceArrays) -> TraceArrays:
    """Return the trace with leg columns; rows without them become chains of one leg."""
    if trace.leg.size == trace.arrival_s.size:
        return trace
    rows = trace.arrival_s.size
    first, no_next = np.zeros(rows, np.int8), np.full(rows, NO_INDEX, np.int32)
    return trace._replace(leg=first, then=no_next, score=np.ones(rows, np.float32))


def request_indices(trace: TraceArrays) -> Ints:
    """Return the index of each row's request, shape (R,)."""
    return np.cumsum(trace.leg == 0) - 1 if trace.leg.size else np.arange(trace.arrival_s.size)


def first_leg_rows(trace: TraceArrays) -> Ints | slice:
    """Return the row of each request's first leg, shape (N,); without chains a slice of all (no copy)."""
    return np.flatnonzero(trace.leg == 0) if trace.leg.size else slice(None)


def sum_legs(trace: TraceArrays, of_rows: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """Return the sum over each request's legs, shape (N,), of a column of shape (R,), in its unit."""
    return np.add.reduceat(of_rows, np.flatnonzero(trace.leg == 0)) if trace.leg.size else of_rows


def answer_rows(trace: TraceArrays, outcome: Outcome) -> Ints | slice:
    """Return the row with the outcome of each request, shape (N,), or a slice of all without chains.

    It is the leg that is still queued, else the last one that finished, else the one that was refused.
    """
    first = first_leg_rows(trace)
    if isinstance(first, slice):
        return first
    status, n = outcome.status, trace.arrival_s.size
    rows, cases = np.arange(n), (status == Ending.QUEUED, status == Ending.FINISHED, status == Ending.REFUSED)
    # Highest rank: the first queued leg, then the last finished one, then the first refused one.
    rank = np.select(cases, (3 * n - rows, n + 1 + rows, n - rows))
    best = np.maximum.reduceat(rank, first)
    return np.select((best > 2 * n, best > n), (3 * n - best, best - n - 1), n - best)


def leg_begin_s(trace: TraceArrays, rules: Rules, outcome: Outcome) -> Floats:
    """Return when each leg began, shape (R,), seconds: at arrival, or after the judging before it."""
    if not trace.leg.size:
        return trace.arrival_s
    begun, later = trace.arrival_s.copy(), np.flatnonzero(trace.leg > 0)
    before = later - 1
    answered_s = outcome.finish_s[before] - outcome.network_s[before]
    begun[later] = answered_s + rules.judge_s[trace.llm[before]]
    return begun
