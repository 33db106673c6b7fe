"""Continuous batching on one instance: whole prompts first, then decode in stretches.

An instance looks at its queue at the first step boundary after something changed: a request joined the
queue, or left the batch. Waiting prompts are prefilled before decoding goes on (vLLM 0). Between two
changes decode steps are regular, so a stretch of k steps is one event:

    T(k) = k*(f[B] + g[B]*kv) + g[B]*B*k*(k-1)/2     seconds for k steps from kv cached tokens
"""

import math

from models.replay.compiled import compiled
from models.replay.events import drop_key, push_key, reschedule
from models.replay.memory import see_kv
from models.replay.queue import DPA, insert_in_order, next_list, pop_front
from models.replay.state import (
    ADMITTED,
    DECODE,
    ENDED,
    IDLE,
    LISTS,
    NEVER,
    NOBODY,
    PREFILL,
    RUNNING,
    Fleet,
    Rules,
    State,
    Trace,
)

REQUEST_BITS = (1 << 32) - 1


@compiled
def prefill_s(fleet: Fleet, llm: int, tokens: int) -> float:
    """Seconds to prefill `tokens` prompt tokens: linear between the knots of the profile."""
    knots = fleet.latency.prefill_tokens[llm]
    at = 0
    while at + 1 < knots.size and knots[at + 1] <= tokens:
        at += 1
    return fleet.latency.prefill_s[llm, at] + (tokens - knots[at]) * fleet.latency.prefill_slope[llm, at]


