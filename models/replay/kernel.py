"""The replay kernel: from one event to the next, and what each event does.

Cost grows with requests, not with tokens or simulated time: a request meets its arrival, the cut of the
stretch it joins, the end of its prefill and its finish; an idle instance has no events at all.

What holds in every replay (tests/test_replay.py, test_replay_laws.py and test_legs.py, by these numbers):
1. Every request ends exactly once: finished, refused, spared, or said to be queued still.
2. arrival <= first token <= finish, and no gap between two tokens is negative.
3. The KV blocks in use never exceed those that fit, and none is left when the fleet is empty.
4. Tokens computed and reused = input + output - 1 of the finished requests + what was lost + what is there.
5. Instance time by state adds up to the time that VMs are held, exactly.
6. Ties have one declared order (events.py): the same bits when repeated, and beside other threads.
7. Leaping = stepping = the naive twin.
8. Queueing theory holds, more instances never raise the mean wait, and scaling all times scales all results.
9. A request stands in exactly one place: to come, held, waiting, joining, decoding, under way, or ended.
10. Both ends of a hand-over account for it: the sender's blocks to its end, the receiver's load at once.
11. A hand-over computes nothing; a cache that is lost on its way is computed again, and counted as lost.
"""

import math

from models.replay.balance import balance
from models.replay.batch import begin, end_prefill, end_stretch
from models.replay.chain import is_first_leg, shift, spare
from models.replay.compiled import called, entry
from models.replay.deliver import deliver
from models.replay.failures import fail
from models.replay.freeness import adapt_headroom
from models.replay.handover import take_off_the_way
from models.replay.leap import stretch_s
from models.replay.life import account_instance, change_status, donate_when_empty
from models.replay.manager import hold_niw, pull_niw, release_aged_niw
from models.replay.memory import integrate_kv
from models.replay.move import ask_for_move, copy_next
from models.replay.pools import endpoint_of
from models.replay.route import release_kept, route, take_stranded
from models.replay.scale import (
    FOLLOW,
    HPA,
    RECENT_COOLDOWNS,
    REFLEX,
    follow_targets,
    keep_minimum,
    react,
    set_hpa_targets,
    set_reflex,
)
from models.replay.signal import smooth_rates
from models.replay.state import (
    ARRIVED,
    BALANCE,
    BEFORE,
    BOOTING,
    DECODE,
    DRAINING,
    ENDED,
    EVENTS,
    FAILED,
    HOUR,
    IDLE,
    IDLING,
    MONITOR,
    NEVER,
    NOBODY,
    NOW,
    PREFILL,
    RUNNING,
    SERVING,
    SINCE,
    Fleet,
    Rules,
    State,
    Trace,
)


@entry
def advance(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, until_s: float, until_ended: bool
) -> None:
    """Run every event before `until_s`; with `until_ended` stop as soon as every request has ended."""
    requests, failures = trace.arrival_s.size, rules.failure_s.size
    while not (until_ended and state.counts[ENDED] == requests):
        arrived = state.counts[ARRIVED]
        arrival_s = trace.arrival_s[arrived] if arrived < requests else NEVER
        failed = state.counts[FAILED]
        failure_s = rules.failure_s[failed] if failed < failures else NEVER
        clock = state.heap[0]
        now = min(arrival_s, state.event_s[clock], state.clock[MONITOR], failure_s)
        if now >= until_s or state.counts[IDLING] > patience(trace, state):
            break
        if now > state.clock[NOW]:
            state.clock[NOW] = now
            state.counts[IDLING], state.counts[RUNNING] = 0, NOBODY
        else:
            state.counts[IDLING] += 1
        state.counts[EVENTS] += 1
        if state.clock[MONITOR] == now:
            monitor(trace, fleet, rules, state, now)
        elif failure_s == now:
            state.counts[FAILED] += 1
            fail(trace, fleet, rules, state, rules.failure_slot[failed], now)
        elif arrival_s == now:
            state.counts[ARRIVED] += 1
            if is_first_leg(trace, arrived):
                enter(trace, fleet, rules, state, arrived, now)
        else:
            state.counts[RUNNING] = max(state.counts[RUNNING], clock)
            if clock < state.status.size:
                work(trace, fleet, rules, state, clock, now)
            else:
                arrive_by_hand(trace, fleet, rules, state, now)


@entry
def advance_balanced(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, until_s: float, until_ended: bool
) -> None:
    """As advance, with the balancer's ticks before `until_s`."""
    tick, requests = round(state.clock[BALANCE] / rules.balance_s), trace.arrival_s.size
    while True:
        at_s = tick * rules.balance_s
        advance(trace, fleet, rules, state, min(at_s, until_s), until_ended)
        is_over = until_ended and state.counts[ENDED] == requests
        if at_s >= until_s or is_over or state.counts[IDLING] > patience(trace, state):
            break
        state.clock[NOW], state.counts[RUNNING] = at_s, NOBODY
        is_awake = balance(trace, fleet, rules, state, at_s) or rules.steps_per_event == 1
        tick += 1
        if not is_awake:
            tick = max(tick, math.floor(next_event_s(trace, rules, state) / rules.balance_s) + 1)
    state.clock[BALANCE] = math.ceil(until_s / rules.balance_s) * rules.balance_s


@called
def next_event_s(trace: Trace, rules: Rules, state: State) -> float:
    """When the next event is, which always is: the monitor's."""
    next_s = min(state.event_s[state.heap[0]], state.clock[MONITOR])
    if state.counts[ARRIVED] < trace.arrival_s.size:
        next_s = min(next_s, trace.arrival_s[state.counts[ARRIVED]])
    if state.counts[FAILED] < rules.failure_s.size:
        next_s = min(next_s, rules.failure_s[state.counts[FAILED]])
    return next_s


