"""The job that verifies every file of the lake; a nightly run verifies only what it reads."""

import dagster as dg

from fleetcast.assets.lake.damaged_files import check_lake_files
from fleetcast.assets.pages.asset_metadata import SettingsResource, user_errors_as_failures
from fleetcast.pipelines.jobs import SETTINGS


@dg.op
def check_files(context: dg.OpExecutionContext, settings: SettingsResource) -> None:
    """Verify each file; a damaged or missing one fails the run, with the command that makes it again."""
    with user_errors_as_failures():
        found = check_lake_files(settings.load().lake)
    context.log.info(f"{found.verified:,} files have a digest, {len(found.without_digest):,} have none.")
    if found.broken:
        raise dg.Failure(
            f"Damaged or missing files: {len(found.broken):,}. They are named below, and by: fleetcast check",
            metadata={"make again by": dg.MetadataValue.json(found.broken)},
            allow_retries=False,
        )


@dg.job(config=SETTINGS, description="Verify every file of the lake, as `fleetcast check` does.")
def check() -> None:
    """Verify the lake."""
    check_files()
