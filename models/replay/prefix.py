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

from models.replay.compiled import called, compiled
from models.replay.memory import blocks_of, capacity_blocks, prompt_tokens
from models.replay.state import NOBODY, REUSED, Fleet, State, Trace

NONE, GIVEN, BLOCKS = range(3)  # positions in models.world.config.PREFIXES
HASH, HOLDERS, NEXT, OLDER, NEWER = range(5)  # columns of State.cache: NEXT in a chain, or of the free
OLDEST, NEWEST, COUNT, FREE = range(4)  # columns of State.idle
SPREADER = 0x9E3779B1


@compiled
def hash_blocks(trace: Trace, fleet: Fleet, request: int) -> int:
    """Whole blocks of the request's prompt that have hashes."""
    known = trace.first_hash[request + 1] - trace.first_hash[request]
    return min(known, trace.input_tokens[request] // fleet.prefix_block_tokens)


@compiled
def hash_of(trace: Trace, request: int, at: int) -> int:
    """The hash of the prompt's block number `at`."""
    return trace.hashes[trace.first_hash[request] + at]


@compiled
def chain_of(state: State, block_hash: int) -> int:
    """Where in the hash table a block's chain begins."""
    return (block_hash * SPREADER >> 7) & (state.bucket.shape[1] - 1)


@compiled
def find(state: State, slot: int, block_hash: int) -> int:
    """Where in the slot's table a block is; NOBODY."""
    at = state.bucket[slot, chain_of(state, block_hash)]
    while at != NOBODY and state.cache[slot, at, HASH] != block_hash:
        at = state.cache[slot, at, NEXT]
    return at


@called
def cached_blocks(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> int:
    """How many of the prompt's blocks, from the first on, the slot has cached."""
    have, lack = 0, hash_blocks(trace, fleet, request) + 1
    while have + 1 < lack:
        middle = (have + lack) // 2
        if find(state, slot, hash_of(trace, request, middle - 1)) != NOBODY:
            have = middle
        else:
            lack = middle
    return have


@compiled
def held_by_others(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> int:
    """KV blocks of the prompt that other requests hold at the slot, so that they are in memory anyway."""
    return blocks_in_use(trace, fleet, state, slot, request) if fleet.prefix == BLOCKS else 0


@called
def blocks_in_use(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> int:
    """The same, where the slot keeps blocks."""
    held, most = 0, hash_blocks(trace, fleet, request)
    while held < most:
        at = find(state, slot, hash_of(trace, request, held))
        if at == NOBODY or state.cache[slot, at, HOLDERS] == 0:
            break
        held += 1
    return held * span(fleet)


@compiled
def span(fleet: Fleet) -> int:
    """KV blocks of a block that is hashed."""
    return fleet.prefix_block_tokens // fleet.kv_block_tokens


@compiled
def reusable_tokens(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> int:
    """Tokens of the prompt that the slot would not have to compute."""
    if fleet.prefix == BLOCKS:
        tokens = cached_blocks(trace, fleet, state, slot, request) * fleet.prefix_block_tokens
    elif fleet.prefix == GIVEN:
        tokens = trace.cached_tokens[request]
    else:
        return 0
    return min(tokens, trace.input_tokens[request] - 1)


@compiled
def work_of(trace: Trace, fleet: Fleet, state: State, request: int) -> int:
    """Tokens of the request's prompt that are to be computed."""
    prompt = prompt_tokens(trace, state, request)
    return prompt if fleet.prefix == NONE else prompt - state.reused[request]


@called
def hold_prefix(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> None:
    """A request is admitted: what is cached of its prompt is reused, and all its blocks are held.

    Its KV blocks are counted already, those that others hold among them; the least recently used blocks make
    room. A request that is admitted behind it may reuse blocks that are yet to be computed, before its own.
    """
    state.reused[request] = reusable_tokens(trace, fleet, state, slot, request)
    state.counts[REUSED] += state.reused[request]
    if fleet.prefix != BLOCKS:
        return
    blocks = hash_blocks(trace, fleet, request)
    known = cached_blocks(trace, fleet, state, slot, request)
    for number in range(known):
        at = find(state, slot, hash_of(trace, request, number))
        if state.cache[slot, at, HOLDERS] == 0:
            take_off_idle(state, slot, at)
        state.cache[slot, at, HOLDERS] += 1
    forget_the_oldest(fleet, state, slot)
    for number in range(known, blocks):
        insert(state, slot, hash_of(trace, request, number))
    state.held_hashes[request] = blocks


@called
def let_go_of_prefix(trace: Trace, fleet: Fleet, state: State, slot: int, request: int, computed: int) -> int:
    """The request leaves: its blocks stay cached, but those behind `computed` tokens, which nobody computed.

    Returns the KV blocks of it that others hold still.
    """
    blocks = state.held_hashes[request]
    state.held_hashes[request] = 0
    shared = 0
    for number in range(blocks - 1, -1, -1):
        at = find(state, slot, hash_of(trace, request, number))
        state.cache[slot, at, HOLDERS] -= 1
        if state.cache[slot, at, HOLDERS] > 0:
            shared += 1
        elif number * fleet.prefix_block_tokens < computed:
            put_on_idle(state, slot, at)
        else:
            remove(state, slot, at)
    return shared * span(fleet)


@compiled
def blocks_back(
    trace: Trace, fleet: Fleet, state: State, slot: int, request: int, cached: int, computed: int
) -> int:
    """KV blocks that are free when a request of so many cached tokens leaves the slot."""
    blocks = blocks_of(fleet, cached)
    if fleet.prefix == BLOCKS and state.held_hashes[request] > 0:
        blocks -= let_go_of_prefix(trace, fleet, state, slot, request, computed)
    return blocks


@compiled
def forget_the_oldest(fleet: Fleet, state: State, slot: int) -> None:
    """Blocks that nobody holds go, the least recently used first, as far as the others need their memory."""
    if fleet.prefix == BLOCKS:
        room = capacity_blocks(fleet, slot) - state.blocks[slot]
        if state.idle[slot, COUNT] * span(fleet) > room:
            forget_down_to(state, slot, max(0, room // span(fleet)))


@called
def forget_down_to(state: State, slot: int, count: int) -> None:
    """So many blocks that nobody holds stay."""
    while state.idle[slot, COUNT] > count:
        at = state.idle[slot, OLDEST]
        take_off_idle(state, slot, at)
        remove(state, slot, at)


@called
def forget_all(fleet: Fleet, state: State, slot: int) -> None:
    """The instance has nothing cached any more."""
    state.bucket[slot] = NOBODY
    state.idle[slot, OLDEST] = state.idle[slot, NEWEST] = NOBODY
    state.idle[slot, COUNT] = state.idle[slot, FREE] = 0
    rows = state.cache.shape[1]
    for at in range(rows):
        state.cache[slot, at, NEXT] = at + 1 if at + 1 < rows else NOBODY


@compiled
def insert(state: State, slot: int, block_hash: int) -> None:
    """Add a block that one request holds."""
    at, chain = state.idle[slot, FREE], chain_of(state, block_hash)
    state.idle[slot, FREE] = state.cache[slot, at, NEXT]
    state.cache[slot, at, HASH], state.cache[slot, at, HOLDERS] = block_hash, 1
    state.cache[slot, at, NEXT] = state.bucket[slot, chain]
    state.bucket[slot, chain] = at


@compiled
def remove(state: State, slot: int, at: int) -> None:
    """Take a block, which is on no list of idle ones, out of the table."""
    chain = chain_of(state, state.cache[slot, at, HASH])
    before, here = NOBODY, state.bucket[slot, chain]
    while here != at:
        before, here = here, state.cache[slot, here, NEXT]
    if before == NOBODY:
        state.bucket[slot, chain] = state.cache[slot, at, NEXT]
    else:
        state.cache[slot, before, NEXT] = state.cache[slot, at, NEXT]
    state.cache[slot, at, NEXT] = state.idle[slot, FREE]
    state.idle[slot, FREE] = at


@compiled
def put_on_idle(state: State, slot: int, at: int) -> None:
    """Nobody holds the block any more: it is the one used most recently."""
    newest = state.idle[slot, NEWEST]
    state.cache[slot, at, OLDER], state.cache[slot, at, NEWER] = newest, NOBODY
    if newest == NOBODY:
        state.idle[slot, OLDEST] = at
    else:
        state.cache[slot, newest, NEWER] = at
    state.idle[slot, NEWEST] = at
    state.idle[slot, COUNT] += 1


@compiled
def take_off_idle(state: State, slot: int, at: int) -> None:
    """The block is held again, or goes."""
    older, newer = state.cache[slot, at, OLDER], state.cache[slot, at, NEWER]
    if older == NOBODY:
        state.idle[slot, OLDEST] = newer
    else:
        state.cache[slot, older, NEWER] = newer
    if newer == NOBODY:
        state.idle[slot, NEWEST] = older
    else:
        state.cache[slot, newer, OLDER] = older
    state.idle[slot, COUNT] -= 1
