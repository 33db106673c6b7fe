"""Prompts that begin alike: what an instance has cached of one need not be computed again (vLLM, SGLang).

NONE    nothing is cached beyond a request's own life
GIVEN   of every prompt, as many tokens as the trace says were found in a cache, wherever it goes
BLOCKS  every instance keeps the blocks of the prompts that it had, by their hashes, as far as memory goes

A hash stands for a block and all before it, so what is cached of a prompt is its beginning. A block that
requests hold is in memory once, however many they are; one that nobody holds stays until its memory is
needed, the least recently used first, of one request the last block first. Memory is taken from such blocks
when a batch changes. The last token of a prompt is always computed. An instance that is given away forgets.
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
    release_blocks,
)
from fleetcast.models.replay.engine.kv_memory import capacity_blocks, kv_blocks, prompt_tokens
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.state import ReplayState
from fleetcast.models.world.mechanisms import Prefix


@njit_call
def hashed_blocks(trace: TraceArrays, fleet: FleetArrays, request: int) -> int:
    """Whole blocks of the request's prompt that have hashes."""
    known = trace.first_hash[request + 1] - trace.first_hash[request]
    return min(known, trace.input_tokens[request] // fleet.prefix_block_tokens)


@njit_call
def cached_blocks(trace: TraceArrays, fleet: FleetArrays, state: ReplayState, slot: int, request: int) -> int:
    """How many of the prompt's blocks, from the first on, the slot has cached."""
    first, blocks = trace.first_hash[request], hashed_blocks(trace, fleet, request)
    return count_cached_blocks(state.cache, state.bucket, slot, trace.hashes, first, blocks)


@njit_call
def shared_kv_blocks(
    trace: TraceArrays, fleet: FleetArrays, state: ReplayState, slot: int, request: int
) -> int:
    """KV blocks of the prompt that other requests hold at the slot, so that they are in memory anyway."""
    if fleet.prefix != Prefix.BLOCKS:
        return 0
    first, blocks = trace.first_hash[request], hashed_blocks(trace, fleet, request)
    return count_held_blocks(
        state.cache, state.bucket, slot, trace.hashes, first, blocks
    ) * kv_blocks_per_hash(fleet)


@njit_call
def kv_blocks_per_hash(fleet: FleetArrays) -> int:
    """KV blocks of a block that is hashed."""
    return fleet.prefix_block_tokens // fleet.kv_block_tokens


@njit_call
def reusable_tokens(
    trace: TraceArrays, fleet: FleetArrays, state: ReplayState, slot: int, request: int
) -> int:
    """Tokens of the prompt that the slot would not have to compute."""
    if fleet.prefix == Prefix.BLOCKS:
        tokens = cached_blocks(trace, fleet, state, slot, request) * fleet.prefix_block_tokens
    elif fleet.prefix == Prefix.GIVEN:
        tokens = trace.cached_tokens[request]
    else:
        return 0
    return min(tokens, trace.input_tokens[request] - 1)


@njit_call
def tokens_to_compute(trace: TraceArrays, fleet: FleetArrays, state: ReplayState, request: int) -> int:
    """Tokens of the request's prompt that are to be computed."""
    prompt = prompt_tokens(trace, state, request)
    return prompt if fleet.prefix == Prefix.NONE else prompt - state.sharing[request].reused


@njit_call
def hold_prefix(
    trace: TraceArrays, fleet: FleetArrays, state: ReplayState, slot: int, request: int, reused: int
) -> None:
    """A request is admitted: what is cached of its prompt is reused, and all its blocks are held.

    Its KV blocks are counted already, those that others hold among them; the least recently used blocks make
    room. A request that is admitted behind it may reuse blocks that are yet to be computed, before its own.
    """
    state.sharing[request].reused = reused
    state.progress.reused_tokens += reused
    if fleet.prefix == Prefix.BLOCKS:
        first, blocks = trace.first_hash[request], hashed_blocks(trace, fleet, request)
        known = hold_cached_blocks(state.cache, state.bucket, state.idle, slot, trace.hashes, first, blocks)
        evict_prefix_blocks(fleet, state, slot)
        insert_blocks(
            state.cache, state.bucket, state.idle, slot, trace.hashes, first + known, first + blocks
        )
        state.sharing[request].held_hashes = blocks


@njit_call
def release_kv_blocks(
    trace: TraceArrays,
    fleet: FleetArrays,
    state: ReplayState,
    slot: int,
    request: int,
    cached: int,
    computed: int,
) -> int:
    """KV blocks that are free when a request of so many cached tokens leaves the slot.

    Its hashed blocks stay cached, but those behind `computed` tokens, which nobody computed.
    """
    blocks = kv_blocks(fleet, cached)
    if fleet.prefix == Prefix.BLOCKS and state.sharing[request].held_hashes > 0:
        held, first = state.sharing[request].held_hashes, trace.first_hash[request]
        kept = (computed + fleet.prefix_block_tokens - 1) // fleet.prefix_block_tokens
        shared = release_blocks(state.cache, state.bucket, state.idle, slot, trace.hashes, first, held, kept)
        blocks -= shared * kv_blocks_per_hash(fleet)
        state.sharing[request].held_hashes = 0
    return blocks


@njit_call
def evict_prefix_blocks(fleet: FleetArrays, state: ReplayState, slot: int) -> None:
    """Blocks that nobody holds go, the least recently used first, as far as the others need their memory."""
    if fleet.prefix == Prefix.BLOCKS:
        room = capacity_blocks(fleet, slot) - state.instance[slot].blocks
        if state.idle[slot, COUNT] * kv_blocks_per_hash(fleet) > room:
            evict_idle_blocks(
                state.cache, state.bucket, state.idle, slot, max(0, room // kv_blocks_per_hash(fleet))
            )


@njit_call
def clear_prefix_cache(state: ReplayState, slot: int) -> None:
    """The instance has nothing cached any more."""
    clear_block_cache(state.cache, state.bucket, state.idle, slot)
