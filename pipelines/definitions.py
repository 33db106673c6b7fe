"""The one screen: every asset, check, job, schedule, sensor and resource of fleetcast."""

import dagster as dg

from fleetcast.assets.checks import ASSET_CHECKS
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lineage import ASSETS
from fleetcast.assets.on_demand import STUDIES
from fleetcast.assets.pages.telling import SettingsResource
from fleetcast.assets.plans_on_demand import PLANS
from fleetcast.pipelines.jobs import EXECUTOR, JOBS
from fleetcast.pipelines.schedules import SCHEDULES
from fleetcast.pipelines.sensors import SENSORS

RESOURCES = {"settings": SettingsResource.deployed(), "progress": Progress()}

defs = dg.Definitions(
    assets=[*ASSETS, *(row.asset() for row in (*STUDIES, *PLANS))],
    asset_checks=ASSET_CHECKS,
    jobs=JOBS,
    schedules=SCHEDULES,
    sensors=SENSORS,
    resources=RESOURCES,
    executor=EXECUTOR,
)
