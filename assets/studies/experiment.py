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
from fleetcast.assets.lake.machine import cores
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, Settings, Step
from fleetcast.assets.lake.store import Place
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.replays.workloads import Workload, in_legs, read_workload
from fleetcast.assets.replays.writing import write_outcome
from fleetcast.models.plan.crossing import FIRST, NEAR_SHARE, STEP, Tried, next_point
from fleetcast.models.replay.inputs import Fleet, Rules, Trace
from fleetcast.models.replay.run import Drive, replay
from fleetcast.models.traffic.arrivals import multiplied
from fleetcast.models.world.calendar import DAY_S

KNOWN = ("requests", "tiers", "ingests", "silences", "demand", "forecasts", "day_ahead_forecasts")
JUDGED, TUNED = "judged", "tuned"  # what a trial is for
ALL = "all"  # tiers, or llms, together
NOTHING: Mapping[str, Any] = {}


class Variant(NamedTuple):
    """What differs in a trial."""

    name: str
    settings: Settings  # as its replay sees them, over the lake that has the day
    day: date
    policy: str
    knobs: Mapping[str, float] = NOTHING
    labels: Mapping[str, str] = NOTHING
    resample: int = 0  # of the day's requests; 0: as they came
    draw: int = 0  # of the latencies; 0: the profiles as they are
    purpose: str = JUDGED

    def rows(self, figures: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Rows of trials; of each figure metric and value, and its tier and llm where it is not of all."""
        own = {name: getattr(self, name) for name in ("policy", "purpose", "resample", "draw")}
        own |= {"variant": self.name, "knobs": [*self.knobs.items()], "labels": [*self.labels.items()]}
        told = [
            {**own, "tier": ALL, "llm": ALL, **one, "value": float(one["value"])}
            for one in figures
            if one["value"] is not None
        ]
        return pa.Table.from_pylist(told, SCHEMAS["trials"])


class Trial(NamedTuple):
    """A variant with what its replay is given."""

    variant: Variant
    fleet: Fleet
    rules: Rules
    drive: Drive
    demand_factor: float = 1.0  # requests for each one of the day
    figures: Mapping[str, float] = NOTHING  # of its plan, told beside those of the replay


def share(source: Lake, target: Lake, tables: Iterable[str], **partition: str) -> None:
    """Let a lake have the files of another one, without a copy where the disk can."""
    for table in tables:
        for file in source.files(table, **partition):
            there = target.root / source.below(file)
            if not there.exists():
                store.share(file, there)


@contextmanager
def scratch_lake(
    settings: Settings, source: Lake | None = None, tables: Iterable[str] = ()
) -> Iterator[Settings]:
    """The settings over a temporary lake that has these tables of another one."""
    with settings.lake.scratch() as folder:
        own = replace(settings, lake=Lake(folder))
        if source is not None:
            share(source, own.lake, tables)
        yield own


def play(trial: Trial, workload: Workload | None = None, step: Step | None = None) -> pa.Table:
    """Replay a trial in a lake that is gone afterwards; its rows of trials.

    `workload` are the day's requests as the variant's settings read them; None: they are read.
    """
    variant, settings = trial.variant, trial.variant.settings
    came = multiplied_workload(
        settings, variant.day, workload or read_workload(settings, variant.day), trial.demand_factor
    )
    asked = in_legs(settings, variant.day, came)
    with scratch_lake(settings) as own:
        outcome = replay(asked.trace, trial.fleet, trial.drive, trial.rules, DAY_S, step)
        write_outcome(own, variant.day, variant.policy, asked, (trial.fleet, trial.rules), outcome)
        found = measure(own.lake, variant.policy)
    plan = [{"metric": name, "value": value} for name, value in trial.figures.items()]
    return variant.rows([*found, *plan])


def play_all(
    trials: Iterable[Trial], count: int, workload: Workload, label: str, progress: Progress
) -> Iterator[pa.Table]:
    """The rows of each trial, in their order, as soon as they are known; one trial on each core."""
    stopped = Event()

    def step(_: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    with progress.bar(label, count) as done, ThreadPoolExecutor(cores()) as threads:
        try:
            played = threads.map(lambda trial: play(trial, workload, step), trials)
            for number, rows in enumerate(played, start=1):
                done(number)
                yield rows
        except BaseException:
            stopped.set()
            threads.shutdown(cancel_futures=True)
            raise


def measure(lake: Lake, policy: str, **of: Any) -> list[dict[str, Any]]:
    """What a policy cost and met in a lake, over all days or those `of` a trace, a day: a row a figure."""
    return lake.sql("staging/trial_figures.sql", policy=policy, **of).drop_columns("policy").to_pylist()


def write(settings: Settings, experiment: str, day: date, rows: pa.Table, file: str = "part") -> Place:
    """Write the trials of an experiment on a day, or one `file` of them; those that it had go."""
    return settings.lake.write("trials", rows, file, experiment=experiment, trace=settings.trace, day=day)


def multiplied_workload(settings: Settings, day: date, workload: Workload, factor: float) -> Workload:
    """The day's requests, `factor` of them for each one (fleetcast.models.traffic.arrivals.multiplied)."""
    if factor == 1.0:
        return workload
    once_us = np.rint(1e6 * workload.trace.arrival_s).astype(np.int64)
    arrived_us, row = multiplied(once_us, factor, day, settings.config.trace.seed)
    moved = pa.array(arrived_us - once_us[row]).cast(pa.duration("us"))
    table = workload.requests.take(pa.array(row))
    at = table.column_names.index("arrived_at")
    table = table.set_column(at, "arrived_at", pc.add(table["arrived_at"], moved))
    same = {name: getattr(workload.trace, name)[row] for name in (*Trace._fields[1:6], "level")}
    return Workload(table, workload.trace._replace(arrival_s=arrived_us / 1e6, **same))


class Search:
    """Where each of several planners attains what is asked of all, one knob each: in rounds, all at once."""

    def __init__(
        self,
        names: Iterable[str],
        target: float = 1.0,
        near_share: float = NEAR_SHARE,
        first: Mapping[str, float] = NOTHING,
        step: float = STEP,
    ) -> None:
        """`first`: where the knob of a planner begins, if not at FIRST; the rest as in `next_point`."""
        self.target, self.near_share, self.first, self.step = target, near_share, first, step
        self.tried: dict[str, list[Tried]] = {name: [] for name in names}

    def points(self, names: Iterable[str]) -> dict[str, float]:
        """The next value of the knob of each planner that is not found yet."""
        points = {
            name: next_point(
                self.tried[name], self.target, self.near_share, self.first.get(name, FIRST), self.step
            )
            for name in names
        }
        return {name: value for name, value in points.items() if value is not None}

    def run(self, names: Sequence[str], play: Callable[[Mapping[str, float]], Iterable[Tried]]) -> None:
        """Play rounds until each is found, or cannot be; `play` has a point of each, in their order."""
        while asked := self.points(names):
            for name, one in zip(asked, play(asked), strict=True):
                self.tried[name].append(one)

    def attaining(self, name: str) -> float | None:
        """The most that a planner's knob may be to attain what is asked; None where it never does."""
        return max((one.counted_on for one in self.tried[name] if one.attained >= self.target), default=None)
