"""[fleet]: what an instance of each llm is, and how many there may be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fleetcast.models.world.mechanisms import BATCHINGS, HAND_OVERS, PREFIXES, ROLES
from fleetcast.models.world.toml_dataclasses import KnownName, PositiveShare, Range

Instances = Annotated[int, Range(0, 10_000)]
MaxBatch = Annotated[int, Range(1, 4096)]
PrefillTokens = Annotated[int, Range(2, 1_000_000)]
BatchingName = Annotated[str, KnownName("batching", BATCHINGS)]


class EngineLimits(NamedTuple):
    """The limits that the engine of an instance keeps."""

    batching: str
    max_batch: int
    max_prefill_tokens: int
    async_scheduling: bool
    kv_tokens: int | None  # that fit beside the weights, as the engine says at its start; None: by formula


@dataclass(frozen=True)
class Deployment:
    """A pool of an llm: instances of so many GPUs of one type, in every region that has them.

    An instance has `pipeline_parallel` stages, each with a share of the layers on `tensor_parallel` GPUs.

    A pool whose role is to prefill hands a request on, with its first token, to a pool of the same llm that
    decodes: the one named `then`, or the only one there is.
    """

    gpu: str
    tensor_parallel: Annotated[int, Range(1, 1024)]
    role: Annotated[str, KnownName("role", ROLES)] = "whole"
    name: str | None = None  # by which another pool hands on to this one
    then: str | None = None
    regions: tuple[str, ...] | None = None  # else all that have the GPUs
    pipeline_parallel: Annotated[int, Range(1, 64)] = 1
    weight: Annotated[float, Range(0, 1_000_000)] = 1.0  # where requests are spread by it
    team: Annotated[int, Range(0, 64)] = 0  # that come and go with some of `then`; 0: each by itself
    instances_at_start: Instances | None = None  # else those of [fleet]; likewise all below
    min_instances: Instances | None = None
    max_instances: Instances | None = None
    batching: BatchingName | None = None
    max_batch: MaxBatch | None = None
    max_prefill_tokens: PrefillTokens | None = None
    async_scheduling: bool | None = None
    kv_tokens: Annotated[int, Range(1, 1_000_000_000)] | None = None  # else by formula

    @property
    def gpus(self) -> int:
        """Of an instance."""
        return self.tensor_parallel * self.pipeline_parallel


@dataclass(frozen=True)
class FleetConfig:
    """The captive fleet: what an instance of each llm is, and how many there may be per endpoint."""

    deployments: Mapping[str, tuple[Deployment, ...]]  # a lone table is a list of one
    instances_at_start: Instances
    min_instances: Instances
    max_instances: Instances
    kv_memory_share: PositiveShare  # of a GPU's memory that weights and KV cache may fill
    kv_block_tokens: Annotated[int, Range(1, 4096)]
    max_batch: MaxBatch  # requests in a batch
    batching: BatchingName  # whole prompts first, chunked, or orca
    max_prefill_tokens: PrefillTokens  # in one step: of a whole batch, or the budget when chunked
    async_scheduling: bool = False  # a step is composed while the one before it runs
    prefix: Annotated[str, KnownName("prefix", PREFIXES)] = "none"  # what of a prompt is not computed again
    prefix_block_tokens: Annotated[int, Range(1, 65_536)] = 512  # of a block that the trace has a hash of
    kv_transfer: Annotated[str, KnownName("hand-over", HAND_OVERS)] = (
        "bulk"  # of a prompt's cache, or by layer
    )
    link_gbit_per_s: Annotated[float, Range(0, 1_000_000, is_above=True)] | None = None  # of an instance

    def limits(self, pool: Deployment) -> tuple[int, int, int]:
        """Instances of a pool: at the start, at least, at most."""
        own = (pool.instances_at_start, pool.min_instances, pool.max_instances)
        common = (self.instances_at_start, self.min_instances, self.max_instances)
        start, least, most = (
            said if said is not None else rest for said, rest in zip(own, common, strict=True)
        )
        return start, least, most

    def engine(self, pool: Deployment) -> EngineLimits:
        """The limits of a pool's engine: its own, else those of the fleet."""
        return EngineLimits(
            self.batching if pool.batching is None else pool.batching,
            self.max_batch if pool.max_batch is None else pool.max_batch,
            self.max_prefill_tokens if pool.max_prefill_tokens is None else pool.max_prefill_tokens,
            self.async_scheduling if pool.async_scheduling is None else pool.async_scheduling,
            pool.kv_tokens,
        )
