"""KV transfer: send a request's KV cache from one instance to another.

An instance of a prefill pool sends a request on with its first token (Cauchy 3.4, 3.6; Splitwise, DistServe).
Each instance has one link. It carries one cache at a time, first come, first served: so the end of a transfer
is known when it is sent, in O(1). In bulk, the cache leaves when the prefill step ends. By layer, the first
of n parts leaves after one n-th of the step and the last part after its end:

    begin = max(sender's link is free, receiver's link is free, first part is computed)
    ready = max(end of the step + X / n, begin + X)          X = tokens * seconds per token of the slower link

The sender's blocks stay in use until `ready`. The receiver counts the request in its load at once. It puts it
in its queue when the cache has arrived, and admits it at the first step boundary with room in the batch; that
takes no computation. All transfers in flight are in one heap by (ready_s, request).
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.opportunism import (
    choose_decode_instance,
    set_both_phases,
    should_keep_request,
)
from fleetcast.models.replay.event_queue import reschedule_event, sift_transfers
from fleetcast.models.replay.fleet.instance_load import assign_request
from fleetcast.models.replay.kernel_inputs import NEVER, NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State


@njit_call
def has_transferred_cache(fleet: FleetArrays, state: State, request: int) -> bool:
    """Return whether the request's cache was sent with it, so that it need not be computed."""
    return fleet.has_transfers and state.transfer[request].transferred_tokens > 0


@njit_call
def start_transfer(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, request: int, now: float
) -> bool:
    """Send a request that has its first token to a decode instance; return False where it stays."""
    instance = state.instance[slot]
    to = choose_decode_instance(fleet, state, slot)
    if to == NO_INDEX:
        return False
    is_kept = should_keep_request(rules, state, slot, to)
    set_both_phases(trace, fleet, state, slot, request, is_kept)
    if is_kept:
        return False
    cached = trace.input_tokens[request] + state.request[request].generated - 1
    seconds = cached * transfer_token_s(fleet, slot, to)
    layers = fleet.link_layers[fleet.slot_kind[slot]]
    computed_s = now - (now - instance.base_s) * (1 - 1 / layers)
    begin_s = max(computed_s, instance.out_free_s, state.instance[to].in_free_s)
    ready_s = max(now + seconds / layers, begin_s + seconds)
    instance.out_free_s = state.instance[to].in_free_s = ready_s
    instance.outbound += 1
    state.instance[to].inbound += 1
    state.transfer[request].transferred_tokens = cached
    state.transfer[request].sender_tokens = cached
    state.transfer[request].source_slot = slot
    state.transfer[request].ready_s = ready_s
    state.request[request].served_by = to
    state.transfer[request].sent_from, state.transfer[request].sent_s = slot, now
    assign_request(trace, fleet, state, to, request, 1)
    if fleet.is_interactive[trace.tier[request]]:
        state.pool[fleet.pool[to]].routed_tokens += trace.input_tokens[request]
    push_in_flight(state, request)
    return True


@njit_call
def transfer_token_s(fleet: FleetArrays, slot: int, to: int) -> float:
    """Return the seconds in which one token's cache goes from slot to slot, over the slower link."""
    return max(fleet.link_token_s[fleet.slot_kind[slot]], fleet.link_token_s[fleet.slot_kind[to]])


@njit_call
def push_in_flight(state: State, request: int) -> None:
    """Add a request, whose ready_s is set, to the transfers in flight."""
    size = state.progress.in_flight
    state.transfer[size].in_flight, state.transfer[request].in_flight_position = request, size
    state.progress.in_flight += 1
    sift_transfers(state, size + 1, request)
    set_transfer_clock(state)


@njit_call
def pop_in_flight(state: State, request: int) -> None:
    """Remove a request from the transfers in flight."""
    size, at = state.progress.in_flight - 1, state.transfer[request].in_flight_position
    last = state.transfer[size].in_flight
    state.progress.in_flight = size
    if last != request:
        state.transfer[at].in_flight, state.transfer[last].in_flight_position = last, at
        sift_transfers(state, size, last)
    set_transfer_clock(state)


@njit_call
def set_transfer_clock(state: State) -> None:
    """Set the clock of the transfers to the end of the next one."""
    next_s = state.transfer[state.transfer[0].in_flight].ready_s if state.progress.in_flight > 0 else NEVER
    reschedule_event(state, state.instance.size, next_s)
