"""Scaling rules: add or remove instances (SageServe 4, 6.4, 7.1).

follow    the plan's targets, at once (LT-I)
reflex    the same with reactive correction: more while the work exceeds what the instances sustain
reactive  out above 70 % memory, in below 30 %, one instance per cooldown
lt_u      the same, but only towards the plan's target
lt_ua     lt_u, and beyond the target when the traffic of the control interval is far from its forecast
chiron    out when too many instances are busy with interactive requests, or when the batch tier's queue
          would miss its deadline (Chiron, arXiv 2501.08090; theta from SageServe 7.1)
freeness  out when mean freeness without headroom is below a limit, in above another (Llumnix 3.6)
hpa       enough instances for a utilisation target, fewer only after five minutes (Kubernetes autoscaler)

reactive, lt_u, lt_ua and hpa use the signal of the rules (scaling_signal.py), by default memory.
"""

import math

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.freeness import mean_freeness
from fleetcast.models.replay.engine.draft_tokens import mean_tokens_of_step
from fleetcast.models.replay.fleet.instance_load import endpoint_index, is_batch_pool
from fleetcast.models.replay.fleet.lifecycle import active_instances
from fleetcast.models.replay.fleet.scaling_signal import (
    is_crowded,
    is_slack,
    used_and_instance_capacity,
    work_tokens_per_s,
)
from fleetcast.models.replay.fleet.teams import grow_pool, is_led_pool, shrink_pool
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Role, Scaling

# Defaults of the HorizontalPodAutoscaler (kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale).
HPA_TOLERANCE_SHARE = 0.1
HPA_STABILISATION_COOLDOWNS = 20.0  # of 15 s: five minutes
ROUNDING_INSTANCES = 1e-3  # instances that are rounded off, as a smoothed rate never falls to zero
LEAST_LEFT_S = 900.0  # least time over which the deferred batch requests are spread
RECENT_COOLDOWNS = 20.0  # of 15 s: LT-UA compares the traffic of five to ten minutes with the forecast


@njit_call
def follow_targets(fleet: FleetArrays, state: State, now: float) -> None:
    """Scale every pool to its target or reactive target; removals first, as their VMs can then be used."""
    for pool in range(state.pool.size):
        wanted = max(state.pool[pool].target, state.pool[pool].reactive_target)
        unit = max(1, fleet.team[pool])
        while (
            not is_led_pool(fleet, pool)
            and active_instances(state, pool) - unit >= wanted
            and shrink_pool(fleet, state, pool, now)
        ):
            pass
    for pool in range(state.pool.size):
        wanted = max(state.pool[pool].target, state.pool[pool].reactive_target)
        while (
            not is_led_pool(fleet, pool)
            and active_instances(state, pool) < wanted
            and grow_pool(fleet, state, pool, now)
        ):
            pass


@njit_call
def keep_minimum(fleet: FleetArrays, state: State, pool: int, now: float) -> None:
    """Replace failed instances: fill a pool up to its minimum, whatever the rule."""
    if is_led_pool(fleet, pool):
        return
    while active_instances(state, pool) < fleet.min_instances[pool] and grow_pool(fleet, state, pool, now):
        pass


@njit_call
def apply_scaling_rule(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, now: float
) -> None:
    """Make one step of a rule that observes the fleet, at most one per cooldown: add, remove, or nothing."""
    if (
        rules.scaling in (Scaling.FOLLOW, Scaling.REFLEX, Scaling.HPA)
        or now < state.pool[pool].cooldown_s
        or is_led_pool(fleet, pool)
    ):
        return
    if rules.scaling == Scaling.CHIRON:
        out, in_ = pressure_decision(trace, fleet, rules, state, pool, now)
    elif rules.scaling == Scaling.FREENESS:
        mean = mean_freeness(trace, fleet, rules, state, pool, now)
        out, in_ = mean < rules.freeness_out, mean > rules.freeness_in
    else:
        out, in_ = signal_decision(fleet, rules, state, pool, now)
    if (out and grow_pool(fleet, state, pool, now)) or (
        in_ and not out and shrink_pool(fleet, state, pool, now)
    ):
        state.pool[pool].cooldown_s = now + rules.cooldown_s


