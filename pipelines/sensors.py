"""What starts a run when something happens."""

import os
from pathlib import Path

import dagster as dg

from fleetcast.assets.lake.environment_variables import LANDS_VARIABLE
from fleetcast.assets.traces.ingest import LANDING_DIR, landed_files
from fleetcast.pipelines.jobs import LAND_JOB, SETTINGS


def newest_change_time(files: list[Path]) -> float:
    """When the newest file or mapping was changed or put there, seconds since 1970; 0 without files."""
    stats = [p.stat() for p in (*files, *LANDING_DIR.glob("*.toml"))]
    return max((max(s.st_mtime, s.st_ctime) for s in stats), default=0.0)  # a copy may keep its old mtime


@dg.sensor(
    job=LAND_JOB,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.STOPPED
    if os.environ.get(LANDS_VARIABLE) == "no"  # another location of the same lake does
    else dg.DefaultSensorStatus.RUNNING,
    description=(
        "Lands what is new in data/landing, whatever config its trace belongs to. It starts no night: "
        "the schedule and fleetcast nightly do."
    ),
)
def landing_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Land what is new in data/landing; the cursor is the time of the newest file that was seen."""
    files = landed_files()
    seen, now = float(context.cursor or 0.0), newest_change_time(files)
    if not files or now <= seen:
        return dg.SkipReason("Nothing new in data/landing.")
    request = dg.RunRequest(run_key=f"landing-{now:.6f}", run_config=SETTINGS)
    return dg.SensorResult(run_requests=[request], cursor=repr(now))


SENSORS = [landing_sensor]
