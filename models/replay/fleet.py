"""A fleet and its rules, laid out for the kernel from the catalogue and the configuration."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from models.latency import tables
from models.latency.pipeline import profile_of
from models.replay.pools import POOLINGS
from models.replay.queue import DPA
from models.replay.state import ALL_STEPS, DECODE_ONLY, NOBODY, ROLES, Bools, Fleet, Floats, Ints, Rules
from models.world.catalogue import Catalogue
from models.world.config import (
    BATCHINGS,
    DEMANDS,
    GEARS_BY,
    OPPORTUNISMS,
    ORDERS,
    PREFIXES,
    ROUTINGS,
    SCALINGS,
    SIGNALS,
    SPREADS,
    Deployment,
    Engine,
    FleetConfig,
    Levels,
    ReplayConfig,
)
from models.world.pools import taker
from models.world.reading import ConfigError

SPOT_SIGMA = 0.69  # lognormal spread that puts the largest of 100 draws at five times the median
SPOT_DRAWS = 4096
NETWORK_DRAWS = 65_521  # prime, so that no rhythm of the arrivals meets the same ones
# Of a live move: copies before the last, what the last may leave, and seconds to land, so that a move stops a
# request for the 20 to 30 ms that Llumnix tells.


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
    rows = pool_rows(catalogue, config, POOLINGS[pooling])
    kinds = list(dict.fromkeys(row.kind for row in rows))
    kind = np.array([kinds.index(row.kind) for row in rows])
    slots = np.array([row.max_instances for row in rows])
    if not slots.any():
        raise ConfigError("No region has the GPUs of any [fleet.deployments]. Add them to a cap_gpus.")
    pool = np.repeat(np.arange(slots.size), slots)
    endpoint = np.array([llms.index(row.kind.llm) * len(regions) + regions.index(row.region) for row in rows])
    llm, region = np.divmod(endpoint, len(regions))
    is_interactive = np.array([not tier.is_held for tier in catalogue.tiers.values()])
    takes = np.array([np.where(is_interactive, row.takes_interactive, row.takes_others) for row in rows])
    is_mixed = np.array([row.takes_interactive and row.takes_others for row in rows])
    kv_capacity = np.array([kv_tokens_of(catalogue, config, each) for each in kinds])
    then = np.array([NOBODY if row.then is None else row.then for row in rows])
    longest = np.minimum(
        kv_capacity[kind], kv_capacity[kind[np.where(then == NOBODY, range(len(rows)), then)]]
    )
    role = np.array([ROLES.index(row.role) for row in rows])
    preference = np.full((len(regions), len(regions)), NOBODY)
    for origin, site in enumerate(catalogue.regions.values()):
        preference[origin, : len(site.preference)] = [regions.index(name) for name in site.preference]
    return Fleet(
        pools_of=pools_by_endpoint(endpoint, len(llms) * len(regions)),
        llm=llm,
        region=region,
        kind=kind,
        takes=takes,
        role=role,
        then=then,
        hands_over=bool((then != NOBODY).any() or replay.cascades or replay.is_balanced),
        longest=longest,
        roomiest=np.array(
            [longest[(llm == code) & (role != DECODE_ONLY)].max() for code in range(len(llms))]
        ),
        share=np.array([row.share for row in rows]),
        slots=np.concatenate([[0], np.cumsum(slots)]),
        pool=pool,
        slot_kind=kind[pool],
        kv_capacity=kv_capacity,
        kv_block_tokens=config.kv_block_tokens,
        link_token_s=np.array(
            [
                link_token_s(catalogue, config, each.llm, each.gpu, each.gpus, is_needed=replay.is_balanced)
                for each in kinds
            ]
        ),
        link_layers=np.array(
            [catalogue.llms[each.llm].layers if config.hand_over == "layers" else 1 for each in kinds]
        ),
        gpu=np.array([gpus.index(each.gpu) for each in kinds]),
        gpus=np.array([each.gpus for each in kinds]),
        cap_gpus=np.array([[r.cap_gpus.get(gpu, 0) for gpu in gpus] for r in catalogue.regions.values()]),
        instances_at_start=np.array([row.instances_at_start for row in rows]),
        min_instances=np.array([row.min_instances for row in rows]),
        is_interactive=is_interactive,
        team=np.array([row.team for row in rows]),
        weight=np.array([row.weight for row in rows]),
        by_freeness=replay.routing == "freeness",
        tokens_per_s=np.full(len(rows), np.inf),
        holds=np.array([is_mixed[llm == code].any() for code in range(len(llms))]),
        batching=np.array([BATCHINGS.index(each.engine.batching) for each in kinds]),
        max_batch=np.array([each.engine.max_batch for each in kinds]),
        max_prefill_tokens=np.array([each.engine.max_prefill_tokens for each in kinds]),
        is_async=np.array([each.engine.async_scheduling for each in kinds]),
        prefix=PREFIXES.index(config.prefix),
        prefix_block_tokens=config.prefix_block_tokens,
        preference=preference,
        network_s=np.array(
            [[r.network_s.get(other, 0.0) for other in regions] for r in catalogue.regions.values()]
        ),
        network_factor=network_factors(replay, seed),
        boot_cold_s=np.array(
            [boot_cold_s(catalogue, replay, row.kind.llm, row.region, row.kind.gpu) for row in rows]
        ),
        boot_spot_s=spot_delays_s(replay, seed),
        boot_factor=np.array([catalogue.gpus[each.gpu].boot_factor for each in kinds]),
        donate_s=replay.donate_s,
        latency=tables(
            [profile_of(catalogue, *each[:-1]) for each in kinds], [each.engine.max_batch for each in kinds]
        ),
    )


class Kind(NamedTuple):
    """What an instance is: an llm on so many GPUs of a type, with so many stages, and an engine's limits."""

    llm: str
    gpu: str
    tensor_parallel: int
    pipeline_parallel: int
    engine: Engine

    @property
    def gpus(self) -> int:
        """Of an instance."""
        return self.tensor_parallel * self.pipeline_parallel


