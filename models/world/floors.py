"""Floors by what must survive ([fleet] survive): the fewest instances of each llm, where they cost least.

A floor is placed once, by price and room alone, so every plan and every scaling rule keeps the same one. The
load does not move it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.fleet_config import SURVIVAL_FLOORS, FleetConfig
from fleetcast.models.world.pool_pairing import handover_target, pool_regions
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

MISSING_UNIT_USD = 1e9  # more than any unit costs: a floor is incomplete only where no room is left
ROUNDING_USD = 1e-6

PoolPlace = tuple[str, int, str]  # llm, number of its deployment, region
GpuPlace = tuple[str, str]  # region, GPU type


class ServingUnit(NamedTuple):
    """The instances of one region that serve a request together: one, one for each phase, or a team."""

    region: str
    instances: Counter[PoolPlace]
    gpus: Counter[GpuPlace]
    usd_per_hour: float


class FloorChoice(NamedTuple):
    """Units that an llm may keep, and what they cost."""

    missing: int  # units that it has less than its floor
    usd_per_hour: float
    units: tuple[ServingUnit, ...]
    gpus: Counter[GpuPlace]

    @property
    def penalised_usd(self) -> float:
        """USD per hour, with the penalty for missing units."""
        return self.usd_per_hour + MISSING_UNIT_USD * self.missing


def place_floors(catalogue: Catalogue, fleet: FleetConfig) -> Counter[PoolPlace]:
    """Return the fewest instances of each pool by the floors of its fleet; a floor without room is partial.

    Of placements with the same cost it takes the deployment that is written first, in its first region.
    """
    placed: Counter[PoolPlace] = Counter()
    for choice in choose_floors(catalogue, fleet).values():
        for unit in choice.units:
            placed += unit.instances
    return placed


def choose_floors(catalogue: Catalogue, fleet: FleetConfig) -> dict[str, FloorChoice]:
    """Return the units of each llm with a floor; together they cost least, within the caps of the regions."""
    llms = [llm for llm in fleet.deployments if fleet.survival(llm) is not None]
    if not llms:
        return {}
    choices = [sorted(list_choices(catalogue, fleet, llm), key=lambda one: one.penalised_usd) for llm in llms]
    return dict(zip(llms, cheapest_together(choices, free_gpus(catalogue, fleet)), strict=True))


def list_choices(catalogue: Catalogue, fleet: FleetConfig, llm: str) -> Iterator[FloorChoice]:
    """Yield what an llm may keep: as many units as its floor has, or fewer."""
    floor = SURVIVAL_FLOORS[fleet.survival(llm) or "none"]
    units = list(list_serving_units(catalogue, fleet, llm))
    for count in range(floor.instances, -1, -1):
        for chosen in combinations_with_replacement(units, count):
            instances: Counter[PoolPlace] = sum((unit.instances for unit in chosen), Counter())
            if any(n > pool_maximum(fleet, place) for place, n in instances.items()):
                continue
            regions = len({unit.region for unit in chosen})
            missing = max(floor.instances - count, floor.regions - regions)
            usd = math.fsum(unit.usd_per_hour for unit in chosen)
            yield FloorChoice(missing, usd, chosen, sum((unit.gpus for unit in chosen), Counter()))


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
                region,
                Counter({(llm, part, region): count for part, count in counts.items()}),
                gpus,
                sum(catalogue.gpus[gpu].usd_per_hour * count for (_, gpu), count in gpus.items()),
            )


def pool_maximum(fleet: FleetConfig, place: PoolPlace) -> int:
    """Return the most instances of a pool."""
    llm, number, _ = place
    return fleet.limits(fleet.deployments[llm][number])[2]


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


def cheapest_together(
    choices: Sequence[Sequence[FloorChoice]], free: Mapping[GpuPlace, int]
) -> tuple[FloorChoice, ...]:
    """Return one choice of each llm that together cost least and fit in the free GPUs: branch and bound.

    `choices` of each llm, the cheapest first; one of them has no units.
    """
    places = list(free)
    uses = [[tuple(choice.gpus[place] for place in places) for choice in of_llm] for of_llm in choices]
    rest = [0.0]  # the least that the last llms cost, by their number
    for of_llm in reversed(choices):
        rest.append(rest[-1] + of_llm[0].penalised_usd)
    best, best_usd = tuple[FloorChoice, ...](), math.inf
    reached: dict[tuple[int, tuple[int, ...]], float] = {}

    def search(chosen: tuple[FloorChoice, ...], left: tuple[int, ...], usd: float) -> None:
        nonlocal best, best_usd
        n = len(chosen)
        if n == len(choices):
            best, best_usd = chosen, usd
            return
        if reached.get((n, left), math.inf) <= usd:
            return
        reached[n, left] = usd
        for choice, used in zip(choices[n], uses[n], strict=True):
            both = usd + choice.penalised_usd
            if both + rest[len(choices) - n - 1] >= best_usd - ROUNDING_USD:
                return
            after = tuple(have - need for have, need in zip(left, used, strict=True))
            if min(after, default=0) >= 0:
                search((*chosen, choice), after, both)

    search((), tuple(free.values()), 0.0)
    return best


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
    for llm, choice in choose_floors(catalogue, fleet).items():
        if choice.missing:
            floor = SURVIVAL_FLOORS[fleet.survival(llm) or "none"]
            raise ConfigError(
                f'{where}: {llm} has survive = "{fleet.survival(llm)}", which needs {floor.instances} '
                f"instances in {floor.regions} or more regions, and {choice.missing} of them has no room. "
                "Raise max_instances, or cap_gpus (regions.toml), or deploy it in more regions."
            )
