"""What a rule looks at to tell whether a pool has enough instances: its memory, its work, or both.

memory  KV tokens in use, of those that fit (SageServe 6.1: a proxy for load)
queue   tokens/s of prompts that come, and what waits, of what the serving instances sustain within their
        targets: where memory is not the limit it stays low while requests wait
both    whichever is the fuller

What comes is the interactive prompts that are sent to the pool, smoothed over a minute; what waits is those
of them that have no token yet, which are to be worked off in `catch_up_s`.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules
from fleetcast.models.replay.state import ReplayState
from fleetcast.models.world.mechanisms import Signal, Status

SMOOTHED_S = 60.0  # the memory of what comes


@njit_call
def smooth_rates(rules: Rules, state: ReplayState) -> None:
    """Take in, at a monitor tick, what has come since the last one."""
    share = min(1.0, rules.monitor_s / SMOOTHED_S)
    for pool in range(state.pool.size):
        latest = state.pool[pool].routed_tokens / rules.monitor_s
        state.pool[pool].rate_tokens_per_s += share * (latest - state.pool[pool].rate_tokens_per_s)
        state.pool[pool].routed_tokens = 0


@njit_call
def work_tokens_per_s(rules: Rules, state: ReplayState, pool: int) -> float:
    """What comes to the pool, and what waits there over the time in which it is to be worked off."""
    return state.pool[pool].rate_tokens_per_s + state.pool[pool].waiting_tokens / rules.catch_up_s


@njit_call
def used_and_capacity(fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int) -> tuple[float, float]:
    """What is in use of the serving instances, and all there is: of memory or of work."""
    used, room = float(state.pool[pool].kv_used), float(state.pool[pool].kv_room)
    if rules.signal == Signal.MEMORY:
        return used, room
    work = work_tokens_per_s(rules, state, pool)
    sustained = state.instances[pool, Status.SERVING] * fleet.tokens_per_s[pool]
    if rules.signal == Signal.QUEUE or work * room > used * sustained:
        return work, sustained
    return used, room


@njit_call
def is_slack(fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int, share: float) -> bool:
    """Whether the pool has serving instances and less than `share` of them is in use."""
    used, room = used_and_capacity(fleet, rules, state, pool)
    return used < share * room


@njit_call
def is_crowded(fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int, share: float) -> bool:
    """Whether more than `share` of the pool's serving instances is in use."""
    used, room = used_and_capacity(fleet, rules, state, pool)
    return used > share * room


@njit_call
def is_keeping_up(fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int) -> bool:
    """Whether the pool sustains what comes and waits, as far as the signal tells."""
    sustained = state.instances[pool, Status.SERVING] * fleet.tokens_per_s[pool]
    return rules.signal == Signal.MEMORY or work_tokens_per_s(rules, state, pool) < sustained
