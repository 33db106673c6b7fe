"""Replay scaling rules on a day, recorded or sampled: attainment and cost, without tables of single requests.

All rules use the plan that was made at midnight: `static` holds its largest hour, `day_ahead` follows it,
`reflex` and `compact` start from its first hour. Headroom is the one knob: the instances of a plan grow by
it, and the load that an instance is taken to sustain falls by it.
"""

from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.replays.compact_schedule import compact_schedule
from fleetcast.assets.replays.policy_inputs import (
    fleet_and_rules,
    hourly_demand,
    hourly_targets,
    reactive_capacity_share,
    relative_capacity_share,
    with_measured_capacity,
)
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.metrics import is_tier_slo_met
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import add_failures
from fleetcast.models.world.calendar import DAY_S, HOUR_S
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.mechanisms import STATES, Ending

ADVISED_RULES = ("static", "day_ahead", "reflex", "compact")  # the simplest first
PLANNED_RULES = ("static", "day_ahead")  # their instances of each hour are known at midnight
# Failures of an instance per GPU and day: 419 in 54 days of 16,384 H100 (arXiv 2407.21783, table 5).
FAILURES_PER_GPU_DAY = 419 / 54 / 16_384
PAID_STATES = [STATES.index(name) for name in ("serving", "booting", "draining")]


class MidnightPlan(NamedTuple):
    """The plan of a day that was made at its midnight."""

    day: date
    instances: Floats  # (24, pools)
    demand: Floats  # (24, llms, regions) tokens/s
    capacity: Floats  # (services, regions, options) tokens/s
    least: Floats | None = None  # (pools,) fewest instances; None: those of the config
    if_lost: Floats | None = None  # (24, pools) instances without any one region, not rounded; None: not held
    is_sized: bool = False  # whether `instances` are those of a sized rule, with its headroom


class SizedRule(NamedTuple):
    """A scaling rule and its headroom."""

    rule: str
    headroom_share: float = 0.0


class DayDraw(NamedTuple):
    """A version of a day: its requests, the latencies of its engines, and the seed of its failures."""

    trace: TraceArrays
    catalogue: Catalogue
    seed: int | None = None  # None: no instance fails


class DayFigures(NamedTuple):
    """What a rule attains on a day, and what it costs."""

    attained: dict[str, float]  # share in time, by tier
    in_time_share: float  # of all interactive requests
    usd: float
    gpu_hours: float
    instances: Floats  # (24, pools) paid, mean of the hour

    def is_on_target(self, catalogue: Catalogue) -> bool:
        """Whether every tier attains its target."""
        tiers = catalogue.tiers
        return all(share >= tiers[name].attainment_target_share for name, share in self.attained.items())


def read_midnight_plan(
    settings: RunSettings, day: date, table: str = "day_ahead_plans", policy: str = "day_ahead"
) -> MidnightPlan:
    """Read a policy's plan of a day from day_ahead_plans, or from plans."""
    rows = settings.lake.sql(
        f"select *, hour(hour_start) as hour from {table} "
        "where trace = $trace and day = $day and policy = $policy",
        trace=settings.trace,
        day=day,
        policy=policy,
    ).to_pandas()
    grid = settings.grid
    capacity = grid.hourly_cells(rows, "capacity_tokens_per_s")[0]
    return MidnightPlan(
        day,
        hourly_targets(grid, rows, policy),
        hourly_demand(grid, rows, policy, 1),
        capacity / relative_capacity_share(settings.config, policy),
    )


def with_region_spare(settings: RunSettings, plan: MidnightPlan) -> MidnightPlan:
    """Return a plan that also holds what the other regions of an llm need if any one region is lost."""
    pools, used = settings.grid.pools, instances_of_load(settings, plan)
    needed = np.zeros_like(used)
    for served in {(row.kind.llm, row.role) for row in pools}:
        own = np.array([(row.kind.llm, row.role) == served for row in pools])
        others = len({row.region for row, is_own in zip(pools, own, strict=True) if is_own}) - 1
        if others:
            needed[:, own] = used[:, own].sum(axis=1, keepdims=True) / others
    return plan._replace(if_lost=needed)


def without_spare(settings: RunSettings, plan: MidnightPlan) -> MidnightPlan:
    """Return a plan with the instances that its load needs.

    They are at least one in each pool that has a minimum, but none in a region without load: such a region is
    only there in case another is lost.
    """
    regions = settings.catalogue.regions
    loaded = [name for number, name in enumerate(regions) if plan.demand[:, :, number].any()]
    least = np.array([min(1.0, row.min_instances) * (row.region in loaded) for row in settings.grid.pools])
    needed = np.ceil(instances_of_load(settings, plan) - 1e-9)
    return plan._replace(instances=np.clip(needed, least, plan.instances), least=least, if_lost=None)


