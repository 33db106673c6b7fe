"""The catalogue, data/catalogue/*.toml: what the world is like. GPUs, llms, regions, tiers, measured latency.

An unknown key, a missing key or a value of the wrong type is refused with the file, the key and the remedy.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from models.world.kernels import Kernels
from models.world.places import ROOT
from models.world.reading import ConfigError, PositiveShare, Range, build, read_toml, require_known

CATALOGUE_DIR = ROOT / "data" / "catalogue"
Positive = Annotated[float, Range(0, 1_000_000_000, is_above=True)]
NotNegative = Annotated[float, Range(0, 1_000_000_000)]
Count = Annotated[int, Range(1, 1_000_000)]

TIER_NAME = re.compile(r"[A-Za-z0-9_-]+")
FILES = ("gpus", "llms", "regions", "tiers", "latency", "roofline", "kernels")
SUMS = ("interactive", "all")  # what tables call several tiers together, so that no tier may be called so


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


@dataclass(frozen=True)
class Catalogue:
    """Everything in data/catalogue. Codes in arrays are positions in these mappings, in file order."""

    gpus: Mapping[str, Gpu]
    llms: Mapping[str, Llm]
    regions: Mapping[str, Region]
    tiers: Mapping[str, Tier]
    latency: tuple[LatencyProfile, ...]
    efficiency: Efficiency
    kernels: Mapping[str, Kernels] = field(default_factory=dict)  # by GPU type, of those that were timed

    def serving(self, llms: Iterable[str]) -> "Catalogue":
        """The same with these llms only, in file order, and what is known of them."""
        chosen = set(llms)
        return replace(
            self,
            llms={name: llm for name, llm in self.llms.items() if name in chosen},
            latency=tuple(profile for profile in self.latency if profile.llm in chosen),
        )

    def asked_by(self, tiers: Iterable[str]) -> "Catalogue":
        """The same for requests of these tiers, as far as they are interactive; whole where none is."""
        present = set(tiers) & set(self.interactive_tiers)
        own = {name: tier for name, tier in self.tiers.items() if name in present}
        return replace(self, tiers=own or self.tiers)

    @property
    def interactive_tiers(self) -> tuple[str, ...]:
        """The tiers whose requests nobody holds back, in file order: what plans cover."""
        return tuple(name for name, tier in self.tiers.items() if not tier.is_held)

    def strictest_tier(self, present: Iterable[str]) -> str | None:
        """The interactive tier of these with the shortest TTFT target, then TPOT target.

        None where none has a target.
        """
        slos = {
            name: (tier.ttft_slo_s or math.inf, tier.tpot_slo_s or math.inf)
            for name in present
            if not (tier := self.tiers[name]).is_held and (tier.ttft_slo_s or tier.tpot_slo_s)
        }
        return min(slos, key=lambda name: slos[name], default=None)

    def profile(self, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
        """The latency profile of a deployment; ConfigError where nobody measured or estimated it."""
        for profile in self.latency:
            if (profile.llm, profile.gpu, profile.tensor_parallel) == (llm, gpu, tensor_parallel):
                return profile
        known = ", ".join(f"{p.tensor_parallel} x {p.gpu}" for p in self.latency if p.llm == llm) or "none"
        raise ConfigError(
            f"latency.toml has no profile of {llm} on {tensor_parallel} x {gpu}; of this llm it has {known}. "
            f"Choose one of these, or estimate it: fleetcast calibrate --llm {llm} --gpu {gpu} "
            f"--tensor-parallel {tensor_parallel} --write."
        )


def load_catalogue(folder: Path = CATALOGUE_DIR) -> Catalogue:
    """The catalogue in a folder; files that are as they were when they were last read are not read again."""
    found = [path.stat() for path in (folder / f"{name}.toml" for name in FILES) if path.exists()]
    return _read_catalogue(folder, tuple((file.st_ino, file.st_size, file.st_mtime_ns) for file in found))


@functools.lru_cache(maxsize=4)  # a night asks some thirty times
def _read_catalogue(folder: Path, _stamps: tuple[tuple[int, int, int], ...]) -> Catalogue:
    """Read the files of the catalogue."""

    def table(name: str, cls: type) -> Any:
        path = folder / f"{name}.toml"
        return {key: build(cls, value, f"{path.name} [{key}]") for key, value in read_toml(path).items()}

    profiles = read_toml(folder / "latency.toml").get("profile", [])
    catalogue = Catalogue(
        gpus=table("gpus", Gpu),
        llms=table("llms", Llm),
        regions=table("regions", Region),
        tiers=table("tiers", Tier),
        latency=tuple(
            build(LatencyProfile, value, f"latency.toml [[profile]] {n + 1}")
            for n, value in enumerate(profiles)
        ),
        efficiency=build(Efficiency, read_toml(folder / "roofline.toml"), "roofline.toml"),
        kernels=table("kernels", Kernels),
    )
    for gpu in catalogue.kernels:
        require_known(gpu, catalogue.gpus, "gpu", f"kernels.toml [{gpu}]")
    check_regions(catalogue, "regions.toml [{}]")
    check_tiers(catalogue, "tiers.toml")
    return catalogue


def check_regions(catalogue: Catalogue, where: str) -> None:
    """Refuse regions, GPU types and llms that nobody knows; `where` takes the name of the region."""
    for name, region in catalogue.regions.items():
        for other in (*region.preference, *region.network_s):
            require_known(other, catalogue.regions, "region", where.format(name))
        for gpu in region.cap_gpus:
            require_known(gpu, catalogue.gpus, "gpu", where.format(name))
        for llm in region.weights:
            require_known(llm, catalogue.llms, "llm", where.format(name))


def check_tiers(catalogue: Catalogue, where: str) -> None:
    """Refuse names that tables use for something else, and tiers of which none says what a plan must hold."""
    for name in catalogue.tiers:
        if name in SUMS or not TIER_NAME.fullmatch(name):
            raise ConfigError(
                f"{where}: got the tier {name!r}, needed letters, digits, _ or -, and neither of "
                f"{' and '.join(SUMS)}, which name several tiers together. Call it something else."
            )
    if catalogue.strictest_tier(catalogue.tiers) is None:
        raise ConfigError(
            f"{where}: of {', '.join(catalogue.tiers) or 'no tier'} none is interactive with a target of "
            "its own. Give one without is_held a ttft_slo_s or a tpot_slo_s."
        )
