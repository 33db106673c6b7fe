"""[fleet] of a config: the deployments of each llm, their number of instances, and the engine's limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from fleetcast.models.world.catalogue_entries import (
    SERVED_KEYS,
    BackendName,
    CacheBits,
    LlmChanges,
    WeightBits,
)
from fleetcast.models.world.mechanisms import BATCHINGS, HAND_OVERS, PREFIXES, ROLES
from fleetcast.models.world.quality_floor import FLOOR_BITS
from fleetcast.models.world.toml_dataclasses import KnownName, PositiveShare, Range, TextPattern

Instances = Annotated[int, Range(0, 10_000)]
DataParallelSize = Annotated[int, Range(1, 64)]
MaxBatch = Annotated[int, Range(1, 4096)]
PrefillTokens = Annotated[int, Range(2, 1_000_000)]
LongPrefillTokens = Annotated[int, Range(0, 1_000_000)]
FreeShare = Annotated[float, Range(0, 0.9)]
AcceptanceRates = tuple[Annotated[float, Range(0, 1)], ...]
FrontendSeconds = Annotated[float, Range(0, 60)]
DraftSeconds = Annotated[float, Range(0, 10)]
BatchingName = Annotated[str, KnownName("batching", BATCHINGS)]
EngineName = Annotated[
    str, TextPattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", "up to 40 letters, digits, '_', '.' and '-'")
]

ENGINE_MARK = ":"  # between GPU type and engine


class SurvivalFloor(NamedTuple):
    """The fewest instances of an llm, and in how many regions they are."""

    instances: int
    regions: int


# By what an llm must survive: the loss of nothing, of any instance, or of any region.
SURVIVAL_FLOORS = {
    "none": SurvivalFloor(1, 1),
    "instance": SurvivalFloor(2, 1),
    "region": SurvivalFloor(2, 2),
}
SurvivalName = Annotated[str, KnownName("kind of survival", tuple(SURVIVAL_FLOORS))]


class EngineLimits(NamedTuple):
    """Limits of the engine of an instance."""

    batching: str
    max_batch: int
    max_prefill_tokens: int
    async_scheduling: bool
    kv_tokens: int | None  # KV cache tokens that the engine reports at its start; None: by formula
    long_prefill_token_threshold: int
    watermark: float
    speculative_acceptance: tuple[float, ...]
    speculative_draft_s: float


@dataclass(frozen=True)
class Deployment:
    """A pool of an llm: instances with GPUs of one type, in every region that has this type.

    An instance has `pipeline_parallel` stages, each with a share of the layers on `tensor_parallel` GPUs. For
    a mixture of experts it may have several such engines, which step together (`data_parallel_size`).

    A prefill pool sends a request, after its first token, to a decode pool of the same llm (KV transfer): the
    pool named `then`, or the only one.
    """

    gpu: str
    tensor_parallel: Annotated[int, Range(1, 1024)]
    role: Annotated[str, KnownName("role", ROLES)] = "whole"
    name: str | None = None  # for `then` of a prefill pool
    then: str | None = None
    regions: tuple[str, ...] | None = None  # else all regions that have the GPUs
    pipeline_parallel: Annotated[int, Range(1, 64)] = 1
    data_parallel_size: DataParallelSize = 1  # ranks of an instance, which share the experts
    weight: Annotated[float, Range(0, 1_000_000)] = 1.0  # of the pool, where requests are spread by weights
    team: Annotated[int, Range(0, 64)] = 0  # instances that scale with those of `then`; 0: one by one
    instances_at_start: Instances | None = None  # else that of [fleet]; likewise all below
    min_instances: Instances | None = None
    max_instances: Instances | None = None
    batching: BatchingName | None = None
    max_batch: MaxBatch | None = None
    max_prefill_tokens: PrefillTokens | None = None
    async_scheduling: bool | None = None
    kv_tokens: Annotated[int, Range(1, 1_000_000_000)] | None = None  # else by formula
    long_prefill_token_threshold: LongPrefillTokens | None = None
    watermark: FreeShare | None = None
    speculative_acceptance: AcceptanceRates | None = None
    speculative_draft_s: DraftSeconds | None = None
    engine: EngineName | None = None  # its name, where other pools have as many of the same GPUs
    weight_bits: WeightBits | None = None  # else those of the llm; likewise all below
    kv_bits: CacheBits | None = None
    is_expert_parallel: bool | None = None
    backend: BackendName | None = None

    @property
    def rank_gpus(self) -> int:
        """GPUs of a data-parallel rank."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def gpus(self) -> int:
        """GPUs of an instance."""
        return self.rank_gpus * self.data_parallel_size

    @property
    def gpu_title(self) -> str:
        """GPU type in plans and tables, with the engine if it has a name: h100-80gb:fp8."""
        return self.gpu if self.engine is None else f"{self.gpu}{ENGINE_MARK}{self.engine}"

    @property
    def llm_changes(self) -> LlmChanges:
        """Keys of the llm that this deployment changes, with their values."""
        values = ((key, getattr(self, key)) for key in SERVED_KEYS)
        changed = ((key, value) for key, value in values if value is not None)
        return (*changed, *rank_changes(self.data_parallel_size))


