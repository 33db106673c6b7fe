"""What kernels take on a GPU type, as data/catalogue/kernels.toml says it: measured, then fitted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fleetcast.models.world.reading import ConfigError, Range

Seconds = Annotated[float, Range(0, 1)]
Tokens = Annotated[int, Range(1, 1_000_000)]


@dataclass(frozen=True)
class Products:
    """Seconds of a matrix product by the tokens that go in: launch_s + weight_s * weights."""

    tokens: tuple[Tokens, ...]  # knots
    launch_s: tuple[Seconds, ...]
    weight_s: tuple[Seconds, ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.launch_s) == len(self.weight_s) >= 2:
            sizes = (len(self.tokens), len(self.launch_s), len(self.weight_s))
            raise ConfigError(f"kernels.toml: tokens, launch_s, weight_s have {sizes} knots; needed as many.")


@dataclass(frozen=True)
class Kernels:
    """Of one GPU type: models/latency/kernels.py has the formulas."""

    products: Mapping[str, Products]  # by the bits of a weight
    decode_s: Seconds  # of attention, whatever is cached
    decode_request_s: Seconds
    decode_byte_s: Seconds  # of the cache
    prefill_s: Seconds  # of attention, whatever is asked
    prefill_value_s: Seconds  # per token and number of its heads
    prefill_pair_s: Seconds  # per pair of tokens and number of their heads
    source: str
    lacks: str | None = None  # what was not timed on it, and what stands for that; None: all of it was
