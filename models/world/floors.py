"""Floors by what must survive ([fleet] survive): the fewest instances of each llm, where they cost least.

A floor is placed once, by price and room alone, so every plan and every scaling rule keeps the same one. The
load does not move it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.fleet_config import SURVIVAL_FLOORS, FleetConfig
from fleetcast.models.world.pool_pairing import handover_target, pool_regions
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

PREFERENCE_USD = 1e-3  # of all preferences together, per hour: they decide where costs are the same

PoolPlace = tuple[str, int, str]  # llm, number of its deployment, region
GpuPlace = tuple[str, str]  # region, GPU type


class ServingUnit(NamedTuple):
    """The instances of one region that serve a request together: one, one for each phase, or a team."""

    llm: str
    region: str
    instances: Counter[PoolPlace]
    gpus: Counter[GpuPlace]
    usd_per_hour: float


class FloorPlacement(NamedTuple):
    """The floors of a fleet, and the llms whose floor has no room, with the units that they miss."""

    instances: Counter[PoolPlace]
    missing: dict[str, int]


def place_floors(catalogue: Catalogue, fleet: FleetConfig) -> FloorPlacement:
    """Return the fewest instances of each pool: those of the floors, placed where they cost least together.

    Of placements with the same cost it takes the deployments that are written first, in their first regions.
    """
    llms = [llm for llm in fleet.deployments if fleet.survival(llm) is not None]
    if not llms:
        return FloorPlacement(Counter(), {})
    units = [unit for llm in llms for unit in list_serving_units(catalogue, fleet, llm)]
    counts, missing = cheapest_units(catalogue, fleet, llms, units)
    placed: Counter[PoolPlace] = Counter()
    for unit, count in zip(units, counts.tolist(), strict=True):
        placed.update({place: count * each for place, each in unit.instances.items() if count})
    return FloorPlacement(placed, {llm: n for llm, n in zip(llms, missing.tolist(), strict=True) if n})


def cheapest_units(
    catalogue: Catalogue, fleet: FleetConfig, llms: Sequence[str], units: Sequence[ServingUnit]
) -> tuple[Ints, Ints]:
    """Return how many of each unit are placed, (units,), and how many each llm misses, (llms,).

    An integer programme: min USD s.t. each llm has the units of its floor, in the regions of its floor, no
    pool exceeds its maximum, and the regions have the GPUs. A missing unit costs more than all others.
    """
    from scipy import optimize

    floors = np.array([SURVIVAL_FLOORS[fleet.survival(llm) or "none"] for llm in llms])
    homes = [(llm, region) for llm in llms for region in catalogue.regions]
    n, h, m = len(units), len(homes), len(llms)  # variables: units, whether a home has one, missing ones
    of_llm = np.array([[unit.llm == llm for unit in units] for llm in llms], np.int64)
    of_home = np.array([[(unit.llm, unit.region) == home for unit in units] for home in homes], np.int64)
    home_of_llm = np.array([[home[0] == llm for home in homes] for llm in llms], np.int64)
    at_least = np.block(
        [
            [of_llm, np.zeros((m, h)), np.eye(m)],
            [np.zeros((m, n)), home_of_llm, np.eye(m)],
            [of_home, -np.eye(h), np.zeros((h, m))],
        ]
    )
    uses, limits = unit_limits(catalogue, fleet, units)
    at_most = np.hstack([uses, np.zeros((len(uses), h + m))])
    usd = np.array([unit.usd_per_hour for unit in units])
    found = optimize.milp(
        np.concatenate([usd + preferences_usd(of_llm), np.zeros(h), np.full(m, 1 + 2 * usd.sum())]),
        integrality=np.ones(n + h + m),
        bounds=optimize.Bounds(0, np.repeat([floors.max(), 1, floors.max()], [n, h, m])),
        constraints=[
            optimize.LinearConstraint(at_least, lb=np.concatenate([*floors.T, np.zeros(h)])),
            optimize.LinearConstraint(at_most, ub=limits),
        ],
        options={"mip_rel_gap": 0.0},
    )
    counts = np.round(found.x).astype(np.int64)
    return counts[:n], counts[n + h :]


def unit_limits(catalogue: Catalogue, fleet: FleetConfig, units: Sequence[ServingUnit]) -> tuple[Ints, Ints]:
    """Return what each unit uses of what is limited, (limits, units), and how much there is, (limits,).

    Limited are the instances of each pool, and the GPUs of each region and type.
    """
    free = free_gpus(catalogue, fleet)
    pools = list(dict.fromkeys(place for unit in units for place in unit.instances))
    uses = [[unit.instances[place] for unit in units] for place in pools]
    uses += [[unit.gpus[place] for unit in units] for place in free]
    most = [fleet.limits(fleet.deployments[llm][number])[2] for llm, number, _ in pools]
    return np.reshape(uses, (len(uses), len(units))), np.array([*most, *free.values()])


def preferences_usd(of_llm: Ints) -> Floats:
    """Return a cost of each unit that grows with its rank among those of its llm, (units,); (llms, units)."""
    ranks = ((of_llm.cumsum(axis=1) - 1) * of_llm).sum(axis=0)
    return PREFERENCE_USD * ranks / max(1, 2 * len(of_llm) * ranks.max(initial=0))


def list_serving_units(catalogue: Catalogue, fleet: FleetConfig, llm: str) -> Iterator[ServingUnit]:
    """Yield the units of an llm: by deployment, and by region in the deployment's order."""
    deployments = fleet.deployments[llm]
    for number, pool in enumerate(deployments):
        if pool.role == "decode":
            continue
        decode = handover_target(fleet, llm, pool)
        numbers = [number] if decode is None else [number, deployments.index(decode)]
        counts = {number: max(deployments[number].team, 1) for number in numbers}
        may_run = pool_regions(pool, catalogue)
        for region in (name for name in pool.regions or catalogue.regions if name in may_run):
            gpus: Counter[GpuPlace] = Counter()
            for part, count in counts.items():
                gpus[region, deployments[part].gpu] += deployments[part].gpus * count
            yield ServingUnit(
                llm,
                region,
                Counter({(llm, part, region): count for part, count in counts.items()}),
                gpus,
                sum(catalogue.gpus[gpu].usd_per_hour * count for (_, gpu), count in gpus.items()),
            )


