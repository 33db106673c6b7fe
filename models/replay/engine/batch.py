"""Continuous batching at one instance: prefill step by step, decode in stretches.

An instance checks its queue at the first step boundary after a change: a request joined the queue, or left
the batch. While prompts are pending, each step is one event. A stretch of decode steps between two changes of
the batch is one event (step_time.py).

WHOLE    whole prompts first; decode pauses meanwhile (vLLM 0; Llumnix 2.2)
CHUNKED  each step has one token of every decoding request, and prompt tokens up to a budget (Sarathi,
         vLLM 1); a forward pass over c prompt tokens and B decoding requests takes
         max(prefill_s(c + B), f[B]) + g[B]*kv seconds; with k draft tokens of each decoding request it is
         over c + B*(1 + k) tokens
ORCA     the same without a budget; memory is reserved for the whole output at admission

A chunk attends to the cached part of its prompt: c tokens after a context of x tokens take h*c*x seconds
more. So a prompt of p tokens in k chunks of c tokens takes k*prefill_s(c) + h*c*c*k*(k-1)/2 seconds.
"""

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.dispatch.migration import cut_stretch_soon
from fleetcast.models.replay.engine.admit import admit_waiting, can_admit, can_make_batch_room
from fleetcast.models.replay.engine.decode_batch import cached_tokens
from fleetcast.models.replay.engine.draft_tokens import steps_for_tokens, tokens_of_steps
from fleetcast.models.replay.engine.ended_requests import forget_ended
from fleetcast.models.replay.engine.kv_memory import prompt_tokens, tokens_in_memory
from fleetcast.models.replay.engine.prefix import tokens_to_compute
from fleetcast.models.replay.engine.prompt_chunks import (
    chunk_tokens,
    is_chunked,
    next_chunk_tokens,
    set_chunk_limit,
    take_chunk_blocks,
)
from fleetcast.models.replay.engine.queue import (
    has_unnoticed_request,
    has_waiting_request,
    notice_arrivals,
)
from fleetcast.models.replay.engine.ranks import GRAPH_TOKENS, rank_slot
from fleetcast.models.replay.engine.step_time import expert_step_s, prefill_step_s, stretch_s
from fleetcast.models.replay.event_queue import reschedule_event
from fleetcast.models.replay.kernel_inputs import ALL_TURNS, NEVER, NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import REQUEST_BITS, State
from fleetcast.models.world.mechanisms import Batching, Phase, Prefix, QueueOrder


