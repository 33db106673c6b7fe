"""What a config must be as a whole; what each figure may be by itself, its type in config.py says."""

import math
from datetime import timedelta

from fleetcast.models.world.calendar import require_in_years
from fleetcast.models.world.cascades import check_cascades, check_quality_policies
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig, TraceConfig
from fleetcast.models.world.option_names import LEVELS_BY_SHARES
from fleetcast.models.world.planners import SHIPPED_POLICIES
from fleetcast.models.world.pool_pairing import check_pools
from fleetcast.models.world.toml_dataclasses import TRACE_NAME, ConfigError, require_known
from fleetcast.models.world.traffic_config import BurstConfig

SHARES_TOLERANCE = 1e-6  # by which shares that were rounded may miss 1
SLOTTED_PLANS = ("corrected", "day_ahead", "truth")  # plans that may hold for less than an hour


def check_config(config: RunConfig, catalogue: Catalogue) -> None:
    """Refuse names that nobody knows and figures that contradict each other, before work begins."""
    check_config_figures(config, catalogue)
    check_config_names(config, catalogue)
    check_pools(config.file.name, config.fleet, catalogue)
    check_cascades(config, catalogue)
    check_quality_policies(config, catalogue)
    check_caps(config, catalogue)
    check_priority_config(config, catalogue)


def check_priority_config(config: RunConfig, catalogue: Catalogue) -> None:
    """Refuse shares of levels that are not all of them, and a balancer that is faster than any step."""
    levels, interval_s = config.replay.levels, config.replay.moves.interval_s
    where = f"{config.file.name} [replay"
    if (levels.shares is not None) != (levels.by == LEVELS_BY_SHARES):
        raise ConfigError(
            f'{where}.levels]: by = "{LEVELS_BY_SHARES}" and shares go together. Give both or neither.'
        )
    if levels.shares is not None:
        count, total = len(levels.shares), math.fsum(levels.shares)
        if count != levels.count:
            raise ConfigError(
                f"{where}.levels]: {count} shares for count = {levels.count}. Give one a level."
            )
        if abs(total - 1) > SHARES_TOLERANCE:
            raise ConfigError(f"{where}.levels]: the shares sum to {total:g}, needed 1. Change one of them.")
    steps = {
        min(catalogue.profile(llm, pool.gpu, pool.tensor_parallel).decode_s): llm
        for llm, pools in config.fleet.deployments.items()
        for pool in pools
    }
    if interval_s < (shortest_s := min(steps)):
        raise ConfigError(
            f"{where}.moves]: interval_s = {interval_s:g} is less than the shortest step of any instance, "
            f"{shortest_s:.4f} s of {steps[shortest_s]}: between two steps nothing changes. Raise it."
        )


def check_config_names(config: RunConfig, catalogue: Catalogue) -> None:
    """Refuse llms and regions that the catalogue does not have, and requests for an llm without instances."""
    where, deployments, office = config.file.name, config.fleet.deployments, config.trace.office
    for policy in config.replay.policies:
        require_known(policy, config.rules, "policy", f"{where} [replay] policies")
    for policy, own in config.policies.items():
        place = f"{where} [policies.{policy}]"
        TRACE_NAME.check(policy, place)  # it names folders of the lake
        if policy in SHIPPED_POLICIES:
            raise ConfigError(f"{place}: a shipped policy has this name. Choose another.")
        by_arrivals = SHIPPED_POLICIES[own.like].plan == "autoscaler"
        of_plan = own.quantile if by_arrivals else own.capacity_share or own.quantile
        if SHIPPED_POLICIES[own.like].programme is None and of_plan is not None:
            has_no = "quantile. Drop it" if by_arrivals else "plan. Drop capacity_share and quantile"
            raise ConfigError(f"{place}: {own.like} has no {has_no}.")
        rule, bucket = own.policy, config.forecast.bucket_minutes
        if own.slot_minutes and (
            rule.plan not in SLOTTED_PLANS or rule.is_closed or own.slot_minutes % bucket
        ):
            raise ConfigError(
                f"{place}: slot_minutes = {own.slot_minutes} needs a corrected plan in open loop, and "
                f"to be a multiple of [forecast] bucket_minutes = {bucket}. Change it or drop it."
            )
    for llm, pools in deployments.items():
        place = f"{where} [fleet.deployments]"
        require_known(llm, catalogue.llms, "llm", place)
        for pool in pools:
            catalogue.profile(llm, pool.gpu, pool.tensor_parallel)
            for region in pool.regions or ():
                require_known(region, catalogue.regions, "region", f"{place} {llm}")
    for tier, traffic in office.tiers.items() if office else ():
        for table, cells in (("mix", traffic.mix), ("heavier", traffic.heavier)):
            place = f"{where} [trace.office.tiers.{tier}.{table}]"
            for llm, regions in cells.items():
                require_known(llm, catalogue.llms, "llm", place)
                if llm not in deployments:
                    raise ConfigError(
                        f"{place}: {llm} is not in [fleet.deployments]. Add it there or drop it."
                    )
                for region in regions:
                    require_known(region, catalogue.regions, "region", place)


