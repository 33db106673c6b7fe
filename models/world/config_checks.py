"""Checks of a config as a whole; the rule of a single field is in its type in config.py."""

import math
import warnings
from datetime import timedelta

from fleetcast.models.world.calendar import require_in_years
from fleetcast.models.world.cascades import check_cascades, check_quality_policies
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig, TraceConfig
from fleetcast.models.world.floors import check_floors
from fleetcast.models.world.named_llms import require_llm
from fleetcast.models.world.option_names import LEVELS_BY_SHARES
from fleetcast.models.world.planners import SHIPPED_POLICIES
from fleetcast.models.world.pool_pairing import check_pools
from fleetcast.models.world.toml_dataclasses import TRACE_NAME, ConfigError, ConfigWarning, require_known
from fleetcast.models.world.traffic_config import BurstConfig

SHARES_TOLERANCE = 1e-6  # allowed difference of a sum of rounded shares to 1
SLOTTED_PLANS = ("corrected", "day_ahead", "truth")  # plans that may hold for less than an hour


def check_config(config: RunConfig, catalogue: Catalogue) -> None:
    """Raise ConfigError for unknown names and contradictory figures, before a run begins."""
    check_config_figures(config)
    check_config_names(config, catalogue)
    check_pools(config.file.name, config.fleet, catalogue)
    check_floors(config.file.name, config.fleet, catalogue)
    check_cascades(config, catalogue)
    check_quality_policies(config, catalogue)
    check_named_regions(config, catalogue)
    check_caps(config, catalogue)
    check_priority_config(config)
    warn_of_missing_prices(config, catalogue)


def warn_of_missing_prices(config: RunConfig, catalogue: Catalogue) -> None:
    """Warn of deployments on GPU types without a price, whose cost would count as 0.

    A price of 0 that the config gives itself is meant.
    """
    given = config.catalogue.get("gpus", {})
    types = dict.fromkeys(pool.gpu for pools in config.fleet.deployments.values() for pool in pools)
    free = [gpu for gpu in types if not catalogue.gpus[gpu].usd_per_hour and gpu not in given]
    if free:
        warnings.warn(
            f"{config.file.name}: {', '.join(free)} has no price, so that it costs 0 USD. Give one: "
            f'[catalogue.gpus."{free[0]}"] usd_per_hour = ...',
            ConfigWarning,
            stacklevel=2,
        )


def check_priority_config(config: RunConfig) -> None:
    """Raise ConfigError for shares that do not match the levels."""
    levels = config.replay.levels
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


def check_balancer_interval(config: RunConfig, catalogue: Catalogue) -> None:
    """Raise ConfigError for a balancer that runs more often than any step ends; all have profiles."""
    where, interval_s = f"{config.file.name} [replay", config.replay.moves.interval_s
    steps = {
        min(
            catalogue.as_served(llm, pool.llm_changes).profile(llm, pool.gpu, pool.tensor_parallel).decode_s
        ): llm
        for llm, pools in config.fleet.deployments.items()
        for pool in pools
    }
    if interval_s < (shortest_s := min(steps)):
        raise ConfigError(
            f"{where}.moves]: interval_s = {interval_s:g} is less than the shortest step of any instance, "
            f"{shortest_s:.4f} s of {steps[shortest_s]}: between two steps nothing changes. Raise it."
        )


def check_config_names(config: RunConfig, catalogue: Catalogue) -> None:
    """Raise ConfigError for unknown llms, regions and policies, and for requests for an undeployed llm."""
    where, deployments, office = config.file.name, config.fleet.deployments, config.trace.office
    for policy in config.replay.policies:
        require_known(policy, config.rules, "policy", f"{where} [replay] policies")
    for policy, custom in config.policies.items():
        place = f"{where} [policies.{policy}]"
        TRACE_NAME.check(policy, place)  # it names folders of the lake
        if policy in SHIPPED_POLICIES:
            raise ConfigError(f"{place}: a shipped policy has this name. Choose another.")
        like = SHIPPED_POLICIES[custom.like]
        if like.programme is None and custom.quantile is not None:
            raise ConfigError(f"{place}: {custom.like} has no plan with a quantile. Drop quantile.")
        if not like.uses_capacity_share and custom.capacity_share is not None:
            raise ConfigError(f"{place}: {custom.like} has no plan. Drop capacity_share.")
        if not like.uses_capacity_share and custom.learns_capacity_share:
            raise ConfigError(f"{place}: {custom.like} has no plan. Drop learns_capacity_share.")
        rule, bucket = custom.policy, config.forecast.bucket_minutes
        if custom.slot_minutes and (
            rule.plan not in SLOTTED_PLANS or rule.is_closed or custom.slot_minutes % bucket
        ):
            raise ConfigError(
                f"{place}: slot_minutes = {custom.slot_minutes} needs a corrected plan in open loop, and "
                f"to be a multiple of [forecast] bucket_minutes = {bucket}. Change it or drop it."
            )
    for llm, pools in deployments.items():
        place = f"{where} [fleet.deployments]"
        require_llm(llm, catalogue, place)
        for pool in pools:
            require_known(pool.gpu, catalogue.gpus, "gpu", f"{place} {llm}")
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


