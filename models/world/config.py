"""A run, as data/config/*.toml says it: the trace, the fleet, how it is forecast, planned and replayed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from fleetcast.models.world.calendar import Calendar
from fleetcast.models.world.fleet_config import FleetConfig
from fleetcast.models.world.mechanisms import (
    CAPACITIES,
    OPPORTUNISMS,
    ORDERS,
    POOL_SPREADS,
    ROUTINGS,
    SCALINGS,
    SIGNALS,
)
from fleetcast.models.world.option_names import ENSEMBLES, METHOD_NAMES, SOLVERS
from fleetcast.models.world.planners import PLANNERS, SHIPPED_POLICIES
from fleetcast.models.world.policies import ANSWER_PLANNERS, SIGNAL_SCALINGS, PolicySpec
from fleetcast.models.world.quality_config import QualityConfig
from fleetcast.models.world.replay_config import ReplayConfig
from fleetcast.models.world.stacks import REPLAY_STACKS, Stack
from fleetcast.models.world.toml_dataclasses import (
    KnownName,
    OneOf,
    PositiveShare,
    Range,
    Share,
    TraceName,
)
from fleetcast.models.world.traffic_config import OfficeTraffic, TiledTraffic

FORECAST_QUANTILES = (0.5, 0.9, 0.95)  # of the forecasts

MethodName = Annotated[str, KnownName("forecast method", (*METHOD_NAMES, *ENSEMBLES))]


@dataclass(frozen=True)
class TraceConfig:
    """Which trace to run on: made by [trace.office] or [trace.tiled], else landed under `name`."""

    name: TraceName
    first_day: date
    days: Annotated[int, Range(2, 3660)]  # the last one is replayed, the ones before are history
    seed: Annotated[int, Range(0, 2**63 - 1)]
    office: OfficeTraffic | None = None
    tiled: TiledTraffic | None = None

    @property
    def replay_day(self) -> date:
        """The last day of the trace: the one that is replayed when no date is given."""
        return self.first_day + timedelta(days=self.days - 1)


@dataclass(frozen=True)
class ForecastConfig:
    """What is forecast, how often, and by which methods."""

    method: MethodName  # plans by quantiles read it
    paper_method: MethodName  # the paper's policies plan from its means
    methods: tuple[MethodName, ...]  # all that are made, both of these among them
    bucket_minutes: Annotated[int, OneOf(tuple(n for n in range(1, 61) if 60 % n == 0))]
    history_days: Annotated[int, Range(1, 3660)]
    niw_buffer_share: Share  # of the last hour's niw load, added to the forecast (SageServe 6.3)
    calendar: str | None = None  # a file of data/calendar: time zone, holidays, known events


@dataclass(frozen=True)
class RollingConfig:
    """Plans that are made again and again, 48 hours ahead (assets/plans/rolling_plan.py)."""

    every_minutes: Annotated[int, OneOf((15, 20, 30, 60, 120, 180, 240, 360))] = 60
    keeps_current_load: bool = False  # until the next plan at least the load of now is carried
    max_changes: Annotated[int, Range(1, 1_000_000)] | None = None  # instances of a kind, a region, an hour


@dataclass(frozen=True)
class PlanConfig:
    """The hourly programmes: SageServe's (models/plan/sageserve_plan.py) and the corrected one
    (corrected.py).
    """

    solver: Annotated[str, KnownName("solver", SOLVERS)]
    epsilon: PositiveShare  # share of its own peak that a region must be able to serve
    capacity_share: PositiveShare  # of an instance's measured capacity that the paper's plan counts on
    corrected_capacity_share: PositiveShare  # the same of the corrected plan
    quantile: Annotated[
        float, OneOf(FORECAST_QUANTILES)
    ]  # of the hour's maximum that the corrected plan covers
    most_headroom_share: Annotated[float, Range(0, 1000)]  # above the mean that the corrected plan covers
    spot_earning_share: Share  # of its price that a donated instance earns
    hysteresis_share: Share  # of an hour's price that giving an instance up must save
    export_share: Share  # of the cheapest capacity that serving a token in another region costs on top
    gap_share: Share
    time_limit_s: Annotated[float, Range(0.1, 3600)]  # of an hour's plan
    capacity: Annotated[str, KnownName("capacity", CAPACITIES)] = "slo"  # of an instance: in time, or at all
    together: bool = False  # teams, whose phases are apart, are not held
    rolling: RollingConfig = field(default_factory=RollingConfig)


# that a policy may say itself
POLICY_REPLAY_FIELDS = ("signal", "order", "routing", "start", "is_balanced", "spread", "opportunism")


@dataclass(frozen=True)
class CustomPolicy:
    """A shipped policy with figures of its own, so that both stand on one board."""

    like: Annotated[str, KnownName("policy", tuple(SHIPPED_POLICIES))]
    scaling: Annotated[str, KnownName("scaling", SCALINGS)] | None = (
        None  # else that of the policy, likewise:
    )
    stack: Annotated[str, KnownName("stack", tuple(REPLAY_STACKS))] | None = None
    order: Annotated[str, KnownName("queue order", ORDERS)] | None = None  # else that of [replay], likewise:
    routing: Annotated[str, KnownName("routing", ROUTINGS)] | None = None
    signal: Annotated[str, KnownName("signal", SIGNALS)] | None = None
    is_balanced: bool | None = None
    spread: Annotated[str, KnownName("spread", POOL_SPREADS)] | None = None
    opportunism: Annotated[str, KnownName("opportunism", OPPORTUNISMS)] | None = None
    answers: Annotated[str, KnownName("way to plan who answers", ANSWER_PLANNERS)] | None = None
    together: bool | None = None  # its plan holds only instances that do both phases; else as the policy
    capacity_share: PositiveShare | None = None  # else that of [plan] for its programme, likewise:
    quantile: Annotated[float, OneOf(FORECAST_QUANTILES)] | None = None
    slot_minutes: Annotated[int, OneOf((15, 20, 30, 60))] | None = None  # of its plan; else the whole hour

    @property
    def policy(self) -> PolicySpec:
        """The shipped one with these figures."""
        own = {name: value for name, value in vars(self).items() if name != "like" and value is not None}
        like = SHIPPED_POLICIES[self.like]
        if self.stack is not None:  # what the shipped policy says of these it says no more
            like = like._replace(order=None, routing=None, is_balanced=None)
        return like._replace(**own)


@dataclass(frozen=True)
class RunConfig:
    """One file of data/config: a trace, a fleet, and how to forecast, plan and replay."""

    file: Path
    trace: TraceConfig
    fleet: FleetConfig
    forecast: ForecastConfig
    plan: PlanConfig
    replay: ReplayConfig
    policies: Mapping[str, CustomPolicy] = field(default_factory=dict)  # beside the shipped ones
    catalogue: Mapping[str, Any] = field(default_factory=dict)  # what differs in it: changes.py
    quality: QualityConfig | None = None  # which llms may answer each other's requests
    calendar: Calendar = field(default_factory=Calendar)  # the file that [forecast] calendar names

    @cached_property
    def rules(self) -> dict[str, PolicySpec]:
        """Every policy that can be replayed: the shipped ones, the planners, then the config's own.

        Where [quality] asks nothing, a planner has the llm answer that was asked.
        """
        found = SHIPPED_POLICIES | {name: own.policy for name, own in self.policies.items()}
        if self.quality is not None and self.quality.quality is not None:
            return found
        like = {name: own.like for name, own in self.policies.items()}
        return {
            name: policy._replace(answers=None) if like.get(name, name) in PLANNERS else policy
            for name, policy in found.items()
        }

    @property
    def nightly_policies(self) -> list[str]:
        """The policies that a night makes ready: those that the config names, and the shipped ones.

        Of planners, and of those with a plan of who answers, only those that it names.
        """
        named = self.replay.policies
        return [
            name
            for name, rule in self.rules.items()
            if name in named or (name not in PLANNERS and rule.answers is None)
        ]

    @property
    def by_memory(self) -> list[str]:
        """The policies of a night whose rule looks at memory alone."""
        rules = self.rules
        return [
            name
            for name in self.nightly_policies
            if rules[name].scaling == "hpa"
            or (rules[name].scaling in SIGNAL_SCALINGS and self.under(name).replay.signal == "memory")
        ]

    def slots(self, policy: str) -> int:
        """How many plans an hour has under a policy: as the config says, else as boots and buckets allow."""
        minutes = self.rules[policy].slot_minutes
        is_said = policy in self.policies and self.policies[policy].slot_minutes is not None
        fits = minutes % self.forecast.bucket_minutes == 0 and 2 * self.replay.boot_local_s <= 60 * minutes
        return 60 // minutes if is_said or fits else 1

    def under(self, policy: str) -> "RunConfig":
        """The config as a policy sees it: with the figures that are its own."""
        rule = self.rules[policy]
        share, quantile = rule.capacity_share, rule.quantile
        plan = replace_given(
            self.plan,
            capacity_share=share,
            corrected_capacity_share=share,
            quantile=quantile,
            together=rule.together or None,
        )
        own = {name: getattr(rule, name) for name in POLICY_REPLAY_FIELDS}
        return replace(
            self, plan=plan, replay=replace_given(apply_stack(self.replay, REPLAY_STACKS[rule.stack]), **own)
        )


def apply_stack(replay: ReplayConfig, stack: Stack, headroom_share: float | None = None) -> ReplayConfig:
    """The replay under a stack; a headroom that is said takes the place of its own, if it is one with any."""
    levels = replace(replay.levels, **stack.levels)
    if headroom_share is not None and stack.headroom_share != 0.0:
        levels = replace(levels, headroom_share=headroom_share)
    replay = replace(replay, levels=levels, moves=replace(replay.moves, **stack.moves))
    return replace_given(replay, routing=stack.routing, order=stack.order, is_balanced=stack.is_balanced)


def replace_given(table: Any, **said: Any) -> Any:
    """The dataclass with what is said (is not None) in place of its own."""
    return replace(table, **{name: value for name, value in said.items() if value is not None})
