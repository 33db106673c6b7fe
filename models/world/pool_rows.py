"""The pools of a configured fleet: instances of one deployment in a region, one row each.

unified  one pool for all tiers; batch requests wait at the queue manager (SageServe 4, 6.2)
siloed   one pool for interactive requests and one for batch requests, which do not wait (SageServe 4)
chiron   interactive, mixed and batch; overflow of the first goes to the second (SageServe 7.1)
"""

import itertools
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LlmChanges
from fleetcast.models.world.fleet_config import Deployment, EngineLimits, FleetConfig
from fleetcast.models.world.floors import place_floors
from fleetcast.models.world.pool_pairing import handover_target

# Whether a pool takes interactive requests, whether it takes batch requests, and its share of an endpoint's
# instances: 16 and 4 of 20 (SageServe 4); 10, 5 and 5 (7.1).
POOLINGS = {
    "unified": ((True, True, 1.0),),
    "siloed": ((True, False, 0.8), (False, True, 0.2)),
    "chiron": ((True, False, 0.5), (True, True, 0.25), (False, True, 0.25)),
}


class InstanceKind(NamedTuple):
    """Kind of an instance: llm, GPU type, parallelism, and the engine's limits."""

    llm: str
    gpu: str
    tensor_parallel: int
    pipeline_parallel: int
    engine: EngineLimits
    llm_changes: LlmChanges = ()
    data_parallel_size: int = 1

    @property
    def rank_gpus(self) -> int:
        """GPUs of a data-parallel rank."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def gpus(self) -> int:
        """GPUs of an instance."""
        return self.rank_gpus * self.data_parallel_size


class PoolRow(NamedTuple):
    """A pool: instances of one deployment in a region."""

    deployment: Deployment
    kind: InstanceKind
    region: str
    role: str
    then: int | None  # row of its decode pool
    takes_interactive: bool
    takes_others: bool
    share: float  # of its endpoint's instances
    weight: float
    team: int
    instances_at_start: int
    min_instances: int
    max_instances: int


def build_pool_rows(catalogue: Catalogue, config: FleetConfig, pooling: str = "unified") -> list[PoolRow]:
    """Return the pools of a fleet, those of an endpoint in the config's order.

    A pool in a region without its GPU type has no instances. `pooling` is a name in POOLINGS.
    """
    parts = POOLINGS[pooling]
    places = [
        (rank, llm, region, number)
        for rank in range(len(parts))
        for llm, region in itertools.product(catalogue.llms, catalogue.regions)
        for number, deployment in enumerate(config.deployments[llm])
        if deployment.regions is None or region in deployment.regions
    ]
    shares = np.array([share for *_, share in parts])
    floors, rows = place_floors(catalogue, config).instances, list[PoolRow]()
    for rank, llm, region, number in places:
        interactive, others, share = parts[rank]
        deployment = config.deployments[llm][number]
        start, least, most = config.limits(deployment)
        least = max(least, floors[llm, number, region])  # of a config only one is above 0
        has_gpus = int(catalogue.regions[region].cap_gpus.get(deployment.gpu, 0) > 0)
        to = handover_target(config, llm, deployment) if has_gpus else None
        row = PoolRow(
            deployment=deployment,
            kind=instance_kind(config, llm, deployment),
            region=region,
            role=deployment.role,
            then=None if to is None else places.index((rank, llm, region, config.deployments[llm].index(to))),
            takes_interactive=interactive and deployment.role != "decode",
            takes_others=others and deployment.role != "decode",
            share=share,
            weight=deployment.weight,
            team=deployment.team,
            instances_at_start=has_gpus * int(pool_sizes(start, shares, least)[rank]),
            min_instances=has_gpus * least,
            max_instances=has_gpus * int(pool_sizes(most, shares, least)[rank]),
        )
        rows.append(row)
    return rows


def instance_kind(config: FleetConfig, llm: str, deployment: Deployment) -> InstanceKind:
    """Return the kind of a deployment's instances."""
    return InstanceKind(
        llm,
        deployment.gpu,
        deployment.tensor_parallel,
        deployment.pipeline_parallel,
        config.engine(deployment),
        deployment.llm_changes,
        deployment.data_parallel_size,
    )


def pool_sizes(instances: int, shares: Floats, least: int) -> Ints:
    """Return the instances of each pool, shape (K,), by share and at least `least`; the first gets the rest.

    `shares` (K,) of the pools.
    """
    sizes = np.maximum(np.round(instances * shares).astype(np.int64), least)
    sizes[0] = max(instances - sizes[1:].sum(), least)
    return sizes
