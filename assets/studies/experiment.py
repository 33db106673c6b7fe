"""One experiment: variants of a run, each replayed apart, as rows of the one table trials.

A variant says what differs: the config or the catalogue (its settings), the policy and its knobs, the day,
the resample of the day's requests, the draw of the latencies. Its purpose says whether its knobs were still
being tuned on that day, or were fixed before: knobs are tuned on some days, frozen, and judged on others.

A trial is a variant with all that its replay is given. It is a unit: any thread or process plays it from the
lake that the settings name, and gets the same rows. What variants share (demand, forecasts, capacity) is made
before, once. `Search` finds where each of several planners attains what is asked, one knob each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.lake import store
from fleetcast.assets.lake.process_resources import usable_cores
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings, Step
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.replays.outcome_writer import write_outcome
from fleetcast.assets.replays.replay_workloads import ReplayWorkload, expand_request_stages, read_workload
from fleetcast.models.plan.target_search import (
    FIRST_POINT,
    NEAR_COST_SHARE,
    POINT_STEP,
    TargetTrial,
    next_point,
)
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.traffic.synthetic_days import multiply_day
from fleetcast.models.world.calendar import DAY_S

INPUT_TABLES = ("requests", "tiers", "ingests", "silences", "demand", "forecasts", "day_ahead_forecasts")
JUDGED, TUNED = "judged", "tuned"  # what a trial is for
ALL_GROUPS = "all"  # tiers, or llms, together
EMPTY_MAPPING: Mapping[str, Any] = {}


class Variant(NamedTuple):
    """What differs in a trial."""

    name: str
    settings: RunSettings  # as its replay sees them, over the lake that has the day
    day: date
    policy: str
    knobs: Mapping[str, float] = EMPTY_MAPPING
    labels: Mapping[str, str] = EMPTY_MAPPING
    resample: int = 0  # of the day's requests; 0: as they came
    draw: int = 0  # of the latencies; 0: the profiles as they are
    purpose: str = JUDGED

    def rows(self, figures: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Rows of trials; of each figure metric and value, and its tier and llm where it is not of all."""
        own = {name: getattr(self, name) for name in ("policy", "purpose", "resample", "draw")}
        own |= {"variant": self.name, "knobs": [*self.knobs.items()], "labels": [*self.labels.items()]}
        told = [
            {**own, "tier": ALL_GROUPS, "llm": ALL_GROUPS, **one, "value": float(one["value"])}
            for one in figures
            if one["value"] is not None
        ]
        return pa.Table.from_pylist(told, SCHEMAS["trials"])


class ReplayTrial(NamedTuple):
    """A variant with what its replay is given."""

    variant: Variant
    fleet: FleetArrays
    rules: Rules
    drive: Schedule
    demand_factor: float = 1.0  # requests for each one of the day
    figures: Mapping[str, float] = EMPTY_MAPPING  # of its plan, told beside those of the replay


def share_tables(source: Lake, target: Lake, tables: Iterable[str], **partition: str) -> None:
    """Let a lake have the files of another one, without a copy where the disk can."""
    for table in tables:
        for file in source.files(table, **partition):
            there = target.root / source.below(file)
            if not there.exists():
                store.link_or_copy(file, there)


@contextmanager
def scratch_lake(
    settings: RunSettings, source: Lake | None = None, tables: Iterable[str] = ()
) -> Iterator[RunSettings]:
    """The settings over a temporary lake that has these tables of another one."""
    with settings.lake.scratch() as folder:
        own = replace(settings, lake=Lake(folder))
        if source is not None:
            share_tables(source, own.lake, tables)
        yield own


def replay_trial(
    trial: ReplayTrial, workload: ReplayWorkload | None = None, step: Step | None = None
) -> pa.Table:
    """Replay a trial in a lake that is gone afterwards; its rows of trials.

    `workload` are the day's requests as the variant's settings read them; None: they are read.
    """
    variant, settings = trial.variant, trial.variant.settings
    came = scale_workload(
        settings, variant.day, workload or read_workload(settings, variant.day), trial.demand_factor
    )
    asked = expand_request_stages(settings, variant.day, came)
    with scratch_lake(settings) as own:
        outcome = replay_trace(asked.trace, trial.fleet, trial.drive, trial.rules, DAY_S, step)
        write_outcome(own, variant.day, variant.policy, asked, (trial.fleet, trial.rules), outcome)
        found = policy_metrics(own.lake, variant.policy)
    plan = [{"metric": name, "value": value} for name, value in trial.figures.items()]
    return variant.rows([*found, *plan])