@njit_call
def signal_decision(
    fleet: FleetArrays, rules: Rules, state: State, pool: int, now: float
) -> tuple[bool, bool]:
    """Return whether to grow and whether to shrink, for reactive, LT-U and LT-UA.

    LT-UA's gap rule (SageServe 6.4) compares traffic with the forecast in the last minutes of the control
    interval. It uses the traffic of the last five to ten minutes, because a burst hardly changes the mean of
    an hour. It never acts against the signal (no growth below the lower threshold, no shrinking above the
    upper one): otherwise it would boot for a few requests where almost none were forecast. A pool without
    instances but with a target grows when the endpoint's other pools are crowded.
    """
    over = is_crowded(fleet, rules, state, pool, rules.scale_out_share)
    under = is_slack(fleet, rules, state, pool, rules.scale_in_share)
    if rules.scaling == Scaling.REACTIVE:
        return over, under
    count, target = active_instances(state, pool), state.pool[pool].target
    if count == 0 and target > 0:
        over = is_endpoint_crowded(fleet, rules, state, pool)
    out, in_ = over and count < target, under and count > target
    if rules.scaling == Scaling.LT_UA and now - state.progress.hour_s >= rules.correction_s:
        endpoint = endpoint_index(fleet, fleet.llm[pool], fleet.region[pool])
        arrived = state.endpoint[endpoint].prior_window_tokens + state.endpoint[endpoint].window_tokens
        forecast = state.endpoint[endpoint].forecast_tokens_per_s * (
            now - state.progress.prior_window_since_s
        )
        out = out or (
            count >= target and arrived > 0 and arrived >= rules.surge_ratio * forecast and not under
        )
        in_ = in_ or (count <= target and arrived <= rules.slump_ratio * forecast and not over)
    return out, in_


@njit_call
def is_endpoint_crowded(fleet: FleetArrays, rules: Rules, state: State, pool: int) -> bool:
    """Return whether some pool of the endpoint is crowded, or none of them has an instance.

    It decides for a pool without instances, which has no memory of its own to observe.
    """
    has_instances = False
    for other in fleet.pools_of[endpoint_index(fleet, fleet.llm[pool], fleet.region[pool])]:
        if other != NO_INDEX and active_instances(state, other) > 0:
            has_instances = True
            if is_crowded(fleet, rules, state, other, rules.scale_out_share):
                return True
    return not has_instances


@njit_call
def pressure_decision(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, now: float
) -> tuple[bool, bool]:
    """Return whether to grow and whether to shrink, by Chiron's two back-pressures.

    Interactive and mixed pools compare busy instances / all instances with theta; shrinking must not bring
    the ratio above it. Batch pools compare the output tokens at the queue manager with what the llm's batch
    instances make until the deadline of its first request, each at the pace of a full batch in full memory.
    If no request waits there, they shrink.
    """
    llm = fleet.llm[pool]
    if is_batch_pool(fleet, pool):
        head = state.llm[llm].manager_head
        if head == NO_INDEX:
            return False, True
        instances = 0
        for other in range(fleet.kind.size):
            if fleet.llm[other] == llm and is_batch_pool(fleet, other):
                instances += active_instances(state, other)
        latency, kind = fleet.latency, fleet.kind[pool]
        full = fleet.max_batch[kind]
        step_s = latency.decode_s[kind, full] + latency.decode_kv_s[kind, full] * fleet.kv_capacity[kind]
        token_s = step_s / mean_tokens_of_step(fleet, kind)
        left_s = trace.arrival_s[head] + rules.allowance_s[trace.tier[head]] - now
        return state.llm[llm].manager_output_tokens * token_s > instances * fleet.ranks[
            kind
        ] * full * left_s, False
    busy, count = 0, 0
    endpoint = endpoint_index(fleet, llm, fleet.region[pool])
    for other in fleet.pools_of[endpoint]:
        if other != NO_INDEX and not is_batch_pool(fleet, other):
            busy += state.pool[other].busy_instances
            count += active_instances(state, other)
    return busy > rules.pressure_share * count, busy <= rules.pressure_share * (count - 1)