def instances_of_load(settings: RunSettings, plan: MidnightPlan) -> Floats:
    """Return the instances that a plan's demand fills, not rounded: (24, pools), at most the planned ones.

    The pools of an llm in a region share its demand as their planned capacities.
    """
    pools, llms = settings.grid.pools, list(settings.catalogue.llms)
    regions = list(settings.catalogue.regions)
    planned = plan.instances * settings.grid.instance_capacity(plan.capacity)
    places = [(row.kind.llm, row.role, row.region) for row in pools]
    together = np.stack([planned[:, [other == place for other in places]].sum(axis=1) for place in places], 1)
    load = np.stack([plan.demand[:, llms.index(llm), regions.index(at)] for llm, _, at in places], axis=1)
    filled = np.divide(load, together, out=np.zeros_like(load), where=together > 0)
    return plan.instances * np.minimum(filled, 1.0)


def rule_targets(plan: MidnightPlan, sized: SizedRule, least: Floats | Ints, most: Floats | Ints) -> Floats:
    """Return the instances that a rule plans for each hour, shape (24, pools).

    `least`, `most`: (pools,) instances. Of rules without a plan it is the fleet that they start with.
    """
    base = plan.instances if plan.if_lost is None else np.maximum(plan.instances, plan.if_lost)
    headroom = 0.0 if plan.is_sized else sized.headroom_share
    if sized.rule == "static":
        base = np.tile(base.max(axis=0), (HOURS_OF_DAY, 1))
    return np.clip(np.ceil(base * (1 + headroom) - 1e-9), least, most)


def sized_targets(settings: RunSettings, plan: MidnightPlan, sized: SizedRule) -> Floats:
    """Return `rule_targets` within the limits of the config, shape (24, pools)."""
    pools = settings.grid.pools
    least = np.array([float(row.min_instances) for row in pools])
    return rule_targets(plan, sized, least, np.array([float(row.max_instances) for row in pools]))


def replay_rule(settings: RunSettings, plan: MidnightPlan, sized: SizedRule, draw: DayDraw) -> DayFigures:
    """Replay a sized rule on a version of the plan's day."""
    drawn, policy = replace(settings, catalogue=draw.catalogue), sized.rule
    fleet, rules = fleet_and_rules(drawn, policy)
    if plan.least is not None:
        fleet = fleet._replace(min_instances=plan.least.astype(np.int64))
    if draw.seed is not None:
        rate = FAILURES_PER_GPU_DAY * float(fleet.gpus[fleet.kind].max())
        rules = add_failures(rules, fleet, rate, DAY_S, draw.seed)
    capacity = plan.capacity / (1 + sized.headroom_share)
    of_rule = capacity * reactive_capacity_share(drawn.config, policy)
    fleet = with_measured_capacity(drawn.under(policy), fleet, of_rule)
    schedule = rule_schedule(settings, plan, sized, fleet, capacity)
    outcome = replay_trace(draw.trace, fleet, schedule, rules, DAY_S)
    return replayed_day_figures(draw, fleet, outcome)


def rule_schedule(
    settings: RunSettings, plan: MidnightPlan, sized: SizedRule, fleet: FleetArrays, capacity: Floats
) -> Schedule:
    """Return the schedule of a sized rule; `capacity`: (services, regions, options) tokens/s."""
    targets = rule_targets(plan, sized, fleet.min_instances, np.diff(fleet.slots))
    if sized.rule in PLANNED_RULES:
        return Schedule(targets, plan.demand, targets[0], HOUR_S)
    if sized.rule == "compact":
        return compact_schedule(settings, plan.day, capacity, plan.capacity, targets[0])
    return Schedule(start=targets[0], hour_s=HOUR_S)


def replayed_day_figures(draw: DayDraw, fleet: FleetArrays, outcome: Outcome) -> DayFigures:
    """Return attainment and cost of a replayed day; batch requests that may still wait do not count."""
    trace, catalogue = draw.trace, draw.catalogue
    ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
    attained, met_interactive, interactive = dict[str, float](), 0, 0
    for code, (name, tier) in enumerate(catalogue.tiers.items()):
        is_decided = trace.tier == code
        if tier.ttft_slo_s is None:
            is_decided &= outcome.status != Ending.QUEUED
        if not (count := int(is_decided.sum())):
            continue
        met = int(
            is_tier_slo_met(
                tier, ttft_s[is_decided], e2e_s[is_decided], trace.output_tokens[is_decided]
            ).sum()
        )
        attained[name] = met / count
        if not tier.is_held:
            met_interactive, interactive = met_interactive + met, interactive + count
    paid_s = outcome.instance_s[:, :, PAID_STATES].sum(axis=2)
    gpus = fleet.gpus[fleet.kind]
    usd = np.array([gpu.usd_per_hour for gpu in catalogue.gpus.values()])[fleet.gpu[fleet.kind]]
    share = met_interactive / interactive if interactive else min(attained.values(), default=1.0)
    hours = paid_s[:HOURS_OF_DAY] / HOUR_S
    return DayFigures(attained, share, float((hours * gpus * usd).sum()), float((hours * gpus).sum()), hours)
