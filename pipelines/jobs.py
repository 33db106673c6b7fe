"""What runs together."""

import dagster as dg

from assets.partitions import DAYS
from assets.studies import DAYS_AND_CASES, STUDIES

IN_ONE_PROCESS = dg.in_process_executor  # a process per step would cost two seconds each

LAND = dg.define_asset_job(
    "land",
    selection=dg.AssetSelection.assets("landing"),
    executor_def=IN_ONE_PROCESS,
    description="Bring the trace files of data/landing into the lake.",
)
HISTORY = dg.define_asset_job(
    "history",
    selection=dg.AssetSelection.assets("requests", "demand"),
    partitions_def=DAYS,
    executor_def=IN_ONE_PROCESS,
    description="A day of requests and its demand: what later forecasts learn from.",
)
CHARACTERISE = dg.define_asset_job(
    "characterise",
    selection=dg.AssetSelection.assets("characterisation"),
    executor_def=IN_ONE_PROCESS,
    description="What the trace of the config is like, over all its days.",
)
NIGHTLY = dg.define_asset_job(
    "nightly",
    selection=dg.AssetSelection.assets("requests").downstream()
    - dg.AssetSelection.assets(*(key for study in STUDIES for key in study.keys)),
    partitions_def=DAYS,
    executor_def=IN_ONE_PROCESS,
    description="A day from its requests to the scoreboard and the figures.",
)
BACKTEST = dg.define_asset_job(
    "backtest",
    selection=dg.AssetSelection.assets("backtests"),
    partitions_def=DAYS,
    executor_def=IN_ONE_PROCESS,
    description="Every forecast method on a past day: minutes of fits, so never at night.",
)
DECIDE = dg.define_asset_job(
    "decide",
    selection=dg.AssetSelection.assets("decisions"),
    partitions_def=DAYS,
    executor_def=IN_ONE_PROCESS,
    description="What each forecast is worth: thirty plans and replays of a day.",
)
WHATIF = dg.define_asset_job(
    "whatif",
    selection=dg.AssetSelection.assets("whatifs"),
    partitions_def=DAYS_AND_CASES,
    executor_def=IN_ONE_PROCESS,
    description="A planned day under one case of data/whatif.toml.",
)
JOBS = [LAND, HISTORY, NIGHTLY, CHARACTERISE, BACKTEST, DECIDE, WHATIF]
