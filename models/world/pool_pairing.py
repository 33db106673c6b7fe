"""Pairs of prefill and decode pools of an llm, and checks of the pools of a config."""

from collections.abc import Iterable, Sequence

from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Llm
from fleetcast.models.world.fleet_config import Deployment, FleetConfig, are_acceptance_rates
from fleetcast.models.world.toml_dataclasses import ConfigError

DEPLOYMENTS_TABLE = "[fleet.deployments]"


def handover_target(fleet: FleetConfig, llm: str, pool: Deployment) -> Deployment | None:
    """Return the decode pool of a prefill pool (KV transfer); None for other pools.

    ConfigError if `then` does not name exactly one decode pool.
    """
    where = f"{DEPLOYMENTS_TABLE} {llm}, {pool.role} on {pool.gpu}"
    if pool.role != "prefill":
        if pool.then is not None:
            raise ConfigError(f"{where}: then = {pool.then!r}, but only prefill pools have a then. Drop it.")
        return None
    decode_pools = [other for other in fleet.deployments[llm] if other.role == "decode"]
    matching = [other for other in decode_pools if pool.then in (None, other.name)]
    if len(matching) != 1:
        then = "no then" if pool.then is None else f"then = {pool.then!r}"
        raise ConfigError(
            f"{where}: {then}, which fits {len(matching)} decode pools; it needs one. Give that pool "
            'role = "decode" and, where there are several, a name.'
        )
    return matching[0]


def partner_pool(fleet: FleetConfig, llm: str, pool: Deployment) -> Deployment | None:
    """Return the decode pool of a prefill pool, or the first prefill pool of a decode pool; else None."""
    if pool.role != "decode":
        return handover_target(fleet, llm, pool)
    return next(other for other in fleet.deployments[llm] if handover_target(fleet, llm, other) == pool)


def scaling_unit(fleet: FleetConfig, llm: str, pool: Deployment) -> tuple[tuple[Deployment, int], ...]:
    """Return the pools that scale together with this one, with the number of instances of each."""
    if not pool.team:
        return ((pool, 1),)
    prefill = pool if pool.role == "prefill" else partner_pool(fleet, llm, pool)
    assert prefill is not None  # check_pools refuses a team without a pair
    decode = handover_target(fleet, llm, prefill)
    assert decode is not None
    return (prefill, prefill.team), (decode, decode.team)


def part_title(gpu: str, gpus: int, instances: int) -> str:
    """Return the title of instances, like 2 x 4xh100-80gb: two instances of four GPUs each."""
    return f"{gpus}x{gpu}" if instances == 1 else f"{instances} x {gpus}x{gpu}"


def team_title(parts: Iterable[str]) -> str:
    """Return the title of a team from the titles of its parts, prefill first."""
    return " > ".join(parts)


def pool_regions(pool: Deployment, catalogue: Catalogue) -> set[str]:
    """Return the regions in which the pool may have instances."""
    named = catalogue.regions if pool.regions is None else pool.regions
    return {name for name in named if catalogue.regions[name].cap_gpus.get(pool.gpu, 0) > 0}


def check_pools(file: str, fleet: FleetConfig, catalogue: Catalogue) -> None:
    """Raise ConfigError for pools without a partner or a link, and for contradictory names and limits."""
    for llm, pools in fleet.deployments.items():
        try:
            targets = [handover_target(fleet, llm, pool) for pool in pools]
        except ConfigError as error:
            raise ConfigError(f"{file} {error}") from error
        where = f"{file} {DEPLOYMENTS_TABLE} {llm}"
        check_pool_names(where, fleet, pools)
        if all(pool.role == "decode" for pool in pools):
            raise ConfigError(f"{where}: no pool takes requests: all decode. Add one that prefills.")
        for pool, to in zip(pools, targets, strict=True):
            here = f"{where}, {pool.role} on {pool.gpu}"
            check_pool_limits(here, fleet, pool)
            if pool.data_parallel_size > 1:
                check_data_parallel_pool(here, fleet, pool, catalogue.llms[llm])
            if pool.role == "decode" and pool not in targets:
                raise ConfigError(f"{here}: no prefill pool sends to it. Add one, or drop its role.")
            if to is not None:
                check_kv_transfer(here, fleet, pool, to, catalogue)
                check_paired_pools(here, fleet, pool, to, targets.count(to))
            elif pool.team and pool.role == "whole":
                raise ConfigError(f"{here}: team = {pool.team}, but it has no decode pool. Drop it.")
        check_pool_roles(where, pools)


def check_pool_names(where: str, fleet: FleetConfig, pools: Sequence[Deployment]) -> None:
    """Raise ConfigError for pools of the same name, or pools that plans and tables cannot distinguish."""
    names = [pool.name for pool in pools if pool.name is not None]
    if len(set(names)) < len(names):
        raise ConfigError(f"{where}: two pools have one name among {', '.join(names)}. Rename one.")
    by_label = {(pool.role, pool.gpu_title, pool.gpus): pool for pool in pools}
    for pool in pools:
        other = by_label[pool.role, pool.gpu_title, pool.gpus]
        has_same_split = other.tensor_parallel == pool.tensor_parallel
        limits = [(fleet.engine(each), each.llm_changes) for each in (other, pool)]
        if not has_same_split or limits[0] != limits[1]:
            differ = "under different engine limits" if has_same_split else "in different splits"
            raise ConfigError(
                f"{where}: two pools are {pool.gpus} x {pool.gpu_title} {differ}, which plans and "
                "tables cannot distinguish. Give them different numbers of GPUs, or one an engine name."
            )


