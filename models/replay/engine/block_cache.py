"""The blocks of prompts that an instance has cached: found by hash, forgotten the least recently used first.

Per slot: a table of blocks (State.cache, in use or free), found through chains of a hash table
(State.bucket), and of those that nobody holds a list, the least recently used first (State.idle). All here is
handed these arrays only: handed the State, a call takes long to compile.
"""

from typing import Any

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.kernel_inputs import NO_INDEX

HASH, HOLDERS, NEXT, OLDER, NEWER = range(5)  # columns of State.cache: NEXT in a chain, or of the free
OLDEST, NEWEST, COUNT, FREE = range(4)  # columns of State.idle
HASH_MULTIPLIER = 0x9E3779B1


@njit_call
def hash_chain(bucket: Any, block_hash: int) -> int:
    """Where in the hash table a block's chain begins."""
    return (block_hash * HASH_MULTIPLIER >> 7) & (bucket.shape[1] - 1)


@njit_call
def find_block(cache: Any, bucket: Any, slot: int, block_hash: int) -> int:
    """Where in the slot's table a block is; NOBODY."""
    at = bucket[slot, hash_chain(bucket, block_hash)]
    while at != NO_INDEX and cache[slot, at, HASH] != block_hash:
        at = cache[slot, at, NEXT]
    return at


@njit_call
def count_cached_blocks(cache: Any, bucket: Any, slot: int, hashes: Any, first: int, blocks: int) -> int:
    """How many of these hashes, from the first on, are there: all before one that is there are."""
    have, lack = 0, blocks + 1
    while have + 1 < lack:
        middle = (have + lack) // 2
        if find_block(cache, bucket, slot, hashes[first + middle - 1]) != NO_INDEX:
            have = middle
        else:
            lack = middle
    return have


@njit_call
def count_held_blocks(cache: Any, bucket: Any, slot: int, hashes: Any, first: int, blocks: int) -> int:
    """How many of these hashes, from the first on, somebody holds."""
    held = 0
    while held < blocks:
        at = find_block(cache, bucket, slot, hashes[first + held])
        if at == NO_INDEX or cache[slot, at, HOLDERS] == 0:
            break
        held += 1
    return held


@njit_call
def hold_cached_blocks(
    cache: Any, bucket: Any, idle: Any, slot: int, hashes: Any, first: int, blocks: int
) -> int:
    """Hold those of these hashes that are there, from the first on; how many."""
    for number in range(blocks):
        at = find_block(cache, bucket, slot, hashes[first + number])
        if at == NO_INDEX:
            return number
        if cache[slot, at, HOLDERS] == 0:
            pop_idle_block(cache, idle, slot, at)
        cache[slot, at, HOLDERS] += 1
    return blocks


@njit_call
def insert_blocks(cache: Any, bucket: Any, idle: Any, slot: int, hashes: Any, first: int, end: int) -> None:
    """Add these hashes, each held once."""
    for number in range(first, end):
        at, chain = idle[slot, FREE], hash_chain(bucket, hashes[number])
        idle[slot, FREE] = cache[slot, at, NEXT]
        cache[slot, at, HASH], cache[slot, at, HOLDERS] = hashes[number], 1
        cache[slot, at, NEXT] = bucket[slot, chain]
        bucket[slot, chain] = at


@njit_call
def release_blocks(
    cache: Any, bucket: Any, idle: Any, slot: int, hashes: Any, first: int, held: int, kept: int
) -> int:
    """Hold these hashes once less, the last one first; how many others hold still.

    Of those that nobody holds then the first `kept` stay.
    """
    shared = 0
    for number in range(held - 1, -1, -1):
        at = find_block(cache, bucket, slot, hashes[first + number])
        cache[slot, at, HOLDERS] -= 1
        if cache[slot, at, HOLDERS] > 0:
            shared += 1
        elif number < kept:
            push_idle_block(cache, idle, slot, at)
        else:
            remove_block(cache, bucket, idle, slot, at)
    return shared


@njit_call
def evict_idle_blocks(cache: Any, bucket: Any, idle: Any, slot: int, count: int) -> None:
    """So many blocks that nobody holds stay."""
    while idle[slot, COUNT] > count:
        at = idle[slot, OLDEST]
        pop_idle_block(cache, idle, slot, at)
        remove_block(cache, bucket, idle, slot, at)


@njit_call
def clear_block_cache(cache: Any, bucket: Any, idle: Any, slot: int) -> None:
    """Nothing is there."""
    bucket[slot] = NO_INDEX
    idle[slot, OLDEST] = idle[slot, NEWEST] = NO_INDEX
    idle[slot, COUNT] = idle[slot, FREE] = 0
    rows = cache.shape[1]
    for at in range(rows):
        cache[slot, at, NEXT] = at + 1 if at + 1 < rows else NO_INDEX


@njit_call
def remove_block(cache: Any, bucket: Any, idle: Any, slot: int, at: int) -> None:
    """Take a block, which is on no list of idle ones, out of the table."""
    chain = hash_chain(bucket, cache[slot, at, HASH])
    before, here = NO_INDEX, bucket[slot, chain]
    while here != at:
        before, here = here, cache[slot, here, NEXT]
    if before == NO_INDEX:
        bucket[slot, chain] = cache[slot, at, NEXT]
    else:
        cache[slot, before, NEXT] = cache[slot, at, NEXT]
    cache[slot, at, NEXT] = idle[slot, FREE]
    idle[slot, FREE] = at


@njit_call
def push_idle_block(cache: Any, idle: Any, slot: int, at: int) -> None:
    """Nobody holds the block any more: it is the one used most recently."""
    newest = idle[slot, NEWEST]
    cache[slot, at, OLDER], cache[slot, at, NEWER] = newest, NO_INDEX
    if newest == NO_INDEX:
        idle[slot, OLDEST] = at
    else:
        cache[slot, newest, NEWER] = at
    idle[slot, NEWEST] = at
    idle[slot, COUNT] += 1


@njit_call
def pop_idle_block(cache: Any, idle: Any, slot: int, at: int) -> None:
    """The block is held again, or goes."""
    older, newer = cache[slot, at, OLDER], cache[slot, at, NEWER]
    if older == NO_INDEX:
        idle[slot, OLDEST] = newer
    else:
        cache[slot, older, NEWER] = newer
    if newer == NO_INDEX:
        idle[slot, NEWEST] = older
    else:
        cache[slot, newer, OLDER] = older
    idle[slot, COUNT] -= 1
