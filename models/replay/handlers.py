"""What each event does: the monitor's tick, a request's entry, the end of a hand-over, a boot or a step.

An instance's death is in failures.py.
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.chain import shift, spare
from fleetcast.models.replay.dispatch.deliver import deliver
from fleetcast.models.replay.dispatch.freeness import adapt_headroom
from fleetcast.models.replay.dispatch.handover import take_off_the_way
from fleetcast.models.replay.dispatch.manager import hold_niw, pull_niw, release_aged_niw
from fleetcast.models.replay.dispatch.move import copy_next
from fleetcast.models.replay.dispatch.route import release_kept, route, take_stranded
from fleetcast.models.replay.engine.batch import begin, end_prefill, end_stretch
from fleetcast.models.replay.engine.leap import stretch_s
from fleetcast.models.replay.fleet.life import change_status, donate_when_empty
from fleetcast.models.replay.fleet.pools import endpoint_of
from fleetcast.models.replay.fleet.scale import (
    RECENT_COOLDOWNS,
    follow_targets,
    keep_minimum,
    react,
    set_hpa_targets,
    set_reflex,
)
from fleetcast.models.replay.fleet.signal import smooth_rates
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Phase, Scaling, Status


@called
def monitor(trace: Trace, fleet: Fleet, rules: Rules, state: State, now: float) -> None:
    """What must happen even when no request arrives: scaling, ageing, signals of spare memory."""
    state.progress.monitor_s += rules.monitor_s
    if now - state.progress.seen_since_s >= RECENT_COOLDOWNS * rules.cooldown_s:
        state.progress.seen_before_since_s, state.progress.seen_since_s = state.progress.seen_since_s, now
        for endpoint in range(state.endpoint.size):
            state.endpoint[endpoint].seen_before = state.endpoint[endpoint].seen_tokens
            state.endpoint[endpoint].seen_tokens = 0
    smooth_rates(rules, state)
    if rules.gear_from.shape[1]:
        shift(fleet, rules, state)
    if rules.is_adaptive:
        adapt_headroom(fleet, rules, state)
    if rules.scaling == Scaling.HPA:
        set_hpa_targets(fleet, rules, state, now)
    elif rules.scaling == Scaling.REFLEX:
        set_reflex(trace, fleet, rules, state, now)
    if rules.scaling in (Scaling.FOLLOW, Scaling.REFLEX, Scaling.HPA):
        follow_targets(fleet, state, now)
    for llm in range(state.llm.size):
        release_aged_niw(trace, fleet, rules, state, llm, now)
        if rules.holds_back:
            release_kept(trace, fleet, rules, state, llm, now)
    for pool in range(state.pool.size):
        keep_minimum(fleet, state, pool, now)
        react(trace, fleet, rules, state, pool, now)
        pull_niw(trace, fleet, rules, state, pool, now)


@called
def enter(trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, now: float) -> None:
    """A leg begins: interactive ones are routed at once, those that share their instances are held."""
    llm, origin = trace.llm[request], trace.region[request]
    state.llm[llm].came += 1
    if trace.input_tokens[request] + trace.output_tokens[request] > fleet.roomiest[llm]:
        state.request[request].refused = True
        state.progress.ended += 1
        spare(trace, state, request)
    elif fleet.holds[llm] and not fleet.is_interactive[trace.tier[request]]:
        hold_niw(trace, state, request)
        for rank in range(fleet.preference.shape[0]):
            region = fleet.preference[origin, rank]
            if region == NOBODY or state.llm[llm].manager_head == NOBODY:
                break
            for pool in fleet.pools_of[endpoint_of(fleet, llm, region)]:
                if pool != NOBODY:
                    pull_niw(trace, fleet, rules, state, pool, now)
    else:
        if fleet.is_interactive[trace.tier[request]]:
            state.endpoint[endpoint_of(fleet, llm, origin)].seen_tokens += trace.input_tokens[request]
        pool = route(trace, fleet, rules, state, request, now)
        if pool != NOBODY:
            react(trace, fleet, rules, state, pool, now)


@called
def arrive_by_hand(trace: Trace, fleet: Fleet, rules: Rules, state: State, now: float) -> None:
    """The next hand-over ends: a copy, a cache on its way, or a judge's look before the next leg."""
    request = state.transfer[0].moving
    take_off_the_way(state, request)
    if state.transfer[request].copying_to != NOBODY:
        copy_next(trace, fleet, rules, state, request, now)
    elif state.transfer[request].holder != NOBODY:
        deliver(trace, fleet, rules, state, request, now)
    else:
        enter(trace, fleet, rules, state, request, now)


@called
def work(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """An instance has booted or reached the end of a prefill or a stretch; then it begins what is next."""
    instance = state.instance[slot]
    phase, changed = instance.phase, False
    instance.phase = Phase.IDLE
    if instance.status == Status.BOOTING:
        change_status(fleet, state, slot, Status.SERVING, now)
        take_stranded(trace, fleet, rules, state, fleet.llm[fleet.pool[slot]], now)
        changed = True
    elif phase == Phase.PREFILL:
        instance.step_s = instance.base_s
        changed = end_prefill(trace, fleet, rules, state, slot, now)
    elif phase == Phase.DECODE:
        instance.step_s = instance.base_s + stretch_s(fleet, state, slot, instance.stretch - 1)
        changed = end_stretch(trace, fleet, rules, state, slot, now)
    if changed and instance.status == Status.SERVING:
        pull_niw(trace, fleet, rules, state, fleet.pool[slot], now)
        if rules.holds_back:
            release_kept(trace, fleet, rules, state, fleet.llm[fleet.pool[slot]], now)
    begin(trace, fleet, rules, state, slot, now)
    if instance.status == Status.DRAINING:
        donate_when_empty(fleet, state, slot, now)