def replay_trials(
    trials: Iterable[ReplayTrial], count: int, workload: ReplayWorkload, label: str, progress: Progress
) -> Iterator[pa.Table]:
    """The rows of each trial, in their order, as soon as they are known; one trial on each core."""
    stopped = Event()

    def step(_: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    with progress.bar(label, count) as done, ThreadPoolExecutor(usable_cores()) as threads:
        try:
            played = threads.map(lambda trial: replay_trial(trial, workload, step), trials)
            for number, rows in enumerate(played, start=1):
                done(number)
                yield rows
        except BaseException:
            stopped.set()
            threads.shutdown(cancel_futures=True)
            raise


def policy_metrics(lake: Lake, policy: str, **of: Any) -> list[dict[str, Any]]:
    """What a policy cost and met in a lake, over all days or those `of` a trace, a day: a row a figure."""
    return lake.sql("staging/trial_figures.sql", policy=policy, **of).drop_columns("policy").to_pylist()


def write_trials(
    settings: RunSettings, experiment: str, day: date, rows: pa.Table, file: str = "part"
) -> LakePath:
    """Write the trials of an experiment on a day, or one `file` of them; those that it had go."""
    return settings.lake.write("trials", rows, file, experiment=experiment, trace=settings.trace, day=day)


def scale_workload(
    settings: RunSettings, day: date, workload: ReplayWorkload, factor: float
) -> ReplayWorkload:
    """The day's requests, `factor` of them for each one (fleetcast.models.traffic.arrivals.multiplied)."""
    if factor == 1.0:
        return workload
    once_us = np.rint(1e6 * workload.trace.arrival_s).astype(np.int64)
    arrived_us, row = multiply_day(once_us, factor, day, settings.config.trace.seed)
    moved = pa.array(arrived_us - once_us[row]).cast(pa.duration("us"))
    table = workload.requests.take(pa.array(row))
    at = table.column_names.index("arrived_at")
    table = table.set_column(at, "arrived_at", pc.add(table["arrived_at"], moved))
    same = {name: getattr(workload.trace, name)[row] for name in (*TraceArrays._fields[1:6], "level")}
    return ReplayWorkload(table, workload.trace._replace(arrival_s=arrived_us / 1e6, **same))


class KnobSearch:
    """Where each of several planners attains what is asked of all, one knob each: in rounds, all at once."""

    def __init__(
        self,
        names: Iterable[str],
        target: float = 1.0,
        near_share: float = NEAR_COST_SHARE,
        first: Mapping[str, float] = EMPTY_MAPPING,
        step: float = POINT_STEP,
    ) -> None:
        """`first`: where the knob of a planner begins, if not at FIRST; the rest as in `next_point`."""
        self.target, self.near_share, self.first, self.step = target, near_share, first, step
        self.knob_trials: dict[str, list[TargetTrial]] = {name: [] for name in names}

    def points(self, names: Iterable[str]) -> dict[str, float]:
        """The next value of the knob of each planner that is not found yet."""
        points = {
            name: next_point(
                self.knob_trials[name],
                self.target,
                self.near_share,
                self.first.get(name, FIRST_POINT),
                self.step,
            )
            for name in names
        }
        return {name: value for name, value in points.items() if value is not None}

    def run(self, names: Sequence[str], play: Callable[[Mapping[str, float]], Iterable[TargetTrial]]) -> None:
        """Play rounds until each is found, or cannot be; `play` has a point of each, in their order."""
        while asked := self.points(names):
            for name, one in zip(asked, play(asked), strict=True):
                self.knob_trials[name].append(one)

    def highest_attaining_knob(self, name: str) -> float | None:
        """The most that a planner's knob may be to attain what is asked; None where it never does."""
        return max(
            (one.capacity_share for one in self.knob_trials[name] if one.attained >= self.target),
            default=None,
        )
