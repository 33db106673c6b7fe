"""Waiting: linked lists through one array, and who is next at an instance (SageServe 6.1, 6.5).

Within a tier the allowance to the first token is constant, so arrival order is deadline order, and the
next request under any policy is the best of a handful of heads: one lane per tier, and under DPA a
second one for those whose deadline has passed. Time matters only when an instance looks at its queue.

An engine with async scheduling (vLLM) composes a step while the one before it runs: a request that comes
during a step cannot be in the next one, only in the one after it. Until then it stands in the last lane.
"""

import numpy as np

from fleetcast.models.replay.compiled import compiled
from fleetcast.models.replay.engine.memory import needed_blocks
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Order

LAST = 1 << 30  # rank of non-interactive requests that are not aged: behind everything of priority 0


@compiled
def push_back(state: State, heads: np.ndarray, tails: np.ndarray, at: int, request: int) -> None:
    """Append the request to list `at`."""
    state.request[request].next = NOBODY
    if heads[at] == NOBODY:
        heads[at] = request
    else:
        state.request[tails[at]].next = request
    tails[at] = request


@compiled
def pop_front(state: State, heads: np.ndarray, at: int) -> int:
    """Take the head of list `at`, which must not be empty."""
    request = heads[at]
    heads[at] = state.request[request].next
    return request


@compiled
def insert_in_order(state: State, heads: np.ndarray, tails: np.ndarray, at: int, request: int) -> None:
    """Put the request where its arrival belongs in list `at`: at an end but for rare cases."""
    if heads[at] == NOBODY or tails[at] < request:
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


@compiled
def enqueue(trace: Trace, fleet: Fleet, state: State, slot: int, request: int, now: float) -> bool:
    """Let the request wait at the instance; False where that is async and busy: it is not known yet."""
    instance = state.instance[slot]
    instance.waiting_blocks += needed_blocks(trace, fleet, state, request)
    if fleet.is_async[fleet.slot_kind[slot]]:
        state.request[request].queued_s = now
        if instance.batch + instance.joining > 0:
            push_back(
                state, state.lane[slot]["head"], state.lane[slot]["tail"], state.lane.shape[1] - 1, request
            )
            return False
    insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], trace.lane[request], request)
    return True


@compiled
def notice(trace: Trace, state: State, slot: int, until_s: float) -> None:
    """The instance knows of the requests that came up to then, and looks at its queue."""
    heads, tails = state.lane[slot]["head"], state.lane[slot]["tail"]
    unknown = heads.size - 1
    while heads[unknown] != NOBODY and state.request[heads[unknown]].queued_s <= until_s:
        request = pop_front(state, heads, unknown)
        insert_in_order(state, heads, tails, trace.lane[request], request)
        state.instance[slot].look = True


