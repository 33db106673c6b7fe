"""Run an experiment: replay variants of a run, each on its own, and write rows of the one table trials.

A variant differs in its settings (config, catalogue), policy, knobs, day, resample of the day's requests or
draw of the latencies. Its purpose is TUNED if its knobs were still searched on that day, and EVALUATED if
they were fixed before: knobs are tuned on some days and evaluated on others.

A trial is a variant with all inputs of its replay. Any thread or process can replay it from the lake of its
settings and gets the same rows. Inputs that variants share (demand, forecasts, capacity) are computed once,
before. `KnobSearch` finds the value of each planner's knob at which it attains the required targets.
"""

from collections.abc import Iterable, Iterator, Mapping
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
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.traffic.synthetic_days import multiply_day
from fleetcast.models.trials.target_search import (
    FIRST_POINT,
    NEAR_COST_SHARE,
    POINT_STEP,
    TargetTrial,
    next_point,
)
from fleetcast.models.world.calendar import DAY_S

INPUT_TABLES = ("requests", "tiers", "ingests", "silences", "demand", "forecasts", "day_ahead_forecasts")
EVALUATED, TUNED = "judged", "tuned"  # purposes of a trial, as in trials.purpose
ALL_GROUPS = "all"  # all tiers or all llms together
EMPTY_MAPPING: Mapping[str, Any] = {}


