"""What the catalogue says of one thing: a GPU type, an llm, a region, a tier, a latency profile, an engine.

A class has the keys of its table; what kernels take is in kernels.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fleetcast.models.world.toml_dataclasses import ConfigError, PositiveShare, Range

Positive = Annotated[float, Range(0, 1_000_000_000, is_above=True)]
NotNegative = Annotated[float, Range(0, 1_000_000_000)]
Count = Annotated[int, Range(1, 1_000_000)]


@dataclass(frozen=True)
class Gpu:
    """A GPU type: memory in GiB, dense bf16 TFLOP/s, TB/s of memory bandwidth, USD per GPU-hour.

    `link_gbit_per_s` is the bandwidth of a GPU's own network card, over which it hands KV caches on;
    `boot_factor` how long an instance on it boots, in the times of [replay];
    `peer_gb_per_s` the bandwidth to the other GPUs of its server, each way, in GB/s: of NVLink, else of PCIe.
    """

    memory_gib: Positive
    peak_tflops: Positive
    bandwidth_tb_per_s: Positive
    usd_per_hour: NotNegative
    source: str
    link_gbit_per_s: Positive | None = None
    boot_factor: Positive = 1.0
    peer_gb_per_s: Positive | None = None


@dataclass(frozen=True)
class Llm:
    """A served network: what its weights weigh and what one token of its KV cache takes."""

    parameters_b: Positive
    layers: Count
    heads: Count  # of queries
    kv_heads: Count  # of keys and values
    head_dim: Count
    source: str
    weight_bits: Annotated[int, Range(1, 64)] = 16  # of a parameter, as served
    hidden: Count | None = None  # width of what a layer hands to the next
    intermediate: Count | None = None  # inner width of its feed-forward network; of one expert
    vocabulary: Count | None = None  # tokens that it knows
    active_parameters_b: Positive | None = None  # mixture of experts: parameters used per token
    experts: Count | None = None  # per layer, of which a token uses experts_per_token
    experts_per_token: Count | None = None

    def __post_init__(self) -> None:
        mixture = (self.active_parameters_b, self.experts, self.experts_per_token)
        if any(figure is None for figure in mixture) and any(figure is not None for figure in mixture):
            raise ConfigError(
                f"llms.toml: a mixture of experts needs active_parameters_b, experts and experts_per_token; "
                f"got {mixture}. Give all three or none."
            )

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights."""
        return self.parameters_b * 1e9 * self.weight_bits / 8

    def widths(self, name: str) -> tuple[int, int, int]:
        """hidden, intermediate and vocabulary; ConfigError, which names the llm, where one is not told."""
        lacking = [key for key in ("hidden", "intermediate", "vocabulary") if getattr(self, key) is None]
        if self.hidden is None or self.intermediate is None or self.vocabulary is None:
            raise ConfigError(
                f"llms.toml [{name}] has no {', '.join(lacking)}, which the work of its phases hangs on. "
                "Add it from the model card."
            )
        return self.hidden, self.intermediate, self.vocabulary

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers in 16-bit precision."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2


@dataclass(frozen=True)
class Region:
    """A site. `preference` orders the regions that may serve its requests; `network_s` is the added delay."""

    preference: tuple[str, ...]
    network_s: Mapping[str, NotNegative]
    cap_gpus: Mapping[str, Annotated[int, Range(0, 1_000_000)]]
    weights: tuple[str, ...]  # llms whose weights lie in the region: a cold start takes 10 min, else 2 h
    source: str


@dataclass(frozen=True)
class Tier:
    """An urgency class: what its requests must meet (sql/macros/slo.sql), and whether they may wait.

    `ttft_slo_s` is None where the deadline counts instead; `tpot_slo_s` is None where any pace will do.
    Requests of a tier that `is_held` are not interactive: where they share instances with those that are, the
    queue manager holds them back until there is memory to spare (SageServe 6.2).
    """

    deadline_s: Positive
    attainment_target_share: PositiveShare
    source: str
    ttft_slo_s: Positive | None = None
    tpot_slo_s: Positive | None = None
    is_held: bool = False

    @property
    def allowance_s(self) -> float:
        """From its arrival to what a request wants first: the first token, or where none is due the end."""
        return self.ttft_slo_s or self.deadline_s


@dataclass(frozen=True)
class LatencyProfile:
    """Seconds of one (llm, gpu, tensor-parallel degree): knots, linear between them (models/latency/)."""

    llm: str
    gpu: str
    tensor_parallel: Count
    prefill_tokens: tuple[Count, ...]
    prefill_s: tuple[Positive, ...]
    decode_batch: tuple[Count, ...]
    decode_s: tuple[Positive, ...]  # one step without KV cache, at each batch size
    decode_per_kv_token_s: NotNegative
    median_error_share: NotNegative | None  # end to end, held out; None for an estimate
    source: str
    # of a prompt token, for each one of its prompt that was cached before its pass; None: by the roofline
    prefill_per_context_token_s: NotNegative | None = None
    prefill_median_error_share: NotNegative | None = None  # held out; None: as end to end
    board_w: Positive | None = None  # of a GPU's board at work, measured mean; None: nobody measured it


@dataclass(frozen=True)
class Efficiency:
    """What engines reach of a GPU's peak, and what each pass costs beside: models/latency/roofline.py."""

    flops_share: NotNegative
    bandwidth_share: NotNegative
    expert_bandwidth_share: NotNegative  # of the bandwidth that other weights are read at
    link_share: PositiveShare  # of the bandwidth between the GPUs of an instance
    layer_s: NotNegative
    allreduce_s: NotNegative  # per layer and doubling of the GPUs
    request_s: NotNegative  # of a decode step, per request
    attention_flops_share: PositiveShare  # of the peak, in attending to the tokens before
    median_error_share: NotNegative  # end to end, of what the coefficients were fitted to
    source: str
