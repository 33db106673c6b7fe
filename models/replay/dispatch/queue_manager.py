"""Queue manager: requests of the batch tier wait for spare capacity, or until they age.

MEMORY  a pool takes them while little of its memory is in use (SageServe 6.2)
GAPS    an instance takes one when it has no prompt without a first token. So an interactive prompt waits for
        one deferred prompt at most, and a gap between interactive prompts is not lost. Where interactive
        tiers have a target for the time per output token, decode steps must stay well below it
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.route import (
    dispatch_request,
    least_prefill_instance,
    route_request,
    send_to_instance,
)
from fleetcast.models.replay.dispatch.spread import can_take_request
from fleetcast.models.replay.engine.kv_memory import is_below_kv_share
from fleetcast.models.replay.engine.queue import is_aged, pop_front, push_back
from fleetcast.models.replay.engine.ranks import choose_rank
from fleetcast.models.replay.fleet.scaling_signal import is_slack
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import BatchPull

PATIENCE_SHARE = 0.1  # of the time to ageing, in which a pull needs spare capacity by the whole signal


@njit_call
def defer_request(trace: TraceArrays, state: State, request: int) -> None:
    """Append a request of the batch tier to its llm's queue at the queue manager."""
    llm = trace.llm[request]
    push_back(state, state.llm["manager_head"], state.llm["manager_tail"], llm, request)
    state.llm[llm].manager_output_tokens += trace.output_tokens[request]
    state.llm[llm].manager_input_tokens += trace.input_tokens[request]


@njit_call
def pop_deferred(trace: TraceArrays, state: State, llm: int) -> int:
    """Take the request that has waited longest at the queue manager; there must be one."""
    request = pop_front(state, state.llm["manager_head"], llm)
    state.llm[llm].manager_output_tokens -= trace.output_tokens[request]
    state.llm[llm].manager_input_tokens -= trace.input_tokens[request]
    return request


@njit_call
def has_spare_capacity(
    fleet: FleetArrays, rules: Rules, state: State, pool: int, share: float, is_patient: bool
) -> bool:
    """Return whether less than `share` of the pool is in use, by the rules' signal or by memory alone."""
    return is_slack(fleet, rules, state, pool, share) if is_patient else is_below_kv_share(state, pool, share)


@njit_call
def pull_deferred(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, now: float
) -> None:
    """Pull one deferred request to a pool below the first threshold, or two below the second (60 %, 50 %).

    For the first tenth of the time to ageing the pool must be below it by the rules' signal, later by memory.
    """
    llm, pulls = fleet.llm[pool], 0
    if state.llm[llm].manager_head == NO_INDEX:
        return
    if rules.batch_pull == BatchPull.GAPS:
        pull_into_gaps(trace, fleet, rules, state, pool, now)
        return
    waits_s = now - trace.arrival_s[state.llm[llm].manager_head]
    is_patient = waits_s < PATIENCE_SHARE * rules.niw_priority_age_s
    if has_spare_capacity(fleet, rules, state, pool, rules.niw_pull_two_share, is_patient):
        pulls = 2
    elif has_spare_capacity(fleet, rules, state, pool, rules.niw_pull_one_share, is_patient):
        pulls = 1
    while pulls > 0 and state.llm[llm].manager_head != NO_INDEX:
        if not can_take_request(trace, fleet, pool, state.llm[llm].manager_head):
            break
        dispatch_request(trace, fleet, rules, state, pop_deferred(trace, state, llm), pool, now)
        pulls -= 1


@njit_call
def pull_into_gaps(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, now: float
) -> None:
    """Pull a deferred request to each instance without a waiting prompt, while memory is below the threshold.

    It is the first of the two thresholds: memory that fills would preempt interactive requests. Nor may the
    request make decode steps longer than `pull_step_s`.
    """
    llm = fleet.llm[pool]
    while state.llm[llm].manager_head != NO_INDEX and is_below_kv_share(
        state, pool, rules.niw_pull_one_share
    ):
        request, slot = state.llm[llm].manager_head, least_prefill_instance(fleet, state, pool)
        if state.instance[slot].waiting_tokens > 0 or not can_take_request(trace, fleet, pool, request):
            break
        rank = choose_rank(fleet, state, slot)
        if decode_step_with_s(trace, fleet, state, rank, request) > rules.pull_step_s:
            break
        send_to_instance(trace, fleet, rules, state, pop_deferred(trace, state, llm), slot, now)


@njit_call
def decode_step_with_s(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int
) -> float:
    """Return the seconds of a decode step of the slot's batch with one more request after its prefill."""
    kind, instance = fleet.slot_kind[slot], state.instance[slot]
    batch = min(instance.batch + 1, fleet.latency.decode_s.shape[1] - 1)
    kv_tokens = instance.counted_kv_tokens + trace.input_tokens[request]
    return fleet.latency.decode_s[kind, batch] + fleet.latency.decode_kv_s[kind, batch] * kv_tokens


@njit_call
def release_aged_deferred(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, llm: int, now: float
) -> None:
    """Route the deferred requests that are old enough for priority 0, as interactive ones."""
    while state.llm[llm].manager_head != NO_INDEX and is_aged(trace, rules, state.llm[llm].manager_head, now):
        route_request(trace, fleet, rules, state, pop_deferred(trace, state, llm), now)
