"""Read one endpoint's requests in the busiest hours of a day, and replay them on a fleet of their own."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.replays.replay_workloads import build_trace_arrays
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.replay.session.trace_rows import select_requests
from fleetcast.models.trials.capacity import replay_fixed_fleet, trial_fleet
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.replay_config import ReplayConfig
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

ENDPOINT_REQUESTS_SQL = """
select * from requests
where trace = $trace and day = $day and llm = $llm and region = $region
order by arrived_at, request_id
"""


class Endpoint(NamedTuple):
    """An endpoint's requests, and the instances that serve them."""

    settings: RunSettings
    llm: str
    region: str
    deployment: Deployment
    instances: int  # today's: the most of the day's corrected plan, else the config's start
    hours: int
    requests: pa.Table
    trace: TraceArrays  # the first hour starts at 0 s; tiers as in the catalogue


def read_endpoint(
    settings: RunSettings, day: date, llm: str | None, region: str | None, hours: int
) -> Endpoint:
    """Read an endpoint's busiest consecutive `hours`, by tokens; default: the endpoint with most tokens.

    ConfigError for an unknown name, an llm with several pools, or an endpoint without requests.
    """
    for name, known, kind in (
        (llm, settings.catalogue.llms, "llm"),
        (region, settings.catalogue.regions, "region"),
    ):
        if name is not None:
            require_known(name, known, kind, f"--{kind}")
    settings.require_day("requests", day)
    where = {"trace": settings.trace, "day": day, "llm": llm, "region": region}
    busiest = settings.lake.sql("reads/busiest_endpoint.sql", **where).to_pylist()
    if not busiest:
        raise ConfigError(
            f"No request of {llm or 'any llm'} in {region or 'any region'} on {day}. Choose another "
            "day or endpoint."
        )
    llm, region = str(busiest[0]["llm"]), str(busiest[0]["region"])
    where |= {"llm": llm, "region": region}
    deployment = require_one_pool(settings, llm, region)
    table, trace = busiest_hours(settings, day, llm, region, hours)
    planned = settings.lake.sql("reads/largest_hour.sql", **where)["instances"][0].as_py()
    start, *_ = settings.config.fleet.limits(deployment)
    instances = max(1, int(planned or start))
    return Endpoint(settings, llm, region, deployment, instances, hours, table, trace)


def busiest_hours(
    settings: RunSettings, day: date, llm: str, region: str, hours: int
) -> tuple[pa.Table, TraceArrays]:
    """Return an endpoint's requests in its busiest consecutive `hours`, by tokens, from 0 s on."""
    table = settings.lake.sql(ENDPOINT_REQUESTS_SQL, trace=settings.trace, day=day, llm=llm, region=region)
    trace = build_trace_arrays(settings, day, table)
    arrival_s = trace.arrival_s
    tokens = pc.add(table["input_tokens"], table["output_tokens"]).to_numpy().astype(float)
    by_hour = np.bincount((arrival_s // HOUR_S).astype(np.int64), tokens, minlength=24)
    first = int(np.argmax(np.convolve(by_hour, np.ones(hours), "valid")))
    rows = np.flatnonzero((arrival_s >= first * HOUR_S) & (arrival_s < (first + hours) * HOUR_S))
    zeros = np.zeros(arrival_s.size, np.int16)
    shifted = trace._replace(arrival_s=arrival_s - first * HOUR_S, region=zeros, llm=zeros)
    return table.take(pa.array(rows)), select_requests(shifted, rows)


def require_one_pool(settings: RunSettings, llm: str, region: str) -> Deployment:
    """Return the deployment of the endpoint's only pool; ConfigError if it has none or several."""
    pools = [
        pool
        for pool in settings.config.fleet.deployments[llm]
        if pool.regions is None or region in pool.regions
    ]
    if len(pools) != 1:
        raise ConfigError(
            f"{llm} has {len(pools)} pools in {region}; levels are tested on one pool. Choose an endpoint "
            "with one pool, or a config in which it has one."
        )
    return pools[0]


def replay_endpoint(
    endpoint: Endpoint, tiers: Mapping[str, Tier], config: ReplayConfig, trace: TraceArrays, instances: int
) -> tuple[Outcome, FleetArrays]:
    """Replay requests with these tiers on a fixed number of instances; return outcome and fleet."""
    settings, llm = endpoint.settings, endpoint.llm
    catalogue = replace(settings.catalogue.serving([llm]), tiers=tiers)
    run_config = replace(settings.config, replay=replace(config, cascades={}))
    fleet = trial_fleet(llm, endpoint.deployment, catalogue, run_config, instances)
    until_s = float(trace.arrival_s[-1]) + 1.0
    rules = make_rules(catalogue, run_config.replay, "follow")
    return replay_fixed_fleet(trace, fleet, rules, until_s), fleet


def endpoint_cost(endpoint: Endpoint, instances: int) -> tuple[float, float]:
    """Return GPU-hours and USD of `instances` in the endpoint's hours."""
    gpu_hours = float(instances * endpoint.deployment.gpus * endpoint.hours)
    return gpu_hours, gpu_hours * endpoint.settings.catalogue.gpus[endpoint.deployment.gpu].usd_per_hour
