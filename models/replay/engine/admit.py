"""Admission: which waiting requests enter an instance's batch; each needs a place and memory."""

from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.dispatch.kv_transfer import has_transferred_cache
from fleetcast.models.replay.engine.decode_batch import start_decoding
from fleetcast.models.replay.engine.kv_memory import (
    admission_blocks,
    capacity_blocks,
    full_length_blocks,
    kv_blocks,
    new_kv_blocks,
    prompt_tokens,
    update_kv_in_use,
)
from fleetcast.models.replay.engine.preempt import preempt_for_higher_level
from fleetcast.models.replay.engine.prefix import (
    evict_prefix_blocks,
    hold_prefix,
    insert_prompt_blocks,
    reusable_tokens,
    shared_kv_blocks,
)
from fleetcast.models.replay.engine.prompt_chunks import all_chunk_tokens, is_chunked, prompt_token_room
from fleetcast.models.replay.engine.queue import has_waiting_request, next_lane, pop_front, push_back
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Batching, Prefix, QueueOrder


@njit_inline
def has_batch_room(fleet: FleetArrays, state: State, slot: int) -> bool:
    """Return whether the batch is not full.

    An async engine composes a step before it knows which requests the step under way ends: these still count
    (as in vLLM's AsyncScheduler).
    """
    instance = state.instance[slot]
    return instance.batch + instance.joining + instance.ended < fleet.max_batch[fleet.slot_kind[slot]]


@njit_inline
def can_make_batch_room(fleet: FleetArrays, rules: Rules, state: State, slot: int) -> bool:
    """Return whether the batch is not full, or may preempt a request."""
    return rules.order == QueueOrder.PREEMPTIVE or has_batch_room(fleet, state, slot)


@njit_inline
def can_admit(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> bool:
    """Return whether the batch has a place, and memory for the prompt and one decode step of all requests.

    CHUNKED needs no memory for the first token after a prompt (vLLM 1), and at a busy instance leaves the
    watermark free. ORCA needs memory for the whole output of all requests.
    """
    instance = state.instance[slot]
    if not has_batch_room(fleet, state, slot):
        return False
    if fleet.batching[fleet.slot_kind[slot]] == Batching.ORCA:
        blocks = instance.reserved_blocks + full_length_blocks(trace, fleet, slot, request)
    else:
        blocks = instance.blocks + new_kv_blocks(fleet, state, slot, 1)
        # With a transferred cache, the latest token is not cached yet.
        is_computed = not has_transferred_cache(fleet, state, request)
        if is_chunked(fleet, slot):
            # A transferred request decodes at once, with its drafts.
            drafts = 0 if is_computed else fleet.drafts.tokens[fleet.slot_kind[slot]]
            blocks += instance.ended_blocks + kv_blocks(
                fleet, slot, prompt_tokens(trace, state, request) + drafts
            )
            if instance.batch + instance.joining + instance.ended > 0:
                blocks += fleet.watermark_blocks[fleet.slot_kind[slot]]
        else:
            blocks += instance.full_block_prompts
            blocks += kv_blocks(fleet, slot, prompt_tokens(trace, state, request) + is_computed)
        if is_computed and blocks > capacity_blocks(fleet, slot):
            blocks -= shared_kv_blocks(trace, fleet, state, slot, request)
    return blocks <= capacity_blocks(fleet, slot)


@njit_inline
def admit_waiting(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Admit as many waiting requests as fit, in queue order; their prompts are then pending."""
    instance = state.instance[slot]
    instance.queue_dirty = False
    before, kind, has_preempted = state.progress.admission_turn, fleet.slot_kind[slot], False
    if fleet.prefix == Prefix.BLOCKS:  # the decode batch takes its blocks first
        evict_prefix_blocks(fleet, state, slot, new_kv_blocks(fleet, state, slot, 1))
    planned = all_chunk_tokens(trace, fleet, state, slot)
    while True:
        room = prompt_token_room(fleet, state, slot) - planned
        if room <= 0:
            instance.queue_dirty = has_waiting_request(state, slot)
            break
        lane = next_lane(trace, fleet, rules, state, slot, now)
        if lane == NO_INDEX:
            break
        request = state.lane[slot, lane].head
        if not can_admit(trace, fleet, state, slot, request):
            if rules.order == QueueOrder.PREEMPTIVE and preempt_for_higher_level(
                trace, fleet, state, slot, request
            ):
                has_preempted = True
                planned = all_chunk_tokens(trace, fleet, state, slot)
                continue
            break
        prompt = prompt_tokens(trace, state, request)
        has_cache = has_transferred_cache(fleet, state, request)
        work = prompt - (0 if has_cache else reusable_tokens(trace, fleet, state, slot, request))
        is_full = (
            instance.joining > 0 and instance.pending_prompt_tokens + work > fleet.max_prefill_tokens[kind]
        )
        if fleet.batching[kind] == Batching.WHOLE and is_full and not has_cache:
            # It may be admitted at the next step boundary.
            instance.queue_dirty = True
            break
        pop_front(state, state.lane[slot]["head"], lane)
        instance.waiting_blocks -= admission_blocks(trace, fleet, state, slot, request)
        instance.reserved_blocks += full_length_blocks(trace, fleet, slot, request)
        state.progress.admission_turn += 1
        state.request[request].admission_turn = state.progress.admission_turn
        if has_cache:
            state.transfer[request].joined_s = now
            admit_transferred(trace, fleet, state, slot, request)
            continue
        push_back(state, state.instance["joining_head"], state.instance["joining_tail"], slot, request)
        instance.joining += 1
        instance.pending_prompt_tokens += work
        chunk = min(work, instance.chunk_limit)
        planned += chunk
        granted = prompt - work + min(chunk, room)
        state.request[request].prefilled, state.request[request].granted_tokens = 0, granted
        instance.blocks += kv_blocks(fleet, slot, granted)
        if fleet.prefix != Prefix.NONE:
            instance.blocks -= shared_kv_blocks(trace, fleet, state, slot, request)
            hold_prefix(trace, fleet, state, slot, request, prompt - work)
            insert_prompt_blocks(trace, fleet, state, slot, request, granted)
        instance.full_block_prompts += prompt % fleet.kv_block_tokens == 0
        if state.request[request].generated == 0:
            state.request[request].admitted_s = now
    if has_preempted or state.progress.admission_turn > before:
        update_kv_in_use(fleet, state, slot, now)


@njit_inline
def admit_transferred(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> None:
    """Add a request with a transferred cache to the decode batch; nothing is computed."""
    cached = state.transfer[request].transferred_tokens
    state.transfer[request].transferred_tokens = 0
    state.instance[slot].blocks += kv_blocks(fleet, slot, cached)
    evict_prefix_blocks(fleet, state, slot, 0)
    start_decoding(trace, fleet, state, slot, request)
