"""Replay a trace on a fleet under a policy: the public face of this package.

    fleet = make_fleet(catalogue, config.fleet, config.replay, seed)
    rules = make_rules(catalogue, config.replay, "follow")
    outcome = replay(trace, fleet, Drive(targets), rules, horizon_s=86_400.0)

The kernel runs between control ticks (the hours); here the plan of each hour is handed to it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.replay.kernel import account, advance, start_hour
from models.replay.state import (
    DONATED,
    GONE,
    LISTS,
    NEVER,
    NOBODY,
    SERVING,
    STATES,
    TIERS,
    Fleet,
    Floats,
    Ints,
    Rules,
    State,
    Trace,
)

TAIL_PERIODS = 4  # how many periods of the plan requests may take to finish after the horizon
QUEUED, FINISHED, REFUSED = range(3)
STATUSES = ("queued", "finished", "refused")


class Drive(NamedTuple):
    """The plan that the scaling rule follows, where it follows one."""

    targets: npt.ArrayLike | None = None  # (hours, L, G) instances wanted; all rules but "reactive"
    forecast_tokens_per_s: npt.ArrayLike | None = None  # (hours, L, G) interactive input; "lt_ua" only
    start: npt.ArrayLike | None = None  # (L, G) serving at the start; else the first hour's targets
    hour_s: float = 3600.0  # how long one row of the plan holds


class Outcome(NamedTuple):
    """What became of every request, and what the fleet spent."""

    status: npt.NDArray[np.int8]  # (R,) position in STATUSES
    first_token_s: Floats  # (R,) on the trace's clock, network included; NaN if never
    finish_s: Floats  # (R,) likewise
    served_region: npt.NDArray[np.int16]  # (R,) NOBODY if never dispatched
    preemptions: npt.NDArray[np.int32]  # (R,)
    instance_s: Floats  # (hours, L, G, 4) instance-seconds in STATES, up to the horizon
    kv_share: Floats  # (hours, L, G) time-mean effective memory utilisation; NaN where none served
    events: int  # kernel events, for benchmarks


def check_trace(trace: Trace, fleet: Fleet) -> None:
    """Refuse a trace that the kernel must not see; the message names the first bad request."""
    llms, regions = fleet.gpus.size, fleet.network_s.shape[0]
    rules = (
        ("arrival_s must be finite and not negative", ~(trace.arrival_s >= 0) | np.isinf(trace.arrival_s)),
        ("arrivals must be sorted", np.diff(trace.arrival_s, prepend=trace.arrival_s[:1]) < 0),
        ("input_tokens must be at least 1", trace.input_tokens < 1),
        ("output_tokens must be at least 1", trace.output_tokens < 1),
        (f"llm must be below {llms}", (trace.llm < 0) | (trace.llm >= llms)),
        (f"region must be below {regions}", (trace.region < 0) | (trace.region >= regions)),
        (f"tier must be below {TIERS}", (trace.tier < 0) | (trace.tier >= TIERS)),
    )
    for rule, bad in rules:
        if bad.any():
            at = int(np.argmax(bad))
            row = ", ".join(f"{name}={column[at]}" for name, column in trace._asdict().items())
            raise ValueError(f"Request {at} of the trace ({row}): {rule}. Mend or drop it.")


def initial_state(trace: Trace, fleet: Fleet, start: Ints) -> State:
    """The fleet at time 0: `start` instances of each endpoint serve, the others it has are donated."""
    requests, slots, llms = trace.arrival_s.size, fleet.endpoint.size, fleet.gpus.size
    regions, endpoints = fleet.network_s.shape[0], fleet.slots.size - 1
    rank = np.arange(slots) - fleet.slots[fleet.endpoint]
    status = np.where(rank < fleet.instances_at_start, DONATED, GONE)
    status[rank < start[fleet.endpoint]] = SERVING
    instances = np.zeros((endpoints, 5), np.int64)
    np.add.at(instances, (fleet.endpoint, status), 1)
    used_gpus = np.zeros_like(fleet.cap_gpus)
    held = status != GONE
    where = (fleet.endpoint[held] % regions, fleet.gpu[fleet.llm[held]])
    np.add.at(used_gpus, where, fleet.gpus[fleet.llm[held]])
    if (used_gpus > fleet.cap_gpus).any():
        region, gpu = np.argwhere(used_gpus > fleet.cap_gpus)[0]
        raise ValueError(
            f"Region {region} holds {used_gpus[region, gpu]} GPUs of type {gpu} at the start, its cap is "
            f"{fleet.cap_gpus[region, gpu]}. Raise cap_gpus or lower instances_at_start."
        )

    def nobody(*shape: int) -> Ints:
        return np.full(shape, NOBODY, np.int64)

    return State(
        clock=np.zeros(3),
        counts=np.array([0, 0, 0, 0, NOBODY, 0]),
        next=np.full(requests, NOBODY, np.int32),
        generated=np.zeros(requests, np.int32),
        admitted=np.zeros(requests, np.int64),
        served_by=np.full(requests, NOBODY, np.int32),
        preemptions=np.zeros(requests, np.int32),
        refused=np.zeros(requests, np.bool_),
        first_token_s=np.full(requests, np.nan),
        finish_s=np.full(requests, np.nan),
        status=status,
        since_s=np.zeros(slots),
        event_s=np.full(slots, NEVER),
        heap=np.arange(slots),
        place=np.arange(slots),
        phase=np.zeros(slots, np.int64),
        base_s=np.zeros(slots),
        steps=np.zeros(slots, np.int64),
        stretch=np.zeros(slots, np.int64),
        batch=np.zeros(slots, np.int64),
        kv=np.zeros(slots, np.int64),
        kv_seen=np.zeros(slots, np.int64),
        finish_key=np.zeros((slots, fleet.max_batch), np.int64),
        joining_head=nobody(slots),
        joining_tail=nobody(slots),
        joining=np.zeros(slots, np.int64),
        pending=np.zeros(slots, np.int64),
        prefilled=np.zeros(slots, np.int64),
        chunk=np.zeros(slots, np.int64),
        reserved=np.zeros(slots, np.int64),
        look=np.zeros(slots, np.bool_),
        head=nobody(slots, LISTS),
        tail=nobody(slots, LISTS),
        load=np.zeros(slots, np.int64),
        instances=instances,
        used_gpus=used_gpus,
        kv_used=np.zeros(endpoints, np.int64),
        kv_room=instances[:, SERVING] * np.repeat(fleet.kv_capacity, regions),
        kv_since_s=np.zeros(endpoints),
        kv_used_area=np.zeros(endpoints),
        kv_room_area=np.zeros(endpoints),
        cooldown_s=np.zeros(endpoints),
        target=np.zeros(endpoints, np.int64),
        forecast_tokens_per_s=np.zeros(endpoints),
        seen_tokens=np.zeros(endpoints, np.int64),
        instance_s=np.zeros((endpoints, len(STATES))),
        niw_head=nobody(llms),
        niw_tail=nobody(llms),
        stranded_head=nobody(llms),
        stranded_tail=nobody(llms),
    )


def replay(
    trace: Trace,
    fleet: Fleet,
    drive: Drive,
    rules: Rules,
    horizon_s: float,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Play the trace and say what every request met and what the fleet spent.

    Parameters
    ----------
    trace : arrivals in [0, horizon_s), sorted
    drive : the plan; its first axis has one entry per hour of the horizon
    horizon_s : up to here the fleet is accounted for; unfinished requests get TAIL_PERIODS hours more
    progress : called with the number of requests ended, after each hour

    Raises
    ------
    ValueError : a trace out of order or out of range, a plan of the wrong shape
    """
    check_trace(trace, fleet)
    hours = int(np.ceil(horizon_s / drive.hour_s))
    endpoints, regions, llms = fleet.slots.size - 1, fleet.network_s.shape[0], fleet.gpus.size
    targets = hourly(drive.targets, (hours, endpoints), "targets")
    forecast = hourly(drive.forecast_tokens_per_s, (hours, endpoints), "forecast_tokens_per_s")
    start = targets[0] if drive.start is None else np.asarray(drive.start).reshape(endpoints)
    start = np.clip(start, fleet.min_instances, fleet.max_instances).astype(np.int64)
    state = initial_state(trace, fleet, start)
    instance_s, used, room = [], [], []
    for hour in range(hours):
        state.target[:], state.forecast_tokens_per_s[:] = targets[hour], forecast[hour]
        start_hour(fleet, rules, state, hour * drive.hour_s)
        until_s = min((hour + 1) * drive.hour_s, horizon_s)
        advance(trace, fleet, rules, state, until_s, False)
        account(fleet, state, until_s)
        instance_s.append(state.instance_s.copy())
        used.append(state.kv_used_area.copy())
        room.append(state.kv_room_area.copy())
        if progress is not None:
            progress(int(np.isfinite(state.finish_s).sum()))
    advance(trace, fleet, rules, state, horizon_s + TAIL_PERIODS * drive.hour_s, True)
    with np.errstate(invalid="ignore"):
        kv_share = per_hour(used) / per_hour(room)
    return read_out(
        trace,
        fleet,
        state,
        per_hour(instance_s).reshape(hours, llms, regions, len(STATES)),
        kv_share.reshape(hours, llms, regions),
    )


