"""What kernels take on a GPU type, as data/catalogue/kernels.toml says it: measured, then fitted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fleetcast.models.world.toml_dataclasses import ConfigError, Range

KernelSeconds = Annotated[float, Range(0, 1)]
KernelTokens = Annotated[int, Range(1, 1_000_000)]


@dataclass(frozen=True)
class MatrixProductTimes:
    """Seconds of a matrix product by the tokens that go in: launch_s + weight_s * weights."""

    tokens: tuple[KernelTokens, ...]  # knots
    launch_s: tuple[KernelSeconds, ...]
    weight_s: tuple[KernelSeconds, ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.launch_s) == len(self.weight_s) >= 2:
            sizes = (len(self.tokens), len(self.launch_s), len(self.weight_s))
            raise ConfigError(f"kernels.toml: tokens, launch_s, weight_s have {sizes} knots; needed as many.")


@dataclass(frozen=True)
class KernelTimes:
    """Of one GPU type: models/latency/composed_profiles.py has the formulas."""

    products: Mapping[str, MatrixProductTimes]  # by the bits of a weight
    decode_s: KernelSeconds  # of attention, whatever is cached
    decode_request_s: KernelSeconds
    decode_byte_s: KernelSeconds  # of the cache
    prefill_s: KernelSeconds  # of attention, whatever is asked
    prefill_value_s: KernelSeconds  # per token and number of its heads
    prefill_pair_s: KernelSeconds  # per pair of tokens and number of their heads
    source: str
    lacks: str | None = None  # what was not timed on it, and what stands for that; None: all of it was
