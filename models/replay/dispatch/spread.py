"""Spread: choose one of several pools of an endpoint for a request.

in_order      the first below the memory threshold (SageServe 6.1)
round_robin   one after the other
most_unused   the one with most unused KV memory
goodput       in proportion to weight * serving instances; the weight is what one sustains (Cauchy 3.4)
weights       in proportion to the pools' weights (BoUTE 4.1)

round_robin, goodput and weights distribute by smooth weighted round robin. Each pool that may be chosen adds
its weight to its credit. The pool with the most credit is chosen, ties to the first, and its credit falls by
the weights of all. So the requests of a pool differ from its share by less than one.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.engine.kv_memory import is_below_kv_share
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import PoolSpread, Status


@njit_call
def can_take_request(trace: TraceArrays, fleet: FleetArrays, pool: int, request: int) -> bool:
    """Return whether the pool takes the request's tier, and is large enough for it."""
    tokens = trace.input_tokens[request] + trace.output_tokens[request]
    return fleet.takes[pool, trace.tier[request]] and tokens <= fleet.max_request_tokens[pool]


@njit_call
def can_choose_pool(trace: TraceArrays, fleet: FleetArrays, state: State, pool: int, request: int) -> bool:
    """Return whether `pool` is a pool (not NO_INDEX), has serving instances, and can take the request."""
    return pool != NO_INDEX and state.pool[pool].kv_room > 0 and can_take_request(trace, fleet, pool, request)


@njit_call
def choose_pool_by_spread(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, endpoint: int
) -> int:
    """Choose the endpoint's next pool; NO_INDEX if none that can take the request is below the threshold."""
    is_free = False
    for pool in fleet.pools_of[endpoint]:
        if can_choose_pool(trace, fleet, state, pool, request):
            is_free = is_free or is_below_kv_share(state, pool, rules.route_utilisation_share)
    if not is_free:
        return NO_INDEX
    best, total_weight = NO_INDEX, 0.0
    for pool in fleet.pools_of[endpoint]:
        if not can_choose_pool(trace, fleet, state, pool, request):
            continue
        if rules.spread == PoolSpread.MOST_UNUSED:
            state.pool[pool].credit = state.pool[pool].kv_room - state.pool[pool].kv_used
        else:
            weight = spread_weight(fleet, rules, state, pool)
            state.pool[pool].credit += weight
            total_weight += weight
        if best == NO_INDEX or state.pool[pool].credit > state.pool[best].credit:
            best = pool
    if rules.spread != PoolSpread.MOST_UNUSED:
        state.pool[best].credit -= total_weight
    return best


@njit_call
def spread_weight(fleet: FleetArrays, rules: Rules, state: State, pool: int) -> float:
    """Return the weight that a pool adds to its credit with each request."""
    if rules.spread == PoolSpread.ROUND_ROBIN:
        return 1.0
    if rules.spread == PoolSpread.GOODPUT:
        return fleet.weight[pool] * state.instances[pool, Status.SERVING]
    return fleet.weight[pool]
