"""The KV cache that fits on an instance."""

from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.fleet_config import FleetConfig
from fleetcast.models.world.toml_dataclasses import ConfigError


def kv_capacity_tokens(
    catalogue: Catalogue, config: FleetConfig, llm: str, gpu: str, gpus: int, stages: int = 1
) -> int:
    """Return the KV tokens that fit on an instance, or on one of its ranks, with weights, in whole blocks.

    `gpus`: of the instance or rank, in so many pipeline stages. With fewer KV heads than GPUs of a stage,
    each head is kept on several of them, as vLLM does. ConfigError where not even one block fits.
    """
    arch = catalogue.llms[llm]
    token_bytes = arch.kv_bytes_per_token * max(1.0, gpus / stages / arch.kv_heads)
    memory_bytes = catalogue.gpus[gpu].memory_gib * 2**30 * gpus
    room_bytes = memory_bytes * config.kv_memory_share - arch.weight_bytes
    blocks = int(room_bytes // (token_bytes * config.kv_block_tokens))
    tokens = blocks * config.kv_block_tokens
    if tokens < 1:
        raise ConfigError(
            f"[fleet.deployments] {llm}: weights take {arch.weight_bytes / 2**30:.0f} GiB, "
            f"{gpus} x {gpu} have "
            f"{memory_bytes * config.kv_memory_share / 2**30:.0f} GiB. Raise tensor_parallel."
        )
    return tokens
