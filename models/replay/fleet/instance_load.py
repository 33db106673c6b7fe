"""Pools: which instances serve which tiers, and which of a pool's instances has least to do.

The rows of a fleet are written by models/world/pool_rows.py; the kernel sees rows only.
"""

from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.engine.kv_memory import is_ranked_by_freeness, note_freeness_change
from fleetcast.models.replay.event_queue import sift_heap
from fleetcast.models.replay.kernel_inputs import NEVER, FleetArrays, TraceArrays
from fleetcast.models.replay.state import ReplayState
from fleetcast.models.world.mechanisms import Prefix, Role, Status


@njit_inline
def endpoint_index(fleet: FleetArrays, llm: int, region: int) -> int:
    """The endpoint: all pools of an llm in a region."""
    return llm * fleet.preference.shape[0] + region


@njit_inline
def is_batch_pool(fleet: FleetArrays, pool: int) -> bool:
    """Whether the pool takes other requests than interactive ones only."""
    takes_others = False
    for tier in range(fleet.is_interactive.size):
        if fleet.takes[pool, tier]:
            if fleet.is_interactive[tier]:
                return False
            takes_others = True
    return takes_others


@njit_inline
def work_tokens(trace: TraceArrays, fleet: FleetArrays, state: ReplayState, slot: int, request: int) -> int:
    """Tokens of the request that are the slot's to process: the prompt, the answer, or both.

    By its role, unless the request stays there. Not those of the prompt that were cached where it was sent.
    """
    prompt, answer = trace.input_tokens[request], trace.output_tokens[request]
    if fleet.prefix != Prefix.NONE:
        prompt -= state.sharing[request].hit_tokens_at_dispatch
    is_parted = fleet.has_transfers and not state.transfer[request].runs_both_phases
    role = fleet.role[fleet.pool[slot]] if is_parted else Role.WHOLE
    if role == Role.PREFILL:
        return prompt
    return answer if role == Role.DECODE else prompt + answer


@njit_inline
def assign_request(
    trace: TraceArrays, fleet: FleetArrays, state: ReplayState, slot: int, request: int, change: int
) -> None:
    """The request is the instance's from now on (change = 1), or no more (-1)."""
    instance = state.instance[slot]
    instance.load += change * work_tokens(trace, fleet, state, slot, request)
    if fleet.is_interactive[trace.tier[request]]:
        was_busy = int(instance.interactive > 0)
        instance.interactive += change
        if instance.status == Status.SERVING:
            state.pool[fleet.pool[slot]].busy_instances += int(instance.interactive > 0) - was_busy
    state.requests_by_level[slot, trace.level[request]] += change
    update_line_position(fleet, state, slot)


@njit_inline
def update_line_position(fleet: FleetArrays, state: ReplayState, slot: int) -> None:
    """Put the slot where its load, or freeness, belongs in its pool; those that do not serve go last."""
    instance = state.instance[slot]
    pool = fleet.pool[slot]
    note_freeness_change(fleet, state, slot)
    if is_ranked_by_freeness(fleet, pool) and instance.status == Status.SERVING:
        return  # who dispatches next finds its place
    state.line[slot].sort_key = instance.load if instance.status == Status.SERVING else NEVER
    first = fleet.slots[pool]
    size = fleet.slots[pool + 1] - first
    sift_heap(
        state.line["sort_key"],
        state.line["slot_heap"],
        state.line["slot_heap_position"],
        first,
        size,
        slot,
    )
