"""Trials: other plans of a day, each replayed and scored like a policy in a lake that is thrown away."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd

from assets.drives import DAY_S, HOUR_S, setting
from assets.plans import Day
from assets.replays import Workload, read_workload, write_outcome
from assets.scorecards import SCOREBOARD, score_day
from assets.settings import Progress, Settings
from assets.warehouse import Lake
from models.replay.run import Drive, replay
from models.replay.state import Floats

TOLD = (
    *(
        "usd",
        "boot_usd",
        "gpu_hours",
        "iw_fast_attainment_share",
        "iw_normal_attainment_share",
        "niw_attainment_share",
    ),
    "missed_share",
)
POLICY = "corrected"  # its rule follows a plan at once, so that the plan is all that differs


class Trial(NamedTuple):
    """A plan of the day, under its own settings, from its own start."""

    name: str
    settings: Settings
    hours: Day
    start: Floats  # (llms, regions) instances that serve


def score(
    settings: Settings, day: date, trials: Iterable[Trial], count: int, progress: Progress
) -> pd.DataFrame:
    """Cost and attainment of each trial, by name."""
    workload = read_workload(settings, day)
    rows: list[pd.DataFrame] = []
    with progress.bar("plan and replay", count) as done:
        for trial in trials:
            with settings.lake.scratch() as folder:
                rows.append(_score(replace(trial.settings, lake=Lake(folder)), day, trial, workload))
            done(len(rows))
    return pd.concat(rows)


def _score(settings: Settings, day: date, trial: Trial, workload: Workload) -> pd.DataFrame:
    """One trial's row of the scoreboard, and in how many hours its plan was short."""
    targets = np.array([plan.instances.sum(axis=2) for _, plan in trial.hours])
    fleet, rules = setting(settings, POLICY)
    drive = Drive(targets, start=trial.start, hour_s=HOUR_S)
    outcome = replay(workload.trace, fleet, drive, rules, DAY_S)
    write_outcome(settings, day, trial.name, workload, outcome)
    score_day(settings, day)
    board = settings.lake.sql(SCOREBOARD, trace=settings.trace, day=day).to_pandas().set_index("policy")
    short = (plan.short_llm_tokens_per_s.any() for _, plan in trial.hours)
    return board[list(TOLD)].assign(short_hours=sum(map(int, short)))