@compiled
def stretch_s(fleet: Fleet, state: State, slot: int, steps: int) -> float:
    """T(steps) of the slot's batch as it stands."""
    llm, batch = fleet.llm[slot], state.batch[slot]
    g = fleet.latency.decode_kv_s[llm, batch]
    first = fleet.latency.decode_s[llm, batch] + g * state.kv[slot]
    return steps * first + g * batch * (steps * (steps - 1) // 2)


@compiled
def steps_until(fleet: Fleet, state: State, slot: int, now: float) -> int:
    """The number of steps, at least 1, after which the stretch's boundary is first at or after now."""
    llm, batch = fleet.llm[slot], state.batch[slot]
    g = fleet.latency.decode_kv_s[llm, batch]
    half = g * batch / 2
    b = fleet.latency.decode_s[llm, batch] + g * state.kv[slot] - half
    elapsed = now - state.base_s[slot]
    steps = max(1, math.ceil(2 * elapsed / (b + math.sqrt(b * b + 4 * half * elapsed))))
    while steps > 1 and state.base_s[slot] + stretch_s(fleet, state, slot, steps - 1) >= now:
        steps -= 1
    while state.base_s[slot] + stretch_s(fleet, state, slot, steps) < now:
        steps += 1
    return steps


@compiled
def prompt_tokens(trace: Trace, state: State, request: int) -> int:
    """Tokens to prefill: the input, and after a preemption what had been generated too."""
    return trace.input_tokens[request] + state.generated[request]


@compiled
def fits(trace: Trace, fleet: Fleet, state: State, slot: int, joining: int, request: int) -> bool:
    """Whether there is a place in the batch, and memory for the prompt and one decode step of everyone."""
    members = state.batch[slot] + joining + 1
    tokens = state.kv[slot] + prompt_tokens(trace, state, request) + members
    return members <= fleet.max_batch and tokens <= fleet.kv_capacity[fleet.llm[slot]]


@compiled
def begin(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Start what follows a step boundary: a prefill if someone can be admitted, else decode, else rest."""
    if state.look[slot]:
        admit(trace, fleet, rules, state, slot, now)
        if state.phase[slot] == PREFILL:
            return
    if state.batch[slot] > 0:
        decode(fleet, rules, state, slot, now)
    else:
        state.phase[slot] = IDLE
        reschedule(state, slot, NEVER)


@compiled
def admit(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Move as many waiting requests as fit into one prefill batch, in queue order, and start it."""
    state.look[slot] = False
    joining, tokens, last = 0, 0, NOBODY
    while True:
        waiting = next_list(trace, rules, state, slot, now)
        if waiting == NOBODY:
            break
        request = state.head[slot, waiting]
        if not fits(trace, fleet, state, slot, joining, request):
            break
        prompt = prompt_tokens(trace, state, request)
        if joining > 0 and tokens + prompt > fleet.max_prefill_tokens:
            state.look[slot] = True  # the next boundary can take it
            break
        pop_front(state, state.head[slot], waiting)
        state.next[request] = NOBODY
        if last == NOBODY:
            state.prefill_head[slot] = request
        else:
            state.next[last] = request
        last = request
        joining += 1
        tokens += prompt
        state.kv[slot] += prompt
        state.counts[ADMITTED] += 1
        state.admitted[request] = state.counts[ADMITTED]
    if joining > 0:
        state.phase[slot] = PREFILL
        see_kv(fleet, state, slot, now)
        reschedule(state, slot, now + prefill_s(fleet, fleet.llm[slot], tokens))


@compiled
def decode(fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Start a decode stretch up to the earliest finish, or to the step at which memory would overflow."""
    to_finish = (state.finish_key[slot, 0] >> 32) - state.steps[slot]
    to_overflow = (fleet.kv_capacity[fleet.llm[slot]] - state.kv[slot]) // state.batch[slot]
    state.stretch[slot] = min(to_finish, to_overflow, rules.steps_per_event)
    state.phase[slot] = DECODE
    state.base_s[slot] = now
    reschedule(state, slot, now + stretch_s(fleet, state, slot, state.stretch[slot]))


@compiled
def cut_stretch(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """A request has joined the queue in mid-stretch: stop at the first boundary that may admit someone.

    Where no head fits now none will, as memory only fills; under DPA others may have come to the head.
    An instance whose slot comes before the one that is at work now has already passed a boundary at
    this very instant; the next one is its first.
    """
    hopeful = rules.order == DPA and state.batch[slot] < fleet.max_batch
    for at in range(LISTS):
        head = state.head[slot, at]
        hopeful = hopeful or (head != NOBODY and fits(trace, fleet, state, slot, 0, head))
    if not hopeful:
        return
    steps = steps_until(fleet, state, slot, now)
    at_s = state.base_s[slot] + stretch_s(fleet, state, slot, steps)
    if at_s == now and slot < state.counts[RUNNING]:
        steps += 1
    if steps < state.stretch[slot]:
        state.stretch[slot] = steps
        reschedule(state, slot, state.base_s[slot] + stretch_s(fleet, state, slot, steps))


@compiled
def end_prefill(trace: Trace, fleet: Fleet, state: State, slot: int, now: float) -> None:
    """Every prompt of the prefill batch yields a token; those that want more join the decode batch."""
    request = state.prefill_head[slot]
    state.prefill_head[slot] = NOBODY
    while request != NOBODY:
        behind = state.next[request]
        if state.generated[request] == 0:
            state.first_token_s[request] = now
        state.generated[request] += 1
        left = trace.output_tokens[request] - state.generated[request]
        if left == 0:
            finish(trace, state, slot, request, now)
        else:
            key = (state.steps[slot] + left) << 32 | request
            push_key(state.finish_key[slot], state.batch[slot], key)
            state.batch[slot] += 1
        request = behind
    preempt_while_full(trace, fleet, state, slot)
    see_kv(fleet, state, slot, now)


@compiled
def end_stretch(trace: Trace, fleet: Fleet, state: State, slot: int, now: float) -> bool:
    """Account for the steps of the stretch; whether the batch changed."""
    state.steps[slot] += state.stretch[slot]
    state.kv[slot] += state.stretch[slot] * state.batch[slot]
    before = state.batch[slot]
    keys = state.finish_key[slot]
    while state.batch[slot] > 0 and keys[0] >> 32 == state.steps[slot]:
        request = keys[0] & REQUEST_BITS
        drop_key(keys, state.batch[slot], 0)
        state.batch[slot] -= 1
        finish(trace, state, slot, request, now)
    preempt_while_full(trace, fleet, state, slot)
    if state.batch[slot] == before:
        return False
    see_kv(fleet, state, slot, now)
    return True


@compiled
def finish(trace: Trace, state: State, slot: int, request: int, now: float) -> None:
    """The request has all its tokens; the last one was never cached."""
    state.finish_s[request] = now
    state.kv[slot] -= trace.input_tokens[request] + trace.output_tokens[request] - 1
    state.load[slot] -= trace.input_tokens[request] + trace.output_tokens[request]
    state.look[slot] = True
    state.counts[ENDED] += 1


@compiled
def preempt_while_full(trace: Trace, fleet: Fleet, state: State, slot: int) -> None:
    """While the next step does not fit, the request admitted last gives up its cache and queues again.

    It will be prefilled anew with what it had generated. The oldest is never preempted before the
    others, and a lone request always fits, so the batch cannot starve.
    """
    keys = state.finish_key[slot]
    while state.kv[slot] + state.batch[slot] > fleet.kv_capacity[fleet.llm[slot]] and state.batch[slot] > 1:
        last = 0
        for at in range(1, state.batch[slot]):
            if state.admitted[keys[at] & REQUEST_BITS] > state.admitted[keys[last] & REQUEST_BITS]:
                last = at
        request = keys[last] & REQUEST_BITS
        left = (keys[last] >> 32) - state.steps[slot]
        drop_key(keys, state.batch[slot], last)
        state.batch[slot] -= 1
        state.generated[request] = trace.output_tokens[request] - left
        state.kv[slot] -= trace.input_tokens[request] + state.generated[request] - 1
        state.preemptions[request] += 1
        insert_in_order(state, state.head[slot], state.tail[slot], trace.tier[request], request)
        state.look[slot] = True
