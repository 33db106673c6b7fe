"""Balancing: requests move from the least free instance of a pool to the freest (multi-tier Llumnix 3.5).

Every `balance_s` seconds, before all else of that instant but a control tick. The least free instance and the
freest make a pair while F_to - F_from >= gap_blocks and F_from <= from_blocks, then the next two. A pair
moves one request: the first that waits in the lowest lane (or the highest), which costs nothing; else one
that decodes, of the lowest level, with the fewest blocks, admitted last, by a live move (move.py). With a
guard only if the freest is freer with it than the other was. An instance is in one move at a time; one that
drains is always a source.

Freeness only falls between two changes. So where at a tick no pair can come to be before the next event, the
ticks until then are skipped: nothing would come of them.
"""

import math

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.deliver import come, look_soon
from fleetcast.models.replay.dispatch.freeness import (
    EVERY_LEVEL,
    free_blocks,
    freeness,
    freeness_to_come,
    known_steps,
    running,
)
from fleetcast.models.replay.dispatch.move import ask_for_move, steps_passed
from fleetcast.models.replay.engine.memory import blocks_of, needed_blocks
from fleetcast.models.replay.engine.prefix import reusable_tokens
from fleetcast.models.replay.engine.queue import (
    first_of,
    is_unknown,
    pop_front,
    somebody_waits,
    tiers_or_levels,
)
from fleetcast.models.replay.events import note_stale
from fleetcast.models.replay.fleet.pools import assign
from fleetcast.models.replay.inputs import NEVER, NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import MOVED_LIVE, MOVED_QUEUED, REQUEST_BITS, State
from fleetcast.models.world.mechanisms import Prefix, Status

NOT_HERE = math.nan  # the freeness of one that is in no pair at this tick


@called
def balance(trace: Trace, fleet: Fleet, rules: Rules, state: State, now: float) -> bool:
    """A tick: every pool moves what it may; whether something may come of one before the next event."""
    look_up_changed(trace, fleet, rules, state, now)
    is_awake = False
    for pool in range(fleet.kind.size):
        if fleet.slots[pool + 1] - fleet.slots[pool] > 1:
            is_awake = move_pairs(trace, fleet, rules, state, pool, now) or is_awake
    return is_awake


@called
def move_pairs(trace: Trace, fleet: Fleet, rules: Rules, state: State, pool: int, now: float) -> bool:
    """Move one request of each pair of the pool; whether one may be there before the next event.

    A move changes nobody's freeness but the two's, who are done with: each is evaluated once, and only where
    its bounds say that it may be in a pair. First those that may give, then, if one does, who may take.
    """
    lowest, highest = state.pool[pool].least_free, state.pool[pool].most_free
    if not may_pair(rules, lowest, highest):
        return False
    first, end = fleet.slots[pool], fleet.slots[pool + 1]
    for slot in range(first, end):
        state.instance[slot].freeness = NOT_HERE
        if may_pair(rules, state.instance[slot].lowest, highest):
            evaluate(trace, fleet, rules, state, slot, now)
    source, _ = outermost(state, first, end)
    if source == NOBODY or state.instance[source].freeness > rules.from_blocks:
        return True  # they may be a pair soon
    for slot in range(first, end):
        if math.isnan(state.instance[slot].freeness) and may_pair(
            rules, lowest, state.instance[slot].highest
        ):
            evaluate(trace, fleet, rules, state, slot, now)
    while True:
        source, to = outermost(state, first, end)
        its = state.instance[source].freeness
        if to in (NOBODY, source) or not may_pair(rules, its, state.instance[to].freeness):
            return True
        state.instance[source].freeness = state.instance[to].freeness = NOT_HERE
        move_one(trace, fleet, rules, state, source, to, its, now)


@called
def outermost(state: State, first: int, end: int) -> tuple[int, int]:
    """The least free and the freest in no pair yet; ties to the lowest slot, NOBODY if none is."""
    source, to, least, most = NOBODY, NOBODY, NEVER, -NEVER
    for slot in range(first, end):
        its = state.instance[slot].freeness
        if its < least:
            source, least = slot, its
        if its > most:
            to, most = slot, its
    return source, to


