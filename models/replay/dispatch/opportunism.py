"""Opportunism: with separate prefill and decode pools, run both phases at one instance where there is room.

Source: Cauchy 3.4.2. At arrival, if the prefill instance is busy and the least loaded decode instance is
empty, the request begins at the decode instance. With its first token it stays at its prefill instance

IDLE      if it runs nothing else and nothing waits there, as in the paper's text (4.5: "any idle instance")
UNQUEUED  if no other request is there to be prefilled, whatever it decodes: the other reading
WEIGHTED  if opportunism_weight * tokens left here < tokens left at the least loaded decode instance

The paper gives no threshold. With UNQUEUED, long answers fill the prefill instances. The weight, at least 1,
has to be found by replays.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.engine.queue import has_unnoticed_request, has_waiting_request
from fleetcast.models.replay.fleet.instance_load import assign_request
from fleetcast.models.replay.fleet.teams import first_team_slot, team_index
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Opportunism, Status


@njit_call
def choose_decode_instance(fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the least loaded instance of the pool, or of the slot's team, that decodes what it prefills.

    NO_INDEX if none serves; ties to the lowest slot.
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
def starting_instance(fleet: FleetArrays, rules: Rules, state: State, slot: int) -> int:
    """Return where a request routed to the slot begins: at the slot, or at an empty decode instance."""
    instance = state.instance[slot]
    if rules.opportunism == Opportunism.OFF or instance.joining + instance.batch == 0:
        return slot
    to = choose_decode_instance(fleet, state, slot)
    return to if to != NO_INDEX and state.instance[to].load == 0 else slot


@njit_call
def should_keep_request(rules: Rules, state: State, slot: int, to: int) -> bool:
    """Return whether the slot keeps a request that has its first token, and does not send it to `to`."""
    instance = state.instance[slot]
    if rules.opportunism == Opportunism.WEIGHTED:
        return rules.opportunism_weight * instance.load < state.instance[to].load
    if instance.joining > 0 or has_waiting_request(state, slot) or has_unnoticed_request(state, slot):
        return False
    is_idle = rules.opportunism == Opportunism.IDLE and instance.batch == 0
    return is_idle or rules.opportunism == Opportunism.UNQUEUED


@njit_call
def set_both_phases(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, runs_both: bool
) -> None:
    """Set whether the slot runs both phases of the request, or the phase of its role, and adjust its load."""
    if state.transfer[request].runs_both_phases != runs_both:
        assign_request(trace, fleet, state, slot, request, -1)
        state.transfer[request].runs_both_phases = runs_both
        assign_request(trace, fleet, state, slot, request, 1)
