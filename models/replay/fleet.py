"""A fleet and its rules, laid out for the kernel from the catalogue and the configuration."""

import numpy as np

from models.latency import tables
from models.replay.pools import POOLINGS
from models.replay.scale import SCALINGS
from models.replay.state import ALL_STEPS, NOBODY, Fleet, Floats, Ints, Rules
from models.world.catalogue import Catalogue
from models.world.config import BATCHINGS, ORDERS, ROUTINGS, FleetConfig, ReplayConfig
from models.world.reading import ConfigError

SPOT_SIGMA = 0.69  # lognormal spread that puts the largest of 100 draws at five times the median
SPOT_DRAWS = 4096


def make_fleet(
    catalogue: Catalogue, config: FleetConfig, replay: ReplayConfig, seed: int, pooling: str = "unified"
) -> Fleet:
    """Lay a configured fleet out for the kernel; ConfigError where an llm does not fit its GPUs.

    `seed` draws the minutes that reclaiming a spot instance takes; `pooling` is a name in POOLINGS.
    """
    regions, llms, gpus = list(catalogue.regions), list(catalogue.llms), list(catalogue.gpus)
    missing = [llm for llm in llms if llm not in config.deployments]
    if missing:
        raise ConfigError(
            f"[fleet.deployments] has no entry for {', '.join(missing)}, which llms.toml lists. "
            "Add a gpu and a tensor_parallel degree for each."
        )
    deployments = [config.deployments[llm] for llm in llms]
    profiles = [
        catalogue.profile(llm, d.gpu, d.tensor_parallel) for llm, d in zip(llms, deployments, strict=True)
    ]
    kinds, shares = (np.array(column) for column in zip(*POOLINGS[pooling], strict=True))
    per_pool = len(llms) * len(regions)
    gpu_caps = [[site.cap_gpus.get(d.gpu, 0) for site in catalogue.regions.values()] for d in deployments]
    has_gpus = np.tile(np.ravel(gpu_caps) > 0, kinds.size).astype(np.int64)
    slots, starting = (
        np.repeat(pool_sizes(instances, shares, config.min_instances), per_pool) * has_gpus
        for instances in (config.max_instances, config.instances_at_start)
    )
    if not slots.any():
        raise ConfigError("No region has the GPUs of any [fleet.deployments]. Add them to a cap_gpus.")
    endpoint = np.repeat(np.arange(slots.size), slots)
    preference = np.full((len(regions), len(regions)), NOBODY)
    for origin, region in enumerate(catalogue.regions.values()):
        preference[origin, : len(region.preference)] = [regions.index(name) for name in region.preference]
    return Fleet(
        slots=np.concatenate([[0], np.cumsum(slots)]),
        endpoint=endpoint,
        llm=endpoint // len(regions) % len(llms),
        pools=kinds,
        pool_share=shares,
        kv_capacity=np.array([kv_capacity_tokens(catalogue, config, llm) for llm in llms]),
        kv_block_tokens=config.kv_block_tokens,
        gpu=np.array([gpus.index(d.gpu) for d in deployments]),
        gpus=np.array([d.tensor_parallel for d in deployments]),
        cap_gpus=np.array([[r.cap_gpus.get(gpu, 0) for gpu in gpus] for r in catalogue.regions.values()]),
        instances_at_start=starting,
        min_instances=config.min_instances * has_gpus,
        batching=BATCHINGS.index(config.batching),
        max_batch=config.max_batch,
        max_prefill_tokens=config.max_prefill_tokens,
        preference=preference,
        network_s=np.array(
            [[r.network_s.get(other, 0.0) for other in regions] for r in catalogue.regions.values()]
        ),
        boot_cold_s=np.array(
            [
                replay.boot_local_s if llm in region.weights else replay.boot_remote_s
                for _ in kinds
                for llm in llms
                for region in catalogue.regions.values()
            ]
        ),
        boot_spot_s=spot_delays_s(replay, seed),
        latency=tables(profiles, config.max_batch),
    )


