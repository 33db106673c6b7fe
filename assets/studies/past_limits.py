"""Widen the limits of a config to a past fleet: what ran or was planned then may exceed today's limits."""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Floats
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.fleet_config import FleetConfig
from fleetcast.models.world.plan_grid import Grid


def with_room_for(settings: RunSettings, targets: Floats) -> RunSettings:
    """Return settings whose max_instances and cap_gpus are at least what `targets` need.

    `targets`: instances of shape (24, pools). The pools stay the same, in the same order.
    """
    catalogue = _with_gpus(settings.catalogue, settings.grid, targets)
    fleet = _with_instances(settings.config.fleet, settings.grid, targets)
    if catalogue is settings.catalogue and fleet is settings.config.fleet:
        return settings
    return replace(settings, catalogue=catalogue, config=replace(settings.config, fleet=fleet))


def _with_gpus(catalogue: Catalogue, grid: Grid, targets: Floats) -> Catalogue:
    """Return the catalogue with the GPUs of the largest hour in each region."""
    used = defaultdict[tuple[str, str], Floats](lambda: np.zeros(len(targets)))
    for pool, instances in zip(grid.pools, targets.T, strict=True):
        used[pool.region, pool.kind.gpu] += instances * pool.kind.gpus
    lacking = {
        (region, gpu): int(gpus.max())
        for (region, gpu), gpus in used.items()
        if gpus.max() > catalogue.regions[region].cap_gpus.get(gpu, 0)
    }
    if not lacking:
        return catalogue
    regions = {
        name: replace(
            region,
            cap_gpus={**region.cap_gpus, **{gpu: n for (place, gpu), n in lacking.items() if place == name}},
        )
        for name, region in catalogue.regions.items()
    }
    return replace(catalogue, regions=regions)


def _with_instances(fleet: FleetConfig, grid: Grid, targets: Floats) -> FleetConfig:
    """Return the fleet with the largest hour of each deployment in any region as its maximum."""
    largest = targets.max(axis=0)
    peaks = defaultdict[tuple[str, int], int](int)
    for pool, peak in zip(grid.pools, largest.tolist(), strict=True):
        place = pool.kind.llm, fleet.deployments[pool.kind.llm].index(pool.deployment)
        peaks[place] = max(peaks[place], int(peak))
    if all(peak <= fleet.limits(fleet.deployments[llm][n])[2] for (llm, n), peak in peaks.items()):
        return fleet
    deployments = {
        llm: tuple(
            replace(one, max_instances=max(fleet.limits(one)[2], peaks[llm, n]))
            for n, one in enumerate(deployed)
        )
        for llm, deployed in fleet.deployments.items()
    }
    return replace(fleet, deployments=deployments)
