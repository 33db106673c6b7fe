"""Giving memory back: the requests that an instance can no longer hold queue again.

A preempted request loses its KV cache and keeps its place in the order of arrival; it will be prefilled
anew, with what it had generated (recompute, as in vLLM).
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.events import drop_key
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.memory import (
    blocks_taken,
    capacity_blocks,
    cross,
    longest_blocks,
    needed_blocks,
    prompt_tokens,
)
from fleetcast.models.replay.move import give_up
from fleetcast.models.replay.prefix import blocks_back, forget_the_oldest, work_of
from fleetcast.models.replay.queue import PRIORITY, insert_in_order
from fleetcast.models.replay.state import LOST, REQUEST_BITS, State


@called
def preempt_while_full(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int) -> bool:
    """While the next step does not fit, the request admitted last gives up its cache; whether any did.

    It queues again and will be prefilled anew with what it had generated. Those with pending prompts give way
    before all that decode. The oldest goes last and a lone request always fits, unless caches that are being
    sent fill the memory: then it waits until they have left. Nobody starves. Where levels go first, of those
    that decode the lowest level gives way before the others.
    """
    changed, safe = False, 1 if state.sending[slot] == 0 else 0
    if state.blocks[slot] + blocks_taken(fleet, state, slot, 1) > capacity_blocks(fleet, slot):
        forget_the_oldest(fleet, state, slot)
    while state.batch[slot] + state.joining[slot] > safe:
        if state.blocks[slot] + blocks_taken(fleet, state, slot, 1) <= capacity_blocks(fleet, slot):
            break
        if state.joining[slot] > 0:
            give_back_joining(trace, fleet, state, slot)
        else:
            give_back_decoding(trace, fleet, rules, state, slot)
        changed = True
    return changed


@called
def give_back_joining(trace: Trace, fleet: Fleet, state: State, slot: int) -> None:
    """The request admitted last of those with pending prompts queues again."""
    request = drop_last_joining(trace, fleet, state, slot)
    cached = prompt_tokens(trace, state, request)
    computed = cached - work_of(trace, fleet, state, request)
    queue_again(trace, fleet, state, slot, request, cached, computed)


@called
def give_back_decoding(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int) -> None:
    """One of those that decode queues again: the last admitted, of the lowest level where levels go first."""
    request = drop_last_decoding(trace, fleet, rules.order >= PRIORITY, state, slot)
    cached = prompt_tokens(trace, state, request) - 1
    state.kv[slot] -= cached
    queue_again(trace, fleet, state, slot, request, cached, cached)


@called
def queue_again(
    trace: Trace, fleet: Fleet, state: State, slot: int, request: int, cached: int, computed: int
) -> None:
    """A request that has lost its cache waits at its place in the order of arrival."""
    state.blocks[slot] -= blocks_back(trace, fleet, state, slot, request, cached, computed)
    state.reserved[slot] -= longest_blocks(trace, fleet, request)
    state.preemptions[request] += 1
    state.waiting_blocks[slot] += needed_blocks(trace, fleet, state, request)
    insert_in_order(state, state.head[slot], state.tail[slot], trace.lane[request], request)
    state.look[slot] = True


@called
def make_way(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, request: int) -> bool:
    """One request of a lower level gives way to this one, which does not fit; whether there was one.

    First the last of those with pending prompts, then the lowest level of those that decode.
    """
    level = trace.level[request]
    if state.joining[slot] > 0 and trace.level[state.joining_tail[slot]] > level:
        give_back_joining(trace, fleet, state, slot)
        return True
    for at in range(state.batch[slot]):
        if trace.level[state.finish_key[slot, at] & REQUEST_BITS] > level:
            give_back_decoding(trace, fleet, rules, state, slot)
            return True
    return False


@called
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


@called
def drop_last_decoding(trace: Trace, fleet: Fleet, by_level: bool, state: State, slot: int) -> int:
    """Take the request admitted last, of the lowest level if by level, out of the decode batch.

    What it had generated is noted.
    """
    keys = state.finish_key[slot]
    last = 0
    for at in range(1, state.batch[slot]):
        one, other = keys[at] & REQUEST_BITS, keys[last] & REQUEST_BITS
        is_lower = by_level and trace.level[one] > trace.level[other]
        is_level = not by_level or trace.level[one] == trace.level[other]
        if is_lower or (is_level and state.admitted[one] > state.admitted[other]):
            last = at
    request = keys[last] & REQUEST_BITS
    if fleet.hands_over and state.copying_to[request] != NOBODY:
        give_up(fleet, state, request)
    state.generated[request] = trace.output_tokens[request] - ((keys[last] >> 32) - state.steps[slot])
    drop_key(keys, state.batch[slot], last)
    cached = prompt_tokens(trace, state, request) - 1  # the last token was never cached
    cross(fleet, state, slot, cached, -1)
    state.counts[LOST] += cached
    state.batch[slot] -= 1
    return request
