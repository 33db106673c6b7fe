"""The queue manager: non-interactive requests wait there for spare memory, or to age (SageServe 6.2)."""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.route import dispatch, route
from fleetcast.models.replay.dispatch.spread import may_have
from fleetcast.models.replay.engine.memory import is_under
from fleetcast.models.replay.engine.queue import is_aged, pop_front, push_back
from fleetcast.models.replay.fleet.signal import is_slack
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State

PATIENCE_SHARE = 0.1  # of the time to ageing, in which niw takes only what no signal claims


@called
def hold_niw(trace: Trace, state: State, request: int) -> None:
    """Let a non-interactive request wait at the queue manager."""
    llm = trace.llm[request]
    push_back(state, state.llm["manager_head"], state.llm["manager_tail"], llm, request)
    state.llm[llm].manager_output_tokens += trace.output_tokens[request]
    state.llm[llm].manager_input_tokens += trace.input_tokens[request]


@called
def take_niw(trace: Trace, state: State, llm: int) -> int:
    """The request that the queue manager has held longest, which must be there."""
    request = pop_front(state, state.llm["manager_head"], llm)
    state.llm[llm].manager_output_tokens -= trace.output_tokens[request]
    state.llm[llm].manager_input_tokens -= trace.input_tokens[request]
    return request


@called
def has_spare(fleet: Fleet, rules: Rules, state: State, pool: int, share: float, is_patient: bool) -> bool:
    """Whether less than `share` of the pool is in use: as the signal tells, or of its memory."""
    return is_slack(fleet, rules, state, pool, share) if is_patient else is_under(state, pool, share)


@called
def pull_niw(trace: Trace, fleet: Fleet, rules: Rules, state: State, pool: int, now: float) -> None:
    """The pool signals spare memory and gets one request of the queue manager, or two (60 %, 50 %).

    Where the signal is not memory alone, the other one counts too for a tenth of the time to ageing.
    """
    llm, pulls = fleet.llm[pool], 0
    if state.llm[llm].manager_head == NOBODY:
        return
    waits_s = now - trace.arrival_s[state.llm[llm].manager_head]
    is_patient = waits_s < PATIENCE_SHARE * rules.niw_priority_age_s
    if has_spare(fleet, rules, state, pool, rules.niw_pull_two_share, is_patient):
        pulls = 2
    elif has_spare(fleet, rules, state, pool, rules.niw_pull_one_share, is_patient):
        pulls = 1
    while pulls > 0 and state.llm[llm].manager_head != NOBODY:
        if not may_have(trace, fleet, pool, state.llm[llm].manager_head):
            break
        dispatch(trace, fleet, rules, state, take_niw(trace, state, llm), pool, now)
        pulls -= 1


@called
def release_aged_niw(trace: Trace, fleet: Fleet, rules: Rules, state: State, llm: int, now: float) -> None:
    """Requests old enough for priority 0 wait for no signal: they go where an interactive one would."""
    while state.llm[llm].manager_head != NOBODY and is_aged(trace, rules, state.llm[llm].manager_head, now):
        route(trace, fleet, rules, state, take_niw(trace, state, llm), now)
