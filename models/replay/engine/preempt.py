"""Giving memory back: the requests that an instance can no longer hold queue again.

A preempted request loses its KV cache and keeps its place in the order of arrival; it will be prefilled
anew, with what it had generated (recompute, as in vLLM).
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.move import give_up
from fleetcast.models.replay.engine.memory import (
    blocks_taken,
    capacity_blocks,
    cross,
    longest_blocks,
    needed_blocks,
    prompt_tokens,
)
from fleetcast.models.replay.engine.prefix import blocks_back, forget_the_oldest, work_of
from fleetcast.models.replay.engine.queue import insert_in_order
from fleetcast.models.replay.events import drop_key
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import REQUEST_BITS, State
from fleetcast.models.world.mechanisms import Order


@called
def preempt_while_full(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int) -> bool:
    """While the next step does not fit, the request admitted last gives up its cache; whether any did.

    It queues again and will be prefilled anew with what it had generated. Those with pending prompts give way
    before all that decode. The oldest goes last and a lone request always fits, unless caches that are being
    sent fill the memory: then it waits until they have left. Nobody starves. Where levels go first, of those
    that decode the lowest level gives way before the others.
    """
    instance = state.instance[slot]
    changed, safe = False, 1 if instance.sending == 0 else 0
    if instance.blocks + blocks_taken(fleet, state, slot, 1) > capacity_blocks(fleet, slot):
        forget_the_oldest(fleet, state, slot)
    while instance.batch + instance.joining > safe:
        if instance.blocks + blocks_taken(fleet, state, slot, 1) <= capacity_blocks(fleet, slot):
            break
        if instance.joining > 0:
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
    request = drop_last_decoding(trace, fleet, rules.order >= Order.PRIORITY, state, slot)
    cached = prompt_tokens(trace, state, request) - 1
    state.instance[slot].kv -= cached
    queue_again(trace, fleet, state, slot, request, cached, cached)


@called
def queue_again(
    trace: Trace, fleet: Fleet, state: State, slot: int, request: int, cached: int, computed: int
) -> None:
    """A request that has lost its cache waits at its place in the order of arrival."""
    instance = state.instance[slot]
    instance.blocks -= blocks_back(trace, fleet, state, slot, request, cached, computed)
    instance.reserved -= longest_blocks(trace, fleet, request)
    state.request[request].preemptions += 1
    instance.waiting_blocks += needed_blocks(trace, fleet, state, request)
    insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], trace.lane[request], request)
    instance.look = True


@called
def make_way(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, request: int) -> bool:
    """One request of a lower level gives way to this one, which does not fit; whether there was one.

    First the last of those with pending prompts, then the lowest level of those that decode.
    """
    instance = state.instance[slot]
    level = trace.level[request]
    if instance.joining > 0 and trace.level[instance.joining_tail] > level:
        give_back_joining(trace, fleet, state, slot)
        return True
    for at in range(instance.batch):
        if trace.level[state.finish_key[slot, at] & REQUEST_BITS] > level:
            give_back_decoding(trace, fleet, rules, state, slot)
            return True
    return False


@called
def drop_last_joining(trace: Trace, fleet: Fleet, state: State, slot: int) -> int:
    """Take the request admitted last out of the pending prompts."""
    instance = state.instance[slot]
    request, before = instance.joining_head, NOBODY
    while request != instance.joining_tail:
        before, request = request, state.request[request].next
    prompt, work = prompt_tokens(trace, state, request), work_of(trace, fleet, state, request)
    instance.pending -= work
    state.progress.lost_tokens += prompt - work
    instance.brimful -= prompt % fleet.kv_block_tokens == 0
    if before == NOBODY:
        instance.joining_head = NOBODY
        state.progress.lost_tokens += instance.prefilled
        instance.pending += instance.prefilled
        instance.prefilled = 0
    else:
        state.request[before].next = NOBODY
        instance.joining_tail = before
    instance.joining -= 1
    return request


@called
def drop_last_decoding(trace: Trace, fleet: Fleet, by_level: bool, state: State, slot: int) -> int:
    """Take the request admitted last, of the lowest level if by level, out of the decode batch.

    What it had generated is noted.
    """
    instance = state.instance[slot]
    keys = state.finish_key[slot]
    last = 0
    for at in range(1, instance.batch):
        one, other = keys[at] & REQUEST_BITS, keys[last] & REQUEST_BITS
        is_lower = by_level and trace.level[one] > trace.level[other]
        is_level = not by_level or trace.level[one] == trace.level[other]
        if is_lower or (is_level and state.request[one].admitted > state.request[other].admitted):
            last = at
    request = keys[last] & REQUEST_BITS
    if fleet.hands_over and state.transfer[request].copying_to != NOBODY:
        give_up(fleet, state, request)
    state.request[request].generated = trace.output_tokens[request] - ((keys[last] >> 32) - instance.steps)
    drop_key(keys, instance.batch, last)
    cached = prompt_tokens(trace, state, request) - 1  # the last token was never cached
    cross(fleet, state, slot, cached, -1)
    state.progress.lost_tokens += cached
    instance.batch -= 1
    return request
