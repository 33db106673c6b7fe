"""The replay kernel: it advances from one event to the next; handlers.py has what each event does.

Cost grows with requests, not with tokens or simulated time. A request causes a few events: its arrival, the
cut of the decode stretch that it joins, the end of its prefill, its finish. An idle instance has no events.

Invariants of every replay (tests/test_replay.py, test_replay_laws.py and test_legs.py use these numbers):
1. Every request ends exactly once: finished, refused, spared (skipped), or reported as still queued.
2. arrival <= first token <= finish, and no gap between two tokens is negative.
3. The KV blocks in use never exceed the capacity, and none is in use when the fleet is empty.
4. Tokens computed and reused = input + output - 1 of the finished requests + what was lost + what is cached.
5. Instance time by state adds up to the time for which VMs are held, exactly.
6. Ties have one declared order (event_queue.py): a repeated replay gives the same bits, in any thread.
7. Stretches in closed form = step by step = the naive twin (tests/naive.py).
8. Queueing theory holds, more instances never raise the mean wait, and scaling all times scales all results.
9. A request is in exactly one place: not arrived, deferred, waiting, joining, decoding, in flight, or ended.
10. Both ends account for a transfer: the sender's blocks until its end, the receiver's load at once.
11. A transfer computes nothing; a cache that is lost in flight is computed again, and counted as lost.
"""

import math

from fleetcast.models.replay.compiled import njit_call, njit_entry
from fleetcast.models.replay.dispatch.balance import balance_pools
from fleetcast.models.replay.dispatch.leg_chain import is_first_leg
from fleetcast.models.replay.dispatch.migration import start_migration
from fleetcast.models.replay.engine.kv_memory import integrate_kv
from fleetcast.models.replay.fleet.failures import fail_instance
from fleetcast.models.replay.fleet.lifecycle import account_instance
from fleetcast.models.replay.fleet.scaling_rules import follow_targets
from fleetcast.models.replay.handlers import (
    admit_request,
    on_instance_event,
    on_monitor_tick,
    on_transfer_done,
)
from fleetcast.models.replay.kernel_inputs import NEVER, NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Scaling


@njit_entry
def advance_events(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, until_s: float, until_ended: bool
) -> None:
    """Run all events before `until_s`; with `until_ended` stop once every request has ended."""
    requests, failures = trace.arrival_s.size, rules.failure_s.size
    while not (until_ended and state.progress.ended == requests):
        arrived = state.progress.arrived
        arrival_s = trace.arrival_s[arrived] if arrived < requests else NEVER
        failed = state.progress.failed
        failure_s = rules.failure_s[failed] if failed < failures else NEVER
        clock = state.clock[0].heap
        now = min(arrival_s, state.clock[clock].event_s, state.progress.monitor_s, failure_s)
        if now >= until_s or state.progress.stalled_events > watchdog_limit(trace, state):
            break
        if now > state.progress.now_s:
            state.progress.now_s = now
            state.progress.stalled_events, state.progress.last_clock = 0, NO_INDEX
        else:
            state.progress.stalled_events += 1
        state.progress.events += 1
        if state.progress.monitor_s == now:
            on_monitor_tick(trace, fleet, rules, state, now)
        elif failure_s == now:
            state.progress.failed += 1
            fail_instance(trace, fleet, rules, state, rules.failure_slot[failed], now)
        elif arrival_s == now:
            state.progress.arrived += 1
            if is_first_leg(trace, arrived):
                admit_request(trace, fleet, rules, state, arrived, now)
        else:
            state.progress.last_clock = max(state.progress.last_clock, clock)
            if clock < state.instance.size:
                on_instance_event(trace, fleet, rules, state, clock, now)
            else:
                on_transfer_done(trace, fleet, rules, state, now)


@njit_entry
def advance_with_balancer(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, until_s: float, until_ended: bool
) -> None:
    """Do the same as advance_events, with the ticks of the balancer before `until_s`."""
    tick, requests = round(state.progress.balance_s / rules.balance_s), trace.arrival_s.size
    while True:
        at_s = tick * rules.balance_s
        advance_events(trace, fleet, rules, state, min(at_s, until_s), until_ended)
        is_over = until_ended and state.progress.ended == requests
        if at_s >= until_s or is_over or state.progress.stalled_events > watchdog_limit(trace, state):
            break
        state.progress.now_s, state.progress.last_clock = at_s, NO_INDEX
        is_awake = balance_pools(trace, fleet, rules, state, at_s) or rules.steps_per_event == 1
        tick += 1
        if not is_awake:
            tick = max(tick, math.floor(next_event_s(trace, rules, state) / rules.balance_s) + 1)
    state.progress.balance_s = math.ceil(until_s / rules.balance_s) * rules.balance_s


@njit_call
def next_event_s(trace: TraceArrays, rules: Rules, state: State) -> float:
    """Return the time of the next event; there always is one, as the monitor never stops."""
    next_s = min(state.clock[state.clock[0].heap].event_s, state.progress.monitor_s)
    if state.progress.arrived < trace.arrival_s.size:
        next_s = min(next_s, trace.arrival_s[state.progress.arrived])
    if state.progress.failed < rules.failure_s.size:
        next_s = min(next_s, rules.failure_s[state.progress.failed])
    return next_s


@njit_entry
def watchdog_limit(trace: TraceArrays, state: State) -> int:
    """Return the most events at one instant that can be progress; above this the watchdog raises."""
    return 1000 + 16 * (trace.arrival_s.size + state.clock.size)


@njit_entry
def account_fleet(fleet: FleetArrays, state: State, now: float) -> None:
    """Add instance time and KV token-seconds up to now to the totals."""
    state.progress.now_s, state.progress.last_clock = now, NO_INDEX
    for slot in range(state.instance.size):
        account_instance(fleet, state, slot, now)
    for pool in range(state.pool.size):
        integrate_kv(state, pool, now)


@njit_entry
def start_control_interval(fleet: FleetArrays, rules: Rules, state: State, now: float) -> None:
    """Run the control tick; the targets and forecasts of this control interval are already in the state."""
    state.progress.hour_s, state.progress.last_clock = now, NO_INDEX
    if rules.scaling in (Scaling.FOLLOW, Scaling.REFLEX):
        follow_targets(fleet, state, now)


@njit_entry
def migrate_request(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, to: int, now: float
) -> bool:
    """Start a live move of a request to slot `to` between two events; return whether it begins."""
    return start_migration(trace, fleet, rules, state, request, to, now)
