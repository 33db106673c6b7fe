"""Build the kernel's arrays of a fleet from the catalogue and the configuration.

Letters of shapes are those of kernel_inputs.py.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.latency import build_latency_tables
from fleetcast.models.latency.pipeline_stages import deployment_profile
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays
from fleetcast.models.replay.session.draft_tables import make_draft_tables, with_drafts
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.fleet_config import FleetConfig
from fleetcast.models.world.instance_kv_memory import fixed_kv_blocks, kv_capacity_tokens
from fleetcast.models.world.mechanisms import Batching, Prefix, Role, code_of_name
from fleetcast.models.world.pool_rows import InstanceKind, PoolRow, build_pool_rows
from fleetcast.models.world.replay_config import ReplayConfig
from fleetcast.models.world.toml_dataclasses import ConfigError

SPOT_SIGMA = 0.69  # lognormal sigma at which the largest of 100 samples is five times the median
SPOT_DRAWS = 4096
NETWORK_DRAWS = 65_521  # prime, so that arrivals at a regular interval do not share samples


def make_fleet(
    catalogue: Catalogue, config: FleetConfig, replay: ReplayConfig, seed: int, pooling: str = "unified"
) -> FleetArrays:
    """Build the arrays of a configured fleet; ConfigError where an llm does not fit on its GPUs.

    `seed` is that of the spot boot times and network delays; `pooling` is a name in POOLINGS.
    """
    missing = [llm for llm in catalogue.llms if llm not in config.deployments]
    if missing:
        raise ConfigError(
            f"[fleet.deployments] has no entry for {', '.join(missing)}, which llms.toml lists. "
            "Add a gpu and a tensor_parallel degree for each."
        )
    rows = build_pool_rows(catalogue, config, pooling)
    if not any(row.max_instances for row in rows):
        raise ConfigError("No region has the GPUs of any [fleet.deployments]. Add them to a cap_gpus.")
    kinds = list(dict.fromkeys(row.kind for row in rows))
    capacity = np.array([instance_kv_tokens(catalogue, config, each) for each in kinds])
    fixed_blocks = np.array([request_kv_blocks(catalogue, config, each) for each in kinds])
    room = capacity - fixed_blocks * config.kv_block_tokens
    pools = pool_fields(catalogue, replay, rows, kinds, room)
    return FleetArrays(
        **pools,
        **kind_fields(catalogue, config, kinds, capacity, replay.is_balanced),
        **region_fields(catalogue, config.frontend_s),
        has_transfers=bool((pools["then"] != NO_INDEX).any() or replay.cascades or replay.is_balanced),
        kv_capacity=capacity,
        kv_block_tokens=config.kv_block_tokens,
        request_blocks=fixed_blocks,
        is_interactive=interactive_tier_mask(catalogue),
        by_freeness=replay.routing == "freeness",
        prefix=code_of_name(Prefix, config.prefix),
        prefix_block_tokens=config.prefix_block_tokens,
        network_factor=network_factors(replay, seed),
        boot_spot_s=spot_delays_s(replay, seed),
        donate_s=replay.donate_s,
    )


def interactive_tier_mask(catalogue: Catalogue) -> Bools:
    """Return which tiers are interactive, shape (T,)."""
    return np.array([not tier.is_held for tier in catalogue.tiers.values()])


def pool_fields(
    catalogue: Catalogue,
    replay: ReplayConfig,
    rows: Sequence[PoolRow],
    kinds: Sequence[InstanceKind],
    room: Ints,
) -> dict[str, Any]:
    """Return the fields of FleetArrays by pool, slot and llm; `room`: shape (J,), KV tokens of a request."""
    llms, regions = list(catalogue.llms), list(catalogue.regions)
    kind = np.array([kinds.index(row.kind) for row in rows])
    slots = np.array([row.max_instances for row in rows])
    ranks = np.array([row.kind.data_parallel_size for row in rows])
    pool, instance_slot, second_rank = place_ranks(slots, ranks)
    endpoint = np.array([llms.index(row.kind.llm) * len(regions) + regions.index(row.region) for row in rows])
    llm, region = np.divmod(endpoint, len(regions))
    is_mixed = np.array([row.takes_interactive and row.takes_others for row in rows])
    then = np.array([NO_INDEX if row.then is None else row.then for row in rows])
    room = room - np.array([len(each.engine.speculative_acceptance) for each in kinds])
    longest = np.minimum(room[kind], room[kind[np.where(then == NO_INDEX, range(len(rows)), then)]])
    role = np.array([code_of_name(Role, row.role) for row in rows])
    answers = role != Role.DECODE
    return {
        "pools_of": pools_by_endpoint(endpoint, len(llms) * len(regions)),
        "llm": llm,
        "region": region,
        "kind": kind,
        "takes": np.array(
            [
                np.where(interactive_tier_mask(catalogue), row.takes_interactive, row.takes_others)
                for row in rows
            ]
        ),
        "role": role,
        "then": then,
        "max_request_tokens": longest,
        "llm_max_request_tokens": np.array(
            [longest[(llm == code) & answers].max() for code in range(len(llms))]
        ),
        "defers_batch_tier": np.array([is_mixed[llm == code].any() for code in range(len(llms))]),
        "share": np.array([row.share for row in rows]),
        "weight": np.array([row.weight for row in rows]),
        "team": np.array([row.team for row in rows]),
        "tokens_per_s": np.full(len(rows), np.inf),
        "slots": np.concatenate([[0], np.cumsum(slots)]),
        "pool": pool,
        "slot_kind": kind[pool],
        "instance_slot": instance_slot,
        "second_rank": second_rank,
        "instances_at_start": np.array([row.instances_at_start for row in rows]),
        "min_instances": np.array([row.min_instances for row in rows]),
        "boot_cold_s": np.array(
            [boot_cold_s(catalogue, replay, row.kind.llm, row.region, row.kind.gpu) for row in rows]
        ),
    }


def place_ranks(instances: Ints, ranks: Ints) -> tuple[Ints, Ints, Ints]:
    """Return pool, slot of the instance, and slot of its second rank, of each slot: shape (N,) each.

    `instances`, `ranks`: shape (E,), instances of each pool, and ranks of each instance. The slots of further
    ranks follow those of all instances.
    """
    pool = np.repeat(np.arange(instances.size), instances)
    more = ranks[pool] - 1  # ranks of each instance beyond its first one
    instance_slot = np.concatenate([np.arange(pool.size), np.repeat(np.arange(pool.size), more)])
    second_rank = np.full(instance_slot.size, NO_INDEX)
    second_rank[: pool.size] = pool.size + np.cumsum(more) - more
    return pool[instance_slot], instance_slot, second_rank


def kind_fields(
    catalogue: Catalogue, config: FleetConfig, kinds: Sequence[InstanceKind], capacity: Ints, moves: bool
) -> dict[str, Any]:
    """Return the fields of FleetArrays by kind; `moves`: requests move between instances.

    capacity: shape (J,), KV tokens.
    """
    gpus = list(catalogue.gpus)
    engines = [each.engine for each in kinds]
    catalogues = [catalogue.as_served(each.llm, each.llm_changes) for each in kinds]
    profiles = [
        deployment_profile(served, each.llm, each.gpu, each.tensor_parallel, each.pipeline_parallel)
        for served, each in zip(catalogues, kinds, strict=True)
    ]
    latency = build_latency_tables(profiles, [engine.max_batch for engine in engines])
    drafts = make_draft_tables(
        [engine.speculative_acceptance for engine in engines],
        [engine.speculative_draft_s for engine in engines],
    )
    by_layer = config.kv_transfer == "layers"
    return {
        "link_token_s": np.array(
            [
                link_token_s(served, config, each.llm, each.gpu, each.gpus, is_needed=moves)
                for served, each in zip(catalogues, kinds, strict=True)
            ]
        ),
        "link_layers": np.array([catalogue.llms[each.llm].layers if by_layer else 1 for each in kinds]),
        "gpu": np.array([gpus.index(each.gpu) for each in kinds]),
        "gpus": np.array([each.gpus for each in kinds]),
        "ranks": np.array([each.data_parallel_size for each in kinds]),
        "batching": np.array([code_of_name(Batching, each.engine.batching) for each in kinds]),
        "max_batch": np.array([each.engine.max_batch for each in kinds]),
        "max_prefill_tokens": np.array([each.engine.max_prefill_tokens for each in kinds]),
        "long_prefill_token_threshold": np.array(
            [each.engine.long_prefill_token_threshold for each in kinds]
        ),
        "watermark_blocks": np.array(
            [watermark_blocks(config, each, tokens) for each, tokens in zip(kinds, capacity, strict=True)]
        ),
        "is_async": np.array([each.engine.async_scheduling for each in kinds]),
        "boot_factor": np.array([catalogue.gpus[each.gpu].boot_factor for each in kinds]),
        "latency": with_drafts(latency, profiles, drafts),
        "drafts": drafts,
    }


def region_fields(catalogue: Catalogue, frontend_s: float) -> dict[str, Any]:
    """Return the fields of FleetArrays by region; every request passes a front end of `frontend_s` seconds.

    The front end is part of `network_s`: its diagonal is the front end alone (collect_outcome).
    """
    regions = list(catalogue.regions)
    sites = catalogue.regions.values()
    preference = np.full((len(regions), len(regions)), NO_INDEX)
    for origin, site in enumerate(sites):
        preference[origin, : len(site.preference)] = [regions.index(name) for name in site.preference]
    return {
        "preference": preference,
        "network_s": frontend_s
        + np.array([[site.network_s.get(other, 0.0) for other in regions] for site in sites]),
        "cap_gpus": np.array([[site.cap_gpus.get(gpu, 0) for gpu in catalogue.gpus] for site in sites]),
    }


def link_token_s(
    catalogue: Catalogue, config: FleetConfig, llm: str, gpu: str, gpus: int, *, is_needed: bool = False
) -> float:
    """Return the seconds in which an instance sends one token's KV cache, over its GPUs' or [fleet]'s link.

    It is 0 where no link is known: then no pool on this GPU type can send caches (consistency.py).
    ConfigError for that where requests move between instances (`is_needed`).
    """
    per_gpu = catalogue.gpus[gpu].link_gbit_per_s
    if is_needed and config.link_gbit_per_s is None and per_gpu is None:
        raise ConfigError(
            f"{gpu} has no link_gbit_per_s, over which requests of {llm} could move between instances. "
            "Add it to gpus.toml, or to [fleet] for all; or take a policy without moves."
        )
    gbit_per_s = config.link_gbit_per_s or (per_gpu or 0.0) * gpus
    return 8e-9 * catalogue.llms[llm].kv_bytes_per_token / gbit_per_s if gbit_per_s else 0.0


def pools_by_endpoint(endpoint: Ints, endpoints: int) -> Ints:
    """Return the pools of each endpoint in order, shape (L*G, W); endpoint: shape (E,), of each pool."""
    by_endpoint = [np.flatnonzero(endpoint == each) for each in range(endpoints)]
    table = np.full((endpoints, max(map(len, by_endpoint))), NO_INDEX)
    for row, pools in enumerate(by_endpoint):
        table[row, : len(pools)] = pools
    return table


def instance_kv_tokens(catalogue: Catalogue, config: FleetConfig, kind: InstanceKind) -> int:
    """Return the KV tokens that fit on an instance, in whole blocks: its engine's, else by formula."""
    if kind.engine.kv_tokens is None:
        served = catalogue.as_served(kind.llm, kind.llm_changes)
        return kv_capacity_tokens(served, config, kind.llm, kind.gpu, kind.rank_gpus, kind.pipeline_parallel)
    tokens = kind.engine.kv_tokens // config.kv_block_tokens * config.kv_block_tokens
    fixed = request_kv_blocks(catalogue, config, kind) * config.kv_block_tokens
    if tokens <= fixed:
        raise ConfigError(
            f"[fleet.deployments] {kind.llm}: kv_tokens = {kind.engine.kv_tokens:,} hold no request, which "
            f"takes {fixed:,} at any length and a block of {config.kv_block_tokens}. Raise it, or drop it."
        )
    return tokens


