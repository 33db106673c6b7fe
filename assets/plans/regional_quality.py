"""Plan model routing and replicas over all regions of a config, by the tables; load moves between regions."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.quality_markets import Market
from fleetcast.assets.plans.quality_requirements import QualityRequirement
from fleetcast.models.aliases import Floats
from fleetcast.models.plan.quality_milp import LEAST_LOAD_SHARE
from fleetcast.models.plan.quality_regions import MultiRegionPlan, RegionalDemand, cheapest_regional_plan
from fleetcast.models.trials.latency_curves import ReplicaShape
from fleetcast.models.world.toml_dataclasses import ConfigError

REQUESTS_BY_REGION_SQL = (
    "select region, count(*) as requests from requests where trace = $trace and tier = $tier "
    "and list_contains($llms, llm) group by region"
)


class RegionalPlan(NamedTuple):
    """A plan over regions, and its demand."""

    names: tuple[str, ...]  # of the regions
    requests_per_s: Floats  # (regions,) that arrive in each region
    spread: MultiRegionPlan
    answered: Floats  # (regions, llms) share of a region's requests that each llm answers


def plan_over_regions(settings: RunSettings, market: Market, requirement: QualityRequirement) -> RegionalPlan:
    """Return the cheapest plan over all regions; each has its own GPUs of the types in [quality].

    A region's share of the requests is that of the trace; all are equal where the lake has no request.
    ConfigError where no plan meets the requirement.
    """
    sites, types = settings.catalogue.regions, list(market.catalogue.gpus)
    target = f"quality {requirement.quality:g} within {requirement.latency_s:g} s"
    if "route" not in market.offers:
        raise ConfigError(
            f"No plan over regions gives {target}: it needs a router. Use rule = 'route' or 'both' in "
            "[quality], and a judge that can route."
        )
    shares = request_share_by_region(settings, market)
    caps = [
        [site.cap_gpus.get(gpu, 0) * (gpu in market.quality_config.gpus) for gpu in types]
        for site in sites.values()
    ]
    regions = RegionalDemand(market.quality_config.requests_per_s * shares, np.array(caps))
    offer = market.offers["route"]
    plan = cheapest_regional_plan(offer, regions, requirement.quality, requirement.latency_s)
    if plan is None:
        raise ConfigError(
            f"No plan over regions gives {target}: their GPUs do not carry the load in time. Add some to "
            "cap_gpus of [catalogue.regions], or lower the requirement."
        )
    if plan.usd_per_hour > requirement.budget_usd_per_hour:
        raise ConfigError(
            f"No plan over regions gives {target} for {requirement.budget_usd_per_hour:g} USD/h: the budget "
            f"binds; tables need {plan.usd_per_hour:.2f} USD/h. Raise --budget, or lower the requirement."
        )
    return RegionalPlan(tuple(sites), regions.requests_per_s, plan, plan.shares @ offer.shares)


def request_share_by_region(settings: RunSettings, market: Market) -> Floats:
    """Return the share of the service's requests in each region, (regions,); equal ones without requests."""
    quality, names = market.quality_config, list(settings.catalogue.regions)
    rows = settings.lake.sql(
        REQUESTS_BY_REGION_SQL, trace=settings.trace, tier=quality.tier, llms=list(quality.llms)
    ).to_pylist()
    requests = {row["region"]: row["requests"] for row in rows}
    counts = np.array([requests.get(name, 0) for name in names], float)
    return counts / counts.sum() if counts.any() else np.full(len(names), 1 / len(names))


def regional_replicas(market: Market, places: RegionalPlan) -> Iterator[tuple[str, ReplicaShape, int, float]]:
    """Yield region, shape, replicas and USD per hour of all replicas of a plan."""
    usd = market.offers["route"].usd_per_hour
    for j, name in enumerate(places.names):
        for s in np.flatnonzero(places.spread.instances[:, j]):
            count = int(places.spread.instances[s, j])
            yield name, market.shapes[s], count, count * float(usd[s])


def describe_moved_load(market: Market, places: RegionalPlan) -> list[str]:
    """Return a line for each llm and region whose load is served elsewhere, or that serves others' load."""
    quality = market.quality_config
    return [
        f"{llm}: {name} "
        + (f"has {per_s:.2f} requests/s served elsewhere" if per_s > 0 else f"serves {-per_s:.2f} more")
        for llm, row in zip(quality.llms, places.spread.moved_per_s, strict=True)
        for name, per_s in zip(places.names, row, strict=True)
        if abs(per_s) > LEAST_LOAD_SHARE * quality.requests_per_s
    ]
