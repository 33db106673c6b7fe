"""Where a request goes: region, then instance (SageServe 6.1, 6.2)."""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.deliver import come
from fleetcast.models.replay.dispatch.freeness import freest
from fleetcast.models.replay.dispatch.holdback import is_behind, keep_back, may_leave
from fleetcast.models.replay.dispatch.infaas import cheapest
from fleetcast.models.replay.dispatch.opportunism import begins_at
from fleetcast.models.replay.dispatch.spread import choose_by_spread, may_choose
from fleetcast.models.replay.engine.memory import is_under
from fleetcast.models.replay.engine.prefix import reusable_tokens
from fleetcast.models.replay.engine.queue import pop_front, push_back
from fleetcast.models.replay.fleet.pools import assign, endpoint_of
from fleetcast.models.replay.fleet.signal import keeps_up
from fleetcast.models.replay.fleet.teams import first_slot, load_of, teams_of
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Prefix, Routing, Spread, Status


@called
def choose_pool(trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int) -> int:
    """Choose where a request goes: NOBODY if none serves its llm.

    A pool under the threshold in the first preferred region that has one: by the spread between its pools,
    else the first that keeps up, else the first. Where none is under it, the least utilised of all.
    """
    least, least_used, least_room = NOBODY, 0, 1
    for rank in range(fleet.preference.shape[0]):
        region = fleet.preference[trace.region[request], rank]
        if region == NOBODY:
            break
        endpoint = endpoint_of(fleet, trace.llm[request], region)
        if rules.spread != Spread.IN_ORDER:
            chosen = choose_by_spread(trace, fleet, rules, state, request, endpoint)
            if chosen != NOBODY:
                return chosen
        first = NOBODY
        for pool in fleet.pools_of[endpoint]:
            if not may_choose(trace, fleet, state, pool, request):
                continue
            if rules.spread == Spread.IN_ORDER and is_under(state, pool, rules.route_utilisation_share):
                if keeps_up(fleet, rules, state, pool):
                    return pool
                first = pool if first == NOBODY else first
            used, room = state.pool[pool].kv_used, state.pool[pool].kv_room
            if least == NOBODY or used * least_room < least_used * room:
                least, least_used, least_room = pool, used, room
        if first != NOBODY:
            return first
    return least


@called
def choose_instance(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, pool: int, request: int, now: float
) -> int:
    """The serving instance that the routing rule names; ties to the lowest slot.

    SHORTEST_QUEUE  fewest tokens assigned and not finished (SageServe 6.1), from a heap; first of its team's
    ROUND_ROBIN     the next one after the last (SageServe 2.3)
    LEAST_KV        fewest KV tokens in use
    LEAST_WORK      fewest tokens with the request's own, less those of its prompt that are cached there
                    (NVIDIA Dynamo's KV-aware router)
    FREENESS        most free blocks per request that it runs (multi-tier Llumnix 3.4)
    INFAAS          least cost of queue, service time and state (its baseline, 3.7)
    """
    if rules.routing == Routing.SHORTEST_QUEUE:
        return (
            state.line[fleet.slots[pool]].shortest
            if fleet.team[pool] == 0
            else of_least_team(fleet, state, pool)
        )
    return choose_by_rule(trace, fleet, rules, state, pool, request, now)


@called
def of_least_team(fleet: Fleet, state: State, pool: int) -> int:
    """Of the team with least to do the instance with least to do; ties to the lowest.

    Prefill is short, so that what an instance has to prefill says little of its team.
    """
    best, least = NOBODY, 0
    for team in range(teams_of(fleet, pool)):
        own = NOBODY  # of a team that comes back part may serve already
        for slot in range(first_slot(fleet, pool, team), first_slot(fleet, pool, team + 1)):
            if state.instance[slot].status == Status.SERVING and (
                own == NOBODY or state.instance[slot].load < state.instance[own].load
            ):
                own = slot
        load = load_of(fleet, state, pool, team)
        if own != NOBODY and (best == NOBODY or load < least):
            best, least = own, load
    return best