def check_config_figures(config: RunConfig) -> None:
    """Raise ConfigError for contradictory figures, and for lists and tables with missing entries."""
    trace, fleet, forecast, replay = config.trace, config.fleet, config.forecast, config.replay
    bursts = trace.office.bursts if trace.office else ()
    lists = (forecast.methods, replay.policies)
    require_in_years(trace.first_day, trace.days, f"{config.file.name} [trace] first_day, days")
    twice = ", ".join(sorted({name for names in lists for name in names if names.count(name) > 1}))
    named = {"method": forecast.method, "paper_method": forecast.paper_method}
    unlisted = ", ".join(f"{key} {name!r}" for key, name in named.items() if name not in forecast.methods)
    rules = (
        (not (trace.office and trace.tiled), "[trace] has office or tiled, not both"),
        (all(fleet.deployments.values()) and bool(fleet.deployments), "[fleet.deployments] must have an llm"),
        (bool(replay.policies), "[replay] policies must have a policy"),
        (not twice, f"[forecast] methods, [replay] policies: {twice} is there twice"),
        (
            not unlisted,
            f"[forecast] methods must have method and paper_method among them; it lacks {unlisted}",
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
            replay.scale_out_share <= 1 or replay.signal != "memory",
            f"[replay] scale_out_share = {replay.scale_out_share} of memory is never used, only of work "
            '(signal = "queue" or "both")',
        ),
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
    """Return whether a part of a burst is within the days of the trace."""
    ends = burst.start + timedelta(minutes=burst.minutes)
    return burst.start.date() <= trace.replay_day and ends.date() >= trace.first_day


def _outside(burst: BurstConfig, trace: TraceConfig) -> str:
    """Return the message for a burst outside the trace."""
    return (
        f"[trace.office] bursts: the one of {burst.start:%Y-%m-%d %H:%M} is outside the trace, which has "
        f"{trace.first_day} to {trace.replay_day}"
    )


def check_named_regions(config: RunConfig, catalogue: Catalogue) -> None:
    """Raise ConfigError for a deployment in a region without a GPU of its type: it would have no instance."""
    for llm, pools in config.fleet.deployments.items():
        for pool in pools:
            for name in pool.regions or ():
                caps = catalogue.regions[name].cap_gpus
                if not caps.get(pool.gpu, 0):
                    there = ", ".join(gpu for gpu, cap in caps.items() if cap) or "no GPU of any type"
                    raise ConfigError(
                        f"{config.file.name}: [fleet.deployments] {llm} is on {pool.gpu} in {name}, which "
                        f"has none: its cap_gpus has {there} (regions.toml, or [catalogue.regions.{name}] of "
                        "the config). Add the type there, or name another region."
                    )


def check_caps(config: RunConfig, catalogue: Catalogue) -> None:
    """Raise ConfigError for a fleet that takes more GPUs at the start than a region has."""
    fleet, start = config.fleet, config.fleet.instances_at_start
    for name, region in catalogue.regions.items():
        for gpu in catalogue.gpus:
            pools = [pool for of_llm in fleet.deployments.values() for pool in of_llm if pool.gpu == gpu]
            used = sum(
                pool.gpus * (start if pool.instances_at_start is None else pool.instances_at_start)
                for pool in pools
                if pool.regions is None or name in pool.regions
            )
            if used > (cap := region.cap_gpus.get(gpu, 0)) > 0:  # a region without GPUs has no pools
                raise ConfigError(
                    f"{config.file.name}: [fleet] instances_at_start = {start} of each llm: {used} {gpu} in "
                    f"{name}, whose cap_gpus is {cap} (regions.toml). Lower the first or raise the second."
                )