@njit_call
def set_reactive_targets(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, now: float
) -> None:
    """Set the instances that the work of each pool needs: they rise at once, and end when the plan suffices.

    The work is what arrives and waits at the pool, and its part of the llm's deferred batch requests, which
    must be done before they age. The correction ends once the planned instances of the endpoint sustain all
    work of its pools. It does not look at the pool alone, because a pool that the plan has released receives
    requests as long as it runs.
    """
    for llm in range(state.llm.size):
        capacity = 0.0
        for pool in range(state.pool.size):
            if fleet.llm[pool] == llm and fleet.role[pool] != Role.DECODE:
                capacity += active_instances(state, pool) * fleet.tokens_per_s[pool]
        due_share = due_tokens_per_s(trace, rules, state, llm, now) / capacity if capacity > 0 else 0.0
        for pool in range(state.pool.size):
            if fleet.llm[pool] != llm or is_led_pool(fleet, pool):
                continue
            work = reactive_work_tokens_per_s(fleet, rules, state, pool, due_share)
            count = active_instances(state, pool)
            needed = math.ceil(work / fleet.tokens_per_s[pool] - ROUNDING_INSTANCES)
            is_unused = count == 0 and state.pool[pool].target == 0
            if is_plan_enough(fleet, rules, state, pool, due_share) or is_unused:
                state.pool[pool].reactive_target = 0
            elif work > rules.reactive_share * count * fleet.tokens_per_s[pool]:
                state.pool[pool].reactive_target = max(state.pool[pool].reactive_target, needed)
            else:
                state.pool[pool].reactive_target = min(state.pool[pool].reactive_target, needed)


@njit_call
def reactive_work_tokens_per_s(
    fleet: FleetArrays, rules: Rules, state: State, pool: int, due_share: float
) -> float:
    """Return the pool's work in tokens/s: arrivals, backlog, and `due_share` of its capacity."""
    capacity = active_instances(state, pool) * fleet.tokens_per_s[pool]
    return work_tokens_per_s(rules, state, pool) + (due_share * capacity if due_share > 0 else 0.0)


@njit_call
def is_plan_enough(fleet: FleetArrays, rules: Rules, state: State, pool: int, due_share: float) -> bool:
    """Return whether the planned instances of the pool's endpoint sustain all the work of its pools."""
    work, planned = 0.0, 0.0
    for other in fleet.pools_of[endpoint_index(fleet, fleet.llm[pool], fleet.region[pool])]:
        if other != NO_INDEX and not is_led_pool(fleet, other):
            work += reactive_work_tokens_per_s(fleet, rules, state, other, due_share)
            planned += state.pool[other].target * fleet.tokens_per_s[other]
    return work <= planned


@njit_call
def due_tokens_per_s(trace: TraceArrays, rules: Rules, state: State, llm: int, now: float) -> float:
    """Return the input tokens/s at which the llm's deferred requests are done before the first one ages."""
    head = state.llm[llm].manager_head
    if head == NO_INDEX:
        return 0.0
    left_s = trace.arrival_s[head] + rules.niw_priority_age_s - now
    return state.llm[llm].manager_input_tokens / max(left_s, LEAST_LEFT_S)


@njit_call
def set_hpa_targets(fleet: FleetArrays, rules: Rules, state: State, now: float) -> None:
    """Set targets by Kubernetes' rule on the signal: ceil(instances * utilisation / target).

    Booting instances count as unused. Within the tolerance nothing changes. A pool shrinks after five minutes
    of smaller recommendations, to the largest of them.
    """
    for pool in range(state.pool.size):
        count = active_instances(state, pool)
        used, capacity = used_and_instance_capacity(fleet, rules, state, pool)
        each = rules.scale_out_share * capacity
        wanted = math.ceil(used / each)
        if abs(used - count * each) <= HPA_TOLERANCE_SHARE * count * each:
            wanted = count
        state.pool[pool].target = max(wanted, count)
        if wanted >= count:
            state.pool[pool].highest_recommendation = NO_INDEX
        elif state.pool[pool].highest_recommendation == NO_INDEX:
            state.pool[pool].highest_recommendation = wanted
            state.pool[pool].cooldown_s = now + HPA_STABILISATION_COOLDOWNS * rules.cooldown_s
        elif now < state.pool[pool].cooldown_s:
            state.pool[pool].highest_recommendation = max(state.pool[pool].highest_recommendation, wanted)
        else:
            state.pool[pool].target = max(state.pool[pool].highest_recommendation, wanted)
            state.pool[pool].highest_recommendation = NO_INDEX
