"""Opportunism: prefill and decode stand apart, and a request does both where there is room (Cauchy 3.4.2).

At arrival, where the prefill instance is busy and the decode instance with least to do has nothing,
the request begins there. With its first token it stays at its prefill instance:

IDLE      where nobody else is there to be prefilled, as the text has it
WEIGHTED  where keep_weight * tokens left here < tokens left at the decode instance with least to do

The text gives no threshold. Read plainly, long answers fill the prefill instances; the weight, at least 1, is
to be found by replay.
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.engine.queue import is_unknown, somebody_waits
from fleetcast.models.replay.fleet.pools import assign
from fleetcast.models.replay.fleet.teams import first_slot, team_of
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Opportunism, Status


@called
def receiver(fleet: Fleet, state: State, slot: int) -> int:
    """Who decodes what the slot prefills: of its pool's takers, or its team's, the one with least to do.

    NOBODY where none serves; ties to the lowest slot.
    """
    pool = fleet.then[fleet.pool[slot]]
    if pool == NOBODY or fleet.slots[pool] == fleet.slots[pool + 1]:
        return NOBODY
    if fleet.team[pool] == 0:
        least = state.line[fleet.slots[pool]].shortest
        return least if state.instance[least].status == Status.SERVING else NOBODY
    least, team = NOBODY, team_of(fleet, slot)
    for other in range(first_slot(fleet, pool, team), first_slot(fleet, pool, team + 1)):
        if state.instance[other].status == Status.SERVING and (
            least == NOBODY or state.instance[other].load < state.instance[least].load
        ):
            least = other
    return least


@called
def begins_at(fleet: Fleet, rules: Rules, state: State, slot: int) -> int:
    """Where a request begins that is sent to the slot: there, or at an instance that decodes and is empty."""
    instance = state.instance[slot]
    if rules.opportunism == Opportunism.OFF or instance.joining + instance.batch == 0:
        return slot
    to = receiver(fleet, state, slot)
    return to if to != NOBODY and state.instance[to].load == 0 else slot


@called
def keeps(fleet: Fleet, rules: Rules, state: State, slot: int, to: int) -> bool:
    """Whether the slot keeps a request that has its first token, and would go to the other one."""
    instance = state.instance[slot]
    if rules.opportunism == Opportunism.WEIGHTED:
        return rules.keep_weight * instance.load < state.instance[to].load
    is_free = instance.joining == 0 and not somebody_waits(state, slot) and not is_unknown(state, slot)
    return rules.opportunism == Opportunism.IDLE and is_free


@called
def set_stay(trace: Trace, fleet: Fleet, state: State, slot: int, request: int, stays: bool) -> None:
    """From now on all of the request is the slot's to process, or what the slot's role says."""
    if state.transfer[request].stays != stays:
        assign(trace, fleet, state, slot, request, -1)
        state.transfer[request].stays = stays
        assign(trace, fleet, state, slot, request, 1)
