"""Queues of an instance: linked lists through one array, and the order of admission (SageServe 6.1, 6.5).

Within a tier the allowance to the first token is constant, so the order of arrival is the order of deadlines.
So under any policy the next request is the best of a few heads: one lane per tier, and under DPA a second one
for requests whose deadline has passed. Ranks are computed only when an instance checks its queue.

An engine with async scheduling (vLLM) composes a step while the one before it runs: a request that arrives
during a step cannot be in the next one, only in the one after it. Until then it waits in the last lane.
"""

import numpy as np

from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.engine.kv_memory import admission_blocks
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import QueueOrder

LAST_RANK = 1 << 30  # rank of batch-tier requests that are not aged: after all of priority 0


@njit_inline
def push_back(state: State, heads: np.ndarray, tails: np.ndarray, at: int, request: int) -> None:
    """Append the request to list `at`; heads and tails: shape (lists,), requests."""
    state.request[request].next = NO_INDEX
    if heads[at] == NO_INDEX:
        heads[at] = request
    else:
        state.request[tails[at]].next = request
    tails[at] = request


@njit_inline
def pop_front(state: State, heads: np.ndarray, at: int) -> int:
    """Remove and return the head of list `at`, which must not be empty; heads: shape (lists,), requests."""
    request = heads[at]
    heads[at] = state.request[request].next
    return request


@njit_inline
def unlink(state: State, heads: np.ndarray, tails: np.ndarray, at: int, request: int, before: int) -> None:
    """Remove the request, which is behind `before` (NO_INDEX: at the head), from list `at`.

    heads and tails: shape (lists,), requests.
    """
    if before == NO_INDEX:
        heads[at] = state.request[request].next
    else:
        state.request[before].next = state.request[request].next
    if tails[at] == request:
        tails[at] = before


@njit_inline
def insert_in_order(state: State, heads: np.ndarray, tails: np.ndarray, at: int, request: int) -> None:
    """Insert the request into list `at` in order of arrival; heads and tails: shape (lists,), requests.

    It almost always belongs at one of the ends.
    """
    if heads[at] == NO_INDEX or tails[at] < request:
        push_back(state, heads, tails, at, request)
    elif request < heads[at]:
        state.request[request].next = heads[at]
        heads[at] = request
    else:
        before = heads[at]
        while state.request[before].next < request:
            before = state.request[before].next
        state.request[request].next = state.request[before].next
        state.request[before].next = request


@njit_inline
def append_waiting(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, now: float
) -> bool:
    """Queue the request at the instance; return False if a busy async engine does not know it yet."""
    instance = state.instance[slot]
    instance.waiting_blocks += admission_blocks(trace, fleet, state, slot, request)
    if fleet.is_async[fleet.slot_kind[slot]]:
        state.request[request].queued_s = now
        if instance.batch + instance.joining + instance.ended > 0:
            push_back(
                state, state.lane[slot]["head"], state.lane[slot]["tail"], state.lane.shape[1] - 1, request
            )
            return False
    insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], trace.lane[request], request)
    return True


@njit_inline
def notice_arrivals(trace: TraceArrays, state: State, slot: int, until_s: float) -> None:
    """Sort the requests that came up to `until_s` into their lanes; the instance will check its queue."""
    heads, tails = state.lane[slot]["head"], state.lane[slot]["tail"]
    unknown = heads.size - 1
    while heads[unknown] != NO_INDEX and state.request[heads[unknown]].queued_s <= until_s:
        request = pop_front(state, heads, unknown)
        insert_in_order(state, heads, tails, trace.lane[request], request)
        state.instance[slot].queue_dirty = True


