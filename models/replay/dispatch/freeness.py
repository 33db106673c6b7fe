"""Freeness: free memory of an instance for each request that it runs (multi-tier Llumnix, 3.2 to 3.4).

    F = (M - V) / max(1, B)        V = blocks held + demand of the waiting requests + headroom

M is the number of blocks of the instance, B the number of requests that it runs. The demand is that of the
first waiting request (HEAD, eq. 2) or of all of them (ALL). A level p with a request at the instance adds its
whole headroom M h[p] (eq. 3, 4). With `headroom_above_only`, a request of level p sees the headroom of levels
< p only.

Between two changes of an instance its freeness only falls, as decoding requests take blocks. So the heap of a
pool (state.line) may hold older, higher values. To find the freest instance, changed instances are sorted in
again; then the first of the heap is evaluated until its value is current. Most others are not evaluated.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.migration import steps_passed
from fleetcast.models.replay.engine.draft_tokens import tokens_of_steps
from fleetcast.models.replay.engine.kv_memory import (
    admission_blocks,
    capacity_blocks,
    new_kv_blocks,
    note_freeness_change,
)
from fleetcast.models.replay.engine.queue import (
    deadline_s,
    first_waiting_lane,
    has_unnoticed_request,
    notice_arrivals,
    queue_class_count,
)
from fleetcast.models.replay.engine.step_time import stretch_s
from fleetcast.models.replay.event_queue import sift_line
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Phase, QueueDemand, Status

GROWS, SHRINKS = 0.25, 0.0625  # change of headroom at a monitor tick, as shares of its maximum
NO_LEVEL = -1  # in place of a request's level: no headroom counts
EVERY_LEVEL = 1 << 30  # in place of a request's level: all headroom counts


@njit_call
def demand_blocks(trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int) -> int:
    """Return the KV blocks that the waiting requests would take: the first of the first lane, or all."""
    if rules.demand == QueueDemand.ALL:
        return state.instance[slot].waiting_blocks
    for lane in range(queue_class_count(rules, state)):
        first = first_waiting_lane(rules, state, slot, lane)
        if first != NO_INDEX:
            return admission_blocks(trace, fleet, state, state.lane[slot, first].head)
    return 0


@njit_call
def headroom_blocks(fleet: FleetArrays, rules: Rules, state: State, slot: int, level: int) -> float:
    """Return the KV blocks kept free for the levels at the slot; only those above `level` under that rule."""
    share = 0.0
    levels = state.requests_by_level.shape[1]
    above = min(level, levels) if rules.headroom_above_only or level == NO_LEVEL else levels
    for p in range(above):
        if state.requests_by_level[slot, p] > 0:
            share += state.pool_level[fleet.pool[slot], p].headroom_share
    return share * capacity_blocks(fleet, slot)


@njit_call
def note_first_token(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, request: int, now: float
) -> None:
    """Count the request's first token, made at the slot, if it is late."""
    if deadline_s(trace, rules, request) < now:
        state.pool_level[fleet.pool[slot], trace.level[request]].late_first_tokens += 1


@njit_call
def adapt_headroom(fleet: FleetArrays, rules: Rules, state: State) -> None:
    """Adapt the headroom at a monitor tick: more for a level with late first tokens since the last one.

    It rises by a quarter of level 0's initial headroom, else falls by a sixteenth, between 0 and that.
    """
    most = rules.headroom_share[0]
    for pool in range(fleet.kind.size):
        for level in range(rules.headroom_share.size):
            step = GROWS if state.pool_level[pool, level].late_first_tokens > 0 else -SHRINKS
            share = state.pool_level[pool, level].headroom_share + step * most
            state.pool_level[pool, level].headroom_share = min(max(share, 0.0), most)
            state.pool_level[pool, level].late_first_tokens = 0
        for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
            note_freeness_change(fleet, state, slot)


@njit_call
def unclaimed_blocks(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, level: int
) -> tuple[int, float]:
    """Return the blocks not held or demanded at the start of the slot's stretch, and the headroom blocks."""
    unclaimed = capacity_blocks(fleet, slot) - state.instance[slot].blocks
    unclaimed -= demand_blocks(trace, fleet, rules, state, slot)
    return unclaimed, headroom_blocks(fleet, rules, state, slot, level)