class PoolRow(NamedTuple):
    """A pool: like instances of an llm in a region."""

    deployment: Deployment
    kind: Kind
    region: str
    role: str
    then: int | None  # row that it hands on to
    takes_interactive: bool
    takes_others: bool
    share: float  # of its endpoint's instances
    weight: float
    team: int
    instances_at_start: int
    min_instances: int
    max_instances: int


def pool_rows(
    catalogue: Catalogue, config: FleetConfig, pooling: Sequence[tuple[bool, bool, float]]
) -> list[PoolRow]:
    """The rows of a fleet, those of an endpoint in their order; without instances where GPUs lack."""
    places = [
        (rank, llm, region, deployment)
        for rank in range(len(pooling))
        for llm, region in itertools.product(catalogue.llms, catalogue.regions)
        for deployment in config.deployments[llm]
        if deployment.regions is None or region in deployment.regions
    ]
    shares = np.array([share for *_, share in pooling])
    rows = []
    for rank, llm, region, deployment in places:
        interactive, others, share = pooling[rank]
        start, least, most = config.limits(deployment)
        there = int(catalogue.regions[region].cap_gpus.get(deployment.gpu, 0) > 0)
        to = taker(config, llm, deployment) if there else None
        row = PoolRow(
            deployment=deployment,
            kind=Kind(
                llm,
                deployment.gpu,
                deployment.tensor_parallel,
                deployment.pipeline_parallel,
                config.engine(deployment),
            ),
            region=region,
            role=deployment.role,
            then=None if to is None else places.index((rank, llm, region, to)),
            takes_interactive=interactive and deployment.role != "decode",
            takes_others=others and deployment.role != "decode",
            share=share,
            weight=deployment.weight,
            team=deployment.team,
            instances_at_start=there * int(pool_sizes(start, shares, least)[rank]),
            min_instances=there * least,
            max_instances=there * int(pool_sizes(most, shares, least)[rank]),
        )
        rows.append(row)
    return rows


