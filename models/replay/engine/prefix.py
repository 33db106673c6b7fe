"""Prefix caching: the cached beginning of a prompt need not be computed again (vLLM, SGLang).

NONE    nothing stays cached after a request has left
GIVEN   for each prompt, the number of cached tokens is in the trace, wherever the request is sent
BLOCKS  each instance keeps the blocks of earlier requests, by their hashes, as far as memory allows

A hash stands for a block and all before it, so the cached part of a prompt is its beginning. A block that
several requests hold is in memory once. A block without a holder stays until its memory is needed: the least
recently used goes first, and of one request the last block first. Such blocks are evicted when a batch
changes. The last token of a prompt is always computed, with its KV block. An instance that is donated loses
its cache.

The hashes of a request go on after its prompt: the next ones are of the blocks that its answer fills. They
stay cached when the request ends, as in vLLM, and the next turn of a conversation finds them.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.engine.block_cache import (
    COUNT,
    clear_block_cache,
    count_cached_blocks,
    count_held_blocks,
    evict_idle_blocks,
    hold_cached_blocks,
    insert_blocks,
    keep_idle_blocks,
    release_blocks,
)
from fleetcast.models.replay.engine.kv_memory import capacity_blocks, kv_blocks, prompt_tokens
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Prefix


@njit_call
def hashed_blocks(trace: TraceArrays, fleet: FleetArrays, request: int, tokens: int) -> int:
    """Return the number of whole blocks, of the request's first `tokens` tokens, that have hashes."""
    known = trace.first_hash[request + 1] - trace.first_hash[request]
    return min(known, tokens // fleet.prefix_block_tokens)


@njit_call
def sparable_tokens(trace: TraceArrays, fleet: FleetArrays, state: State, request: int) -> int:
    """Return the tokens before the KV block of the prompt's last token, which is always computed (vLLM 1)."""
    before = prompt_tokens(trace, state, request) - 1
    return before - before % fleet.kv_block_tokens


@njit_call
def reusable_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, request: int) -> int:
    """Return the number of whole hashed blocks of the prompt with tokens that a cache may spare."""
    tokens = sparable_tokens(trace, fleet, state, request) + fleet.prefix_block_tokens - 1
    return hashed_blocks(trace, fleet, request, min(tokens, prompt_tokens(trace, state, request)))


@njit_call
def cached_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> int:
    """Return how many of the prompt's reusable blocks, from the first on, the slot has cached."""
    first, blocks = trace.first_hash[request], reusable_blocks(trace, fleet, state, request)
    return count_cached_blocks(state.cache, state.bucket, slot, trace.hashes, first, blocks)


@njit_call
def shared_kv_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> int:
    """Return the KV blocks of the prompt that other requests hold at the slot: they take no new memory."""
    if fleet.prefix != Prefix.BLOCKS:
        return 0
    first, blocks = trace.first_hash[request], reusable_blocks(trace, fleet, state, request)
    return count_held_blocks(
        state.cache, state.bucket, slot, trace.hashes, first, blocks
    ) * kv_blocks_per_hash(fleet)


@njit_call
def kv_blocks_per_hash(fleet: FleetArrays) -> int:
    """Return the number of KV blocks in one hashed block."""
    return fleet.prefix_block_tokens // fleet.kv_block_tokens


@njit_call
def reusable_tokens(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> int:
    """Return the tokens of the prompt that the slot would not have to compute."""
    if fleet.prefix == Prefix.BLOCKS:
        tokens = cached_blocks(trace, fleet, state, slot, request) * fleet.prefix_block_tokens
        return min(tokens, sparable_tokens(trace, fleet, state, request))
    if fleet.prefix == Prefix.GIVEN:
        return min(trace.cached_tokens[request], trace.input_tokens[request] - 1)
    return 0


@njit_call
def tokens_to_compute(trace: TraceArrays, fleet: FleetArrays, state: State, request: int) -> int:
    """Return the tokens of the request's prompt that are to be computed."""
    prompt = prompt_tokens(trace, state, request)
    return prompt if fleet.prefix == Prefix.NONE else prompt - state.sharing[request].reused


@njit_call
def hold_prefix(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, reused: int
) -> None:
    """Reuse, and hold, the cached part of an admitted request's prompt."""
    state.sharing[request].reused = reused
    state.progress.reused_tokens += reused
    if fleet.prefix == Prefix.BLOCKS:
        first = trace.first_hash[request]
        blocks = (reused + fleet.prefix_block_tokens - 1) // fleet.prefix_block_tokens
        hold_cached_blocks(state.cache, state.bucket, state.idle, slot, trace.hashes, first, blocks)
        state.sharing[request].held_hashes = blocks


@njit_call
def insert_prompt_blocks(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, tokens: int
) -> None:
    """Add the hashed blocks of the prompt's first `tokens` tokens to the slot's table.

    The caller has already counted the KV blocks; the least recently used idle blocks are evicted for them. A
    later request may reuse blocks that are not computed yet, as they are computed before its own. A copy of a
    block that is there already is not kept.
    """
    if fleet.prefix != Prefix.BLOCKS:
        return
    evict_prefix_blocks(fleet, state, slot, 0)
    first, held = trace.first_hash[request], state.sharing[request].held_hashes
    blocks = hashed_blocks(trace, fleet, request, tokens)
    state.sharing[request].held_hashes = insert_blocks(
        state.cache, state.bucket, state.idle, slot, trace.hashes, first, held, blocks
    )


@njit_call
def release_kv_blocks(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, cached: int, computed: int
) -> int:
    """Release the KV of a request with so many cached tokens; return the number of KV blocks set free.

    The hashed blocks of its first `computed` tokens stay cached; the others were not computed.
    """
    blocks = kv_blocks(fleet, slot, cached)
    if fleet.prefix == Prefix.BLOCKS:
        held, first = state.sharing[request].held_hashes, trace.first_hash[request]
        kept = hashed_blocks(trace, fleet, request, computed)
        keep_idle_blocks(state.cache, state.bucket, state.idle, slot, trace.hashes, first, held, kept)
        shared = release_blocks(state.cache, state.bucket, state.idle, slot, trace.hashes, first, held, kept)
        blocks -= shared * kv_blocks_per_hash(fleet)
        state.sharing[request].held_hashes = 0
    return blocks


@njit_call
def idle_kv_blocks(fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the KV blocks of the slot's cache that no request holds."""
    return state.idle[slot, COUNT] * kv_blocks_per_hash(fleet) if fleet.prefix == Prefix.BLOCKS else 0


@njit_call
def evict_prefix_blocks(fleet: FleetArrays, state: State, slot: int, more: int) -> None:
    """Evict idle blocks, the least recently used first, so that the others and `more` KV blocks have room.

    An async engine composed its next step while the requests that have just ended still held their blocks.
    """
    if fleet.prefix == Prefix.BLOCKS:
        instance = state.instance[slot]
        room = capacity_blocks(fleet, slot) - instance.blocks - instance.ended_uncached_blocks - more
        if idle_kv_blocks(fleet, state, slot) > room:
            evict_idle_blocks(
                state.cache, state.bucket, state.idle, slot, max(0, room // kv_blocks_per_hash(fleet))
            )


@njit_call
def clear_prefix_cache(state: State, slot: int) -> None:
    """Empty the slot's prefix cache."""
    clear_block_cache(state.cache, state.bucket, state.idle, slot)
