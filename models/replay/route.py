"""Where a request goes: region, then instance (SageServe 6.1, 6.2), and where to when its instance dies."""

from models.replay.batch import cut_stretch, steps_until
from models.replay.compiled import compiled
from models.replay.events import reschedule
from models.replay.memory import is_under
from models.replay.preempt import drop_last_decoding, drop_last_joining
from models.replay.queue import insert_in_order, is_aged, pop_front, push_back
from models.replay.scale import change_status
from models.replay.state import (
    DECODE,
    GONE,
    IDLE,
    LISTS,
    NEVER,
    NOBODY,
    SERVING,
    Fleet,
    Rules,
    State,
    Trace,
)

ROUTINGS = ("shortest_queue", "round_robin", "least_kv")
SHORTEST_QUEUE, ROUND_ROBIN, LEAST_KV = range(3)


@compiled
def choose_region(fleet: Fleet, rules: Rules, state: State, llm: int, origin: int) -> int:
    """The first preferred region under the threshold, else the least utilised; NOBODY if none serves."""
    regions = fleet.preference.shape[0]
    least, least_used, least_room = NOBODY, 0, 1
    for rank in range(regions):
        region = fleet.preference[origin, rank]
        if region == NOBODY:
            break
        endpoint = llm * regions + region
        if is_under(state, endpoint, rules.route_utilisation_share):
            return region
        used, room = state.kv_used[endpoint], state.kv_room[endpoint]
        if room > 0 and (least == NOBODY or used * least_room < least_used * room):
            least, least_used, least_room = region, used, room
    return least


@compiled
def choose_instance(fleet: Fleet, rules: Rules, state: State, endpoint: int) -> int:
    """The serving instance that the routing rule names; ties to the lowest slot.

    SHORTEST_QUEUE  fewest tokens assigned and not finished (SageServe 6.1)
    ROUND_ROBIN     the next one after the last (SageServe 2.3)
    LEAST_KV        fewest KV tokens in use
    """
    first, end = fleet.slots[endpoint], fleet.slots[endpoint + 1]
    best, best_load = NOBODY, 0
    for slot in range(first, end):
        if state.status[slot] != SERVING:
            continue
        if rules.routing == SHORTEST_QUEUE:
            load = state.load[slot]
        elif rules.routing == LEAST_KV:
            load = state.kv_seen[slot]
        else:
            load = (slot - state.turn[endpoint] - 1) % (end - first)
        if best == NOBODY or load < best_load:
            best, best_load = slot, load
    state.turn[endpoint] = best
    return best


@compiled
def dispatch(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, endpoint: int, now: float
) -> None:
    """Hand the request to an instance of the endpoint, which must have one that serves."""
    slot = choose_instance(fleet, rules, state, endpoint)
    state.served_by[request] = slot
    if state.generated[request] == 0:
        state.dispatched_s[request] = now
    state.load[slot] += trace.input_tokens[request] + trace.output_tokens[request]
    insert_in_order(state, state.head[slot], state.tail[slot], trace.tier[request], request)
    state.look[slot] = True
    if state.phase[slot] == IDLE:
        reschedule(state, slot, now)
    elif state.phase[slot] == DECODE:
        cut_stretch(trace, fleet, rules, state, slot, now)


@compiled
def route(trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, now: float) -> int:
    """Send the request to a region and an instance; its endpoint, or NOBODY where none serves its llm yet."""
    llm = trace.llm[request]
    region = choose_region(fleet, rules, state, llm, trace.region[request])
    if region == NOBODY:
        push_back(state, state.stranded_head, state.stranded_tail, llm, request)
        return NOBODY
    endpoint = llm * fleet.preference.shape[0] + region
    dispatch(trace, fleet, rules, state, request, endpoint, now)
    return endpoint


@compiled
def take_stranded(trace: Trace, fleet: Fleet, rules: Rules, state: State, llm: int, now: float) -> None:
    """Route the requests that waited for an instance of their llm; some may have to wait on."""
    request = state.stranded_head[llm]
    state.stranded_head[llm] = NOBODY
    while request != NOBODY:
        behind = state.next[request]
        route(trace, fleet, rules, state, request, now)
        request = behind


@compiled
def pull_niw(trace: Trace, fleet: Fleet, rules: Rules, state: State, endpoint: int, now: float) -> None:
    """The endpoint signals spare memory and gets one request of the queue manager, or two (60 %, 50 %)."""
    llm = endpoint // fleet.preference.shape[0]
    pulls = 0
    if is_under(state, endpoint, rules.niw_pull_two_share):
        pulls = 2
    elif is_under(state, endpoint, rules.niw_pull_one_share):
        pulls = 1
    while pulls > 0 and state.niw_head[llm] != NOBODY:
        dispatch(trace, fleet, rules, state, pop_front(state, state.niw_head, llm), endpoint, now)
        pulls -= 1


@compiled
def release_aged_niw(trace: Trace, fleet: Fleet, rules: Rules, state: State, llm: int, now: float) -> None:
    """Requests old enough for priority 0 wait for no signal: they go where an interactive one would."""
    while state.niw_head[llm] != NOBODY and is_aged(trace, rules, state.niw_head[llm], now):
        route(trace, fleet, rules, state, pop_front(state, state.niw_head, llm), now)


@compiled
def fail(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """The instance dies, its VM is gone: its requests lose their KV cache and are routed anew, in turn."""
    if state.status[slot] != SERVING:
        return
    change_status(fleet, state, slot, GONE, now)
    empty_instance(trace, fleet, state, slot, now)
    request = state.head[slot, 0]
    state.head[slot, 0] = NOBODY
    while request != NOBODY:
        behind = state.next[request]
        state.served_by[request] = NOBODY
        route(trace, fleet, rules, state, request, now)
        request = behind


@compiled
def empty_instance(trace: Trace, fleet: Fleet, state: State, slot: int, now: float) -> None:
    """Take everything off the slot and gather its requests in its first list, in order of arrival."""
    if state.phase[slot] == DECODE:  # the step under way is lost, those before it are not
        state.steps[slot] += steps_until(fleet, state, slot, now) - 1
    heads, tails = state.head[slot], state.tail[slot]
    for at in range(1, LISTS):
        while heads[at] != NOBODY:
            insert_in_order(state, heads, tails, 0, pop_front(state, heads, at))
    while state.joining[slot] + state.batch[slot] > 0:
        if state.joining[slot] > 0:
            request = drop_last_joining(trace, state, slot)
        else:
            request = drop_last_decoding(trace, state, slot)
        state.preemptions[request] += 1
        insert_in_order(state, heads, tails, 0, request)
    state.kv[slot] = state.kv_seen[slot] = state.load[slot] = state.reserved[slot] = 0
    state.pending[slot] = state.prefilled[slot] = 0
    state.look[slot] = False
    state.phase[slot] = IDLE
    reschedule(state, slot, NEVER)
