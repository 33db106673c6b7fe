"""An instance dies: its VM is gone, and its requests go elsewhere."""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.deliver import lose, recall
from fleetcast.models.replay.dispatch.handover import brings_cache
from fleetcast.models.replay.dispatch.route import route
from fleetcast.models.replay.engine.leap import steps_until
from fleetcast.models.replay.engine.preempt import drop_last_decoding, drop_last_joining
from fleetcast.models.replay.engine.queue import insert_in_order, pop_front
from fleetcast.models.replay.events import reschedule
from fleetcast.models.replay.fleet.life import change_status
from fleetcast.models.replay.fleet.teams import first_slot, is_led, team_of
from fleetcast.models.replay.inputs import NEVER, NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Phase, Prefix, Status


@called
def fail(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """The instance dies, and its team with it: VMs are gone, requests are routed anew, in turn."""
    if state.instance[slot].status != Status.SERVING:
        return
    pool = fleet.pool[slot]
    if fleet.team[pool] == 0:
        lose_vm(trace, fleet, rules, state, slot, now)
        route_anew(trace, fleet, rules, state, slot, now)
        return
    team = team_of(fleet, slot)
    lead = pool
    if is_led(fleet, pool):
        for other in range(fleet.kind.size):
            lead = other if fleet.then[other] == pool else lead
    for is_routed in (False, True):
        for side in (lead, fleet.then[lead]):
            for member in range(first_slot(fleet, side, team), first_slot(fleet, side, team + 1)):
                if is_routed:
                    route_anew(trace, fleet, rules, state, member, now)
                elif state.instance[member].status == Status.SERVING:
                    lose_vm(trace, fleet, rules, state, member, now)


@called
def lose_vm(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """The VM is gone, and with it what is cached there: its requests wait at it to be routed anew."""
    change_status(fleet, state, slot, Status.GONE, now)
    if fleet.hands_over:
        recall(trace, fleet, rules, state, slot, now)
    empty_instance(trace, fleet, state, slot, now)


@called
def route_anew(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Route those that wait at an instance that is gone, in order of their arrival."""
    if state.instance[slot].status != Status.GONE:
        return
    request = state.lane[slot, 0].head
    state.lane[slot, 0].head = NOBODY
    while request != NOBODY:
        behind = state.request[request].next
        if brings_cache(fleet, state, request):
            lose(fleet, state, request)
        state.request[request].served_by = NOBODY
        if state.request[request].generated == 0 and fleet.is_interactive[trace.tier[request]]:
            state.pool[fleet.pool[slot]].waiting_tokens -= trace.input_tokens[request]
        route(trace, fleet, rules, state, request, now)
        request = behind


@called
def empty_instance(trace: Trace, fleet: Fleet, state: State, slot: int, now: float) -> None:
    """Take everything off the slot and gather its requests in its first list, in order of arrival."""
    instance = state.instance[slot]
    if instance.phase == Phase.DECODE:  # the step under way is lost, those before it are not
        done = steps_until(fleet, state, slot, now) - 1
        instance.steps += done
        state.progress.cached_tokens += done * instance.batch
    heads, tails = state.lane[slot]["head"], state.lane[slot]["tail"]
    for at in range(1, heads.size):
        while heads[at] != NOBODY:
            insert_in_order(state, heads, tails, 0, pop_front(state, heads, at))
    while instance.joining + instance.batch > 0:
        if instance.joining > 0:
            request = drop_last_joining(trace, fleet, state, slot)
        else:
            request = drop_last_decoding(trace, fleet, False, state, slot)
        state.request[request].preemptions += 1
        if fleet.prefix != Prefix.NONE:
            state.sharing[request].held_hashes = 0
        insert_in_order(state, heads, tails, 0, request)
    instance.kv = instance.blocks = instance.kv_seen = state.instance[slot].reserved = 0
    instance.load = instance.interactive = instance.waiting_blocks = 0
    for level in range(state.present.shape[1]):
        state.present[slot, level] = 0
    instance.pending = instance.prefilled = 0
    instance.look = False
    instance.phase = Phase.IDLE
    reschedule(state, slot, NEVER)
