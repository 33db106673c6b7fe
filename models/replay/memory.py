"""KV memory: what an endpoint's utilisation is.

Effective memory utilisation (SageServe 6.1) = KV tokens in use / KV tokens that fit, weights excluded,
over the serving instances. "In use" is as of each instance's last batch change (a request admitted,
finished or preempted): whole numbers, kept up to date at events, the same whether decode steps are
leapt or played. Between two changes it lags by at most one token per request and step.
"""

from models.replay.compiled import compiled
from models.replay.state import SERVING, Fleet, State, Trace


@compiled
def integrate_kv(state: State, endpoint: int, now: float) -> None:
    """Bring the endpoint's token-seconds up to now; call before its totals change."""
    elapsed = now - state.kv_since_s[endpoint]
    state.kv_used_area[endpoint] += state.kv_used[endpoint] * elapsed
    state.kv_room_area[endpoint] += state.kv_room[endpoint] * elapsed
    state.kv_since_s[endpoint] = now


@compiled
def see_kv(fleet: Fleet, state: State, slot: int, now: float) -> None:
    """Let the endpoint see what the slot holds now, after a change of its batch."""
    if state.status[slot] == SERVING:
        endpoint = fleet.endpoint[slot]
        integrate_kv(state, endpoint, now)
        state.kv_used[endpoint] += state.kv[slot] - state.kv_seen[slot]
    state.kv_seen[slot] = state.kv[slot]


@compiled
def is_under(state: State, endpoint: int, share: float) -> bool:
    """Whether the endpoint has serving instances and its utilisation is below `share`."""
    return state.kv_used[endpoint] < share * state.kv_room[endpoint]


@compiled
def is_over(state: State, endpoint: int, share: float) -> bool:
    """Whether the endpoint's utilisation is above `share`."""
    return state.kv_used[endpoint] > share * state.kv_room[endpoint]


@compiled
def prompt_tokens(trace: Trace, state: State, request: int) -> int:
    """Tokens to prefill: the input, and after a preemption what had been generated too."""
    return trace.input_tokens[request] + state.generated[request]
