"""Prompts that begin alike: what an instance has cached of one need not be computed again (vLLM, SGLang).

NONE    nothing is cached beyond a request's own life
GIVEN   of every prompt, as many tokens as the trace says were found in a cache, wherever it goes
BLOCKS  every instance keeps the blocks of the prompts that it had, by their hashes, as far as memory goes

A hash stands for a block and all before it, so what is cached of a prompt is its beginning. A block that
requests hold is in memory once, however many they are; one that nobody holds stays until its memory is
needed, the least recently used first, of one request the last block first. Memory is taken from such blocks
when a batch changes. The last token of a prompt is always computed. An instance that is given away forgets.

Per slot: a table of blocks (State.cache, in use or free), found through chains of a hash table
(State.bucket), and of those that nobody holds a list, the least recently used first (State.idle).
"""

from typing import Any

from models.replay.compiled import called
from models.replay.memory import blocks_of, capacity_blocks, prompt_tokens
from models.replay.state import NOBODY, REUSED, Fleet, State, Trace

NONE, GIVEN, BLOCKS = range(3)  # positions in models.world.mechanisms.PREFIXES
HASH, HOLDERS, NEXT, OLDER, NEWER = range(5)  # columns of State.cache: NEXT in a chain, or of the free
OLDEST, NEWEST, COUNT, FREE = range(4)  # columns of State.idle
SPREADER = 0x9E3779B1