@njit_inline
def first_waiting_lane(rules: Rules, state: State, slot: int, lane: int) -> int:
    """Return the list with the earliest waiting request of a tier or level; NO_INDEX if none waits."""
    lists = state.lane.shape[1] - 1
    head = state.lane[slot, lane].head
    if rules.order == QueueOrder.DPA:
        other = state.lane[slot, lane + lists // 2].head
        if other != NO_INDEX and (head == NO_INDEX or other < head):
            return lane + lists // 2
    return lane if head != NO_INDEX else NO_INDEX


@njit_inline
def has_unnoticed_request(state: State, slot: int) -> bool:
    """Return whether a request waits that the engine does not know of yet."""
    return state.lane[slot, state.lane.shape[1] - 1].head != NO_INDEX


@njit_inline
def has_waiting_request(state: State, slot: int) -> bool:
    """Return whether a request that the engine knows of waits in any of the slot's lanes."""
    heads = state.lane[slot]["head"]
    for at in range(heads.size - 1):  # noqa: SIM110 (compiled code has no any)
        if heads[at] != NO_INDEX:
            return True
    return False


@njit_inline
def is_aged(trace: TraceArrays, rules: Rules, request: int, now: float) -> bool:
    """Return whether a batch-tier request is old enough for priority 0 (SageServe 6.2)."""
    return now - trace.arrival_s[request] >= rules.niw_priority_age_s


@njit_inline
def deadline_s(trace: TraceArrays, rules: Rules, request: int) -> float:
    """Return when the request's first token is due, in seconds; for a tier without a TTFT, its last token."""
    return trace.arrival_s[request] + rules.allowance_s[trace.tier[request]]


@njit_inline
def promoted_level(trace: TraceArrays, rules: Rules, request: int, now: float) -> int:
    """Return the level that a request counts as: one higher for each `promote_s` that it has waited.

    PREEMPTIVE does not promote: two requests would preempt each other for ever.
    """
    if rules.order == QueueOrder.PREEMPTIVE:
        return trace.level[request]
    promotions = int((now - trace.arrival_s[request]) / rules.promote_s)
    return max(0, trace.level[request] - promotions)


@njit_inline
def queue_rank(trace: TraceArrays, fleet: FleetArrays, rules: Rules, request: int, now: float) -> int:
    """Return the rank of the request under the queue order; lower goes first.

    Aged batch-tier requests rank with the least urgent interactive ones, unless the order goes by level.
    """
    if rules.order >= QueueOrder.PRIORITY:
        return promoted_level(trace, rules, request, now)
    tier = trace.tier[request]
    if not fleet.is_interactive[tier] and not is_aged(trace, rules, request, now):
        return LAST_RANK
    if rules.order == QueueOrder.PF:
        return rules.urgency[tier]
    if rules.order == QueueOrder.DPA:
        left_s = deadline_s(trace, rules, request) - now
        # There are at most as many classes of urgency as tiers.
        urgencies = rules.allowance_s.size
        if left_s < -rules.tau_n_s:
            return 0
        if left_s < 0:
            return 1 + 2 * urgencies
        return 1 + rules.urgency[tier] + (0 if left_s <= rules.tau_p_s else urgencies)
    return 0


@njit_inline
def separate_expired(trace: TraceArrays, rules: Rules, state: State, slot: int, now: float) -> None:
    """Move the requests whose deadline has passed from each tier's first list to its second one."""
    tiers = rules.allowance_s.size
    for tier in range(tiers):
        while (
            state.lane[slot, tier].head != NO_INDEX
            and deadline_s(trace, rules, state.lane[slot, tier].head) < now
        ):
            request = pop_front(state, state.lane[slot]["head"], tier)
            insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], tiers + tier, request)


@njit_inline
def next_lane(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> int:
    """Return the lane whose head is to be admitted next; NO_INDEX if no request waits.

    FCFS takes the earliest arrival, EDF the earliest deadline, PF the most urgent tier. DPA takes severely
    expired requests first, then urgent ones by tier, others by tier, and recently expired ones. PRIORITY and
    PREEMPTIVE take the highest level, whatever the tier. Equal ranks (and equal deadlines) go by arrival.
    Except by level, batch-tier requests go when no other request waits, or when they are aged.
    """
    if rules.order == QueueOrder.DPA:
        separate_expired(trace, rules, state, slot, now)
    best, best_rank, best_due = NO_INDEX, 0, 0.0
    for at in range(state.lane.shape[1] - 1):
        head = state.lane[slot, at].head
        if head == NO_INDEX:
            continue
        rank = queue_rank(trace, fleet, rules, head, now)
        due = deadline_s(trace, rules, head) if rules.order == QueueOrder.EDF else 0.0
        if (
            best == NO_INDEX
            or rank < best_rank
            or (
                rank == best_rank
                and (due < best_due or (due == best_due and head < state.lane[slot, best].head))
            )
        ):
            best, best_rank, best_due = at, rank, due
    return best


@njit_inline
def queue_class_count(rules: Rules, state: State) -> int:
    """Return the number of tiers, or of levels where the order goes by level, that have a queue."""
    return (state.lane.shape[1] - 1) // (2 if rules.order == QueueOrder.DPA else 1)


def lane_count(rules: Rules) -> int:
    """Return the number of lanes of an instance: one for each level, or each tier, or two under DPA."""
    if rules.order >= QueueOrder.PRIORITY:
        return rules.headroom_share.size
    return rules.allowance_s.size * (2 if rules.order == QueueOrder.DPA else 1)
