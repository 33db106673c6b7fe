"""Live migration: move a request to another instance while it continues to decode (Llumnix 3.5).

The cache is copied in stages over the two links: first all that is cached, then what was added during the
copy, and so on. When at most `last_copy_tokens` are left, or after `max_copies`, the request leaves at the
next step boundary. The rest of its cache is then sent. `move_s` seconds after that the request joins the
other batch like any transferred cache. A move computes nothing. It is aborted if the request finishes or is
preempted before it leaves, or if the receiver no longer serves.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.kv_transfer import pop_in_flight, push_in_flight, transfer_token_s
from fleetcast.models.replay.engine.decode_batch import cached_tokens, place_in_batch, take_from_batch
from fleetcast.models.replay.engine.draft_tokens import tokens_of_steps
from fleetcast.models.replay.engine.kv_memory import full_length_blocks, prompt_tokens
from fleetcast.models.replay.engine.prefix import evict_prefix_blocks, release_kv_blocks
from fleetcast.models.replay.engine.ranks import rank_slot
from fleetcast.models.replay.engine.step_time import steps_until, stretch_s
from fleetcast.models.replay.event_queue import reschedule_event
from fleetcast.models.replay.fleet.instance_load import assign_request
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import MOVE_ABORTED, REQUEST_BITS, State
from fleetcast.models.world.mechanisms import Phase, Status

LEAVING = -1  # migration_stage of a request that leaves at the next step boundary


@njit_call
def start_migration(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, to: int, now: float
) -> bool:
    """Begin to move a decoding request to slot `to`; return False where that is not possible.

    It must decode at an instance of one rank that serves or drains, and must not be in a move. The receiver
    must serve, have the same llm and role, and be large enough.
    """
    slot = state.request[request].served_by
    if slot in (NO_INDEX, to) or state.transfer[request].migrating_to != NO_INDEX:
        return False
    if fleet.ranks[fleet.slot_kind[slot]] > 1 or fleet.ranks[fleet.slot_kind[to]] > 1:
        return False
    pool, other = fleet.pool[slot], fleet.pool[to]
    tokens = trace.input_tokens[request] + trace.output_tokens[request]
    if fleet.llm[pool] != fleet.llm[other] or fleet.role[pool] != fleet.role[other]:
        return False
    if (
        state.instance[slot].status not in (Status.SERVING, Status.DRAINING)
        or state.instance[to].status != Status.SERVING
    ):
        return False
    if tokens > fleet.max_request_tokens[other]:
        return False
    if place_in_batch(state, slot, request) == NO_INDEX:
        return False
    state.transfer[request].migrating_to = to
    state.transfer[request].migrated_tokens = 0
    state.transfer[request].migration_stage = 0
    state.instance[slot].migrating_out += 1
    state.instance[to].migrating_in += 1
    copy_next_stage(trace, fleet, rules, state, request, now)
    return True


@njit_call
def copy_next_stage(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, now: float
) -> None:
    """Copy what was cached since the last copy began, or let the request leave if little is left."""
    slot, to = state.request[request].served_by, state.transfer[request].migrating_to
    if state.instance[to].status != Status.SERVING:
        end_migration(fleet, state, request, MOVE_ABORTED)
        return
    cached = cached_tokens(trace, state, slot, place_in_batch(state, slot, request))
    cached += tokens_passed(fleet, state, slot, now)
    rest = cached - state.transfer[request].migrated_tokens
    if rest <= rules.last_copy_tokens or state.transfer[request].migration_stage >= rules.max_copies:
        state.transfer[request].migration_stage = LEAVING
        state.instance[slot].leaving += 1
        cut_stretch_soon(fleet, state, slot, now)
    else:
        state.transfer[request].migrated_tokens = cached
        state.transfer[request].migration_stage += 1
        send_stage(fleet, state, request, slot, to, rest, now)


@njit_call
def send_stage(
    fleet: FleetArrays, state: State, request: int, slot: int, to: int, tokens: int, now: float
) -> None:
    """Start the transfer of `tokens` of a cache, after all that is queued on both links."""
    instance = state.instance[slot]
    begin_s = max(now, instance.out_free_s, state.instance[to].in_free_s)
    state.transfer[request].ready_s = begin_s + tokens * transfer_token_s(fleet, slot, to)
    instance.out_free_s = state.instance[to].in_free_s = state.transfer[request].ready_s
    push_in_flight(state, request)


@njit_call
def release_migrated(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Send the leaving requests at a step boundary, after the finished ones, in the order of the trace."""
    instance = state.instance[slot]
    while instance.leaving > 0:
        request = next_leaving_request(state, slot)
        instance.leaving -= 1
        to = state.transfer[request].migrating_to
        if state.instance[to].status != Status.SERVING:
            end_migration(fleet, state, request, MOVE_ABORTED)
            continue
        end_migration(fleet, state, request, NO_INDEX)
        evict_prefix_blocks(fleet, state, slot, 0)
        take_from_batch(trace, fleet, state, slot, place_in_batch(state, slot, request))
        cached = prompt_tokens(trace, state, request) - 1
        instance.blocks -= release_kv_blocks(trace, fleet, state, slot, request, cached, cached)
        instance.reserved_blocks -= full_length_blocks(trace, fleet, slot, request)
        instance.queue_dirty = True
        assign_request(trace, fleet, state, slot, request, -1)
        assign_request(trace, fleet, state, to, request, 1)
        state.instance[to].inbound += 1
        state.request[request].served_by = to
        state.transfer[request].source_slot = slot
        state.transfer[request].transferred_tokens = cached
        state.transfer[request].sent_from, state.transfer[request].sent_s = slot, now
        send_stage(fleet, state, request, slot, to, cached - state.transfer[request].migrated_tokens, now)
        # The links are free when the cache has arrived; the request joins the batch move_s later.
        pop_in_flight(state, request)
        state.transfer[request].ready_s += rules.move_s
        push_in_flight(state, request)