@called
def hash_blocks(trace: Trace, fleet: Fleet, request: int) -> int:
    """Whole blocks of the request's prompt that have hashes."""
    known = trace.first_hash[request + 1] - trace.first_hash[request]
    return min(known, trace.input_tokens[request] // fleet.prefix_block_tokens)


@called
def cached_blocks(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> int:
    """How many of the prompt's blocks, from the first on, the slot has cached."""
    first, blocks = trace.first_hash[request], hash_blocks(trace, fleet, request)
    return count_cached(state.cache, state.bucket, slot, trace.hashes, first, blocks)


@called
def held_by_others(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> int:
    """KV blocks of the prompt that other requests hold at the slot, so that they are in memory anyway."""
    if fleet.prefix != BLOCKS:
        return 0
    first, blocks = trace.first_hash[request], hash_blocks(trace, fleet, request)
    return count_held(state.cache, state.bucket, slot, trace.hashes, first, blocks) * span(fleet)


@called
def span(fleet: Fleet) -> int:
    """KV blocks of a block that is hashed."""
    return fleet.prefix_block_tokens // fleet.kv_block_tokens


@called
def reusable_tokens(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> int:
    """Tokens of the prompt that the slot would not have to compute."""
    if fleet.prefix == BLOCKS:
        tokens = cached_blocks(trace, fleet, state, slot, request) * fleet.prefix_block_tokens
    elif fleet.prefix == GIVEN:
        tokens = trace.cached_tokens[request]
    else:
        return 0
    return min(tokens, trace.input_tokens[request] - 1)


@called
def work_of(trace: Trace, fleet: Fleet, state: State, request: int) -> int:
    """Tokens of the request's prompt that are to be computed."""
    prompt = prompt_tokens(trace, state, request)
    return prompt if fleet.prefix == NONE else prompt - state.reused[request]


@called
def hold_prefix(trace: Trace, fleet: Fleet, state: State, slot: int, request: int, reused: int) -> None:
    """A request is admitted: what is cached of its prompt is reused, and all its blocks are held.

    Its KV blocks are counted already, those that others hold among them; the least recently used blocks make
    room. A request that is admitted behind it may reuse blocks that are yet to be computed, before its own.
    """
    state.reused[request] = reused
    state.counts[REUSED] += reused
    if fleet.prefix == BLOCKS:
        first, blocks = trace.first_hash[request], hash_blocks(trace, fleet, request)
        known = hold_cached(state.cache, state.bucket, state.idle, slot, trace.hashes, first, blocks)
        forget_the_oldest(fleet, state, slot)
        insert(state.cache, state.bucket, state.idle, slot, trace.hashes, first + known, first + blocks)
        state.held_hashes[request] = blocks


@called
def blocks_back(
    trace: Trace, fleet: Fleet, state: State, slot: int, request: int, cached: int, computed: int
) -> int:
    """KV blocks that are free when a request of so many cached tokens leaves the slot.

    Its hashed blocks stay cached, but those behind `computed` tokens, which nobody computed.
    """
    blocks = blocks_of(fleet, cached)
    if fleet.prefix == BLOCKS and state.held_hashes[request] > 0:
        held, first = state.held_hashes[request], trace.first_hash[request]
        kept = (computed + fleet.prefix_block_tokens - 1) // fleet.prefix_block_tokens
        shared = let_go_of(state.cache, state.bucket, state.idle, slot, trace.hashes, first, held, kept)
        blocks -= shared * span(fleet)
        state.held_hashes[request] = 0
    return blocks


@called
def forget_the_oldest(fleet: Fleet, state: State, slot: int) -> None:
    """Blocks that nobody holds go, the least recently used first, as far as the others need their memory."""
    if fleet.prefix == BLOCKS:
        room = capacity_blocks(fleet, slot) - state.blocks[slot]
        if state.idle[slot, COUNT] * span(fleet) > room:
            forget_down_to(state.cache, state.bucket, state.idle, slot, max(0, room // span(fleet)))


@called
def forget_all(state: State, slot: int) -> None:
    """The instance has nothing cached any more."""
    clear(state.cache, state.bucket, state.idle, slot)


# --- the table of a slot's blocks; these are handed its arrays only, as compiling a call takes long else


@called
def chain_of(bucket: Any, block_hash: int) -> int:
    """Where in the hash table a block's chain begins."""
    return (block_hash * SPREADER >> 7) & (bucket.shape[1] - 1)


@called
def find(cache: Any, bucket: Any, slot: int, block_hash: int) -> int:
    """Where in the slot's table a block is; NOBODY."""
    at = bucket[slot, chain_of(bucket, block_hash)]
    while at != NOBODY and cache[slot, at, HASH] != block_hash:
        at = cache[slot, at, NEXT]
    return at


@called
def count_cached(cache: Any, bucket: Any, slot: int, hashes: Any, first: int, blocks: int) -> int:
    """How many of these hashes, from the first on, are there: all before one that is there are."""
    have, lack = 0, blocks + 1
    while have + 1 < lack:
        middle = (have + lack) // 2
        if find(cache, bucket, slot, hashes[first + middle - 1]) != NOBODY:
            have = middle
        else:
            lack = middle
    return have


@called
def count_held(cache: Any, bucket: Any, slot: int, hashes: Any, first: int, blocks: int) -> int:
    """How many of these hashes, from the first on, somebody holds."""
    held = 0
    while held < blocks:
        at = find(cache, bucket, slot, hashes[first + held])
        if at == NOBODY or cache[slot, at, HOLDERS] == 0:
            break
        held += 1
    return held


@called
def hold_cached(cache: Any, bucket: Any, idle: Any, slot: int, hashes: Any, first: int, blocks: int) -> int:
    """Hold those of these hashes that are there, from the first on; how many."""
    for number in range(blocks):
        at = find(cache, bucket, slot, hashes[first + number])
        if at == NOBODY:
            return number
        if cache[slot, at, HOLDERS] == 0:
            take_off_idle(cache, idle, slot, at)
        cache[slot, at, HOLDERS] += 1
    return blocks


@called
def insert(cache: Any, bucket: Any, idle: Any, slot: int, hashes: Any, first: int, end: int) -> None:
    """Add these hashes, each held once."""
    for number in range(first, end):
        at, chain = idle[slot, FREE], chain_of(bucket, hashes[number])
        idle[slot, FREE] = cache[slot, at, NEXT]
        cache[slot, at, HASH], cache[slot, at, HOLDERS] = hashes[number], 1
        cache[slot, at, NEXT] = bucket[slot, chain]
        bucket[slot, chain] = at


@called
def let_go_of(
    cache: Any, bucket: Any, idle: Any, slot: int, hashes: Any, first: int, held: int, kept: int
) -> int:
    """Hold these hashes once less, the last one first; how many others hold still.

    Of those that nobody holds then the first `kept` stay.
    """
    shared = 0
    for number in range(held - 1, -1, -1):
        at = find(cache, bucket, slot, hashes[first + number])
        cache[slot, at, HOLDERS] -= 1
        if cache[slot, at, HOLDERS] > 0:
            shared += 1
        elif number < kept:
            put_on_idle(cache, idle, slot, at)
        else:
            remove(cache, bucket, idle, slot, at)
    return shared


@called
def forget_down_to(cache: Any, bucket: Any, idle: Any, slot: int, count: int) -> None:
    """So many blocks that nobody holds stay."""
    while idle[slot, COUNT] > count:
        at = idle[slot, OLDEST]
        take_off_idle(cache, idle, slot, at)
        remove(cache, bucket, idle, slot, at)


@called
def clear(cache: Any, bucket: Any, idle: Any, slot: int) -> None:
    """Nothing is there."""
    bucket[slot] = NOBODY
    idle[slot, OLDEST] = idle[slot, NEWEST] = NOBODY
    idle[slot, COUNT] = idle[slot, FREE] = 0
    rows = cache.shape[1]
    for at in range(rows):
        cache[slot, at, NEXT] = at + 1 if at + 1 < rows else NOBODY


@called
def remove(cache: Any, bucket: Any, idle: Any, slot: int, at: int) -> None:
    """Take a block, which is on no list of idle ones, out of the table."""
    chain = chain_of(bucket, cache[slot, at, HASH])
    before, here = NOBODY, bucket[slot, chain]
    while here != at:
        before, here = here, cache[slot, here, NEXT]
    if before == NOBODY:
        bucket[slot, chain] = cache[slot, at, NEXT]
    else:
        cache[slot, before, NEXT] = cache[slot, at, NEXT]
    cache[slot, at, NEXT] = idle[slot, FREE]
    idle[slot, FREE] = at


@called
def put_on_idle(cache: Any, idle: Any, slot: int, at: int) -> None:
    """Nobody holds the block any more: it is the one used most recently."""
    newest = idle[slot, NEWEST]
    cache[slot, at, OLDER], cache[slot, at, NEWER] = newest, NOBODY
    if newest == NOBODY:
        idle[slot, OLDEST] = at
    else:
        cache[slot, newest, NEWER] = at
    idle[slot, NEWEST] = at
    idle[slot, COUNT] += 1


@called
def take_off_idle(cache: Any, idle: Any, slot: int, at: int) -> None:
    """The block is held again, or goes."""
    older, newer = cache[slot, at, OLDER], cache[slot, at, NEWER]
    if older == NOBODY:
        idle[slot, OLDEST] = newer
    else:
        cache[slot, older, NEWER] = newer
    if newer == NOBODY:
        idle[slot, NEWEST] = older
    else:
        cache[slot, newer, OLDER] = older
    idle[slot, COUNT] -= 1
