"""What a plan chooses from, and the pools of the replay that carry it out.

A plan has cells: a service (i) in a region (j) on an option (k). The replay has pools, the rows of a fleet
that is not parted by tier (replay/session/fleet_arrays.py). Like pools, of an llm in a role on the same GPUs
in one region, share a cell. The two pools of a team do so as well: a team is an option that does whole
requests.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fleetcast.assets.lake.settings import HOURS, Settings
from fleetcast.models.replay.fleet.pools import POOLINGS
from fleetcast.models.replay.session.pool_rows import PoolRow, pool_rows
from fleetcast.models.world.cascades import reach
from fleetcast.models.world.fleet_config import Deployment, FleetConfig
from fleetcast.models.world.mechanisms import ROLES
from fleetcast.models.world.pools import members, part_title, team_title

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Part(NamedTuple):
    """Like instances of an option."""

    gpu: str
    gpus: int  # of an instance
    instances: int


class Option(NamedTuple):
    """What may be held: an instance, or a team of some that prefill and some that decode."""

    gpu: str  # its type; of a team all of its parts
    gpus: int  # in all
    parts: tuple[Part, ...]

    @property
    def title(self) -> str:
        """How plans call it."""
        return self.gpu if self.is_team else f"{self.gpus} x {self.gpu}"

    @property
    def is_team(self) -> bool:
        """Whether prefill and decode stand apart in it."""
        return len(self.parts) > 1


class Kind(NamedTuple):
    """Like options: an llm, what they do of its requests, and what one of them is."""

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


def kind_of(fleet: FleetConfig, llm: str, pool: Deployment) -> Kind:
    """The kind that a pool's instances are, or belong to."""
    parts = tuple(Part(one.gpu, one.gpus, count) for one, count in members(fleet, llm, pool))
    if len(parts) == 1:
        return Kind(llm, pool.role, Option(pool.gpu, pool.gpus, parts))
    gpus = sum(part.gpus * part.instances for part in parts)
    return Kind(llm, "whole", Option(team_title(part_title(*part) for part in parts), gpus, parts))


def kinds(settings: Settings) -> list[Kind]:
    """The kinds that the config deploys, service by service in the catalogue's order."""
    fleet = settings.config.fleet
    found = dict.fromkeys(
        kind_of(fleet, llm, pool) for llm in settings.catalogue.llms for pool in fleet.deployments[llm]
    )
    llms = list(settings.catalogue.llms)
    return sorted(found, key=lambda kind: (llms.index(kind.llm), ROLES.index(kind.role)))


def services(settings: Settings) -> list[tuple[str, str]]:
    """Axis i of a plan: llm and role."""
    return list(dict.fromkeys(kind.service for kind in kinds(settings)))


def options(settings: Settings) -> list[Option]:
    """Axis k of a plan: GPU type, in the catalogue's order, and how many of them; then teams."""
    gpus = list(settings.catalogue.gpus)

    def place(option: Option) -> tuple[bool, list[tuple[int, int, int]]]:
        return option.is_team, [(gpus.index(part.gpu), part.gpus, part.instances) for part in option.parts]

    return sorted({kind.option for kind in kinds(settings)}, key=place)


def pools(settings: Settings) -> list[PoolRow]:
    """The pools of a fleet that is not parted by tier, in the order of its rows."""
    return pool_rows(settings.catalogue, settings.config.fleet, POOLINGS["unified"])


def shape(settings: Settings) -> tuple[int, int, int]:
    """How many services, regions and options there are."""
    return len(services(settings)), len(settings.catalogue.regions), len(options(settings))


def cells(settings: Settings) -> tuple[Ints, Ints, Ints]:
    """Where each pool's instances stand in a plan: i, j and k, each of shape (pools,)."""
    of_service, of_option = services(settings), options(settings)
    regions, rows = list(settings.catalogue.regions), pools(settings)
    own = [kind_of(settings.config.fleet, row.kind.llm, row.deployment) for row in rows]
    return (
        np.array([of_service.index(kind.service) for kind in own]),
        np.array([regions.index(row.region) for row in rows]),
        np.array([of_option.index(kind.option) for kind in own]),
    )


def in_options(settings: Settings) -> Ints:
    """Instances of each pool in one of its option, shape (pools,): 1, or those of a team."""
    return np.array([max(row.team, 1) for row in pools(settings)])


def is_led(row: PoolRow) -> bool:
    """Whether the pool's instances do as those that hand on to them: they are counted with these."""
    return row.team > 0 and row.role == "decode"


def by_pool(settings: Settings, options: Floats | Ints) -> Floats:
    """Options of cells, shape (..., i, j, k), as instances by pool, shape (..., pools).

    Of like pools each gets its minimum, then the first as many as it may have, then the next.
    """
    rows, at, each = pools(settings), cells(settings), in_options(settings)
    held = np.asarray(options, np.float64)[..., *at]
    cell = np.ravel_multi_index(at, shape(settings))
    leads = np.array([not is_led(row) for row in rows])
    for alike in (np.flatnonzero((cell == one) & leads) for one in np.unique(cell)):
        if alike.size == 1:
            continue
        left, held[..., alike] = held[..., alike[0]].copy(), 0.0
        for limit in ("min_instances", "max_instances"):
            for pool in alike:
                given = np.minimum(left, getattr(rows[pool], limit) / each[pool] - held[..., pool])
                held[..., pool] += given
                left -= given
    for leader, row in enumerate(rows):
        if row.team and row.then is not None:
            held[..., row.then] = held[..., leader]
    return held * each


def by_cell(settings: Settings, of_pools: Ints) -> Ints:
    """Instances by pool, shape (pools,), as options by cell, shape (i, j, k)."""
    counts = np.zeros(shape(settings), np.int64)
    leads = np.array([not is_led(row) for row in pools(settings)])
    at = tuple(axis[leads] for axis in cells(settings))
    np.add.at(counts, at, (of_pools // in_options(settings))[leads])
    return counts


def hourly_cells(settings: Settings, rows: pd.DataFrame, column: str, slots: int = 1) -> Floats:
    """A column of a plan's rows, which have an `hour`, shape (hours * slots, i, j, k).

    0 where there is no row. Rows of kinds and regions that the config does not have are left out.
    """
    regions = list(settings.catalogue.regions)
    of_service, of_option = services(settings), options(settings)
    at = {
        (*kind.label, region): (of_service.index(kind.service), j, of_option.index(kind.option))
        for kind in kinds(settings)
        for j, region in enumerate(regions)
    }
    table = np.zeros((HOURS * slots, *shape(settings)))
    names = (rows[name] for name in ("llm", "role", "gpu", "gpus_per_instance", "region"))
    for hour, name, value in zip(rows["hour"], zip(*names, strict=True), rows[column], strict=True):
        if name in at:
            table[round(hour * slots), *at[name]] = value
    return table


def answered_shares(settings: Settings) -> Floats:
    """The share of the requests for each llm that comes to each llm, shape (asked, that answer)."""
    return reach(settings.catalogue, settings.config.replay.cascades)


def answered(settings: Settings, asked: Floats, axis: int) -> Floats:
    """A load by the llm that is asked for, as one by the llm that answers."""
    if not settings.config.replay.cascades:
        return asked
    return np.moveaxis(np.tensordot(answered_shares(settings), asked, axes=(0, axis)), 0, axis)


def of_llms(settings: Settings, of_services: Floats, axis: int = 0) -> Floats:
    """What all services of an llm have in common, such as its demand, by llm instead of by service."""
    names = [llm for llm, _ in services(settings)]
    return np.take(of_services, [names.index(llm) for llm in settings.catalogue.llms], axis=axis)
