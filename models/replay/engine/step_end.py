"""End of a step or of a stretch: tokens are counted, requests finish, and some are preempted for memory."""

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.dispatch.infaas import note_service_time
from fleetcast.models.replay.dispatch.kv_transfer import start_transfer
from fleetcast.models.replay.dispatch.leg_chain import continue_chain
from fleetcast.models.replay.dispatch.migration import abort_migration, release_migrated
from fleetcast.models.replay.engine.decode_batch import start_decoding, take_from_batch
from fleetcast.models.replay.engine.draft_tokens import draft_blocks, tokens_of_steps
from fleetcast.models.replay.engine.ended_requests import note_ended
from fleetcast.models.replay.engine.kv_memory import (
    full_length_blocks,
    new_kv_blocks,
    note_block_crossing,
    prompt_tokens,
    update_kv_in_use,
)
from fleetcast.models.replay.engine.prefix import (
    evict_prefix_blocks,
    idle_kv_blocks,
    release_kv_blocks,
    tokens_to_compute,
)
from fleetcast.models.replay.engine.prompt_chunks import chunk_tokens
from fleetcast.models.replay.engine.queue import unlink
from fleetcast.models.replay.engine.step_memory import preempt_while_full
from fleetcast.models.replay.event_queue import drop_key
from fleetcast.models.replay.fleet.instance_load import assign_request
from fleetcast.models.replay.kernel_inputs import (
    ALL_TURNS,
    DRAFT_CYCLE,
    NO_INDEX,
    FleetArrays,
    Rules,
    TraceArrays,
)
from fleetcast.models.replay.state import REQUEST_BITS, State
from fleetcast.models.world.mechanisms import Batching


