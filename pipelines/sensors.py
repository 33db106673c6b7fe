"""The sensor that starts the import of new trace files."""

import os
from pathlib import Path

import dagster as dg

from fleetcast.assets.lake.environment_variables import LANDS_VARIABLE
from fleetcast.assets.traces.ingest import LANDING_DIR, landed_files
from fleetcast.pipelines.jobs import LAND_JOB, SETTINGS


def newest_change_time(files: list[Path]) -> float:
    """Return when the newest trace or mapping file changed, seconds since 1970; 0 without files.

    It is the ctime, of this machine's clock: a copy may keep an mtime of years ago, or of the future.
    """
    return max((path.stat().st_ctime for path in (*files, *LANDING_DIR.glob("*.toml"))), default=0.0)


@dg.sensor(
    job=LAND_JOB,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.STOPPED
    if os.environ.get(LANDS_VARIABLE) == "no"  # another location of the same lake imports
    else dg.DefaultSensorStatus.RUNNING,
    description=(
        "Imports new files of data/landing, for all configs. It does not start the nightly run: "
        "the schedule and fleetcast nightly do."
    ),
)
def landing_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Import new files in data/landing; the cursor is the change time of the newest file so far."""
    files = landed_files()
    seen, now = float(context.cursor or 0.0), newest_change_time(files)
    if not files or now <= seen:
        return dg.SkipReason("Nothing new in data/landing.")
    request = dg.RunRequest(run_key=f"landing-{now:.6f}", run_config=SETTINGS)
    return dg.SensorResult(run_requests=[request], cursor=repr(now))


SENSORS = [landing_sensor]
