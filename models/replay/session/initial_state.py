"""Before the kernel runs: a fleet is set up, or what is unfinished is carried over."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Ints
from fleetcast.models.replay.engine.block_cache import NEXT
from fleetcast.models.replay.engine.queue import lanes
from fleetcast.models.replay.inputs import NOBODY, Fleet, Rules, Trace
from fleetcast.models.replay.session.requests import joined, rows_of, with_legs
from fleetcast.models.replay.state import (
    CENTRAL,
    CLOCK,
    ENDPOINT,
    INSTANCE,
    LANE,
    LINE,
    LLM,
    POOL,
    POOL_LEVEL,
    PROGRESS,
    REQUEST,
    REQUEST_BITS,
    SHARING,
    TRANSFER,
    State,
)
from fleetcast.models.world.mechanisms import STATES, Prefix, Status


def initial_state(fleet: Fleet, rules: Rules, start: Ints) -> State:
    """The fleet at time 0: `start` instances of each pool serve, the others it has are donated."""
    levels = rules.headroom_share.size
    slots, pools, llms = fleet.pool.size, fleet.kind.size, fleet.holds.size
    status = statuses(fleet, start)
    instances = np.zeros((pools, 5), np.int64)
    np.add.at(instances, (fleet.pool, status), 1)
    state = State(
        progress=PROGRESS.make(1)[0],
        **untouched(0, fleet),
        clock=CLOCK.make(slots + 1),
        instance=INSTANCE.make(slots),
        line=LINE.make(slots),
        pool=POOL.make(pools),
        endpoint=ENDPOINT.make(fleet.pools_of.shape[0]),
        llm=LLM.make(llms),
        central=CENTRAL.make(llms * levels),
        lane=LANE.make(slots, lanes(rules) + 1),
        pool_level=POOL_LEVEL.make(pools, levels),
        crossing=np.zeros((slots, fleet.kv_block_tokens), np.int64),
        finish_key=np.zeros((slots, fleet.max_batch.max()), np.int64),
        present=np.zeros((slots, levels), np.int64),
        **empty_caches(fleet),
        instances=instances,
        instance_s=np.zeros((pools, len(STATES))),
        moved=np.zeros((pools, 3), np.int64),
        used_gpus=gpus_of(fleet, status),
    )
    state.progress.stale = slots
    state.clock["heap"] = state.clock["place"] = np.arange(slots + 1)
    state.instance["stale"], state.instance["status"] = np.arange(slots), status
    stand_in_line(fleet, state)
    state.pool["booted"] = np.arange(pools) * fleet.boot_spot_s.size // pools  # each begins at another draw
    state.pool["kv_room"] = instances[:, Status.SERVING] * fleet.kv_capacity[fleet.kind]
    # Rules of a whole catalogue may play a fleet of one of its llms, whose requests have one leg.
    state.llm["go_on_below"] = rules.go_on_below[:llms]
    state.pool_level["headroom_share"] = rules.headroom_share
    return state


def statuses(fleet: Fleet, start: Ints) -> Ints:
    """Of each instance at time 0, shape (N,)."""
    rank = np.arange(fleet.pool.size) - fleet.slots[fleet.pool]
    status = np.where(rank < fleet.instances_at_start[fleet.pool], Status.DONATED, Status.GONE)
    status[rank < start[fleet.pool]] = Status.SERVING
    return status


def stand_in_line(fleet: Fleet, state: State) -> None:
    """The instances of each pool stand in line for requests: those that serve are its first."""
    instance, slots = state.instance, np.arange(fleet.pool.size)
    rank, last = slots - fleet.slots[fleet.pool], fleet.slots[1:] - 1
    state.line["queue"][instance["status"] == Status.SERVING] = 0.0
    state.line["shortest"], state.line["shortest_place"] = slots, rank
    instance["is_changed"] = fleet.by_freeness
    instance["next_changed"] = np.where(rank > 0, slots - 1, NOBODY)
    state.pool["turn"] = state.pool["first_changed"] = last


def gpus_of(fleet: Fleet, status: Ints) -> Ints:
    """GPUs of the instances that there are, shape (G, P); ValueError where a region may not have so many."""
    used_gpus = np.zeros_like(fleet.cap_gpus)
    held = status != Status.GONE
    kind = fleet.slot_kind[held]
    np.add.at(used_gpus, (fleet.region[fleet.pool[held]], fleet.gpu[kind]), fleet.gpus[kind])
    if (used_gpus > fleet.cap_gpus).any():
        region, gpu = np.argwhere(used_gpus > fleet.cap_gpus)[0]
        raise ValueError(
            f"Region {region} holds {used_gpus[region, gpu]} GPUs of type {gpu} at the start, its cap is "
            f"{fleet.cap_gpus[region, gpu]}. Raise cap_gpus or lower instances_at_start."
        )
    return used_gpus


def empty_caches(fleet: Fleet) -> dict[str, Any]:
    """The fields of State for the prompts that instances have cached: a place for all that fit."""
    slots = fleet.pool.size
    rows = 0
    if fleet.prefix == Prefix.BLOCKS:
        rows = int(fleet.kv_capacity.max()) // fleet.prefix_block_tokens + 1
    cache = np.zeros((slots, rows, 5), np.int32)
    cache[:, :, NEXT] = np.where(np.arange(rows) + 1 < rows, np.arange(rows) + 1, NOBODY)
    chains = 1 << rows.bit_length() if rows else 0
    idle = np.tile(np.array([NOBODY, NOBODY, 0, 0], np.int32), (slots, 1))
    return {"cache": cache, "bucket": np.full((slots, chains), NOBODY, np.int32), "idle": idle}


def untouched(requests: int, fleet: Fleet) -> dict[str, npt.NDArray[Any]]:
    """The members of State with a record per request, for requests that nothing has happened to."""
    return {
        "request": REQUEST.make(requests),
        "sharing": SHARING.make(requests if fleet.prefix != Prefix.NONE else 0),
        "transfer": TRANSFER.make(requests if fleet.hands_over else 0),
    }


def is_open(state: State) -> np.ndarray:
    """Which requests have not ended, shape (R,)."""
    request = state.request
    return np.isnan(request["finish_s"]) & ~request["refused"] & ~request["spared"]


def carry_over(trace: Trace, state: State, more: Trace, fleet: Fleet) -> tuple[Trace, State]:
    """Forget the requests that have ended and append `more`; whatever names a request follows its move."""
    kept = is_open(state)
    place = np.full(kept.size + 1, NOBODY)  # the last entry is where NOBODY goes: to NOBODY
    place[:-1][kept] = np.arange(kept.sum())
    requests = untouched(more.arrival_s.size, fleet)
    travelling = state.progress.moving
    moving = place[state.transfer["moving"][:travelling]]
    for name, fresh in requests.items():
        old = getattr(state, name)
        requests[name] = np.concatenate([old[kept] if old.size else old, fresh])
    requests["request"]["next"][: kept.sum()] = place[state.request["next"][kept]]
    requests["transfer"]["moving"][:travelling] = moving
    lists = ((INSTANCE, state.instance), (LLM, state.llm), (CENTRAL, state.central), (LANE, state.lane))
    for records, array in lists:
        for name in records.holding("request"):
            array[name] = place[array[name]]
    for slot, batch in enumerate(state.instance["batch"]):
        own = state.finish_key[slot, :batch]
        own[:] = (own >> 32 << 32) | place[own & REQUEST_BITS]
    state.progress.arrived, state.progress.ended = kept[: state.progress.arrived].sum(), 0
    state = state._replace(**requests)
    if trace.then.size or more.then.size:
        trace, more = with_legs(trace), with_legs(more)
        trace = trace._replace(then=place[trace.then].astype(np.int32))
        more = more._replace(
            then=np.where(more.then == NOBODY, NOBODY, more.then + kept.sum()).astype(np.int32)
        )
    return joined(rows_of(trace, np.flatnonzero(kept)), more), state