def free_gpus(catalogue: Catalogue, fleet: FleetConfig) -> dict[GpuPlace, int]:
    """Return the GPUs of each region and type that the minima of llms without a floor leave."""
    used: Counter[GpuPlace] = Counter()
    for llm, pools in fleet.deployments.items():
        for pool in pools if fleet.survival(llm) is None else ():
            for region in pool_regions(pool, catalogue):
                used[region, pool.gpu] += pool.gpus * fleet.limits(pool)[1]
    return {
        (name, gpu): max(0, cap - used[name, gpu])
        for name, region in catalogue.regions.items()
        for gpu, cap in region.cap_gpus.items()
    }


def check_floors(file: str, fleet: FleetConfig, catalogue: Catalogue) -> None:
    """Raise ConfigError for a floor of an unknown llm, one next to a minimum, and one without room."""
    where = f"{file} [fleet]"
    for llm in fleet.survive_by_llm:
        require_known(llm, fleet.deployments, "llm", f"{where} survive_by_llm")
    for llm, pools in fleet.deployments.items():
        least = max(fleet.limits(pool)[1] for pool in pools)
        if least and (kind := fleet.survival(llm)) is not None:
            raise ConfigError(
                f'{where}: {llm} has survive = "{kind}" and min_instances = {least}, and only one of them '
                "may set its minimum. Set min_instances = 0, or drop survive."
            )
    for llm, missing in place_floors(catalogue, fleet).missing.items():
        floor = SURVIVAL_FLOORS[fleet.survival(llm) or "none"]
        raise ConfigError(
            f'{where}: {llm} has survive = "{fleet.survival(llm)}", which needs {floor.instances} '
            f"instances in {floor.regions} or more regions, and {missing} of them has no room. "
            "Raise max_instances, or cap_gpus (regions.toml), or deploy it in more regions."
        )
