"""What runs together."""

import dagster as dg

from assets.partitions import DAYS

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
    - dg.AssetSelection.assets("backtests", "characterisation"),
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
JOBS = [LAND, HISTORY, CHARACTERISE, NIGHTLY, BACKTEST]
