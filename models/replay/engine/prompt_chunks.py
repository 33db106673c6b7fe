"""Chunks: how many prompt tokens a step computes, and the memory that they take.

With CHUNKED batching a prompt takes the KV blocks of a chunk when the chunk is scheduled, as in vLLM 1. All
prompts of a step but the last one end in it. So only the prompt that was admitted last may have blocks for a
part of its tokens. With the other batchings a prompt has all its blocks from its admission on.
"""

from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.engine.kv_memory import kv_blocks, prompt_tokens, update_kv_in_use
from fleetcast.models.replay.engine.prefix import insert_prompt_blocks
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Batching

ALL_TOKENS = 1 << 60


@njit_inline
def is_chunked(fleet: FleetArrays, slot: int) -> bool:
    """Return whether the instance computes prompts in chunks, up to a budget for each step."""
    return fleet.batching[fleet.slot_kind[slot]] == Batching.CHUNKED


@njit_inline
def prompt_token_room(fleet: FleetArrays, state: State, slot: int) -> int:
    """Return how many prompt tokens a step may compute: what the budget leaves after the decode batch."""
    if not is_chunked(fleet, slot):
        return ALL_TOKENS
    return max(1, fleet.max_prefill_tokens[fleet.slot_kind[slot]] - state.instance[slot].batch)


@njit_inline
def next_chunk_tokens(fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the prompt tokens of the next step."""
    return min(state.instance[slot].pending_prompt_tokens, prompt_token_room(fleet, state, slot))


@njit_inline
def tokens_after_chunk(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the tokens of the unfinished prompt at a step boundary that need blocks in the next step."""
    instance = state.instance[slot]
    computed = prompt_tokens(trace, state, instance.joining_tail) - instance.pending_prompt_tokens
    return computed + next_chunk_tokens(fleet, state, slot)


@njit_inline
def next_chunk_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the KV blocks that the next chunk of the unfinished prompt takes; 0 if there is none."""
    instance = state.instance[slot]
    if instance.joining == 0 or not is_chunked(fleet, slot):
        return 0
    tokens = tokens_after_chunk(trace, fleet, state, slot)
    return kv_blocks(fleet, tokens) - kv_blocks(fleet, instance.granted_tokens)


@njit_inline
def take_chunk_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, now: float) -> None:
    """Take the KV blocks of the next chunk of the unfinished prompt."""
    instance = state.instance[slot]
    instance.blocks += next_chunk_blocks(trace, fleet, state, slot)
    instance.granted_tokens = tokens_after_chunk(trace, fleet, state, slot)
    insert_prompt_blocks(trace, fleet, state, slot, instance.joining_tail, instance.granted_tokens)
    update_kv_in_use(fleet, state, slot, now)