def pool_sizes(instances: int, shares: Floats, least: int) -> Ints:
    """So many instances by pool, shape (K,): by share, each at least `least`; the first takes the rest."""
    sizes = np.maximum(np.round(instances * shares).astype(np.int64), least)
    sizes[0] = max(instances - sizes[1:].sum(), least)
    return sizes


def kv_capacity_tokens(catalogue: Catalogue, config: FleetConfig, llm: str) -> int:
    """KV tokens that fit on one instance beside the weights, in whole blocks."""
    deployment = config.deployments[llm]
    memory_bytes = catalogue.gpus[deployment.gpu].memory_gib * 2**30 * deployment.tensor_parallel
    room_bytes = memory_bytes * config.kv_memory_share - catalogue.llms[llm].weight_bytes
    blocks = int(room_bytes // (catalogue.llms[llm].kv_bytes_per_token * config.kv_block_tokens))
    tokens = blocks * config.kv_block_tokens
    if tokens < 1:
        raise ConfigError(
            f"[fleet.deployments] {llm}: weights take {catalogue.llms[llm].weight_bytes / 2**30:.0f} GiB, "
            f"{deployment.tensor_parallel} x {deployment.gpu} offer "
            f"{memory_bytes * config.kv_memory_share / 2**30:.0f} GiB. Raise tensor_parallel."
        )
    return tokens


def spot_delays_s(replay: ReplayConfig, seed: int) -> Floats:
    """Seconds to reclaim a spot instance: lognormal about the median, at most the maximum (SageServe 7.1)."""
    draws = np.random.default_rng([seed, 0x5907]).lognormal(
        np.log(replay.boot_spot_s), SPOT_SIGMA, SPOT_DRAWS
    )
    return np.clip(draws, replay.boot_spot_s / 2, replay.boot_spot_max_s)


def make_rules(catalogue: Catalogue, replay: ReplayConfig, scaling: str, *, leap: bool = True) -> Rules:
    """The kernel's view of the configured thresholds; `leap=False` plays every decode step (for tests)."""
    if scaling not in SCALINGS:
        raise ValueError(f"Unknown scaling {scaling!r}; there are {', '.join(SCALINGS)}.")
    return Rules(
        scaling=SCALINGS.index(scaling),
        routing=ROUTINGS.index(replay.routing),
        order=ORDERS.index(replay.order),
        allowance_s=np.array([t.ttft_slo_s or t.deadline_s for t in catalogue.tiers.values()]),
        tau_p_s=replay.tau_p_s,
        tau_n_s=replay.tau_n_s,
        route_utilisation_share=replay.route_utilisation_share,
        scale_out_share=replay.scale_out_share,
        scale_in_share=replay.scale_in_share,
        cooldown_s=replay.cooldown_s,
        monitor_s=replay.monitor_s,
        niw_pull_one_share=replay.niw_pull_one_share,
        niw_pull_two_share=replay.niw_pull_two_share,
        niw_priority_age_s=replay.niw_priority_age_s,
        surge_ratio=replay.surge_ratio,
        slump_ratio=replay.slump_ratio,
        pressure_share=replay.pressure_share,
        correction_s=3600.0 - 60.0 * replay.correction_minutes,
        failure_s=np.zeros(0),
        failure_slot=np.zeros(0, np.int64),
        steps_per_event=ALL_STEPS if leap else 1,
    )


def with_failures(rules: Rules, fleet: Fleet, per_instance_day: float, horizon_s: float, seed: int) -> Rules:
    """The rules and a draw of failures: each slot has a Poisson clock, heard only while it serves."""
    rng = np.random.default_rng([seed, 0xDEAD])
    slots = fleet.endpoint.size
    count = rng.poisson(per_instance_day * horizon_s / 86_400.0 * slots)
    failure_s = np.sort(rng.uniform(0.0, horizon_s, count))
    return rules._replace(failure_s=failure_s, failure_slot=rng.integers(0, slots, count))
