"""Scaling: the rules that lengthen or shorten a fleet (SageServe 4, 6.4, 7.1).

follow    the plan's targets, at once (LT-I)
reflex    the same, and past them while more comes and waits than the instances sustain
reactive  out above 70 % memory, in below 30 %, one instance per cooldown
lt_u      the same, but only towards the plan's target
lt_ua     lt_u, and past the target when the hour's traffic is far from its forecast
chiron    out when too many instances are busy with interactive requests, or when the queue of the others
          would miss its deadline (Chiron, arXiv 2501.08090; theta from SageServe 7.1)
freeness  out where the mean freeness, without headroom, is below a limit, in above another (Llumnix, 3.6)
hpa       enough instances for a memory target, smaller only after five quiet minutes (Kubernetes' autoscaler)

Reactive, LT-U and LT-UA look at the signal of the rules (signal.py), which is memory unless told otherwise.
"""

import math

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.freeness import mean_freeness
from fleetcast.models.replay.fleet.instance_load import endpoint_index, is_batch_pool
from fleetcast.models.replay.fleet.lifecycle import active_instances
from fleetcast.models.replay.fleet.scaling_signal import is_crowded, is_slack, work_tokens_per_s
from fleetcast.models.replay.fleet.teams import grow_pool, is_led_pool, shrink_pool
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import ReplayState
from fleetcast.models.world.mechanisms import Role, Scaling

# Defaults of the HorizontalPodAutoscaler (kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale).
HPA_TOLERANCE_SHARE = 0.1
HPA_STABILISATION_COOLDOWNS = 20.0  # of 15 s: five minutes
ROUNDING_INSTANCES = 1e-3  # of an instance: a smoothed rate never ends
LEAST_LEFT_S = 900.0  # in which held niw is done at the soonest
RECENT_COOLDOWNS = 20.0  # of 15 s: LT-UA compares the traffic of five to ten minutes with the forecast


@njit_call
def follow_targets(fleet: FleetArrays, state: ReplayState, now: float) -> None:
    """Bring every pool to its target, or past it, reductions first so that their VMs can be had."""
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
def keep_minimum(fleet: FleetArrays, state: ReplayState, pool: int, now: float) -> None:
    """Replace what died: no rule leaves a pool below the fewest instances that it may have."""
    if is_led_pool(fleet, pool):
        return
    while active_instances(state, pool) < fleet.min_instances[pool] and grow_pool(fleet, state, pool, now):
        pass


@njit_call
def apply_scaling_rule(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int, now: float
) -> None:
    """One step of a rule that looks at the fleet, at most one per cooldown: add, remove, or leave."""
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
    fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int, now: float
) -> tuple[bool, bool]:
    """Whether to grow and whether to shrink: reactive, LT-U and LT-UA.

    LT-UA's gap rule (SageServe 6.4) looks at traffic instead of memory in the last minutes of the hour: at
    that of the last five to ten, since a burst drowns in the mean of the hour. Taken alone it would boot for
    a handful of requests where next to none were forecast, so it does not act against the signal: no growth
    below the lower threshold, no shrinking above the upper one. A pool that holds none of what is planned for
    it grows when the endpoint's others are crowded.
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
        seen = state.endpoint[endpoint].prior_window_tokens + state.endpoint[endpoint].window_tokens
        forecast = state.endpoint[endpoint].forecast_tokens_per_s * (
            now - state.progress.prior_window_since_s
        )
        out = out or (count >= target and seen > 0 and seen >= rules.surge_ratio * forecast and not under)
        in_ = in_ or (count <= target and seen <= rules.slump_ratio * forecast and not over)
    return out, in_


@njit_call
def is_endpoint_crowded(fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int) -> bool:
    """Whether the endpoint's pools call for one that holds nothing: it has no memory that could be full."""
    are_there = False
    for other in fleet.pools_of[endpoint_index(fleet, fleet.llm[pool], fleet.region[pool])]:
        if other != NO_INDEX and active_instances(state, other) > 0:
            are_there = True
            if is_crowded(fleet, rules, state, other, rules.scale_out_share):
                return True
    return not are_there


