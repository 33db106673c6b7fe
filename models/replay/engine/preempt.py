"""Preemption: requests that no longer fit in an instance's memory are queued again.

A preempted request loses its KV cache and keeps its place in the order of arrival. It is prefilled again,
with the tokens that it had generated (recompute, as in vLLM).
"""

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.dispatch.migration import abort_migration
from fleetcast.models.replay.engine.kv_memory import (
    admission_blocks,
    capacity_blocks,
    full_length_blocks,
    new_kv_blocks,
    note_block_crossing,
    prompt_tokens,
)
from fleetcast.models.replay.engine.prefix import evict_prefix_blocks, release_kv_blocks, tokens_to_compute
from fleetcast.models.replay.engine.prompt_chunks import is_chunked, next_chunk_blocks
from fleetcast.models.replay.engine.queue import insert_in_order
from fleetcast.models.replay.event_queue import drop_key
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import REQUEST_BITS, State
from fleetcast.models.world.mechanisms import QueueOrder


@njit_call
def preempt_while_full(trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int) -> bool:
    """Preempt the request admitted last while the next step does not fit; return whether any was preempted.

    Requests with pending prompts are preempted before decoding ones. Where the queue goes by level, decoding
    requests of the lowest level are preempted first. The oldest request goes last, and a single request
    always fits. The exception is memory filled by caches that are being sent: then the request waits until
    they have left. So no request starves.
    """
    instance = state.instance[slot]
    changed, safe = False, 1 if instance.outbound == 0 else 0
    if not has_memory_for_step(trace, fleet, state, slot):
        evict_prefix_blocks(fleet, state, slot, 0)
    while instance.batch + instance.joining > safe:
        if has_memory_for_step(trace, fleet, state, slot):
            break
        if instance.joining > 0:
            preempt_prefilling(trace, fleet, state, slot)
        else:
            preempt_decoding(trace, fleet, rules, state, slot)
        changed = True
    instance.has_preempted = changed and is_chunked(fleet, slot)
    return changed


@njit_inline
def has_memory_for_step(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> bool:
    """Return whether the next step fits: a token of each decoding request, and the next chunk of a prompt.

    An async engine composed that step while the requests that have just ended still held their blocks.
    """
    instance = state.instance[slot]
    blocks = new_kv_blocks(fleet, state, slot, 1) + next_chunk_blocks(trace, fleet, state, slot)
    held = instance.blocks + (instance.ended_blocks if is_chunked(fleet, slot) else 0)
    return held + blocks <= capacity_blocks(fleet, slot)


@njit_call
def preempt_prefilling(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> None:
    """Preempt the request admitted last of those with pending prompts."""
    instance = state.instance[slot]
    cached = instance.granted_tokens
    computed = instance.prefilled if instance.joining == 1 else 0
    request = drop_last_joining(trace, fleet, state, slot)
    computed += prompt_tokens(trace, state, request) - tokens_to_compute(trace, fleet, state, request)
    requeue_request(trace, fleet, state, slot, request, cached, computed)


@njit_call
def preempt_decoding(trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int) -> None:
    """Preempt the decoding request admitted last, of the lowest level where the queue goes by level."""
    request = drop_last_decoding(trace, fleet, rules.order >= QueueOrder.PRIORITY, state, slot)
    cached = prompt_tokens(trace, state, request) - 1
    state.instance[slot].kv -= cached
    requeue_request(trace, fleet, state, slot, request, cached, cached)


@njit_call
def requeue_request(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, cached: int, computed: int
) -> None:
    """Release the memory of a preempted request and queue it at its place in the order of arrival."""
    instance = state.instance[slot]
    instance.blocks -= release_kv_blocks(trace, fleet, state, slot, request, cached, computed)
    instance.reserved_blocks -= full_length_blocks(trace, fleet, request)
    state.request[request].preemptions += 1
    instance.waiting_blocks += admission_blocks(trace, fleet, state, request)
    insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], trace.lane[request], request)
    instance.queue_dirty = True


@njit_call
def preempt_for_higher_level(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, request: int
) -> bool:
    """Preempt one request of a lower level than this one, which does not fit; return whether there was one.

    First choice is the last of those with pending prompts, then a decoding request of the lowest level.
    """
    instance = state.instance[slot]
    level = trace.level[request]
    if instance.joining > 0 and trace.level[instance.joining_tail] > level:
        preempt_prefilling(trace, fleet, state, slot)
        return True
    for at in range(instance.batch):
        if trace.level[state.finish_key[slot, at] & REQUEST_BITS] > level:
            preempt_decoding(trace, fleet, rules, state, slot)
            return True
    return False


@njit_call
def drop_last_joining(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> int:
    """Remove the request admitted last from the pending prompts and return it."""
    instance = state.instance[slot]
    request, before = instance.joining_head, NO_INDEX
    while request != instance.joining_tail:
        before, request = request, state.request[request].next
    prompt, work = prompt_tokens(trace, state, request), tokens_to_compute(trace, fleet, state, request)
    instance.pending_prompt_tokens -= work
    state.progress.lost_tokens += prompt - work
    instance.full_block_prompts -= prompt % fleet.kv_block_tokens == 0
    if before == NO_INDEX:
        instance.joining_head = NO_INDEX
        state.progress.lost_tokens += instance.prefilled
        instance.pending_prompt_tokens += instance.prefilled
        instance.prefilled = 0
    else:
        state.request[before].next = NO_INDEX
        instance.joining_tail = before
        instance.granted_tokens = prompt_tokens(trace, state, before)
    instance.joining -= 1
    return request


@njit_call
def drop_last_decoding(
    trace: TraceArrays, fleet: FleetArrays, by_level: bool, state: State, slot: int
) -> int:
    """Remove the request admitted last, of the lowest level if `by_level`, from the decode batch; return it.

    Its generated tokens are recorded.
    """
    instance = state.instance[slot]
    keys = state.finish_key[slot]
    last = 0
    for at in range(1, instance.batch):
        request, other = keys[at] & REQUEST_BITS, keys[last] & REQUEST_BITS
        is_lower = by_level and trace.level[request] > trace.level[other]
        is_equal = not by_level or trace.level[request] == trace.level[other]
        if is_lower or (
            is_equal and state.request[request].admission_turn > state.request[other].admission_turn
        ):
            last = at
    request = keys[last] & REQUEST_BITS
    if fleet.has_transfers and state.transfer[request].migrating_to != NO_INDEX:
        abort_migration(fleet, state, request)
    state.request[request].generated = trace.output_tokens[request] - ((keys[last] >> 32) - instance.steps)
    drop_key(keys, instance.batch, last)
    # The last token was never cached.
    cached = prompt_tokens(trace, state, request) - 1
    note_block_crossing(fleet, state, slot, cached, -1)
    state.progress.lost_tokens += cached
    instance.batch -= 1
    return request
