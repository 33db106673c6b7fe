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

from fleetcast.models.replay.admit import CHUNKED, WHOLE, admit, fits, may_have_place, start_decoding
from fleetcast.models.replay.chain import go_on
from fleetcast.models.replay.compiled import compiled
from fleetcast.models.replay.events import drop_key, reschedule
from fleetcast.models.replay.freeness import note_first_token
from fleetcast.models.replay.handover import send
from fleetcast.models.replay.infaas import note_service
from fleetcast.models.replay.inputs import NEVER, NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.leap import prefill_s, stretch_s
from fleetcast.models.replay.memory import (
    blocks_taken,
    cross,
    longest_blocks,
    prompt_tokens,
    see_kv,
    steps_in_memory,
)
from fleetcast.models.replay.move import give_up, let_go, stop_soon
from fleetcast.models.replay.pools import assign
from fleetcast.models.replay.preempt import preempt_while_full
from fleetcast.models.replay.prefix import NONE, blocks_back, forget_the_oldest, work_of
from fleetcast.models.replay.queue import DPA, PREEMPTIVE, is_unknown, notice, pop_front, somebody_waits
from fleetcast.models.replay.state import CACHED, DECODE, ENDED, IDLE, PREFILL, REQUEST_BITS, State


@compiled
def begin(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Start what follows a step boundary: prompts if some are pending, else decode, else rest."""
    if is_unknown(state, slot):
        notice(trace, state, slot, state.step_s[slot])
        if state.joining[slot] + state.batch[slot] == 0 and not somebody_waits(state, slot):
            notice(trace, state, slot, now)  # one that has nothing else to do does not wait for a step
    if state.look[slot]:
        admit(trace, fleet, rules, state, slot, now)
    if state.joining[slot] > 0:
        prefill(trace, fleet, state, slot, now)
    elif state.batch[slot] > 0:
        decode(fleet, rules, state, slot, now)
    else:
        state.phase[slot] = IDLE
        reschedule(state, slot, NEVER)


@compiled
def prefill(trace: Trace, fleet: Fleet, state: State, slot: int, now: float) -> None:
    """Start a step over pending prompt tokens: all of them, or what the budget leaves beside decode."""
    kind, batch = fleet.slot_kind[slot], state.batch[slot]
    chunk = state.pending[slot]
    if fleet.batching[kind] == CHUNKED:
        chunk = min(chunk, max(1, fleet.max_prefill_tokens[kind] - batch))
    seconds = prefill_s(fleet, kind, chunk)
    if fleet.batching[kind] != WHOLE and batch > 0:
        pass_s = max(prefill_s(fleet, kind, chunk + batch), fleet.latency.decode_s[kind, batch])
        seconds = pass_s + fleet.latency.decode_kv_s[kind, batch] * state.kv[slot]
    if state.prefilled[slot] > 0 or fleet.prefix != NONE:
        seconds += fleet.latency.prefill_context_s[kind] * context_pairs(trace, fleet, state, slot, chunk)
    state.chunk[slot] = chunk
    state.phase[slot] = PREFILL
    state.base_s[slot] = now
    reschedule(state, slot, now + seconds)


@compiled
def context_pairs(trace: Trace, fleet: Fleet, state: State, slot: int, chunk: int) -> int:
    """Of the next `chunk` prompt tokens, the sum over them of the tokens cached of their own prompts."""
    request, done, pairs = state.joining_head[slot], state.prefilled[slot], 0
    while chunk > 0:
        piece = min(chunk, work_of(trace, fleet, state, request) - done)
        cached = prompt_tokens(trace, state, request) - work_of(trace, fleet, state, request) + done
        pairs += piece * cached
        chunk -= piece
        request, done = state.next[request], 0
    return pairs


@compiled
def decode(fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Start a decode stretch up to the earliest finish, or to the step at which memory would overflow."""
    steps = min((state.finish_key[slot, 0] >> 32) - state.steps[slot], rules.steps_per_event)
    if is_unknown(state, slot) and may_have_place(fleet, rules, state, slot):
        steps = 1  # then it knows of those that came during the last one
    state.stretch[slot] = steps_in_memory(fleet, state, slot, steps)
    state.phase[slot] = DECODE
    state.base_s[slot] = now
    reschedule(state, slot, now + stretch_s(fleet, state, slot, state.stretch[slot]))


@compiled
def cut_stretch(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """A request has joined the queue in mid-stretch: stop at the first boundary that may admit someone.

    Where no head fits now none will, as memory only fills; under DPA, or where requests are promoted, others
    may have come to the head, and PREEMPTIVE makes way.
    """
    turns = rules.order in (DPA, PREEMPTIVE) or rules.promote_s < NEVER
    hopeful = turns and may_have_place(fleet, rules, state, slot)
    for at in range(state.head.shape[1]):
        head = state.head[slot, at]
        hopeful = hopeful or (head != NOBODY and fits(trace, fleet, state, slot, head))
    if not hopeful:
        return
    stop_soon(fleet, state, slot, now)


@compiled
def end_prefill(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> bool:
    """A step over prompt tokens is done, and in mixed steps one of decode; whether the batch changed."""
    before = state.batch[slot]
    if fleet.batching[fleet.slot_kind[slot]] != WHOLE and before > 0:
        end_steps(trace, fleet, rules, state, slot, 1, now)
    changed = state.batch[slot] != before
    state.counts[CACHED] += state.chunk[slot]
    state.pending[slot] -= state.chunk[slot]
    state.prefilled[slot] += state.chunk[slot]
    while state.joining[slot] > 0:
        request = state.joining_head[slot]
        work, prompt = work_of(trace, fleet, state, request), prompt_tokens(trace, state, request)
        if state.prefilled[slot] < work:
            break
        state.prefilled[slot] -= work
        state.joining[slot] -= 1
        state.brimful[slot] -= prompt % fleet.kv_block_tokens == 0
        pop_front(state, state.joining_head, slot)
        join(trace, fleet, rules, state, slot, request, now)
        changed = True
    if state.leavers[slot] > 0:
        let_go(trace, fleet, rules, state, slot, now)
        changed = changed or state.batch[slot] != before
    changed = preempt_while_full(trace, fleet, rules, state, slot) or changed
    if changed:
        see_kv(fleet, state, slot, now)
    return changed


@compiled
def join(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, request: int, now: float) -> None:
    """A prefilled request has its next token; if it wants more it decodes, here or where it is sent."""
    if state.generated[request] == 0:
        state.first_token_s[request] = now
        note_first_token(trace, fleet, rules, state, slot, request, now)
        if fleet.is_interactive[trace.tier[request]]:
            state.waiting_tokens[fleet.pool[slot]] -= trace.input_tokens[request]
    state.generated[request] += 1
    if state.generated[request] == trace.output_tokens[request]:
        finish(trace, fleet, rules, state, slot, request, now)
    elif not (fleet.hands_over and send(trace, fleet, rules, state, slot, request, now)):
        start_decoding(trace, fleet, state, slot, request)


@compiled
def end_stretch(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> bool:
    """Account for the steps of the stretch; whether the batch changed."""
    before = state.batch[slot]
    end_steps(trace, fleet, rules, state, slot, state.stretch[slot], now)
    if state.leavers[slot] > 0:
        let_go(trace, fleet, rules, state, slot, now)
    changed = preempt_while_full(trace, fleet, rules, state, slot) or state.batch[slot] != before
    if changed:
        see_kv(fleet, state, slot, now)
    return changed


@compiled
def end_steps(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, steps: int, now: float
) -> None:
    """The decode batch has made `steps` steps; those that have all their tokens leave."""
    state.blocks[slot] += blocks_taken(fleet, state, slot, steps)
    state.counts[CACHED] += steps * state.batch[slot]
    state.kv[slot] += steps * state.batch[slot]
    state.steps[slot] += steps
    keys = state.finish_key[slot]
    while state.batch[slot] > 0 and keys[0] >> 32 == state.steps[slot]:
        request = keys[0] & REQUEST_BITS
        drop_key(keys, state.batch[slot], 0)
        cross(fleet, state, slot, trace.input_tokens[request] + trace.output_tokens[request] - 1, -1)
        state.batch[slot] -= 1
        if fleet.hands_over and state.copying_to[request] != NOBODY:
            give_up(fleet, state, request)
        state.kv[slot] -= trace.input_tokens[request] + trace.output_tokens[request] - 1
        finish(trace, fleet, rules, state, slot, request, now)


@compiled
def finish(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, request: int, now: float
) -> None:
    """The request has all its tokens; the last one was never cached."""
    state.finish_s[request] = now
    forget_the_oldest(fleet, state, slot)
    cached = trace.input_tokens[request] + trace.output_tokens[request] - 1
    state.blocks[slot] -= blocks_back(trace, fleet, state, slot, request, cached, cached)
    state.reserved[slot] -= longest_blocks(trace, fleet, request)
    assign(trace, fleet, state, slot, request, -1)
    note_service(state, slot, now - state.dispatched_s[request])
    state.look[slot] = True
    state.counts[ENDED] += 1
    if trace.then.size > 0:
        go_on(trace, rules, state, request, now)
