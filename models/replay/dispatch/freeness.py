"""Freeness: free memory of an instance for each request that it runs (multi-tier Llumnix, 3.2 to 3.4).

    F = (M - V) / max(1, B)        V = blocks held + demand of the waiting requests + headroom

M is the number of blocks of the instance, B the number of requests that it runs. The demand is that of the
first waiting request (HEAD, eq. 2) or of all of them (ALL). A level p with a request at the instance adds its
whole headroom M h[p] (eq. 3, 4).

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
)
from fleetcast.models.replay.engine.queue import (
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


@njit_call
def demand_blocks(trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int) -> int:
    """Return the KV blocks that the waiting requests would take: the first of the first lane, or all."""
    if rules.demand == QueueDemand.ALL:
        return state.instance[slot].waiting_blocks
    for lane in range(queue_class_count(rules, state)):
        first = first_waiting_lane(rules, state, slot, lane)
        if first != NO_INDEX:
            return admission_blocks(trace, fleet, state, slot, state.lane[slot, first].head)
    return 0


@njit_call
def headroom_blocks(fleet: FleetArrays, rules: Rules, state: State, slot: int) -> float:
    """Return the KV blocks kept free for the levels at the slot."""
    share = 0.0
    for level in range(rules.headroom_share.size):
        if state.requests_by_level[slot, level] > 0:
            share += rules.headroom_share[level]
    return share * capacity_blocks(fleet, slot)


@njit_call
def unclaimed_blocks(trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int) -> int:
    """Return the KV blocks not held or demanded at the start of the slot's stretch."""
    held = state.instance[slot].blocks
    return capacity_blocks(fleet, slot) - held - demand_blocks(trace, fleet, rules, state, slot)


@njit_call
def free_blocks(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, steps: int
) -> float:
    """Return M - V in blocks, after `steps` of the stretch; < 0: overfull."""
    unclaimed = unclaimed_blocks(trace, fleet, rules, state, slot)
    taken = blocks_of_steps(fleet, state, slot, steps)
    return unclaimed - taken - headroom_blocks(fleet, rules, state, slot)


@njit_call
def running_requests(state: State, slot: int) -> int:
    """Return B, the number of requests that the slot runs."""
    instance = state.instance[slot]
    return instance.batch + instance.joining


@njit_call
def instance_freeness(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> float:
    """Return F of the slot, in blocks, at its latest step boundary."""
    steps = known_steps(trace, fleet, state, slot, now)
    return free_blocks(trace, fleet, rules, state, slot, steps) / max(1, running_requests(state, slot))


@njit_call
def freeness_bounds(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> tuple[float, float]:
    """Return F of the slot now and at the end of its stretch, its bounds until the slot changes."""
    instance = state.instance[slot]
    steps, runs = known_steps(trace, fleet, state, slot, now), max(1, running_requests(state, slot))
    end = instance.stretch if instance.phase == Phase.DECODE else steps
    unclaimed = unclaimed_blocks(trace, fleet, rules, state, slot)
    headroom = headroom_blocks(fleet, rules, state, slot)
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
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, now: float
) -> int:
    """Return the serving instance of the pool with the largest freeness; ties to the lowest slot."""
    while state.pool[pool].first_changed != NO_INDEX:
        slot = state.pool[pool].first_changed
        state.pool[pool].first_changed = state.instance[slot].next_changed
        state.instance[slot].is_changed = False
        if state.instance[slot].status == Status.SERVING:
            state.line[slot].sort_key = -instance_freeness(trace, fleet, rules, state, slot, now)
            sift_line(fleet, state, pool, slot)
    while True:
        slot = state.line[fleet.slots[pool]].slot_heap
        key = -instance_freeness(trace, fleet, rules, state, slot, now)
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
            steps = known_steps(trace, fleet, state, slot, now)
            free = unclaimed_blocks(trace, fleet, rules, state, slot)
            free -= blocks_of_steps(fleet, state, slot, steps)
            total += free / max(1, running_requests(state, slot))
            count += 1
    return total / max(1, count)
