"""INFaaS: the instance with the least cost of queue, service time and state (multi-tier Llumnix 3.7, eq. 5).

    cost = q + s + penalty

q requests that the instance has, s seconds from dispatch to end, smoothed over those that ended there. An
instance is OVERLOADED where s > 1.3 target and q > 2 (penalty 1), INTERFERED where s > 1.15 target and q <= 1
(penalty 1/2), else ACTIVE (none). While one is ACTIVE the others are not asked. It sees neither levels nor
memory. The target, 1 s, and the weights, 1 each, are those of the authors' released simulator.
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.inputs import NOBODY, Fleet
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Status

TARGET_S = 1.0
NEW_SHARE = 0.6  # of the latest request in what is smoothed
OVERLOADED_SHARE, INTERFERED_SHARE = 1.3, 1.15  # of the target
OVERLOADED, INTERFERED = 1.0, 0.5  # penalties


@called
def requests_at(state: State, slot: int) -> int:
    """Assigned to the slot and not finished."""
    count = 0
    for level in range(state.present.shape[1]):
        count += state.present[slot, level]
    return count


@called
def penalty(state: State, slot: int) -> float:
    """What the state of the instance adds to its cost; 0: it is ACTIVE."""
    service_s, count = state.instance[slot].service_s, requests_at(state, slot)
    if service_s > OVERLOADED_SHARE * TARGET_S and count > 2:
        return OVERLOADED
    return INTERFERED if service_s > INTERFERED_SHARE * TARGET_S and count <= 1 else 0.0


@called
def cheapest(fleet: Fleet, state: State, pool: int) -> int:
    """The serving instance with the least cost, of the ACTIVE ones if there are; ties to the lowest slot."""
    best, best_cost, best_is_active = NOBODY, 0.0, False
    for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
        if state.instance[slot].status != Status.SERVING:
            continue
        its = penalty(state, slot)
        cost, is_active = requests_at(state, slot) + state.instance[slot].service_s + its, its == 0.0
        if best == NOBODY or (is_active, -cost) > (best_is_active, -best_cost):
            best, best_cost, best_is_active = slot, cost, is_active
    return best


@called
def note_service(state: State, slot: int, seconds: float) -> None:
    """A request has ended here, so many seconds after it was sent here."""
    instance = state.instance[slot]
    before = instance.service_s
    instance.service_s = seconds if before == 0.0 else NEW_SHARE * seconds + (1.0 - NEW_SHARE) * before
