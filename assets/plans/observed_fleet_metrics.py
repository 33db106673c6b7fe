"""The fleet that ran, as a Prometheus server tells it: ready replicas, or the processes that engines have.

kube-state-metrics counts the ready replicas of Deployments and StatefulSets, called as `plan export` calls
them. Of an llm that has none there, every process that tells its metrics is a replica: an engine does once
its weights are loaded. The trace's mapping file names the label that tells the region, as for `ingest`.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path

from fleetcast.assets.lake.settings import RunSettings, midnight
from fleetcast.assets.plans.observed_fleet import ReplicaSample, known_workloads, write_observed_fleet
from fleetcast.assets.traces.ingest import LANDING_DIR
from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.assets.traces.prometheus_answers import METRICS_SUFFIX
from fleetcast.assets.traces.prometheus_client import PrometheusClient
from fleetcast.assets.traces.prometheus_download import DOWNLOAD_DAY_S
from fleetcast.assets.traces.trace_mapping import TraceMapping, read_ingest_bounds, read_mapping
from fleetcast.models.world.engine_metrics import EngineMetrics, MetricsCatalogue, load_engine_metrics
from fleetcast.models.world.plan_grid import ServiceOption

READY_REPLICA_LABELS = (
    "deployment",
    "statefulset",
)  # whose ready replicas kube-state-metrics counts, by their label


def import_fleet_metrics(
    settings: RunSettings, url: str, day: date, step_s: int, where: str, landing: Path = LANDING_DIR
) -> dict[date, int]:
    """Write what ran on a day into ran_fleets, from a Prometheus server; hours by day.

    IngestError, ConfigError or ValueError is one line with the remedy.
    """
    place = landing / f"{settings.trace}{METRICS_SUFFIX}"
    mapping = read_mapping(place, settings.trace, settings.catalogue)
    client = PrometheusClient(url, time.monotonic() + 60 * read_ingest_bounds(place).ingest_minutes)
    first = int(midnight(day).timestamp())
    asked = (first, min(first + DOWNLOAD_DAY_S, int(time.time())) - step_s, step_s)
    known = known_workloads(settings.grid)
    counts = dict(_counts(client, known, mapping, load_engine_metrics(), where, asked))
    if not counts:
        raise IngestError(
            f"{client.url} knows on {day} neither ready replicas (kube-state-metrics) of {', '.join(known)} "
            f"nor an engine that serves their llms{f' with {{{where}}}' if where else ''}. "
            "Call the workloads as `fleetcast plan export` does, or tell what ran in a file."
        )
    read = set(_instants(client, asked)) | {at for found in counts.values() for at in found}
    return write_observed_fleet(settings, _samples(counts, read), url)


def _counts(
    client: PrometheusClient,
    known: Mapping[str, ServiceOption],
    mapping: TraceMapping,
    metrics: MetricsCatalogue,
    where: str,
    asked: tuple[int, int, int],
) -> Iterator[tuple[tuple[str, str], Mapping[int, float]]]:
    """Replicas at instants, by region and workload; a workload that is counted as such goes first."""
    by_name = "|".join(re.escape(name).replace("\\", "\\\\") for name in known)
    region, told = mapping.labels.get("region", "region"), set[str]()
    for label in READY_REPLICA_LABELS:
        selector = _selector(f"kube_{label}_status_replicas_ready", f'{label}=~"{by_name}"', where)
        # The same object may be told by several kube-state-metrics.
        query = f"sum by ({region}, {label}) (max by ({region}, namespace, {label}) ({selector}))"
        for (place, name), found in _answer(client, query, region, label, mapping, asked).items():
            told.add(known[name].llm)
            yield (place, name), found
    for engine in metrics.engines.values():
        if engine.is_frontend:  # counts requests, and not who serves them
            continue
        processes = defaultdict[tuple[str, str], dict[int, float]](lambda: defaultdict(float))
        for query in _engine_queries(engine, region, where):
            for (place, model), found in _answer(
                client, query, region, engine.model_label, mapping, asked
            ).items():
                llm = mapping.llm_names.get(model, model)
                if llm not in told and (workload := _only_workload(known, llm)):
                    for at, n in found.items():  # whichever name of the metric has most
                        processes[place, workload][at] = max(processes[place, workload][at], n)
        yield from processes.items()


def _engine_queries(engine: EngineMetrics, region: str, where: str) -> Iterator[str]:
    """Queries for the number of processes that serve each llm in each region."""
    by = f"{region}, {engine.model_label}"
    for row in engine.counted:
        yield f"count by ({by}) (count by ({by}, instance) ({_selector(row.requests, where)}))"


def _selector(metric: str, *matchers: str) -> str:
    return f"{metric}{{{','.join(one for one in matchers if one)}}}"


def _only_workload(known: Mapping[str, ServiceOption], llm: str) -> str | None:
    """The workload that serves an llm, None where the config has none; ValueError for several."""
    names = [name for name, kind in known.items() if kind.llm == llm]
    if len(names) > 1:
        raise ValueError(
            f"{llm} runs as {', '.join(names)}, and an engine's metrics do not tell which. Let "
            "kube-state-metrics count their replicas, or tell what ran in a file."
        )
    return names[0] if names else None


def _answer(
    client: PrometheusClient,
    query: str,
    region: str,
    label: str,
    mapping: TraceMapping,
    asked: tuple[int, int, int],
) -> Mapping[tuple[str, str], Mapping[int, float]]:
    """Values at instants by region and what a label says; IngestError where no label tells the region."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for one in client.query_range(query, "", *asked):
        said = one["metric"].get(region, "")
        if not said:
            only = mapping.shares["region"]
            if len(only) > 1:
                raise IngestError(
                    f"{client.url} has no label {region!r} that tells the region. Name the one that does in "
                    f"{mapping.trace}.toml, labels = {{ region = ... }}, or the only region, region = ..."
                )
            (said,) = only
        place = mapping.label_names.get(said, said)
        values = found.setdefault((place, one["metric"].get(label, "")), {})
        for at, text in one["values"]:
            values[int(float(at))] = values.get(int(float(at)), 0.0) + float(text)
    return found


def _instants(client: PrometheusClient, asked: tuple[int, int, int]) -> Iterable[int]:
    """When the server was reading at all: where nothing is counted then, nothing ran."""
    return (int(float(at)) for one in client.query_range("count(up)", "", *asked) for at, _ in one["values"])


def _samples(
    counts: Mapping[tuple[str, str], Mapping[int, float]], read: Iterable[int]
) -> Iterator[ReplicaSample]:
    for (region, workload), found in counts.items():
        for at in sorted(read):
            yield ReplicaSample(datetime.fromtimestamp(at, UTC), region, workload, found.get(at, 0.0))