@njit_inline
def end_prefill_step(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> bool:
    """End a prefill step, in mixed steps with one decode step; return whether the batch changed."""
    instance = state.instance[slot]
    batch_before = instance.batch
    if fleet.batching[fleet.slot_kind[slot]] != Batching.WHOLE and batch_before > 0:
        if instance.last_turn < ALL_TURNS:
            end_step_with_pauses(trace, fleet, rules, state, slot, now)
        else:
            end_decode_steps(trace, fleet, rules, state, slot, 1, now)
    changed = instance.batch != batch_before
    state.progress.cached_tokens += instance.chunk
    instance.pending_prompt_tokens -= instance.chunk
    instance.prefilled += instance.chunk
    left, before, request = instance.chunk, NO_INDEX, instance.joining_head
    while left > 0:
        behind = state.request[request].next
        piece = min(left, chunk_tokens(trace, fleet, state, slot, request))
        left -= piece
        state.request[request].prefilled += piece
        if state.request[request].prefilled == tokens_to_compute(trace, fleet, state, request):
            end_prompt(trace, fleet, state, slot, request, before)
            finish_prefill(trace, fleet, rules, state, slot, request, now)
            changed = True
        else:
            before = request
        request = behind
    instance.last_turn = ALL_TURNS
    if instance.leaving > 0:
        release_migrated(trace, fleet, rules, state, slot, now)
        changed = changed or instance.batch != batch_before
    changed = preempt_while_full(trace, fleet, rules, state, slot) or changed
    if changed:
        update_kv_in_use(fleet, state, slot, now)
    return changed


@njit_inline
def end_prompt(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, before: int
) -> None:
    """Remove a prefilled request, which is behind `before`, from the pending prompts."""
    instance = state.instance[slot]
    instance.prefilled -= state.request[request].prefilled
    state.request[request].prefilled = 0
    instance.joining -= 1
    instance.full_block_prompts -= prompt_tokens(trace, state, request) % fleet.kv_block_tokens == 0
    unlink(state, state.instance["joining_head"], state.instance["joining_tail"], slot, request, before)


@njit_inline
def finish_prefill(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, request: int, now: float
) -> None:
    """Give a prefilled request its next token; then it finishes, decodes here, or is sent on to decode."""
    if state.request[request].generated == 0:
        state.request[request].first_token_s = now
        state.instance[fleet.instance_slot[slot]].waiting_tokens -= trace.input_tokens[request]
        if fleet.is_interactive[trace.tier[request]]:
            state.pool[fleet.pool[slot]].waiting_tokens -= trace.input_tokens[request]
    state.request[request].generated += 1
    if state.request[request].generated == trace.output_tokens[request]:
        finish_request(trace, fleet, rules, state, slot, request, 0, now)
    elif not (fleet.has_transfers and start_transfer(trace, fleet, rules, state, slot, request, now)):
        start_decoding(trace, fleet, state, slot, request)


@njit_inline
def end_decode_stretch(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> bool:
    """Account for the steps of the stretch; return whether the batch changed."""
    instance = state.instance[slot]
    before = instance.batch
    end_decode_steps(trace, fleet, rules, state, slot, instance.stretch, now)
    if instance.leaving > 0:
        release_migrated(trace, fleet, rules, state, slot, now)
    changed = preempt_while_full(trace, fleet, rules, state, slot) or instance.batch != before
    if changed:
        update_kv_in_use(fleet, state, slot, now)
    return changed


@njit_inline
def end_decode_steps(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, steps: int, now: float
) -> None:
    """Account for `steps` steps of the decode batch; the requests with all their tokens finish."""
    count_decode_steps(fleet, state, slot, steps)
    finish_decoded(trace, fleet, rules, state, slot, now)


@njit_call
def end_step_with_pauses(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """End a mixed step in which the requests admitted after the turn `last_turn` pause."""
    instance, keys = state.instance[slot], state.finish_key[slot]
    paused, at = NO_INDEX, 0
    while at < instance.batch:
        if state.request[keys[at] & REQUEST_BITS].admission_turn > instance.last_turn:
            request = take_from_batch(trace, fleet, state, slot, at)
            state.request[request].next, paused = paused, request
            at = 0  # the heap has another order now
        else:
            at += 1
    if instance.batch > 0:
        count_decode_steps(fleet, state, slot, 1)
    while paused != NO_INDEX:
        request, paused = paused, state.request[paused].next
        start_decoding(trace, fleet, state, slot, request)
    finish_decoded(trace, fleet, rules, state, slot, now)


@njit_inline
def count_decode_steps(fleet: FleetArrays, state: State, slot: int, steps: int) -> None:
    """Add the tokens and the KV blocks of `steps` steps of the decode batch."""
    instance = state.instance[slot]
    tokens = tokens_of_steps(fleet, state, slot, steps)
    instance.blocks += new_kv_blocks(fleet, state, slot, tokens)
    state.progress.cached_tokens += tokens * instance.batch
    instance.kv += tokens * instance.batch
    instance.steps += tokens
    if fleet.drafts.tokens[fleet.slot_kind[slot]] > 0:
        instance.cycle_steps = (instance.cycle_steps + steps) % DRAFT_CYCLE


@njit_inline
def finish_decoded(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Finish the decoding requests that have all their tokens."""
    instance = state.instance[slot]
    keys = state.finish_key[slot]
    while instance.batch > 0 and keys[0] >> 32 <= instance.steps:
        request, surplus = keys[0] & REQUEST_BITS, instance.steps - (keys[0] >> 32)
        cached = trace.input_tokens[request] + trace.output_tokens[request] - 1
        drop_key(keys, instance.batch, 0)
        note_block_crossing(fleet, state, slot, cached + surplus, -1)
        state.progress.cached_tokens -= surplus
        instance.batch -= 1
        if fleet.has_transfers and state.transfer[request].migrating_to != NO_INDEX:
            abort_migration(fleet, state, request)
        instance.kv -= cached + surplus
        more = draft_blocks(fleet, slot, cached, surplus)
        finish_request(trace, fleet, rules, state, slot, request, more, now)


@njit_inline
def finish_request(
    trace: TraceArrays,
    fleet: FleetArrays,
    rules: Rules,
    state: State,
    slot: int,
    request: int,
    draft_kv_blocks: int,
    now: float,
) -> None:
    """Finish a request that has all its tokens; the last one was never cached.

    `draft_kv_blocks`: blocks that it has beyond those of its cache.
    """
    instance = state.instance[slot]
    state.request[request].finish_s = now
    evict_prefix_blocks(fleet, state, slot, 0)
    cached = trace.input_tokens[request] + trace.output_tokens[request] - 1
    idle_before = idle_kv_blocks(fleet, state, slot)
    released = draft_kv_blocks + release_kv_blocks(trace, fleet, state, slot, request, cached, cached)
    instance.blocks -= released
    instance.reserved_blocks -= full_length_blocks(trace, fleet, slot, request)
    assign_request(trace, fleet, state, slot, request, -1)
    note_service_time(state, slot, now - state.request[request].dispatched_s)
    instance.queue_dirty = True
    if fleet.is_async[fleet.slot_kind[slot]]:
        uncached = released + idle_before - idle_kv_blocks(fleet, state, slot)
        note_ended(state, slot, request, released, uncached)
    state.progress.ended += 1
    if trace.then.size > 0:
        continue_chain(trace, rules, state, request, now)
