"""The end of a hand-over: the cache has come, or is lost because one of the two instances died."""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.dispatch.handover import take_off_the_way
from fleetcast.models.replay.dispatch.move import give_up, stay_with, stop_after
from fleetcast.models.replay.engine.admit import may_have_place
from fleetcast.models.replay.engine.batch import cut_stretch
from fleetcast.models.replay.engine.leap import steps_until
from fleetcast.models.replay.engine.memory import longest_blocks, see_less
from fleetcast.models.replay.engine.prefix import blocks_back
from fleetcast.models.replay.engine.queue import enqueue, insert_in_order, is_unknown, somebody_waits
from fleetcast.models.replay.events import note_stale, reschedule
from fleetcast.models.replay.fleet.pools import assign
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Phase, Prefix, Status


@called
def come(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, request: int, now: float) -> None:
    """The request has come to the instance, which looks at its queue at the first boundary that may see it.

    For an async engine that is the end of the step after the one under way.
    """
    note_stale(state, slot)
    if enqueue(trace, fleet, state, slot, request, now):
        look_soon(trace, fleet, rules, state, slot, now)
    else:
        look_later(fleet, rules, state, slot, now)


@called
def look_later(fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Let an async engine end a stretch after the step that follows the one under way."""
    instance = state.instance[slot]
    if instance.phase == Phase.DECODE and may_have_place(fleet, rules, state, slot):
        has_begun = int(now > instance.base_s)  # else its first step has yet to be composed
        stop_after(fleet, state, slot, has_begun * steps_until(fleet, state, slot, now) + 1)


@called
def look_soon(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Let the instance look at its queue at the first step boundary that is not over."""
    instance = state.instance[slot]
    instance.look = True
    if instance.phase == Phase.IDLE:
        reschedule(state, slot, now)
    elif instance.phase == Phase.DECODE:
        cut_stretch(trace, fleet, rules, state, slot, now)


@called
def deliver(trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, now: float) -> None:
    """A cache has come: its sender's memory is free, and its request waits where it is now."""
    release(trace, fleet, rules, state, request, now)
    slot = state.request[request].served_by
    state.instance[slot].coming -= 1
    state.transfer[request].came_s = now
    come(trace, fleet, rules, state, slot, request, now)


@called
def release(trace: Trace, fleet: Fleet, rules: Rules, state: State, request: int, now: float) -> None:
    """Free the memory from which the request's cache was sent."""
    slot, held = state.transfer[request].holder, state.transfer[request].held
    state.transfer[request].holder, state.transfer[request].held = NOBODY, 0
    if held == 0:
        return
    state.instance[slot].sending -= 1
    state.instance[slot].reserved -= longest_blocks(trace, fleet, request)
    see_less(fleet, state, slot, blocks_back(trace, fleet, state, slot, request, held, held), now)
    assign(trace, fleet, state, slot, request, -1)
    state.instance[slot].look = True
    if (
        state.instance[slot].status == Status.DRAINING
        or somebody_waits(state, slot)
        or is_unknown(state, slot)
    ):
        look_soon(trace, fleet, rules, state, slot, now)


@called
def recall(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """The instance has died: what was on its way from it or to it waits at it, to be routed anew."""
    instance = state.instance[slot]
    at = 0
    while at < state.progress.moving:
        request = state.transfer[at].moving
        if (
            state.transfer[request].copying_to != NOBODY
        ):  # it decodes still: where it is it stays, or dies with it
            if state.transfer[request].copying_to == slot:
                give_up(fleet, state, request)
                at = 0
            else:
                at += 1
            continue
        if state.transfer[request].holder != slot and state.request[request].served_by != slot:
            at += 1
            continue
        take_off_the_way(state, request)
        if state.request[request].served_by != slot:
            state.instance[state.request[request].served_by].coming -= 1
            assign(trace, fleet, state, state.request[request].served_by, request, -1)
        else:
            instance.coming -= 1
        if state.transfer[request].holder != slot:
            release(trace, fleet, rules, state, request, now)
        else:
            instance.sending -= int(state.transfer[request].held > 0)
            state.transfer[request].holder, state.transfer[request].held = NOBODY, 0
        lose(fleet, state, request)
        insert_in_order(state, state.lane[slot]["head"], state.lane[slot]["tail"], 0, request)
        at = 0  # the heap has changed
    stay_with(fleet, state, slot)
    instance.out_free_s = instance.in_free_s = 0.0


@called
def lose(fleet: Fleet, state: State, request: int) -> None:
    """The cache that the request brought is gone and must be computed again."""
    if fleet.prefix != Prefix.NONE:
        state.sharing[request].held_hashes = 0
    state.progress.lost_tokens += state.transfer[request].carried
    state.transfer[request].carried = 0
    state.request[request].preemptions += 1
