"""What runs together."""

from typing import Any

import dagster as dg

from assets.lake.partitions import DAYS
from assets.on_demand import DAYS_AND_CASES, STUDIES
from assets.plans_on_demand import PLANS

IN_ONE_PROCESS = dg.in_process_executor  # a process per step would cost two seconds each
ASSETS = dg.AssetSelection.assets


def job(
    name: str,
    selection: dg.AssetSelection,
    description: str,
    partitions: dg.PartitionsDefinition | None = None,
) -> Any:  # Dagster does not export the type
    """A job of these assets, in one process."""
    return dg.define_asset_job(
        name, selection, partitions_def=partitions, executor_def=IN_ONE_PROCESS, description=description
    )


LAND = job("land", ASSETS("landing"), "Bring the trace files of data/landing into the lake.")
HISTORY = job(
    "history",
    ASSETS("requests", "demand"),
    "A day of requests and its demand: what later forecasts learn from.",
    DAYS,
)
NIGHTLY = job(
    "nightly",
    ASSETS("requests").downstream() - ASSETS(*(key for one in (*STUDIES, *PLANS) for key in one.keys)),
    "A day from its requests to the scoreboard and the figures.",
    DAYS,
)
CHARACTERISE = job(
    "characterise", ASSETS("characterisation"), "What the trace of the config is like, over all its days."
)
BACKTEST = job(
    "backtest",
    ASSETS("backtests"),
    "Every forecast method on a past day: minutes of fits, so never at night.",
    DAYS,
)
DECIDE = job(
    "decide",
    ASSETS("decisions"),
    "What each forecast is worth: the plans and replays of a day by each method.",
    DAYS,
)
WHATIF = job("whatif", ASSETS("whatifs"), "A planned day under one case of data/whatif.toml.", DAYS_AND_CASES)
ERROR = job(
    "error",
    ASSETS("error_draws"),
    "A replayed day on latencies that are off by the error of their profiles.",
    DAYS,
)
LEVELS = job(
    "levels",
    ASSETS("level_trials"),
    "An endpoint's busiest hours under levels of priority, by stack, headroom and load.",
    DAYS,
)
PLAN_AHEAD = job(
    "plan_ahead", ASSETS("day_ahead_plans"), "The fleet of the day after the last one with demand."
)
PLAN_ROLLING = job("plan_rolling", ASSETS("rolling_plans"), "The fleet of the next 48 hours, from now on.")
GRADE = job(
    "grade", ASSETS("shadow_runs"), "A day's advice against the fleet that ran: saved and missed.", DAYS
)
BUY = job("buy", ASSETS("commitments"), "Which GPUs to reserve, to buy on demand, to take from spot.")
GPUS = job("gpus", ASSETS("gpu_fleets"), "Which GPUs to rent for an llm, for the day after the last one.")
QUALITY = job(
    "plan_quality",
    ASSETS("quality_plans"),
    "Which llm answers what on which GPUs; of a config with [quality].",
)
JOBS = [LAND, HISTORY, NIGHTLY, CHARACTERISE, BACKTEST, DECIDE, WHATIF, ERROR]
JOBS += [LEVELS, PLAN_AHEAD, PLAN_ROLLING, GRADE, BUY, GPUS, QUALITY]
