"""The inputs of each policy's replay on a day: its schedule, and the fleet that all policies start from."""

from collections.abc import Collection
from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.demand.demand import INTERACTIVE, read_demand_matrix
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.nightly_quality import standing_schedule
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.assets.replays import cauchy_autoscaler
from fleetcast.assets.replays.compact_schedule import compact_schedule
from fleetcast.assets.replays.own_schedule import own_schedule, with_named_errors
from fleetcast.models.aliases import Floats
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules
from fleetcast.models.replay.run import Schedule
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.rules import add_failures, knows_ranks, make_rules
from fleetcast.models.world.calendar import DAY_S, HOUR_S
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.own_policies import installed_policies
from fleetcast.models.world.plan_grid import Grid
from fleetcast.models.world.pool_rows import POOLINGS, build_pool_rows
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

RECENT_MINUTES = 3  # the adjustment interval of Dynamo's planner (docs.nvidia.com/dynamo, planner guide)


def fleet_and_rules(settings: RunSettings, policy: str, days: int = 1) -> tuple[FleetArrays, Rules]:
    """Return the fleet and the rules of a policy's replay over `days` days.

    ConfigError for a policy that cannot serve the fleet's data-parallel ranks.
    """
    config, rule = settings.under(policy).config, settings.config.rules[policy]
    fleet = make_fleet(settings.catalogue, config.fleet, config.replay, config.trace.seed, rule.pooling)
    rules = make_rules(settings.catalogue, config.replay, rule.scaling)
    if fleet.ranks.max() > 1 and not knows_ranks(rules):
        raise ConfigError(
            f"{policy} orders instances by freeness or INFAaS, or moves requests: it serves no instances "
            "with a data_parallel_size above 1. Leave the policy out, or set it to 1 in [fleet.deployments]."
        )
    rate = config.replay.failures_per_instance_day
    return fleet, add_failures(rules, fleet, rate, days * DAY_S, config.trace.seed)