@called
def evaluate(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """The slot may be in a pair: its freeness at this tick; -inf of one that drains, always a source."""
    instance = state.instance[slot]
    if is_in_move(state, slot):
        return
    instance.freeness = instance.highest
    if instance.looked_up_s < now and instance.status == Status.SERVING:
        instance.freeness = freeness(trace, fleet, rules, state, slot, EVERY_LEVEL, now)


@called
def look_up_changed(trace: Trace, fleet: Fleet, rules: Rules, state: State, now: float) -> None:
    """Bring up to date the bounds of those that something has happened to, and with them their pools'."""
    count, state.progress.stale = state.progress.stale, 0
    for at in range(count):
        slot = state.instance[at].stale
        pool, lowest, highest = fleet.pool[slot], state.instance[slot].lowest, state.instance[slot].highest
        look_up_bounds(trace, fleet, rules, state, slot, now)
        state.pool[pool].least_free = min(state.pool[pool].least_free, state.instance[slot].lowest)
        state.pool[pool].most_free = max(state.pool[pool].most_free, state.instance[slot].highest)
        was_least = lowest == state.pool[pool].least_free and lowest < state.instance[slot].lowest
        if was_least or (highest == state.pool[pool].most_free and highest > state.instance[slot].highest):
            state.pool[pool].least_free, state.pool[pool].most_free = NEVER, -NEVER
            for other in range(fleet.slots[pool], fleet.slots[pool + 1]):
                state.pool[pool].least_free = min(state.pool[pool].least_free, state.instance[other].lowest)
                state.pool[pool].most_free = max(state.pool[pool].most_free, state.instance[other].highest)


@called
def look_up_bounds(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Until something changes the instance is at most as free as now, and at least as at its stretch's end.

    Not where it may come to know of requests on the way: then it is looked up at every tick.
    """
    instance = state.instance[slot]
    instance.highest, instance.lowest = -NEVER, NEVER
    if instance.status == Status.SERVING:
        instance.highest, instance.lowest = freeness_to_come(
            trace, fleet, rules, state, slot, EVERY_LEVEL, now
        )
    elif instance.status == Status.DRAINING and instance.load > 0:
        instance.lowest = -NEVER
    instance.looked_up_s, state.clock[slot].is_stale = now, False
    if is_unknown(state, slot):
        note_stale(state, slot)


@called
def may_pair(rules: Rules, least: float, most: float) -> bool:
    """Whether two instances of such freeness are far enough apart, and the one full enough."""
    return most - least >= rules.gap_blocks and least <= rules.from_blocks


@called
def is_in_move(state: State, slot: int) -> bool:
    """Whether a request is being copied from the instance or to it, or is on its way here."""
    instance = state.instance[slot]
    return instance.giving + instance.getting + instance.coming > 0


@called
def move_one(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, to: int, its: float, now: float
) -> None:
    """Move the request of the slot, whose freeness is `its`, that goes first to the other one; or none."""
    lanes = tiers_or_levels(rules, state)
    for n in range(lanes):
        at = first_of(rules, state, slot, lanes - 1 - n if rules.lowest_first else n)
        if at == NOBODY or state.transfer[state.lane[slot, at].head].carried > 0:
            continue
        request = state.lane[slot, at].head
        if is_worth(trace, fleet, rules, state, to, needed_blocks(trace, fleet, state, request), its, now):
            send_away(trace, fleet, rules, state, slot, at, to, now)
            state.moved[fleet.pool[slot], MOVED_QUEUED] += 1
        return
    request, blocks = who_decodes(trace, fleet, state, slot, now)
    if (
        request != NOBODY
        and is_worth(trace, fleet, rules, state, to, blocks, its, now)
        and ask_for_move(trace, fleet, rules, state, request, to, now)
    ):
        state.moved[fleet.pool[slot], MOVED_LIVE] += 1


@called
def is_worth(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, to: int, blocks: int, its: float, now: float
) -> bool:
    """The guard: whether the other one runs so many blocks more and is freer still than this one is now."""
    if not rules.is_guarded:
        return True
    steps = known_steps(trace, fleet, state, to, now)
    free = free_blocks(trace, fleet, rules, state, to, EVERY_LEVEL, steps)
    return (free - blocks) / (running(state, to) + 1) > its


@called
def send_away(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, lane: int, to: int, now: float
) -> None:
    """The first request of a lane waits at the other instance from now on; who waited behind it may go."""
    request = pop_front(state, state.lane[slot]["head"], lane)
    state.instance[slot].waiting_blocks -= needed_blocks(trace, fleet, state, request)
    assign(trace, fleet, state, slot, request, -1)
    state.request[request].served_by = to
    if fleet.prefix != Prefix.NONE:
        state.sharing[request].saved = reusable_tokens(trace, fleet, state, to, request)
    assign(trace, fleet, state, to, request, 1)
    if somebody_waits(state, slot):
        look_soon(trace, fleet, rules, state, slot, now)
    come(trace, fleet, rules, state, to, request, now)


@called
def who_decodes(trace: Trace, fleet: Fleet, state: State, slot: int, now: float) -> tuple[int, int]:
    """Who decodes here, of the lowest level, with the fewest blocks, admitted last; and its blocks."""
    instance = state.instance[slot]
    best, best_blocks = NOBODY, 0
    done = instance.steps + steps_passed(fleet, state, slot, now)
    for at in range(instance.batch):
        key = state.finish_key[slot, at]
        request = key & REQUEST_BITS
        left = (key >> 32) - done
        blocks = blocks_of(fleet, trace.input_tokens[request] + trace.output_tokens[request] - left - 1)
        if best == NOBODY:
            is_first = True
        elif trace.level[request] != trace.level[best]:
            is_first = trace.level[request] > trace.level[best]
        elif blocks != best_blocks:
            is_first = blocks < best_blocks
        else:
            is_first = state.request[request].admitted > state.request[best].admitted
        if is_first:
            best, best_blocks = request, blocks
    return best, best_blocks
