"""Which llm answers what over all regions of a config, by the tables; load moves between them."""

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
    """A plan over regions, and what it is for."""

    names: tuple[str, ...]  # of the regions
    requests_per_s: Floats  # that come to each
    spread: MultiRegionPlan
    answered: Floats  # (J, M) of a region's requests, the share that each llm answers


def plan_over_regions(settings: RunSettings, market: Market, question: QualityRequirement) -> RegionalPlan:
    """The cheapest replicas in all regions, each with the GPUs of its own that [quality] names.

    A region has the share of the requests that the trace's have there, where the lake has any. ConfigError
    where no plan keeps what is asked.
    """
    sites, types = settings.catalogue.regions, list(market.catalogue.gpus)
    asked = f"quality {question.quality:g} within {question.latency_s:g} s"
    if "route" not in market.offers:
        raise ConfigError(
            f"No plan over regions gives {asked}: it needs a router. Use rule = 'route' or 'both' in "
            "[quality], and a judge that may route."
        )
    parts = request_share_by_region(settings, market)
    named = [
        [site.cap_gpus.get(gpu, 0) * (gpu in market.said.gpus) for gpu in types] for site in sites.values()
    ]
    regions = RegionalDemand(market.said.requests_per_s * parts, np.array(named))
    offer = market.offers["route"]
    found = cheapest_regional_plan(offer, regions, question.quality, question.latency_s)
    if found is None:
        raise ConfigError(
            f"No plan over regions gives {asked}: their GPUs do not carry the load in time. Add some to "
            "cap_gpus of [catalogue.regions], or ask for less."
        )
    if found.usd_per_hour > question.budget_usd_per_hour:
        raise ConfigError(
            f"No plan over regions gives {asked} for {question.budget_usd_per_hour:g} USD/h: the budget "
            f"binds; tables ask for {found.usd_per_hour:.2f} USD/h. Raise --budget, or ask for less."
        )
    return RegionalPlan(tuple(sites), regions.requests_per_s, found, found.shares @ offer.shares)


def request_share_by_region(settings: RunSettings, market: Market) -> Floats:
    """The share of the service's requests that comes to each region; equal ones where the lake has none."""
    said, names = market.said, list(settings.catalogue.regions)
    rows = settings.lake.sql(
        REQUESTS_BY_REGION_SQL, trace=settings.trace, tier=said.tier, llms=list(said.llms)
    ).to_pylist()
    came = {row["region"]: row["requests"] for row in rows}
    counts = np.array([came.get(name, 0) for name in names], float)
    return counts / counts.sum() if counts.any() else np.full(len(names), 1 / len(names))


def regional_replicas(market: Market, places: RegionalPlan) -> Iterator[tuple[str, ReplicaShape, int, float]]:
    """Region, shape, replicas and USD per hour of what stands anywhere."""
    usd = market.offers["route"].usd_per_hour
    for j, name in enumerate(places.names):
        for s in np.flatnonzero(places.spread.instances[:, j]):
            count = int(places.spread.instances[s, j])
            yield name, market.shapes[s], count, count * float(usd[s])


def describe_moved_load(market: Market, places: RegionalPlan) -> list[str]:
    """What of each llm's work regions do for others, as texts."""
    lines = []
    for llm, own in zip(market.said.llms, places.spread.moved_per_s, strict=True):
        for name, per_s in zip(places.names, own, strict=True):
            if abs(per_s) > LEAST_LOAD_SHARE * market.said.requests_per_s:
                what = (
                    f"has {per_s:.2f} requests/s served elsewhere"
                    if per_s > 0
                    else f"serves {-per_s:.2f} more"
                )
                lines.append(f"{llm}: {name} {what}")
    return lines