class Variant(NamedTuple):
    """The settings, policy, day and draws that set one trial apart from the others."""

    name: str
    settings: RunSettings  # of the replay, over the lake that has the day
    day: date
    policy: str
    knobs: Mapping[str, float] = EMPTY_MAPPING
    labels: Mapping[str, str] = EMPTY_MAPPING
    resample: int = 0  # number of the resample of the day's requests; 0: the recorded requests
    draw: int = 0  # number of the draw of the latencies; 0: the profiles themselves
    purpose: str = EVALUATED

    def rows(self, figures: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Return rows of trials for figures with metric and value, and tier or llm unless they are totals."""
        common = {name: getattr(self, name) for name in ("policy", "purpose", "resample", "draw")}
        common |= {"variant": self.name, "knobs": [*self.knobs.items()], "labels": [*self.labels.items()]}
        table_rows = [
            {**common, "tier": ALL_GROUPS, "llm": ALL_GROUPS, **figure, "value": float(figure["value"])}
            for figure in figures
            if figure["value"] is not None
        ]
        return pa.Table.from_pylist(table_rows, SCHEMAS["trials"])


class ReplayTrial(NamedTuple):
    """A variant with the inputs of its replay."""

    variant: Variant
    fleet: FleetArrays
    rules: Rules
    schedule: Schedule
    demand_factor: float = 1.0  # replayed requests per request of the day
    figures: Mapping[str, float] = EMPTY_MAPPING  # metrics of its plan, reported with those of the replay


def share_tables(source: Lake, target: Lake, tables: Iterable[str], **partition: Any) -> None:
    """Link the files of some tables into another lake; copy them where the disk cannot link."""
    for table in tables:
        for file in source.files(table, **partition):
            path = target.root / source.below(file)
            if not path.exists():
                store.link_or_copy(file, path)


@contextmanager
def scratch_lake(
    settings: RunSettings, source: Lake | None = None, tables: Iterable[str] = ()
) -> Iterator[RunSettings]:
    """Yield the settings over a temporary lake with these tables of the source lake."""
    with settings.lake.scratch() as folder:
        scratch = replace(settings, lake=Lake(folder))
        if source is not None:
            share_tables(source, scratch.lake, tables)
        yield scratch


def replay_trial(
    trial: ReplayTrial, workload: ReplayWorkload | None = None, step: Step | None = None
) -> pa.Table:
    """Replay a trial in a scratch lake and return its rows of trials.

    `workload`: the day's requests, read with the variant's settings; None: they are read here.
    """
    variant, settings = trial.variant, trial.variant.settings
    scaled = scale_workload(
        settings, variant.day, workload or read_workload(settings, variant.day), trial.demand_factor
    )
    staged = expand_request_stages(settings, variant.day, scaled)
    with scratch_lake(settings) as scratch:
        outcome = replay_trace(staged.trace, trial.fleet, trial.schedule, trial.rules, DAY_S, step)
        write_outcome(scratch, variant.day, variant.policy, staged, (trial.fleet, trial.rules), outcome)
        metrics = policy_metrics(scratch.lake, variant.policy)
    plan_metrics = [{"metric": name, "value": value} for name, value in trial.figures.items()]
    return variant.rows([*metrics, *plan_metrics])


def replay_trials(
    trials: Iterable[ReplayTrial], count: int, workload: ReplayWorkload, label: str, progress: Progress
) -> Iterator[pa.Table]:
    """Replay trials, one per core, and yield the rows of each in order, as soon as they are known."""
    stopped = Event()

    def step(_: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    with progress.bar(label, count) as done, ThreadPoolExecutor(usable_cores()) as threads:
        try:
            replayed = threads.map(lambda trial: replay_trial(trial, workload, step), trials)
            for number, rows in enumerate(replayed, start=1):
                done(number)
                yield rows
        except BaseException:
            stopped.set()
            threads.shutdown(cancel_futures=True)
            raise


def policy_metrics(lake: Lake, policy: str, **of: Any) -> list[dict[str, Any]]:
    """Return cost and service metrics of a policy, one row per figure, of all days or those in `of`.

    `of`: trace and day; or `by_day`, with which a figure is of a day, `of_day`.
    """
    return lake.sql("staging/trial_figures.sql", policy=policy, **of).drop_columns("policy").to_pylist()


def write_trials(
    settings: RunSettings, experiment: str, day: date, rows: pa.Table, file: str = "part"
) -> LakePath:
    """Write the trials of an experiment on a day into one `file`, in place of those it had."""
    return settings.lake.write("trials", rows, file, experiment=experiment, trace=settings.trace, day=day)


def scale_workload(
    settings: RunSettings, day: date, workload: ReplayWorkload, factor: float
) -> ReplayWorkload:
    """Return the day's requests with `factor` requests for each one (models/traffic/synthetic_days.py)."""
    if factor == 1.0:
        return workload
    recorded_us = np.rint(1e6 * workload.trace.arrival_s).astype(np.int64)
    arrived_us, row = multiply_day(recorded_us, factor, day, settings.config.trace.seed)
    shift = pa.array(arrived_us - recorded_us[row]).cast(pa.duration("us"))
    table = workload.requests.take(pa.array(row))
    column = table.column_names.index("arrived_at")
    table = table.set_column(column, "arrived_at", pc.add(table["arrived_at"], shift))
    repeated = {name: getattr(workload.trace, name)[row] for name in (*TraceArrays._fields[1:6], "level")}
    return ReplayWorkload(table, workload.trace._replace(arrival_s=arrived_us / 1e6, **repeated))


class KnobSearch:
    """Search the knob of several planners, in common rounds, until each attains the same target."""

    def __init__(
        self,
        names: Iterable[str],
        target: float = 1.0,
        near_share: float = NEAR_COST_SHARE,
        first: Mapping[str, float] = EMPTY_MAPPING,
        step: float = POINT_STEP,
    ) -> None:
        """Set up the search; `first`: first knob value by planner, else FIRST_POINT; rest: `next_point`."""
        self.target, self.near_share, self.first, self.step = target, near_share, first, step
        self.knob_trials: dict[str, list[TargetTrial]] = {name: [] for name in names}

    def points(self, names: Iterable[str]) -> dict[str, float]:
        """Return the next knob value of each planner whose search has not ended."""
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

    def highest_attaining_knob(self, name: str) -> float | None:
        """Return the highest knob value at which a planner attains the target; None if it never does."""
        return max(
            (trial.capacity_share for trial in self.knob_trials[name] if trial.attained >= self.target),
            default=None,
        )
