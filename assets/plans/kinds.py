"""What a plan chooses from, and the pools of the replay that carry it out.

A plan has cells: a service (i) in a region (j) on an option (k). The replay has pools, the rows of a fleet
that is not parted by tier (models/replay/fleet.py). Like pools, of an llm in a role on the same GPUs in one
region, share a cell.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assets.lake.settings import HOURS, Settings
from models.replay.fleet import PoolRow, pool_rows
from models.replay.pools import POOLINGS
from models.world.cascades import reach
from models.world.config import ROLES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Kind(NamedTuple):
    """Like instances: an llm, what they do of its requests, so many GPUs of a type."""

    llm: str
    role: str
    gpu: str
    gpus: int  # of an instance

    @property
    def service(self) -> tuple[str, str]:
        """The llm and the role: what is planned, whatever it runs on."""
        return self.llm, self.role

    @property
    def option(self) -> tuple[str, int]:
        """What an instance is."""
        return self.gpu, self.gpus


def kinds(settings: Settings) -> list[Kind]:
    """The kinds that the config deploys, service by service in the catalogue's order."""
    found = [
        Kind(llm, role, pool.gpu, pool.gpus)
        for llm in settings.catalogue.llms
        for role in ROLES
        for pool in settings.config.fleet.deployments[llm]
        if pool.role == role
    ]
    return list(dict.fromkeys(found))


def services(settings: Settings) -> list[tuple[str, str]]:
    """Axis i of a plan: llm and role."""
    return list(dict.fromkeys(kind.service for kind in kinds(settings)))


def options(settings: Settings) -> list[tuple[str, int]]:
    """Axis k of a plan: GPU type, in the catalogue's order, and how many of them."""
    gpus = list(settings.catalogue.gpus)
    return sorted({kind.option for kind in kinds(settings)}, key=lambda one: (gpus.index(one[0]), one[1]))


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
    return (
        np.array([of_service.index((row.kind.llm, row.role)) for row in rows]),
        np.array([regions.index(row.region) for row in rows]),
        np.array([of_option.index((row.kind.gpu, row.kind.gpus)) for row in rows]),
    )


def by_pool(settings: Settings, instances: Floats | Ints) -> Floats:
    """Instances of cells, shape (..., i, j, k), by pool, shape (..., pools).

    Of like pools each gets its minimum, then the first as many as it may have, then the next.
    """
    rows, at = pools(settings), cells(settings)
    held = np.asarray(instances, np.float64)[..., *at]
    cell = np.ravel_multi_index(at, shape(settings))
    for alike in (np.flatnonzero(cell == one) for one in np.unique(cell)):
        if alike.size == 1:
            continue
        left, held[..., alike] = held[..., alike[0]].copy(), 0.0
        for limit in ("min_instances", "max_instances"):
            for pool in alike:
                given = np.minimum(left, getattr(rows[pool], limit) - held[..., pool])
                held[..., pool] += given
                left -= given
    return held


def by_cell(settings: Settings, of_pools: Ints) -> Ints:
    """Counts by pool, shape (pools,), by cell, shape (i, j, k)."""
    counts = np.zeros(shape(settings), np.int64)
    np.add.at(counts, cells(settings), of_pools)
    return counts


def hourly_cells(settings: Settings, rows: pd.DataFrame, column: str, slots: int = 1) -> Floats:
    """A column of a plan's rows, which have an `hour`, shape (hours * slots, i, j, k).

    0 where there is no row. Rows of kinds and regions that the config does not have are left out.
    """
    regions = list(settings.catalogue.regions)
    at = {
        (*kind, region): (services(settings).index(kind.service), j, options(settings).index(kind.option))
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
