"""Continuous batching at one instance: prefill step by step, decode in stretches.

An instance checks its queue at the first step boundary after a change: a request joined the queue, or left
the batch. While prompts are pending, each step is one event. A stretch of decode steps between two changes of
the batch is one event (step_time.py).

WHOLE    whole prompts first; decode pauses meanwhile (vLLM 0; Llumnix 2.2)
CHUNKED  each step has one token of every decoding request, and prompt tokens up to a budget (Sarathi,
         vLLM 1); a forward pass over c prompt tokens and B decoding requests takes
         max(prefill_s(c + B), f[B]) + g[B]*kv seconds
ORCA     the same without a budget; memory is reserved for the whole output at admission

A chunk attends to the cached part of its prompt: c tokens after a context of x tokens take h*c*x seconds
more. So a prompt of p tokens in k chunks of c tokens takes k*prefill_s(c) + h*c*c*k*(k-1)/2 seconds.
"""

from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.dispatch.freeness import note_first_token
from fleetcast.models.replay.dispatch.infaas import note_service_time
from fleetcast.models.replay.dispatch.kv_transfer import start_transfer
from fleetcast.models.replay.dispatch.leg_chain import continue_chain
from fleetcast.models.replay.dispatch.migration import abort_migration, cut_stretch_soon, release_migrated
from fleetcast.models.replay.engine.admit import admit_waiting, can_admit, can_make_batch_room, start_decoding
from fleetcast.models.replay.engine.kv_memory import (
    full_length_blocks,
    new_kv_blocks,
    note_block_crossing,
    prompt_tokens,
    steps_in_memory,
    update_kv_in_use,
)
from fleetcast.models.replay.engine.preempt import preempt_while_full
from fleetcast.models.replay.engine.prefix import (
    evict_prefix_blocks,
    idle_kv_blocks,
    release_kv_blocks,
    tokens_to_compute,
)
from fleetcast.models.replay.engine.prompt_chunks import is_chunked, next_chunk_tokens, take_chunk_blocks
from fleetcast.models.replay.engine.queue import (
    has_unnoticed_request,
    has_waiting_request,
    notice_arrivals,
    pop_front,
)
from fleetcast.models.replay.engine.step_time import prefill_step_s, stretch_s
from fleetcast.models.replay.event_queue import drop_key, reschedule_event
from fleetcast.models.replay.fleet.instance_load import assign_request
from fleetcast.models.replay.kernel_inputs import NEVER, NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import REQUEST_BITS, State
from fleetcast.models.world.mechanisms import Batching, Phase, Prefix, QueueOrder


