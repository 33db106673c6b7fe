"""Holdback: requests of lower levels wait centrally until their pool is emptier (llm-d's flow control).

A request of level p leaves the central queue while the saturation of its pool is below the ceiling of its
level. Ceilings fall linearly with the level, from 1 for level 0 to `least_ceiling_share` for the last one.

    saturation = mean over serving instances of max(waiting / 5, KV in use / (0.8 KV capacity))

So requests wait where higher levels can still overtake them, and not at an instance. Within a level the order
is first come, first served. Both limits are those of llm-d.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.engine.kv_memory import instance_kv_capacity, kv_tokens_in_use
from fleetcast.models.replay.engine.queue import push_back
from fleetcast.models.replay.engine.ranks import rank_slot, waiting_requests
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Status

WAITING_LIMIT = 5.0  # requests waiting at an instance
KV_LIMIT_SHARE = 0.8  # of the KV capacity


@njit_call
def pool_saturation(fleet: FleetArrays, state: State, pool: int) -> float:
    """Return the saturation of a pool with at least one serving instance; from 1 on it gets no request."""
    total, count = 0.0, 0
    for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
        if state.instance[slot].status == Status.SERVING:
            waiting = 0
            for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
                waiting += waiting_requests(state, rank_slot(fleet, slot, rank))
            kv_tokens = kv_tokens_in_use(fleet, state, slot)
            kv_share = kv_tokens / instance_kv_capacity(fleet, fleet.slot_kind[slot])
            total += max(waiting / WAITING_LIMIT, kv_share / KV_LIMIT_SHARE)
            count += 1
    return total / count


@njit_call
def can_leave_central_queue(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, pool: int
) -> bool:
    """Return whether the pool is empty enough for the request's level."""
    return pool_saturation(fleet, state, pool) < rules.ceiling_share[trace.level[request]]


@njit_call
def hold_in_central_queue(trace: TraceArrays, rules: Rules, state: State, request: int) -> None:
    """Append the request to the central queue of its llm, in the list of its level."""
    push_back(
        state,
        state.central["central_head"],
        state.central["central_tail"],
        central_list_index(trace, rules, request),
        request,
    )


@njit_call
def is_level_waiting(trace: TraceArrays, rules: Rules, state: State, request: int) -> bool:
    """Return whether other requests of its llm and level already wait in the central queue."""
    return state.central[central_list_index(trace, rules, request)].central_head != NO_INDEX


@njit_call
def central_list_index(trace: TraceArrays, rules: Rules, request: int) -> int:
    """Return the index of the request's list in state.central."""
    return trace.llm[request] * rules.ceiling_share.size + trace.level[request]
