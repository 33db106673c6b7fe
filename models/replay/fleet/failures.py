"""Failures: an instance loses its VM, and its requests are routed again."""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.kv_transfer import has_transferred_cache
from fleetcast.models.replay.dispatch.route import route_request
from fleetcast.models.replay.dispatch.transfer_end import lose_cache, recall_in_flight
from fleetcast.models.replay.engine.preempt import drop_decoding, drop_joining
from fleetcast.models.replay.engine.queue import insert_in_order, pop_front
from fleetcast.models.replay.engine.ranks import rank_slot
from fleetcast.models.replay.engine.step_end import count_decode_steps
from fleetcast.models.replay.engine.step_time import steps_until
from fleetcast.models.replay.event_queue import reschedule_event
from fleetcast.models.replay.fleet.lifecycle import change_status
from fleetcast.models.replay.fleet.teams import first_team_slot, is_led_pool, team_index
from fleetcast.models.replay.kernel_inputs import ALL_TURNS, NEVER, NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Phase, Prefix, Status


@njit_call
def fail_instance(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Fail a serving instance, and its whole team: release the VMs, then reroute the requests in order."""
    if state.instance[slot].status != Status.SERVING:
        return
    pool = fleet.pool[slot]
    if fleet.team[pool] == 0:
        lose_vm(trace, fleet, rules, state, slot, now)
        reroute_requests(trace, fleet, rules, state, slot, now)
        return
    team = team_index(fleet, slot)
    lead = pool
    if is_led_pool(fleet, pool):
        for other in range(fleet.kind.size):
            lead = other if fleet.then[other] == pool else lead
    for is_routed in (False, True):
        for side in (lead, fleet.then[lead]):
            for member in range(first_team_slot(fleet, side, team), first_team_slot(fleet, side, team + 1)):
                if is_routed:
                    reroute_requests(trace, fleet, rules, state, member, now)
                elif state.instance[member].status == Status.SERVING:
                    lose_vm(trace, fleet, rules, state, member, now)


@njit_call
def lose_vm(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Release the VM and all that is cached there; its requests gather in its first list to be rerouted."""
    change_status(fleet, state, slot, Status.GONE, now)
    if fleet.has_transfers:
        recall_in_flight(trace, fleet, rules, state, slot, now)
    # The current step is lost, the steps before it are not.
    steps = 0
    if state.instance[slot].phase == Phase.DECODE:
        steps = steps_until(fleet, state, slot, now) - 1
    for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
        empty_rank(trace, fleet, state, rank_slot(fleet, slot, rank), steps)
    reschedule_event(state, slot, NEVER)


@njit_call
def reroute_requests(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Route the requests gathered at an instance that is GONE, in order of arrival."""
    if state.instance[slot].status != Status.GONE:
        return
    request = state.lane[slot, 0].head
    state.lane[slot, 0].head = NO_INDEX
    while request != NO_INDEX:
        behind = state.request[request].next
        if has_transferred_cache(fleet, state, request):
            lose_cache(fleet, state, request)
        state.request[request].served_by = NO_INDEX
        if state.request[request].generated == 0 and fleet.is_interactive[trace.tier[request]]:
            state.pool[fleet.pool[slot]].waiting_tokens -= trace.input_tokens[request]
        route_request(trace, fleet, rules, state, request, now)
        request = behind


@njit_call
def empty_rank(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, steps: int) -> None:
    """Empty the slot and gather its requests in the first list of its instance, in order of arrival.

    `steps`: of its stretch, whose tokens are not lost.
    """
    instance, first = state.instance[slot], fleet.instance_slot[slot]
    count_decode_steps(fleet, state, slot, steps)
    heads, tails = state.lane[first]["head"], state.lane[first]["tail"]
    own = state.lane[slot]["head"]
    for at in range(int(slot == first), own.size):
        while own[at] != NO_INDEX:
            insert_in_order(state, heads, tails, 0, pop_front(state, own, at))
    while instance.joining + instance.batch > 0:
        if instance.joining > 0:
            request = instance.joining_head
            drop_joining(trace, fleet, state, slot, request)
        else:
            request = drop_decoding(trace, fleet, state, slot, instance.batch - 1)
        state.request[request].preemptions += 1
        if fleet.prefix != Prefix.NONE:
            state.sharing[request].held_hashes = 0
        insert_in_order(state, heads, tails, 0, request)
    instance.kv = instance.blocks = instance.counted_kv_tokens = state.instance[slot].reserved_blocks = 0
    instance.load = instance.interactive = instance.waiting_blocks = instance.waiting_tokens = 0
    for level in range(state.requests_by_level.shape[1]):
        state.requests_by_level[slot, level] = 0
    instance.pending_prompt_tokens = instance.prefilled = 0
    instance.last_turn = ALL_TURNS
    instance.queue_dirty = False
    instance.phase = Phase.IDLE
