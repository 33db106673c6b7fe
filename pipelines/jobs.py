"""Dagster's jobs."""

from typing import Any

import dagster as dg

from fleetcast.assets.lake.partitions import DAY_PARTITIONS
from fleetcast.assets.pages.asset_metadata import SettingsResource, build_asset_key
from fleetcast.assets.plans_on_demand import PLANS_ON_DEMAND
from fleetcast.assets.studies_on_demand import STUDIES_ON_DEMAND
from fleetcast.pipelines.executors import build_executor

RUN_EXECUTOR = build_executor()


def run_settings() -> dict[str, Any]:
    """Return the run config: for a custom config its text, so that no other machine needs its file."""
    settings = SettingsResource.deployed()
    values = {"config": settings.config, "text": settings.text, "lake": settings.lake}
    return {"resources": {"settings": {"config": values}}} if settings.text else {}


SETTINGS = run_settings()


def select_assets(*names: str) -> dg.AssetSelection:
    """Return the selection of the assets with these names."""
    return dg.AssetSelection.assets(*map(build_asset_key, names))


def define_job(
    name: str,
    selection: dg.AssetSelection,
    description: str,
    partitions: dg.PartitionsDefinition | None = None,
    needs_config: bool = False,
) -> Any:  # Dagster does not export the type
    """Return a job of these assets.

    A job with `needs_config` gets no default run config: the user gives one in the launchpad.
    """
    return dg.define_asset_job(
        name,
        selection,
        partitions_def=partitions,
        executor_def=RUN_EXECUTOR,
        config=None if needs_config else SETTINGS or None,
        description=description,
    )


LAND_JOB = define_job(
    "land", select_assets("landing"), "Import the trace files of data/landing into the lake."
)
HISTORY_JOB = define_job(
    "history",
    select_assets("requests", "demand"),
    "A day of requests and its demand: the history that later forecasts use.",
    DAY_PARTITIONS,
)
NIGHTLY_JOB = define_job(
    "nightly",
    select_assets("requests").downstream()
    - select_assets(*(row.name for row in (*STUDIES_ON_DEMAND, *PLANS_ON_DEMAND))),
    "A day from its requests to the scoreboard and the figures.",
    DAY_PARTITIONS,
)
ON_DEMAND = {
    row.job: define_job(
        row.job, select_assets(row.name), row.job_description, row.partitions, row.needs_config
    )
    for row in (*STUDIES_ON_DEMAND, *PLANS_ON_DEMAND)
}
JOBS = [LAND_JOB, HISTORY_JOB, NIGHTLY_JOB, *ON_DEMAND.values()]
