"""Scaling: the rules that lengthen or shorten a fleet (SageServe 4, 6.4, 7.1).

follow    the plan's targets, at once (LT-I)
reactive  out above 70 % memory, in below 30 %, one instance per cooldown
lt_u      the same, but only towards the plan's target
lt_ua     lt_u, and past the target when the hour's traffic is far from its forecast
chiron    out when too many instances are busy with interactive requests, or when the queue of the others
          would miss its deadline (Chiron, arXiv 2501.08090; theta from SageServe 7.1)
hpa       enough instances for a memory target, smaller only after five quiet minutes (Kubernetes' autoscaler)
"""

import math

from models.replay.compiled import called, compiled
from models.replay.life import add_instance, held, remove_instance
from models.replay.memory import is_over, is_under
from models.replay.pools import endpoint_of, kind_of, llm_of
from models.replay.state import BATCH, BEFORE, HOUR, NIW, NOBODY, Fleet, Rules, State, Trace

SCALINGS = ("follow", "reactive", "lt_u", "lt_ua", "chiron", "hpa")
FOLLOW, REACTIVE, LT_U, LT_UA, CHIRON, HPA = range(6)
# Defaults of the HorizontalPodAutoscaler (kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale).
HPA_TOLERANCE_SHARE = 0.1
HPA_STABILISATION_COOLDOWNS = 20.0  # of 15 s: five minutes
RECENT_COOLDOWNS = 20.0  # of 15 s: LT-UA compares the traffic of five to ten minutes with the forecast


@called
def follow_targets(fleet: Fleet, state: State, now: float) -> None:
    """Bring every endpoint to its target, reductions first so that their VMs can be had."""
    for endpoint in range(state.target.size):
        while held(state, endpoint) > state.target[endpoint] and remove_instance(fleet, state, endpoint, now):
            pass
    for endpoint in range(state.target.size):
        while held(state, endpoint) < state.target[endpoint] and add_instance(fleet, state, endpoint, now):
            pass


@compiled
def keep_minimum(fleet: Fleet, state: State, endpoint: int, now: float) -> None:
    """Replace what died: no rule leaves an endpoint below the fewest instances that it may have."""
    while held(state, endpoint) < fleet.min_instances[endpoint] and add_instance(fleet, state, endpoint, now):
        pass


@compiled
def react(trace: Trace, fleet: Fleet, rules: Rules, state: State, endpoint: int, now: float) -> None:
    """One step of a rule that looks at the fleet, at most one per cooldown: add, remove, or leave."""
    if rules.scaling == FOLLOW or rules.scaling == HPA or now < state.cooldown_s[endpoint]:
        return
    if rules.scaling == CHIRON:
        out, in_ = by_pressure(trace, fleet, rules, state, endpoint, now)
    else:
        out, in_ = by_memory(rules, state, endpoint, now)
    if (out and add_instance(fleet, state, endpoint, now)) or (
        in_ and not out and remove_instance(fleet, state, endpoint, now)
    ):
        state.cooldown_s[endpoint] = now + rules.cooldown_s


@compiled
def by_memory(rules: Rules, state: State, endpoint: int, now: float) -> tuple[bool, bool]:
    """Whether to grow and whether to shrink: reactive, LT-U and LT-UA.

    LT-UA's gap rule (SageServe 6.4) looks at traffic instead of memory in the last minutes of the hour: at
    that of the last five to ten, since a burst drowns in the mean of the hour. Taken alone it would boot for
    a handful of requests where next to none were forecast, so it does not act against the memory: no growth
    below the lower threshold, no shrinking above the upper one.
    """
    over = is_over(state, endpoint, rules.scale_out_share)
    under = is_under(state, endpoint, rules.scale_in_share)
    if rules.scaling == REACTIVE:
        return over, under
    count, target = held(state, endpoint), state.target[endpoint]
    out, in_ = over and count < target, under and count > target
    if rules.scaling == LT_UA and now - state.clock[HOUR] >= rules.correction_s:
        seen = state.seen_before[endpoint] + state.seen_tokens[endpoint]
        forecast = state.forecast_tokens_per_s[endpoint] * (now - state.clock[BEFORE])
        out = out or (count >= target and seen > 0 and seen >= rules.surge_ratio * forecast and not under)
        in_ = in_ or (count <= target and seen <= rules.slump_ratio * forecast and not over)
    return out, in_


@called
def by_pressure(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, endpoint: int, now: float
) -> tuple[bool, bool]:
    """Whether to grow and whether to shrink under Chiron's two back-pressures.

    Interactive and mixed pools: busy instances / all of them, against theta; shrinking must not bring it
    above. Batch pools: output tokens at the queue manager / what the llm's batch instances make until the
    head's deadline, each at the pace of a full batch in full memory; none waiting, none needed.
    """
    llm, regions = llm_of(fleet, endpoint), fleet.preference.shape[0]
    if kind_of(fleet, endpoint) == BATCH:
        head = state.niw_head[llm]
        if head == NOBODY:
            return False, True
        pool, instances = endpoint // (fleet.gpus.size * regions), 0
        for region in range(regions):
            instances += held(state, endpoint_of(fleet, pool, llm, region))
        latency, full = fleet.latency, fleet.max_batch
        step_s = latency.decode_s[llm, full] + latency.decode_kv_s[llm, full] * fleet.kv_capacity[llm]
        left_s = trace.arrival_s[head] + rules.allowance_s[NIW] - now
        return state.niw_output_tokens[llm] * step_s > instances * full * left_s, False
    busy, count = 0, 0
    for pool in range(fleet.pools.size):
        other = endpoint_of(fleet, pool, llm, endpoint % regions)
        if kind_of(fleet, other) != BATCH:
            busy += state.busy[other]
            count += held(state, other)
    return busy > rules.pressure_share * count, busy <= rules.pressure_share * (count - 1)


@called
def set_hpa_targets(fleet: Fleet, rules: Rules, state: State, now: float) -> None:
    """Kubernetes' rule on memory: ceil(instances * utilisation / target), those that boot counted as unused.

    Within the tolerance nothing changes. To shrink takes five minutes of smaller wishes, and the largest
    of them counts.
    """
    for endpoint in range(state.target.size):
        count = held(state, endpoint)
        each = rules.scale_out_share * fleet.kv_capacity[llm_of(fleet, endpoint)]
        wish = math.ceil(state.kv_used[endpoint] / each)
        if abs(state.kv_used[endpoint] - count * each) <= HPA_TOLERANCE_SHARE * count * each:
            wish = count
        state.target[endpoint] = max(wish, count)
        if wish >= count:
            state.highest_wish[endpoint] = NOBODY
        elif state.highest_wish[endpoint] == NOBODY:
            state.highest_wish[endpoint] = wish
            state.cooldown_s[endpoint] = now + HPA_STABILISATION_COOLDOWNS * rules.cooldown_s
        elif now < state.cooldown_s[endpoint]:
            state.highest_wish[endpoint] = max(state.highest_wish[endpoint], wish)
        else:
            state.target[endpoint] = max(state.highest_wish[endpoint], wish)
            state.highest_wish[endpoint] = NOBODY
