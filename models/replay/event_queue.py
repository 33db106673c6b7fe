"""What happens next, and in which order when two things happen at the same instant.

The order, declared once: a control tick (the hour, decided in Python) comes first, then the balancer, then
the monitor tick, then failures, then arrivals in the order of the trace, then instances by slot, then
hand-overs by request. Each slot and the hand-overs together have one pending event each and stand in one
binary heap of clocks, so nothing is ever stale and idle instances cost nothing.
"""

import numpy as np

from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.state import ReplayState


@njit_inline
def reschedule_event(state: ReplayState, slot: int, at_s: float) -> None:
    """Move the event of a slot, or of another clock, to `at_s` and it to its place in the heap."""
    state.clock[slot].event_s = at_s
    mark_freeness_stale(state, slot)
    sift_heap(state.clock["event_s"], state.clock["heap"], state.clock["place"], 0, state.clock.size, slot)


@njit_inline
def mark_freeness_stale(state: ReplayState, slot: int) -> None:
    """What was known of the slot's freeness holds no longer: the balancer looks it up anew (balance.py)."""
    if not state.clock[slot].is_stale:
        state.clock[slot].is_stale = True
        state.instance[state.progress.stale].stale = slot
        state.progress.stale += 1


@njit_inline
def sift_heap(
    keys: np.ndarray, heap: np.ndarray, place: np.ndarray, first: int, size: int, slot: int
) -> None:
    """Bring the slot, whose key has changed, to its place in the min-heap heap[first : first + size].

    Equal keys go by slot. `place[slot]` is where it stands, counted from `first`.
    """
    here = place[slot]
    while here > 0:  # up
        parent = (here - 1) >> 1
        if not is_before(keys, slot, heap[first + parent]):
            break
        heap[first + here] = heap[first + parent]
        place[heap[first + here]] = here
        here = parent
    while True:  # down
        child = 2 * here + 1
        if child >= size:
            break
        if child + 1 < size and is_before(keys, heap[first + child + 1], heap[first + child]):
            child += 1
        if not is_before(keys, heap[first + child], slot):
            break
        heap[first + here] = heap[first + child]
        place[heap[first + here]] = here
        here = child
    heap[first + here] = slot
    place[slot] = here


@njit_inline
def is_before(keys: np.ndarray, a: int, b: int) -> bool:
    """Whether slot a comes before slot b: by key, then by slot."""
    return keys[a] < keys[b] or (keys[a] == keys[b] and a < b)


@njit_inline
def push_key(keys: np.ndarray, size: int, key: int) -> None:
    """Add `key` to the min-heap keys[:size]."""
    here = size
    while here > 0 and keys[(here - 1) >> 1] > key:
        keys[here] = keys[(here - 1) >> 1]
        here = (here - 1) >> 1
    keys[here] = key


@njit_inline
def drop_key(keys: np.ndarray, size: int, at: int) -> None:
    """Remove the key at position `at` of the min-heap keys[:size]."""
    while at > 0:  # carry the hole to the top ...
        keys[at] = keys[(at - 1) >> 1]
        at = (at - 1) >> 1
    last = keys[size - 1]
    while True:  # ... and let the last key sink from there
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= last:
            break
        keys[at] = keys[child]
        at = child
    keys[at] = last
