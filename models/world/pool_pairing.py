"""The pools of an llm: who hands on to whom, and which lists of pools cannot be."""

from collections.abc import Iterable, Sequence

from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.fleet_config import Deployment, FleetConfig
from fleetcast.models.world.toml_dataclasses import ConfigError

DEPLOYMENTS_TABLE = "[fleet.deployments]"


def handover_target(fleet: FleetConfig, llm: str, pool: Deployment) -> Deployment | None:
    """The pool that this one hands its requests on to; None where it keeps them."""
    where = f"{DEPLOYMENTS_TABLE} {llm}, {pool.role} on {pool.gpu}"
    if pool.role != "prefill":
        if pool.then is not None:
            raise ConfigError(f"{where}: then = {pool.then!r}, but only pools that prefill hand on. Drop it.")
        return None
    decoding = [other for other in fleet.deployments[llm] if other.role == "decode"]
    named = [other for other in decoding if pool.then in (None, other.name)]
    if len(named) != 1:
        asked = "no then" if pool.then is None else f"then = {pool.then!r}"
        raise ConfigError(
            f"{where}: {asked}, which fits {len(named)} pools that decode; it needs one. Give that pool "
            'role = "decode" and, where there are several, a name.'
        )
    return named[0]


def partner_pool(fleet: FleetConfig, llm: str, pool: Deployment) -> Deployment | None:
    """The pool that decodes what this one prefills, or the first that prefills what it decodes; else None."""
    if pool.role != "decode":
        return handover_target(fleet, llm, pool)
    return next(one for one in fleet.deployments[llm] if handover_target(fleet, llm, one) == pool)


def scaling_unit(fleet: FleetConfig, llm: str, pool: Deployment) -> tuple[tuple[Deployment, int], ...]:
    """What comes and goes with an instance of the pool, with how many of each: itself, or its whole team."""
    if not pool.team:
        return ((pool, 1),)
    first = pool if pool.role == "prefill" else partner_pool(fleet, llm, pool)
    assert first is not None  # teams hand on: check_pools
    last = handover_target(fleet, llm, first)
    assert last is not None
    return (first, first.team), (last, last.team)


def part_title(gpu: str, gpus: int, instances: int) -> str:
    """Like instances, like 2 x 4xh100-80gb: two on four GPUs each."""
    return f"{gpus}x{gpu}" if instances == 1 else f"{instances} x {gpus}x{gpu}"


def team_title(parts: Iterable[str]) -> str:
    """What prefills, then what decodes."""
    return " > ".join(parts)


def pool_regions(pool: Deployment, catalogue: Catalogue) -> set[str]:
    """The regions in which the pool may have instances."""
    named = catalogue.regions if pool.regions is None else pool.regions
    return {name for name in named if catalogue.regions[name].cap_gpus.get(pool.gpu, 0) > 0}


def check_pools(file: str, fleet: FleetConfig, catalogue: Catalogue) -> None:
    """Refuse pools that hand on to nobody, decode for nobody, have no link, or have limits that cross."""
    for llm, pools in fleet.deployments.items():
        try:
            takers = [handover_target(fleet, llm, pool) for pool in pools]
        except ConfigError as error:
            raise ConfigError(f"{file} {error}") from error
        where = f"{file} {DEPLOYMENTS_TABLE} {llm}"
        check_pool_names(where, fleet, pools)
        if all(pool.role == "decode" for pool in pools):
            raise ConfigError(f"{where}: no pool takes requests: all decode. Add one that prefills.")
        for pool, to in zip(pools, takers, strict=True):
            here = f"{where}, {pool.role} on {pool.gpu}"
            check_pool_limits(here, fleet, pool)
            if pool.role == "decode" and pool not in takers:
                raise ConfigError(f"{here}: no pool hands on to it. Let one prefill, or drop its role.")
            if to is not None:
                check_kv_transfer(here, fleet, pool, to, catalogue)
                check_paired_pools(here, fleet, pool, to, takers.count(to))
            elif pool.team and pool.role == "whole":
                raise ConfigError(f"{here}: team = {pool.team}, but it hands nothing on. Drop it.")
        check_pool_roles(where, pools)


