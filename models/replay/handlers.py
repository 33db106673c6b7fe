"""Event handlers: monitor tick, request admission, end of a KV transfer, end of a boot or a step.

The failure of an instance is in failures.py.
"""

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.dispatch.kv_transfer import pop_in_flight
from fleetcast.models.replay.dispatch.leg_chain import choose_gears, skip_later_legs
from fleetcast.models.replay.dispatch.migration import copy_next_stage
from fleetcast.models.replay.dispatch.queue_manager import defer_request, pull_deferred, release_aged_deferred
from fleetcast.models.replay.dispatch.route import release_central_queue, route_request, route_stranded
from fleetcast.models.replay.dispatch.transfer_end import deliver_cache
from fleetcast.models.replay.engine.batch import begin_step
from fleetcast.models.replay.engine.ranks import rank_slot
from fleetcast.models.replay.engine.step_end import end_decode_stretch, end_prefill_step
from fleetcast.models.replay.engine.step_time import stretch_s
from fleetcast.models.replay.fleet.instance_load import endpoint_index
from fleetcast.models.replay.fleet.lifecycle import change_status, donate_when_empty
from fleetcast.models.replay.fleet.scaling_rules import (
    RECENT_COOLDOWNS,
    apply_scaling_rule,
    follow_targets,
    keep_minimum,
    set_hpa_targets,
    set_reactive_targets,
)
from fleetcast.models.replay.fleet.scaling_signal import smooth_rates
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Phase, Scaling, Status


@njit_call
def on_monitor_tick(trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, now: float) -> None:
    """Do what must happen even when no request arrives: scaling, ageing, pulling deferred requests."""
    state.progress.monitor_s += rules.monitor_s
    if now - state.progress.window_since_s >= RECENT_COOLDOWNS * rules.cooldown_s:
        state.progress.prior_window_since_s, state.progress.window_since_s = (
            state.progress.window_since_s,
            now,
        )
        for endpoint in range(state.endpoint.size):
            state.endpoint[endpoint].prior_window_tokens = state.endpoint[endpoint].window_tokens
            state.endpoint[endpoint].window_tokens = 0
    smooth_rates(rules, state)
    if rules.gear_from.shape[1]:
        choose_gears(fleet, rules, state)
    if rules.scaling == Scaling.HPA:
        set_hpa_targets(fleet, rules, state, now)
    elif rules.scaling == Scaling.REFLEX:
        set_reactive_targets(trace, fleet, rules, state, now)
    if rules.scaling in (Scaling.FOLLOW, Scaling.REFLEX, Scaling.HPA):
        follow_targets(fleet, state, now)
    for llm in range(state.llm.size):
        release_aged_deferred(trace, fleet, rules, state, llm, now)
        if rules.uses_central_queue:
            release_central_queue(trace, fleet, rules, state, llm, now)
    for pool in range(state.pool.size):
        keep_minimum(fleet, state, pool, now)
        apply_scaling_rule(trace, fleet, rules, state, pool, now)
        pull_deferred(trace, fleet, rules, state, pool, now)


@njit_call
def admit_request(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, now: float
) -> None:
    """Begin a leg: route it at once, or defer it if its llm defers the batch tier and it is of that tier."""
    llm, origin = trace.llm[request], trace.region[request]
    state.llm[llm].arrived_legs += 1
    if trace.input_tokens[request] + trace.output_tokens[request] > fleet.llm_max_request_tokens[llm]:
        state.request[request].refused = True
        state.progress.ended += 1
        skip_later_legs(trace, state, request)
    elif fleet.defers_batch_tier[llm] and not fleet.is_interactive[trace.tier[request]]:
        defer_request(trace, state, request)
        for rank in range(fleet.preference.shape[0]):
            region = fleet.preference[origin, rank]
            if region == NO_INDEX or state.llm[llm].manager_head == NO_INDEX:
                break
            for pool in fleet.pools_of[endpoint_index(fleet, llm, region)]:
                if pool != NO_INDEX:
                    pull_deferred(trace, fleet, rules, state, pool, now)
    else:
        if fleet.is_interactive[trace.tier[request]]:
            state.endpoint[endpoint_index(fleet, llm, origin)].window_tokens += trace.input_tokens[request]
        pool = route_request(trace, fleet, rules, state, request, now)
        if pool != NO_INDEX:
            apply_scaling_rule(trace, fleet, rules, state, pool, now)


@njit_call
def on_transfer_done(trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, now: float) -> None:
    """End the next transfer: a stage of a live move, a KV cache, or the judging before the next leg."""
    request = state.transfer[0].in_flight
    pop_in_flight(state, request)
    if state.transfer[request].migrating_to != NO_INDEX:
        copy_next_stage(trace, fleet, rules, state, request, now)
    elif state.transfer[request].source_slot != NO_INDEX:
        deliver_cache(trace, fleet, rules, state, request, now)
    else:
        admit_request(trace, fleet, rules, state, request, now)


@njit_call
def on_instance_event(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> None:
    """Handle the end of a boot, a prefill step or a decode stretch; then begin the next step."""
    instance, changed = state.instance[slot], False
    if instance.status == Status.BOOTING:
        change_status(fleet, state, slot, Status.SERVING, now)
        route_stranded(trace, fleet, rules, state, fleet.llm[fleet.pool[slot]], now)
        changed = True
    elif instance.phase != Phase.IDLE:
        changed = end_step(trace, fleet, rules, state, slot, now)
    if changed and instance.status == Status.SERVING:
        pull_deferred(trace, fleet, rules, state, fleet.pool[slot], now)
        if rules.uses_central_queue:
            release_central_queue(trace, fleet, rules, state, fleet.llm[fleet.pool[slot]], now)
    begin_step(trace, fleet, rules, state, slot, now)
    if instance.status == Status.DRAINING:
        donate_when_empty(fleet, state, slot, now)


@njit_inline
def end_step(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, slot: int, now: float
) -> bool:
    """End the prefill step or the stretch of all ranks of an instance; return whether a batch changed."""
    instance, changed = state.instance[slot], False
    phase, ranks, begun_s = instance.phase, fleet.ranks[fleet.slot_kind[slot]], instance.base_s
    if phase == Phase.DECODE:
        begun_s += stretch_s(fleet, state, slot, instance.stretch - 1)
    for rank in range(ranks):
        member = rank_slot(fleet, slot, rank)
        state.instance[member].phase = Phase.IDLE
        state.instance[member].step_s = begun_s
    for rank in range(ranks):
        member = rank_slot(fleet, slot, rank)
        if phase == Phase.PREFILL:
            changed = end_prefill_step(trace, fleet, rules, state, member, now) or changed
        else:
            changed = end_decode_stretch(trace, fleet, rules, state, member, now) or changed
    return changed
