"""Memory of the next step: which requests are preempted where it does not fit.

CHUNKED with a queue by level does as vLLM's policy "priority". The requests get their memory for the step in
the order of their admission. Where one does not get it, the lowest level is preempted, and of it the request
that arrived last, whether its prompt is pending or not. If that is the very request that needs the memory,
the step ends with the one before it: the requests behind it pause for this step.
"""

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.engine.decode_batch import cached_tokens, place_in_batch
from fleetcast.models.replay.engine.draft_tokens import tokens_of_last_step
from fleetcast.models.replay.engine.ended_requests import forget_ended, free_ended_after, is_preempted_before
from fleetcast.models.replay.engine.kv_memory import capacity_blocks, kv_blocks, new_kv_blocks
from fleetcast.models.replay.engine.preempt import last_decoding, preempt_request
from fleetcast.models.replay.engine.prefix import evict_prefix_blocks
from fleetcast.models.replay.engine.prompt_chunks import (
    chunk_tokens,
    is_chunked,
    next_chunk_blocks,
    prompt_token_room,
    set_chunk_limit,
    tokens_after_chunk,
)
from fleetcast.models.replay.kernel_inputs import NEVER, NO_INDEX, FleetArrays, Rules, TraceArrays
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
    instance.has_preempted = False
    set_chunk_limit(fleet, state, slot)
    if has_memory_for_step(trace, fleet, state, slot):
        return False
    evict_prefix_blocks(fleet, state, slot, 0)
    if is_chunked(fleet, slot) and rules.order >= QueueOrder.PRIORITY:
        return preempt_by_level(trace, fleet, state, slot, safe)
    has_freed = False
    while instance.batch + instance.joining > 0:
        if has_memory_for_step(trace, fleet, state, slot):
            break
        last = last_decoding(trace, rules.order >= QueueOrder.PRIORITY, state, slot)
        is_prompt = is_prompt_preempted(fleet, state, slot, last)
        victim = instance.joining_tail if is_prompt else state.finish_key[slot, last] & REQUEST_BITS
        if is_chunked(fleet, slot) and free_ended_after(trace, False, state, slot, victim):
            has_freed = True
            continue
        if instance.batch + instance.joining <= safe:
            break
        preempt_request(trace, fleet, state, slot, victim)
        changed = True
    instance.has_preempted = (changed or has_freed) and is_chunked(fleet, slot)
    return changed