def rank_changes(data_parallel_size: int) -> LlmChanges:
    """Return how an llm changes where so many ranks share its experts."""
    return (("expert_ranks", data_parallel_size),) if data_parallel_size > 1 else ()


def are_acceptance_rates(rates: Sequence[float]) -> bool:
    """Return whether these are shares that do not rise: a draft is accepted only after the one before it."""
    return all(0 <= rate <= 1 for rate in rates) and list(rates) == sorted(rates, reverse=True)


def gpu_type(title: str) -> str:
    """Return the GPU type of a `gpu_title`."""
    return title.partition(ENGINE_MARK)[0]


@dataclass(frozen=True)
class FleetConfig:
    """The fleet: deployments of each llm, and numbers of instances per endpoint (llm in a region)."""

    deployments: Mapping[str, tuple[Deployment, ...]]  # a single table is a list of one
    instances_at_start: Instances
    min_instances: Instances
    max_instances: Instances
    kv_memory_share: PositiveShare  # of a GPU's memory, for weights and KV cache
    kv_block_tokens: Annotated[int, Range(1, 4096)]
    max_batch: MaxBatch  # requests in a batch
    batching: BatchingName  # whole prompts first, chunked, or orca
    max_prefill_tokens: PrefillTokens  # in one step: of a whole batch, or the budget when chunked
    async_scheduling: bool = False  # a step is scheduled while the one before it runs
    # Two limits of vLLM's chunked prefill: most prompt tokens of one request in a step (0: no limit), and the
    # share of the KV blocks that an admission leaves free.
    long_prefill_token_threshold: LongPrefillTokens = 0
    watermark: FreeShare = 0.0
    # Speculative decoding: the rate at which each draft token of a step is accepted, and the seconds in which
    # the drafter makes one; no rates: no speculation.
    speculative_acceptance: AcceptanceRates = ()
    speculative_draft_s: DraftSeconds = 0.0
    prefix: Annotated[str, KnownName("prefix", PREFIXES)] = "none"  # kind of prefix cache
    prefix_block_tokens: Annotated[int, Range(1, 65_536)] = 512  # of a block with a hash in the trace
    # KV transfer of a prompt's whole cache at once (bulk), or layer by layer
    kv_transfer: Annotated[str, KnownName("KV transfer", HAND_OVERS)] = "bulk"
    link_gbit_per_s: Annotated[float, Range(0, 1_000_000, is_above=True)] | None = None  # of an instance
    frontend_s: FrontendSeconds = 0.0  # HTTP, tokeniser, detokeniser: outside the engine, of every request
    engines: tuple[str, ...] = ()  # answers of `fleetcast configure`, files: more deployments to plan with
    quality_floor: Annotated[str, KnownName("quality floor", tuple(FLOOR_BITS))] | None = None  # of these
    survive: SurvivalName | None = None  # what each llm must survive, instead of a minimum: floors.py
    survive_by_llm: Mapping[str, SurvivalName] = field(default_factory=dict)  # the same of single llms

    def survival(self, llm: str) -> str | None:
        """Return what an llm must survive; None where its minimum counts."""
        return self.survive_by_llm.get(llm, self.survive)

    def limits(self, pool: Deployment) -> tuple[int, int, int]:
        """Return the instances of a pool (its own, else of the fleet): at the start, minimum, maximum."""
        of_pool = (pool.instances_at_start, pool.min_instances, pool.max_instances)
        of_fleet = (self.instances_at_start, self.min_instances, self.max_instances)
        start, least, most = (
            value if value is not None else default for value, default in zip(of_pool, of_fleet, strict=True)
        )
        return start, least, most

    def engine(self, pool: Deployment) -> EngineLimits:
        """Return the limits of a pool's engine: its own, else those of the fleet."""
        own = {name: getattr(pool, name) for name in EngineLimits._fields}
        of_fleet = {name: getattr(self, name) for name in EngineLimits._fields if name != "kv_tokens"}
        return EngineLimits(**own | {name: value for name, value in of_fleet.items() if own[name] is None})
