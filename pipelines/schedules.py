"""The schedules of the nightly job and of the plans."""

from typing import Any

import dagster as dg

from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.pipelines.check_job import check
from fleetcast.pipelines.jobs import NIGHTLY_JOB, ON_DEMAND, SETTINGS

SCHEDULED_CONFIG = SettingsResource.deployed().load().config  # of scheduled runs


def describe_scheduled_config() -> str:
    """Return how the description of every schedule ends, on its page in Dagster."""
    trace = SCHEDULED_CONFIG.trace
    return (
        f"Off until switched on. It runs the config {SCHEDULED_CONFIG.file.stem} only. Its trace "
        f"{trace.name} has the days {trace.first_day} to {trace.replay_day}. Set FLEETCAST_CONFIG for "
        "another config, FLEETCAST_DEPLOYMENT for several. The job history, or fleetcast nightly --date DAY, "
        "makes the history that the first forecasts need."
    )


def cron_line(every_minutes: int) -> str:
    """Return the cron line for a period in minutes, which divides an hour or is whole hours."""
    if every_minutes < 60:
        return f"*/{every_minutes} * * * *"
    return "0 * * * *" if every_minutes == 60 else f"0 */{every_minutes // 60} * * *"


def schedule_day_before(job: Any, hour: int, minute: int, what: str) -> Any:
    """Return the schedule of a job that runs a day: every night at this time, UTC, the day before."""
    return dg.build_schedule_from_partitioned_job(
        job,
        hour_of_day=hour,
        minute_of_hour=minute,
        description=f"Every night at {hour:02}:{minute:02} UTC: {what} {describe_scheduled_config()}",
    )


def schedule_job(job: Any, cron_schedule: str, what: str) -> dg.ScheduleDefinition:
    """Return the schedule of a job without partitions."""
    return dg.ScheduleDefinition(
        job=job,
        cron_schedule=cron_schedule,
        run_config=SETTINGS,
        description=f"{what} {describe_scheduled_config()}",
    )


SCHEDULES = [
    schedule_day_before(NIGHTLY_JOB, 2, 0, "run the day before."),
    schedule_job(ON_DEMAND["plan_ahead"], "30 2 * * *", "After the nightly run: the plan of the next day."),
    schedule_job(
        ON_DEMAND["promise"],
        "45 2 * * *",
        "After the plan of the next day: what it is promised to attain and to cost. The next nightly run "
        "grades the promise.",
    ),
    schedule_job(
        ON_DEMAND["plan_rolling"],
        cron_line(SCHEDULED_CONFIG.plan.rolling.every_minutes),
        "Every [plan.rolling] every_minutes: plan the next 48 hours.",
    ),
    schedule_day_before(
        ON_DEMAND["grade"],
        *(3, 0),
        "compare the plan of the day before with the fleet that ran, which fleetcast plan ran imports.",
    ),
    schedule_day_before(
        ON_DEMAND["witness"],
        *(3, 30),
        "compare the latencies that engines measured on the day before with its replay on the fleet that "
        "ran.",
    ),
    schedule_job(
        check,
        "0 4 * * *",
        "Every night at 04:00 UTC: verify every file of the lake. A run that fails names the damaged ones.",
    ),
]
