"""Dagster's definitions: every asset, check, job, schedule, sensor and resource of fleetcast."""

import dagster as dg

from fleetcast.assets.checks import ASSET_CHECKS
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lineage import ASSETS
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.plans_on_demand import PLANS_ON_DEMAND
from fleetcast.assets.studies_on_demand import STUDIES_ON_DEMAND
from fleetcast.pipelines.check_job import check
from fleetcast.pipelines.jobs import JOBS, RUN_EXECUTOR
from fleetcast.pipelines.schedules import SCHEDULES
from fleetcast.pipelines.sensors import SENSORS

RESOURCES = {"settings": SettingsResource.deployed(), "progress": Progress()}

defs = dg.Definitions(
    assets=[*ASSETS, *(row.asset() for row in (*STUDIES_ON_DEMAND, *PLANS_ON_DEMAND))],
    asset_checks=ASSET_CHECKS,
    jobs=[*JOBS, check],
    schedules=SCHEDULES,
    sensors=SENSORS,
    resources=RESOURCES,
    executor=RUN_EXECUTOR,
)
