"""The queue manager: non-interactive requests wait there for spare memory, or to age (SageServe 6.2)."""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.route import dispatch_request, route_request
from fleetcast.models.replay.dispatch.spread import can_take_request
from fleetcast.models.replay.engine.kv_memory import is_below_kv_share
from fleetcast.models.replay.engine.queue import is_aged, pop_front, push_back
from fleetcast.models.replay.fleet.scaling_signal import is_slack
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import ReplayState

PATIENCE_SHARE = 0.1  # of the time to ageing, in which niw takes only what no signal claims


@njit_call
def defer_request(trace: TraceArrays, state: ReplayState, request: int) -> None:
    """Let a non-interactive request wait at the queue manager."""
    llm = trace.llm[request]
    push_back(state, state.llm["manager_head"], state.llm["manager_tail"], llm, request)
    state.llm[llm].manager_output_tokens += trace.output_tokens[request]
    state.llm[llm].manager_input_tokens += trace.input_tokens[request]


@njit_call
def pop_deferred(trace: TraceArrays, state: ReplayState, llm: int) -> int:
    """The request that the queue manager has held longest, which must be there."""
    request = pop_front(state, state.llm["manager_head"], llm)
    state.llm[llm].manager_output_tokens -= trace.output_tokens[request]
    state.llm[llm].manager_input_tokens -= trace.input_tokens[request]
    return request


@njit_call
def has_spare_capacity(
    fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int, share: float, is_patient: bool
) -> bool:
    """Whether less than `share` of the pool is in use: as the signal tells, or of its memory."""
    return is_slack(fleet, rules, state, pool, share) if is_patient else is_below_kv_share(state, pool, share)


@njit_call
def pull_deferred(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int, now: float
) -> None:
    """The pool signals spare memory and gets one request of the queue manager, or two (60 %, 50 %).

    Where the signal is not memory alone, the other one counts too for a tenth of the time to ageing.
    """
    llm, pulls = fleet.llm[pool], 0
    if state.llm[llm].manager_head == NO_INDEX:
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
def release_aged_deferred(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: ReplayState, llm: int, now: float
) -> None:
    """Requests old enough for priority 0 wait for no signal: they go where an interactive one would."""
    while state.llm[llm].manager_head != NO_INDEX and is_aged(trace, rules, state.llm[llm].manager_head, now):
        route_request(trace, fleet, rules, state, pop_deferred(trace, state, llm), now)
