"""What each policy is given on a day: its targets, and the fleet that all of them start from."""

from collections.abc import Collection
from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.demand.demand import INTERACTIVE, read_demand_matrix
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.nightly_quality import standing_schedule
from fleetcast.assets.plans.problems import plan_capacity_share
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.assets.replays import cauchy_autoscaler
from fleetcast.models.aliases import Floats
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules
from fleetcast.models.replay.run import Schedule
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.rules import add_failures, make_rules
from fleetcast.models.world.calendar import DAY_S, HOUR_S
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.plan_grid import Grid
from fleetcast.models.world.pool_rows import POOLINGS, build_pool_rows
from fleetcast.models.world.toml_dataclasses import require_known

RECENT_MINUTES = 3  # the adjustment interval of Dynamo's planner (docs.nvidia.com/dynamo, planner guide)


def fleet_and_rules(settings: RunSettings, policy: str, days: int = 1) -> tuple[FleetArrays, Rules]:
    """The fleet and the rules under which a policy is replayed for so many days."""
    config, rule = settings.under(policy).config, settings.config.rules[policy]
    fleet = make_fleet(settings.catalogue, config.fleet, config.replay, config.trace.seed, rule.pooling)
    rules = make_rules(settings.catalogue, config.replay, rule.scaling)
    rate = config.replay.failures_per_instance_day
    return fleet, add_failures(rules, fleet, rate, days * DAY_S, config.trace.seed)