def check_config_figures(config: RunConfig, catalogue: Catalogue) -> None:
    """Refuse figures that contradict each other, and lists and tables that lack an entry."""
    trace, fleet, forecast, replay = config.trace, config.fleet, config.forecast, config.replay
    tiers = trace.office.tiers if trace.office else catalogue.tiers
    bursts = trace.office.bursts if trace.office else ()
    lists = (forecast.methods, replay.policies)
    require_in_years(trace.first_day, trace.days, f"{config.file.name} [trace] first_day, days")
    twice = ", ".join(sorted({name for names in lists for name in names if names.count(name) > 1}))
    rules = (
        (not (trace.office and trace.tiled), "[trace] has office or tiled, not both"),
        (
            tiers.keys() == catalogue.tiers.keys(),
            f"[trace.office.tiers] must have {', '.join(catalogue.tiers)}",
        ),
        (all(fleet.deployments.values()) and bool(fleet.deployments), "[fleet.deployments] must have an llm"),
        (bool(replay.policies), "[replay] policies must have a policy"),
        (not twice, f"[forecast] methods, [replay] policies: {twice} stands there twice"),
        (
            {forecast.method, forecast.paper_method} <= set(forecast.methods),
            "[forecast] methods must have method and paper_method among them",
        ),
        (fleet.min_instances <= fleet.max_instances, "[fleet] needs min_instances <= max_instances"),
        (
            fleet.instances_at_start <= fleet.max_instances,
            "[fleet] needs instances_at_start <= max_instances",
        ),
        (
            fleet.prefix != "blocks" or fleet.prefix_block_tokens % fleet.kv_block_tokens == 0,
            f"[fleet] prefix_block_tokens = {fleet.prefix_block_tokens} must be a multiple of "
            f"kv_block_tokens = {fleet.kv_block_tokens}",
        ),
        (replay.scale_in_share < replay.scale_out_share, "[replay] needs scale_in_share < scale_out_share"),
        (
            replay.niw_pull_two_share <= replay.niw_pull_one_share,
            "[replay] needs niw_pull_two_share <= niw_pull_one_share",
        ),
        (replay.boot_spot_s <= replay.boot_spot_max_s, "[replay] needs boot_spot_s <= boot_spot_max_s"),
        *((_is_within(burst, trace), _outside(burst, trace)) for burst in bursts),
    )
    for holds, rule in rules:
        if not holds:
            raise ConfigError(f"{config.file.name}: {rule}. Change it.")


def _is_within(burst: BurstConfig, trace: TraceConfig) -> bool:
    """Whether some of a burst lies in the days of the trace."""
    ends = burst.start + timedelta(minutes=burst.minutes)
    return burst.start.date() <= trace.replay_day and ends.date() >= trace.first_day


def _outside(burst: BurstConfig, trace: TraceConfig) -> str:
    return (
        f"[trace.office] bursts: the one of {burst.start:%Y-%m-%d %H:%M} lies outside the trace, which has "
        f"{trace.first_day} to {trace.replay_day}"
    )


def check_caps(config: RunConfig, catalogue: Catalogue) -> None:
    """Refuse a fleet that takes more GPUs at the start than a region has."""
    fleet, start = config.fleet, config.fleet.instances_at_start
    for name, region in catalogue.regions.items():
        for gpu in catalogue.gpus:
            pools = [pool for own in fleet.deployments.values() for pool in own if pool.gpu == gpu]
            held = sum(
                pool.gpus * (start if pool.instances_at_start is None else pool.instances_at_start)
                for pool in pools
                if pool.regions is None or name in pool.regions
            )
            if held > (cap := region.cap_gpus.get(gpu, 0)) > 0:  # without any no pool stands there
                raise ConfigError(
                    f"{config.file.name}: [fleet] instances_at_start = {start} of each llm: {held} {gpu} in "
                    f"{name}, whose cap_gpus is {cap} (regions.toml). Lower the one or raise the other."
                )
