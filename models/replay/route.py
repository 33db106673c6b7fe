"""Where a request goes: region, then instance (SageServe 6.1, 6.2)."""

from models.replay.batch import cut_stretch
from models.replay.compiled import compiled
from models.replay.events import reschedule
from models.replay.memory import is_under
from models.replay.queue import is_aged, pop_front, push_back
from models.replay.state import DECODE, IDLE, NOBODY, SERVING, Fleet, Rules, State, Trace


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
def shortest_queue(fleet: Fleet, state: State, endpoint: int) -> int:
    """The serving instance with the fewest tokens assigned and not finished; ties to the lowest slot."""
    best, best_load = NOBODY, 0
    for slot in range(fleet.slots[endpoint], fleet.slots[endpoint + 1]):
        if state.status[slot] == SERVING and (best == NOBODY or state.load[slot] < best_load):
            best, best_load = slot, state.load[slot]
    return best


@compiled
def dispatch(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, endpoint: int, now: float
) -> None:
    """Hand the request to an instance of the endpoint, which must have one that serves."""
    slot = shortest_queue(fleet, state, endpoint)
    state.served_by[request] = slot
    state.load[slot] += trace.input_tokens[request] + trace.output_tokens[request]
    push_back(state, state.head[slot], state.tail[slot], trace.tier[request], request)
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