def link_token_s(
    catalogue: Catalogue, config: FleetConfig, llm: str, gpu: str, gpus: int, *, is_needed: bool = False
) -> float:
    """Seconds in which an instance sends one token's KV cache: over its GPUs' links, or over the one said.

    0 where nothing is known of its links: then no pool on it hands over (consistency.py). ConfigError where
    requests move between instances (`is_needed`).
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
    """The pools of each endpoint in their order, shape (endpoints, most pools of one)."""
    own = [np.flatnonzero(endpoint == code) for code in range(endpoints)]
    table = np.full((endpoints, max(map(len, own))), NOBODY)
    for code, pools in enumerate(own):
        table[code, : len(pools)] = pools
    return table


def pool_sizes(instances: int, shares: Floats, least: int) -> Ints:
    """So many instances by pool, shape (K,): by share, each at least `least`; the first takes the rest."""
    sizes = np.maximum(np.round(instances * shares).astype(np.int64), least)
    sizes[0] = max(instances - sizes[1:].sum(), least)
    return sizes


def kv_tokens_of(catalogue: Catalogue, config: FleetConfig, kind: Kind) -> int:
    """KV tokens that fit on an instance, in whole blocks: as its engine says, else by formula."""
    if kind.engine.kv_tokens is None:
        return kv_capacity_tokens(catalogue, config, kind.llm, kind.gpu, kind.gpus)
    return kind.engine.kv_tokens // config.kv_block_tokens * config.kv_block_tokens


def kv_capacity_tokens(catalogue: Catalogue, config: FleetConfig, llm: str, gpu: str, gpus: int) -> int:
    """KV tokens that fit on one instance beside the weights, in whole blocks."""
    memory_bytes = catalogue.gpus[gpu].memory_gib * 2**30 * gpus
    room_bytes = memory_bytes * config.kv_memory_share - catalogue.llms[llm].weight_bytes
    blocks = int(room_bytes // (catalogue.llms[llm].kv_bytes_per_token * config.kv_block_tokens))
    tokens = blocks * config.kv_block_tokens
    if tokens < 1:
        raise ConfigError(
            f"[fleet.deployments] {llm}: weights take {catalogue.llms[llm].weight_bytes / 2**30:.0f} GiB, "
            f"{gpus} x {gpu} offer "
            f"{memory_bytes * config.kv_memory_share / 2**30:.0f} GiB. Raise tensor_parallel."
        )
    return tokens


def spot_delays_s(replay: ReplayConfig, seed: int) -> Floats:
    """Seconds to reclaim a spot instance: lognormal about the median, at most the maximum (SageServe 7.1)."""
    draws = np.random.default_rng([seed, 0x5907]).lognormal(
        np.log(replay.boot_spot_s), SPOT_SIGMA, SPOT_DRAWS
    )
    return np.clip(draws, replay.boot_spot_s / 2, replay.boot_spot_max_s)


def boot_cold_s(catalogue: Catalogue, replay: ReplayConfig, llm: str, region: str, gpu: str) -> float:
    """Seconds of a cold start: longer where the weights come from elsewhere."""
    is_local = llm in catalogue.regions[region].weights
    return catalogue.gpus[gpu].boot_factor * (replay.boot_local_s if is_local else replay.boot_remote_s)


def network_factors(replay: ReplayConfig, seed: int) -> Floats:
    """Draws of the network's delay in that of the catalogue, its median: lognormal."""
    if replay.network_sigma == 0:
        return np.ones(1)
    return np.random.default_rng([seed, 0x4E7]).lognormal(0.0, replay.network_sigma, NETWORK_DRAWS)


