"""The requests of one endpoint in the busiest hours of a day, and a fleet for them alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.lake.lake_preconditions import require_day
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.replays.replay_workloads import build_trace_arrays
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.replay.session.trace_rows import select_requests
from fleetcast.models.trials.capacity import trial_fleet
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
    """An endpoint's requests, and what serves them."""

    settings: RunSettings
    llm: str
    region: str
    deployment: Deployment
    instances: int  # today: of the largest hour of the day's corrected plan, else those of the config's start
    hours: int
    requests: pa.Table
    trace: TraceArrays  # its first hour begins at 0 s; tiers as in the catalogue


def read_endpoint(
    settings: RunSettings, day: date, llm: str | None, region: str | None, hours: int
) -> Endpoint:
    """The busiest `hours` on end of an endpoint, by tokens; without its name of the one that has most to do.

    ConfigError for a name that nobody knows, an llm of several pools, or an endpoint that nobody asked.
    """
    for name, known, what in (
        (llm, settings.catalogue.llms, "llm"),
        (region, settings.catalogue.regions, "region"),
    ):
        if name is not None:
            require_known(name, known, what, f"--{what}")
    require_day(settings.lake, "requests", settings.trace, day)
    asked = {"trace": settings.trace, "day": day, "llm": llm, "region": region}
    busiest = settings.lake.sql("reads/busiest_endpoint.sql", **asked).to_pylist()
    if not busiest:
        raise ConfigError(
            f"Nobody asked {llm or 'any llm'} in {region or 'any region'} on {day}. Choose another "
            "day or endpoint."
        )
    llm, region = str(busiest[0]["llm"]), str(busiest[0]["region"])
    asked |= {"llm": llm, "region": region}
    deployment = require_one_pool(settings, llm, region)
    table, trace = busiest_hours(settings, day, llm, region, hours)
    planned = settings.lake.sql("reads/largest_hour.sql", **asked)["instances"][0].as_py()
    start, *_ = settings.config.fleet.limits(deployment)
    instances = max(1, int(planned or start))
    return Endpoint(settings, llm, region, deployment, instances, hours, table, trace)


def busiest_hours(
    settings: RunSettings, day: date, llm: str, region: str, hours: int
) -> tuple[pa.Table, TraceArrays]:
    """The requests of an endpoint in its busiest `hours` on end, by tokens, which begin at 0 s."""
    table = settings.lake.sql(ENDPOINT_REQUESTS_SQL, trace=settings.trace, day=day, llm=llm, region=region)
    trace = build_trace_arrays(settings, day, table)
    arrival_s = trace.arrival_s
    tokens = pc.add(table["input_tokens"], table["output_tokens"]).to_numpy().astype(float)
    by_hour = np.bincount((arrival_s // HOUR_S).astype(np.int64), tokens, minlength=24)
    first = int(np.argmax(np.convolve(by_hour, np.ones(hours), "valid")))
    here = np.flatnonzero((arrival_s >= first * HOUR_S) & (arrival_s < (first + hours) * HOUR_S))
    nobody = np.zeros(arrival_s.size, np.int16)
    alone = trace._replace(arrival_s=arrival_s - first * HOUR_S, region=nobody, llm=nobody)
    return table.take(pa.array(here)), select_requests(alone, here)


def require_one_pool(settings: RunSettings, llm: str, region: str) -> Deployment:
    """What an instance of the endpoint is; ConfigError where there are several sorts, or none."""
    pools = [
        pool
        for pool in settings.config.fleet.deployments[llm]
        if pool.regions is None or region in pool.regions
    ]
    if len(pools) != 1:
        raise ConfigError(
            f"{llm} has {len(pools)} pools in {region}; levels are tried on one sort of instances. Choose an "
            "endpoint of one pool, or a config in which it is one."
        )
    return pools[0]


def replay_endpoint(
    endpoint: Endpoint, tiers: Mapping[str, Tier], config: ReplayConfig, trace: TraceArrays, instances: int
) -> tuple[Outcome, FleetArrays]:
    """Replay requests that have these tiers at so many instances, which always serve."""
    settings, llm = endpoint.settings, endpoint.llm
    catalogue = replace(settings.catalogue.serving([llm]), tiers=tiers)
    own = replace(settings.config, replay=replace(config, cascades={}))
    fleet = trial_fleet(llm, endpoint.deployment, catalogue, own, instances)
    until_s = float(trace.arrival_s[-1]) + 1.0
    drive = Schedule(np.diff(fleet.slots), hour_s=until_s)
    rules = make_rules(catalogue, own.replay, "follow")
    return replay_trace(trace, fleet, drive, rules, until_s), fleet


def endpoint_cost(endpoint: Endpoint, instances: int) -> tuple[float, float]:
    """GPU-hours and USD of so many instances in the endpoint's hours."""
    spent = float(instances * endpoint.deployment.gpus * endpoint.hours)
    return spent, spent * endpoint.settings.catalogue.gpus[endpoint.deployment.gpu].usd_per_hour