@njit_inline
def begin_step(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Begin the next step after a boundary: prefill if prompts are pending, else decode, else be idle."""
    instance = state.instance[slot]
    if has_unnoticed_request(state, slot):
        notice_arrivals(trace, state, slot, instance.step_s)
        # An engine with nothing else to do does not wait for a step.
        if instance.joining + instance.batch == 0 and not has_waiting_request(state, slot):
            notice_arrivals(trace, state, slot, now)
    if instance.batch + instance.joining == 0:
        instance.ended = instance.ended_blocks = instance.ended_uncached_blocks = 0  # no step was composed
        instance.has_preempted = False
    if instance.joining > 0 and is_chunked(fleet, slot):
        take_chunk_blocks(trace, fleet, state, slot, now)
    if instance.queue_dirty and not instance.has_preempted:
        admit_waiting(trace, fleet, rules, state, slot, now)
    if instance.ended > 0:
        instance.queue_dirty = has_waiting_request(state, slot)
        instance.ended = instance.ended_blocks = instance.ended_uncached_blocks = 0
    instance.has_preempted = False
    if instance.joining > 0:
        start_prefill_step(trace, fleet, state, slot, now)
    elif instance.batch > 0:
        start_decode_stretch(fleet, rules, state, slot, now)
    else:
        instance.phase = Phase.IDLE
        reschedule_event(state, slot, NEVER)


@njit_inline
def start_prefill_step(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, now: float) -> None:
    """Start a step over pending prompt tokens: all of them, or as many as the budget leaves after decode."""
    instance = state.instance[slot]
    kind, batch = fleet.slot_kind[slot], instance.batch
    chunk = next_chunk_tokens(fleet, state, slot)
    seconds = prefill_step_s(fleet, kind, chunk)
    if fleet.batching[kind] != Batching.WHOLE and batch > 0:
        pass_s = max(prefill_step_s(fleet, kind, chunk + batch), fleet.latency.decode_s[kind, batch])
        seconds = pass_s + fleet.latency.decode_kv_s[kind, batch] * instance.kv
    if instance.prefilled > 0 or fleet.prefix != Prefix.NONE:
        seconds += fleet.latency.prefill_context_s[kind] * context_pairs(trace, fleet, state, slot, chunk)
    instance.chunk = chunk
    instance.phase = Phase.PREFILL
    instance.base_s = now
    reschedule_event(state, slot, now + seconds)


@njit_inline
def context_pairs(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, chunk: int) -> int:
    """Return the sum, over the next `chunk` prompt tokens, of the cached tokens of their own prompts."""
    instance = state.instance[slot]
    request, done, pairs = instance.joining_head, instance.prefilled, 0
    while chunk > 0:
        piece = min(chunk, tokens_to_compute(trace, fleet, state, request) - done)
        cached = prompt_tokens(trace, state, request) - tokens_to_compute(trace, fleet, state, request) + done
        pairs += piece * cached
        chunk -= piece
        request, done = state.request[request].next, 0
    return pairs


@njit_inline
def start_decode_stretch(fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float) -> None:
    """Start a decode stretch, up to the earliest finish or to the last step that fits in memory."""
    instance = state.instance[slot]
    steps = min((state.finish_key[slot, 0] >> 32) - instance.steps, rules.steps_per_event)
    knows_more_soon = instance.queue_dirty or has_unnoticed_request(state, slot)
    if knows_more_soon and can_make_batch_room(fleet, rules, state, slot):
        # After one step the engine knows the requests that came during the last one.
        steps = 1
    instance.stretch = steps_in_memory(fleet, state, slot, steps)
    instance.phase = Phase.DECODE
    instance.base_s = now
    reschedule_event(state, slot, now + stretch_s(fleet, state, slot, instance.stretch))


@njit_inline
def cut_stretch_to_admit(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """End the stretch at the next boundary, after a request joined the queue, if one may be admitted there.

    If the head of no lane fits now, none will until the stretch ends, as memory use only grows. But under
    DPA, and where requests are promoted, the head of a lane may change, and PREEMPTIVE makes room.
    """
    order_may_change = rules.order in (QueueOrder.DPA, QueueOrder.PREEMPTIVE) or rules.promote_s < NEVER
    may_admit = order_may_change and can_make_batch_room(fleet, rules, state, slot)
    for at in range(state.lane.shape[1]):
        head = state.lane[slot, at].head
        may_admit = may_admit or (head != NO_INDEX and can_admit(trace, fleet, state, slot, head))
    if not may_admit:
        return
    cut_stretch_soon(fleet, state, slot, now)


@njit_inline
def end_prefill_step(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> bool:
    """End a prefill step, in mixed steps with one decode step; return whether the batch changed."""
    instance = state.instance[slot]
    before = instance.batch
    if fleet.batching[fleet.slot_kind[slot]] != Batching.WHOLE and before > 0:
        end_decode_steps(trace, fleet, rules, state, slot, 1, now)
    changed = instance.batch != before
    state.progress.cached_tokens += instance.chunk
    instance.pending_prompt_tokens -= instance.chunk
    instance.prefilled += instance.chunk
    while instance.joining > 0:
        request = instance.joining_head
        work, prompt = tokens_to_compute(trace, fleet, state, request), prompt_tokens(trace, state, request)
        if instance.prefilled < work:
            break
        instance.prefilled -= work
        instance.joining -= 1
        instance.full_block_prompts -= prompt % fleet.kv_block_tokens == 0
        pop_front(state, state.instance["joining_head"], slot)
        finish_prefill(trace, fleet, rules, state, slot, request, now)
        changed = True
    if instance.leaving > 0:
        release_migrated(trace, fleet, rules, state, slot, now)
        changed = changed or instance.batch != before
    changed = preempt_while_full(trace, fleet, rules, state, slot) or changed
    if changed:
        update_kv_in_use(fleet, state, slot, now)
    return changed


@njit_inline
def finish_prefill(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, request: int, now: float
) -> None:
    """Give a prefilled request its next token; then it finishes, decodes here, or is sent on to decode."""
    if state.request[request].generated == 0:
        state.request[request].first_token_s = now
        note_first_token(trace, fleet, rules, state, slot, request, now)
        state.instance[slot].waiting_tokens -= trace.input_tokens[request]
        if fleet.is_interactive[trace.tier[request]]:
            state.pool[fleet.pool[slot]].waiting_tokens -= trace.input_tokens[request]
    state.request[request].generated += 1
    if state.request[request].generated == trace.output_tokens[request]:
        finish_request(trace, fleet, rules, state, slot, request, now)
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
    instance = state.instance[slot]
    instance.blocks += new_kv_blocks(fleet, state, slot, steps)
    state.progress.cached_tokens += steps * instance.batch
    instance.kv += steps * instance.batch
    instance.steps += steps
    keys = state.finish_key[slot]
    while instance.batch > 0 and keys[0] >> 32 == instance.steps:
        request = keys[0] & REQUEST_BITS
        drop_key(keys, instance.batch, 0)
        note_block_crossing(
            fleet, state, slot, trace.input_tokens[request] + trace.output_tokens[request] - 1, -1
        )
        instance.batch -= 1
        if fleet.has_transfers and state.transfer[request].migrating_to != NO_INDEX:
            abort_migration(fleet, state, request)
        instance.kv -= trace.input_tokens[request] + trace.output_tokens[request] - 1
        finish_request(trace, fleet, rules, state, slot, request, now)


@njit_inline
def finish_request(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, request: int, now: float
) -> None:
    """Finish a request that has all its tokens; the last one was never cached."""
    instance = state.instance[slot]
    state.request[request].finish_s = now
    evict_prefix_blocks(fleet, state, slot, 0)
    cached = trace.input_tokens[request] + trace.output_tokens[request] - 1
    idle_before = idle_kv_blocks(fleet, state, slot)
    released = release_kv_blocks(trace, fleet, state, slot, request, cached, cached)
    instance.blocks -= released
    instance.reserved_blocks -= full_length_blocks(trace, fleet, request)
    assign_request(trace, fleet, state, slot, request, -1)
    note_service_time(state, slot, now - state.request[request].dispatched_s)
    instance.queue_dirty = True
    if fleet.is_async[fleet.slot_kind[slot]]:
        instance.ended += 1
        instance.ended_blocks += released
        instance.ended_uncached_blocks += released + idle_before - idle_kv_blocks(fleet, state, slot)
    state.progress.ended += 1
    if trace.then.size > 0:
        continue_chain(trace, rules, state, request, now)
