"""Giving memory back: the requests that an instance can no longer hold queue again.

A preempted request loses its KV cache and keeps its place in the order of arrival; it will be prefilled
anew, with what it had generated (recompute, as in vLLM).
"""

from models.replay.compiled import compiled
from models.replay.events import drop_key
from models.replay.memory import (
    blocks_taken,
    capacity_blocks,
    cross,
    longest_blocks,
    prompt_tokens,
)
from models.replay.move import give_up
from models.replay.prefix import blocks_back, forget_the_oldest, work_of
from models.replay.queue import insert_in_order
from models.replay.state import LOST, NOBODY, REQUEST_BITS, Fleet, State, Trace


@compiled
def preempt_while_full(trace: Trace, fleet: Fleet, state: State, slot: int) -> bool:
    """While the next step does not fit, the request admitted last gives up its cache; whether any did.

    It queues again and will be prefilled anew with what it had generated. Those with pending prompts give way
    before all that decode. The oldest goes last and a lone request always fits, unless caches that are being
    sent fill the memory: then it waits until they have left. Nobody starves.
    """
    changed, safe = False, 1 if state.sending[slot] == 0 else 0
    if state.blocks[slot] + blocks_taken(fleet, state, slot, 1) > capacity_blocks(fleet, slot):
        forget_the_oldest(fleet, state, slot)
    while state.batch[slot] + state.joining[slot] > safe:
        if state.blocks[slot] + blocks_taken(fleet, state, slot, 1) <= capacity_blocks(fleet, slot):
            break
        if state.joining[slot] > 0:
            request = drop_last_joining(trace, fleet, state, slot)
            cached = prompt_tokens(trace, state, request)
            computed = cached - work_of(trace, fleet, state, request)
        else:
            request = drop_last_decoding(trace, fleet, state, slot)
            cached = prompt_tokens(trace, state, request) - 1
            computed = cached
            state.kv[slot] -= cached
        state.blocks[slot] -= blocks_back(trace, fleet, state, slot, request, cached, computed)
        state.reserved[slot] -= longest_blocks(trace, fleet, request)
        state.preemptions[request] += 1
        insert_in_order(state, state.head[slot], state.tail[slot], trace.tier[request], request)
        state.look[slot] = True
        changed = True
    return changed


@compiled
def drop_last_joining(trace: Trace, fleet: Fleet, state: State, slot: int) -> int:
    """Take the request admitted last out of the pending prompts."""
    request, before = state.joining_head[slot], NOBODY
    while request != state.joining_tail[slot]:
        before, request = request, state.next[request]
    prompt, work = prompt_tokens(trace, state, request), work_of(trace, fleet, state, request)
    state.pending[slot] -= work
    state.counts[LOST] += prompt - work
    state.brimful[slot] -= prompt % fleet.kv_block_tokens == 0
    if before == NOBODY:
        state.joining_head[slot] = NOBODY
        state.counts[LOST] += state.prefilled[slot]
        state.pending[slot] += state.prefilled[slot]
        state.prefilled[slot] = 0
    else:
        state.next[before] = NOBODY
        state.joining_tail[slot] = before
    state.joining[slot] -= 1
    return request


@compiled
def drop_last_decoding(trace: Trace, fleet: Fleet, state: State, slot: int) -> int:
    """Take the request admitted last out of the decode batch, noting what it had generated."""
    keys = state.finish_key[slot]
    last = 0
    for at in range(1, state.batch[slot]):
        if state.admitted[keys[at] & REQUEST_BITS] > state.admitted[keys[last] & REQUEST_BITS]:
            last = at
    request = keys[last] & REQUEST_BITS
    if fleet.hands_over and state.copying_to[request] != NOBODY:
        give_up(state, request)
    state.generated[request] = trace.output_tokens[request] - ((keys[last] >> 32) - state.steps[slot])
    drop_key(keys, state.batch[slot], last)
    cached = prompt_tokens(trace, state, request) - 1  # the last token was never cached
    cross(fleet, state, slot, cached, -1)
    state.counts[LOST] += cached
    state.batch[slot] -= 1
    return request
