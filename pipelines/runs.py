"""Run Dagster jobs in this process, without Dagster's log, on the embedded instance."""

import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, NamedTuple

import dagster as dg

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.pages.asset_metadata import SettingsResource, build_asset_key
from fleetcast.assets.pages.on_demand_asset import AssetRows, OnDemandAsset
from fleetcast.models.world.project_paths import HOME, ROOT
from fleetcast.pipelines import shutdown
from fleetcast.pipelines.dagster_databases import open_dagster_instance
from fleetcast.pipelines.definitions import defs

RANGE = "dagster/asset_partition_range_{}"
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class RunFailed(ValueError):
    """A run failed; the message is the reason for the user."""


class RunResult(NamedTuple):
    """A finished run: the number of its checks, the names of those that failed, of those that only warn."""

    result: dg.ExecuteInProcessResult
    checks: int
    broken: list[str]
    alarms: list[str]


def set_dagster_home() -> None:
    """Set DAGSTER_HOME, unless it is set, to fleetcast's home; copy dagster.yaml there if it is missing."""
    if not HOME.is_dir():
        raise RunFailed(f"FLEETCAST_HOME is {HOME}, which is no folder. Make it: mkdir -p {HOME}")
    os.environ.setdefault("DAGSTER_HOME", str(HOME))
    if not (config := HOME / "dagster.yaml").is_file():  # fleetcast is installed from a wheel
        shutil.copyfile(ROOT / "dagster.yaml", config)
    os.chdir(HOME)  # the paths in dagster.yaml are relative


def run_job(
    name: str, settings: SettingsResource, day: date | None, progress: Progress, until: date | None = None
) -> RunResult:
    """Run a job in this process, on one day or on all days from `day` to `until`.

    Raises RunFailed with the reason in one line, or KeyboardInterrupt if a signal stopped the run.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with open_dagster_instance() as instance:
        result = defs.resolve_job_def(name).execute_in_process(
            instance=instance,
            partition_key=day.isoformat() if day and not until else None,
            tags={RANGE.format("start"): str(day), RANGE.format("end"): str(until)} if until else None,
            resources={"settings": settings, "progress": progress},
            run_config=QUIET,
            raise_on_error=False,
        )
    shutdown.raise_if_signalled()  # the run may have swallowed it
    checks = result.get_asset_check_evaluations()
    failed = [(f"{c.asset_key.to_user_string()}: {c.check_name}", c.severity) for c in checks if not c.passed]
    broken = [name for name, severity in failed if severity is dg.AssetCheckSeverity.ERROR]
    alarms = [name for name, severity in failed if severity is dg.AssetCheckSeverity.WARN]
    if not result.success and not broken:
        raise RunFailed(_failure_reason(result))
    return RunResult(result, len(checks), broken, alarms)


def unmaterialized_days(asset: str, days: Iterable[date]) -> list[date]:
    """Return the days without a materialization in Dagster: a run that was killed reports nothing."""
    with open_dagster_instance() as instance:
        materialized = instance.get_materialized_partitions(build_asset_key(asset))
    return [day for day in days if day.isoformat() not in materialized]


def report_materializations(
    asset: str, metadata_by_partition: Mapping[str | None, Mapping[str, Any]]
) -> None:
    """Report work outside of a run to Dagster, by partition; its pages show it like that of a run."""
    set_dagster_home()
    with open_dagster_instance() as instance:
        for partition, metadata in metadata_by_partition.items():
            event = dg.AssetMaterialization(build_asset_key(asset), partition=partition, metadata=metadata)
            instance.report_runless_asset_event(event)


def publish_on_demand(row: OnDemandAsset, settings: RunSettings, *made: AssetRows) -> None:
    """Publish the lake, and report the rows of an asset that a command has made to Dagster."""
    settings.lake.publish()
    report_materializations(row.name, {row.partition(one.of): row.metadata(settings, one) for one in made})


def _failure_reason(result: dg.ExecuteInProcessResult) -> str:
    """Return the message of the first failure of a run."""
    for event in result.all_events:
        if event.is_step_failure:
            failure = event.step_failure_data
            if failure.user_failure_data and failure.user_failure_data.description:
                return failure.user_failure_data.description
            error = failure.error
            while error and error.cause:
                error = error.cause
            if error:
                return f"{event.step_key}: {error.message.strip()}"
    return f"The run {result.run_id} failed before its first step; its page in the UI has the reason."
