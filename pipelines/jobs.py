"""What runs together."""

from typing import Any

import dagster as dg

from fleetcast.assets.lake.partitions import DAYS
from fleetcast.assets.on_demand import DAYS_AND_CASES, STUDIES
from fleetcast.assets.pages.telling import SettingsResource, key_of
from fleetcast.assets.plans_on_demand import PLANS
from fleetcast.pipelines.executors import executor

EXECUTOR = executor()


def settings_of_a_run() -> dict[str, Any]:
    """What a run brings along: of a config of one's own the text, so that its file is needed nowhere else."""
    told = SettingsResource.deployed()
    said = {"config": told.config, "text": told.text, "lake": told.lake}
    return {"resources": {"settings": {"config": said}}} if told.text else {}


SETTINGS = settings_of_a_run()


def assets(*names: str) -> dg.AssetSelection:
    """The assets of these names."""
    return dg.AssetSelection.assets(*map(key_of, names))


def job(
    name: str,
    selection: dg.AssetSelection,
    description: str,
    partitions: dg.PartitionsDefinition | None = None,
    is_asked: bool = False,
) -> Any:  # Dagster does not export the type
    """A job of these assets; one that `is_asked` what has no default brings no settings along."""
    return dg.define_asset_job(
        name,
        selection,
        partitions_def=partitions,
        executor_def=EXECUTOR,
        config=None if is_asked else SETTINGS or None,
        description=description,
    )


LAND = job("land", assets("landing"), "Bring the trace files of data/landing into the lake.")
HISTORY = job(
    "history",
    assets("requests", "demand"),
    "A day of requests and its demand: what later forecasts learn from.",
    DAYS,
)
NIGHTLY = job(
    "nightly",
    assets("requests").downstream()
    - dg.AssetSelection.assets(*(key for one in (*STUDIES, *PLANS) for key in one.keys)),
    "A day from its requests to the scoreboard and the figures.",
    DAYS,
)
CHARACTERISE = job(
    "characterise", assets("characterisation"), "What the trace of the config is like, over all its days."
)
BACKTEST = job(
    "backtest",
    assets("backtests"),
    "Every forecast method on a past day: minutes of fits, so never at night.",
    DAYS,
)
DECIDE = job(
    "decide",
    assets("decisions"),
    "What each forecast is worth: the plans and replays of a day by each method.",
    DAYS,
)
BOARD = job(
    "board",
    assets("planner_trials"),
    "Every planner on a day, searched to the same attainment and quality.",
    DAYS,
)
WHATIF = job("whatif", assets("whatifs"), "A planned day under one case of data/whatif.toml.", DAYS_AND_CASES)
ERROR = job(
    "error",
    assets("error_draws"),
    "A replayed day on latencies that are off by the error of their profiles.",
    DAYS,
)
LEVELS = job(
    "levels",
    assets("level_trials"),
    "An endpoint's busiest hours under levels of priority, by stack, headroom and load.",
    DAYS,
)
PLAN_AHEAD = job(
    "plan_ahead", assets("day_ahead_plans"), "The fleet of the day after the last one with demand."
)
PLAN_ROLLING = job("plan_rolling", assets("rolling_plans"), "The fleet of the next 48 hours, from now on.")
GRADE = job(
    "grade", assets("shadow_runs"), "A day's advice against the fleet that ran: saved and missed.", DAYS
)
BUY = job(
    "buy",
    assets("commitments"),
    "Which GPUs to reserve, to buy on demand, to take from spot.",
    is_asked=True,
)
GPUS = job(
    "gpus",
    assets("gpu_fleets"),
    "Which GPUs to rent for an llm, for the day after the last one.",
    is_asked=True,
)
QUALITY = job(
    "plan_quality",
    assets("quality_plans"),
    "Which llm answers what on which GPUs; of a config with [quality].",
)
JOBS = [LAND, HISTORY, NIGHTLY, CHARACTERISE, BACKTEST, DECIDE, BOARD, WHATIF, ERROR]
JOBS += [LEVELS, PLAN_AHEAD, PLAN_ROLLING, GRADE, BUY, GPUS, QUALITY]
