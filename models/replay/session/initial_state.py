"""State before the kernel runs: of a fresh fleet, or carried over with the unfinished requests.

Letters of shapes are those of kernel_inputs.py and state.py.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Ints
from fleetcast.models.replay.engine.block_cache import NEXT
from fleetcast.models.replay.engine.queue import lane_count
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.session.trace_rows import concat_traces, fill_leg_columns, select_requests
from fleetcast.models.replay.state import (
    CENTRAL_RECORDS,
    CLOCK_RECORDS,
    ENDPOINT_RECORDS,
    INSTANCE_RECORDS,
    LANE_RECORDS,
    LINE_RECORDS,
    LLM_RECORDS,
    POOL_RECORDS,
    PROGRESS_RECORDS,
    REQUEST_BITS,
    REQUEST_RECORDS,
    SHARING_RECORDS,
    TRANSFER_RECORDS,
    State,
)
from fleetcast.models.world.mechanisms import STATES, Prefix, Status


def initial_state(fleet: FleetArrays, rules: Rules, start: Ints) -> State:
    """Return the state at time 0: `start` instances of each pool serve, shape (E,), others are donated."""
    levels = rules.headroom_share.size
    slots, pools, llms = fleet.pool.size, fleet.kind.size, fleet.defers_batch_tier.size
    status = initial_statuses(fleet, start)
    instances = np.zeros((pools, 5), np.int64)
    of_instances = slice(fleet.slots[-1])
    np.add.at(instances, (fleet.pool[of_instances], status[of_instances]), 1)
    state = State(
        progress=PROGRESS_RECORDS.make(1)[0],
        **new_request_records(0, fleet),
        clock=CLOCK_RECORDS.make(slots + 1),
        instance=INSTANCE_RECORDS.make(slots),
        line=LINE_RECORDS.make(slots),
        pool=POOL_RECORDS.make(pools),
        endpoint=ENDPOINT_RECORDS.make(fleet.pools_of.shape[0]),
        llm=LLM_RECORDS.make(llms),
        central=CENTRAL_RECORDS.make(llms * levels),
        lane=LANE_RECORDS.make(slots, lane_count(rules) + 1),
        block_crossings=np.zeros((slots, fleet.kv_block_tokens), np.int64),
        finish_key=np.zeros((slots, fleet.max_batch.max()), np.int64),
        ended_request=np.zeros((slots, fleet.max_batch.max()), np.int64),
        ended_blocks=np.zeros((slots, fleet.max_batch.max(), 2), np.int64),
        requests_by_level=np.zeros((slots, levels), np.int64),
        **empty_caches(fleet),
        instances=instances,
        instance_s=np.zeros((pools, len(STATES))),
        moved=np.zeros((pools, 3), np.int64),
        used_gpus=count_gpus(fleet, status),
    )
    state.progress.stale = slots
    state.clock["heap"] = state.clock["place"] = np.arange(slots + 1)
    state.instance["stale"], state.instance["status"] = np.arange(slots), status
    init_lines(fleet, state)
    # Each pool begins at another sample.
    state.pool["next_boot_sample"] = np.arange(pools) * fleet.boot_spot_s.size // pools
    state.pool["kv_room"] = instances[:, Status.SERVING] * (fleet.ranks * fleet.kv_capacity)[fleet.kind]
    # Rules of a whole catalogue may be used for a fleet of one of its llms, whose requests have one leg.
    state.llm["go_on_below"] = rules.go_on_below[:llms]
    return state


def initial_statuses(fleet: FleetArrays, start: Ints) -> Ints:
    """Return the status of each slot at time 0, shape (N,); start: shape (E,), serving instances.

    Further ranks have none of their own.
    """
    rank = np.arange(fleet.pool.size) - fleet.slots[fleet.pool]
    status = np.where(rank < fleet.instances_at_start[fleet.pool], Status.DONATED, Status.GONE)
    status[rank < start[fleet.pool]] = Status.SERVING
    status[fleet.slots[-1] :] = Status.GONE
    return status


def init_lines(fleet: FleetArrays, state: State) -> None:
    """Initialise the heaps of instances of each pool: those that serve come first."""
    instance, slots = state.instance, np.arange(fleet.pool.size)
    rank, last = slots - fleet.slots[fleet.pool], fleet.slots[1:] - 1
    state.line["sort_key"][instance["status"] == Status.SERVING] = 0.0
    state.line["slot_heap"], state.line["slot_heap_position"] = slots, rank
    instance["is_changed"] = fleet.by_freeness
    instance["next_changed"] = np.where(rank > 0, slots - 1, NO_INDEX)
    state.pool["last_chosen_slot"] = state.pool["first_changed"] = last


def count_gpus(fleet: FleetArrays, status: Ints) -> Ints:
    """Return the GPUs of instances that are not GONE, shape (G, P); ValueError above a region's cap.

    `status`: shape (N,), of each instance.
    """
    used_gpus = np.zeros_like(fleet.cap_gpus)
    has_vm = status != Status.GONE
    kind = fleet.slot_kind[has_vm]
    np.add.at(used_gpus, (fleet.region[fleet.pool[has_vm]], fleet.gpu[kind]), fleet.gpus[kind])
    if (used_gpus > fleet.cap_gpus).any():
        region, gpu = np.argwhere(used_gpus > fleet.cap_gpus)[0]
        raise ValueError(
            f"Region {region} holds {used_gpus[region, gpu]} GPUs of type {gpu} at the start, its cap is "
            f"{fleet.cap_gpus[region, gpu]}. Raise cap_gpus or lower instances_at_start."
        )
    return used_gpus


def empty_caches(fleet: FleetArrays) -> dict[str, Any]:
    """Return the fields of State for cached prompt blocks, with rows for all blocks that fit."""
    slots = fleet.pool.size
    rows = 0
    if fleet.prefix == Prefix.BLOCKS:
        rows = int(fleet.kv_capacity.max()) // fleet.prefix_block_tokens + 1
    cache = np.zeros((slots, rows, 5), np.int32)
    cache[:, :, NEXT] = np.where(np.arange(rows) + 1 < rows, np.arange(rows) + 1, NO_INDEX)
    chains = 1 << rows.bit_length() if rows else 0
    idle = np.tile(np.array([NO_INDEX, NO_INDEX, 0, 0], np.int32), (slots, 1))
    return {"cache": cache, "bucket": np.full((slots, chains), NO_INDEX, np.int32), "idle": idle}


def new_request_records(requests: int, fleet: FleetArrays) -> dict[str, npt.NDArray[Any]]:
    """Return the fields of State with a record per request, shape (requests,), for new requests."""
    return {
        "request": REQUEST_RECORDS.make(requests),
        "sharing": SHARING_RECORDS.make(requests if fleet.prefix != Prefix.NONE else 0),
        "transfer": TRANSFER_RECORDS.make(requests if fleet.has_transfers else 0),
    }


def is_unfinished(state: State) -> np.ndarray:
    """Return which requests have not ended, shape (R,)."""
    request = state.request
    return np.isnan(request["finish_s"]) & ~request["refused"] & ~request["spared"]


def carry_over_requests(
    trace: TraceArrays, state: State, more: TraceArrays, fleet: FleetArrays
) -> tuple[TraceArrays, State]:
    """Drop the ended requests, append `more`, and renumber all fields that hold the row of a request."""
    kept = is_unfinished(state)
    # The last entry maps NO_INDEX to NO_INDEX.
    place = np.full(kept.size + 1, NO_INDEX)
    place[:-1][kept] = np.arange(kept.sum())
    requests = new_request_records(more.arrival_s.size, fleet)
    count = state.progress.in_flight
    in_flight = place[state.transfer["in_flight"][:count]]
    for name, fresh in requests.items():
        old = getattr(state, name)
        requests[name] = np.concatenate([old[kept] if old.size else old, fresh])
    requests["request"]["next"][: kept.sum()] = place[state.request["next"][kept]]
    requests["transfer"]["in_flight"][:count] = in_flight
    lists = (
        (INSTANCE_RECORDS, state.instance),
        (LLM_RECORDS, state.llm),
        (CENTRAL_RECORDS, state.central),
        (LANE_RECORDS, state.lane),
    )
    for records, array in lists:
        for name in records.fields_of_unit("request"):
            array[name] = place[array[name]]
    for slot, batch in enumerate(state.instance["batch"]):
        keys = state.finish_key[slot, :batch]
        keys[:] = (keys >> 32 << 32) | place[keys & REQUEST_BITS]
    state.progress.arrived, state.progress.ended = kept[: state.progress.arrived].sum(), 0
    state = state._replace(**requests)
    if trace.then.size or more.then.size:
        trace, more = fill_leg_columns(trace), fill_leg_columns(more)
        trace = trace._replace(then=place[trace.then].astype(np.int32))
        more = more._replace(
            then=np.where(more.then == NO_INDEX, NO_INDEX, more.then + kept.sum()).astype(np.int32)
        )
    return concat_traces(select_requests(trace, np.flatnonzero(kept)), more), state