@njit_call
def pressure_decision(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int, now: float
) -> tuple[bool, bool]:
    """Whether to grow and whether to shrink under Chiron's two back-pressures.

    Interactive and mixed pools: busy instances / all of them, against theta; shrinking must not bring it
    above. Batch pools: output tokens at the queue manager / what the llm's batch instances make until the
    head's deadline, each at the pace of a full batch in full memory; none waiting, none needed.
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
        left_s = trace.arrival_s[head] + rules.allowance_s[trace.tier[head]] - now
        return state.llm[llm].manager_output_tokens * step_s > instances * full * left_s, False
    busy, count = 0, 0
    endpoint = endpoint_index(fleet, llm, fleet.region[pool])
    for other in fleet.pools_of[endpoint]:
        if other != NO_INDEX and not is_batch_pool(fleet, other):
            busy += state.pool[other].busy_instances
            count += active_instances(state, other)
    return busy > rules.pressure_share * count, busy <= rules.pressure_share * (count - 1)


@njit_call
def set_reactive_targets(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: ReplayState, now: float
) -> None:
    """How many instances the work of each pool needs: more than there are at once, fewer when it is over.

    That is what comes and waits there, and its part of the llm's held niw, which is due before it ages. It is
    over where the endpoint's plan sustains all that its pools do: a pool that the plan gives up is dealt
    requests for as long as it stands.
    """
    for llm in range(state.llm.size):
        sustained = 0.0
        for pool in range(state.pool.size):
            if fleet.llm[pool] == llm and fleet.role[pool] != Role.DECODE:
                sustained += active_instances(state, pool) * fleet.tokens_per_s[pool]
        due = due_tokens_per_s(trace, rules, state, llm, now) / sustained if sustained > 0 else 0.0
        for pool in range(state.pool.size):
            if fleet.llm[pool] != llm or is_led_pool(fleet, pool):
                continue
            work, there = (
                reactive_work_tokens_per_s(fleet, rules, state, pool, due),
                active_instances(state, pool),
            )
            wish = math.ceil(work / fleet.tokens_per_s[pool] - ROUNDING_INSTANCES)
            nothing = there == 0 and state.pool[pool].target == 0
            if is_plan_enough(fleet, rules, state, pool, due) or nothing:
                state.pool[pool].reactive_target = 0
            elif work > rules.reactive_share * there * fleet.tokens_per_s[pool]:
                state.pool[pool].reactive_target = max(state.pool[pool].reactive_target, wish)
            else:
                state.pool[pool].reactive_target = min(state.pool[pool].reactive_target, wish)


@njit_call
def reactive_work_tokens_per_s(
    fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int, due: float
) -> float:
    """Tokens/s that come, wait and are `due`, a share of what the pool's instances sustain."""
    there = active_instances(state, pool) * fleet.tokens_per_s[pool]
    return work_tokens_per_s(rules, state, pool) + (due * there if due > 0 else 0.0)


@njit_call
def is_plan_enough(fleet: FleetArrays, rules: Rules, state: ReplayState, pool: int, due: float) -> bool:
    """Whether what is planned of the pool's endpoint sustains all the work of its pools."""
    work, planned = 0.0, 0.0
    for other in fleet.pools_of[endpoint_index(fleet, fleet.llm[pool], fleet.region[pool])]:
        if other != NO_INDEX and not is_led_pool(fleet, other):
            work += reactive_work_tokens_per_s(fleet, rules, state, other, due)
            planned += state.pool[other].target * fleet.tokens_per_s[other]
    return work <= planned


@njit_call
def due_tokens_per_s(trace: TraceArrays, rules: Rules, state: ReplayState, llm: int, now: float) -> float:
    """Input tokens/s at which the llm's held niw is done before the first of it ages."""
    head = state.llm[llm].manager_head
    if head == NO_INDEX:
        return 0.0
    left_s = trace.arrival_s[head] + rules.niw_priority_age_s - now
    return state.llm[llm].manager_input_tokens / max(left_s, LEAST_LEFT_S)


@njit_call
def set_hpa_targets(fleet: FleetArrays, rules: Rules, state: ReplayState, now: float) -> None:
    """Kubernetes' rule on memory: ceil(instances * utilisation / target), those that boot counted as unused.

    Within the tolerance nothing changes. To shrink takes five minutes of smaller wishes, and the largest
    of them counts.
    """
    for pool in range(state.pool.size):
        count = active_instances(state, pool)
        each = rules.scale_out_share * fleet.kv_capacity[fleet.kind[pool]]
        wish = math.ceil(state.pool[pool].kv_used / each)
        if abs(state.pool[pool].kv_used - count * each) <= HPA_TOLERANCE_SHARE * count * each:
            wish = count
        state.pool[pool].target = max(wish, count)
        if wish >= count:
            state.pool[pool].highest_recommendation = NO_INDEX
        elif state.pool[pool].highest_recommendation == NO_INDEX:
            state.pool[pool].highest_recommendation = wish
            state.pool[pool].cooldown_s = now + HPA_STABILISATION_COOLDOWNS * rules.cooldown_s
        elif now < state.pool[pool].cooldown_s:
            state.pool[pool].highest_recommendation = max(state.pool[pool].highest_recommendation, wish)
        else:
            state.pool[pool].target = max(state.pool[pool].highest_recommendation, wish)
            state.pool[pool].highest_recommendation = NO_INDEX
