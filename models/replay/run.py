"""Replay a trace on a fleet under a policy: the public face of this package.

    fleet = make_fleet(catalogue, config.fleet, config.replay, seed)
    rules = make_rules(catalogue, config.replay, "follow")
    outcome = replay(trace, fleet, Drive(targets), rules, horizon_s=86_400.0)

The kernel runs between control ticks (the hours); here the plan of each hour is handed to it. A trace
that does not fit in memory is fed day by day to a Session.
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
from fleetcast.models.replay.session.trace_rows import EMPTY_TRACE, assign_lanes, check_trace
from fleetcast.models.replay.state import ReplayState

TAIL_PERIODS = 4  # how many periods of the plan requests may take to finish after the horizon


class Schedule(NamedTuple):
    """The plan that the scaling rule follows, where it follows one: one row after the other."""

    targets: npt.ArrayLike | None = None  # (rows, E) instances wanted, where the rule follows a plan
    forecast_tokens_per_s: npt.ArrayLike | None = None  # (rows, L, G) interactive input; "lt_ua" only
    start: npt.ArrayLike | None = None  # (E,) or (L, G) serving at the start; else the first row's targets
    hour_s: float = 3600.0  # the fleet's time is told by so many seconds
    rows_per_hour: int = 1  # of the plan
    go_on_below: npt.ArrayLike | None = None  # (rows, L) thresholds of cascades, where the plan moves them

    @property
    def row_s(self) -> float:
        """How long one row of the plan holds."""
        return self.hour_s / self.rows_per_hour


class Session:
    """A fleet under a rule that is fed trace after trace; memory holds one of them and what is unfinished."""

    def __init__(self, fleet: FleetArrays, rules: Rules, start: npt.ArrayLike) -> None:
        """`start` instances serve, shape (E,) or (L, G) for pools to share; the others are donated."""
        counts = np.asarray(start, np.float64).ravel()
        if counts.size != fleet.kind.size:
            counts = np.round(fleet.share * counts[fleet.llm * fleet.network_s.shape[0] + fleet.region])
        serving = np.clip(counts, fleet.min_instances, np.diff(fleet.slots)).astype(np.int64)
        for pool in np.flatnonzero((fleet.team > 0) & (fleet.then != NO_INDEX)):  # whole teams
            teams = serving[pool] // fleet.team[pool]
            for side in (pool, fleet.then[pool]):
                serving[side] = teams * fleet.team[side]
        self.fleet, self.rules = fleet, rules
        self.trace, self.state = EMPTY_TRACE, initial_state(fleet, rules, serving)
        self.row = np.zeros(0, np.int64)
        self.fed = 0

    def append_trace(self, trace: TraceArrays) -> None:
        """Forget what has ended and append `trace`, whose arrivals lie at or after all time played so far."""
        trace = assign_lanes(trace, self.rules)
        check_trace(trace, self.fleet, self.rules)
        now = self.state.progress.now_s
        if trace.arrival_s.size and trace.arrival_s[0] < now:
            raise ValueError(
                f"The trace begins at {trace.arrival_s[0]} s, but the session has played up to {now} s. "
                "Feed traces in order of time, on one clock."
            )
        new = np.arange(self.fed, self.fed + trace.arrival_s.size)
        self.row = np.concatenate([self.row[is_unfinished(self.state)], new])
        self.trace, self.state = carry_over_requests(self.trace, self.state, trace, self.fleet)
        self.fed += new.size

    def play(
        self, drive: Schedule, until_s: float, progress: Callable[[int], None] | None = None
    ) -> FleetUsage:
        """Play hour by hour to `until_s`; what was spent in those hours."""
        fleet, state, begin_s = self.fleet, self.state, float(self.state.progress.now_s)
        row_s = drive.row_s
        rows = int(np.ceil((until_s - begin_s) / row_s))
        targets = as_plan_table(drive.targets, (rows, fleet.kind.size), "targets")
        forecast = as_plan_table(
            drive.forecast_tokens_per_s, (rows, fleet.pools_of.shape[0]), "forecast_tokens_per_s"
        )
        below = None
        if drive.go_on_below is not None:
            below = as_plan_table(drive.go_on_below, (rows, fleet.defers_batch_tier.size), "go_on_below")
        totals = [self._totals()]
        for row in range(rows):
            if below is not None:
                state.llm["go_on_below"] = below[row]
            state.pool["target"], state.endpoint["forecast_tokens_per_s"] = targets[row], forecast[row]
            start_control_interval(fleet, self.rules, state, begin_s + row * row_s)
            end_s = min(begin_s + (row + 1) * row_s, until_s)
            self.run_until(end_s)
            self._require_progress()
            if (row + 1) % drive.rows_per_hour and row + 1 < rows:
                continue
            account_fleet(fleet, state, end_s)
            totals.append(self._totals())
            if progress is not None:
                progress(int(state.progress.ended))
        return FleetUsage(*(np.diff(np.stack(column), axis=0) for column in zip(*totals, strict=True)))

    def run_until(self, end_s: float) -> None:
        """Run every event before then; one who watches stops on the way."""
        self._advance(end_s, False)

    def instances(self) -> Ints:
        """How many instances there are now, by pool and state: shape (E, 4) in STATES."""
        return self.state.instances[:, 1:]

    def move(self, row: int, slot: int) -> bool:
        """Begin a live move of a request, by its place among all that were fed; False where it cannot be.

        ValueError for a fleet that is not laid out for hand-overs.
        """
        if not self.fleet.has_transfers:
            raise ValueError("This fleet hands nothing over: make it with hands_over, and links.")
        request = int(np.searchsorted(self.row, row))
        if request >= self.row.size or self.row[request] != row:
            return False  # it has ended
        now = float(self.state.progress.now_s)
        return bool(migrate_request(self.trace, self.fleet, self.rules, self.state, request, slot, now))

    def finish(self, until_s: float) -> None:
        """Let the requests that are left end, without accounting for the fleet any more."""
        self._advance(until_s, True)

    def outcome(self, *spent: Any) -> Outcome:
        """What became of the requests since the last feed; `spent` are the columns of Spent."""
        return collect_outcome(self.trace, self.fleet, self.state, self.row, FleetUsage(*spent))

    def save(self, path: Path) -> None:
        """Write everything that the next play needs; the file appears whole or not at all."""
        aside = path.with_name(path.name + ".tmp")
        arrays = {f"trace.{name}": column for name, column in self.trace._asdict().items()}
        arrays |= {f"state.{name}": column for name, column in self.state._asdict().items()}
        with aside.open("wb") as file:
            np.savez(file, row=self.row, fed=self.fed, **arrays)
        os.replace(aside, path)

    @classmethod
    def load(cls, path: Path, fleet: FleetArrays, rules: Rules) -> "Session":
        """A session as it was saved; ValueError if it was another fleet's."""
        session = cls(fleet, rules, np.zeros(fleet.kind.size))
        with np.load(path, allow_pickle=False) as saved:
            session.trace = TraceArrays(*(saved[f"trace.{name}"] for name in TraceArrays._fields))
            # A file knows neither records nor their alignment.
            loaded = {name: saved[f"state.{name}"] for name in ReplayState._fields}
            loaded = {name: loaded[name].view(fresh.dtype) for name, fresh in session.state._asdict().items()}
            session.state = ReplayState(**loaded | {"progress": loaded["progress"][()]})
            session.row, session.fed = saved["row"], int(saved["fed"])
        if session.state.finish_key.shape != (fleet.pool.size, fleet.max_batch.max()):
            raise ValueError(
                f"{path.name} was saved with {session.state.finish_key.shape[0]} instance slots, this fleet "
                f"has {fleet.pool.size}. Load it with the fleet that it was saved with."
            )
        return session

    def _advance(self, until_s: float, until_ended: bool) -> None:
        """By the kernel, or with the balancer where requests move: each is compiled when it is needed."""
        run = advance_events if np.isinf(self.rules.balance_s) else advance_with_balancer
        run(self.trace, self.fleet, self.rules, self.state, until_s, until_ended)

    def _require_progress(self) -> None:
        """The watchdog: say where, if the kernel kept making events without moving the clock."""
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
    drive: Schedule,
    rules: Rules,
    horizon_s: float,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Play a whole trace from a standing start and say what every request met and what the fleet spent.

    Parameters
    ----------
    trace : arrivals in [0, horizon_s), sorted
    drive : the plan; its rows cover the horizon
    horizon_s : up to here the fleet is accounted for; unfinished requests get TAIL_PERIODS hours more
    progress : called with the number of requests ended, after each hour

    Raises
    ------
    ValueError : a trace out of order or out of range, a plan of the wrong shape
    """
    start = drive.start
    if start is None:
        rows = int(np.ceil(horizon_s / drive.row_s))
        start = as_plan_table(drive.targets, (rows, fleet.kind.size), "targets")[0]
    session = Session(fleet, rules, start)
    session.append_trace(trace)
    spent = session.play(drive, horizon_s, progress)
    session.finish(horizon_s + TAIL_PERIODS * drive.hour_s)
    return session.outcome(*spent)


def as_plan_table(values: npt.ArrayLike | None, shape: tuple[int, int], name: str) -> npt.NDArray[np.float64]:
    """A plan's table in this shape; zeros where the policy has none."""
    if values is None:
        return np.zeros(shape)
    table = np.asarray(values, dtype=np.float64)
    if table.size != shape[0] * shape[1] or not np.isfinite(table).all():
        raise ValueError(
            f"{name} has shape {table.shape}; it needs one finite number for each of {shape[0]} rows "
            f"and {shape[1]} pools, endpoints (llms x regions) or llms."
        )
    return table.reshape(shape)
