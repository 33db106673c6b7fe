"""Live moves: a request goes to another instance while it goes on decoding (Llumnix 3.5).

Its cache is copied in stages over the two links: all that is cached when a stage begins, then what has been
added meanwhile, and so on. When no more than `last_copy_tokens` are left, or after `max_copies`, the request
leaves at the first step boundary that is not over; the rest follows, `move_s` later it has landed, and it
joins the other batch like any cache that was handed over. A move computes nothing. It is given up when the
request finishes or loses its memory before it leaves, or when the other instance does not serve any more.
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.handover import put_under_way, take_off_the_way, token_s
from fleetcast.models.replay.engine.leap import steps_until, stretch_s
from fleetcast.models.replay.engine.memory import cross, longest_blocks, prompt_tokens
from fleetcast.models.replay.engine.prefix import blocks_back, forget_the_oldest
from fleetcast.models.replay.events import drop_key, reschedule
from fleetcast.models.replay.fleet.pools import assign
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import GIVEN_UP, REQUEST_BITS, State
from fleetcast.models.world.mechanisms import Phase, Status

LEAVING = -1  # the stage of a request that goes at the next boundary


@called
def ask_for_move(
    trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, to: int, now: float
) -> bool:
    """Begin to move a decoding request to slot `to`; False where that cannot be.

    It must decode at an instance that serves or drains, and not move yet; the other one must serve, be of the
    same llm and in the same role, and be large enough.
    """
    slot = state.request[request].served_by
    if slot in (NOBODY, to) or state.transfer[request].copying_to != NOBODY:
        return False
    pool, other = fleet.pool[slot], fleet.pool[to]
    tokens = trace.input_tokens[request] + trace.output_tokens[request]
    if fleet.llm[pool] != fleet.llm[other] or fleet.role[pool] != fleet.role[other]:
        return False
    if (
        state.instance[slot].status not in (Status.SERVING, Status.DRAINING)
        or state.instance[to].status != Status.SERVING
    ):
        return False
    if tokens > fleet.longest[other]:
        return False
    if place_in_batch(state, slot, request) == NOBODY:
        return False
    state.transfer[request].copying_to = to
    state.transfer[request].copied = 0
    state.transfer[request].stage = 0
    state.instance[slot].giving += 1
    state.instance[to].getting += 1
    copy_next(trace, fleet, rules, state, request, now)
    return True


@called
def copy_next(trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, now: float) -> None:
    """Copy what has been cached since the last copy began; or leave, where little enough is left."""
    slot, to = state.request[request].served_by, state.transfer[request].copying_to
    if state.instance[to].status != Status.SERVING:
        end_copying(fleet, state, request, GIVEN_UP)
        return
    last_step = state.finish_key[slot, place_in_batch(state, slot, request)] >> 32
    left = last_step - state.instance[slot].steps - steps_passed(fleet, state, slot, now)
    cached = trace.input_tokens[request] + trace.output_tokens[request] - left - 1
    rest = cached - state.transfer[request].copied
    if rest <= rules.last_copy_tokens or state.transfer[request].stage >= rules.max_copies:
        state.transfer[request].stage = LEAVING
        state.instance[slot].leavers += 1
        stop_soon(fleet, state, slot, now)
    else:
        state.transfer[request].copied = cached
        state.transfer[request].stage += 1
        send_over(fleet, state, request, slot, to, rest, now)


@called
def send_over(fleet: Fleet, state: State, request: int, slot: int, to: int, tokens: int, now: float) -> None:
    """Put so many tokens of a cache on the way, behind what both links still have to carry."""
    instance = state.instance[slot]
    begin_s = max(now, instance.out_free_s, state.instance[to].in_free_s)
    state.transfer[request].ready_s = begin_s + tokens * token_s(fleet, slot, to)
    instance.out_free_s = state.instance[to].in_free_s = state.transfer[request].ready_s
    put_under_way(state, request)


@called
def let_go(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """At a step boundary, after those that finish: the requests that leave go, in their order."""
    instance = state.instance[slot]
    while instance.leavers > 0:
        request = next_leaver(state, slot)
        instance.leavers -= 1
        to = state.transfer[request].copying_to
        if state.instance[to].status != Status.SERVING:
            end_copying(fleet, state, request, GIVEN_UP)
            continue
        end_copying(fleet, state, request, NOBODY)
        at = place_in_batch(state, slot, request)
        left = (state.finish_key[slot, at] >> 32) - instance.steps
        state.request[request].generated = trace.output_tokens[request] - left
        cached = prompt_tokens(trace, state, request) - 1
        drop_key(state.finish_key[slot], instance.batch, at)
        instance.batch -= 1
        cross(fleet, state, slot, cached, -1)
        instance.kv -= cached
        forget_the_oldest(fleet, state, slot)
        instance.blocks -= blocks_back(trace, fleet, state, slot, request, cached, cached)
        instance.reserved -= longest_blocks(trace, fleet, request)
        instance.look = True
        assign(trace, fleet, state, slot, request, -1)
        assign(trace, fleet, state, to, request, 1)
        state.instance[to].coming += 1
        state.request[request].served_by = to
        state.transfer[request].holder = slot
        state.transfer[request].carried = cached
        state.transfer[request].sent_from, state.transfer[request].sent_s = slot, now
        send_over(fleet, state, request, slot, to, cached - state.transfer[request].copied, now)
        take_off_the_way(state, request)  # the link is free when the cache has come, the request lands later
        state.transfer[request].ready_s += rules.move_s
        put_under_way(state, request)


@called
def next_leaver(state: State, slot: int) -> int:
    """The first of the slot's requests that leave."""
    first = NOBODY
    for at in range(state.instance[slot].batch):
        request = state.finish_key[slot, at] & REQUEST_BITS
        if state.transfer[request].copying_to != NOBODY and state.transfer[request].stage == LEAVING:
            first = request if first == NOBODY else min(first, request)
    return first


