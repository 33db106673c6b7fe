"""Continuous batching on one instance: how prompts are prefilled, and decode in stretches.

An instance looks at its queue at the first step boundary after something changed: a request joined the
queue, or left the batch. While prompts are pending its steps are played; a stretch of decode steps between
two changes of the batch is one event (leap.py).

WHOLE    whole prompts first, decode pauses meanwhile (vLLM 0; Llumnix 2.2)
CHUNKED  each step carries a token for every decoding request and prompt tokens up to a budget
         (Sarathi, vLLM 1); one forward pass over c prompt tokens and B others takes
         max(prefill_s(c + B), f[B]) + g[B]*kv
ORCA     the same without a budget, and memory is reserved for the whole output at admission

A chunk attends to what is cached of its prompt: c tokens behind a context of x take h*c*x more. So a prompt
of p tokens in k chunks of c costs k*prefill_s(c) + h*c*c*k*(k-1)/2.
"""

from fleetcast.models.replay.compiled import compiled
from fleetcast.models.replay.dispatch.chain import go_on
from fleetcast.models.replay.dispatch.freeness import note_first_token
from fleetcast.models.replay.dispatch.handover import send
from fleetcast.models.replay.dispatch.infaas import note_service
from fleetcast.models.replay.dispatch.move import give_up, let_go, stop_soon
from fleetcast.models.replay.engine.admit import admit, fits, may_have_place, start_decoding
from fleetcast.models.replay.engine.leap import prefill_s, stretch_s
from fleetcast.models.replay.engine.memory import (
    blocks_taken,
    cross,
    longest_blocks,
    prompt_tokens,
    see_kv,
    steps_in_memory,
)
from fleetcast.models.replay.engine.preempt import preempt_while_full
from fleetcast.models.replay.engine.prefix import blocks_back, forget_the_oldest, work_of
from fleetcast.models.replay.engine.queue import is_unknown, notice, pop_front, somebody_waits
from fleetcast.models.replay.events import drop_key, reschedule
from fleetcast.models.replay.fleet.pools import assign
from fleetcast.models.replay.inputs import NEVER, NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import REQUEST_BITS, State
from fleetcast.models.world.mechanisms import Batching, Order, Phase, Prefix


