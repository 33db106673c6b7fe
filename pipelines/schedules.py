"""When the nightly job runs by itself."""

import dagster as dg

from pipelines.jobs import NIGHTLY, PLAN_AHEAD

NIGHT = dg.build_schedule_from_partitioned_job(
    NIGHTLY,
    hour_of_day=2,
    minute_of_hour=0,
    description="Every night at 02:00 UTC: the day before, as far as the figures. Off until switched on.",
)
MORNING = dg.ScheduleDefinition(
    job=PLAN_AHEAD,
    cron_schedule="30 2 * * *",
    description="After the night: the plan of the day that has begun. Off until switched on.",
)
SCHEDULES = [NIGHT, MORNING]
