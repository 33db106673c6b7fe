"""Cached blocks of each instance: found by hash, evicted least recently used first.

Each slot has a table of blocks (in use or free), a hash table of chains into it, and a list of idle blocks,
which no request holds, the least recently used first. The functions take these arrays instead of State,
because they then compile much faster. N slots, `rows` blocks of a table:

cache    shape (N, rows, 5), columns HASH, HOLDERS, NEXT, OLDER, NEWER
bucket   shape (N, power of two), first row of each hash chain, or NO_INDEX
idle     shape (N, 4), columns OLDEST, NEWEST, COUNT, FREE
hashes   shape (blocks of all requests,), hashes of the trace; each stands for a block and all before it
"""

from typing import Any

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.kernel_inputs import NO_INDEX

HASH, HOLDERS, NEXT, OLDER, NEWER = range(5)  # NEXT: of the hash chain, or of the list of free rows
OLDEST, NEWEST, COUNT, FREE = range(4)
HASH_MULTIPLIER = 0x9E3779B1


@njit_call
def hash_chain(bucket: Any, block_hash: int) -> int:
    """Return the index in `bucket` of the block's hash chain."""
    return (int(block_hash) * HASH_MULTIPLIER >> 7) & (bucket.shape[1] - 1)


@njit_call
def find_block(cache: Any, bucket: Any, slot: int, block_hash: int) -> int:
    """Return the row of a block in the slot's table; NO_INDEX if it is not there."""
    at = bucket[slot, hash_chain(bucket, block_hash)]
    while at != NO_INDEX and cache[slot, at, HASH] != block_hash:
        at = cache[slot, at, NEXT]
    return at


@njit_call
def count_cached_blocks(cache: Any, bucket: Any, slot: int, hashes: Any, first: int, blocks: int) -> int:
    """Return how many of hashes[first : first + blocks] are cached, from the first on.

    It searches by bisection: if a block is cached, all blocks before it are.
    """
    low, high = 0, blocks + 1
    while low + 1 < high:
        middle = (low + high) // 2
        if find_block(cache, bucket, slot, hashes[first + middle - 1]) != NO_INDEX:
            low = middle
        else:
            high = middle
    return low


@njit_call
def count_held_blocks(cache: Any, bucket: Any, slot: int, hashes: Any, first: int, blocks: int) -> int:
    """Return how many of hashes[first : first + blocks], from the first on, some request holds."""
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
    """Hold the cached ones of hashes[first : first + blocks], from the first on; return how many."""
    for number in range(blocks):
        at = find_block(cache, bucket, slot, hashes[first + number])
        if at == NO_INDEX:
            return number
        if cache[slot, at, HOLDERS] == 0:
            pop_idle_block(cache, idle, slot, at)
        cache[slot, at, HOLDERS] += 1
    return blocks


@njit_call
def insert_blocks(
    cache: Any, bucket: Any, idle: Any, slot: int, hashes: Any, first: int, held: int, blocks: int
) -> int:
    """Add hashes[first + held : first + blocks] to the slot's table, each with one holder.

    Stops at a hash that is there already; returns how many of the blocks from `first` on are then held.
    """
    for number in range(held, blocks):
        block_hash = hashes[first + number]
        if find_block(cache, bucket, slot, block_hash) != NO_INDEX:
            return number
        insert_block(cache, bucket, idle, slot, block_hash, 1)
    return max(held, blocks)


@njit_call
def insert_block(cache: Any, bucket: Any, idle: Any, slot: int, block_hash: int, holders: int) -> int:
    """Add a block to the slot's table; return its row.

    The table has a row for every block that fits. If it is full, because blocks have filled since the last
    eviction, the least recently used idle block goes now.
    """
    if idle[slot, FREE] == NO_INDEX:
        evict_idle_blocks(cache, bucket, idle, slot, idle[slot, COUNT] - 1)
    at, chain = idle[slot, FREE], hash_chain(bucket, block_hash)
    idle[slot, FREE] = cache[slot, at, NEXT]
    cache[slot, at, HASH], cache[slot, at, HOLDERS] = block_hash, holders
    cache[slot, at, NEXT] = bucket[slot, chain]
    bucket[slot, chain] = at
    return at


@njit_call
def release_blocks(
    cache: Any, bucket: Any, idle: Any, slot: int, hashes: Any, first: int, held: int, kept: int
) -> int:
    """Release hashes[first : first + held], the last one first; return how many other requests still hold.

    Of the blocks that then have no holder, those before `kept` stay cached.
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
def keep_idle_blocks(
    cache: Any, bucket: Any, idle: Any, slot: int, hashes: Any, first: int, held: int, kept: int
) -> None:
    """Add hashes[first + held : first + kept], the last one first, as most recently used; without holders."""
    for number in range(kept - 1, held - 1, -1):
        at = find_block(cache, bucket, slot, hashes[first + number])
        if at == NO_INDEX:
            at = insert_block(cache, bucket, idle, slot, hashes[first + number], 0)
        elif cache[slot, at, HOLDERS] > 0:
            continue
        else:
            pop_idle_block(cache, idle, slot, at)
        push_idle_block(cache, idle, slot, at)


@njit_call
def evict_idle_blocks(cache: Any, bucket: Any, idle: Any, slot: int, count: int) -> None:
    """Remove the least recently used idle blocks until at most `count` are left."""
    while idle[slot, COUNT] > count:
        at = idle[slot, OLDEST]
        pop_idle_block(cache, idle, slot, at)
        remove_block(cache, bucket, idle, slot, at)


@njit_call
def clear_block_cache(cache: Any, bucket: Any, idle: Any, slot: int) -> None:
    """Empty the slot's table."""
    bucket[slot] = NO_INDEX
    idle[slot, OLDEST] = idle[slot, NEWEST] = NO_INDEX
    idle[slot, COUNT] = idle[slot, FREE] = 0
    rows = cache.shape[1]
    for at in range(rows):
        cache[slot, at, NEXT] = at + 1 if at + 1 < rows else NO_INDEX


@njit_call
def remove_block(cache: Any, bucket: Any, idle: Any, slot: int, at: int) -> None:
    """Remove a block, which must not be in the idle list, from the table."""
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
    """Append a block that no request holds any more to the idle list, as the most recently used."""
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
    """Take a block out of the idle list, because it is held again or evicted."""
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