def request_kv_blocks(catalogue: Catalogue, config: FleetConfig, kind: InstanceKind) -> int:
    """Return the KV blocks that a request takes on an instance whatever its length."""
    served = catalogue.as_served(kind.llm, kind.llm_changes)
    return fixed_kv_blocks(served.llms[kind.llm], config, kind.rank_gpus / kind.pipeline_parallel)


def watermark_blocks(config: FleetConfig, kind: InstanceKind, kv_tokens: int) -> int:
    """Return the KV blocks that an admission leaves free: vLLM counts its null block among all blocks."""
    return int(kind.engine.watermark * (kv_tokens // config.kv_block_tokens + 1))


def spot_delays_s(replay: ReplayConfig, seed: int) -> Floats:
    """Sample seconds to reclaim a spot instance, shape (SPOT_DRAWS,): clipped lognormal (SageServe 7.1)."""
    samples = np.random.default_rng([seed, 0x5907]).lognormal(
        np.log(replay.boot_spot_s), SPOT_SIGMA, SPOT_DRAWS
    )
    return np.clip(samples, replay.boot_spot_s / 2, replay.boot_spot_max_s)


def boot_cold_s(catalogue: Catalogue, replay: ReplayConfig, llm: str, region: str, gpu: str) -> float:
    """Return the seconds of a cold start: longer where the region does not store the weights."""
    is_local = llm in catalogue.regions[region].weights
    return catalogue.gpus[gpu].boot_factor * (replay.boot_local_s if is_local else replay.boot_remote_s)


def network_factors(replay: ReplayConfig, seed: int) -> Floats:
    """Sample network delay / median delay, shape (NETWORK_DRAWS,) or (1,): lognormal."""
    if replay.network_sigma == 0:
        return np.ones(1)
    return np.random.default_rng([seed, 0x4E7]).lognormal(0.0, replay.network_sigma, NETWORK_DRAWS)
