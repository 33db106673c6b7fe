"""Scaling signal: a pool's memory, its work, or both, compared with what its instances can take.

memory  KV tokens in use / KV tokens that fit (SageServe 6.1: a proxy for load)
queue   prompt tokens/s of arrivals and backlog / what the serving instances sustain within their SLO; where
        memory is not the limit, memory use stays low while requests wait
both    the larger of the two

Arrivals are the interactive prompts sent to the pool, smoothed over a minute. The backlog is those of them
without a first token; it is to be worked off in `catch_up_s`.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.engine.kv_memory import instance_kv_capacity
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Signal, Status

SMOOTHED_S = 60.0  # time constant of the smoothed arrival rates


@njit_call
def smooth_rates(rules: Rules, state: State) -> None:
    """Update the smoothed arrival rates of all pools at a monitor tick."""
    share = min(1.0, rules.monitor_s / SMOOTHED_S)
    for pool in range(state.pool.size):
        latest = state.pool[pool].routed_tokens / rules.monitor_s
        state.pool[pool].rate_tokens_per_s += share * (latest - state.pool[pool].rate_tokens_per_s)
        state.pool[pool].routed_tokens = 0


@njit_call
def work_tokens_per_s(rules: Rules, state: State, pool: int) -> float:
    """Return the pool's work in tokens/s: arrivals, and the backlog over `catch_up_s`."""
    return state.pool[pool].rate_tokens_per_s + state.pool[pool].waiting_tokens / rules.catch_up_s


@njit_call
def used_and_capacity(fleet: FleetArrays, rules: Rules, state: State, pool: int) -> tuple[float, float]:
    """Return use and capacity of the serving instances: in KV tokens (memory), or in tokens/s (work)."""
    used, room = float(state.pool[pool].kv_used), float(state.pool[pool].kv_room)
    if rules.signal == Signal.MEMORY:
        return used, room
    work = work_tokens_per_s(rules, state, pool)
    capacity = state.instances[pool, Status.SERVING] * fleet.tokens_per_s[pool]
    if rules.signal == Signal.QUEUE or work * room > used * capacity:
        return work, capacity
    return used, room


@njit_call
def used_and_instance_capacity(
    fleet: FleetArrays, rules: Rules, state: State, pool: int
) -> tuple[float, float]:
    """Return use of the pool and what one instance takes: in KV tokens (memory), or in tokens/s (work)."""
    used, tokens = float(state.pool[pool].kv_used), float(instance_kv_capacity(fleet, fleet.kind[pool]))
    if rules.signal == Signal.MEMORY:
        return used, tokens
    work, capacity = work_tokens_per_s(rules, state, pool), fleet.tokens_per_s[pool]
    if rules.signal == Signal.QUEUE or work * tokens > used * capacity:
        return work, capacity
    return used, tokens


@njit_call
def is_slack(fleet: FleetArrays, rules: Rules, state: State, pool: int, share: float) -> bool:
    """Return whether the pool has serving instances and less than `share` of them is in use."""
    used, room = used_and_capacity(fleet, rules, state, pool)
    return used < share * room


@njit_call
def is_crowded(fleet: FleetArrays, rules: Rules, state: State, pool: int, share: float) -> bool:
    """Return whether more than `share` of the pool's serving instances is in use."""
    used, room = used_and_capacity(fleet, rules, state, pool)
    return used > share * room


@njit_call
def is_keeping_up(fleet: FleetArrays, rules: Rules, state: State, pool: int) -> bool:
    """Return whether the pool sustains its arrivals and backlog; always true for the signal memory."""
    capacity = state.instances[pool, Status.SERVING] * fleet.tokens_per_s[pool]
    return rules.signal == Signal.MEMORY or work_tokens_per_s(rules, state, pool) < capacity
