"""Import the fleet that ran from a Prometheus server: ready replicas, or processes of the engines.

kube-state-metrics counts the ready replicas of Deployments and StatefulSets, which have the names that
`plan export` gives them. For an llm without any, each process that exports the engine's metrics counts as a
replica; an engine exports them once its weights are loaded. The trace's mapping file names the label of the
region, as for `ingest`.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from itertools import product
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.lake.settings import RunSettings, midnight
from fleetcast.assets.plans.observed_fleet import ReplicaSample, known_workloads, write_observed_fleet
from fleetcast.assets.traces.ingest import LANDING_DIR
from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.assets.traces.prometheus_answers import METRICS_SUFFIX
from fleetcast.assets.traces.prometheus_client import PrometheusClient
from fleetcast.assets.traces.prometheus_download import DOWNLOAD_DAY_S
from fleetcast.assets.traces.trace_mapping import TraceMapping, read_ingest_bounds, read_mapping
from fleetcast.models.world.catalogue_entries import BACKEND_TITLES
from fleetcast.models.world.engine_metrics import EngineMetrics, MetricsCatalogue, load_engine_metrics
from fleetcast.models.world.plan_grid import ServiceOption

# Label and kind of the objects whose ready replicas kube-state-metrics counts.
READY_REPLICA_KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet"}


class ReplicaSeries(NamedTuple):
    """The replicas of a workload in a region over time."""

    region: str
    workload: str
    counted: str  # what was counted: Deployment or StatefulSet, else the engine whose processes were
    replicas: Mapping[int, float]  # by instant (epoch s)


class FleetImport(NamedTuple):
    """What an import of the fleet that ran has written."""

    hours: dict[date, int]  # by day
    source: str  # what was counted as replicas, in one line


def import_fleet_metrics(
    settings: RunSettings, url: str, day: date, step_s: int, where: str, landing: Path = LANDING_DIR
) -> FleetImport:
    """Write the fleet of a day from a Prometheus server to ran_fleets; return its hours and their source.

    A known workload without a reading while the server has others counts as zero, in every region that has
    readings or that the mapping file names. The message of an IngestError, ConfigError or ValueError is one
    line with the remedy.
    """
    place = landing / f"{settings.trace}{METRICS_SUFFIX}"
    mapping = read_mapping(place, settings.trace, settings.catalogue)
    client = PrometheusClient(url, time.monotonic() + 60 * read_ingest_bounds(place).ingest_minutes)
    first = int(midnight(day).timestamp())
    time_range = (first, min(first + DOWNLOAD_DAY_S, int(time.time())) - step_s, step_s)
    known = known_workloads(settings.grid)
    found = list(ready_replicas(client, known, mapping, load_engine_metrics(), where, time_range))
    if not found:
        raise IngestError(
            f"{client.url} has on {day} neither ready replicas (kube-state-metrics) of {', '.join(known)} "
            f"nor an engine that serves their llms{f' with {{{where}}}' if where else ''}. "
            "Give the workloads the names of `fleetcast plan export`, or import the fleet from a file."
        )
    scraped = set(_scrape_instants(client, time_range)) | {at for one in found for at in one.replicas}
    regions = {one.region for one in found}
    regions |= {name for name in mapping.label_names.values() if name in settings.catalogue.regions}
    samples = _samples(found, sorted(regions), known, sorted(scraped))
    return FleetImport(write_observed_fleet(settings, samples, url), describe_counted_objects(found))


def describe_counted_objects(found: Iterable[ReplicaSeries]) -> str:
    """Return in one line what was counted as replicas, and the names that no object had if processes were."""
    by_source = defaultdict[str, list[str]](list)
    for one in found:
        by_source[one.counted].append(one.workload)
    kinds = READY_REPLICA_KINDS.values()
    counts = {kind: len(by_source[kind]) for kind in kinds if kind in by_source}
    ready = [f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items()]
    parts = [f"ready replicas of {' and '.join(ready)}"] if ready else []
    for engine, workloads in by_source.items():
        if engine not in kinds:
            names = " or ".join(dict.fromkeys(workloads))
            title = BACKEND_TITLES.get(engine, engine)
            parts.append(f"processes of {title}: no Deployment or StatefulSet has the name {names}")
    return "; ".join(parts)


def ready_replicas(
    client: PrometheusClient,
    known: Mapping[str, ServiceOption],
    mapping: TraceMapping,
    metrics: MetricsCatalogue,
    where: str,
    time_range: tuple[int, int, int],
) -> Iterator[ReplicaSeries]:
    """Yield the replicas of each region and workload: those of kube-state-metrics first."""
    by_name = "|".join(re.escape(name).replace("\\", "\\\\") for name in known)
    region, counted_llms = mapping.labels.get("region", "region"), set[str]()
    for label, kind in READY_REPLICA_KINDS.items():
        selector = metric_selector(f"kube_{label}_status_replicas_ready", f'{label}=~"{by_name}"', where)
        # Several kube-state-metrics may export the same object.
        query = f"sum by ({region}, {label}) (max by ({region}, namespace, {label}) ({selector}))"
        for (place, name), found in query_by_region(
            client, query, region, label, mapping, time_range
        ).items():
            counted_llms.add(known[name].llm)
            yield ReplicaSeries(place, name, kind, found)
    for title, engine in metrics.engines.items():
        if engine.is_frontend:  # a frontend counts requests, not serving processes
            continue
        processes = defaultdict[tuple[str, str], dict[int, float]](lambda: defaultdict(float))
        for query in _engine_queries(engine, region, where):
            for (place, model), found in query_by_region(
                client, query, region, engine.model_label, mapping, time_range
            ).items():
                llm = mapping.llm_names.get(model, model)
                if llm not in counted_llms and (workload := _only_workload(known, llm)):
                    for at, n in found.items():  # of the metric's several names, the largest count
                        processes[place, workload][at] = max(processes[place, workload][at], n)
        for (place, workload), counts in processes.items():
            yield ReplicaSeries(place, workload, title, counts)


def _engine_queries(engine: EngineMetrics, region: str, where: str) -> Iterator[str]:
    """Yield queries for the number of processes that serve each llm in each region."""
    by = f"{region}, {engine.model_label}"
    for row in engine.counted:
        yield f"count by ({by}) (count by ({by}, instance) ({metric_selector(row.requests, where)}))"


def metric_selector(metric: str, *matchers: str) -> str:
    return f"{metric}{{{','.join(filter(None, matchers))}}}"


def _only_workload(known: Mapping[str, ServiceOption], llm: str) -> str | None:
    """Return the workload that serves an llm, None where the config has none; ValueError for several."""
    names = [name for name, kind in known.items() if kind.llm == llm]
    if len(names) > 1:
        raise ValueError(
            f"{llm} runs as {', '.join(names)}, and an engine's metrics do not distinguish them. Let "
            "kube-state-metrics count their replicas, or import the fleet from a file."
        )
    return names[0] if names else None


def query_by_region(
    client: PrometheusClient,
    query: str,
    region: str,
    label: str,
    mapping: TraceMapping,
    time_range: tuple[int, int, int],
) -> Mapping[tuple[str, str], Mapping[int, float]]:
    """Return values by instant (epoch s), by region and value of a label; IngestError without a region."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for series in client.query_range(query, "", *time_range):
        name = series["metric"].get(region, "")
        if not name:
            regions = mapping.shares["region"]
            if len(regions) > 1:
                raise IngestError(
                    f"{client.url} has no label {region!r} for the region. Name the region's label in "
                    f"{mapping.trace}.toml, labels = {{ region = ... }}, or the only region, region = ..."
                )
            (name,) = regions
        place = mapping.label_names.get(name, name)
        values = found.setdefault((place, series["metric"].get(label, "")), {})
        for at, text in series["values"]:
            values[int(float(at))] = values.get(int(float(at)), 0.0) + float(text)
    return found


def _scrape_instants(client: PrometheusClient, time_range: tuple[int, int, int]) -> Iterable[int]:
    """Return the instants (epoch s) when the server scraped anything: a workload without a count had 0."""
    series = client.query_range("count(up)", "", *time_range)
    return (int(float(at)) for one in series for at, _ in one["values"])


def _samples(
    found: Iterable[ReplicaSeries], regions: Iterable[str], workloads: Iterable[str], instants: Iterable[int]
) -> Iterator[ReplicaSample]:
    """Yield a sample of every workload in every region at every instant (epoch s), 0 without a reading."""
    counts = {(one.region, one.workload): one.replicas for one in found}
    for region, workload, at in product(regions, workloads, instants):
        replicas = counts.get((region, workload), {}).get(at, 0.0)
        yield ReplicaSample(datetime.fromtimestamp(at, UTC), region, workload, replicas)
