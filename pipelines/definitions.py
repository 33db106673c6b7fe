"""The one screen: every asset, check, job, schedule, sensor and resource of fleetcast."""

import dagster as dg

from assets.checks import ASSET_CHECKS
from assets.lake.settings import Progress
from assets.lineage import ASSETS
from assets.on_demand import STUDIES
from assets.pages.telling import SettingsResource
from assets.plans_on_demand import PLANS
from pipelines.jobs import EXECUTOR, JOBS
from pipelines.schedules import SCHEDULES
from pipelines.sensors import SENSORS

RESOURCES = {"settings": SettingsResource.deployed(), "progress": Progress()}

defs = dg.Definitions(
    assets=[*ASSETS, *STUDIES, *PLANS],
    asset_checks=ASSET_CHECKS,
    jobs=JOBS,
    schedules=SCHEDULES,
    sensors=SENSORS,
    resources=RESOURCES,
    executor=EXECUTOR,
)
