"""Opportunism: prefill and decode stand apart, and a request does both where there is room (Cauchy 3.4.2).

At arrival, where the prefill instance is busy and the decode instance with least to do has nothing,
the request begins there. With its first token it stays at its prefill instance:

IDLE      where nobody else is there to be prefilled, as the text has it
WEIGHTED  where opportunism_weight * tokens left here < tokens left at the decode instance with least to do

The text gives no threshold. Read plainly, long answers fill the prefill instances; the weight, at least 1, is
to be found by replay.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.engine.queue import has_unnoticed_request, has_waiting_request
from fleetcast.models.replay.fleet.instance_load import assign_request
from fleetcast.models.replay.fleet.teams import first_team_slot, team_index
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import ReplayState
from fleetcast.models.world.mechanisms import Opportunism, Status


@njit_call
def choose_decode_instance(fleet: FleetArrays, state: ReplayState, slot: int) -> int:
    """Who decodes what the slot prefills: of its pool's takers, or its team's, the one with least to do.

    NOBODY where none serves; ties to the lowest slot.
    """
    pool = fleet.then[fleet.pool[slot]]
    if pool == NO_INDEX or fleet.slots[pool] == fleet.slots[pool + 1]:
        return NO_INDEX
    if fleet.team[pool] == 0:
        least = state.line[fleet.slots[pool]].slot_heap
        return least if state.instance[least].status == Status.SERVING else NO_INDEX
    least, team = NO_INDEX, team_index(fleet, slot)
    for other in range(first_team_slot(fleet, pool, team), first_team_slot(fleet, pool, team + 1)):
        if state.instance[other].status == Status.SERVING and (
            least == NO_INDEX or state.instance[other].load < state.instance[least].load
        ):
            least = other
    return least


@njit_call
def starting_instance(fleet: FleetArrays, rules: Rules, state: ReplayState, slot: int) -> int:
    """Where a request begins that is sent to the slot: there, or at an instance that decodes and is empty."""
    instance = state.instance[slot]
    if rules.opportunism == Opportunism.OFF or instance.joining + instance.batch == 0:
        return slot
    to = choose_decode_instance(fleet, state, slot)
    return to if to != NO_INDEX and state.instance[to].load == 0 else slot


@njit_call
def should_keep_request(fleet: FleetArrays, rules: Rules, state: ReplayState, slot: int, to: int) -> bool:
    """Whether the slot keeps a request that has its first token, and would go to the other one."""
    instance = state.instance[slot]
    if rules.opportunism == Opportunism.WEIGHTED:
        return rules.opportunism_weight * instance.load < state.instance[to].load
    is_free = (
        instance.joining == 0
        and not has_waiting_request(state, slot)
        and not has_unnoticed_request(state, slot)
    )
    return rules.opportunism == Opportunism.IDLE and is_free


@njit_call
def set_both_phases(
    trace: TraceArrays, fleet: FleetArrays, state: ReplayState, slot: int, request: int, stays: bool
) -> None:
    """From now on all of the request is the slot's to process, or what the slot's role says."""
    if state.transfer[request].runs_both_phases != stays:
        assign_request(trace, fleet, state, slot, request, -1)
        state.transfer[request].runs_both_phases = stays
        assign_request(trace, fleet, state, slot, request, 1)