@compiled
def first_of(rules: Rules, state: State, slot: int, lane: int) -> int:
    """The list that has the request of a tier or level which came first; NOBODY where none waits."""
    lists = state.lane.shape[1] - 1
    head = state.lane[slot, lane].head
    if rules.order == Order.DPA:
        other = state.lane[slot, lane + lists // 2].head
        if other != NOBODY and (head == NOBODY or other < head):
            return lane + lists // 2
    return lane if head != NOBODY else NOBODY


@compiled
def is_unknown(state: State, slot: int) -> bool:
    """Whether a request waits that the instance does not know of."""
    return state.lane[slot, state.lane.shape[1] - 1].head != NOBODY


@compiled
def somebody_waits(state: State, slot: int) -> bool:
    """Whether a request waits in any of the slot's lanes, of those that it knows of."""
    heads = state.lane[slot]["head"]
    for at in range(heads.size - 1):  # noqa: SIM110 (compiled code has no any)
        if heads[at] != NOBODY:
            return True
    return False


@compiled
def is_aged(trace: Trace, rules: Rules, request: int, now: float) -> bool:
    """Whether a non-interactive request is old enough for priority 0 (SageServe 6.2)."""
    return now - trace.arrival_s[request] >= rules.niw_priority_age_s


@compiled
def deadline_s(trace: Trace, rules: Rules, request: int) -> float:
    """When the request's first token is due (an aged non-interactive one: its end)."""
    return trace.arrival_s[request] + rules.allowance_s[trace.tier[request]]


@compiled
def risen_to(trace: Trace, rules: Rules, request: int, now: float) -> int:
    """The level that a request counts as: one higher for each `promote_s` that it has waited.

    Not where requests make way for higher ones: two would push each other out for ever.
    """
    if rules.order == Order.PREEMPTIVE:
        return trace.level[request]
    risen = int((now - trace.arrival_s[request]) / rules.promote_s)
    return max(0, trace.level[request] - risen)


@compiled
def rank(trace: Trace, fleet: Fleet, rules: Rules, request: int, now: float) -> int:
    """The class of the request under the policy; lower goes first.

    Aged non-interactive requests rank with the least urgent interactive ones, unless levels go first.
    """
    if rules.order >= Order.PRIORITY:
        return risen_to(trace, rules, request, now)
    tier = trace.tier[request]
    if not fleet.is_interactive[tier] and not is_aged(trace, rules, request, now):
        return LAST
    if rules.order == Order.PF:
        return rules.urgency[tier]
    if rules.order == Order.DPA:
        left_s = deadline_s(trace, rules, request) - now
        urgencies = rules.allowance_s.size  # room for all there may be
        if left_s < -rules.tau_n_s:
            return 0
        if left_s < 0:
            return 1 + 2 * urgencies
        return 1 + rules.urgency[tier] + (0 if left_s <= rules.tau_p_s else urgencies)
    return 0


@compiled
def set_expired_apart(trace: Trace, rules: Rules, state: State, slot: int, now: float) -> None:
    """Move the requests whose deadline has passed from each tier's list to its second one."""
    tiers = rules.allowance_s.size
    for tier in range(tiers):
        while (
            state.lane[slot, tier].head != NOBODY
            and deadline_s(trace, rules, state.lane[slot, tier].head) < now
        ):
            request = pop_front(state, state.lane[slot]["head"], tier)
            insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], tiers + tier, request)


@compiled
def next_lane(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> int:
    """The lane whose head is to be admitted next; NOBODY if none waits.

    FCFS takes the earliest arrival, EDF the earliest deadline, PF the most urgent tier; DPA ranks severely
    expired, urgent by tier, others by tier, recently expired. Equal ranks (and equal deadlines) go by
    arrival; non-interactive requests go when no other waits, or when aged. PRIORITY and PREEMPTIVE take the
    highest level, whatever the tier.
    """
    if rules.order == Order.DPA:
        set_expired_apart(trace, rules, state, slot, now)
    best, best_rank, best_due = NOBODY, 0, 0.0
    for at in range(state.lane.shape[1] - 1):
        head = state.lane[slot, at].head
        if head == NOBODY:
            continue
        its_rank = rank(trace, fleet, rules, head, now)
        due = deadline_s(trace, rules, head) if rules.order == Order.EDF else 0.0
        if (
            best == NOBODY
            or its_rank < best_rank
            or (
                its_rank == best_rank
                and (due < best_due or (due == best_due and head < state.lane[slot, best].head))
            )
        ):
            best, best_rank, best_due = at, its_rank, due
    return best


@compiled
def tiers_or_levels(rules: Rules, state: State) -> int:
    """How many tiers, or levels where those go first, requests wait by."""
    return (state.lane.shape[1] - 1) // (2 if rules.order == Order.DPA else 1)


def lanes(rules: Rules) -> int:
    """How many lists an instance's requests wait in: one for each level, or tier, or two under DPA."""
    if rules.order >= Order.PRIORITY:
        return rules.headroom_share.size
    return rules.allowance_s.size * (2 if rules.order == Order.DPA else 1)
