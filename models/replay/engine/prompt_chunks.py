"""Chunks: how many prompt tokens a step computes, and the memory that they take.

With CHUNKED batching a prompt takes the KV blocks of a chunk when the chunk is scheduled, as in vLLM 1. The
prompts of a step get its budget in the order of their admission. So only the last one gets less than it
could use. With `long_prefill_token_threshold` no prompt gets more than that in a step, unless its request is
alone at the instance; several prompts may then be unfinished. With the other batchings a prompt has all its
blocks from its admission on.
"""

from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.engine.kv_memory import kv_blocks, prompt_tokens, update_kv_in_use
from fleetcast.models.replay.engine.prefix import insert_prompt_blocks, tokens_to_compute
from fleetcast.models.replay.kernel_inputs import ALL_TOKENS, ALL_TURNS, NO_INDEX, FleetArrays, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Batching


@njit_inline
def is_chunked(fleet: FleetArrays, slot: int) -> bool:
    """Return whether the instance computes prompts in chunks, up to a budget for each step."""
    return fleet.batching[fleet.slot_kind[slot]] == Batching.CHUNKED


@njit_inline
def set_chunk_limit(fleet: FleetArrays, state: State, slot: int) -> None:
    """Set the most prompt tokens that one request computes in the next step."""
    threshold = fleet.long_prefill_token_threshold[fleet.slot_kind[slot]]
    if threshold > 0:
        state.instance[slot].chunk_limit = threshold if has_two_requests(state, slot) else ALL_TOKENS


@njit_inline
def has_two_requests(state: State, slot: int) -> bool:
    """Return whether the engine knows of two requests or more, with those that have just ended."""
    instance = state.instance[slot]
    known = instance.batch + instance.joining + instance.ended
    for at in range(state.lane.shape[1] - 1):
        head = state.lane[slot, at].head
        if head != NO_INDEX:
            known += 1 if state.request[head].next == NO_INDEX else 2
    return known > 1


@njit_inline
def prompt_token_room(fleet: FleetArrays, state: State, slot: int) -> int:
    """Return how many prompt tokens a step may compute: what the budget leaves after the decode batch."""
    if not is_chunked(fleet, slot):
        return ALL_TOKENS
    kind = fleet.slot_kind[slot]
    decoded = state.instance[slot].batch * (1 + fleet.drafts.tokens[kind])
    return max(1, fleet.max_prefill_tokens[kind] - decoded)


@njit_inline
def chunk_tokens(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> int:
    """Return the tokens of the request's pending prompt that a step without a budget would compute."""
    instance = state.instance[slot]
    if state.request[request].admission_turn > instance.last_turn:
        return 0
    left = tokens_to_compute(trace, fleet, state, request) - state.request[request].prefilled
    return min(left, instance.chunk_limit)


@njit_inline
def all_chunk_tokens(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the tokens of all pending prompts that a step without a budget would compute."""
    instance = state.instance[slot]
    if instance.chunk_limit == ALL_TOKENS and instance.last_turn == ALL_TURNS:
        return instance.pending_prompt_tokens
    tokens, request = 0, instance.joining_head
    for _ in range(instance.joining):
        tokens += chunk_tokens(trace, fleet, state, slot, request)
        request = state.request[request].next
    return tokens


@njit_inline
def next_chunk_tokens(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the prompt tokens of the next step."""
    return min(all_chunk_tokens(trace, fleet, state, slot), prompt_token_room(fleet, state, slot))


@njit_inline
def tokens_after_chunk(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, room: int
) -> int:
    """Return the tokens of the pending prompt that need blocks in the next step, which has so much room."""
    left = tokens_to_compute(trace, fleet, state, request) - state.request[request].prefilled
    computed = prompt_tokens(trace, state, request) - left
    return computed + min(chunk_tokens(trace, fleet, state, slot, request), room)


@njit_inline
def next_chunk_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the KV blocks that the next chunks of unfinished prompts take; 0 if there are none."""
    instance = state.instance[slot]
    if instance.joining == 0 or not is_chunked(fleet, slot):
        return 0
    blocks, request, room = 0, instance.joining_head, prompt_token_room(fleet, state, slot)
    for _ in range(instance.joining):
        after = tokens_after_chunk(trace, fleet, state, slot, request, room)
        blocks += kv_blocks(fleet, slot, after) - kv_blocks(
            fleet, slot, state.request[request].granted_tokens
        )
        room -= min(room, chunk_tokens(trace, fleet, state, slot, request))
        request = state.request[request].next
    return blocks


@njit_inline
def take_chunk_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, now: float) -> None:
    """Take the KV blocks of the next chunks of unfinished prompts."""
    instance = state.instance[slot]
    request, room = instance.joining_head, prompt_token_room(fleet, state, slot)
    for _ in range(instance.joining):
        after = tokens_after_chunk(trace, fleet, state, slot, request, room)
        instance.blocks += kv_blocks(fleet, slot, after) - kv_blocks(
            fleet, slot, state.request[request].granted_tokens
        )
        state.request[request].granted_tokens = after
        insert_prompt_blocks(trace, fleet, state, slot, request, after)
        room -= min(room, chunk_tokens(trace, fleet, state, slot, request))
        request = state.request[request].next
    update_kv_in_use(fleet, state, slot, now)
