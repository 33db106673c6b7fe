"""When the nightly job runs by itself."""

import dagster as dg

from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.models.world.config import RunConfig
from fleetcast.pipelines.jobs import NIGHTLY_JOB, ON_DEMAND, SETTINGS


def deployed_config() -> RunConfig:
    """The one config that runs by themselves read."""
    return SettingsResource.deployed().load().config


def describe_deployed_config() -> str:
    """What runs by themselves read, as a sentence for their pages: one config, whose trace may have ended."""
    config = deployed_config()
    trace = config.trace
    return (
        f"It runs the config {config.file.stem} alone, whose trace {trace.name} has the days "
        f"{trace.first_day} to {trace.replay_day}. FLEETCAST_CONFIG names another, FLEETCAST_DEPLOYMENT "
        "several. The history that the first days are forecast from is made by the job history, or by "
        "fleetcast nightly --date DAY."
    )


def cron_line(every_minutes: int) -> str:
    """The cron line of every so many minutes of an hour, or hours of a day."""
    if every_minutes < 60:
        return f"*/{every_minutes} * * * *"
    return "0 * * * *" if every_minutes == 60 else f"0 */{every_minutes // 60} * * *"


NIGHTLY_SCHEDULE = dg.build_schedule_from_partitioned_job(
    NIGHTLY_JOB,
    hour_of_day=2,
    minute_of_hour=0,
    description=f"Every night at 02:00 UTC: the day before. Off until switched on. "
    f"{describe_deployed_config()}",
)
PLAN_AHEAD_SCHEDULE = dg.ScheduleDefinition(
    job=ON_DEMAND["plan_ahead"],
    cron_schedule="30 2 * * *",
    run_config=SETTINGS,
    description=f"After the night: the plan of the day to come. Off until switched on. "
    f"{describe_deployed_config()}",
)
ROLLING_SCHEDULE = dg.ScheduleDefinition(
    job=ON_DEMAND["plan_rolling"],
    run_config=SETTINGS,
    cron_schedule=cron_line(deployed_config().plan.rolling.every_minutes),
    description=(
        "Every [plan.rolling] every_minutes: the next 48 hours from now. Off until switched on. "
        f"{describe_deployed_config()}"
    ),
)
GRADE_SCHEDULE = dg.build_schedule_from_partitioned_job(
    ON_DEMAND["grade"],
    hour_of_day=3,
    minute_of_hour=0,
    description=(
        "Every night at 03:00 UTC: the advice of the day before against the fleet that ran, which "
        f"fleetcast plan ran has told. Off until switched on. {describe_deployed_config()}"
    ),
)
SCHEDULES = [NIGHTLY_SCHEDULE, PLAN_AHEAD_SCHEDULE, ROLLING_SCHEDULE, GRADE_SCHEDULE]
