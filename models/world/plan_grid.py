"""The grid of a plan: services in regions on options, and the pools of the replay that carry it out.

A plan has cells: a service (i) in a region (j) on an option (k). The replay has pools, the rows of a fleet
that is not split by tier (pool_rows.py). Pools of an llm in a role on the same GPUs in one region share a
cell. The two pools of a team do so as well: a team is an option that serves whole requests.
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
    """Like instances of an option."""

    gpu: str
    gpus: int  # of an instance
    instances: int


class Option(NamedTuple):
    """What a plan may hold: an instance, or a team of some that prefill and some that decode."""

    gpu: str  # its type; of a team all of its parts
    gpus: int  # in all
    parts: tuple[OptionPart, ...]

    @property
    def title(self) -> str:
        """How plans call it."""
        return self.gpu if self.is_team else f"{self.gpus} x {self.gpu}"

    @property
    def is_team(self) -> bool:
        """Whether prefill and decode run on different instances of it."""
        return len(self.parts) > 1


class ServiceOption(NamedTuple):
    """An option that a service is deployed on."""

    llm: str
    role: str
    option: Option

    @property
    def service(self) -> tuple[str, str]:
        """The llm and the role: what is planned, whatever it runs on."""
        return self.llm, self.role

    @property
    def label(self) -> tuple[str, str, str, int]:
        """As the rows of a plan name it: llm, role, gpu, gpus_per_instance."""
        return self.llm, self.role, self.option.gpu, self.option.gpus


@dataclass(frozen=True, eq=False)
class Grid:
    """The axes of plans and of the replay's pools, of one fleet. Each is computed once, when first read."""

    catalogue: Catalogue
    fleet: FleetConfig

    @cached_property
    def service_options(self) -> list[ServiceOption]:
        """The options that the config deploys, service by service in the catalogue's order."""
        llms = list(self.catalogue.llms)
        deployed = ((llm, pool) for llm in llms for pool in self.fleet.deployments[llm])
        found = {self.option_of(llm, pool): None for llm, pool in deployed}
        return sorted(found, key=lambda each: (llms.index(each.llm), ROLES.index(each.role)))

    @cached_property
    def services(self) -> list[tuple[str, str]]:
        """Axis i of a plan: llm and role."""
        return list(dict.fromkeys(each.service for each in self.service_options))

    @cached_property
    def regions(self) -> list[str]:
        """Axis j of a plan."""
        return list(self.catalogue.regions)

    @cached_property
    def options(self) -> list[Option]:
        """Axis k of a plan: GPU type, in the catalogue's order, and how many of them; then teams."""
        gpus = list(self.catalogue.gpus)

        def place(option: Option) -> tuple[bool, list[tuple[int, int, int]]]:
            parts = [(gpus.index(part.gpu), part.gpus, part.instances) for part in option.parts]
            return option.is_team, parts

        return sorted({each.option for each in self.service_options}, key=place)

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many services, regions and options there are."""
        return len(self.services), len(self.regions), len(self.options)

    @cached_property
    def pools(self) -> list[PoolRow]:
        """The pools of a fleet that is not split by tier, in the order of its rows."""
        return build_pool_rows(self.catalogue, self.fleet)

    @cached_property
    def cells(self) -> tuple[Ints, Ints, Ints]:
        """The cell of each pool: i, j and k, each of shape (pools,)."""
        own = [self.option_of(row.kind.llm, row.deployment) for row in self.pools]
        return (
            np.array([self.services.index(each.service) for each in own]),
            np.array([self.regions.index(row.region) for row in self.pools]),
            np.array([self.options.index(each.option) for each in own]),
        )

    @cached_property
    def instances_per_option(self) -> Ints:
        """Instances of each pool in one of its option, shape (pools,): 1, or those of a team."""
        return np.array([max(row.team, 1) for row in self.pools])

    @cached_property
    def is_leading_pool(self) -> NDArray[np.bool_]:
        """Whether the pool's instances are counted, shape (pools,).

        False where a team decodes: as many run there as its instances that prefill need.
        """
        return np.array([not (row.team > 0 and row.role == "decode") for row in self.pools])

    def option_of(self, llm: str, pool: Deployment) -> ServiceOption:
        """The option that a pool's instances are, or belong to."""
        parts = tuple(
            OptionPart(one.gpu, one.gpus, count) for one, count in scaling_unit(self.fleet, llm, pool)
        )
        if len(parts) == 1:
            return ServiceOption(llm, pool.role, Option(pool.gpu, pool.gpus, parts))
        gpus = sum(part.gpus * part.instances for part in parts)
        title = team_title(part_title(*part) for part in parts)
        return ServiceOption(llm, "whole", Option(title, gpus, parts))

    def by_pool(self, options: Floats | Ints) -> Floats:
        """Options of cells, shape (..., i, j, k), as instances by pool, shape (..., pools).

        Of pools that share a cell each gets its minimum, then the first up to its maximum, then the next.
        """
        held = np.asarray(options, np.float64)[..., *self.cells]
        cell = np.ravel_multi_index(self.cells, self.shape)
        for alike in (np.flatnonzero((cell == one) & self.is_leading_pool) for one in np.unique(cell)):
            if alike.size == 1:
                continue
            left, held[..., alike] = held[..., alike[0]].copy(), 0.0
            for limit in ("min_instances", "max_instances"):
                for pool in alike:
                    most = getattr(self.pools[pool], limit) / self.instances_per_option[pool]
                    given = np.minimum(left, most - held[..., pool])
                    held[..., pool] += given
                    left -= given
        for leader, row in enumerate(self.pools):
            if row.team and row.then is not None:
                held[..., row.then] = held[..., leader]
        return held * self.instances_per_option

    def to_cells(self, of_pools: Ints) -> Ints:
        """Instances by pool, shape (pools,), as options by cell, shape (i, j, k)."""
        counts = np.zeros(self.shape, np.int64)
        at = tuple(axis[self.is_leading_pool] for axis in self.cells)
        np.add.at(counts, at, (of_pools // self.instances_per_option)[self.is_leading_pool])
        return counts

    def services_to_llms(self, of_services: Floats, axis: int = 0) -> Floats:
        """What all services of an llm have in common, such as its demand, by llm instead of by service."""
        names = [llm for llm, _ in self.services]
        return np.take(of_services, [names.index(llm) for llm in self.catalogue.llms], axis=axis)

    def hourly_cells(self, rows: "pd.DataFrame", column: str, slots: int = 1) -> Floats:
        """A column of a plan's rows, which have an `hour`, shape (hours * slots, i, j, k).

        0 where there is no row. Rows of options and regions that the config does not have are left out.
        """
        at = {
            (*each.label, region): (self.services.index(each.service), j, self.options.index(each.option))
            for each in self.service_options
            for j, region in enumerate(self.regions)
        }
        table = np.zeros((24 * slots, *self.shape))
        names = (rows[name] for name in ("llm", "role", "gpu", "gpus_per_instance", "region"))
        for hour, name, value in zip(rows["hour"], zip(*names, strict=True), rows[column], strict=True):
            if name in at:
                table[round(hour * slots), *at[name]] = value
        return table