def with_measured_capacity(settings: RunSettings, fleet: FleetArrays, sustained: Floats) -> FleetArrays:
    """The fleet that knows what one of its instances sustains; its pools' weight, if spread by goodput.

    `sustained` in tokens/s, shape (services, regions, options). Of a team each instance of either side counts
    its part of it.
    """
    grid, spread = settings.grid, settings.config.replay.spread
    of_pools = sustained[grid.cells] / grid.instances_per_option
    tokens_per_s = np.tile(of_pools, fleet.kind.size // of_pools.size)
    if spread == "goodput":
        fleet = fleet._replace(weight=tokens_per_s)
    if spread == "weights":  # those of the day's plan
        of_rows = np.array([row.weight for row in grid.pools])
        fleet = fleet._replace(weight=np.tile(of_rows, fleet.kind.size // of_rows.size))
    return fleet._replace(tokens_per_s=np.where(tokens_per_s > 0, tokens_per_s, np.inf))


def relative_capacity_share(config: RunConfig, policy: str) -> float:
    """How much of an instance a policy's plan counts on, over what the common plans of ours do."""
    own, plan = config.under(policy).plan, config.rules[policy].plan
    return plan_capacity_share(own, plan) / config.plan.corrected_capacity_share


def reactive_capacity_share(config: RunConfig, policy: str) -> float:
    """The same of a reflex, so that it passes a plan where more comes than that counts on; 1 of others."""
    return relative_capacity_share(config, policy) if config.rules[policy].scaling == "reflex" else 1.0


def planned_capacity(
    grid: Grid, config: RunConfig, rows: pd.DataFrame, policy: str = "clairvoyant"
) -> Floats:
    """The capacity that the day's plans count on, tokens/s, shape (services, regions, options).

    Of a policy with a plan of who answers, it is measured on what comes to the llms under that plan.
    """
    rule = config.rules[policy]
    if rule.answers is None or rule.programme is None:
        policy = "clairvoyant"
    rows = rows[rows["policy"] == policy]
    counted = grid.hourly_cells(rows, "capacity_tokens_per_s", config.slots(policy))[0]
    return counted / relative_capacity_share(config, policy)


def planned_read_capacity(settings: RunSettings, day: date, policy: str = "clairvoyant") -> Floats:
    """The same in tokens that instances read: prompts of the legs that come to an llm, and what it judges.

    `settings` with who answers under the policy.
    """
    sustained = planned_capacity(settings.grid, settings.config, read_day_plans(settings, day), policy)
    if not settings.config.replay.cascades:
        return sustained
    mixes = token_mixes(settings, day)
    share = np.array([mixes[llm].prompt_token_ratio for llm, _ in settings.grid.services])
    return sustained / share[:, None, None]


def policy_schedules(
    settings: RunSettings, day: date, policies: Collection[str] | None = None
) -> dict[str, Schedule]:
    """What every policy, or each of these, is given, by pool of its fleet.

    All start from hour 0 of the paper's forecast plan, so that none is given a better fleet, but for those
    that begin with the whole of it ([replay] start), those that Cauchy's autoscaler scales, which begin with
    what its programme holds for the hour of that plan, and those that hold a plan for quality all day.
    """
    rows, grid = read_day_plans(settings, day), settings.grid
    first = hourly_targets(grid, rows, "lt_i")[0]
    drives = {}
    for policy in settings.config.nightly_policies if policies is None else policies:
        rule = settings.config.rules[policy]
        if rule.plan == "standing":
            drives[policy] = standing_schedule(settings, day, policy)
            continue
        start = split_instances_by_tier(grid, first, rule.pooling)
        if settings.under(policy).config.replay.start == "whole":
            start = instances_at_start(grid, rule.pooling)
        if rule.plan is None:
            drives[policy] = Schedule(start=start, hour_s=HOUR_S)
        elif rule.plan == "autoscaler":
            demand = hourly_demand(grid, rows, "lt_i", 1)[0]
            sustained = planned_capacity(settings.grid, settings.config, rows) * relative_capacity_share(
                settings.config, policy
            )
            table = cauchy_autoscaler.autoscaler_targets(settings.under(policy), day, sustained, demand)
            targets = grid.by_pool(table)
            drives[policy] = Schedule(
                targets, None, targets[0], HOUR_S, round(HOUR_S / cauchy_autoscaler.SAMPLE_S)
            )
        elif rule.plan == "recent":
            targets = recent_targets(settings, day, rows, start)
            drives[policy] = Schedule(targets, None, start, HOUR_S, rows_per_hour=60 // RECENT_MINUTES)
        else:
            slots = settings.config.slots(policy)
            targets = hourly_targets(grid, rows, policy, slots)
            demand = hourly_demand(grid, rows, policy, slots)
            drives[policy] = Schedule(targets, demand, start, HOUR_S, slots)
    return drives


def split_instances_by_tier(grid: Grid, instances: Floats, pooling: str) -> Floats:
    """Instances by pool, shape (pools,), of a fleet whose pools are split by tier: each part its share."""
    share = np.array([row.share for row in build_pool_rows(grid.catalogue, grid.fleet, pooling)])
    return np.round(share * np.tile(instances, len(POOLINGS[pooling])))


def instances_at_start(grid: Grid, pooling: str) -> Floats:
    """Instances at the start by pool, shape (pools,)."""
    rows = build_pool_rows(grid.catalogue, grid.fleet, pooling)
    return np.array([float(row.instances_at_start) for row in rows])


def read_day_plans(settings: RunSettings, day: date) -> pd.DataFrame:
    """The plans of the day as they stand in the lake; ConfigError for a name that the catalogue lacks."""
    rows = settings.lake.sql(
        "select *, hour(hour_start) + minute(hour_start) / 60 as hour from plans "
        "where trace = $trace and day = $day",
        trace=settings.trace,
        day=day,
    ).to_pandas()
    for column, known in (("llm", settings.catalogue.llms), ("region", settings.catalogue.regions)):
        for name in rows[column].unique():
            require_known(name, list(known), column, f"the plan of {day}")
    return rows


def hourly_targets(grid: Grid, rows: pd.DataFrame, policy: str, slots: int = 1) -> Floats:
    """The instances of a policy's plan, shape (hours * slots, pools)."""
    return grid.by_pool(grid.hourly_cells(rows[rows["policy"] == policy], "instances", slots))


def hourly_demand(grid: Grid, rows: pd.DataFrame, policy: str, slots: int) -> Floats:
    """The interactive load that a policy's plan carries, tokens/s, shape (hours * slots, llms, regions)."""
    of_cells = grid.hourly_cells(rows[rows["policy"] == policy], "demand_tokens_per_s", slots)
    return grid.services_to_llms(of_cells.max(axis=-1), axis=1)


def recent_targets(settings: RunSettings, day: date, rows: pd.DataFrame, start: Floats) -> Floats:
    """Instances for the interactive load of the RECENT_MINUTES before, shape (periods, pools).

    Of pools that do the same, the first takes what it can, the next what is left; teams count as wholes.
    """
    found = read_demand_matrix(settings.lake, settings.trace, day, day, RECENT_MINUTES, settings.catalogue)
    asked = np.nan_to_num(found.tier_series(INTERACTIVE))  # in a silence of the day nothing is replayed
    load = settings.serving_load(asked, axis=0)
    grid = settings.grid
    llms = [llm for llm, _ in grid.services]
    left = load[[list(settings.catalogue.llms).index(llm) for llm in llms], :, :-1].copy()
    sustained = planned_capacity(settings.grid, settings.config, rows)
    targets = np.empty((left.shape[-1] + 1, start.size))
    targets[0] = start
    each = grid.instances_per_option
    for pool, (row, i, j, k) in enumerate(zip(grid.pools, *grid.cells, strict=True)):
        needed = each[pool] * np.ceil(left[i, j] / sustained[i, j, k])
        targets[1:, pool] = np.clip(needed, row.min_instances, row.max_instances)
        if grid.is_leading_pool[pool]:
            served = targets[1:, pool] / each[pool] * sustained[i, j, k]
            left[i, j] = np.maximum(left[i, j] - served, 0.0)
    return targets
