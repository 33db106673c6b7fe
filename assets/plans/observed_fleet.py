"""Import the fleet that ran: replicas of each workload over time, as instances by hour.

A CSV file has the columns at, region, workload and replicas. A JSON file is a saved Prometheus response to
a range query, like `kube_deployment_status_replicas_ready`, whose series have the labels region and
deployment (or workload). Workloads have the names that `plan export` gives them. The value of an hour is the
mean of all its samples.
"""

import csv
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.cluster_workloads import workload_names
from fleetcast.models.world.plan_grid import Grid, ServiceOption
from fleetcast.models.world.toml_dataclasses import require_known

OBSERVED_FLEET_COLUMNS = ("at", "region", "workload", "replicas")


class ReplicaSample(NamedTuple):
    """The number of ready replicas of a workload at an instant."""

    at: datetime
    region: str
    workload: str
    replicas: float


def import_observed_fleet(settings: RunSettings, path: Path) -> dict[date, int]:
    """Write the samples of a file to ran_fleets, and replace its days there; return the hours of each day.

    ValueError names the first invalid entry, or a workload that the config does not run.
    """
    return write_observed_fleet(
        settings, (_read_prometheus_samples if path.suffix == ".json" else _read_csv_samples)(path), path.name
    )


def write_observed_fleet(
    settings: RunSettings, samples: Iterable[ReplicaSample], source: str
) -> dict[date, int]:
    """Write samples to ran_fleets, and replace their days there; return the hours of each day.

    `source` names the samples' origin in messages. ValueError names the first invalid sample.
    """
    known, found = known_workloads(settings.grid), defaultdict[tuple[Any, ...], list[float]](list)
    for n, sample in enumerate(samples, start=1):
        place = f"{source}, entry {n}"
        require_known(sample.region, list(settings.catalogue.regions), "region", place)
        require_known(sample.workload, list(known), "workload", place)
        if not (math.isfinite(sample.replicas) and sample.replicas >= 0):
            raise ValueError(f"{place}: replicas are {sample.replicas}, needed a number from 0.")
        hour = sample.at.replace(minute=0, second=0, microsecond=0)
        found[hour, sample.region, sample.workload].append(sample.replicas)
    if not found:
        raise ValueError(f"{source} has no sample; needed {', '.join(OBSERVED_FLEET_COLUMNS)}.")
    rows = defaultdict[date, list[dict[str, Any]]](list)
    for (hour, region, workload), replicas in sorted(found.items()):
        kind = known[workload]
        labels = dict(zip(("llm", "role", "gpu", "gpus_per_instance"), kind.label, strict=True))
        mean = {"instances": sum(replicas) / len(replicas), "samples": len(replicas)}
        rows[hour.date()].append({"hour_start": hour, "served_region": region, **labels, **mean})
    for day, day_rows in rows.items():
        table = pa.Table.from_pylist(day_rows, schema=SCHEMAS["ran_fleets"])
        settings.lake.write("ran_fleets", table, trace=settings.trace, day=day)
    return {day: len({row["hour_start"] for row in day_rows}) for day, day_rows in rows.items()}


def known_workloads(grid: Grid) -> dict[str, ServiceOption]:
    """Return the service options that the config deploys, by the names of their workloads."""
    kinds = grid.service_options
    names = workload_names([(kind.llm, kind.option.gpu, kind.option.gpus, kind.role) for kind in kinds])
    return dict(zip(names, kinds, strict=True))


def _read_csv_samples(path: Path) -> Iterator[ReplicaSample]:
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        if missing := [name for name in OBSERVED_FLEET_COLUMNS if name not in (lines.fieldnames or ())]:
            raise ValueError(
                f"{path.name} lacks the column {', '.join(missing)}; needed "
                f"{', '.join(OBSERVED_FLEET_COLUMNS)}. "
                "The name of a saved Prometheus response must end in .json."
            )
        for n, line in enumerate(lines, start=1):
            try:
                at = datetime.fromisoformat(line["at"])
                replicas = float(line["replicas"])
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"{path.name}, entry {n}: at {line['at']!r} and replicas {line['replicas']!r} must be an "
                    "instant like 2025-07-15T08:00 and a number."
                ) from error
            yield ReplicaSample(_utc(at), line["region"], line["workload"], replicas)


def _read_prometheus_samples(path: Path) -> Iterator[ReplicaSample]:
    try:
        response = json.loads(path.read_text(encoding="utf-8"))
        for series in response["data"]["result"]:
            labels = series["metric"]
            workload = labels.get("workload") or labels["deployment"]
            for seconds, replicas in series["values"]:
                yield ReplicaSample(
                    datetime.fromtimestamp(float(seconds), UTC), labels["region"], workload, float(replicas)
                )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{path.name} is no Prometheus response to a range query whose series have the labels region "
            f"and deployment ({type(error).__name__}: {error})."
        ) from error


def _utc(at: datetime) -> datetime:
    """Return an instant in UTC; one without a time zone is taken as UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
