"""Which pool of an endpoint a request goes to, where there are several.

in_order      the first under the memory threshold (SageServe 6.1)
round_robin   one after the other
most_unused   the one with most unused KV memory
goodput       in proportion to weight * serving instances, the weight what one sustains (Cauchy 3.4)
weights       in proportion to the pools' weights (BoUTE 4.1)

The last and the second deal by smooth weighted round robin: every pool that may be chosen earns its weight,
the richest one is chosen, ties to the first, and pays what all have earned. No pool is flooded, and what a
pool was dealt differs from its share by less than one request.
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.engine.memory import is_under
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Spread, Status


@called
def may_have(trace: Trace, fleet: Fleet, pool: int, request: int) -> bool:
    """Whether the pool takes the request's tier, and is large enough for it."""
    tokens = trace.input_tokens[request] + trace.output_tokens[request]
    return fleet.takes[pool, trace.tier[request]] and tokens <= fleet.longest[pool]


@called
def may_choose(trace: Trace, fleet: Fleet, state: State, pool: int, request: int) -> bool:
    """Whether the pool is one, serves, and may have the request."""
    return pool != NOBODY and state.pool[pool].kv_room > 0 and may_have(trace, fleet, pool, request)


@called
def choose_by_spread(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, endpoint: int
) -> int:
    """The pool of the endpoint that is next; NOBODY where none that may have it is under the threshold."""
    is_free = False
    for pool in fleet.pools_of[endpoint]:
        if may_choose(trace, fleet, state, pool, request):
            is_free = is_free or is_under(state, pool, rules.route_utilisation_share)
    if not is_free:
        return NOBODY
    best, earned = NOBODY, 0.0
    for pool in fleet.pools_of[endpoint]:
        if not may_choose(trace, fleet, state, pool, request):
            continue
        if rules.spread == Spread.MOST_UNUSED:
            state.pool[pool].credit = state.pool[pool].kv_room - state.pool[pool].kv_used
        else:
            weight = weight_of(fleet, rules, state, pool)
            state.pool[pool].credit += weight
            earned += weight
        if best == NOBODY or state.pool[pool].credit > state.pool[best].credit:
            best = pool
    if rules.spread != Spread.MOST_UNUSED:
        state.pool[best].credit -= earned
    return best


@called
def weight_of(fleet: Fleet, rules: Rules, state: State, pool: int) -> float:
    """What a pool earns with each request."""
    if rules.spread == Spread.ROUND_ROBIN:
        return 1.0
    if rules.spread == Spread.GOODPUT:
        return fleet.weight[pool] * state.instances[pool, Status.SERVING]
    return fleet.weight[pool]
