"""Waiting: linked lists through one array, and who is next at an instance.

Within a tier the allowance to the first token is constant, so arrival order is deadline order and one
list per tier and instance is enough: the next request is the best of three heads.
"""

import numpy as np

from models.replay.compiled import compiled
from models.replay.state import NIW, NOBODY, TIERS, Rules, State, Trace


@compiled
def push_back(state: State, heads: np.ndarray, tails: np.ndarray, at: int, request: int) -> None:
    """Append the request to list `at`."""
    state.next[request] = NOBODY
    if heads[at] == NOBODY:
        heads[at] = request
    else:
        state.next[tails[at]] = request
    tails[at] = request


@compiled
def push_front(state: State, heads: np.ndarray, tails: np.ndarray, at: int, request: int) -> None:
    """Put the request at the head of list `at`."""
    state.next[request] = heads[at]
    if heads[at] == NOBODY:
        tails[at] = request
    heads[at] = request


@compiled
def pop_front(state: State, heads: np.ndarray, at: int) -> int:
    """Take the head of list `at`, which must not be empty."""
    request = heads[at]
    heads[at] = state.next[request]
    return request


@compiled
def is_aged(trace: Trace, rules: Rules, request: int, now: float) -> bool:
    """Whether a non-interactive request is old enough for priority 0 (SageServe 6.2)."""
    return now - trace.arrival_s[request] >= rules.niw_priority_age_s


@compiled
def next_request(trace: Trace, rules: Rules, state: State, slot: int, now: float) -> int:
    """The waiting request to admit next, first come first served among priority 0; NOBODY if none waits."""
    best = NOBODY
    for tier in range(TIERS):
        head = state.head[slot, tier]
        if head == NOBODY or (tier == NIW and best != NOBODY and not is_aged(trace, rules, head, now)):
            continue
        if best == NOBODY or head < best:
            best = head
    return best
