"""Before the kernel runs: a fleet is set up, or what is unfinished is carried over."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fleetcast.models.replay.block_cache import NEXT
from fleetcast.models.replay.inputs import NEVER, NOBODY, Bools, Fleet, Floats, Ints, Rules, Trace
from fleetcast.models.replay.prefix import BLOCKS, NONE
from fleetcast.models.replay.queue import lanes
from fleetcast.models.replay.requests import joined, rows_of, with_legs
from fleetcast.models.replay.state import (
    ARRIVED,
    DONATED,
    ENDED,
    GONE,
    MOVING,
    REQUEST_BITS,
    RUNNING,
    SERVING,
    STALE,
    STATES,
    State,
)

# The fields of State that begin at 0, and those that begin with nobody, by what they have an entry for.
# fmt: off
AT_ZERO = {
    "instance": ("since_s", "phase", "base_s", "step_s", "steps", "stretch", "batch", "kv", "blocks",
        "brimful", "kv_seen", "joining", "pending", "prefilled", "chunk", "reserved", "leavers", "sending",
        "coming", "giving", "getting", "highest", "lowest", "freeness", "service_s", "waiting_blocks",
        "out_free_s", "in_free_s", "look", "interactive", "load"),
    "pool": ("busy", "kv_used", "kv_since_s", "kv_used_area", "kv_room_area", "came_tokens",
        "rate_tokens_per_s", "waiting_tokens", "past_plan", "cooldown_s", "target", "least_free",
        "most_free", "credit"),
    "endpoint": ("forecast_tokens_per_s", "seen_tokens", "seen_before"),
    "llm": ("came", "came_per_s", "manager_output_tokens", "manager_input_tokens"),
}
WITH_NOBODY = {
    "instance": ("joining_head", "joining_tail"),
    "pool": ("highest_wish",),
    "llm": ("manager_head", "manager_tail", "stranded_head", "stranded_tail"),
    "level of an llm": ("kept_head", "kept_tail"),
}
# fmt: on
ZERO_TYPES: Any = {Ints: np.int64, Floats: np.float64, Bools: np.bool_}


def initial_state(fleet: Fleet, rules: Rules, start: Ints) -> State:
    """The fleet at time 0: `start` instances of each pool serve, the others it has are donated."""
    levels, lists = rules.headroom_share.size, lanes(rules) + 1  # the last for those that are not known yet
    slots, pools, llms = fleet.pool.size, fleet.kind.size, fleet.holds.size
    status = statuses(fleet, start)
    instances = np.zeros((pools, 5), np.int64)
    np.add.at(instances, (fleet.pool, status), 1)
    counts = np.zeros(12, np.int64)
    counts[RUNNING], counts[STALE] = NOBODY, slots
    entries = {"instance": slots, "pool": pools, "endpoint": fleet.pools_of.shape[0], "llm": llms}
    entries["level of an llm"] = llms * levels
    return State(
        clock=np.zeros(6),
        counts=counts,
        **untouched(0, fleet),
        **{name: zeros(name, entries[each]) for each, names in AT_ZERO.items() for name in names},
        **{name: np.full(entries[each], NOBODY) for each, names in WITH_NOBODY.items() for name in names},
        **empty_caches(fleet),
        **in_line(fleet, status),
        status=status,
        leaves_s=np.full(slots, NEVER),
        event_s=np.full(slots + 1, NEVER),
        heap=np.arange(slots + 1),
        place=np.arange(slots + 1),
        crossing=np.zeros((slots, fleet.kv_block_tokens), np.int64),
        finish_key=np.zeros((slots, fleet.max_batch.max()), np.int64),
        is_stale=np.ones(slots + 1, np.bool_),
        stale=np.arange(slots),
        looked_up_s=np.full(slots, -NEVER),
        present=np.zeros((slots, levels), np.int64),
        head=np.full((slots, lists), NOBODY),
        tail=np.full((slots, lists), NOBODY),
        instances=instances,
        booted=np.arange(pools) * fleet.boot_spot_s.size // pools,  # each begins elsewhere in the draws
        used_gpus=gpus_of(fleet, status),
        kv_room=instances[:, SERVING] * fleet.kv_capacity[fleet.kind],
        headroom_share=np.tile(rules.headroom_share, (pools, 1)),
        late=np.zeros((pools, levels), np.int64),
        moved=np.zeros((pools, 3), np.int64),
        instance_s=np.zeros((pools, len(STATES))),
        go_on_below=rules.go_on_below.copy(),
    )


def statuses(fleet: Fleet, start: Ints) -> Ints:
    """Of each instance at time 0, shape (N,)."""
    rank = np.arange(fleet.pool.size) - fleet.slots[fleet.pool]
    status = np.where(rank < fleet.instances_at_start[fleet.pool], DONATED, GONE)
    status[rank < start[fleet.pool]] = SERVING
    return status


def in_line(fleet: Fleet, status: Ints) -> dict[str, Any]:
    """The fields of State by which the instances of a pool stand in line for requests."""
    slots = np.arange(fleet.pool.size)
    rank, last = slots - fleet.slots[fleet.pool], fleet.slots[1:] - 1
    return {
        "queue": np.where(status == SERVING, 0.0, NEVER),
        "shortest": slots,  # in order: those that serve are the first of their pool
        "shortest_place": rank,
        "turn": last,
        "is_changed": np.full(slots.size, fleet.by_freeness),
        "next_changed": np.where(rank > 0, slots - 1, NOBODY),
        "first_changed": last.copy(),
    }


def gpus_of(fleet: Fleet, status: Ints) -> Ints:
    """GPUs of the instances that there are, shape (G, P); ValueError where a region may not have so many."""
    used_gpus = np.zeros_like(fleet.cap_gpus)
    held = status != GONE
    kind = fleet.slot_kind[held]
    np.add.at(used_gpus, (fleet.region[fleet.pool[held]], fleet.gpu[kind]), fleet.gpus[kind])
    if (used_gpus > fleet.cap_gpus).any():
        region, gpu = np.argwhere(used_gpus > fleet.cap_gpus)[0]
        raise ValueError(
            f"Region {region} holds {used_gpus[region, gpu]} GPUs of type {gpu} at the start, its cap is "
            f"{fleet.cap_gpus[region, gpu]}. Raise cap_gpus or lower instances_at_start."
        )
    return used_gpus


def zeros(name: str, entries: int) -> npt.NDArray[Any]:
    """Of the type that State says."""
    return np.zeros(entries, ZERO_TYPES[State.__annotations__[name]])


def empty_caches(fleet: Fleet) -> dict[str, Any]:
    """The fields of State for the prompts that instances have cached: a place for all that fit."""
    slots = fleet.pool.size
    rows = 0
    if fleet.prefix == BLOCKS:
        rows = int(fleet.kv_capacity.max()) // fleet.prefix_block_tokens + 1
    cache = np.zeros((slots, rows, 5), np.int32)
    cache[:, :, NEXT] = np.where(np.arange(rows) + 1 < rows, np.arange(rows) + 1, NOBODY)
    chains = 1 << rows.bit_length() if rows else 0
    idle = np.tile(np.array([NOBODY, NOBODY, 0, 0], np.int32), (slots, 1))
    return {"cache": cache, "bucket": np.full((slots, chains), NOBODY, np.int32), "idle": idle}


def untouched(requests: int, fleet: Fleet) -> dict[str, Any]:
    """The fields of State that have one entry per request, for requests that nothing has happened to."""
    travelling = requests if fleet.hands_over else 0
    sharing = requests if fleet.prefix != NONE else 0
    return {
        "next": np.full(requests, NOBODY, np.int32),
        "generated": np.zeros(requests, np.int32),
        "admitted": np.zeros(requests, np.int64),
        "served_by": np.full(requests, NOBODY, np.int32),
        "preemptions": np.zeros(requests, np.int32),
        "refused": np.zeros(requests, np.bool_),
        "spared": np.zeros(requests, np.bool_),
        "dispatched_s": np.full(requests, np.nan),
        "queued_s": np.zeros(requests if fleet.is_async.any() else 0),
        "admitted_s": np.full(requests, np.nan),
        "first_token_s": np.full(requests, np.nan),
        "finish_s": np.full(requests, np.nan),
        "reused": np.zeros(sharing, np.int32),
        "saved": np.zeros(sharing, np.int32),
        "held_hashes": np.zeros(sharing, np.int32),
        "carried": np.zeros(travelling, np.int32),
        "holder": np.full(travelling, NOBODY, np.int32),
        "held": np.zeros(travelling, np.int32),
        "stays": np.zeros(travelling, np.bool_),
        "copying_to": np.full(travelling, NOBODY, np.int32),
        "copied": np.zeros(travelling, np.int32),
        "stage": np.zeros(travelling, np.int8),
        "ready_s": np.zeros(travelling),
        "sent_from": np.full(travelling, NOBODY, np.int32),
        "sent_s": np.full(travelling, np.nan),
        "came_s": np.full(travelling, np.nan),
        "joined_s": np.full(travelling, np.nan),
        "moving": np.full(travelling, NOBODY),
        "moving_place": np.full(travelling, NOBODY),
    }


def is_open(state: State) -> np.ndarray:
    """Which requests have not ended, shape (R,)."""
    return np.isnan(state.finish_s) & ~state.refused & ~state.spared


def carry_over(trace: Trace, state: State, more: Trace, fleet: Fleet) -> tuple[Trace, State]:
    """Forget the requests that have ended and append `more`; whatever names a request follows its move."""
    kept = is_open(state)
    place = np.full(kept.size + 1, NOBODY)  # the last entry is where NOBODY goes: to NOBODY
    place[:-1][kept] = np.arange(kept.sum())
    fresh = untouched(more.arrival_s.size, fleet)
    old = {name: getattr(state, name) for name in fresh}
    stay = {name: column[kept] if column.size else column for name, column in old.items()}
    requests = {name: np.concatenate([stay[name], fresh[name]]) for name in fresh}
    requests["next"][: kept.sum()] = place[state.next[kept]]
    travelling = state.counts[MOVING]
    requests["moving"][:travelling] = place[state.moving[:travelling]]
    lists: tuple[str, ...] = ("head", "tail", "joining_head", "joining_tail")
    lists += ("manager_head", "manager_tail", "kept_head", "kept_tail", "stranded_head", "stranded_tail")
    keys = state.finish_key.copy()
    for slot, batch in enumerate(state.batch):
        own = keys[slot, :batch]
        keys[slot, :batch] = (own >> 32 << 32) | place[own & REQUEST_BITS]
    counts = state.counts.copy()
    counts[ARRIVED], counts[ENDED] = kept[: counts[ARRIVED]].sum(), 0
    moved = {name: place[getattr(state, name)] for name in lists}
    state = state._replace(**requests, **moved, finish_key=keys, counts=counts)
    if trace.then.size or more.then.size:
        trace, more = with_legs(trace), with_legs(more)
        trace = trace._replace(then=place[trace.then].astype(np.int32))
        more = more._replace(
            then=np.where(more.then == NOBODY, NOBODY, more.then + kept.sum()).astype(np.int32)
        )
    return joined(rows_of(trace, np.flatnonzero(kept)), more), state