@compiled
def begin(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Start what follows a step boundary: prompts if some are pending, else decode, else rest."""
    instance = state.instance[slot]
    if is_unknown(state, slot):
        notice(trace, state, slot, instance.step_s)
        if instance.joining + instance.batch == 0 and not somebody_waits(state, slot):
            notice(trace, state, slot, now)  # one that has nothing else to do does not wait for a step
    if instance.look:
        admit(trace, fleet, rules, state, slot, now)
    if instance.joining > 0:
        prefill(trace, fleet, state, slot, now)
    elif instance.batch > 0:
        decode(fleet, rules, state, slot, now)
    else:
        instance.phase = Phase.IDLE
        reschedule(state, slot, NEVER)


@compiled
def prefill(trace: Trace, fleet: Fleet, state: State, slot: int, now: float) -> None:
    """Start a step over pending prompt tokens: all of them, or what the budget leaves beside decode."""
    instance = state.instance[slot]
    kind, batch = fleet.slot_kind[slot], instance.batch
    chunk = instance.pending
    if fleet.batching[kind] == Batching.CHUNKED:
        chunk = min(chunk, max(1, fleet.max_prefill_tokens[kind] - batch))
    seconds = prefill_s(fleet, kind, chunk)
    if fleet.batching[kind] != Batching.WHOLE and batch > 0:
        pass_s = max(prefill_s(fleet, kind, chunk + batch), fleet.latency.decode_s[kind, batch])
        seconds = pass_s + fleet.latency.decode_kv_s[kind, batch] * instance.kv
    if instance.prefilled > 0 or fleet.prefix != Prefix.NONE:
        seconds += fleet.latency.prefill_context_s[kind] * context_pairs(trace, fleet, state, slot, chunk)
    instance.chunk = chunk
    instance.phase = Phase.PREFILL
    instance.base_s = now
    reschedule(state, slot, now + seconds)


@compiled
def context_pairs(trace: Trace, fleet: Fleet, state: State, slot: int, chunk: int) -> int:
    """Of the next `chunk` prompt tokens, the sum over them of the tokens cached of their own prompts."""
    instance = state.instance[slot]
    request, done, pairs = instance.joining_head, instance.prefilled, 0
    while chunk > 0:
        piece = min(chunk, work_of(trace, fleet, state, request) - done)
        cached = prompt_tokens(trace, state, request) - work_of(trace, fleet, state, request) + done
        pairs += piece * cached
        chunk -= piece
        request, done = state.request[request].next, 0
    return pairs


@compiled
def decode(fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Start a decode stretch up to the earliest finish, or to the step at which memory would overflow."""
    instance = state.instance[slot]
    steps = min((state.finish_key[slot, 0] >> 32) - instance.steps, rules.steps_per_event)
    if is_unknown(state, slot) and may_have_place(fleet, rules, state, slot):
        steps = 1  # then it knows of those that came during the last one
    instance.stretch = steps_in_memory(fleet, state, slot, steps)
    instance.phase = Phase.DECODE
    instance.base_s = now
    reschedule(state, slot, now + stretch_s(fleet, state, slot, instance.stretch))


@compiled
def cut_stretch(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """A request has joined the queue in mid-stretch: stop at the first boundary that may admit someone.

    Where no head fits now none will, as memory only fills; under DPA, or where requests are promoted, others
    may have come to the head, and PREEMPTIVE makes way.
    """
    turns = rules.order in (Order.DPA, Order.PREEMPTIVE) or rules.promote_s < NEVER
    hopeful = turns and may_have_place(fleet, rules, state, slot)
    for at in range(state.lane.shape[1]):
        head = state.lane[slot, at].head
        hopeful = hopeful or (head != NOBODY and fits(trace, fleet, state, slot, head))
    if not hopeful:
        return
    stop_soon(fleet, state, slot, now)


@compiled
def end_prefill(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> bool:
    """A step over prompt tokens is done, and in mixed steps one of decode; whether the batch changed."""
    instance = state.instance[slot]
    before = instance.batch
    if fleet.batching[fleet.slot_kind[slot]] != Batching.WHOLE and before > 0:
        end_steps(trace, fleet, rules, state, slot, 1, now)
    changed = instance.batch != before
    state.progress.cached_tokens += instance.chunk
    instance.pending -= instance.chunk
    instance.prefilled += instance.chunk
    while instance.joining > 0:
        request = instance.joining_head
        work, prompt = work_of(trace, fleet, state, request), prompt_tokens(trace, state, request)
        if instance.prefilled < work:
            break
        instance.prefilled -= work
        instance.joining -= 1
        instance.brimful -= prompt % fleet.kv_block_tokens == 0
        pop_front(state, state.instance["joining_head"], slot)
        join(trace, fleet, rules, state, slot, request, now)
        changed = True
    if instance.leavers > 0:
        let_go(trace, fleet, rules, state, slot, now)
        changed = changed or instance.batch != before
    changed = preempt_while_full(trace, fleet, rules, state, slot) or changed
    if changed:
        see_kv(fleet, state, slot, now)
    return changed


@compiled
def join(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, request: int, now: float) -> None:
    """A prefilled request has its next token; if it wants more it decodes, here or where it is sent."""
    if state.request[request].generated == 0:
        state.request[request].first_token_s = now
        note_first_token(trace, fleet, rules, state, slot, request, now)
        if fleet.is_interactive[trace.tier[request]]:
            state.pool[fleet.pool[slot]].waiting_tokens -= trace.input_tokens[request]
    state.request[request].generated += 1
    if state.request[request].generated == trace.output_tokens[request]:
        finish(trace, fleet, rules, state, slot, request, now)
    elif not (fleet.hands_over and send(trace, fleet, rules, state, slot, request, now)):
        start_decoding(trace, fleet, state, slot, request)


@compiled
def end_stretch(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> bool:
    """Account for the steps of the stretch; whether the batch changed."""
    instance = state.instance[slot]
    before = instance.batch
    end_steps(trace, fleet, rules, state, slot, instance.stretch, now)
    if instance.leavers > 0:
        let_go(trace, fleet, rules, state, slot, now)
    changed = preempt_while_full(trace, fleet, rules, state, slot) or instance.batch != before
    if changed:
        see_kv(fleet, state, slot, now)
    return changed


@compiled
def end_steps(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, steps: int, now: float
) -> None:
    """The decode batch has made `steps` steps; those that have all their tokens leave."""
    instance = state.instance[slot]
    instance.blocks += blocks_taken(fleet, state, slot, steps)
    state.progress.cached_tokens += steps * instance.batch
    instance.kv += steps * instance.batch
    instance.steps += steps
    keys = state.finish_key[slot]
    while instance.batch > 0 and keys[0] >> 32 == instance.steps:
        request = keys[0] & REQUEST_BITS
        drop_key(keys, instance.batch, 0)
        cross(fleet, state, slot, trace.input_tokens[request] + trace.output_tokens[request] - 1, -1)
        instance.batch -= 1
        if fleet.hands_over and state.transfer[request].copying_to != NOBODY:
            give_up(fleet, state, request)
        instance.kv -= trace.input_tokens[request] + trace.output_tokens[request] - 1
        finish(trace, fleet, rules, state, slot, request, now)


@compiled
def finish(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, request: int, now: float
) -> None:
    """The request has all its tokens; the last one was never cached."""
    instance = state.instance[slot]
    state.request[request].finish_s = now
    forget_the_oldest(fleet, state, slot)
    cached = trace.input_tokens[request] + trace.output_tokens[request] - 1
    instance.blocks -= blocks_back(trace, fleet, state, slot, request, cached, cached)
    instance.reserved -= longest_blocks(trace, fleet, request)
    assign(trace, fleet, state, slot, request, -1)
    note_service(state, slot, now - state.request[request].dispatched_s)
    instance.look = True
    state.progress.ended += 1
    if trace.then.size > 0:
        go_on(trace, rules, state, request, now)
