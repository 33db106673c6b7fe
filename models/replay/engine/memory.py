"""KV memory: the blocks that an instance holds, and what a pool's utilisation is.

Memory is held in blocks (PagedAttention, vLLM). A decode step lengthens every request of the batch by one
token, and one whose blocks are full takes another. How many do at the k-th step from now is known without
looking at them: (cached tokens - steps) mod block stays what it was when the request joined.

Effective memory utilisation (SageServe 6.1) = KV tokens in use / KV tokens that fit, weights excluded,
over the serving instances. "In use" are whole blocks, as of each instance's last batch change (a request
admitted, finished or preempted): whole numbers, kept up to date at events, the same whether decode steps
are leapt or played. Between two changes it lags by at most one token per request and step.
"""

from fleetcast.models.replay.compiled import compiled
from fleetcast.models.replay.events import note_stale
from fleetcast.models.replay.inputs import Fleet, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Role, Status


@compiled
def blocks_of(fleet: Fleet, tokens: int) -> int:
    """Blocks that hold so many tokens of one request."""
    return (tokens + fleet.kv_block_tokens - 1) // fleet.kv_block_tokens


@compiled
def capacity_blocks(fleet: Fleet, slot: int) -> int:
    """Blocks that the instance has."""
    return fleet.kv_capacity[fleet.slot_kind[slot]] // fleet.kv_block_tokens


@compiled
def cross(fleet: Fleet, state: State, slot: int, cached: int, change: int) -> None:
    """A request with so many cached tokens joins the decode batch (change = 1) or leaves it (-1)."""
    state.crossing[slot, (cached - state.instance[slot].steps) % fleet.kv_block_tokens] += change


@compiled
def blocks_taken(fleet: Fleet, state: State, slot: int, steps: int) -> int:
    """New blocks that the next `steps` decode steps take."""
    instance = state.instance[slot]
    block = fleet.kv_block_tokens
    taken = steps // block * instance.batch  # in so many steps everyone fills one
    at = -instance.steps % block
    for _ in range(steps % block):
        taken += state.crossing[slot, at]
        at = (at if at > 0 else block) - 1
    return taken


@compiled
def steps_in_memory(fleet: Fleet, state: State, slot: int, most: int) -> int:
    """How many decode steps the free blocks allow, at most `most`."""
    instance = state.instance[slot]
    block, batch = fleet.kv_block_tokens, instance.batch
    free = capacity_blocks(fleet, slot) - instance.blocks
    steps = free // batch * block
    free -= free // batch * batch
    while steps < most:
        taken = state.crossing[slot, -(instance.steps + steps) % block]
        if taken > free:
            return steps
        free -= taken
        steps += 1
    return most


@compiled
def integrate_kv(state: State, pool: int, now: float) -> None:
    """Bring the pool's token-seconds up to now; call before its totals change."""
    elapsed = now - state.pool[pool].kv_since_s
    state.pool[pool].kv_used_area += state.pool[pool].kv_used * elapsed
    state.pool[pool].kv_room_area += state.pool[pool].kv_room * elapsed
    state.pool[pool].kv_since_s = now


@compiled
def see_kv(fleet: Fleet, state: State, slot: int, now: float) -> None:
    """Let the pool see what the slot holds now, after a change of its batch."""
    instance = state.instance[slot]
    if instance.status == Status.SERVING:
        pool = fleet.pool[slot]
        integrate_kv(state, pool, now)
        state.pool[pool].kv_used += instance.blocks * fleet.kv_block_tokens - instance.kv_seen
    instance.kv_seen = instance.blocks * fleet.kv_block_tokens
    note_change(fleet, state, slot)


@compiled
def is_under(state: State, pool: int, share: float) -> bool:
    """Whether the pool has serving instances and its utilisation is below `share`."""
    return state.pool[pool].kv_used < share * state.pool[pool].kv_room


@compiled
def longest_blocks(trace: Trace, fleet: Fleet, request: int) -> int:
    """KV blocks of the request with all its tokens."""
    return blocks_of(fleet, trace.input_tokens[request] + trace.output_tokens[request])


@compiled
def see_less(fleet: Fleet, state: State, slot: int, blocks: int, now: float) -> None:
    """The slot gives so many blocks back in mid-stretch: totals change by the difference."""
    instance = state.instance[slot]
    tokens = blocks * fleet.kv_block_tokens
    instance.blocks -= blocks
    instance.kv_seen -= tokens
    if instance.status == Status.SERVING:
        pool = fleet.pool[slot]
        integrate_kv(state, pool, now)
        state.pool[pool].kv_used -= tokens
    note_change(fleet, state, slot)


@compiled
def needed_blocks(trace: Trace, fleet: Fleet, state: State, request: int) -> int:
    """Blocks that one who waits would take: of the cache that it brings, or its prompt, and a token."""
    if fleet.hands_over and state.transfer[request].carried > 0:
        return blocks_of(fleet, state.transfer[request].carried + 1)
    return blocks_of(fleet, prompt_tokens(trace, state, request) + 1)


@compiled
def is_by_freeness(fleet: Fleet, pool: int) -> bool:
    """Whether the pool's instances stand in line by their freeness, and not by their load."""
    return fleet.by_freeness and fleet.role[pool] != Role.DECODE


@compiled
def note_change(fleet: Fleet, state: State, slot: int) -> None:
    """The slot's freeness may have risen: who dispatches next looks at it anew (freeness.py)."""
    instance = state.instance[slot]
    note_stale(state, slot)
    if fleet.by_freeness and not instance.is_changed:
        pool = fleet.pool[slot]
        instance.is_changed = True
        instance.next_changed = state.pool[pool].first_changed
        state.pool[pool].first_changed = slot


@compiled
def prompt_tokens(trace: Trace, state: State, request: int) -> int:
    """Tokens to prefill: the input, and after a preemption what had been generated too."""
    return trace.input_tokens[request] + state.request[request].generated