@called
def give_up(fleet: Fleet, state: State, request: int) -> None:
    """The request stays where it is, or begins anew: what has been copied is of no use."""
    if state.transfer[request].stage == LEAVING:
        state.instance[state.request[request].served_by].leavers -= 1
    else:
        take_off_the_way(state, request)
    end_copying(fleet, state, request, GIVEN_UP)


@called
def end_copying(fleet: Fleet, state: State, request: int, counted: int) -> None:
    """The request is not being copied any more, be it that it leaves or stays, which is counted."""
    slot = state.request[request].served_by
    if counted != NOBODY:
        state.moved[fleet.pool[slot], counted] += 1
    state.instance[slot].giving -= 1
    state.instance[state.transfer[request].copying_to].getting -= 1
    state.transfer[request].copying_to, state.transfer[request].stage = NOBODY, 0


@called
def stay_with(fleet: Fleet, state: State, dead: int) -> None:
    """Requests that were about to leave for an instance that has died stay."""
    for slot in range(state.instance.size):
        if state.instance[slot].leavers > 0:
            for at in range(state.instance[slot].batch):
                request = state.finish_key[slot, at] & REQUEST_BITS
                if state.transfer[request].copying_to == dead:
                    give_up(fleet, state, request)


@called
def place_in_batch(state: State, slot: int, request: int) -> int:
    """Where the request stands in the slot's heap of finish steps; NOBODY if it does not decode there."""
    for at in range(state.instance[slot].batch):
        if state.finish_key[slot, at] & REQUEST_BITS == request:
            return at
    return NOBODY


@called
def steps_passed(fleet: Fleet, state: State, slot: int, now: float) -> int:
    """Steps of the slot's stretch whose boundary is over at this instant."""
    if state.instance[slot].phase != Phase.DECODE:
        return 0
    steps = steps_until(fleet, state, slot, now)
    return steps if is_over_now(fleet, state, slot, steps, now) else steps - 1


@called
def is_over_now(fleet: Fleet, state: State, slot: int, steps: int, now: float) -> bool:
    """Whether the boundary after so many steps lies at this very instant and the slot has passed it.

    It has where its slot comes before the last clock that ran at this instant.
    """
    at_s = state.instance[slot].base_s + stretch_s(fleet, state, slot, steps)
    return at_s == now and slot < state.progress.running


@called
def stop_soon(fleet: Fleet, state: State, slot: int, now: float) -> None:
    """End a stretch at the first step boundary that is not over."""
    if state.instance[slot].phase == Phase.DECODE:
        stop_after(fleet, state, slot, steps_passed(fleet, state, slot, now) + 1)


@called
def stop_after(fleet: Fleet, state: State, slot: int, steps: int) -> None:
    """End a stretch after so many of its steps, if it is longer."""
    instance = state.instance[slot]
    if steps < instance.stretch:
        instance.stretch = steps
        reschedule(state, slot, instance.base_s + stretch_s(fleet, state, slot, steps))
