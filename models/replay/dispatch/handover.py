"""Hand-over: what lies between two legs of a request, the KV cache on its way from one instance to another.

A pool whose role is to prefill sends a request on with its first token (Cauchy 3.4, 3.6; Splitwise,
DistServe). Each instance has one link, which carries one cache at a time, first come first served: so the end
of a transfer is known when it is sent, and costs O(1). In bulk the cache leaves when the pass is over; by
layer, the first of n parts leaves after one n-th of the pass and the last one after its end:

    begin = max(the sender's link is free, the receiver's is, first part is computed)
    ready = max(end of the pass + X / n, begin + X)          X = tokens * seconds per token of the slower link

The sender's blocks stay held until then; the receiver counts the request among its load at once, takes it
into its queue when the cache has come, and into its batch, without computing anything, at the first step
boundary at which there is a place. Those that travel stand in one heap by (ready_s, request).
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.opportunism import keeps, receiver, set_stay
from fleetcast.models.replay.events import reschedule, settle
from fleetcast.models.replay.fleet.pools import assign
from fleetcast.models.replay.inputs import NEVER, NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State


@called
def brings_cache(fleet: Fleet, state: State, request: int) -> bool:
    """Whether the request's cache has come along, so that it need not be computed."""
    return fleet.hands_over and state.transfer[request].carried > 0


@called
def send(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, request: int, now: float) -> bool:
    """Send a request that has its first token to the pool that decodes; False where it stays."""
    instance = state.instance[slot]
    to = receiver(fleet, state, slot)
    if to == NOBODY:
        return False
    is_kept = keeps(fleet, rules, state, slot, to)
    set_stay(trace, fleet, state, slot, request, is_kept)
    if is_kept:
        return False
    cached = trace.input_tokens[request] + state.request[request].generated - 1
    seconds = cached * token_s(fleet, slot, to)
    layers = fleet.link_layers[fleet.slot_kind[slot]]
    computed_s = now - (now - instance.base_s) * (1 - 1 / layers)
    begin_s = max(computed_s, instance.out_free_s, state.instance[to].in_free_s)
    ready_s = max(now + seconds / layers, begin_s + seconds)
    instance.out_free_s = state.instance[to].in_free_s = ready_s
    instance.sending += 1
    state.instance[to].coming += 1
    state.transfer[request].carried = cached
    state.transfer[request].held = cached
    state.transfer[request].holder = slot
    state.transfer[request].ready_s = ready_s
    state.request[request].served_by = to
    state.transfer[request].sent_from, state.transfer[request].sent_s = slot, now
    assign(trace, fleet, state, to, request, 1)
    if fleet.is_interactive[trace.tier[request]]:
        state.pool[fleet.pool[to]].came_tokens += trace.input_tokens[request]
    put_under_way(state, request)
    return True


@called
def token_s(fleet: Fleet, slot: int, to: int) -> float:
    """Seconds in which one token's cache goes from slot to slot: those of the slower link."""
    return max(fleet.link_token_s[fleet.slot_kind[slot]], fleet.link_token_s[fleet.slot_kind[to]])


@called
def put_under_way(state: State, request: int) -> None:
    """Add a request, whose ready_s is set, to those that travel."""
    size = state.progress.moving
    state.transfer[size].moving, state.transfer[request].moving_place = request, size
    state.progress.moving += 1
    settle(
        state.transfer["ready_s"],
        state.transfer["moving"],
        state.transfer["moving_place"],
        0,
        size + 1,
        request,
    )
    set_clock(state)


@called
def take_off_the_way(state: State, request: int) -> None:
    """Remove a request from those that travel."""
    size, at = state.progress.moving - 1, state.transfer[request].moving_place
    last = state.transfer[size].moving
    state.progress.moving = size
    if last != request:
        state.transfer[at].moving, state.transfer[last].moving_place = last, at
        settle(
            state.transfer["ready_s"], state.transfer["moving"], state.transfer["moving_place"], 0, size, last
        )
    set_clock(state)


@called
def set_clock(state: State) -> None:
    """Let the clock of the hand-overs ring when the next one ends."""
    next_s = state.transfer[state.transfer[0].moving].ready_s if state.progress.moving > 0 else NEVER
    reschedule(state, state.instance.size, next_s)