@njit_inline
def has_memory_for_step(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> bool:
    """Return whether the next step fits: a token of each decoding request, and the next chunks of prompts.

    An async engine composed that step while the requests that have just ended still held their blocks.
    """
    blocks = new_kv_blocks(fleet, state, slot, 1) + next_chunk_blocks(trace, fleet, state, slot)
    return blocks <= step_free_blocks(fleet, state, slot)


@njit_inline
def step_free_blocks(fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the KV blocks that the next step may take."""
    instance = state.instance[slot]
    held = instance.blocks + (instance.ended_blocks if is_chunked(fleet, slot) else 0)
    return capacity_blocks(fleet, slot) - held


@njit_inline
def is_prompt_preempted(fleet: FleetArrays, state: State, slot: int, at: int) -> bool:
    """Return whether the last pending prompt is preempted before the decoding request at position `at`.

    With a limit for long prompts, requests admitted after such a prompt may be decoding already.
    """
    instance = state.instance[slot]
    if instance.joining == 0 or instance.batch == 0:
        return instance.joining > 0
    request = state.finish_key[slot, at] & REQUEST_BITS
    is_last = state.request[instance.joining_tail].admission_turn > state.request[request].admission_turn
    return is_last or fleet.long_prefill_token_threshold[fleet.slot_kind[slot]] == 0


@njit_call
def preempt_by_level(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, safe: int) -> bool:
    """Preempt as vLLM's policy "priority" while a request of the next step finds no memory.

    Return whether any was preempted. `safe` requests are never preempted. A step that holds no request is
    composed again.
    """
    instance = state.instance[slot]
    changed = instance.has_preempted = False
    members, taken, turn = 0, 0, 0  # requests in the step, their new blocks, and the last of their turns
    while True:
        request = next_admitted(state, slot, turn)
        if request == NO_INDEX:
            return changed
        blocks, victim = step_blocks(trace, fleet, state, slot, request), NO_INDEX
        while (
            taken + blocks > level_free_blocks(trace, fleet, state, slot)
            and instance.batch + instance.joining > safe
        ):
            last = last_of_lowest_level(trace, state, slot)
            if free_ended_after(trace, True, state, slot, last):
                instance.has_preempted = True
                continue
            victim = last
            if state.request[victim].admission_turn <= turn:
                members -= 1
                taken -= step_blocks(trace, fleet, state, slot, victim)
            preempt_request(trace, fleet, state, slot, victim)
            changed = instance.has_preempted = True
            if victim == request:
                break
        if victim != request:
            members, taken, turn = members + 1, taken + blocks, state.request[request].admission_turn
        elif members > 0:
            instance.last_turn = turn
            return changed
        else:
            members, taken, turn = 0, 0, 0
            instance.has_preempted = False
            forget_ended(state, slot)
            instance.step_s = NEVER  # it knows all requests that wait


@njit_inline
def running_request(state: State, slot: int, at: int, before: int) -> int:
    """Return the running request number `at`, decoding ones first; `before` is number at - 1."""
    instance = state.instance[slot]
    if at < instance.batch:
        return state.finish_key[slot, at] & REQUEST_BITS
    return instance.joining_head if at == instance.batch else state.request[before].next


@njit_call
def next_admitted(state: State, slot: int, turn: int) -> int:
    """Return the running request with the first turn of admission after `turn`; NO_INDEX if there is none."""
    best, other = NO_INDEX, NO_INDEX
    for at in range(state.instance[slot].batch + state.instance[slot].joining):
        other = running_request(state, slot, at, other)
        its_turn = state.request[other].admission_turn
        if its_turn > turn and (best == NO_INDEX or its_turn < state.request[best].admission_turn):
            best = other
    return best


@njit_call
def last_of_lowest_level(trace: TraceArrays, state: State, slot: int) -> int:
    """Return the running request of the lowest level that arrived last."""
    last, other = NO_INDEX, NO_INDEX
    for at in range(state.instance[slot].batch + state.instance[slot].joining):
        other = running_request(state, slot, at, other)
        if last == NO_INDEX or is_preempted_before(trace, True, state, other, last):
            last = other
    return last


@njit_call
def decoding_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, at: int) -> int:
    """Return the KV blocks of the decoding request at position `at`: of all that its last step computed."""
    request, cached = state.finish_key[slot, at] & REQUEST_BITS, cached_tokens(trace, state, slot, at)
    drafts = fleet.drafts.tokens[fleet.slot_kind[slot]]
    has_decoded = cached + 1 > trace.input_tokens[request] + state.request[request].generated
    if drafts > 0 and has_decoded:
        return kv_blocks(fleet, slot, cached + 1 + drafts - tokens_of_last_step(fleet, state, slot))
    return kv_blocks(fleet, slot, cached)


@njit_call
def level_free_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the KV blocks that the next step may take before any request of it has its drafts' blocks."""
    free, drafts = step_free_blocks(fleet, state, slot), fleet.drafts.tokens[fleet.slot_kind[slot]]
    if drafts > 0:
        for at in range(state.instance[slot].batch):
            free += kv_blocks(fleet, slot, cached_tokens(trace, state, slot, at) + drafts)
            free -= decoding_blocks(trace, fleet, state, slot, at)
    return free


@njit_call
def step_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> int:
    """Return the KV blocks that a running request takes in the next step."""
    instance = state.instance[slot]
    at = place_in_batch(state, slot, request)
    if at != NO_INDEX:
        computed = cached_tokens(trace, state, slot, at) + 1 + fleet.drafts.tokens[fleet.slot_kind[slot]]
        return kv_blocks(fleet, slot, computed) - decoding_blocks(trace, fleet, state, slot, at)
    other, room = instance.joining_head, prompt_token_room(fleet, state, slot)
    while other != request:
        room -= min(room, chunk_tokens(trace, fleet, state, slot, other))
        other = state.request[other].next
    after = tokens_after_chunk(trace, fleet, state, slot, request, room)
    return kv_blocks(fleet, slot, after) - kv_blocks(fleet, slot, state.request[request].granted_tokens)
