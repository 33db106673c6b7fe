"""Entries of the catalogue: GPU type, llm, region, tier, latency profile, efficiency of engines.

A class has the keys of its table. Kernel times are in kernel_times.py.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from fleetcast.models.world.toml_dataclasses import ConfigError, KnownName, PositiveShare, Range

Positive = Annotated[float, Range(0, 1_000_000_000, is_above=True)]
NotNegative = Annotated[float, Range(0, 1_000_000_000)]
Count = Annotated[int, Range(1, 1_000_000)]
WeightBits = Annotated[int, Range(1, 64)]
CacheBits = Annotated[int, Range(8, 16)]
VLLM = "vllm"
BACKEND_TITLES = {VLLM: "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
BACKENDS = tuple(BACKEND_TITLES)  # engines whose kernels aiconfigurator-core has timed
BackendName = Annotated[str, KnownName("backend", BACKENDS)]
# Keys of Llm that a deployment may change:
SERVED_KEYS = ("weight_bits", "kv_bits", "is_expert_parallel", "backend")
LlmChanges = tuple[tuple[str, int | str], ...]  # keys of Llm with the values of a deployment that differ


@dataclass(frozen=True)
class Gpu:
    """A GPU type: memory in GiB, dense bf16 TFLOP/s, TB/s of memory bandwidth, USD per GPU-hour.

    `link_gbit_per_s` is the bandwidth of a GPU's network card, used for KV transfers. `boot_factor`
    multiplies the boot times of [replay]. `peer_gb_per_s` is the bandwidth to the other GPUs of its server,
    each way, in GB/s: of NVLink, else of PCIe. `system` is its name in aiconfigurator-core.
    """

    memory_gib: Positive
    peak_tflops: Positive
    bandwidth_tb_per_s: Positive
    usd_per_hour: NotNegative
    source: str
    link_gbit_per_s: Positive | None = None
    boot_factor: Positive = 1.0
    peer_gb_per_s: Positive | None = None
    system: str | None = None


@dataclass(frozen=True)
class Llm:
    """A served llm: sizes of its weights and of its KV cache."""

    parameters_b: Positive
    layers: Count
    heads: Count  # of queries
    kv_heads: Count  # of keys and values
    head_dim: Count
    source: str
    weight_bits: WeightBits = 16  # of a parameter, as served
    hidden: Count | None = None  # width of the hidden state
    intermediate: Count | None = None  # inner width of its feed-forward network; of one expert
    vocabulary: Count | None = None  # number of tokens
    active_parameters_b: Positive | None = None  # mixture of experts: parameters used per token
    experts: Count | None = None  # per layer
    experts_per_token: Count | None = None  # experts of a layer that a token uses
    model: str | None = None  # name on Hugging Face, or a folder with config.json (aiconfigurator-core)
    kv_bits: CacheBits = 16  # of a number in the KV cache
    is_expert_parallel: bool = False  # an instance spreads whole experts over its GPUs, else it splits each
    backend: BackendName = VLLM  # the engine that serves it: its kernels, not its scheduler
    expert_ranks: Count = 1  # data-parallel ranks of an instance, which share the experts
    extra_weight_gb: NotNegative = 0.0  # GB beyond weight_bits of each parameter: parts in 16 bits, scales
    cache_layers: Count | None = None  # layers that keep keys and values of every token; None: all
    request_cache_mb: NotNegative = 0.0  # MB that the other layers keep of a request, whatever its length

    def __post_init__(self) -> None:
        mixture = (self.active_parameters_b, self.experts, self.experts_per_token)
        if any(figure is None for figure in mixture) and any(figure is not None for figure in mixture):
            raise ConfigError(
                f"llms.toml: a mixture of experts needs active_parameters_b, experts and experts_per_token; "
                f"got {mixture}. Give all three or none."
            )

    @property
    def expert_parameters_b(self) -> float:
        """Parameters of all experts, in billions: those that a token does not use are of other experts."""
        if not (self.experts and self.experts_per_token and self.active_parameters_b):
            return 0.0
        return (self.parameters_b - self.active_parameters_b) / (1 - self.experts_per_token / self.experts)

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights on the GPUs of a rank: with its part of the experts."""
        elsewhere_b = self.expert_parameters_b * (1 - 1 / self.expert_ranks)
        return (self.parameters_b - elsewhere_b) * 1e9 * self.weight_bits / 8 + self.extra_weight_gb * 1e9

    def widths(self, name: str) -> tuple[int, int, int]:
        """Return hidden, intermediate and vocabulary; ConfigError, which names the llm, if one is missing."""
        missing = [key for key in ("hidden", "intermediate", "vocabulary") if getattr(self, key) is None]
        if self.hidden is None or self.intermediate is None or self.vocabulary is None:
            raise ConfigError(
                f"llms.toml [{name}] has no {', '.join(missing)}, needed for the work of its phases. "
                "Add it from the model card."
            )
        return self.hidden, self.intermediate, self.vocabulary

    @property
    def attention_layers(self) -> int:
        """Layers that look back at every token."""
        return self.cache_layers or self.layers

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over these layers."""
        return 2 * self.attention_layers * self.kv_heads * self.head_dim * self.kv_bits // 8


@dataclass(frozen=True)
class Region:
    """A region. `preference` orders the regions that may serve its requests; `network_s` is their delay."""

    preference: tuple[str, ...]
    network_s: Mapping[str, NotNegative]
    cap_gpus: Mapping[str, Annotated[int, Range(0, 1_000_000)]]
    weights: tuple[str, ...]  # llms with weights stored in the region: a cold start takes 10 min, else 2 h
    source: str


@dataclass(frozen=True)
class Tier:
    """A tier of requests: their targets (sql/macros/slo.sql), and whether they may be deferred.

    Without `ttft_slo_s` the deadline counts instead; without `tpot_slo_s` there is no target for the TPOT.
    A tier that `is_held` is a batch tier, not interactive: where its requests share instances with
    interactive ones, the queue manager defers them until enough memory is free (SageServe 6.2).
    """

    deadline_s: Positive
    attainment_target_share: PositiveShare
    source: str
    ttft_slo_s: Positive | None = None
    tpot_slo_s: Positive | None = None
    is_held: bool = False

    @property
    def allowance_s(self) -> float:
        """Seconds from arrival to the TTFT target of a request; without one, to its deadline."""
        return self.ttft_slo_s or self.deadline_s


@dataclass(frozen=True)
class LatencyProfile:
    """Latency of one (llm, gpu, tensor-parallel degree): knots, linear between them (models/latency/)."""

    llm: str
    gpu: str
    tensor_parallel: Count
    prefill_tokens: tuple[Count, ...]
    prefill_s: tuple[Positive, ...]
    decode_batch: tuple[Count, ...]
    decode_s: tuple[Positive, ...]  # one step without KV cache, at each batch size
    decode_per_kv_token_s: NotNegative
    _: KW_ONLY  # so an optional key may stand before a required one
    median_error_share: NotNegative | None = None  # end to end, held out; None: by its kind (ErrorLaw)
    source: str
    # of a prompt token, for each token of its prompt that was cached before its pass; None: by the roofline
    prefill_per_context_token_s: NotNegative | None = None
    prefill_median_error_share: NotNegative | None = None  # held out; None: median_error_share
    board_w: Positive | None = None  # mean power of a GPU's board under load; None: not measured
    era: str = ""  # of the engine, where it is not a current one: the year
    # of prefill_s, in the experts that data-parallel ranks share, if each rank has as many tokens; (): none
    expert_s: tuple[NotNegative, ...] = ()


@dataclass(frozen=True)
class ErrorLaw:
    """Law of measured over predicted seconds: exp(bias + sigma * z), z standard normal."""

    bias: float  # above 0: engines are slower than predicted
    sigma: NotNegative


@dataclass(frozen=True)
class PhaseErrors:
    """Laws of the two phases of a profile (models/latency/latency_errors.py)."""

    prefill: ErrorLaw
    decode: ErrorLaw


@dataclass(frozen=True)
class EngineCorrection:
    """What measured runs add to computed profiles (models/latency/engine_correction.py), and their errors."""

    step_doubling_s: NotNegative  # of a pass of a dense llm, per doubling of the GPUs of an instance
    mixture_most_over_roofline: Positive  # the longest decode step of a mixture, times the roofline's
    pcie_gb_per_s: Positive  # a link between GPUs up to this bandwidth is PCIe
    source: str
    composed: PhaseErrors  # errors of computed profiles, by kind
    package_dense: PhaseErrors
    package_mixture: PhaseErrors
    sglang_dense: PhaseErrors  # of the package's profiles of other backends
    sglang_mixture: PhaseErrors
    trtllm_dense: PhaseErrors
    trtllm_mixture: PhaseErrors
    roofline_dense: PhaseErrors
    roofline_mixture: PhaseErrors


@dataclass(frozen=True)
class Efficiency:
    """Share of a GPU's peak that engines reach, and overheads of a pass (models/latency/roofline.py)."""

    flops_share: NotNegative
    bandwidth_share: NotNegative
    expert_bandwidth_share: NotNegative  # of the bandwidth at which other weights are read
    link_share: PositiveShare  # of the bandwidth between the GPUs of an instance
    layer_s: NotNegative
    allreduce_s: NotNegative  # per layer and doubling of the GPUs
    request_s: NotNegative  # of a decode step, per request
    attention_flops_share: PositiveShare  # of the peak, for attention to the tokens before
    median_error_share: NotNegative  # end to end, on the points to which the coefficients were fitted
    source: str