@entry
def patience(trace: Trace, state: State) -> int:
    """How many events at one instant can still be progress; beyond it the watchdog barks."""
    return 1000 + 16 * (trace.arrival_s.size + state.heap.size)


@entry
def account(fleet: Fleet, state: State, now: float) -> None:
    """Count instance time and KV areas up to now."""
    state.clock[NOW], state.counts[RUNNING] = now, NOBODY
    for slot in range(state.status.size):
        account_instance(fleet, state, slot, now)
    for pool in range(state.kv_used.size):
        integrate_kv(state, pool, now)


@entry
def start_hour(fleet: Fleet, rules: Rules, state: State, now: float) -> None:
    """The control tick: state.target and state.forecast_tokens_per_s are those of the hour that begins."""
    state.clock[HOUR], state.counts[RUNNING] = now, NOBODY
    if rules.scaling in (FOLLOW, REFLEX):
        follow_targets(fleet, state, now)


@entry
def move(trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, to: int, now: float) -> bool:
    """Ask between two events for a live move of a request to slot `to`; whether it begins."""
    return ask_for_move(trace, fleet, rules, state, request, to, now)


@called
def monitor(trace: Trace, fleet: Fleet, rules: Rules, state: State, now: float) -> None:
    """What must happen even when no request arrives: scaling, ageing, signals of spare memory."""
    state.clock[MONITOR] += rules.monitor_s
    if now - state.clock[SINCE] >= RECENT_COOLDOWNS * rules.cooldown_s:
        state.clock[BEFORE], state.clock[SINCE] = state.clock[SINCE], now
        for endpoint in range(state.seen_tokens.size):
            state.seen_before[endpoint], state.seen_tokens[endpoint] = state.seen_tokens[endpoint], 0
    smooth_rates(rules, state)
    if rules.gear_from.shape[1]:
        shift(fleet, rules, state)
    if rules.is_adaptive:
        adapt_headroom(fleet, rules, state)
    if rules.scaling == HPA:
        set_hpa_targets(fleet, rules, state, now)
    elif rules.scaling == REFLEX:
        set_reflex(trace, fleet, rules, state, now)
    if rules.scaling in (FOLLOW, REFLEX, HPA):
        follow_targets(fleet, state, now)
    for llm in range(state.manager_head.size):
        release_aged_niw(trace, fleet, rules, state, llm, now)
        if rules.holds_back:
            release_kept(trace, fleet, rules, state, llm, now)
    for pool in range(state.kv_used.size):
        keep_minimum(fleet, state, pool, now)
        react(trace, fleet, rules, state, pool, now)
        pull_niw(trace, fleet, rules, state, pool, now)


@called
def enter(trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, now: float) -> None:
    """A leg begins: interactive ones are routed at once, those that share their instances are held."""
    llm, origin = trace.llm[request], trace.region[request]
    state.came[llm] += 1
    if trace.input_tokens[request] + trace.output_tokens[request] > fleet.roomiest[llm]:
        state.refused[request] = True
        state.counts[ENDED] += 1
        spare(trace, state, request)
    elif fleet.holds[llm] and not fleet.is_interactive[trace.tier[request]]:
        hold_niw(trace, state, request)
        for rank in range(fleet.preference.shape[0]):
            region = fleet.preference[origin, rank]
            if region == NOBODY or state.manager_head[llm] == NOBODY:
                break
            for pool in fleet.pools_of[endpoint_of(fleet, llm, region)]:
                if pool != NOBODY:
                    pull_niw(trace, fleet, rules, state, pool, now)
    else:
        if fleet.is_interactive[trace.tier[request]]:
            state.seen_tokens[endpoint_of(fleet, llm, origin)] += trace.input_tokens[request]
        pool = route(trace, fleet, rules, state, request, now)
        if pool != NOBODY:
            react(trace, fleet, rules, state, pool, now)


@called
def arrive_by_hand(trace: Trace, fleet: Fleet, rules: Rules, state: State, now: float) -> None:
    """The next hand-over ends: a copy, a cache on its way, or a judge's look before the next leg."""
    request = state.moving[0]
    take_off_the_way(state, request)
    if state.copying_to[request] != NOBODY:
        copy_next(trace, fleet, rules, state, request, now)
    elif state.holder[request] != NOBODY:
        deliver(trace, fleet, rules, state, request, now)
    else:
        enter(trace, fleet, rules, state, request, now)


@called
def work(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """An instance has booted or reached the end of a prefill or a stretch; then it begins what is next."""
    phase, changed = state.phase[slot], False
    state.phase[slot] = IDLE
    if state.status[slot] == BOOTING:
        change_status(fleet, state, slot, SERVING, now)
        take_stranded(trace, fleet, rules, state, fleet.llm[fleet.pool[slot]], now)
        changed = True
    elif phase == PREFILL:
        state.step_s[slot] = state.base_s[slot]
        changed = end_prefill(trace, fleet, rules, state, slot, now)
    elif phase == DECODE:
        state.step_s[slot] = state.base_s[slot] + stretch_s(fleet, state, slot, state.stretch[slot] - 1)
        changed = end_stretch(trace, fleet, rules, state, slot, now)
    if changed and state.status[slot] == SERVING:
        pull_niw(trace, fleet, rules, state, fleet.pool[slot], now)
        if rules.holds_back:
            release_kept(trace, fleet, rules, state, fleet.llm[fleet.pool[slot]], now)
    begin(trace, fleet, rules, state, slot, now)
    if state.status[slot] == DRAINING:
        donate_when_empty(fleet, state, slot, now)
