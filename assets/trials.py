"""Trials: other plans of a day, each replayed and scored like a policy in a lake that is thrown away."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd

from assets.drives import DAY_S, HOUR_S, setting
from assets.plans import Day, plan_table
from assets.replays import read_workload, write_outcome
from assets.scorecards import SCOREBOARD, score_day
from assets.settings import Progress, Settings
from assets.warehouse import Lake
from models.replay.run import Drive, replay
from models.replay.state import Floats

TOLD = (
    *("usd", "gpu_hours", "iw_fast_attainment_share", "iw_normal_attainment_share", "niw_attainment_share"),
    "missed_share",
)


class Trial(NamedTuple):
    """A plan of the day, under its own settings, from its own start."""

    name: str
    settings: Settings
    hours: Day
    start: Floats  # (llms, regions) instances that serve


def score(
    settings: Settings, day: date, trials: Iterable[Trial], count: int, policy: str, progress: Progress
) -> pd.DataFrame:
    """Cost and attainment of each trial, by name: `policy` says whose scaling rule follows the plan."""
    workload, names = read_workload(settings, day), []
    with settings.lake.scratch() as folder, progress.bar("plan and replay", count) as done:
        lake = Lake(folder)
        plans = {}
        for trial in trials:
            own = replace(trial.settings, lake=lake)
            targets = np.array([plan.instances.sum(axis=2) for _, plan in trial.hours])
            forecast = np.array([problem.demand_tokens_per_s.max(axis=2) for problem, _ in trial.hours])
            fleet, rules = setting(own, policy)
            drive = Drive(targets, forecast, trial.start, HOUR_S)
            write_outcome(own, day, trial.name, workload, replay(workload.trace, fleet, drive, rules, DAY_S))
            plans[trial.name] = trial.hours
            names.append(trial.name)
            done(len(names))
        there = replace(settings, lake=lake)
        lake.write("plans", plan_table(day, plans), trace=settings.trace, day=day)
        score_day(there, day)
        board = lake.sql(SCOREBOARD, trace=settings.trace, day=day).to_pandas().set_index("policy")
        short = lake.sql(
            "select policy, count(distinct hour_start) filter (short_llm_tokens_per_s > 0) as short_hours "
            "from plans group by policy"
        ).to_pandas()
    return board[list(TOLD)].join(short.set_index("policy")).loc[names]
