"""Trials: other plans of a day, each replayed and scored like a policy in a lake that is thrown away."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.lake.settings import HOURS, Progress, Settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.by_tier import attainment_of, tiers_on
from fleetcast.assets.plans.kinds import by_pool, of_llms
from fleetcast.assets.plans.plan_tables import Day
from fleetcast.assets.replays.drives import DAY_S, HOUR_S, measured, setting
from fleetcast.assets.replays.scorecards import score_day, scoreboard
from fleetcast.assets.replays.workloads import Workload, in_legs, read_workload
from fleetcast.assets.replays.writing import write_outcome
from fleetcast.models.replay.inputs import Floats, Trace
from fleetcast.models.replay.run import Drive, replay
from fleetcast.models.traffic.arrivals import multiplied

TOLD = ("usd", "boot_usd", "gpu_hours", "missed_share")  # and the attainment of each tier
DEAREST_HOUR = """
select max(usd) as usd from (select sum(usd) as usd from fleet_by_hour group by hour_start)
"""
FOLLOWS = "lt_i"  # its rule follows a plan at once, so that the plan is all that differs


class Trial(NamedTuple):
    """A plan of the day, under its own settings, from its own start."""

    name: str
    settings: Settings
    hours: Day
    start: Floats  # (pools,) instances that serve
    demand_factor: float = 1.0  # requests for each one of the day
    policy: str = FOLLOWS
    sustained: Floats | None = (
        None  # (services, options) tokens/s of an instance; else what the plan counts on
    )


def score(
    settings: Settings, day: date, trials: Iterable[Trial], count: int, progress: Progress
) -> pd.DataFrame:
    """Cost and attainment of each trial, by name."""
    return pd.concat(scores(settings, day, trials, count, progress))


def scores(
    settings: Settings, day: date, trials: Iterable[Trial], count: int, progress: Progress
) -> Iterator[pd.DataFrame]:
    """Cost and attainment of one trial after the other, a row each, as soon as it has been replayed."""
    workload = read_workload(settings, day)
    with progress.bar("plan and replay", count) as done:
        for number, trial in enumerate(trials, start=1):
            with settings.lake.scratch() as folder:
                own = replace(trial.settings, lake=Lake(folder))
                asked = multiplied_workload(own, day, workload, trial.demand_factor)
                row = _score(own, day, trial, in_legs(own, day, asked))
            done(number)
            yield row


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


def _score(settings: Settings, day: date, trial: Trial, workload: Workload) -> pd.DataFrame:
    """One trial's row of the scoreboard, its dearest hour, and what its plan could not carry."""
    fleet, rules = setting(settings, trial.policy)
    theta = trial.hours[0][0].tokens_per_s if trial.sustained is None else trial.sustained
    of_cells = np.repeat(theta[:, None], len(settings.catalogue.regions), axis=1)
    fleet = measured(settings.under(trial.policy), fleet, of_cells)
    drive = Drive(start=trial.start, hour_s=HOUR_S)
    if settings.config.rules[trial.policy].plan is not None:
        targets = by_pool(settings, np.array([plan.instances for _, plan in trial.hours]))
        load = np.array([problem.demand_tokens_per_s.max(axis=2) for problem, _ in trial.hours])
        slots = len(trial.hours) // HOURS
        drive = Drive(targets, of_llms(settings, load, axis=1), trial.start, HOUR_S, slots)
        # A plan may go below the minimum (a budget, a region that is full): the replay follows it there.
        fewest = np.minimum(fleet.min_instances, targets.min(axis=0))
        fleet = fleet._replace(min_instances=fewest.astype(np.int64))
    outcome = replay(workload.trace, fleet, drive, rules, DAY_S)
    write_outcome(settings, day, trial.name, workload, (fleet, rules), outcome)
    score_day(settings, day)
    table = scoreboard(settings, day)
    columns = [*TOLD, *map(attainment_of, tiers_on(table))]
    board = table.to_pandas().set_index("policy")
    dearest = settings.lake.sql(DEAREST_HOUR)["usd"][0].as_py()
    told = {"dearest_hour_usd": dearest, **shortage(trial.hours)}
    return board[columns].assign(**told)


def shortage(hours: Day) -> dict[str, float]:
    """What the corrected plan of a day could not carry, worst first.

    short_hours          hours in which some of an llm's load is served nowhere
    remote_share         of the demand, served elsewhere beyond what epsilon allows
    buffer_short_share   of the buffer for what may be held, given up
    below_minimum_hours  hours in which an endpoint holds fewer instances than its minimum
    """
    demand = sum(float(problem.demand_tokens_per_s.sum()) for problem, _ in hours)
    buffer = sum(float(problem.buffer_tokens_per_s.sum()) * problem.windows for problem, _ in hours)
    flows = [plan.windows for _, plan in hours if plan.windows is not None]
    remote, given_up = (
        sum(float(getattr(of_hour, name).sum()) for of_hour in flows) for name in ("remote", "buffer_short")
    )
    return {
        "short_hours": sum(bool(plan.short_llm_tokens_per_s.any()) for _, plan in hours),
        "remote_share": remote / demand if demand else 0.0,
        "buffer_short_share": given_up / buffer if buffer else 0.0,
        "below_minimum_hours": sum(bool(plan.missing_instances.any()) for _, plan in hours),
    }
