"""Routing: choose a region, a pool and an instance for a request (SageServe 6.1, 6.2)."""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.freeness import freest_instance
from fleetcast.models.replay.dispatch.holdback import (
    can_leave_central_queue,
    hold_in_central_queue,
    is_level_waiting,
)
from fleetcast.models.replay.dispatch.infaas import cheapest_instance
from fleetcast.models.replay.dispatch.opportunism import starting_instance
from fleetcast.models.replay.dispatch.spread import can_choose_pool, choose_pool_by_spread
from fleetcast.models.replay.dispatch.transfer_end import enqueue_request
from fleetcast.models.replay.engine.kv_memory import is_below_kv_share, kv_tokens_in_use
from fleetcast.models.replay.engine.prefix import reusable_tokens
from fleetcast.models.replay.engine.queue import pop_front, push_back
from fleetcast.models.replay.engine.ranks import choose_rank, rank_slot
from fleetcast.models.replay.fleet.instance_load import assign_request, endpoint_index
from fleetcast.models.replay.fleet.scaling_signal import is_keeping_up
from fleetcast.models.replay.fleet.teams import first_team_slot, team_count, team_load_tokens
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import PoolSpread, Prefix, Routing, Status


@njit_call
def choose_pool(trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int) -> int:
    """Choose the pool of a request; NO_INDEX if none serves its llm.

    It is a pool below the utilisation threshold in the first preferred region that has one: by the spread
    rule, or (in_order) the first that keeps up, else the first. If none is below it, the least utilised pool.
    """
    least, least_used, least_room = NO_INDEX, 0, 1
    for rank in range(fleet.preference.shape[0]):
        region = fleet.preference[trace.region[request], rank]
        if region == NO_INDEX:
            break
        endpoint = endpoint_index(fleet, trace.llm[request], region)
        if rules.spread != PoolSpread.IN_ORDER:
            chosen = choose_pool_by_spread(trace, fleet, rules, state, request, endpoint)
            if chosen != NO_INDEX:
                return chosen
        first = NO_INDEX
        for pool in fleet.pools_of[endpoint]:
            if not can_choose_pool(trace, fleet, state, pool, request):
                continue
            if rules.spread == PoolSpread.IN_ORDER and is_below_kv_share(
                state, pool, rules.route_utilisation_share
            ):
                if is_keeping_up(fleet, rules, state, pool):
                    return pool
                first = pool if first == NO_INDEX else first
            used, room = state.pool[pool].kv_used, state.pool[pool].kv_room
            if least == NO_INDEX or used * least_room < least_used * room:
                least, least_used, least_room = pool, used, room
        if first != NO_INDEX:
            return first
    return least


@njit_call
def choose_instance(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, request: int, now: float
) -> int:
    """Choose a serving instance of the pool by the routing rule; ties to the lowest slot.

    SHORTEST_QUEUE  fewest tokens assigned and not finished (SageServe 6.1), from a heap; with teams, those of
                    the team count first
    ROUND_ROBIN     the next one after the last chosen (SageServe 2.3)
    LEAST_KV        fewest KV tokens in use
    LEAST_WORK      fewest assigned tokens, minus the tokens of the prompt that are cached there (NVIDIA
                    Dynamo's KV-aware router)
    LEAST_PREFILL   fewest tokens of prompts without a first token; ties to the fewest assigned tokens. What
                    an instance still decodes hardly delays a first token
    FREENESS        most free blocks per running request (multi-tier Llumnix 3.4)
    INFAAS          least cost of queue, service time and state (multi-tier Llumnix 3.7)
    """
    if rules.routing == Routing.SHORTEST_QUEUE:
        return (
            state.line[fleet.slots[pool]].slot_heap
            if fleet.team[pool] == 0
            else instance_of_least_team(fleet, state, pool)
        )
    return choose_instance_by_rule(trace, fleet, rules, state, pool, request, now)


@njit_call
def instance_of_least_team(fleet: FleetArrays, state: State, pool: int) -> int:
    """Return the least loaded instance of the least loaded team; ties to the lowest.

    Prefill is short, so the load of a prefill instance is a poor measure of the load of its team.
    """
    best, least = NO_INDEX, 0
    for team in range(team_count(fleet, pool)):
        # Of a team that returns to service, a part may serve already.
        member = NO_INDEX
        for slot in range(first_team_slot(fleet, pool, team), first_team_slot(fleet, pool, team + 1)):
            if state.instance[slot].status == Status.SERVING and (
                member == NO_INDEX or state.instance[slot].load < state.instance[member].load
            ):
                member = slot
        load = team_load_tokens(fleet, state, pool, team)
        if member != NO_INDEX and (best == NO_INDEX or load < least):
            best, least = member, load
    return best


