"""Giving memory back: the requests that an instance can no longer hold queue again.

A preempted request loses its KV cache and keeps its place in the order of arrival; it will be prefilled
anew, with what it had generated (recompute, as in vLLM).
"""

from fleetcast.models.replay.compiled import njit_call
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
from fleetcast.models.replay.engine.queue import insert_in_order
from fleetcast.models.replay.event_queue import drop_key
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import REQUEST_BITS, ReplayState
from fleetcast.models.world.mechanisms import QueueOrder


@njit_call
def preempt_while_full(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: ReplayState, slot: int
) -> bool:
    """While the next step does not fit, the request admitted last gives up its cache; whether any did.

    It queues again and will be prefilled anew with what it had generated. Those with pending prompts give way
    before all that decode. The oldest goes last and a lone request always fits, unless caches that are being
    sent fill the memory: then it waits until they have left. Nobody starves. Where levels go first, of those
    that decode the lowest level gives way before the others.
    """
    instance = state.instance[slot]
    changed, safe = False, 1 if instance.outbound == 0 else 0
    if instance.blocks + new_kv_blocks(fleet, state, slot, 1) > capacity_blocks(fleet, slot):
        evict_prefix_blocks(fleet, state, slot)
    while instance.batch + instance.joining > safe:
        if instance.blocks + new_kv_blocks(fleet, state, slot, 1) <= capacity_blocks(fleet, slot):
            break
        if instance.joining > 0:
            preempt_prefilling(trace, fleet, state, slot)
        else:
            preempt_decoding(trace, fleet, rules, state, slot)
        changed = True
    return changed


@njit_call
def preempt_prefilling(trace: TraceArrays, fleet: FleetArrays, state: ReplayState, slot: int) -> None:
    """The request admitted last of those with pending prompts queues again."""
    request = drop_last_joining(trace, fleet, state, slot)
    cached = prompt_tokens(trace, state, request)
    computed = cached - tokens_to_compute(trace, fleet, state, request)
    requeue_request(trace, fleet, state, slot, request, cached, computed)


@njit_call
def preempt_decoding(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: ReplayState, slot: int
) -> None:
    """One of those that decode queues again: the last admitted, of the lowest level where levels go first."""
    request = drop_last_decoding(trace, fleet, rules.order >= QueueOrder.PRIORITY, state, slot)
    cached = prompt_tokens(trace, state, request) - 1
    state.instance[slot].kv -= cached
    requeue_request(trace, fleet, state, slot, request, cached, cached)


@njit_call
def requeue_request(
    trace: TraceArrays,
    fleet: FleetArrays,
    state: ReplayState,
    slot: int,
    request: int,
    cached: int,
    computed: int,
) -> None:
    """A request that has lost its cache waits at its place in the order of arrival."""
    instance = state.instance[slot]
    instance.blocks -= release_kv_blocks(trace, fleet, state, slot, request, cached, computed)
    instance.reserved_blocks -= full_length_blocks(trace, fleet, request)
    state.request[request].preemptions += 1
    instance.waiting_blocks += admission_blocks(trace, fleet, state, request)
    insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], trace.lane[request], request)
    instance.queue_dirty = True


@njit_call
def preempt_for_higher_level(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: ReplayState, slot: int, request: int
) -> bool:
    """One request of a lower level gives way to this one, which does not fit; whether there was one.

    First the last of those with pending prompts, then the lowest level of those that decode.
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
def drop_last_joining(trace: TraceArrays, fleet: FleetArrays, state: ReplayState, slot: int) -> int:
    """Take the request admitted last out of the pending prompts."""
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
    instance.joining -= 1
    return request


@njit_call
def drop_last_decoding(
    trace: TraceArrays, fleet: FleetArrays, by_level: bool, state: ReplayState, slot: int
) -> int:
    """Take the request admitted last, of the lowest level if by level, out of the decode batch.

    What it had generated is noted.
    """
    instance = state.instance[slot]
    keys = state.finish_key[slot]
    last = 0
    for at in range(1, instance.batch):
        one, other = keys[at] & REQUEST_BITS, keys[last] & REQUEST_BITS
        is_lower = by_level and trace.level[one] > trace.level[other]
        is_level = not by_level or trace.level[one] == trace.level[other]
        if is_lower or (is_level and state.request[one].admission_turn > state.request[other].admission_turn):
            last = at
    request = keys[last] & REQUEST_BITS
    if fleet.has_transfers and state.transfer[request].migrating_to != NO_INDEX:
        abort_migration(fleet, state, request)
    state.request[request].generated = trace.output_tokens[request] - ((keys[last] >> 32) - instance.steps)
    drop_key(keys, instance.batch, last)
    cached = prompt_tokens(trace, state, request) - 1  # the last token was never cached
    note_block_crossing(fleet, state, slot, cached, -1)
    state.progress.lost_tokens += cached
    instance.batch -= 1
    return request
