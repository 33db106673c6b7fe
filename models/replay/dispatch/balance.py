"""Balancer: move requests from the least free instance of a pool to the freest (multi-tier Llumnix 3.5).

It runs every `balance_s` seconds, after the control tick and before all other events of that instant. The
least free instance and the freest are a pair if F_to - F_from >= gap_blocks and F_from <= from_blocks; then
the next two are, and so on. A pair moves one request. First choice is the first waiting request of the lowest
lane (or the highest), which costs nothing. Second choice is a decoding request, by a live move
(migration.py): the lowest level, then the fewest blocks, then the latest admission. With the guard, the
request moves only if the receiver is then freer than the source was. An instance takes part in one move at a
time. An instance that drains is always a source.

Freeness only falls between two changes of an instance. If no pair is possible before the next event, the
balancer skips the ticks until then.
"""

import math

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.freeness import (
    free_blocks,
    freeness_bounds,
    instance_freeness,
    known_steps,
    running_requests,
)
from fleetcast.models.replay.dispatch.migration import start_migration, tokens_passed
from fleetcast.models.replay.dispatch.transfer_end import check_queue_soon, enqueue_request
from fleetcast.models.replay.engine.decode_batch import cached_tokens
from fleetcast.models.replay.engine.kv_memory import admission_blocks, kv_blocks
from fleetcast.models.replay.engine.prefix import reusable_tokens
from fleetcast.models.replay.engine.queue import (
    first_waiting_lane,
    has_unnoticed_request,
    has_waiting_request,
    pop_front,
    queue_class_count,
)
from fleetcast.models.replay.event_queue import mark_freeness_stale
from fleetcast.models.replay.fleet.instance_load import assign_request
from fleetcast.models.replay.kernel_inputs import NEVER, NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import MOVED_LIVE, MOVED_QUEUED, REQUEST_BITS, State
from fleetcast.models.world.mechanisms import Prefix, Status

NOT_PAIRED = math.nan  # freeness of an instance that is in no pair at this tick


@njit_call
def balance_pools(trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, now: float) -> bool:
    """Run a tick for all pools; return whether a pair is possible before the next event."""
    refresh_stale_bounds(trace, fleet, rules, state, now)
    is_awake = False
    for pool in range(fleet.kind.size):
        if fleet.slots[pool + 1] - fleet.slots[pool] > 1:
            is_awake = move_between_pairs(trace, fleet, rules, state, pool, now) or is_awake
    return is_awake


@njit_call
def move_between_pairs(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, now: float
) -> bool:
    """Move one request of each pair of the pool; return whether a pair is possible before the next event.

    A move changes the freeness of its two instances only, and they are in no other pair of this tick. So each
    instance is evaluated at most once, and only if its bounds allow a pair: possible sources first, then, if
    there is one, possible receivers.
    """
    lowest, highest = state.pool[pool].min_freeness, state.pool[pool].max_freeness
    if not can_pair(rules, lowest, highest):
        return False
    first, end = fleet.slots[pool], fleet.slots[pool + 1]
    for slot in range(first, end):
        state.instance[slot].freeness = NOT_PAIRED
        if can_pair(rules, state.instance[slot].freeness_lower, highest):
            evaluate_freeness(trace, fleet, rules, state, slot, now)
    source, _ = freeness_extremes(state, first, end)
    if source == NO_INDEX or state.instance[source].freeness > rules.from_blocks:
        return True
    for slot in range(first, end):
        if math.isnan(state.instance[slot].freeness) and can_pair(
            rules, lowest, state.instance[slot].freeness_upper
        ):
            evaluate_freeness(trace, fleet, rules, state, slot, now)
    while True:
        source, to = freeness_extremes(state, first, end)
        if source in (NO_INDEX, to) or to == NO_INDEX:
            return True
        source_freeness = state.instance[source].freeness
        if not can_pair(rules, source_freeness, state.instance[to].freeness):
            return True
        state.instance[source].freeness = state.instance[to].freeness = NOT_PAIRED
        move_one_request(trace, fleet, rules, state, source, to, source_freeness, now)


@njit_call
def freeness_extremes(state: State, first: int, end: int) -> tuple[int, int]:
    """Return the least free and the freest slot in no pair yet; ties to the lowest slot, NO_INDEX if none."""
    source, to, least, most = NO_INDEX, NO_INDEX, NEVER, -NEVER
    for slot in range(first, end):
        freeness = state.instance[slot].freeness
        if freeness < least:
            source, least = slot, freeness
        if freeness > most:
            to, most = slot, freeness
    return source, to