@njit_call
def choose_instance_by_rule(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, pool: int, request: int, now: float
) -> int:
    """Choose an instance by a rule other than SHORTEST_QUEUE."""
    if rules.routing == Routing.FREENESS:
        return freest_instance(trace, fleet, rules, state, pool, now)
    if rules.routing == Routing.INFAAS:
        return cheapest_instance(fleet, state, pool)
    first, end = fleet.slots[pool], fleet.slots[pool + 1]
    if rules.routing == Routing.LEAST_PREFILL:
        return least_prefill_instance(fleet, state, pool)
    best, best_rank = NO_INDEX, 0
    for slot in range(first, end):
        if state.instance[slot].status != Status.SERVING:
            continue
        rank = kv_tokens_in_use(fleet, state, slot)
        if rules.routing == Routing.LEAST_WORK:
            rank = state.instance[slot].load - most_reusable_tokens(trace, fleet, state, slot, request)
        elif rules.routing == Routing.ROUND_ROBIN:
            rank = (slot - state.pool[pool].last_chosen_slot - 1) % (end - first)
        if best == NO_INDEX or rank < best_rank:
            best, best_rank = slot, rank
    state.pool[pool].last_chosen_slot = best
    return best


@njit_call
def most_reusable_tokens(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int
) -> int:
    """Return the tokens of the prompt that are cached at an instance: at the rank that has most of them."""
    most = 0
    for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
        member = rank_slot(fleet, slot, rank)
        most = max(most, reusable_tokens(trace, fleet, state, member, request))
    return most


@njit_call
def least_prefill_instance(fleet: FleetArrays, state: State, pool: int) -> int:
    """Return the serving instance with the fewest waiting prompt tokens; NO_INDEX if none serves.

    Ties to the fewest assigned tokens, then to the lowest slot.
    """
    best = NO_INDEX
    for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
        instance = state.instance[slot]
        if instance.status == Status.SERVING and (
            best == NO_INDEX
            or instance.waiting_tokens < state.instance[best].waiting_tokens
            or (
                instance.waiting_tokens == state.instance[best].waiting_tokens
                and instance.load < state.instance[best].load
            )
        ):
            best = slot
    return best


@njit_call
def dispatch_request(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, pool: int, now: float
) -> None:
    """Send the request to an instance of the pool, which must have a serving one."""
    slot = choose_instance(trace, fleet, rules, state, pool, request, now)
    send_to_instance(trace, fleet, rules, state, request, slot, now)


@njit_call
def send_to_instance(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, slot: int, now: float
) -> None:
    """Send the request to a serving instance, or with opportunism to the one that is to begin it."""
    pool = fleet.pool[slot]
    if fleet.has_transfers:
        first = slot
        slot = starting_instance(fleet, rules, state, slot)
        state.transfer[request].runs_both_phases, pool = slot != first, fleet.pool[slot]
    slot = choose_rank(fleet, state, slot)
    state.request[request].served_by = slot
    if state.request[request].generated == 0:
        state.request[request].dispatched_s = now
        if fleet.is_interactive[trace.tier[request]]:
            state.pool[pool].routed_tokens += trace.input_tokens[request]
            state.pool[pool].waiting_tokens += trace.input_tokens[request]
    if fleet.has_transfers:
        state.transfer[request].sent_from = NO_INDEX
    if fleet.prefix != Prefix.NONE:
        state.sharing[request].hit_tokens_at_dispatch = reusable_tokens(trace, fleet, state, slot, request)
    assign_request(trace, fleet, state, slot, request, 1)
    enqueue_request(trace, fleet, rules, state, slot, request, now)


@njit_call
def route_request(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, request: int, now: float
) -> int:
    """Send the request to a pool and return the pool; NO_INDEX if none serves, or if it is held back."""
    if rules.uses_central_queue and is_level_waiting(trace, rules, state, request):
        hold_in_central_queue(trace, rules, state, request)
        return NO_INDEX
    pool = choose_pool(trace, fleet, rules, state, request)
    if pool == NO_INDEX:
        push_back(state, state.llm["stranded_head"], state.llm["stranded_tail"], trace.llm[request], request)
    elif rules.uses_central_queue and not can_leave_central_queue(trace, fleet, rules, state, request, pool):
        hold_in_central_queue(trace, rules, state, request)
        return NO_INDEX
    else:
        dispatch_request(trace, fleet, rules, state, request, pool, now)
    return pool


@njit_call
def route_stranded(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, llm: int, now: float
) -> None:
    """Route the requests that found no serving instance of their llm; some may have to wait longer."""
    request = state.llm[llm].stranded_head
    state.llm[llm].stranded_head = NO_INDEX
    while request != NO_INDEX:
        behind = state.request[request].next
        route_request(trace, fleet, rules, state, request, now)
        request = behind


@njit_call
def release_central_queue(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, state: State, llm: int, now: float
) -> None:
    """Dispatch requests of the central queue, the highest level first, while their pool is empty enough."""
    levels = rules.ceiling_share.size
    for at in range(llm * levels, (llm + 1) * levels):
        while state.central[at].central_head != NO_INDEX:
            request = state.central[at].central_head
            pool = choose_pool(trace, fleet, rules, state, request)
            if pool == NO_INDEX or not can_leave_central_queue(trace, fleet, rules, state, request, pool):
                break
            pop_front(state, state.central["central_head"], at)
            dispatch_request(trace, fleet, rules, state, request, pool, now)