@njit_inline
def begin_step(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Begin the next step of an instance: prefill if prompts are pending, else decode, else be idle.

    Its ranks begin it together (ranks.py).
    """
    has_prompts = has_requests = False
    for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
        member = rank_slot(fleet, slot, rank)
        compose_step(trace, fleet, rules, state, member, now)
        instance = state.instance[member]
        has_prompts = has_prompts or instance.joining > 0 or instance.last_turn < ALL_TURNS
        has_requests = has_requests or instance.batch > 0
    if has_prompts:
        reschedule_event(state, slot, now + start_prefill_steps(trace, fleet, state, slot, now))
    elif has_requests:
        start_decode_stretch(fleet, rules, state, slot, now)
    else:
        reschedule_event(state, slot, NEVER)


@njit_inline
def compose_step(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Choose the requests of the slot's next step: those that run, and those that are admitted."""
    instance = state.instance[slot]
    if has_unnoticed_request(state, slot):
        notice_arrivals(trace, state, slot, instance.step_s)
    if instance.batch + instance.joining == 0:
        instance.has_preempted = False
        if not has_waiting_request(state, slot):  # no step was composed while the last request ran
            forget_ended(state, slot)
            notice_arrivals(trace, state, slot, now)
    set_chunk_limit(fleet, state, slot)
    if instance.joining > 0 and is_chunked(fleet, slot):
        take_chunk_blocks(trace, fleet, state, slot, now)
    if instance.queue_dirty and not instance.has_preempted:
        admit_waiting(trace, fleet, rules, state, slot, now)
        if instance.ended > 0 and instance.batch + instance.joining == 0:
            # The step composed while the last request ran holds none: an idle engine composes another.
            forget_ended(state, slot)
            notice_arrivals(trace, state, slot, now)
            set_chunk_limit(fleet, state, slot)
            admit_waiting(trace, fleet, rules, state, slot, now)
    if instance.ended > 0:
        instance.queue_dirty = has_waiting_request(state, slot)
        forget_ended(state, slot)
    instance.has_preempted = False


@njit_inline
def start_prefill_steps(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, now: float) -> float:
    """Start a prefill step at all ranks of an instance; return its seconds (ranks.py)."""
    kind = fleet.slot_kind[slot]
    ranks = fleet.ranks[kind]
    slowest_s = own_s = 0.0
    most = total = 0
    for rank in range(ranks):
        seconds, tokens = start_prefill_step(trace, fleet, state, rank_slot(fleet, slot, rank), now)
        slowest_s = max(slowest_s, seconds)
        own_s = max(own_s, seconds - expert_step_s(fleet, kind, tokens))
        most, total = max(most, tokens), total + tokens
    if ranks == 1 or most <= min(GRAPH_TOKENS, 2 * fleet.max_batch[kind]):
        return slowest_s
    return own_s + expert_step_s(fleet, kind, total / ranks)


@njit_inline
def start_prefill_step(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, now: float
) -> tuple[float, int]:
    """Start a step over pending prompt tokens: all of them, or as many as the budget leaves after decode.

    Where requests pause, it is a step without them, maybe without prompts; and a rank may have none. Return
    its seconds, if all ranks have as many tokens, and the tokens of its pass.
    """
    instance = state.instance[slot]
    kind, batch, kv = fleet.slot_kind[slot], instance.batch, instance.kv
    if instance.last_turn < ALL_TURNS:
        batch, kv = unpaused_batch(trace, state, slot)
    chunk = next_chunk_tokens(trace, fleet, state, slot)
    tokens, seconds = chunk, prefill_step_s(fleet, kind, chunk) if chunk > 0 else 0.0
    if fleet.batching[kind] != Batching.WHOLE and batch > 0:
        pass_s = fleet.latency.decode_s[kind, batch]
        tokens = chunk + batch * (1 + fleet.drafts.tokens[kind])
        if chunk > 0:
            pass_s = max(prefill_step_s(fleet, kind, tokens) + fleet.drafts.draft_s[kind], pass_s)
        seconds = pass_s + fleet.latency.decode_kv_s[kind, batch] * kv
    if instance.prefilled > 0 or fleet.prefix != Prefix.NONE:
        seconds += fleet.latency.prefill_context_s[kind] * context_pairs(trace, fleet, state, slot, chunk)
    instance.chunk = chunk
    instance.phase = Phase.PREFILL
    instance.base_s = now
    return seconds, tokens


@njit_inline
def context_pairs(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, chunk: int) -> int:
    """Return the sum, over the next `chunk` prompt tokens, of the cached tokens of their own prompts."""
    instance = state.instance[slot]
    request, pairs = instance.joining_head, 0
    while chunk > 0:
        piece = min(chunk, chunk_tokens(trace, fleet, state, slot, request))
        left = tokens_to_compute(trace, fleet, state, request) - state.request[request].prefilled
        cached = prompt_tokens(trace, state, request) - left
        pairs += piece * cached
        chunk -= piece
        request = state.request[request].next
    return pairs


@njit_inline
def start_decode_stretch(fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float) -> None:
    """Start a decode stretch of an instance, as long as all of its ranks can go on."""
    steps = rules.steps_per_event
    for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
        member = rank_slot(fleet, slot, rank)
        if state.instance[member].batch > 0:
            steps = min(steps, steps_to_change(fleet, rules, state, member))
    for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
        instance = state.instance[rank_slot(fleet, slot, rank)]
        instance.stretch = steps
        instance.phase = Phase.DECODE
        instance.base_s = now
    reschedule_event(state, slot, now + stretch_s(fleet, state, slot, steps))


@njit_inline
def steps_to_change(fleet: FleetArrays, rules: Rules, state: State, slot: int) -> int:
    """Return the decode steps of the slot up to the earliest finish, or to the last one that has memory."""
    instance = state.instance[slot]
    left = (state.finish_key[slot, 0] >> 32) - instance.steps
    steps = min(steps_for_tokens(fleet, state, slot, left), rules.steps_per_event)
    knows_more_soon = instance.queue_dirty or has_unnoticed_request(state, slot)
    if knows_more_soon and can_make_batch_room(fleet, rules, state, slot):
        # After one step the engine knows the requests that came during the last one.
        steps = 1
    # The last step needs memory for one token more than those that the steps before it have made.
    needed = tokens_of_steps(fleet, state, slot, steps - 1) + 1
    return steps_for_tokens(fleet, state, slot, tokens_in_memory(fleet, state, slot, needed))


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


@njit_call
def unpaused_batch(trace: TraceArrays, state: State, slot: int) -> tuple[int, int]:
    """Return the decoding requests of a step in which requests pause, and their cached tokens."""
    instance = state.instance[slot]
    batch, kv = 0, 0
    for at in range(instance.batch):
        request = state.finish_key[slot, at] & REQUEST_BITS
        if state.request[request].admission_turn <= instance.last_turn:
            batch += 1
            kv += cached_tokens(trace, state, slot, at)
    return batch, kv
