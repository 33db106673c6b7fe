"""Replay a trace on a fleet under a policy: the public interface of this package.

    fleet = make_fleet(catalogue, config.fleet, config.replay, seed)
    rules = make_rules(catalogue, config.replay, "follow")
    outcome = replay_trace(trace, fleet, Schedule(targets), rules, horizon_s=86_400.0)

The kernel runs from one control tick to the next; at each tick this file gives it the next row of the plan.
A trace that does not fit in memory is appended to a Session day by day.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Ints
from fleetcast.models.replay.kernel import (
    account_fleet,
    advance_events,
    advance_with_balancer,
    migrate_request,
    start_control_interval,
    watchdog_limit,
)
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.session.initial_state import carry_over_requests, initial_state, is_unfinished
from fleetcast.models.replay.session.outcome import FleetUsage, Outcome, collect_outcome
from fleetcast.models.replay.session.rules import knows_ranks
from fleetcast.models.replay.session.trace_rows import EMPTY_TRACE, assign_lanes, check_trace
from fleetcast.models.replay.state import State

TAIL_PERIODS = 4  # hours of the schedule in which requests may finish after the horizon


class Schedule(NamedTuple):
    """The plan that the scaling rule follows, one row for each control interval."""

    targets: npt.ArrayLike | None = None  # (rows, E) target instances; None: the rule follows no plan
    forecast_tokens_per_s: npt.ArrayLike | None = None  # (rows, L, G) interactive input; "lt_ua" only
    start: npt.ArrayLike | None = None  # (E,) or (L, G) serving at the start; None: the first row's targets
    hour_s: float = 3600.0  # seconds of one entry of FleetUsage
    rows_per_hour: int = 1  # rows of the plan in hour_s
    go_on_below: npt.ArrayLike | None = None  # (rows, L) thresholds of cascades; None: those of the rules
    # targets (E,) of the row that begins, from the session and the time in s, in place of `targets`
    decide: "Callable[[Session, float], npt.ArrayLike] | None" = None

    @property
    def row_s(self) -> float:
        """Seconds of one row of the plan."""
        return self.hour_s / self.rows_per_hour

    def of_hours(self, first: int, end: int) -> "Schedule":
        """Return the schedule with its rows of the hours from `first` to before `end` only."""
        rows = slice(first * self.rows_per_hour, end * self.rows_per_hour)
        tables = (self.targets, self.forecast_tokens_per_s, self.go_on_below)
        cut = (None if table is None else np.asarray(table)[rows] for table in tables)
        targets, forecast, go_on_below = cut
        return self._replace(targets=targets, forecast_tokens_per_s=forecast, go_on_below=go_on_below)


class Session:
    """A replay to which traces are appended; memory holds the latest one and the unfinished requests."""

    def __init__(self, fleet: FleetArrays, rules: Rules, start: npt.ArrayLike) -> None:
        """Set up the fleet: `start` instances serve, by pool, shape (E,), or by endpoint, shape (L, G).

        The other `instances_at_start` are donated. ValueError for rules that move requests in a fleet without
        transfers, or that do not know the fleet's data-parallel ranks.
        """
        if np.isfinite(rules.balance_s) and not fleet.has_transfers:
            raise ValueError(
                "These rules move requests, and this fleet has no KV transfers. Make both from one config."
            )
        if fleet.ranks.max() > 1 and not knows_ranks(rules):
            raise ValueError(
                "These rules order instances by freeness or INFAaS, or move requests, and this fleet has "
                "instances of several data-parallel ranks. Take other rules, or data_parallel_size = 1."
            )
        counts = np.asarray(start, np.float64).ravel()
        if counts.size != fleet.kind.size:
            counts = np.round(fleet.share * counts[fleet.llm * fleet.network_s.shape[0] + fleet.region])
        serving = np.clip(counts, fleet.min_instances, np.diff(fleet.slots)).astype(np.int64)
        # Paired pools start with whole teams.
        for pool in np.flatnonzero((fleet.team > 0) & (fleet.then != NO_INDEX)):
            teams = serving[pool] // fleet.team[pool]
            for side in (pool, fleet.then[pool]):
                serving[side] = teams * fleet.team[side]
        self.fleet, self.rules = fleet, rules
        self.trace, self.state = EMPTY_TRACE, initial_state(fleet, rules, serving)
        self.row = np.zeros(0, np.int64)
        self.appended = 0

    def append_trace(self, trace: TraceArrays) -> None:
        """Drop the ended requests and append `trace`; ValueError if it begins before the current time."""
        trace = assign_lanes(trace, self.rules)
        check_trace(trace, self.fleet, self.rules)
        now = self.state.progress.now_s
        if trace.arrival_s.size and trace.arrival_s[0] < now:
            raise ValueError(
                f"The trace begins at {trace.arrival_s[0]} s, but the session has played up to {now} s. "
                "Feed traces in order of time, on one clock."
            )
        new = np.arange(self.appended, self.appended + trace.arrival_s.size)
        self.row = np.concatenate([self.row[is_unfinished(self.state)], new])
        self.trace, self.state = carry_over_requests(self.trace, self.state, trace, self.fleet)
        self.appended += new.size

    def play(
        self, schedule: Schedule, until_s: float, progress: Callable[[int], None] | None = None
    ) -> FleetUsage:
        """Play row by row of the schedule to `until_s`; return what the fleet used in each hour.

        `progress` is called after each hour with the number of ended requests.
        """
        fleet, state, begin_s = self.fleet, self.state, float(self.state.progress.now_s)
        row_s = schedule.row_s
        rows = int(np.ceil((until_s - begin_s) / row_s))
        targets = as_plan_table(schedule.targets, (rows, fleet.kind.size), "targets")
        forecast = as_plan_table(
            schedule.forecast_tokens_per_s, (rows, fleet.pools_of.shape[0]), "forecast_tokens_per_s"
        )
        below = None
        if schedule.go_on_below is not None:
            below = as_plan_table(schedule.go_on_below, (rows, fleet.defers_batch_tier.size), "go_on_below")
        totals = [self._totals()]
        for row in range(rows):
            if below is not None:
                state.llm["go_on_below"] = below[row]
            state.endpoint["forecast_tokens_per_s"] = forecast[row]
            now_s = begin_s + row * row_s
            state.pool["target"] = targets[row] if schedule.decide is None else schedule.decide(self, now_s)
            start_control_interval(fleet, self.rules, state, now_s)
            end_s = min(begin_s + (row + 1) * row_s, until_s)
            self.run_until(end_s)
            self._require_progress()
            if (row + 1) % schedule.rows_per_hour and row + 1 < rows:
                continue
            account_fleet(fleet, state, end_s)
            totals.append(self._totals())
            if progress is not None:
                progress(int(state.progress.ended))
        return FleetUsage(*(np.diff(np.stack(column), axis=0) for column in zip(*totals, strict=True)))

    def run_until(self, end_s: float) -> None:
        """Run all events before `end_s`; a subclass that observes the fleet may stop in between."""
        self._advance(end_s, False)

    def instances(self) -> Ints:
        """Return the number of instances now, by pool and state: shape (E, 4), in the order of STATES."""
        return self.state.instances[:, 1:]

    def move(self, row: int, slot: int) -> bool:
        """Begin a live move of a request to a slot; return False where that is not possible.

        `row` is the request's index among all that were appended. ValueError for a fleet without transfers.
        """
        if not self.fleet.has_transfers:
            raise ValueError(
                "This fleet has no KV transfers. Make it with has_transfers set, and with links."
            )
        request = int(np.searchsorted(self.row, row))
        # An ended request is no longer in the table.
        if request >= self.row.size or self.row[request] != row:
            return False
        now = float(self.state.progress.now_s)
        return bool(migrate_request(self.trace, self.fleet, self.rules, self.state, request, slot, now))

    def finish(self, until_s: float) -> None:
        """Run until all requests have ended, at most to `until_s`, without accounting for the fleet."""
        self._advance(until_s, True)

    def outcome(self, *usage: Any) -> Outcome:
        """Return the outcome of the requests in memory; `usage` are the fields of FleetUsage."""
        return collect_outcome(self.trace, self.fleet, self.state, self.row, FleetUsage(*usage))

    def save(self, path: Path) -> None:
        """Write everything that the next play needs; the file is replaced in one step."""
        temporary = path.with_name(path.name + ".tmp")
        arrays = {f"trace.{name}": column for name, column in self.trace._asdict().items()}
        arrays |= {f"state.{name}": column for name, column in self.state._asdict().items()}
        with temporary.open("wb") as file:
            np.savez(file, row=self.row, appended=self.appended, **arrays)
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: Path, fleet: FleetArrays, rules: Rules) -> "Session":
        """Read a saved session; ValueError if it was saved with another fleet."""
        session = cls(fleet, rules, np.zeros(fleet.kind.size))
        with np.load(path, allow_pickle=False) as saved:
            session.trace = TraceArrays(*(saved[f"trace.{name}"] for name in TraceArrays._fields))
            # The file keeps neither the record type nor its alignment.
            loaded = {name: saved[f"state.{name}"] for name in State._fields}
            loaded = {name: loaded[name].view(fresh.dtype) for name, fresh in session.state._asdict().items()}
            session.state = State(**loaded | {"progress": loaded["progress"][()]})
            session.row, session.appended = saved["row"], int(saved["appended"])
        if session.state.finish_key.shape != (fleet.pool.size, fleet.max_batch.max()):
            raise ValueError(
                f"{path.name} was saved with {session.state.finish_key.shape[0]} instance slots, this fleet "
                f"has {fleet.pool.size}. Load it with the fleet that it was saved with."
            )
        return session

    def _advance(self, until_s: float, until_ended: bool) -> None:
        """Run the kernel, with the balancer where requests move; each is compiled when it is first needed."""
        run = advance_events if np.isinf(self.rules.balance_s) else advance_with_balancer
        run(self.trace, self.fleet, self.rules, self.state, until_s, until_ended)

    def _require_progress(self) -> None:
        """Raise RuntimeError if the kernel runs events without advancing time (the watchdog)."""
        state = self.state
        if state.progress.stalled_events > watchdog_limit(self.trace, state):
            slot = int(next(clock for clock in state.clock["heap"] if clock < state.instance.size))
            raise RuntimeError(
                f"The replay makes no progress at {state.progress.now_s} s: slot {slot} of pool "
                f"{self.fleet.pool[slot]}, {state.instance['batch'][slot]} decoding, "
                f"{state.instance['joining'][slot]} joining. "
                "This is a defect of the kernel: please report it with the trace."
            )

    def _totals(self) -> FleetUsage:
        state = self.state
        areas = (state.pool["kv_used_area"].copy(), state.pool["kv_room_area"].copy())
        return FleetUsage(state.instance_s.copy(), *areas, state.moved.copy())


def replay_trace(
    trace: TraceArrays,
    fleet: FleetArrays,
    schedule: Schedule,
    rules: Rules,
    horizon_s: float,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Play a whole trace on a fresh fleet; return the outcome of every request and what the fleet used.

    Parameters
    ----------
    trace : arrivals in [0, horizon_s), sorted
    schedule : the plan; its rows cover the horizon
    horizon_s : the fleet is accounted for up to here; unfinished requests get TAIL_PERIODS hours more
    progress : called with the number of ended requests, after each hour

    Raises
    ------
    ValueError : a trace out of order or out of range, a plan of the wrong shape
    """
    start = schedule.start
    if start is None:
        rows = int(np.ceil(horizon_s / schedule.row_s))
        start = as_plan_table(schedule.targets, (rows, fleet.kind.size), "targets")[0]
    session = Session(fleet, rules, start)
    session.append_trace(trace)
    usage = session.play(schedule, horizon_s, progress)
    session.finish(horizon_s + TAIL_PERIODS * schedule.hour_s)
    return session.outcome(*usage)


def as_plan_table(values: npt.ArrayLike | None, shape: tuple[int, int], name: str) -> npt.NDArray[np.float64]:
    """Return a plan's table in this shape, (rows, columns); zeros for None; ValueError if it does not fit."""
    if values is None:
        return np.zeros(shape)
    table = np.asarray(values, dtype=np.float64)
    if table.size != shape[0] * shape[1] or not np.isfinite(table).all():
        raise ValueError(
            f"{name} has shape {table.shape}; it needs one finite number for each of {shape[0]} rows "
            f"and {shape[1]} pools, endpoints (llms x regions) or llms."
        )
    return table.reshape(shape)