@njit_call
def evaluate_freeness(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Set the slot's freeness at this tick unless it takes part in a move; -inf if it drains."""
    instance = state.instance[slot]
    if is_migrating(state, slot):
        return
    instance.freeness = instance.freeness_upper
    if instance.bounds_updated_s < now and instance.status == Status.SERVING:
        instance.freeness = instance_freeness(trace, fleet, rules, state, slot, now)


@njit_call
def refresh_stale_bounds(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, now: float
) -> None:
    """Compute the freeness bounds of the changed instances again, and with them those of their pools."""
    count, state.progress.stale = state.progress.stale, 0
    for at in range(count):
        slot = state.instance[at].stale
        pool, lowest, highest = (
            fleet.pool[slot],
            state.instance[slot].freeness_lower,
            state.instance[slot].freeness_upper,
        )
        refresh_freeness_bounds(trace, fleet, rules, state, slot, now)
        state.pool[pool].min_freeness = min(
            state.pool[pool].min_freeness, state.instance[slot].freeness_lower
        )
        state.pool[pool].max_freeness = max(
            state.pool[pool].max_freeness, state.instance[slot].freeness_upper
        )
        was_least = lowest == state.pool[pool].min_freeness and lowest < state.instance[slot].freeness_lower
        if was_least or (
            highest == state.pool[pool].max_freeness and highest > state.instance[slot].freeness_upper
        ):
            state.pool[pool].min_freeness, state.pool[pool].max_freeness = NEVER, -NEVER
            for other in range(fleet.slots[pool], fleet.slots[pool + 1]):
                state.pool[pool].min_freeness = min(
                    state.pool[pool].min_freeness, state.instance[other].freeness_lower
                )
                state.pool[pool].max_freeness = max(
                    state.pool[pool].max_freeness, state.instance[other].freeness_upper
                )


@njit_call
def refresh_freeness_bounds(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Set the bounds of the slot's freeness until it changes: at most the value now, at least at stretch end.

    They do not hold if an async engine may notice a request before that: then they stay stale, and are
    computed again at every tick.
    """
    instance = state.instance[slot]
    instance.freeness_upper, instance.freeness_lower = -NEVER, NEVER
    if instance.status == Status.SERVING:
        instance.freeness_upper, instance.freeness_lower = freeness_bounds(
            trace, fleet, rules, state, slot, now
        )
    elif instance.status == Status.DRAINING and instance.load > 0:
        instance.freeness_lower = -NEVER
    instance.bounds_updated_s, state.clock[slot].is_stale = now, False
    if has_unnoticed_request(state, slot):
        mark_freeness_stale(state, slot)


@njit_call
def can_pair(rules: Rules, least: float, most: float) -> bool:
    """Return whether two freeness values are far enough apart for a pair, and the lower one low enough."""
    return most - least >= rules.gap_blocks and least <= rules.from_blocks


@njit_call
def is_migrating(state: State, slot: int) -> bool:
    """Return whether a request is being copied from or to the instance, or is in flight to it."""
    instance = state.instance[slot]
    return instance.migrating_out + instance.migrating_in + instance.inbound > 0


@njit_call
def move_one_request(
    trace: TraceArrays,
    fleet: FleetArrays,
    rules: Rules,
    state: State,
    slot: int,
    to: int,
    source_freeness: float,
    now: float,
) -> None:
    """Move the first eligible request of the slot, whose freeness is given, to the other slot; or none."""
    lanes = queue_class_count(rules, state)
    for n in range(lanes):
        at = first_waiting_lane(rules, state, slot, lanes - 1 - n if rules.lowest_first else n)
        if at == NO_INDEX or state.transfer[state.lane[slot, at].head].transferred_tokens > 0:
            continue
        request = state.lane[slot, at].head
        if is_move_worthwhile(
            trace,
            fleet,
            rules,
            state,
            to,
            admission_blocks(trace, fleet, state, slot, request),
            source_freeness,
            now,
        ):
            move_waiting_request(trace, fleet, rules, state, slot, at, to, now)
            state.moved[fleet.pool[slot], MOVED_QUEUED] += 1
        return
    request, blocks = choose_decoding_request(trace, fleet, state, slot, now)
    if (
        request != NO_INDEX
        and is_move_worthwhile(trace, fleet, rules, state, to, blocks, source_freeness, now)
        and start_migration(trace, fleet, rules, state, request, to, now)
    ):
        state.moved[fleet.pool[slot], MOVED_LIVE] += 1


@njit_call
def is_move_worthwhile(
    trace: TraceArrays,
    fleet: FleetArrays,
    rules: Rules,
    state: State,
    to: int,
    blocks: int,
    source_freeness: float,
    now: float,
) -> bool:
    """Return whether slot `to`, with `blocks` more, is still freer than the source is now (the guard)."""
    if not rules.is_guarded:
        return True
    steps = known_steps(trace, fleet, state, to, now)
    free = free_blocks(trace, fleet, rules, state, to, steps)
    return (free - blocks) / (running_requests(state, to) + 1) > source_freeness


@njit_call
def move_waiting_request(
    trace: TraceArrays,
    fleet: FleetArrays,
    rules: Rules,
    state: State,
    slot: int,
    lane: int,
    to: int,
    now: float,
) -> None:
    """Move the first waiting request of a lane to slot `to`; the requests behind it may now be admitted."""
    request = pop_front(state, state.lane[slot]["head"], lane)
    state.instance[slot].waiting_blocks -= admission_blocks(trace, fleet, state, slot, request)
    assign_request(trace, fleet, state, slot, request, -1)
    state.request[request].served_by = to
    if fleet.prefix != Prefix.NONE:
        state.sharing[request].hit_tokens_at_dispatch = reusable_tokens(trace, fleet, state, to, request)
    assign_request(trace, fleet, state, to, request, 1)
    if has_waiting_request(state, slot):
        check_queue_soon(trace, fleet, rules, state, slot, now)
    enqueue_request(trace, fleet, rules, state, to, request, now)


@njit_call
def choose_decoding_request(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, now: float
) -> tuple[int, int]:
    """Return the decoding request to move, and its blocks: lowest level, fewest blocks, latest admission."""
    instance = state.instance[slot]
    best, best_blocks = NO_INDEX, 0
    passed = tokens_passed(fleet, state, slot, now)
    for at in range(instance.batch):
        request = state.finish_key[slot, at] & REQUEST_BITS
        blocks = kv_blocks(fleet, slot, cached_tokens(trace, state, slot, at) + passed)
        if best == NO_INDEX:
            is_first = True
        elif trace.level[request] != trace.level[best]:
            is_first = trace.level[request] > trace.level[best]
        elif blocks != best_blocks:
            is_first = blocks < best_blocks
        else:
            is_first = state.request[request].admission_turn > state.request[best].admission_turn
        if is_first:
            best, best_blocks = request, blocks
    return best, best_blocks
