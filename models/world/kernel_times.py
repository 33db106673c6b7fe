"""Times of kernels by GPU type, from data/catalogue/kernels.toml: measured, then fitted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fleetcast.models.world.toml_dataclasses import ConfigError, Range

KernelSeconds = Annotated[float, Range(0, 1)]
KernelTokens = Annotated[int, Range(1, 1_000_000)]


@dataclass(frozen=True)
class MatrixProductTimes:
    """Seconds of a matrix product by its input tokens: launch_s + weight_s * weights."""

    tokens: tuple[KernelTokens, ...]  # knots
    launch_s: tuple[KernelSeconds, ...]
    weight_s: tuple[KernelSeconds, ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.launch_s) == len(self.weight_s) >= 2:
            sizes = (len(self.tokens), len(self.launch_s), len(self.weight_s))
            raise ConfigError(
                f"kernels.toml: tokens, launch_s, weight_s have {sizes} knots; needed as many of each, >= 2."
            )


@dataclass(frozen=True)
class KernelTimes:
    """Kernel times of one GPU type; models/latency/composed_profiles.py has the formulas."""

    products: Mapping[str, MatrixProductTimes]  # by the bits of a weight
    decode_s: KernelSeconds  # of decode attention, constant part
    decode_request_s: KernelSeconds  # per request of the batch
    decode_byte_s: KernelSeconds  # per byte of the KV cache
    prefill_s: KernelSeconds  # of prefill attention, constant part
    prefill_value_s: KernelSeconds  # per token and number of its query heads' vectors
    prefill_pair_s: KernelSeconds  # per pair of tokens and number of their query heads' vectors
    source: str
    lacks: str | None = None  # kernels that were not timed, and their replacements; None: all were timed