@called
def choose_by_rule(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, pool: int, request: int, now: float
) -> int:
    """The same for the rules that look at more than the first in line."""
    if rules.routing == Routing.FREENESS:
        return freest(trace, fleet, rules, state, pool, trace.level[request], now)
    if rules.routing == Routing.INFAAS:
        return cheapest(fleet, state, pool)
    first, end = fleet.slots[pool], fleet.slots[pool + 1]
    best, best_rank = NOBODY, 0
    for slot in range(first, end):
        if state.instance[slot].status != Status.SERVING:
            continue
        rank = state.instance[slot].kv_seen
        if rules.routing == Routing.LEAST_WORK:
            rank = state.instance[slot].load - reusable_tokens(trace, fleet, state, slot, request)
        elif rules.routing == Routing.ROUND_ROBIN:
            rank = (slot - state.pool[pool].turn - 1) % (end - first)
        if best == NOBODY or rank < best_rank:
            best, best_rank = slot, rank
    state.pool[pool].turn = best
    return best


@called
def dispatch(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, pool: int, now: float
) -> None:
    """Hand the request to an instance of the pool, which must have one that serves."""
    slot = choose_instance(trace, fleet, rules, state, pool, request, now)
    if fleet.hands_over:
        first = slot
        slot = begins_at(fleet, rules, state, slot)
        state.transfer[request].stays, pool = slot != first, fleet.pool[slot]
    state.request[request].served_by = slot
    if state.request[request].generated == 0:
        state.request[request].dispatched_s = now
        if fleet.is_interactive[trace.tier[request]]:
            state.pool[pool].came_tokens += trace.input_tokens[request]
            state.pool[pool].waiting_tokens += trace.input_tokens[request]
    if fleet.hands_over:
        state.transfer[request].sent_from = NOBODY
    if fleet.prefix != Prefix.NONE:
        state.sharing[request].saved = reusable_tokens(trace, fleet, state, slot, request)
    assign(trace, fleet, state, slot, request, 1)
    come(trace, fleet, rules, state, slot, request, now)


@called
def route(trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, now: float) -> int:
    """Send the request to a pool and an instance of it; NOBODY where none serves, or it is kept back."""
    if rules.holds_back and is_behind(trace, rules, state, request):
        keep_back(trace, rules, state, request)
        return NOBODY
    pool = choose_pool(trace, fleet, rules, state, request)
    if pool == NOBODY:
        push_back(state, state.llm["stranded_head"], state.llm["stranded_tail"], trace.llm[request], request)
    elif rules.holds_back and not may_leave(trace, fleet, rules, state, request, pool):
        keep_back(trace, rules, state, request)
        return NOBODY
    else:
        dispatch(trace, fleet, rules, state, request, pool, now)
    return pool


@called
def take_stranded(trace: Trace, fleet: Fleet, rules: Rules, state: State, llm: int, now: float) -> None:
    """Route the requests that waited for an instance of their llm; some may have to wait on."""
    request = state.llm[llm].stranded_head
    state.llm[llm].stranded_head = NOBODY
    while request != NOBODY:
        behind = state.request[request].next
        route(trace, fleet, rules, state, request, now)
        request = behind


@called
def release_kept(trace: Trace, fleet: Fleet, rules: Rules, state: State, llm: int, now: float) -> None:
    """Let those of the central queue go, the highest level first, while their pool is empty enough."""
    levels = rules.ceiling_share.size
    for line in range(llm * levels, (llm + 1) * levels):
        while state.central[line].kept_head != NOBODY:
            request = state.central[line].kept_head
            pool = choose_pool(trace, fleet, rules, state, request)
            if pool == NOBODY or not may_leave(trace, fleet, rules, state, request, pool):
                break
            pop_front(state, state.central["kept_head"], line)
            dispatch(trace, fleet, rules, state, request, pool, now)