def check_pool_limits(here: str, fleet: FleetConfig, pool: Deployment) -> None:
    """Raise ConfigError for contradictory limits of a pool or of its engine."""
    start, least, most = fleet.limits(pool)
    if not least <= most or start > most:
        raise ConfigError(
            f"{here}: min_instances = {least}, instances_at_start = {start}, max_instances = {most}; "
            "neither of the first two may exceed the last. Change one."
        )
    engine = fleet.engine(pool)
    if engine.batching != "chunked" and (engine.long_prefill_token_threshold or engine.watermark):
        raise ConfigError(
            f"{here}: long_prefill_token_threshold = {engine.long_prefill_token_threshold} and watermark = "
            f'{engine.watermark} are limits of batching = "chunked", and this pool has "{engine.batching}". '
            "Set both to 0, or change the batching, here or in [fleet]."
        )
    rates = engine.speculative_acceptance
    if rates and (engine.batching != "chunked" or not are_acceptance_rates(rates)):
        raise ConfigError(
            f'{here}: speculative_acceptance = {list(rates)} needs batching = "chunked" (here '
            f'"{engine.batching}") and rates that do not rise: a draft token is accepted only after the one '
            "before it. Change the batching or the rates."
        )
    if engine.max_prefill_tokens <= engine.max_batch * (1 + len(rates)):
        times = f" times {1 + len(rates)} tokens, of which {len(rates)} are drafts" if rates else ""
        raise ConfigError(
            f"{here}: max_prefill_tokens = {engine.max_prefill_tokens} must exceed max_batch = "
            f"{engine.max_batch}{times}. Change one, here or in [fleet]."
        )
    if engine.kv_tokens is not None and engine.kv_tokens < fleet.kv_block_tokens:
        raise ConfigError(
            f"{here}: kv_tokens = {engine.kv_tokens} is less than a block of "
            f"{fleet.kv_block_tokens}. Give the tokens that the engine reports."
        )


def check_data_parallel_pool(here: str, fleet: FleetConfig, pool: Deployment, arch: Llm) -> None:
    """Raise ConfigError for data-parallel ranks of a pool that cannot have them."""
    engine, size = fleet.engine(pool), f"{here}: data_parallel_size = {pool.data_parallel_size}"
    if arch.experts is None:
        raise ConfigError(
            f"{size}, but a dense llm shares no experts: its ranks are instances of their own. Drop it, and "
            "raise the number of instances."
        )
    if pool.role != "whole" or engine.batching != "chunked" or engine.speculative_acceptance:
        raise ConfigError(
            f'{size} needs role = "whole" (here "{pool.role}"), batching = "chunked" (here '
            f'"{engine.batching}"), and no speculative_acceptance (here '
            f"{list(engine.speculative_acceptance)}). "
            "Change them, or drop it."
        )


def check_pool_roles(where: str, pools: Sequence[Deployment]) -> None:
    """Raise ConfigError for an llm with pools for whole requests and also pools for single phases."""
    roles = {"whole" if pool.team else pool.role for pool in pools}
    if "whole" in roles and len(roles) > 1:
        raise ConfigError(
            f"{where}: some pools, or teams of them, serve whole requests, others "
            f"{' or '.join(sorted(roles - {'whole'}))}; a plan needs one kind. Give all of "
            "them such a role, or none, or a team to the pools with such a role."
        )


def check_paired_pools(here: str, fleet: FleetConfig, pool: Deployment, to: Deployment, leaders: int) -> None:
    """Raise ConfigError for a pair of pools with different numbers of teams; `leaders` send to the second."""
    if not pool.team and not to.team:
        return
    limits = [fleet.limits(side) for side in (pool, to)]
    teams = [[n / max(side.team, 1) for n in counts] for side, counts in zip((pool, to), limits, strict=True)]
    if leaders > 1 or not (pool.team and to.team) or teams[0] != teams[1] or any(n % 1 for n in teams[0]):
        sides = " and ".join(
            f"{side.role} team = {side.team} of {', '.join(map(str, counts))}"
            for side, counts in zip((pool, to), limits, strict=True)
        )
        raise ConfigError(
            f"{here}: {sides} instances at the start, minimum and maximum, {leaders} prefill pools; "
            "a pair needs the same number of whole teams on both sides. Change team or the instances."
        )


def check_kv_transfer(
    here: str, fleet: FleetConfig, pool: Deployment, to: Deployment, catalogue: Catalogue
) -> None:
    """Raise ConfigError for a pair of pools in different regions, or without a link for the KV transfer."""
    if unpaired := sorted(pool_regions(pool, catalogue) - pool_regions(to, catalogue)):
        raise ConfigError(
            f"{here}: no instance decodes ({to.gpu}) in {', '.join(unpaired)}. Give both the same regions, "
            "and these regions the GPUs."
        )
    for gpu in (pool.gpu, to.gpu):
        if fleet.link_gbit_per_s is None and catalogue.gpus[gpu].link_gbit_per_s is None:
            raise ConfigError(
                f"{here}: {gpu} has no link_gbit_per_s for KV transfers. Add it to gpus.toml, or to "
                "[fleet] for all."
            )
