"""The quality floor: the least bits in which a user allows an llm to be served."""

from collections.abc import Mapping

from fleetcast.models.world.catalogue_entries import Llm

FLOOR_BITS: Mapping[str, int] = {"bf16": 16, "fp8": 8, "fp4": 4}  # least bits of a weight, by quality floor
CACHE_CHOICES = (16, 8)  # bits of a number in the KV cache


def least_weight_bits(arch: Llm, floor: str | None) -> int:
    """Return the least bits of a weight; without a floor, those of the llm."""
    return arch.weight_bits if floor is None else FLOOR_BITS[floor]


def allowed_cache_bits(least_bits: int) -> tuple[int, ...]:
    """Return the bits of the cache that go with a least number of bits of a weight."""
    return CACHE_CHOICES if least_bits < FLOOR_BITS["bf16"] else CACHE_CHOICES[:1]
