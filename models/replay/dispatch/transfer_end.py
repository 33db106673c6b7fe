"""End of a KV transfer: the cache has arrived, or is lost because one of the two instances failed."""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.kv_transfer import pop_in_flight
from fleetcast.models.replay.dispatch.migration import abort_migration, abort_migrations_to, cut_stretch_after
from fleetcast.models.replay.engine.admit import can_make_batch_room
from fleetcast.models.replay.engine.batch import cut_stretch_to_admit
from fleetcast.models.replay.engine.kv_memory import full_length_blocks, reduce_kv_in_use
from fleetcast.models.replay.engine.prefix import release_kv_blocks
from fleetcast.models.replay.engine.queue import (
    append_waiting,
    has_unnoticed_request,
    has_waiting_request,
    insert_in_order,
)
from fleetcast.models.replay.engine.step_time import steps_until
from fleetcast.models.replay.event_queue import mark_freeness_stale, reschedule_event
from fleetcast.models.replay.fleet.instance_load import assign_request
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Phase, Prefix, Status


@njit_call
def enqueue_request(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, request: int, now: float
) -> None:
    """Put the request into the slot's queue; the engine checks it at the first possible step boundary.

    For an async engine that is the end of the step after the current one.
    """
    mark_freeness_stale(state, slot)
    if append_waiting(trace, fleet, state, slot, request, now):
        check_queue_soon(trace, fleet, rules, state, slot, now)
    else:
        check_queue_later(fleet, rules, state, slot, now)


@njit_call
def check_queue_later(fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float) -> None:
    """Let an async engine end its stretch after the step that follows the current one."""
    instance = state.instance[slot]
    if instance.phase == Phase.DECODE and can_make_batch_room(fleet, rules, state, slot):
        # At base_s the first step of the stretch is not composed yet.
        has_begun = int(now > instance.base_s)
        cut_stretch_after(fleet, state, slot, has_begun * steps_until(fleet, state, slot, now) + 1)


@njit_call
def check_queue_soon(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Let the instance check its queue at the next step boundary."""
    instance = state.instance[slot]
    instance.queue_dirty = True
    if instance.phase == Phase.IDLE:
        reschedule_event(state, fleet.instance_slot[slot], now)
    elif instance.phase == Phase.DECODE:
        cut_stretch_to_admit(trace, fleet, rules, state, slot, now)


@njit_call
def deliver_cache(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, now: float
) -> None:
    """Handle the arrival of a cache: free the sender's memory and queue the request at its receiver."""
    release_sent_blocks(trace, fleet, rules, state, request, now)
    slot = state.request[request].served_by
    state.instance[slot].inbound -= 1
    state.transfer[request].came_s = now
    enqueue_request(trace, fleet, rules, state, slot, request, now)


@njit_call
def release_sent_blocks(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, now: float
) -> None:
    """Free the sender's memory from which the request's cache was sent."""
    slot, tokens = state.transfer[request].source_slot, state.transfer[request].sender_tokens
    state.transfer[request].source_slot, state.transfer[request].sender_tokens = NO_INDEX, 0
    if tokens == 0:
        return
    state.instance[slot].outbound -= 1
    state.instance[slot].reserved_blocks -= full_length_blocks(trace, fleet, slot, request)
    reduce_kv_in_use(
        fleet, state, slot, release_kv_blocks(trace, fleet, state, slot, request, tokens, tokens), now
    )
    assign_request(trace, fleet, state, slot, request, -1)
    state.instance[slot].queue_dirty = True
    if (
        state.instance[slot].status == Status.DRAINING
        or has_waiting_request(state, slot)
        or has_unnoticed_request(state, slot)
    ):
        check_queue_soon(trace, fleet, rules, state, slot, now)


@njit_call
def recall_in_flight(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Put all requests in flight from or to a failed instance into its first list, to be routed again."""
    instance = state.instance[slot]
    at = 0
    while at < state.progress.in_flight:
        request = state.transfer[at].in_flight
        # A migrating request still decodes: it stays at its instance, or fails with it.
        if state.transfer[request].migrating_to != NO_INDEX:
            if state.transfer[request].migrating_to == slot:
                abort_migration(fleet, state, request)
                at = 0
            else:
                at += 1
            continue
        if state.transfer[request].source_slot != slot and state.request[request].served_by != slot:
            at += 1
            continue
        pop_in_flight(state, request)
        if state.request[request].served_by != slot:
            state.instance[state.request[request].served_by].inbound -= 1
            assign_request(trace, fleet, state, state.request[request].served_by, request, -1)
        else:
            instance.inbound -= 1
        if state.transfer[request].source_slot != slot:
            release_sent_blocks(trace, fleet, rules, state, request, now)
        else:
            instance.outbound -= int(state.transfer[request].sender_tokens > 0)
            state.transfer[request].source_slot, state.transfer[request].sender_tokens = NO_INDEX, 0
        lose_cache(fleet, state, request)
        insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], 0, request)
        # The heap has changed, so start again.
        at = 0
    abort_migrations_to(fleet, state, slot)
    instance.out_free_s = instance.in_free_s = 0.0


@njit_call
def lose_cache(fleet: FleetArrays, state: State, request: int) -> None:
    """Count the request's transferred cache as lost; it must be computed again."""
    if fleet.prefix != Prefix.NONE:
        state.sharing[request].held_hashes = 0
    state.progress.lost_tokens += state.transfer[request].transferred_tokens
    state.transfer[request].transferred_tokens = 0
    state.request[request].preemptions += 1
