"""Running Dagster jobs inside this process, quietly, on the embedded instance."""

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
from fleetcast.pipelines.definitions import defs

RANGE = "dagster/asset_partition_range_{}"
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class RunFailed(ValueError):
    """A run that stopped; the message is what a person needs to know of it."""


class RunResult(NamedTuple):
    """A run that came to its end, and how its checks went."""

    result: dg.ExecuteInProcessResult
    checks: int
    broken: list[str]
    alarms: list[str]  # checks that only warn


def set_dagster_home() -> None:
    """Let Dagster keep its records beside the lake's folder, unless DAGSTER_HOME says otherwise."""
    os.environ.setdefault("DAGSTER_HOME", str(HOME))
    if not (said := HOME / "dagster.yaml").is_file():  # installed from a wheel
        shutil.copyfile(ROOT / "dagster.yaml", said)
    os.chdir(HOME)  # the paths in dagster.yaml are relative


def run_job(
    name: str,
    settings: SettingsResource,
    day: date | None,
    progress: Progress,
    until: date | None = None,
) -> RunResult:
    """Run a job in this process, of a day or of all days `until` another.

    RunFailed says in a line what stopped it, KeyboardInterrupt that you did.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with dg.DagsterInstance.get() as instance:
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
    why = "" if result.success or broken else _why(result)
    if why:
        raise RunFailed(why)
    return RunResult(result, len(checks), broken, alarms)


def unmaterialized_days(asset: str, days: Iterable[date]) -> list[date]:
    """The days of which Dagster has never been told: a run that was killed tells nothing of what it made."""
    with dg.DagsterInstance.get() as instance:
        told = instance.get_materialized_partitions(build_asset_key(asset))
    return [day for day in days if day.isoformat() not in told]


def report_materializations(asset: str, said: Mapping[str | None, Mapping[str, Any]]) -> None:
    """Tell Dagster of work done outside a run, by partition: its pages show it like that of a run."""
    set_dagster_home()
    with dg.DagsterInstance.get() as instance:
        for partition, metadata in said.items():
            event = dg.AssetMaterialization(build_asset_key(asset), partition=partition, metadata=metadata)
            instance.report_runless_asset_event(event)


def publish_on_demand(row: OnDemandAsset, settings: RunSettings, *made: AssetRows) -> None:
    """Publish what was made of an asset on demand from the command line, and tell Dagster of it."""
    settings.lake.publish()
    report_materializations(row.name, {row.partition(one.of): row.metadata(settings, one) for one in made})


def _why(result: dg.ExecuteInProcessResult) -> str:
    """The first failure of a run, in the words of whoever raised it."""
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
    return f"The run {result.run_id} failed before its first step; its page in the UI says why."
