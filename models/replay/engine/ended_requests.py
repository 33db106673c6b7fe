"""Requests that have just ended, at an async engine: it composed its next step while they were in its list.

They count in the batch of that step, and hold their memory. Where memory is short, vLLM preempts the last of
its list. If that is a request that has ended, its memory is free, and nothing is lost.
"""

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.kernel_inputs import NO_INDEX, TraceArrays
from fleetcast.models.replay.state import State

ALL, UNCACHED = range(2)  # columns of State.ended_blocks


@njit_inline
def note_ended(state: State, slot: int, request: int, blocks: int, uncached: int) -> None:
    """Note that a request has ended at this boundary; `uncached` of its KV blocks did not stay cached."""
    instance = state.instance[slot]
    state.ended_request[slot, instance.ended] = request
    state.ended_blocks[slot, instance.ended, ALL] = blocks
    state.ended_blocks[slot, instance.ended, UNCACHED] = uncached
    instance.ended += 1
    instance.ended_blocks += blocks
    instance.ended_uncached_blocks += uncached


@njit_inline
def forget_ended(state: State, slot: int) -> None:
    """Take the requests that have just ended out of what the next step is composed with."""
    instance = state.instance[slot]
    instance.ended = instance.ended_blocks = instance.ended_uncached_blocks = 0


@njit_call
def free_ended_after(trace: TraceArrays, by_level: bool, state: State, slot: int, request: int) -> bool:
    """Free the memory of the ended request that is preempted before a running one; False if there is none.

    That is one that was admitted after it, the last of them; `by_level`: one of a lower level, or of the same
    level and behind it in the trace.
    """
    best, best_at = request, NO_INDEX
    for at in range(state.instance[slot].ended):
        other = state.ended_request[slot, at]
        if other != NO_INDEX and is_preempted_before(trace, by_level, state, other, best):
            best, best_at = other, at
    if best_at == NO_INDEX:
        return False
    state.ended_request[slot, best_at] = NO_INDEX
    state.instance[slot].ended_blocks -= state.ended_blocks[slot, best_at, ALL]
    state.instance[slot].ended_uncached_blocks -= state.ended_blocks[slot, best_at, UNCACHED]
    return True


@njit_inline
def is_preempted_before(trace: TraceArrays, by_level: bool, state: State, request: int, other: int) -> bool:
    """Return whether vLLM preempts `request` rather than `other`."""
    if not by_level:
        return state.request[request].admission_turn > state.request[other].admission_turn
    if trace.level[request] != trace.level[other]:
        return trace.level[request] > trace.level[other]
    return request > other
