"""The KV cache that fits on an instance, and what one request takes of it.

    tokens of an instance   (kv_memory_share * memory - weights) / bytes of a token
    bytes of a token        2 * cache_layers * kv_heads * head_dim * kv_bits / 8
    fixed tokens            request_cache_mb / bytes of a token: of a request, whatever its length

All are whole blocks of `kv_block_tokens`. With fewer KV heads than GPUs of a pipeline stage, each head is
kept on several of them, as vLLM does.
"""

from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Llm
from fleetcast.models.world.fleet_config import FleetConfig
from fleetcast.models.world.toml_dataclasses import ConfigError


def kv_capacity_tokens(
    catalogue: Catalogue, config: FleetConfig, llm: str, gpu: str, gpus: int, stages: int = 1
) -> int:
    """Return the KV tokens that fit on an instance, or on one of its ranks, with weights, in whole blocks.

    `gpus`: of the instance or rank, in so many pipeline stages. ConfigError where not even one block fits
    with what a request takes whatever its length.
    """
    arch = catalogue.llms[llm]
    memory_bytes = catalogue.gpus[gpu].memory_gib * 2**30 * gpus
    room_bytes = memory_bytes * config.kv_memory_share - arch.weight_bytes
    blocks = int(room_bytes // kv_block_bytes(arch, config, gpus / stages))
    if blocks <= fixed_kv_blocks(arch, config, gpus / stages):
        state = f", a request {arch.request_cache_mb:,.0f} MB" if arch.request_cache_mb else ""
        raise ConfigError(
            f"[fleet.deployments] {llm}: weights take {arch.weight_bytes / 2**30:.0f} GiB{state}, "
            f"{gpus} x {gpu} have "
            f"{memory_bytes * config.kv_memory_share / 2**30:.0f} GiB. Raise tensor_parallel."
        )
    return blocks * config.kv_block_tokens


def kv_block_bytes(arch: Llm, config: FleetConfig, stage_gpus: float) -> float:
    """Return the bytes of a KV block on an instance with so many GPUs in a stage."""
    return arch.kv_bytes_per_token * max(1.0, stage_gpus / arch.kv_heads) * config.kv_block_tokens


def fixed_kv_blocks(arch: Llm, config: FleetConfig, stage_gpus: float) -> int:
    """Return the KV blocks that a request takes whatever its length: states, and windows."""
    return int(-(-arch.request_cache_mb * 1e6 // kv_block_bytes(arch, config, stage_gpus)))


def fixed_kv_tokens(arch: Llm, config: FleetConfig, stage_gpus: float) -> int:
    """Return the tokens of these blocks."""
    return fixed_kv_blocks(arch, config, stage_gpus) * config.kv_block_tokens


def longest_request_tokens(
    catalogue: Catalogue, config: FleetConfig, llm: str, gpu: str, gpus: int, stages: int = 1
) -> int:
    """Return the tokens of the longest request that an instance or rank can hold; errors as above."""
    room = kv_capacity_tokens(catalogue, config, llm, gpu, gpus, stages)
    return room - fixed_kv_tokens(catalogue.llms[llm], config, gpus / stages)
