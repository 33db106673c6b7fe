"""The queue of events: which event is next, and the order of events at the same instant.

Order at one instant: the control tick (run from Python), the balancer, the monitor tick, failures, arrivals
in the order of the trace, instances by slot, KV transfers by request. Each slot has one pending event, and
all transfers together have one. These clocks form one binary heap, so no event in it is ever out of date and
idle instances cost nothing.
"""

import numpy as np

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.kernel_inputs import FleetArrays
from fleetcast.models.replay.state import State


@njit_inline
def reschedule_event(state: State, slot: int, at_s: float) -> None:
    """Set the event of a clock (a slot, or the transfers) to `at_s` seconds and restore the heap."""
    state.clock[slot].event_s = at_s
    mark_freeness_stale(state, slot)
    sift_heap(state.clock["event_s"], state.clock["heap"], state.clock["place"], 0, state.clock.size, slot)


@njit_inline
def mark_freeness_stale(state: State, slot: int) -> None:
    """Mark the slot's freeness bounds as stale; the balancer computes them again (balance.py)."""
    if not state.clock[slot].is_stale:
        state.clock[slot].is_stale = True
        state.instance[state.progress.stale].stale = slot
        state.progress.stale += 1


@njit_inline
def sift_line(fleet: FleetArrays, state: State, pool: int, slot: int) -> None:
    """Restore the heap of the pool's instances after the slot's sort_key has changed."""
    first = fleet.slots[pool]
    sift_heap(
        state.line["sort_key"],
        state.line["slot_heap"],
        state.line["slot_heap_position"],
        first,
        fleet.slots[pool + 1] - first,
        slot,
    )


@njit_call
def sift_transfers(state: State, size: int, request: int) -> None:
    """Restore the heap of the `size` transfers in flight after the request's ready_s has changed."""
    sift_heap(
        state.transfer["ready_s"],
        state.transfer["in_flight"],
        state.transfer["in_flight_position"],
        0,
        size,
        request,
    )


@njit_inline
def sift_heap(
    keys: np.ndarray, heap: np.ndarray, place: np.ndarray, first: int, size: int, slot: int
) -> None:
    """Restore the min-heap heap[first : first + size] after the slot's key has changed; ties go by slot.

    Parameters
    ----------
    keys : shape (N,), the key of each slot, in any unit
    heap : shape (N,), slots in heap order
    place : shape (N,), position of each slot in the heap, counted from `first`
    """
    here = place[slot]
    while here > 0:  # sift up
        parent = (here - 1) >> 1
        if not is_before(keys, slot, heap[first + parent]):
            break
        heap[first + here] = heap[first + parent]
        place[heap[first + here]] = here
        here = parent
    while True:  # sift down
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
    """Return whether slot a comes before slot b: by keys, shape (N,), then by slot."""
    return keys[a] < keys[b] or (keys[a] == keys[b] and a < b)


@njit_inline
def push_key(keys: np.ndarray, size: int, key: int) -> None:
    """Add `key` to the min-heap keys[:size], shape (B,); there must be room for it."""
    here = size
    while here > 0 and keys[(here - 1) >> 1] > key:
        keys[here] = keys[(here - 1) >> 1]
        here = (here - 1) >> 1
    keys[here] = key


@njit_inline
def drop_key(keys: np.ndarray, size: int, at: int) -> None:
    """Remove the key at position `at` of the min-heap keys[:size], shape (B,)."""
    while at > 0:  # move the hole to the top ...
        keys[at] = keys[(at - 1) >> 1]
        at = (at - 1) >> 1
    last = keys[size - 1]
    while True:  # ... and sift the last key down from there
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
