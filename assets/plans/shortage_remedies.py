"""Say what would mend a plan that is short of capacity: limits that bind, a pool, or instances before.

Each hour of a plan starts from the hour before. So a plan may be short below all of its limits: instances
that start cold in an hour may serve only after it.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.plan_export import ROLLING_POLICY
from fleetcast.assets.plans.problems import boot_times_s, instance_capacity_and_gpus, instance_counts
from fleetcast.models.aliases import Ints, Row

ALL_REGIONS = "all regions"  # served_region of a row of queries/short_plans.sql for a whole llm


def describe_shortage_remedy(settings: RunSettings, short: Row) -> str:
    """Return in a sentence what would mend a row of queries/short_plans.sql, by the limits of the config."""
    grid, service, place = settings.grid, (short["llm"], short["role"]), short["served_region"]
    if service not in grid.services or place not in (ALL_REGIONS, *grid.regions):
        return "The config does not deploy it any more: make the plan again."
    i = grid.services.index(service)
    most = instance_counts(grid, settings.config.plan.together)[2][i]
    pools = [(j, k) for j, k in np.argwhere(most > 0).tolist() if place in (ALL_REGIONS, grid.regions[j])]
    if not pools:
        return f"It has no pool in {place}: deploy it there."
    limits = _binding_limits(settings, short, i, most, pools)
    if free := [pool for pool, names in zip(pools, limits, strict=True) if not names]:
        return _describe_late_start(settings, i, free)
    regions_by_limit = defaultdict[str, dict[str, None]](dict)
    for (j, _), names in zip(pools, limits, strict=True):
        for name in names:
            regions_by_limit[name][grid.regions[j]] = None
    listed = (f"{name} in {', '.join(regions)}" for name, regions in regions_by_limit.items())
    return f"Raise what binds: {'; '.join(listed)}."


def _binding_limits(
    settings: RunSettings, short: Row, i: int, most: Ints, pools: Sequence[tuple[int, int]]
) -> list[list[str]]:
    """Return the names of the limits that forbid one more instance of a service in the hour, for each pool.

    i, most : the service, and its most instances by region and option
    pools : region j and option k of each pool
    """
    grid, changes = settings.grid, settings.config.plan.rolling.max_changes
    rows = settings.lake.sql(
        "select *, 0 as hour from all_plans where trace = $trace and policy = $policy and hour_start = $hour",
        trace=short["trace"],
        policy=short["policy"],
        hour=short["hour_start"],
    ).to_pandas()
    instances, delta = (grid.hourly_cells(rows, name)[0] for name in ("instances", "delta"))
    _, uses = instance_capacity_and_gpus(grid, [1.0] * len(grid.service_options))
    used = np.einsum("ijk,ikg->jg", instances, uses)
    limits = []
    for j, k in pools:
        caps = settings.catalogue.regions[grid.regions[j]].cap_gpus
        names = ["max_instances"] if instances[i, j, k] >= most[j, k] else []
        for gpu, size, so_far in zip(settings.catalogue.gpus, uses[i, k], used[j], strict=True):
            if size and so_far + size > caps.get(gpu, 0):
                names.append(f"cap_gpus of {gpu}")
        if short["policy"] == ROLLING_POLICY and changes is not None and delta[i, j, k] >= changes:
            names.append("[plan.rolling] max_changes")
        limits.append(names)
    return limits


def _describe_late_start(settings: RunSettings, i: int, pools: Sequence[tuple[int, int]]) -> str:
    """Return the remedy where limits leave room for a service in these pools, a region and option each."""
    _, cold_s = boot_times_s(settings.grid, settings.config.replay)
    j, k = min(pools, key=lambda pool: cold_s[i, *pool])
    llm, region = settings.grid.services[i][0], settings.grid.regions[j]
    is_local = llm in settings.catalogue.regions[region].weights
    nearer = "" if is_local else f", or name {llm} in the weights of {region}"
    return (
        f"No limit binds: a cold start in {region} takes {cold_s[i, j, k] / 60:g} min, too long for what "
        f"starts in this hour. Raise instances_at_start or min_instances{nearer}."
    )