@njit_call
def next_leaving_request(state: State, slot: int) -> int:
    """Return the first of the slot's leaving requests, in the order of the trace; NO_INDEX if none."""
    first = NO_INDEX
    for at in range(state.instance[slot].batch):
        request = state.finish_key[slot, at] & REQUEST_BITS
        if (
            state.transfer[request].migrating_to != NO_INDEX
            and state.transfer[request].migration_stage == LEAVING
        ):
            first = request if first == NO_INDEX else min(first, request)
    return first


@njit_call
def abort_migration(fleet: FleetArrays, state: State, request: int) -> None:
    """Abort the move of a request; it stays at its instance, or is queued there again by the caller."""
    if state.transfer[request].migration_stage == LEAVING:
        state.instance[state.request[request].served_by].leaving -= 1
    else:
        pop_in_flight(state, request)
    end_migration(fleet, state, request, MOVE_ABORTED)


@njit_call
def end_migration(fleet: FleetArrays, state: State, request: int, counted: int) -> None:
    """End the copying of a request; `counted` is the column of state.moved to count it in, or NO_INDEX."""
    slot = state.request[request].served_by
    if counted != NO_INDEX:
        state.moved[fleet.pool[slot], counted] += 1
    state.instance[slot].migrating_out -= 1
    state.instance[state.transfer[request].migrating_to].migrating_in -= 1
    state.transfer[request].migrating_to, state.transfer[request].migration_stage = NO_INDEX, 0


@njit_call
def abort_migrations_to(fleet: FleetArrays, state: State, dead: int) -> None:
    """Abort the moves of leaving requests to an instance that has died."""
    for slot in range(state.instance.size):
        if state.instance[slot].leaving > 0:
            for at in range(state.instance[slot].batch):
                request = state.finish_key[slot, at] & REQUEST_BITS
                if state.transfer[request].migrating_to == dead:
                    abort_migration(fleet, state, request)


@njit_call
def steps_passed(fleet: FleetArrays, state: State, slot: int, now: float) -> int:
    """Return the number of steps of the slot's stretch whose boundary has passed at this instant."""
    if state.instance[slot].phase != Phase.DECODE:
        return 0
    steps = steps_until(fleet, state, slot, now)
    return steps if is_boundary_passed(fleet, state, slot, steps, now) else steps - 1


@njit_call
def tokens_passed(fleet: FleetArrays, state: State, slot: int, now: float) -> int:
    """Return how many tokens of each decoding request these steps have made."""
    return tokens_of_steps(fleet, state, slot, steps_passed(fleet, state, slot, now))


@njit_call
def is_boundary_passed(fleet: FleetArrays, state: State, slot: int, steps: int, now: float) -> bool:
    """Return whether the boundary after `steps` is at exactly this instant and the slot has passed it.

    It has if the slot comes before the last clock that ran at this instant.
    """
    at_s = state.instance[slot].base_s + stretch_s(fleet, state, slot, steps)
    return at_s == now and fleet.instance_slot[slot] < state.progress.last_clock


@njit_call
def cut_stretch_soon(fleet: FleetArrays, state: State, slot: int, now: float) -> None:
    """End a stretch at the next step boundary."""
    if state.instance[slot].phase == Phase.DECODE:
        cut_stretch_after(fleet, state, slot, steps_passed(fleet, state, slot, now) + 1)


@njit_call
def cut_stretch_after(fleet: FleetArrays, state: State, slot: int, steps: int) -> None:
    """End a stretch after `steps` of its steps, if it is longer."""
    instance = state.instance[slot]
    if steps < instance.stretch:
        slot = fleet.instance_slot[slot]
        for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
            state.instance[rank_slot(fleet, slot, rank)].stretch = steps
        reschedule_event(state, slot, instance.base_s + stretch_s(fleet, state, slot, steps))
