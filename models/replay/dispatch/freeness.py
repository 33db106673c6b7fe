"""Freeness: how much of an instance's memory is free for each request that it runs (Llumnix, 3.2 to 3.4).

    F = (M - V) / max(1, B)        V = blocks held + demand of those that wait + headroom

M blocks that the instance has, B requests that it runs. The demand is that of the first that waits (HEAD, eq.
2) or of all of them (ALL). A level p of which some request is here adds its whole headroom M h[p] (eq. 3, 4).
Where only those above count (`counts_above`), for a request of level p the headroom of levels < p does.

Between two changes of an instance its freeness only falls, as those that decode take blocks. So the line of a
pool (pools.py) may hold what it was: those that have changed are put where they belong, then whoever stands
first is evaluated until the first one's place is right. That is the freest; most others are not looked at.
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.move import steps_passed
from fleetcast.models.replay.engine.leap import stretch_s
from fleetcast.models.replay.engine.memory import blocks_taken, capacity_blocks, needed_blocks, note_change
from fleetcast.models.replay.engine.queue import deadline_s, first_of, is_unknown, notice, tiers_or_levels
from fleetcast.models.replay.events import settle
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Demand, Phase, Status

GROWS, SHRINKS = 0.25, 0.0625  # of the most, at a monitor tick
NO_LEVEL = -1  # of nobody: no headroom counts
EVERY_LEVEL = 1 << 30  # of nobody: all headroom counts


@called
def demand_blocks(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int) -> int:
    """What those that wait would take: the first of the first lane, or all of them."""
    if rules.demand == Demand.ALL:
        return state.instance[slot].waiting_blocks
    for lane in range(tiers_or_levels(rules, state)):
        first = first_of(rules, state, slot, lane)
        if first != NOBODY:
            return needed_blocks(trace, fleet, state, state.lane[slot, first].head)
    return 0


@called
def headroom_blocks(fleet: Fleet, rules: Rules, state: State, slot: int, level: int) -> float:
    """What the levels that are here set aside; of those above `level` only, where the rules say so."""
    share = 0.0
    levels = state.present.shape[1]
    above = min(level, levels) if rules.counts_above or level == NO_LEVEL else levels
    for p in range(above):
        if state.present[slot, p] > 0:
            share += state.pool_level[fleet.pool[slot], p].headroom_share
    return share * capacity_blocks(fleet, slot)


@called
def note_first_token(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, request: int, now: float
) -> None:
    """The request's first token is made at the slot."""
    if deadline_s(trace, rules, request) < now:
        state.pool_level[fleet.pool[slot], trace.level[request]].late += 1


@called
def adapt_headroom(fleet: Fleet, rules: Rules, state: State) -> None:
    """A monitor tick: a level that had late first tokens since the last one gets more headroom, others less.

    A quarter of what level 0 began with is added, a sixteenth taken away, within 0 and that.
    """
    most = rules.headroom_share[0]
    for pool in range(fleet.kind.size):
        for level in range(rules.headroom_share.size):
            step = GROWS if state.pool_level[pool, level].late > 0 else -SHRINKS
            share = state.pool_level[pool, level].headroom_share + step * most
            state.pool_level[pool, level].headroom_share = min(max(share, 0.0), most)
            state.pool_level[pool, level].late = 0
        for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
            note_change(fleet, state, slot)


@called
def spare_blocks(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, level: int
) -> tuple[int, float]:
    """Blocks that nobody holds, nor waits for, as the slot's stretch begins; and the headroom."""
    there = capacity_blocks(fleet, slot) - state.instance[slot].blocks
    there -= demand_blocks(trace, fleet, rules, state, slot)
    return there, headroom_blocks(fleet, rules, state, slot, level)


@called
def free_blocks(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, level: int, steps: int
) -> float:
    """M - V for a request of this level, after so many steps of the slot's stretch; below 0: overfull."""
    there, headroom = spare_blocks(trace, fleet, rules, state, slot, level)
    return there - blocks_taken(fleet, state, slot, steps) - headroom


@called
def running(state: State, slot: int) -> int:
    """B: the requests that the slot runs."""
    instance = state.instance[slot]
    return instance.batch + instance.joining


@called
def freeness(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, level: int, now: float
) -> float:
    """F of the slot for a request of this level, as of its boundaries that are over."""
    steps = known_steps(trace, fleet, state, slot, now)
    return free_blocks(trace, fleet, rules, state, slot, level, steps) / max(1, running(state, slot))


@called
def freeness_to_come(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, level: int, now: float
) -> tuple[float, float]:
    """F of the slot now and at its stretch's end: until something changes it falls from one to the other."""
    instance = state.instance[slot]
    steps, runs = known_steps(trace, fleet, state, slot, now), max(1, running(state, slot))
    end = instance.stretch if instance.phase == Phase.DECODE else steps
    there, headroom = spare_blocks(trace, fleet, rules, state, slot, level)
    taken, will_be = blocks_taken(fleet, state, slot, steps), blocks_taken(fleet, state, slot, end)
    return (there - taken - headroom) / runs, (there - will_be - headroom) / runs


@called
def known_steps(trace: Trace, fleet: Fleet, state: State, slot: int, now: float) -> int:
    """The steps of its stretch that are over; an async engine knows who came before the last of them."""
    passed = steps_passed(fleet, state, slot, now)
    if passed > 0 and is_unknown(state, slot):
        notice(trace, state, slot, state.instance[slot].base_s + stretch_s(fleet, state, slot, passed - 1))
    return passed


@called
def freest(trace: Trace, fleet: Fleet, rules: Rules, state: State, pool: int, level: int, now: float) -> int:
    """The serving instance of the pool with the largest freeness; ties to the lowest slot."""
    first, end = fleet.slots[pool], fleet.slots[pool + 1]
    if rules.counts_above:  # then it depends on who asks
        best, most = NOBODY, 0.0
        for slot in range(first, end):
            if state.instance[slot].status == Status.SERVING:
                its = freeness(trace, fleet, rules, state, slot, level, now)
                if best == NOBODY or its > most:
                    best, most = slot, its
        return best
    while state.pool[pool].first_changed != NOBODY:
        slot = state.pool[pool].first_changed
        state.pool[pool].first_changed = state.instance[slot].next_changed
        state.instance[slot].is_changed = False
        if state.instance[slot].status == Status.SERVING:
            state.line[slot].queue = -freeness(trace, fleet, rules, state, slot, level, now)
            settle(
                state.line["queue"],
                state.line["shortest"],
                state.line["shortest_place"],
                first,
                end - first,
                slot,
            )
    while True:
        slot = state.line[first].shortest
        its = -freeness(trace, fleet, rules, state, slot, level, now)
        if state.line[slot].queue == its:
            return slot
        state.line[slot].queue = its
        settle(
            state.line["queue"],
            state.line["shortest"],
            state.line["shortest_place"],
            first,
            end - first,
            slot,
        )


@called
def mean_freeness(trace: Trace, fleet: Fleet, rules: Rules, state: State, pool: int, now: float) -> float:
    """The mean over the pool's serving instances, without headroom (3.6); 0 where none serves."""
    total, count = 0.0, 0
    for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
        if state.instance[slot].status == Status.SERVING:
            total += freeness(trace, fleet, rules, state, slot, NO_LEVEL, now)
            count += 1
    return total / max(1, count)