def with_measured_capacity(settings: RunSettings, fleet: FleetArrays, capacity: Floats) -> FleetArrays:
    """Return the fleet with its instances' measured capacity, and with weights if load is spread by them.

    `capacity`: (services, regions, options) tokens/s of one option. An instance of paired pools gets its part
    of the option's capacity.
    """
    grid, spread = settings.grid, settings.config.replay.spread
    by_pool = grid.instance_capacity(capacity)
    tokens_per_s = np.tile(by_pool, fleet.kind.size // by_pool.size)
    if spread == "goodput":
        fleet = fleet._replace(weight=tokens_per_s)
    if spread == "weights":  # the weights of the day's plan
        weights = np.array([row.weight for row in grid.pools])
        fleet = fleet._replace(weight=np.tile(weights, fleet.kind.size // weights.size))
    return fleet._replace(tokens_per_s=np.where(tokens_per_s > 0, tokens_per_s, np.inf))


def relative_capacity_share(config: RunConfig, policy: str) -> float:
    """Return the utilisation target of a policy's plan, divided by that of fleetcast's common plans."""
    return config.capacity_share(policy) / config.plan.corrected_capacity_share


def reactive_capacity_share(config: RunConfig, policy: str) -> float:
    """Return the relative capacity share of a policy with the reactive correction, 1 for other policies.

    With it, the correction adds instances as soon as the load is above the plan's utilisation target.
    """
    return relative_capacity_share(config, policy) if config.rules[policy].scaling == "reflex" else 1.0


def planned_capacity(
    grid: Grid, config: RunConfig, rows: pd.DataFrame, policy: str = "clairvoyant"
) -> Floats:
    """Return the capacity that the day's plans use, tokens/s, shape (services, regions, options).

    For a policy with a quality plan, it is measured on the llms' requests under that plan's model routing.
    """
    rule = config.rules[policy]
    if rule.answers is None or rule.programme is None:
        policy = "clairvoyant"
    rows = rows[rows["policy"] == policy]
    capacity = grid.hourly_cells(rows, "capacity_tokens_per_s", config.slots(policy))[0]
    return capacity / relative_capacity_share(config, policy)


def planned_read_capacity(settings: RunSettings, day: date, policy: str = "clairvoyant") -> Floats:
    """Return planned_capacity in tokens that instances read: prompts of all stages, and judged answers.

    `settings` have the policy's model routing. The result has shape (services, regions, options), tokens/s.
    """
    capacity = planned_capacity(settings.grid, settings.config, read_day_plans(settings, day), policy)
    return capacity / prompt_token_ratios(settings, day)[:, None, None]


def prompt_token_ratios(settings: RunSettings, day: date) -> Floats:
    """Return planned tokens per token that instances read, shape (services,): 1 without a cascade."""
    if not settings.config.replay.cascades:
        return np.ones(len(settings.grid.services))
    mixes = token_mixes(settings, day)
    return np.array([mixes[llm].prompt_token_ratio for llm, _ in settings.grid.services])


def policy_schedules(
    settings: RunSettings, day: date, policies: Collection[str] | None = None
) -> dict[str, Schedule]:
    """Return the schedule of each policy, by pool of its fleet; None stands for all nightly policies.

    All start from hour 0 of the paper's forecast plan, so no policy has a better fleet, with three
    exceptions: policies that start with the whole fleet ([replay] start), Cauchy's autoscaler, which starts
    with its own fleet for that plan's hour, and policies that keep a quality plan all day.
    """
    rows, grid = read_day_plans(settings, day), settings.grid
    first = hourly_targets(grid, rows, "lt_i")[0]
    schedules = {}
    for policy in settings.config.nightly_policies if policies is None else policies:
        rule = settings.config.rules[policy]
        if rule.plan == "standing":
            schedules[policy] = standing_schedule(settings, day, policy)
            continue
        start = split_instances_by_tier(grid, first, rule.pooling)
        if settings.under(policy).config.replay.start == "whole":
            start = instances_at_start(grid, rule.pooling)
        if rule.plan is None:
            schedules[policy] = Schedule(start=start, hour_s=HOUR_S)
        elif rule.plan == "autoscaler":
            demand = hourly_demand(grid, rows, "lt_i", 1)[0]
            capacity = used_capacity(settings, rows, policy)
            table = cauchy_autoscaler.autoscaler_targets(settings.under(policy), day, capacity, demand)
            targets = grid.by_pool(table)
            schedules[policy] = Schedule(
                targets, None, targets[0], HOUR_S, round(HOUR_S / cauchy_autoscaler.SAMPLE_S)
            )
        elif rule.plan == "recent":
            targets = recent_targets(settings, day, used_capacity(settings, rows, policy), start)
            schedules[policy] = Schedule(targets, None, start, HOUR_S, rows_per_hour=60 // RECENT_MINUTES)
        elif rule.plan == "own":
            capacity = used_capacity(settings, rows, policy)
            own = with_named_errors(policy, installed_policies()[policy])
            schedules[policy] = own_schedule(policy, own, grid, capacity, start)
        elif rule.plan == "compact":
            of_four = planned_capacity(grid, settings.config, rows)
            capacity = used_capacity(settings, rows, policy)
            schedules[policy] = compact_schedule(settings, day, capacity, of_four, start)
        else:
            slots = settings.config.slots(policy)
            targets = hourly_targets(grid, rows, policy, slots)
            demand = hourly_demand(grid, rows, policy, slots)
            schedules[policy] = Schedule(targets, demand, start, HOUR_S, slots)
    return schedules


def recent_targets(settings: RunSettings, day: date, capacity: Floats, start: Floats) -> Floats:
    """Return instances for the load of the RECENT_MINUTES before, shape (periods, pools).

    Of equal pools, the first serves what it can and the next serves the rest. Paired pools count as one
    option. `capacity`: (services, regions, options) tokens/s of one option. `start` has shape (pools,), the
    targets of the first period.
    """
    demand = read_demand_matrix(settings.lake, settings.trace, day, day, RECENT_MINUTES, settings.catalogue)
    interactive = np.nan_to_num(demand.tier_series(INTERACTIVE))  # in a gap of the data nothing is replayed
    load, grid = settings.serving_load(interactive, axis=0), settings.grid
    llms = [llm for llm, _ in grid.services]
    rest = load[[list(settings.catalogue.llms).index(llm) for llm in llms], :, :-1].copy()
    targets, each = np.empty((rest.shape[-1] + 1, start.size)), grid.instances_per_option
    targets[0] = start
    for pool, (row, i, j, k) in enumerate(zip(grid.pools, *grid.cells, strict=True)):
        needed = each[pool] * np.ceil(rest[i, j] / capacity[i, j, k])
        targets[1:, pool] = np.clip(needed, row.min_instances, row.max_instances)
        if grid.is_leading_pool[pool]:
            served = targets[1:, pool] / each[pool] * capacity[i, j, k]
            rest[i, j] = np.maximum(rest[i, j] - served, 0.0)
    return targets


def split_instances_by_tier(grid: Grid, instances: Floats, pooling: str) -> Floats:
    """Return instances (pools,) of a fleet whose pools are split by tier; each part gets its share.

    `instances` has shape (unsplit pools,).
    """
    share = np.array([row.share for row in build_pool_rows(grid.catalogue, grid.fleet, pooling)])
    return np.round(share * np.tile(instances, len(POOLINGS[pooling])))


def instances_at_start(grid: Grid, pooling: str) -> Floats:
    """Return the config's instances at the start, shape (pools,)."""
    rows = build_pool_rows(grid.catalogue, grid.fleet, pooling)
    return np.array([float(row.instances_at_start) for row in rows])


def read_day_plans(settings: RunSettings, day: date) -> pd.DataFrame:
    """Return the day's plans from the lake; ConfigError for a name that the catalogue does not have."""
    rows = settings.lake.sql(
        "select *, hour(hour_start) + minute(hour_start) / 60 as hour from plans "
        "where trace = $trace and day = $day",
        trace=settings.trace,
        day=day,
    ).to_pandas()
    known = {"llm": settings.catalogue.llms, "served_region": settings.catalogue.regions}
    for column, names in known.items():
        for name in rows[column].unique():
            require_known(name, list(names), column.removeprefix("served_"), f"the plan of {day}")
    return rows


def hourly_targets(grid: Grid, rows: pd.DataFrame, policy: str, slots: int = 1) -> Floats:
    """Return the instances of a policy's plan, shape (hours * slots, pools)."""
    return grid.by_pool(grid.hourly_cells(rows[rows["policy"] == policy], "instances", slots))


def hourly_demand(grid: Grid, rows: pd.DataFrame, policy: str, slots: int) -> Floats:
    """Return the interactive load of a policy's plan, tokens/s, shape (hours * slots, llms, regions)."""
    demand = grid.hourly_cells(rows[rows["policy"] == policy], "demand_tokens_per_s", slots)
    return grid.services_to_llms(demand.max(axis=-1), axis=1)


def used_capacity(settings: RunSettings, rows: pd.DataFrame, policy: str) -> Floats:
    """Return the part of planned_capacity that a policy uses, (services, regions, options) tokens/s."""
    share = relative_capacity_share(settings.config, policy)
    return share * planned_capacity(settings.grid, settings.config, rows)
