"""Read from a Prometheus server what the engines of each llm prefill, what waits, and what serves.

Rates are those of RATE_S, so the server must scrape the engines at least twice in that time. Engines
count a prompt when its first token comes, and do not know tiers: all prompts count.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.assets.plans.observed_fleet import known_workloads
from fleetcast.assets.plans.observed_fleet_metrics import (
    ReplicaSeries,
    metric_selector,
    query_by_region,
    ready_replicas,
)
from fleetcast.assets.traces.prometheus_client import PrometheusClient
from fleetcast.assets.traces.trace_mapping import TraceMapping
from fleetcast.models.aliases import Floats
from fleetcast.models.world.engine_metrics import EngineMetrics, load_engine_metrics
from fleetcast.models.world.plan_grid import Grid

RATE_S = 90  # seconds of a rate: as noisy as one smoothed over a minute (scaling_signal.py), and as late
MEAN_S = 600  # seconds of the mean prompt
LONGEST_READ_S = 20.0
Series = dict[str, dict[int, float]]  # llm -> instant (epoch s) -> value


class ObservedLoad(NamedTuple):
    """Series over instants that are a step apart; NaN where the server has no value."""

    prefilled_tokens_per_s: Floats  # (llms, instants)
    waiting_requests: Floats  # (llms, instants)
    mean_prompt_tokens: Floats  # (llms, instants) of the requests with a first token in the last ten minutes
    serving: Floats  # (pools, instants) instances

    def waiting_tokens(self) -> Floats:
        """Return the prompt tokens that wait, (llms, instants): 0 where nothing says that any does."""
        return np.nan_to_num(self.waiting_requests) * np.nan_to_num(self.mean_prompt_tokens)

    def arriving_tokens_per_s(self, step_s: int) -> Floats:
        """Return the prompts that arrived within RATE_S, (llms, instants): what was prefilled, and by what
        the queue grew. NaN where what was prefilled is unknown; not below 0.
        """
        waiting, back = self.waiting_tokens(), RATE_S // step_s
        before = np.concatenate([np.repeat(waiting[:, :1], back, axis=1), waiting[:, :-back]], axis=1)
        return np.maximum(0.0, self.prefilled_tokens_per_s + (waiting - before) / RATE_S)


def read_observed_load(
    url: str, where: str, grid: Grid, mapping: TraceMapping, instants: Sequence[int], step_s: int
) -> ObservedLoad:
    """Return the load at instants (epoch s) that are `step_s` apart; IngestError if the server is not well.

    `where` are label matchers that the engines' series must have, "" for all.
    """
    client = PrometheusClient(url, time.monotonic() + LONGEST_READ_S)
    metrics, time_range = load_engine_metrics(), (instants[0], instants[-1], step_s)
    rate, waiting, tokens, requests = Series(), Series(), Series(), Series()
    for engine in metrics.engines.values():
        for row in engine.counted:
            for found, metric, seconds in (
                (rate, row.input_tokens, RATE_S),
                (tokens, row.input_tokens, MEAN_S),
                (requests, row.requests, MEAN_S),
            ):
                query = f"rate({metric_selector(metric, where)}[{seconds}s])"
                _add_missing(found, _sum_by_llm(client, query, engine, mapping, time_range))
        for gauge in engine.waiting:
            query = metric_selector(gauge, where)
            _add_missing(waiting, _sum_by_llm(client, query, engine, mapping, time_range))
    llms = list(grid.catalogue.llms)
    counts = ready_replicas(client, known_workloads(grid), mapping, metrics, where, time_range)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = _to_rows(llms, tokens, instants) / _to_rows(llms, requests, instants)
    return ObservedLoad(
        _to_rows(llms, rate, instants),
        _to_rows(llms, waiting, instants),
        mean,
        _serving_by_pool(grid, counts, instants),
    )


def _sum_by_llm(
    client: PrometheusClient,
    query: str,
    engine: EngineMetrics,
    mapping: TraceMapping,
    time_range: tuple[int, int, int],
) -> Series:
    """Return the sum of a query over all processes of each llm, in all regions."""
    region = mapping.labels.get("region", "region")
    summed, found = f"sum by ({region}, {engine.model_label}) ({query})", Series()
    for (_, model), values in query_by_region(
        client, summed, region, engine.model_label, mapping, time_range
    ).items():
        of_llm = found.setdefault(mapping.llm_names.get(model, model), {})
        for at, value in values.items():
            of_llm[at] = of_llm.get(at, 0.0) + value
    return found


def _add_missing(found: Series, more: Series) -> None:
    """Add the series of llms that have none yet: of a process with several names, and of frontends."""
    for llm, values in more.items():
        found.setdefault(llm, values)


def _to_rows(names: Sequence[str], series: Mapping[str, Mapping[int, float]], at: Sequence[int]) -> Floats:
    return np.array([[series.get(name, {}).get(instant, np.nan) for instant in at] for name in names])


def _serving_by_pool(grid: Grid, found: Iterable[ReplicaSeries], instants: Sequence[int]) -> Floats:
    """Return the instances of each pool; 0 where the server has none of its workload."""
    workloads = known_workloads(grid)
    by_label = {(one.region, *workloads[one.workload].label): one.replicas for one in found}
    rows = [by_label.get(pool_label(grid, pool), {}) for pool in range(len(grid.pools))]
    return np.array([[row.get(instant, 0.0) for instant in instants] for row in rows])


def pool_label(grid: Grid, pool: int) -> tuple[str, str, str, str, int]:
    """Return region, llm, role, GPU type and GPUs of the workload that runs as a pool."""
    return (grid.pools[pool].region, *grid.pool_options[pool].label)
