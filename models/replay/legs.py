"""Requests as chains of legs, and back: what goes into a replay with cascades, and what comes out of it.

A request for an llm that is a cascade becomes one row for each of its llms (Trace). Of their answers one
counts: the last that was made.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from models.replay.begin import rows_of
from models.replay.run import FINISHED, QUEUED, REFUSED, Outcome
from models.replay.state import NOBODY, Floats, Ints, Rules, Trace
from models.world.catalogue import Catalogue
from models.world.config import Cascade


def as_legs(
    trace: Trace, catalogue: Catalogue, cascades: Mapping[str, Cascade], rng: np.random.Generator
) -> Trace:
    """The requests with a row for each leg that they may take, and a uniform score of each answer."""
    llms = list(catalogue.llms)
    chains = np.full((len(llms), max((len(one.llms) for one in cascades.values()), default=1)), NOBODY)
    chains[:, 0] = range(len(llms))
    for asked, cascade in cascades.items():
        chains[llms.index(asked), : len(cascade.llms)] = [llms.index(llm) for llm in cascade.llms]
    legs = (chains != NOBODY).sum(axis=1)[trace.llm]
    row = np.repeat(np.arange(legs.size), legs)
    leg = np.arange(row.size) - np.repeat(np.cumsum(legs) - legs, legs)
    has_next = leg + 1 < legs[row]
    same = rows_of(trace, row)
    return same._replace(
        llm=chains[same.llm, leg].astype(np.int16),
        then=np.where(has_next, np.arange(1, row.size + 1), NOBODY).astype(np.int32),
        leg=leg.astype(np.int8),
        score=rng.random(row.size, dtype=np.float32),
    )


def requests_of(trace: Trace) -> Ints:
    """The request of each row, by its position among them."""
    return np.cumsum(trace.leg == 0) - 1 if trace.leg.size else np.arange(trace.arrival_s.size)


def first_legs(trace: Trace) -> Ints | slice:
    """The row of each request's first leg; all as a slice, not copied, where there are no others."""
    return np.flatnonzero(trace.leg == 0) if trace.leg.size else slice(None)


def summed(trace: Trace, of_rows: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """The sum of each request's rows."""
    return np.add.reduceat(of_rows, np.flatnonzero(trace.leg == 0)) if trace.leg.size else of_rows


def answers(trace: Trace, outcome: Outcome) -> Ints | slice:
    """The row that says what became of each request, in their order.

    The leg that it waits for, else the last that was answered, else the one that was refused.
    """
    first = first_legs(trace)
    if isinstance(first, slice):
        return first
    status, n = outcome.status, trace.arrival_s.size
    rows, cases = np.arange(n), (status == QUEUED, status == FINISHED, status == REFUSED)
    rank = np.select(cases, (3 * n - rows, n + 1 + rows, n - rows))  # the first, the last, the first of these
    best = np.maximum.reduceat(rank, first)
    return np.select((best > 2 * n, best > n), (3 * n - best, best - n - 1), n - best)


def begun_s(trace: Trace, rules: Rules, outcome: Outcome) -> Floats:
    """When each leg began, shape (R,): with the arrival, or when the answer before it had been judged."""
    if not trace.leg.size:
        return trace.arrival_s
    begun, later = trace.arrival_s.copy(), np.flatnonzero(trace.leg > 0)
    before = later - 1
    answered_s = outcome.finish_s[before] - outcome.network_s[before]
    begun[later] = answered_s + rules.judge_s[trace.llm[before]]
    return begun
