"""INFaaS: route to the instance with the least cost of queue, service time and state.

    cost = q + s + penalty        (multi-tier Llumnix 3.7, eq. 5)

q is the number of requests assigned to the instance. s is the time from dispatch to end in seconds, smoothed
over the requests that ended there. An instance is OVERLOADED if s > 1.3 target and q > 2 (penalty 1),
INTERFERED if s > 1.15 target and q <= 1 (penalty 1/2), else ACTIVE (no penalty). If any instance is ACTIVE,
only ACTIVE ones are considered. The rule uses neither levels nor memory. The target of 1 s and the weights of
1 each are those of the authors' released simulator.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.engine.ranks import assigned_requests
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Status

TARGET_S = 1.0
NEW_SHARE = 0.6  # weight of the latest request in the smoothed service time
OVERLOADED_SHARE, INTERFERED_SHARE = 1.3, 1.15  # of the target
OVERLOADED, INTERFERED = 1.0, 0.5  # penalties


@njit_call
def infaas_penalty(state: State, slot: int) -> float:
    """Return the penalty of the slot's state in its cost; 0: it is ACTIVE."""
    service_s, count = state.instance[slot].service_s, assigned_requests(state, slot)
    if service_s > OVERLOADED_SHARE * TARGET_S and count > 2:
        return OVERLOADED
    return INTERFERED if service_s > INTERFERED_SHARE * TARGET_S and count <= 1 else 0.0


@njit_call
def cheapest_instance(fleet: FleetArrays, state: State, pool: int) -> int:
    """Return the cheapest serving instance, of the ACTIVE ones if there are any; ties to the lowest slot."""
    best, best_cost, best_is_active = NO_INDEX, 0.0, False
    for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
        if state.instance[slot].status != Status.SERVING:
            continue
        penalty = infaas_penalty(state, slot)
        cost = assigned_requests(state, slot) + state.instance[slot].service_s + penalty
        is_active = penalty == 0.0
        if best == NO_INDEX or (is_active, -cost) > (best_is_active, -best_cost):
            best, best_cost, best_is_active = slot, cost, is_active
    return best


@njit_call
def note_service_time(state: State, slot: int, seconds: float) -> None:
    """Add to the slot's smoothed service time that of a request that ended `seconds` after its dispatch."""
    instance = state.instance[slot]
    before = instance.service_s
    instance.service_s = seconds if before == 0.0 else NEW_SHARE * seconds + (1.0 - NEW_SHARE) * before
