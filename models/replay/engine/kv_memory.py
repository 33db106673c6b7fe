"""KV memory: the blocks in use at an instance, and the utilisation of a pool.

Memory is used in blocks (PagedAttention, vLLM). A decode step adds the same number of tokens to every request
of the batch (one; draft_tokens.py), and a request whose blocks are full takes another block. The number of
new blocks for the k-th token from now follows without looking at each request: (cached tokens - tokens made)
mod block does not change while it decodes.

Some layers keep the same of a request whatever its length: a state, or the last tokens of a window. These
blocks are taken with its first token and set free with its last (models/world/model_layers.py).

Effective memory utilisation (SageServe 6.1) = KV tokens in use / KV tokens that fit, weights excluded, over
the serving instances. "In use" counts whole blocks as of each instance's last batch change (a request was
admitted, finished or preempted). So it is a whole number, and the same whether decode steps are played one by
one or in closed form. Between two changes it lags by at most one token per request and step.
"""

from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.engine.ranks import rank_slot
from fleetcast.models.replay.event_queue import mark_freeness_stale
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Role, Status


@njit_inline
def kv_blocks(fleet: FleetArrays, slot: int, tokens: int) -> int:
    """Return the number of blocks for so many tokens of one request; 0 for none."""
    blocks = (tokens + fleet.kv_block_tokens - 1) // fleet.kv_block_tokens
    return blocks + (blocks > 0) * fleet.request_blocks[fleet.slot_kind[slot]]


@njit_inline
def capacity_blocks(fleet: FleetArrays, slot: int) -> int:
    """Return the number of KV blocks that the instance has."""
    return fleet.kv_capacity[fleet.slot_kind[slot]] // fleet.kv_block_tokens


@njit_inline
def note_block_crossing(fleet: FleetArrays, state: State, slot: int, cached: int, change: int) -> None:
    """Count a request with so many cached tokens into the decode batch (change = 1) or out of it (-1)."""
    held = cached + fleet.drafts.tokens[fleet.slot_kind[slot]]
    state.block_crossings[slot, (held - state.instance[slot].steps) % fleet.kv_block_tokens] += change


@njit_inline
def new_kv_blocks(fleet: FleetArrays, state: State, slot: int, tokens: int) -> int:
    """Return the number of new blocks for so many more tokens of each decoding request."""
    instance = state.instance[slot]
    block = fleet.kv_block_tokens
    taken = 0
    if tokens >= block:  # with `block` tokens each request of the batch takes one new block
        taken = tokens // block * instance.batch
        tokens %= block
    at = -instance.steps % block
    for _ in range(tokens):
        taken += state.block_crossings[slot, at]
        at = (at if at > 0 else block) - 1
    return taken


@njit_inline
def tokens_in_memory(fleet: FleetArrays, state: State, slot: int, most: int) -> int:
    """Return how many tokens of each decoding request the free blocks allow, at most `most`."""
    instance = state.instance[slot]
    block, batch = fleet.kv_block_tokens, instance.batch
    free = capacity_blocks(fleet, slot) - instance.blocks
    tokens = free // batch * block
    free -= free // batch * batch
    while tokens < most:
        taken = state.block_crossings[slot, -(instance.steps + tokens) % block]
        if taken > free:
            return tokens
        free -= taken
        tokens += 1
    return most


@njit_inline
def integrate_kv(state: State, pool: int, now: float) -> None:
    """Integrate the pool's token-seconds up to now; call this before its totals change."""
    elapsed = now - state.pool[pool].kv_since_s
    state.pool[pool].kv_used_area += state.pool[pool].kv_used * elapsed
    state.pool[pool].kv_room_area += state.pool[pool].kv_room * elapsed
    state.pool[pool].kv_since_s = now


@njit_inline
def update_kv_in_use(fleet: FleetArrays, state: State, slot: int, now: float) -> None:
    """Update the pool's KV tokens in use after a change of the slot's batch."""
    instance = state.instance[slot]
    if state.instance[fleet.instance_slot[slot]].status == Status.SERVING:
        pool = fleet.pool[slot]
        integrate_kv(state, pool, now)
        state.pool[pool].kv_used += instance.blocks * fleet.kv_block_tokens - instance.counted_kv_tokens
    instance.counted_kv_tokens = instance.blocks * fleet.kv_block_tokens
    note_freeness_change(fleet, state, slot)


@njit_inline
def kv_tokens_in_use(fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the KV tokens in use at all ranks of an instance, as of their last batch changes."""
    tokens = 0
    for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
        tokens += state.instance[rank_slot(fleet, slot, rank)].counted_kv_tokens
    return tokens


@njit_inline
def instance_kv_capacity(fleet: FleetArrays, kind: int) -> int:
    """Return the KV tokens that fit on all ranks of an instance."""
    return fleet.kv_capacity[kind] * fleet.ranks[kind]


@njit_inline
def is_below_kv_share(state: State, pool: int, share: float) -> bool:
    """Return whether the pool has serving instances and its utilisation is below `share`."""
    return state.pool[pool].kv_used < share * state.pool[pool].kv_room


@njit_inline
def full_length_blocks(trace: TraceArrays, fleet: FleetArrays, slot: int, request: int) -> int:
    """Return the KV blocks of the request with all its tokens."""
    return kv_blocks(fleet, slot, trace.input_tokens[request] + trace.output_tokens[request])


@njit_inline
def reduce_kv_in_use(fleet: FleetArrays, state: State, slot: int, blocks: int, now: float) -> None:
    """Free so many blocks of the slot during a stretch, and reduce its pool's KV tokens in use."""
    instance = state.instance[slot]
    tokens = blocks * fleet.kv_block_tokens
    instance.blocks -= blocks
    instance.counted_kv_tokens -= tokens
    if instance.status == Status.SERVING:
        pool = fleet.pool[slot]
        integrate_kv(state, pool, now)
        state.pool[pool].kv_used -= tokens
    note_freeness_change(fleet, state, slot)


@njit_inline
def admission_blocks(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> int:
    """Return the blocks that a waiting request would take: transferred cache or prompt, and a token."""
    if fleet.has_transfers and state.transfer[request].transferred_tokens > 0:
        return kv_blocks(fleet, slot, state.transfer[request].transferred_tokens + 1)
    return kv_blocks(fleet, slot, prompt_tokens(trace, state, request) + 1)


@njit_inline
def is_ranked_by_freeness(fleet: FleetArrays, pool: int) -> bool:
    """Return whether the pool's instances are ordered by freeness, and not by load."""
    return fleet.by_freeness and fleet.role[pool] != Role.DECODE


@njit_inline
def note_freeness_change(fleet: FleetArrays, state: State, slot: int) -> None:
    """Note that the slot's freeness may have risen, so that the next dispatch evaluates it (freeness.py)."""
    instance = state.instance[slot]
    mark_freeness_stale(state, slot)
    if fleet.by_freeness and not instance.is_changed:
        pool = fleet.pool[slot]
        instance.is_changed = True
        instance.next_changed = state.pool[pool].first_changed
        state.pool[pool].first_changed = slot


@njit_inline
def prompt_tokens(trace: TraceArrays, state: State, request: int) -> int:
    """Return the tokens to prefill: the input and, after a preemption, the tokens generated before it."""
    return trace.input_tokens[request] + state.request[request].generated
