"""What runs together."""

from typing import Any

import dagster as dg

from fleetcast.assets.lake.partitions import DAYS
from fleetcast.assets.on_demand import STUDIES
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
    needs_config: bool = False,
) -> Any:  # Dagster does not export the type
    """A job of these assets; one that `needs_config` without a default brings no settings along."""
    return dg.define_asset_job(
        name,
        selection,
        partitions_def=partitions,
        executor_def=EXECUTOR,
        config=None if needs_config else SETTINGS or None,
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
    assets("requests").downstream() - assets(*(row.name for row in (*STUDIES, *PLANS))),
    "A day from its requests to the scoreboard and the figures.",
    DAYS,
)
ON_DEMAND = {
    row.job: job(row.job, assets(row.name), row.about, row.partitions, row.needs_config)
    for row in (*STUDIES, *PLANS)
}
JOBS = [LAND, HISTORY, NIGHTLY, *ON_DEMAND.values()]