def make_rules(catalogue: Catalogue, replay: ReplayConfig, scaling: str, *, leap: bool = True) -> Rules:
    """The kernel's view of the configured thresholds; `leap=False` plays every decode step (for tests)."""
    if scaling not in SCALINGS:
        raise ValueError(f"Unknown scaling {scaling!r}; there are {', '.join(SCALINGS)}.")
    judged = {
        llm: (share, cascade.judge_s)  # scores are uniform: so many lie below
        for cascade in replay.cascades.values()
        if cascade.is_judged_outside
        for llm, share in zip(cascade.llms, cascade.go_on_shares, strict=False)
    }
    allowance_s = np.array([tier.allowance_s for tier in catalogue.tiers.values()])
    return Rules(
        scaling=SCALINGS.index(scaling),
        signal=SIGNALS.index(replay.signal),
        routing=ROUTINGS.index(replay.routing),
        order=DPA if replay.order == "late_last" else ORDERS.index(replay.order),
        spread=SPREADS.index(replay.spread),
        headroom_share=headroom_shares(replay.levels),
        is_adaptive=replay.levels.headroom_adapts,
        counts_above=replay.levels.headroom_counts == "above",
        opportunism=OPPORTUNISMS.index(replay.opportunism),
        keep_weight=replay.keep_weight,
        holds_back=replay.levels.least_ceiling_share is not None,
        ceiling_share=ceiling_shares(replay.levels),
        demand=DEMANDS.index(replay.levels.demand),
        promote_s=replay.levels.promote_s or np.inf,
        balance_s=replay.moves.interval_s if replay.is_balanced else np.inf,
        gap_blocks=replay.moves.gap_blocks,
        from_blocks=np.inf if replay.moves.from_blocks is None else replay.moves.from_blocks,
        is_guarded=replay.moves.is_guarded,
        lowest_first=replay.moves.lowest_first,
        freeness_out=replay.freeness_out,
        freeness_in=replay.freeness_in,
        go_on_below=np.array([judged.get(llm, (0.0, 0.0))[0] for llm in catalogue.llms]),
        judge_s=np.array([judged.get(llm, (0.0, 0.0))[1] for llm in catalogue.llms]),
        **gears(catalogue, replay),
        allowance_s=allowance_s,
        urgency=urgencies(allowance_s, np.array([tier.is_held for tier in catalogue.tiers.values()])),
        tau_p_s=replay.tau_p_s,
        tau_n_s=np.inf if replay.order == "late_last" else replay.tau_n_s,
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
        catch_up_s=replay.catch_up_s,
        reflex_share=replay.reflex_share,
        correction_s=3600.0 - 60.0 * replay.correction_minutes,
        last_copy_tokens=replay.moves.last_copy_tokens,
        max_copies=replay.moves.max_copies,
        move_s=replay.moves.hand_over_s,
        failure_s=np.zeros(0),
        failure_slot=np.zeros(0, np.int64),
        steps_per_event=ALL_STEPS if leap else 1,
    )


def gears(catalogue: Catalogue, replay: ReplayConfig) -> dict[str, Any]:
    """The fields of Rules that say which threshold holds when; no gears where no cascade has any."""
    llms = list(catalogue.llms)
    most = max((1 + len(one.gears) for one in replay.cascades.values() if one.gears), default=0)
    seen, least = np.full(len(llms), NOBODY), np.full((len(llms), most), np.inf)
    below, by = np.zeros((len(llms), most)), GEARS_BY[0]
    for cascade in replay.cascades.values():
        if not cascade.gears:
            continue
        by = cascade.gears_by
        for leg, (llm, behind) in enumerate(itertools.pairwise(llms.index(llm) for llm in cascade.llms)):
            seen[llm] = llms.index(cascade.llms[0]) if by == "rate" else behind
            shares = [cascade.go_on_shares, *(gear.go_on_shares for gear in cascade.gears)]
            below[llm, : len(shares)] = [share[leg] for share in shares]
            least[llm, : len(shares)] = [0.0, *(gear.at_least for gear in cascade.gears)]
    return {"gears_by": GEARS_BY.index(by), "gear_llm": seen, "gear_from": least, "gear_below": below}


def headroom_shares(levels: Levels) -> Floats:
    """h e^(-decay p) of each level p, shape (K,); none where there is one level only (Llumnix, eq. 3)."""
    if levels.count == 1:
        return np.zeros(1)
    return levels.headroom_share * np.exp(-levels.headroom_decay * np.arange(levels.count))


def ceiling_shares(levels: Levels) -> Floats:
    """Of each level, shape (K,): by rank from 1 for level 0 down to the least for the last one."""
    least = 1.0 if levels.least_ceiling_share is None else levels.least_ceiling_share
    return np.linspace(1.0, least, levels.count)


def urgencies(allowance_s: Floats, is_held: Bools) -> Ints:
    """The class of each tier, shape (T,): interactive ones by allowance; the others with the last of them."""
    steps = np.unique(allowance_s[~is_held])
    return np.where(is_held, max(steps.size - 1, 0), np.searchsorted(steps, allowance_s))


def with_failures(rules: Rules, fleet: Fleet, per_instance_day: float, horizon_s: float, seed: int) -> Rules:
    """The rules and a draw of failures: each slot has a Poisson clock, heard only while it serves."""
    rng = np.random.default_rng([seed, 0xDEAD])
    slots = fleet.pool.size
    count = rng.poisson(per_instance_day * horizon_s / 86_400.0 * slots)
    failure_s = np.sort(rng.uniform(0.0, horizon_s, count))
    return rules._replace(failure_s=failure_s, failure_slot=rng.integers(0, slots, count))