@njit_call
def free_blocks(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, level: int, steps: int
) -> float:
    """Return M - V in blocks for a request of this level, after `steps` of the stretch; < 0: overfull."""
    unclaimed, headroom = unclaimed_blocks(trace, fleet, rules, state, slot, level)
    return unclaimed - blocks_of_steps(fleet, state, slot, steps) - headroom


@njit_call
def running_requests(state: State, slot: int) -> int:
    """Return B, the number of requests that the slot runs."""
    instance = state.instance[slot]
    return instance.batch + instance.joining


@njit_call
def instance_freeness(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, level: int, now: float
) -> float:
    """Return F of the slot, in blocks, for a request of this level, at its latest step boundary."""
    steps = known_steps(trace, fleet, state, slot, now)
    return free_blocks(trace, fleet, rules, state, slot, level, steps) / max(1, running_requests(state, slot))


@njit_call
def freeness_bounds(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, level: int, now: float
) -> tuple[float, float]:
    """Return F of the slot now and at the end of its stretch, its bounds until the slot changes."""
    instance = state.instance[slot]
    steps, runs = known_steps(trace, fleet, state, slot, now), max(1, running_requests(state, slot))
    end = instance.stretch if instance.phase == Phase.DECODE else steps
    unclaimed, headroom = unclaimed_blocks(trace, fleet, rules, state, slot, level)
    taken = blocks_of_steps(fleet, state, slot, steps)
    taken_at_end = blocks_of_steps(fleet, state, slot, end)
    return (unclaimed - taken - headroom) / runs, (unclaimed - taken_at_end - headroom) / runs


@njit_call
def blocks_of_steps(fleet: FleetArrays, state: State, slot: int, steps: int) -> int:
    """Return the new KV blocks of the first `steps` steps of the slot's stretch."""
    return new_kv_blocks(fleet, state, slot, tokens_of_steps(fleet, state, slot, steps))


@njit_call
def known_steps(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, now: float) -> int:
    """Return the completed steps of the stretch; an async engine notices arrivals up to the last one."""
    passed = steps_passed(fleet, state, slot, now)
    if passed > 0 and has_unnoticed_request(state, slot):
        notice_arrivals(
            trace, state, slot, state.instance[slot].base_s + stretch_s(fleet, state, slot, passed - 1)
        )
    return passed


@njit_call
def freest_instance(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, level: int, now: float
) -> int:
    """Return the serving instance of the pool with the largest freeness; ties to the lowest slot."""
    first, end = fleet.slots[pool], fleet.slots[pool + 1]
    # Under this rule freeness depends on the request's level, so the heap has no order for it.
    if rules.headroom_above_only:
        best, most = NO_INDEX, 0.0
        for slot in range(first, end):
            if state.instance[slot].status == Status.SERVING:
                freeness = instance_freeness(trace, fleet, rules, state, slot, level, now)
                if best == NO_INDEX or freeness > most:
                    best, most = slot, freeness
        return best
    while state.pool[pool].first_changed != NO_INDEX:
        slot = state.pool[pool].first_changed
        state.pool[pool].first_changed = state.instance[slot].next_changed
        state.instance[slot].is_changed = False
        if state.instance[slot].status == Status.SERVING:
            state.line[slot].sort_key = -instance_freeness(trace, fleet, rules, state, slot, level, now)
            sift_line(fleet, state, pool, slot)
    while True:
        slot = state.line[first].slot_heap
        key = -instance_freeness(trace, fleet, rules, state, slot, level, now)
        if state.line[slot].sort_key == key:
            return slot
        state.line[slot].sort_key = key
        sift_line(fleet, state, pool, slot)


@njit_call
def mean_freeness(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, now: float
) -> float:
    """Return the mean freeness of the pool's serving instances, without headroom (3.6); 0 if none serves."""
    total, count = 0.0, 0
    for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
        if state.instance[slot].status == Status.SERVING:
            total += instance_freeness(trace, fleet, rules, state, slot, NO_LEVEL, now)
            count += 1
    return total / max(1, count)
