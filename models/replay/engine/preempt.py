"""Preemption: requests that no longer fit in an instance's memory are queued again.

A preempted request loses its KV cache and keeps its place in the order of arrival. It is prefilled again,
with the tokens that it had generated (recompute, as in vLLM).
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.migration import abort_migration
from fleetcast.models.replay.engine.decode_batch import place_in_batch, take_from_batch
from fleetcast.models.replay.engine.kv_memory import (
    admission_blocks,
    full_length_blocks,
    prompt_tokens,
)
from fleetcast.models.replay.engine.prefix import release_kv_blocks, tokens_to_compute
from fleetcast.models.replay.engine.queue import insert_in_order, unlink
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, TraceArrays
from fleetcast.models.replay.state import REQUEST_BITS, State


@njit_call
def preempt_request(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> None:
    """Preempt a running request, whether its prompt is pending or it decodes."""
    at = place_in_batch(state, slot, request)
    if at == NO_INDEX:
        preempt_prefilling(trace, fleet, state, slot, request)
    else:
        preempt_decoding(trace, fleet, state, slot, at)


@njit_call
def preempt_prefilling(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> None:
    """Preempt a request with a pending prompt."""
    cached, computed = state.request[request].granted_tokens, state.request[request].prefilled
    drop_joining(trace, fleet, state, slot, request)
    computed += prompt_tokens(trace, state, request) - tokens_to_compute(trace, fleet, state, request)
    requeue_request(trace, fleet, state, slot, request, cached, computed)


@njit_call
def preempt_decoding(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, at: int) -> None:
    """Preempt the decoding request at position `at` of the slot's finish_key heap."""
    request = drop_decoding(trace, fleet, state, slot, at)
    cached = prompt_tokens(trace, state, request) - 1
    requeue_request(trace, fleet, state, slot, request, cached, cached)


@njit_call
def requeue_request(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, cached: int, computed: int
) -> None:
    """Release the memory of a preempted request and queue it at its place in the order of arrival."""
    instance = state.instance[slot]
    instance.blocks -= release_kv_blocks(trace, fleet, state, slot, request, cached, computed)
    instance.reserved_blocks -= full_length_blocks(trace, fleet, slot, request)
    state.request[request].preemptions += 1
    instance.waiting_blocks += admission_blocks(trace, fleet, state, slot, request)
    insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], trace.lane[request], request)
    instance.queue_dirty = True


@njit_call
def preempt_for_higher_level(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int
) -> bool:
    """Preempt one request of a lower level than this one, which does not fit; return whether there was one.

    First choice is the last of those with pending prompts, then a decoding request of the lowest level.
    """
    instance = state.instance[slot]
    level = trace.level[request]
    if instance.joining > 0 and trace.level[instance.joining_tail] > level:
        preempt_prefilling(trace, fleet, state, slot, instance.joining_tail)
        return True
    for at in range(instance.batch):
        if trace.level[state.finish_key[slot, at] & REQUEST_BITS] > level:
            preempt_decoding(trace, fleet, state, slot, last_decoding(trace, True, state, slot))
            return True
    return False


@njit_call
def drop_joining(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> None:
    """Remove the request from the pending prompts; what was computed or reused of its prompt is lost."""
    instance = state.instance[slot]
    before, other = NO_INDEX, instance.joining_head
    while other != request:
        before, other = other, state.request[other].next
    prompt, work = prompt_tokens(trace, state, request), tokens_to_compute(trace, fleet, state, request)
    done = state.request[request].prefilled
    instance.pending_prompt_tokens -= work - done
    instance.prefilled -= done
    state.request[request].prefilled = 0
    state.progress.lost_tokens += prompt - work + done
    instance.full_block_prompts -= prompt % fleet.kv_block_tokens == 0
    instance.joining -= 1
    unlink(state, state.instance["joining_head"], state.instance["joining_tail"], slot, request, before)


@njit_call
def last_decoding(trace: TraceArrays, by_level: bool, state: State, slot: int) -> int:
    """Return the position in finish_key of the request admitted last, of the lowest level if `by_level`."""
    keys = state.finish_key[slot]
    last = 0
    for at in range(1, state.instance[slot].batch):
        request, other = keys[at] & REQUEST_BITS, keys[last] & REQUEST_BITS
        is_lower = by_level and trace.level[request] > trace.level[other]
        is_equal = not by_level or trace.level[request] == trace.level[other]
        if is_lower or (
            is_equal and state.request[request].admission_turn > state.request[other].admission_turn
        ):
            last = at
    return last


@njit_call
def drop_decoding(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, at: int) -> int:
    """Remove the request at position `at` of the heap from the decode batch, and its cache; return it."""
    request = state.finish_key[slot, at] & REQUEST_BITS
    if fleet.has_transfers and state.transfer[request].migrating_to != NO_INDEX:
        abort_migration(fleet, state, request)
    take_from_batch(trace, fleet, state, slot, at)
    state.progress.lost_tokens += prompt_tokens(trace, state, request) - 1
    return request
