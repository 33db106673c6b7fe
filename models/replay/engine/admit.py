"""Who of those that wait gets into an instance's batch: a place, and memory for what it will take."""

from fleetcast.models.replay.compiled import compiled
from fleetcast.models.replay.dispatch.handover import brings_cache
from fleetcast.models.replay.engine.memory import (
    blocks_of,
    blocks_taken,
    capacity_blocks,
    cross,
    longest_blocks,
    needed_blocks,
    prompt_tokens,
    see_kv,
)
from fleetcast.models.replay.engine.preempt import make_way
from fleetcast.models.replay.engine.prefix import (
    forget_the_oldest,
    held_by_others,
    hold_prefix,
    reusable_tokens,
)
from fleetcast.models.replay.engine.queue import next_lane, pop_front, push_back
from fleetcast.models.replay.events import push_key
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Batching, Order, Prefix


@compiled
def has_place(fleet: Fleet, state: State, slot: int) -> bool:
    """Whether the batch is not full."""
    instance = state.instance[slot]
    return instance.batch + instance.joining < fleet.max_batch[fleet.slot_kind[slot]]


@compiled
def may_have_place(fleet: Fleet, rules: Rules, state: State, slot: int) -> bool:
    """Whether the batch is not full, or somebody may make way."""
    return rules.order == Order.PREEMPTIVE or has_place(fleet, state, slot)


@compiled
def fits(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> bool:
    """Whether there is a place in the batch, and memory for the prompt and one decode step of everyone.

    Orca asks for memory for everyone's whole output instead.
    """
    instance = state.instance[slot]
    if not has_place(fleet, state, slot):
        return False
    if fleet.batching[fleet.slot_kind[slot]] == Batching.ORCA:
        blocks = instance.reserved + longest_blocks(trace, fleet, request)
    else:
        blocks = instance.blocks + blocks_taken(fleet, state, slot, 1) + instance.brimful
        is_computed = not brings_cache(fleet, state, request)  # else its latest token is not cached yet
        blocks += blocks_of(fleet, prompt_tokens(trace, state, request) + is_computed)
        if is_computed and blocks > capacity_blocks(fleet, slot):
            blocks -= held_by_others(trace, fleet, state, slot, request)
    return blocks <= capacity_blocks(fleet, slot)


@compiled
def admit(trace: Trace, fleet: Fleet, rules: Rules, state: State, slot: int, now: float) -> None:
    """Give as many waiting requests as fit their memory, in queue order; their prompts are pending then."""
    instance = state.instance[slot]
    instance.look = False
    before, kind, gave_way = state.progress.admitted, fleet.slot_kind[slot], False
    while True:
        waiting = next_lane(trace, fleet, rules, state, slot, now)
        if waiting == NOBODY:
            break
        request = state.lane[slot, waiting].head
        if not fits(trace, fleet, state, slot, request):
            if rules.order == Order.PREEMPTIVE and make_way(trace, fleet, rules, state, slot, request):
                gave_way = True
                continue
            break
        prompt = prompt_tokens(trace, state, request)
        comes_along = brings_cache(fleet, state, request)
        work = prompt - (0 if comes_along else reusable_tokens(trace, fleet, state, slot, request))
        is_full = instance.joining > 0 and instance.pending + work > fleet.max_prefill_tokens[kind]
        if fleet.batching[kind] == Batching.WHOLE and is_full and not comes_along:
            instance.look = True  # the next boundary can take it
            break
        pop_front(state, state.lane[slot]["head"], waiting)
        instance.waiting_blocks -= needed_blocks(trace, fleet, state, request)
        instance.reserved += longest_blocks(trace, fleet, request)
        state.progress.admitted += 1
        state.request[request].admitted = state.progress.admitted
        if comes_along:
            state.transfer[request].joined_s = now
            take_in(trace, fleet, state, slot, request)
            continue
        push_back(state, state.instance["joining_head"], state.instance["joining_tail"], slot, request)
        instance.joining += 1
        instance.pending += work
        instance.blocks += blocks_of(fleet, prompt)
        if fleet.prefix != Prefix.NONE:
            instance.blocks -= held_by_others(trace, fleet, state, slot, request)
            hold_prefix(trace, fleet, state, slot, request, prompt - work)
        instance.brimful += prompt % fleet.kv_block_tokens == 0
        if state.request[request].generated == 0:
            state.request[request].admitted_s = now
    if gave_way or state.progress.admitted > before:
        see_kv(fleet, state, slot, now)


@compiled
def take_in(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> None:
    """A request that brings its cache joins the decode batch; nothing is computed."""
    cached = state.transfer[request].carried
    state.transfer[request].carried = 0
    state.instance[slot].blocks += blocks_of(fleet, cached)
    forget_the_oldest(fleet, state, slot)
    start_decoding(trace, fleet, state, slot, request)


@compiled
def start_decoding(trace: Trace, fleet: Fleet, state: State, slot: int, request: int) -> None:
    """Let a request whose cache is here into the decode batch; its latest token is not cached yet."""
    instance = state.instance[slot]
    left = trace.output_tokens[request] - state.request[request].generated
    cached = prompt_tokens(trace, state, request) - 1
    instance.kv += cached
    cross(fleet, state, slot, cached, 1)
    push_key(
        state.finish_key[slot],
        instance.batch,
        (instance.steps + left) << 32 | request,
    )
    instance.batch += 1
