"""The schedules of the nightly job and of the plans."""

import dagster as dg

from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.models.world.config import RunConfig
from fleetcast.pipelines.check_job import check
from fleetcast.pipelines.jobs import NIGHTLY_JOB, ON_DEMAND, SETTINGS


def deployed_config() -> RunConfig:
    """Return the config that scheduled runs use."""
    return SettingsResource.deployed().load().config


def describe_deployed_config() -> str:
    """Describe the config of scheduled runs for their pages in Dagster."""
    config = deployed_config()
    trace = config.trace
    return (
        f"It runs the config {config.file.stem} only. Its trace {trace.name} has the days {trace.first_day} "
        f"to {trace.replay_day}. Set FLEETCAST_CONFIG for another config, FLEETCAST_DEPLOYMENT for several. "
        "The job history, or fleetcast nightly --date DAY, makes the history that the first forecasts need."
    )


def cron_line(every_minutes: int) -> str:
    """Return the cron line for a period in minutes, which divides an hour or is whole hours."""
    if every_minutes < 60:
        return f"*/{every_minutes} * * * *"
    return "0 * * * *" if every_minutes == 60 else f"0 */{every_minutes // 60} * * *"


NIGHTLY_SCHEDULE = dg.build_schedule_from_partitioned_job(
    NIGHTLY_JOB,
    hour_of_day=2,
    minute_of_hour=0,
    description=f"Every night at 02:00 UTC: run the day before. Off until switched on. "
    f"{describe_deployed_config()}",
)
PLAN_AHEAD_SCHEDULE = dg.ScheduleDefinition(
    job=ON_DEMAND["plan_ahead"],
    cron_schedule="30 2 * * *",
    run_config=SETTINGS,
    description=f"After the nightly run: the plan of the next day. Off until switched on. "
    f"{describe_deployed_config()}",
)
PROMISE_SCHEDULE = dg.ScheduleDefinition(
    job=ON_DEMAND["promise"],
    cron_schedule="45 2 * * *",
    run_config=SETTINGS,
    description=f"After the plan of the next day: what it is promised to attain and to cost. The next "
    f"nightly run grades the promise. Off until switched on. {describe_deployed_config()}",
)
ROLLING_SCHEDULE = dg.ScheduleDefinition(
    job=ON_DEMAND["plan_rolling"],
    run_config=SETTINGS,
    cron_schedule=cron_line(deployed_config().plan.rolling.every_minutes),
    description=(
        "Every [plan.rolling] every_minutes: plan the next 48 hours. Off until switched on. "
        f"{describe_deployed_config()}"
    ),
)
GRADE_SCHEDULE = dg.build_schedule_from_partitioned_job(
    ON_DEMAND["grade"],
    hour_of_day=3,
    minute_of_hour=0,
    description=(
        "Every night at 03:00 UTC: compare the plan of the day before with the fleet that ran, which "
        f"fleetcast plan ran imports. Off until switched on. {describe_deployed_config()}"
    ),
)
WITNESS_SCHEDULE = dg.build_schedule_from_partitioned_job(
    ON_DEMAND["witness"],
    hour_of_day=3,
    minute_of_hour=30,
    description=(
        "Every night at 03:30 UTC: compare the latencies that engines measured on the day before with its "
        f"replay on the fleet that ran. Off until switched on. {describe_deployed_config()}"
    ),
)
CHECK_SCHEDULE = dg.ScheduleDefinition(
    job=check,
    cron_schedule="0 4 * * *",
    description=(
        "Every night at 04:00 UTC: verify every file of the lake. A run that fails names the damaged ones. "
        f"Off until switched on. {describe_deployed_config()}"
    ),
)
SCHEDULES = [
    NIGHTLY_SCHEDULE,
    PLAN_AHEAD_SCHEDULE,
    PROMISE_SCHEDULE,
    ROLLING_SCHEDULE,
    GRADE_SCHEDULE,
    WITNESS_SCHEDULE,
    CHECK_SCHEDULE,
]