def hourly(values: npt.ArrayLike | None, shape: tuple[int, int], name: str) -> npt.NDArray[np.float64]:
    """A plan's table as (hours, endpoints); zeros where the policy has none."""
    if values is None:
        return np.zeros(shape)
    table = np.asarray(values, dtype=np.float64)
    if table.size != shape[0] * shape[1] or not np.isfinite(table).all():
        raise ValueError(
            f"{name} has shape {table.shape}; it needs one finite number for each of {shape[0]} hours "
            f"and {shape[1]} endpoints (llms x regions)."
        )
    return table.reshape(shape)


def per_hour(totals: list[Floats]) -> Floats:
    """Running totals at the end of each hour -> what each hour added."""
    return np.diff(np.stack(totals), axis=0, prepend=0.0)


def read_out(trace: Trace, fleet: Fleet, state: State, instance_s: Floats, kv_share: Floats) -> Outcome:
    """Turn the final state into an Outcome; the network delay is added here, it moves no event."""
    regions = fleet.network_s.shape[0]
    dispatched = state.served_by != NOBODY
    served = np.where(dispatched, fleet.endpoint[state.served_by] % regions, NOBODY).astype(np.int16)
    network_s = np.where(dispatched, fleet.network_s[trace.region, served], 0.0)
    status = np.where(np.isfinite(state.finish_s), FINISHED, np.where(state.refused, REFUSED, QUEUED))
    return Outcome(
        status.astype(np.int8),
        state.first_token_s + network_s,
        state.finish_s + network_s,
        served,
        state.preemptions,
        instance_s,
        kv_share,
        int(state.counts[-1]),
    )
