"""The fleet that really ran: replicas of each workload over time, as instances by hour.

A CSV file has the columns at, region, workload and replicas; a JSON file is the saved answer of Prometheus to
a range query, like `kube_deployment_status_replicas_ready`, whose series have the labels region and
deployment (or workload). Workloads are called as `plan export` calls them. An hour counts the mean of its
samples, whoever scraped them.
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
    """So many ready replicas at an instant."""

    at: datetime
    region: str
    workload: str
    replicas: float


def import_observed_fleet(settings: RunSettings, path: Path) -> dict[date, int]:
    """Write what a file says into ran_fleets, in the place of what was there of its days; hours by day.

    ValueError names the first entry that means nothing, or a workload that the config does not run.
    """
    return write_observed_fleet(
        settings, (_read_prometheus_samples if path.suffix == ".json" else _read_csv_samples)(path), path.name
    )


def write_observed_fleet(
    settings: RunSettings, samples: Iterable[ReplicaSample], source: str
) -> dict[date, int]:
    """As `land_ran`, whoever tells the samples."""
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
        told = dict(zip(("llm", "role", "gpu", "gpus_per_instance"), kind.label, strict=True))
        mean = {"instances": sum(replicas) / len(replicas), "samples": len(replicas)}
        rows[hour.date()].append({"hour_start": hour, "region": region, **told, **mean})
    for day, of_day in rows.items():
        table = pa.Table.from_pylist(of_day, schema=SCHEMAS["ran_fleets"])
        settings.lake.write("ran_fleets", table, trace=settings.trace, day=day)
    return {day: len({row["hour_start"] for row in of_day}) for day, of_day in rows.items()}


def known_workloads(grid: Grid) -> dict[str, ServiceOption]:
    """The kinds that the config deploys, by the names of their workloads."""
    own = grid.service_options
    return dict(
        zip(workload_names([(k.llm, k.option.gpu, k.option.gpus, k.role) for k in own]), own, strict=True)
    )


def _read_csv_samples(path: Path) -> Iterator[ReplicaSample]:
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        if lacking := [name for name in OBSERVED_FLEET_COLUMNS if name not in (lines.fieldnames or ())]:
            raise ValueError(
                f"{path.name} lacks the column {', '.join(lacking)}; needed "
                f"{', '.join(OBSERVED_FLEET_COLUMNS)}. "
                "A saved answer of Prometheus ends in .json."
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
        answer = json.loads(path.read_text(encoding="utf-8"))
        for series in answer["data"]["result"]:
            labels = series["metric"]
            workload = labels.get("workload") or labels["deployment"]
            for seconds, replicas in series["values"]:
                yield ReplicaSample(
                    datetime.fromtimestamp(float(seconds), UTC), labels["region"], workload, float(replicas)
                )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{path.name} is no answer of Prometheus to a range query whose series have the labels region "
            f"and deployment ({type(error).__name__}: {error})."
        ) from error


def _utc(at: datetime) -> datetime:
    """An instant in UTC, where it names no zone too."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
