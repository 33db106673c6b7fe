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

from models.replay.chain import go_on
from models.replay.compiled import compiled
from models.replay.events import drop_key, push_key, reschedule
from models.replay.freeness import note_first_token
from models.replay.handover import brings_cache, send
from models.replay.infaas import note_service
from models.replay.leap import prefill_s, stretch_s
from models.replay.memory import (
    blocks_of,
    blocks_taken,
    capacity_blocks,
    cross,
    longest_blocks,
    needed_blocks,
    prompt_tokens,
    see_kv,
    steps_in_memory,
)
from models.replay.move import give_up, let_go, stop_soon
from models.replay.pools import assign
from models.replay.preempt import make_way, preempt_while_full
from models.replay.prefix import (
    NONE,
    blocks_back,
    forget_the_oldest,
    held_by_others,
    hold_prefix,
    reusable_tokens,
    work_of,
)
from models.replay.queue import (
    DPA,
    PREEMPTIVE,
    is_unknown,
    next_lane,
    notice,
    pop_front,
    push_back,
    somebody_waits,
)
from models.replay.state import (
    ADMITTED,
    CACHED,
    DECODE,
    ENDED,
    IDLE,
    NEVER,
    NOBODY,
    PREFILL,
    REQUEST_BITS,
    Fleet,
    Rules,
    State,
    Trace,
)

WHOLE, CHUNKED, ORCA = range(3)  # positions in models.world.mechanisms.BATCHINGS


@compiled
def has_place(fleet: Fleet, state: State, slot: int) -> bool:
    """Whether the batch is not full."""
    return state.batch[slot] + state.joining[slot] < fleet.max_batch[fleet.slot_kind[slot]]


@compiled
def may_have_place(fleet: Fleet, rules: Rules, state: State, slot: int) -> bool:
    """Whether the batch is not full, or somebody may make way."""
    return rules.order == PREEMPTIVE or has_place(fleet, state, slot)


@compiled
def fits(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> bool:
    """Whether there is a place in the batch, and memory for the prompt and one decode step of everyone.

    Orca asks for memory for everyone's whole output instead.
    """
    if not has_place(fleet, state, slot):
        return False
    if fleet.batching[fleet.slot_kind[slot]] == ORCA:
        blocks = state.reserved[slot] + longest_blocks(trace, fleet, request)
    else:
        blocks = state.blocks[slot] + blocks_taken(fleet, state, slot, 1) + state.brimful[slot]
        is_computed = not brings_cache(fleet, state, request)  # else its latest token is not cached yet
        blocks += blocks_of(fleet, prompt_tokens(trace, state, request) + is_computed)
        if is_computed and blocks > capacity_blocks(fleet, slot):
            blocks -= held_by_others(trace, fleet, state, slot, request)
    return blocks <= capacity_blocks(fleet, slot)


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
def admit(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Give as many waiting requests as fit their memory, in queue order; their prompts are pending then."""
    state.look[slot] = False
    before, kind, gave_way = state.counts[ADMITTED], fleet.slot_kind[slot], False
    while True:
        waiting = next_lane(trace, fleet, rules, state, slot, now)
        if waiting == NOBODY:
            break
        request = state.head[slot, waiting]
        if not fits(trace, fleet, state, slot, request):
            if rules.order == PREEMPTIVE and make_way(trace, fleet, rules, state, slot, request):
                gave_way = True
                continue
            break
        prompt = prompt_tokens(trace, state, request)
        comes_along = brings_cache(fleet, state, request)
        work = prompt - (0 if comes_along else reusable_tokens(trace, fleet, state, slot, request))
        is_full = state.joining[slot] > 0 and state.pending[slot] + work > fleet.max_prefill_tokens[kind]
        if fleet.batching[kind] == WHOLE and is_full and not comes_along:
            state.look[slot] = True  # the next boundary can take it
            break
        pop_front(state, state.head[slot], waiting)
        state.waiting_blocks[slot] -= needed_blocks(trace, fleet, state, request)
        state.reserved[slot] += longest_blocks(trace, fleet, request)
        state.counts[ADMITTED] += 1
        state.admitted[request] = state.counts[ADMITTED]
        if comes_along:
            state.joined_s[request] = now
            take_in(trace, fleet, state, slot, request)
            continue
        push_back(state, state.joining_head, state.joining_tail, slot, request)
        state.joining[slot] += 1
        state.pending[slot] += work
        state.blocks[slot] += blocks_of(fleet, prompt)
        if fleet.prefix != NONE:
            state.blocks[slot] -= held_by_others(trace, fleet, state, slot, request)
            hold_prefix(trace, fleet, state, slot, request, prompt - work)
        state.brimful[slot] += prompt % fleet.kv_block_tokens == 0
        if state.generated[request] == 0:
            state.admitted_s[request] = now
    if gave_way or state.counts[ADMITTED] > before:
        see_kv(fleet, state, slot, now)


@compiled
def take_in(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> None:
    """A request that brings its cache joins the decode batch; nothing is computed."""
    cached = state.carried[request]
    state.carried[request] = 0
    state.blocks[slot] += blocks_of(fleet, cached)
    forget_the_oldest(fleet, state, slot)
    start_decoding(trace, fleet, state, slot, request)


@compiled
def start_decoding(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> None:
    """Let a request whose cache is here into the decode batch; its latest token is not cached yet."""
    left = trace.output_tokens[request] - state.generated[request]
    cached = prompt_tokens(trace, state, request) - 1
    state.kv[slot] += cached
    cross(fleet, state, slot, cached, 1)
    push_key(state.finish_key[slot], state.batch[slot], (state.steps[slot] + left) << 32 | request)
    state.batch[slot] += 1


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
