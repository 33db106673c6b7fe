"""The grid of a plan: services in regions on options, and their pools in the replay.

A plan has cells: a service (i) in a region (j) on an option (k). The replay has pools, the rows of a fleet
that is not split by tier (pool_rows.py). Pools of an llm in a role on the same GPUs in one region share a
cell. The two pools of a pair (a team: prefill and decode) also share a cell: a team is an option that serves
whole requests.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.fleet_config import Deployment, FleetConfig
from fleetcast.models.world.mechanisms import ROLES
from fleetcast.models.world.pool_pairing import part_title, scaling_unit, team_title
from fleetcast.models.world.pool_rows import PoolRow, build_pool_rows

if TYPE_CHECKING:
    import pandas as pd


class OptionPart(NamedTuple):
    """Instances of one deployment in an option."""

    gpu: str
    gpus: int  # of an instance
    instances: int


class Option(NamedTuple):
    """Unit of a plan: one instance, or a team of prefill and decode instances."""

    gpu: str  # GPU type, with the name of its engine; of a team the title of all its parts
    gpus: int  # total
    parts: tuple[OptionPart, ...]

    @property
    def title(self) -> str:
        """Name of the option in plans."""
        return self.gpu if self.is_team else f"{self.gpus} x {self.gpu}"

    @property
    def is_team(self) -> bool:
        """Whether prefill and decode run on different instances of the option."""
        return len(self.parts) > 1


class ServiceOption(NamedTuple):
    """An option on which a service is deployed."""

    llm: str
    role: str
    option: Option

    @property
    def service(self) -> tuple[str, str]:
        """Service: llm and role."""
        return self.llm, self.role

    @property
    def label(self) -> tuple[str, str, str, int]:
        """Values of the columns llm, role, gpu, gpus_per_instance in the rows of a plan."""
        return self.llm, self.role, self.option.gpu, self.option.gpus


@dataclass(frozen=True, eq=False)
class Grid:
    """Axes of the plans and of the replay's pools of one fleet; each is computed when first read."""

    catalogue: Catalogue
    fleet: FleetConfig

    @cached_property
    def service_options(self) -> list[ServiceOption]:
        """Options that the config deploys, by service in the catalogue's order."""
        llms = list(self.catalogue.llms)
        deployed = ((llm, pool) for llm in llms for pool in self.fleet.deployments[llm])
        found = {self.option_of(llm, pool): None for llm, pool in deployed}
        return sorted(found, key=lambda option: (llms.index(option.llm), ROLES.index(option.role)))

    @cached_property
    def services(self) -> list[tuple[str, str]]:
        """Axis i of a plan: llm and role."""
        return list(dict.fromkeys(option.service for option in self.service_options))

    @cached_property
    def regions(self) -> list[str]:
        """Axis j of a plan: names of the regions."""
        return list(self.catalogue.regions)

    @cached_property
    def options(self) -> list[Option]:
        """Axis k of a plan: by GPU type in the catalogue's order, and number of GPUs; then the teams."""
        gpus = list(self.catalogue.gpus)

        def sort_key(option: Option) -> tuple[bool, list[tuple[int, int, int]], str]:
            parts = [(gpus.index(part.gpu), part.gpus, part.instances) for part in option.parts]
            return option.is_team, parts, option.gpu

        return sorted({deployed.option for deployed in self.service_options}, key=sort_key)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of services, regions and options."""
        return len(self.services), len(self.regions), len(self.options)

    @cached_property
    def pools(self) -> list[PoolRow]:
        """Pools of a fleet that is not split by tier, in the order of its rows."""
        return build_pool_rows(self.catalogue, self.fleet)

    @cached_property
    def pool_options(self) -> list[ServiceOption]:
        """Option of each pool's instances."""
        return [self.option_of(row.kind.llm, row.deployment) for row in self.pools]

    @cached_property
    def cells(self) -> tuple[Ints, Ints, Ints]:
        """Cell of each pool: i, j and k, each of shape (pools,)."""
        return (
            np.array([self.services.index(option.service) for option in self.pool_options]),
            np.array([self.regions.index(row.region) for row in self.pools]),
            np.array([self.options.index(option.option) for option in self.pool_options]),
        )

    @cached_property
    def instances_per_option(self) -> Ints:
        """Instances of each pool in one unit of its option, shape (pools,): 1, or those of a team."""
        return np.array([max(row.team, 1) for row in self.pools])

    @cached_property
    def is_leading_pool(self) -> NDArray[np.bool_]:
        """Whether the pool's instances are counted, shape (pools,).

        False for the decode pool of a team: its instances follow from those of the prefill pool.
        """
        return np.array([not (row.team > 0 and row.role == "decode") for row in self.pools])

    def home_pool(self, llm: str) -> int:
        """Return the number of the first pool of an llm with the largest minimum: it runs anyway."""
        own = [pool for pool, row in enumerate(self.pools) if row.kind.llm == llm]
        return max(own, key=lambda pool: self.pools[pool].min_instances)

    def option_of(self, llm: str, pool: Deployment) -> ServiceOption:
        """Return the option of a pool's instances: one instance, or the team that they belong to."""
        unit = scaling_unit(self.fleet, llm, pool)
        parts = tuple(OptionPart(part.gpu, part.gpus, count) for part, count in unit)
        if len(parts) == 1:
            return ServiceOption(llm, pool.role, Option(pool.gpu_title, pool.gpus, parts))
        gpus = sum(part.gpus * part.instances for part in parts)
        title = team_title(part_title(part.gpu_title, part.gpus, count) for part, count in unit)
        return ServiceOption(llm, "whole", Option(title, gpus, parts))

    def by_pool(self, options: Floats | Ints) -> Floats:
        """Return instances by pool, shape (..., pools), from options by cell, shape (..., i, j, k).

        Pools that share a cell get their minimum each; then the first is filled up to its maximum, then the
        next. The last one gets what is above all maxima.
        """
        counts = np.asarray(options, np.float64)[..., *self.cells]
        pool_cell = np.ravel_multi_index(self.cells, self.shape)
        for cell in np.unique(pool_cell):
            sharing = np.flatnonzero((pool_cell == cell) & self.is_leading_pool)
            if sharing.size == 1:
                continue
            left, counts[..., sharing] = counts[..., sharing[0]].copy(), 0.0
            for limit in ("min_instances", "max_instances"):
                for pool in sharing:
                    most = getattr(self.pools[pool], limit) / self.instances_per_option[pool]
                    added = np.minimum(left, most - counts[..., pool])
                    counts[..., pool] += added
                    left -= added
            counts[..., sharing[-1]] += left
        for leader, row in enumerate(self.pools):
            if row.team and row.then is not None:
                counts[..., row.then] = counts[..., leader]
        return counts * self.instances_per_option

    def instance_capacity(self, of_options: Floats) -> Floats:
        """Return tokens/s of one instance of each pool, (pools,), from those of one option, (i, j, k)."""
        return of_options[self.cells] / self.instances_per_option

    def to_cells(self, of_pools: Ints) -> Ints:
        """Return options by cell, shape (i, j, k), from instances by pool, shape (pools,)."""
        counts = np.zeros(self.shape, np.int64)
        at = tuple(axis[self.is_leading_pool] for axis in self.cells)
        np.add.at(counts, at, (of_pools // self.instances_per_option)[self.is_leading_pool])
        return counts

    def services_to_llms(self, of_services: Floats, axis: int = 0) -> Floats:
        """Return values by llm from values by service along an axis, shape otherwise unchanged.

        The values must be equal for all services of an llm, like its demand.
        """
        names = [llm for llm, _ in self.services]
        return np.take(of_services, [names.index(llm) for llm in self.catalogue.llms], axis=axis)

    def hourly_cells(self, rows: "pd.DataFrame", column: str, slots: int = 1) -> Floats:
        """Return a column of a plan's rows by time slot and cell, shape (24 * slots, i, j, k).

        `rows` have an `hour`; `slots` is the number of slots of an hour. A cell without a row is 0. Rows of
        options and regions that the config does not have are left out.
        """
        cells = {
            (*deployed.label, region): (
                self.services.index(deployed.service),
                j,
                self.options.index(deployed.option),
            )
            for deployed in self.service_options
            for j, region in enumerate(self.regions)
        }
        table = np.zeros((24 * slots, *self.shape))
        names = (rows[name] for name in ("llm", "role", "gpu", "gpus_per_instance", "served_region"))
        for hour, name, value in zip(rows["hour"], zip(*names, strict=True), rows[column], strict=True):
            if name in cells:
                table[round(hour * slots), *cells[name]] = value
        return table
