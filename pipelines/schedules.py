"""When the nightly job runs by itself."""

import dagster as dg

from assets.pages.telling import SettingsResource
from models.world.catalogue import load_catalogue
from models.world.loading import load_config
from pipelines.jobs import NIGHTLY, PLAN_AHEAD


def which_config() -> str:
    """What runs by themselves read, as a sentence for their pages: one config, whose trace may have ended."""
    name = SettingsResource().config
    trace = load_config(name, load_catalogue()).trace
    return (
        f"It runs the config {name} alone, whose trace {trace.name} has the days {trace.first_day} to "
        f"{trace.replay_day}. Other configs, later days and the history that a day is forecast from are made "
        "by fleetcast nightly --config NAME --date DAY, from cron or a timer."
    )


NIGHT = dg.build_schedule_from_partitioned_job(
    NIGHTLY,
    hour_of_day=2,
    minute_of_hour=0,
    description=f"Every night at 02:00 UTC: the day before. Off until switched on. {which_config()}",
)
MORNING = dg.ScheduleDefinition(
    job=PLAN_AHEAD,
    cron_schedule="30 2 * * *",
    description=f"After the night: the plan of the day to come. Off until switched on. {which_config()}",
)
SCHEDULES = [NIGHT, MORNING]