def check_pool_names(where: str, fleet: FleetConfig, pools: Sequence[Deployment]) -> None:
    """Refuse pools that a name, or plans and tables, would not tell apart."""
    names = [pool.name for pool in pools if pool.name is not None]
    if len(set(names)) < len(names):
        raise ConfigError(f"{where}: two pools have one name among {', '.join(names)}. Rename one.")
    alike = {(pool.role, pool.gpu, pool.gpus): pool for pool in pools}
    for pool in pools:
        other = alike[pool.role, pool.gpu, pool.gpus]
        is_split_alike = other.tensor_parallel == pool.tensor_parallel
        if not is_split_alike or fleet.engine(other) != fleet.engine(pool):
            differ = "under different engine limits" if is_split_alike else "in different splits"
            raise ConfigError(
                f"{where}: two pools are {pool.gpus} x {pool.gpu} {differ}, which plans and "
                "tables would not tell apart. Give them different numbers of GPUs."
            )


def check_pool_limits(here: str, fleet: FleetConfig, pool: Deployment) -> None:
    """Refuse limits of a pool, or of its engine, that cross."""
    start, least, most = fleet.limits(pool)
    if not least <= most or start > most:
        raise ConfigError(
            f"{here}: min_instances = {least}, instances_at_start = {start}, max_instances = {most}; "
            "neither of the first may exceed the last. Change one."
        )
    engine = fleet.engine(pool)
    if engine.max_prefill_tokens <= engine.max_batch:
        raise ConfigError(
            f"{here}: max_prefill_tokens = {engine.max_prefill_tokens} must exceed max_batch = "
            f"{engine.max_batch}. Change one, here or in [fleet]."
        )
    if engine.kv_tokens is not None and engine.kv_tokens < fleet.kv_block_tokens:
        raise ConfigError(
            f"{here}: kv_tokens = {engine.kv_tokens} is less than a block of "
            f"{fleet.kv_block_tokens}. Give the tokens that the engine says fit."
        )


def check_pool_roles(where: str, pools: Sequence[Deployment]) -> None:
    """Refuse an llm that some pools serve whole and others in parts."""
    roles = {"whole" if pool.team else pool.role for pool in pools}
    if "whole" in roles and len(roles) > 1:
        raise ConfigError(
            f"{where}: some pools, or teams of them, do whole requests, others "
            f"{' or '.join(sorted(roles - {'whole'}))}; a plan counts on one or the other. Give all of "
            "them parts, or none, or a team to those that have parts."
        )


def check_paired_pools(here: str, fleet: FleetConfig, pool: Deployment, to: Deployment, leaders: int) -> None:
    """Refuse a pair of pools of which one has teams and the other none, or not as many of them."""
    if not pool.team and not to.team:
        return
    limits = [fleet.limits(side) for side in (pool, to)]
    teams = [[n / max(side.team, 1) for n in own] for side, own in zip((pool, to), limits, strict=True)]
    if leaders > 1 or not (pool.team and to.team) or teams[0] != teams[1] or any(n % 1 for n in teams[0]):
        told = " and ".join(
            f"{side.role} team = {side.team} of {', '.join(map(str, own))}"
            for side, own in zip((pool, to), limits, strict=True)
        )
        raise ConfigError(
            f"{here}: {told} instances at the start, at least and at most, {leaders} pools that hand on; "
            "a pair has as many whole teams on both sides. Change team or the instances."
        )


def check_kv_transfer(
    here: str, fleet: FleetConfig, pool: Deployment, to: Deployment, catalogue: Catalogue
) -> None:
    """Refuse a pair of pools that do not stand in the same regions, or between which there is no link."""
    if lone := sorted(pool_regions(pool, catalogue) - pool_regions(to, catalogue)):
        raise ConfigError(
            f"{here}: no instance decodes ({to.gpu}) in {', '.join(lone)}. Give both the same regions, "
            "and these the GPUs."
        )
    for gpu in (pool.gpu, to.gpu):
        if fleet.link_gbit_per_s is None and catalogue.gpus[gpu].link_gbit_per_s is None:
            raise ConfigError(
                f"{here}: {gpu} has no link_gbit_per_s to hand KV caches over. Add it to gpus.toml, or to "
                "[fleet] for all."
            )
