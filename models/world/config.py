"""A run, as data/config/*.toml says it: the trace, the fleet, how it is forecast, planned and replayed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from models.forecast import ENSEMBLES, METHODS
from models.plan.solver import SOLVERS
from models.replay.planners import PLANNERS
from models.replay.policies import ANSWERS, BY_SIGNAL, POLICIES, STACKS, Policy, Stack
from models.traffic.parameters import OfficeTraffic, TiledTraffic
from models.world.calendar import Calendar
from models.world.quality import QualityConfig
from models.world.reading import (
    Among,
    Known,
    PositiveShare,
    Range,
    Share,
    TraceName,
)

QUANTILES = (0.5, 0.9, 0.95)  # of the forecasts

# The replay's mechanisms (models/replay, a file each); codes in its kernel are positions here.
BATCHINGS = ("whole", "chunked", "orca")  # batch.py
ROUTINGS = ("shortest_queue", "round_robin", "least_kv", "least_work", "freeness", "infaas")  # route.py
ORDERS = (
    "fcfs",
    "edf",
    "pf",
    "dpa",
    "late_last",  # DPA that never turns round
    "priority",
    "preemptive",
)  # queue.py
OPPORTUNISMS = ("off", "idle", "weighted")  # opportunism.py
SCALINGS = ("follow", "reactive", "lt_u", "lt_ua", "chiron", "hpa", "reflex", "freeness")  # scale.py
DEMANDS = ("head", "all")  # freeness.py, also:
HEADROOMS = ("all", "above")
LEVELS_BY = ("tier", "app", "uniform", "gaussian", "enterprise", "shares")  # models/traffic/priorities.py
SIGNALS = ("memory", "queue", "both")  # signal.py
GEARS_BY = ("rate", "load")  # chain.py
SPREADS = ("in_order", "round_robin", "most_unused", "goodput", "weights")  # spread.py
ROLES = ("whole", "prefill", "decode")  # pools.py
PREFIXES = ("none", "given", "blocks")  # prefix.py
STARTS = ("plan", "whole")  # assets/replays/drives.py
HAND_OVERS = ("bulk", "layers")  # handover.py
CAPACITIES = ("slo", "throughput")  # capacity.py

Instances = Annotated[int, Range(0, 10_000)]
Seconds = Annotated[float, Range(0, 2_592_000)]  # to 30 days
Method = Annotated[str, Known("forecast method", (*METHODS, *ENSEMBLES))]


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


MaxBatch = Annotated[int, Range(1, 4096)]
PrefillTokens = Annotated[int, Range(2, 1_000_000)]
Batching = Annotated[str, Known("batching", BATCHINGS)]


class Engine(NamedTuple):
    """The limits that the engine of an instance keeps."""

    batching: str
    max_batch: int
    max_prefill_tokens: int
    async_scheduling: bool
    kv_tokens: int | None  # that fit beside the weights, as the engine says at its start; None: by formula


@dataclass(frozen=True)
class Deployment:
    """A pool of an llm: instances of so many GPUs of one type, in every region that has them.

    An instance has `pipeline_parallel` stages, each with a share of the layers on `tensor_parallel` GPUs.

    A pool whose role is to prefill hands a request on, with its first token, to a pool of the same llm that
    decodes: the one named `then`, or the only one there is.
    """

    gpu: str
    tensor_parallel: Annotated[int, Range(1, 1024)]
    role: Annotated[str, Known("role", ROLES)] = "whole"
    name: str | None = None  # by which another pool hands on to this one
    then: str | None = None
    regions: tuple[str, ...] | None = None  # else all that have the GPUs
    pipeline_parallel: Annotated[int, Range(1, 64)] = 1
    weight: Annotated[float, Range(0, 1_000_000)] = 1.0  # where requests are spread by it
    team: Annotated[int, Range(0, 64)] = 0  # that come and go with some of `then`; 0: each by itself
    instances_at_start: Instances | None = None  # else those of [fleet]; likewise all below
    min_instances: Instances | None = None
    max_instances: Instances | None = None
    batching: Batching | None = None
    max_batch: MaxBatch | None = None
    max_prefill_tokens: PrefillTokens | None = None
    async_scheduling: bool | None = None
    kv_tokens: Annotated[int, Range(1, 1_000_000_000)] | None = None  # else by formula

    @property
    def gpus(self) -> int:
        """Of an instance."""
        return self.tensor_parallel * self.pipeline_parallel


@dataclass(frozen=True)
class FleetConfig:
    """The captive fleet: what an instance of each llm is, and how many there may be per endpoint."""

    deployments: Mapping[str, tuple[Deployment, ...]]  # a lone table is a list of one
    instances_at_start: Instances
    min_instances: Instances
    max_instances: Instances
    kv_memory_share: PositiveShare  # of a GPU's memory that weights and KV cache may fill
    kv_block_tokens: Annotated[int, Range(1, 4096)]
    max_batch: MaxBatch  # requests in a batch
    batching: Batching  # whole prompts first, chunked, or orca
    max_prefill_tokens: PrefillTokens  # in one step: of a whole batch, or the budget when chunked
    async_scheduling: bool = False  # a step is composed while the one before it runs
    prefix: Annotated[str, Known("prefix", PREFIXES)] = "none"  # what of a prompt is not computed again
    prefix_block_tokens: Annotated[int, Range(1, 65_536)] = 512  # of a block that the trace has a hash of
    hand_over: Annotated[str, Known("hand-over", HAND_OVERS)] = "bulk"  # of a prompt's cache, or by layer
    link_gbit_per_s: Annotated[float, Range(0, 1_000_000, is_above=True)] | None = None  # of an instance

    def limits(self, pool: Deployment) -> tuple[int, int, int]:
        """Instances of a pool: at the start, at least, at most."""
        own = (pool.instances_at_start, pool.min_instances, pool.max_instances)
        common = (self.instances_at_start, self.min_instances, self.max_instances)
        start, least, most = (
            said if said is not None else rest for said, rest in zip(own, common, strict=True)
        )
        return start, least, most

    def engine(self, pool: Deployment) -> Engine:
        """The limits of a pool's engine: its own, else those of the fleet."""
        return Engine(
            self.batching if pool.batching is None else pool.batching,
            self.max_batch if pool.max_batch is None else pool.max_batch,
            self.max_prefill_tokens if pool.max_prefill_tokens is None else pool.max_prefill_tokens,
            self.async_scheduling if pool.async_scheduling is None else pool.async_scheduling,
            pool.kv_tokens,
        )


@dataclass(frozen=True)
class ForecastConfig:
    """What is forecast, how often, and by which methods."""

    method: Method  # plans by quantiles read it
    paper_method: Method  # the paper's policies plan from its means
    methods: tuple[Method, ...]  # all that are made, both of these among them
    bucket_minutes: Annotated[int, Among(tuple(n for n in range(1, 61) if 60 % n == 0))]
    history_days: Annotated[int, Range(1, 3660)]
    niw_buffer_share: Share  # of the last hour's niw load, added to the forecast (SageServe 6.3)
    calendar: str | None = None  # a file of data/calendar: time zone, holidays, known events


@dataclass(frozen=True)
class Rolling:
    """Plans that are made again and again, 48 hours ahead (assets/plans/rolling.py)."""

    every_minutes: Annotated[int, Among((15, 20, 30, 60, 120, 180, 240, 360))] = 60
    holds_current: bool = False  # until the next plan at least the load of now is carried
    max_changes: Annotated[int, Range(1, 1_000_000)] | None = None  # instances of a kind, a region, an hour


@dataclass(frozen=True)
class PlanConfig:
    """The hourly programmes: SageServe's (models/plan/paper.py) and the corrected one (corrected.py)."""

    solver: Annotated[str, Known("solver", SOLVERS)]
    epsilon: PositiveShare  # share of its own peak that a region must be able to serve
    capacity_share: PositiveShare  # of an instance's measured capacity that the paper's plan counts on
    corrected_capacity_share: PositiveShare  # the same of the corrected plan
    quantile: Annotated[float, Among(QUANTILES)]  # of the hour's maximum that the corrected plan covers
    most_headroom_share: Annotated[float, Range(0, 1000)]  # above the mean that the corrected plan covers
    spot_earning_share: Share  # of its price that a donated instance earns
    hysteresis_share: Share  # of an hour's price that giving an instance up must save
    export_share: Share  # of the cheapest capacity that serving a token in another region costs on top
    gap_share: Share
    time_limit_s: Annotated[float, Range(0.1, 3600)]  # of an hour's plan
    capacity: Annotated[str, Known("capacity", CAPACITIES)] = "slo"  # of an instance: in time, or at all
    together: bool = False  # teams, whose phases are apart, are not held
    rolling: Rolling = field(default_factory=Rolling)


@dataclass(frozen=True)
class Gear:
    """What an llm of a cascade sends on from a measured load on: CascadeServe's gears, or a valve."""

    at_least: Annotated[float, Range(0, 1_000_000_000)]  # requests/s, or a share
    go_on_shares: tuple[Share, ...]


@dataclass(frozen=True)
class Cascade:
    """What a request for an llm goes through: llm after llm, until an answer will do (Cascadia 3.3)."""

    llms: tuple[str, ...]
    go_on_shares: tuple[Share, ...]  # of the answers of each llm but the last, that will not do
    judge_s: Seconds  # that judging an answer takes, of a judge outside
    gears: tuple[Gear, ...] = ()  # above the shares that are said
    # rate: requests/s that come to the first llm; load: of the llm behind, what waits and runs over what fits
    gears_by: Annotated[str, Known("way to choose a gear", GEARS_BY)] = "rate"
    judge_llm: str | None = None  # of ours, that judges; None: a judge outside
    rubric_tokens: Annotated[int, Range(0, 1_000_000)] = 200  # that it reads besides prompt and answer
    shadow_share: Share = 0.0  # of the requests, that all llms answer so that the scores stay known
    at_arrival: bool = False  # which llm answers is chosen before any does (BoUTE 4.1)

    @property
    def is_judged_outside(self) -> bool:
        """Whether a service outside says which answers will not do."""
        return self.judge_llm is None and not self.at_arrival


@dataclass(frozen=True)
class Levels:
    """Levels of priority, 0 the highest, and what instances keep free for them (multi-tier Llumnix 3.3)."""

    count: Annotated[int, Range(1, 10)] = 1
    by: Annotated[str, Known("way to draw levels", LEVELS_BY)] = "tier"
    shares: tuple[Share, ...] | None = None  # of the requests, by level, where they are drawn by "shares"
    headroom_share: Share = 0.2  # of an instance's memory, for level 0
    headroom_decay: Annotated[float, Range(0, 100)] = 1.0  # from level to level: e^-decay
    headroom_adapts: bool = False  # more while the level is late, less while it is on time
    headroom_counts: Annotated[str, Known("headroom that counts", HEADROOMS)] = "all"
    demand: Annotated[str, Known("demand", DEMANDS)] = "head"  # of those that wait
    promote_s: Annotated[float, Range(0, 1_000_000, is_above=True)] | None = None  # None: never
    least_ceiling_share: Share | None = None  # of saturation, for the last level; None: nobody is kept back


@dataclass(frozen=True)
class Moves:
    """When the balancer looks, and what it moves (multi-tier Llumnix 3.5)."""

    interval_s: Annotated[float, Range(0, 86_400, is_above=True)] = 0.5
    gap_blocks: Annotated[float, Range(0, 1_000_000)] = 0.3  # of freeness, between source and destination
    from_blocks: Annotated[float, Range(-1_000_000, 1_000_000)] | None = None  # of a source; None: any
    is_guarded: bool = True
    lowest_first: bool = True  # of those that wait
    last_copy_tokens: Annotated[int, Range(0, 1_000_000)] = 16  # so few go while the request stands still
    max_copies: Annotated[int, Range(1, 100)] = 8
    hand_over_s: Seconds = 0.01  # between the last copy and the next step at the other instance


@dataclass(frozen=True)
class ReplayConfig:
    """The replay's thresholds and clocks (SageServe 4, 6.1, 6.2, 6.4, 7.1)."""

    policies: tuple[str, ...]
    routing: Annotated[str, Known("routing", ROUTINGS)]  # to an instance
    order: Annotated[str, Known("queue order", ORDERS)]  # of an instance's queue
    tau_p_s: Seconds  # DPA: urgent when less than this is left to the first token's deadline
    tau_n_s: Seconds  # DPA: severely expired when the deadline is longer past than this
    route_utilisation_share: Share
    scale_out_share: Share
    scale_in_share: Share
    cooldown_s: Seconds
    monitor_s: Annotated[float, Range(0.1, 3600)]
    niw_pull_one_share: Share
    niw_pull_two_share: Share
    niw_priority_age_s: Seconds
    boot_spot_s: Annotated[float, Range(0, 86_400, is_above=True)]  # median; draws: half of it to the maximum
    boot_spot_max_s: Seconds
    boot_local_s: Seconds
    boot_remote_s: Seconds
    failures_per_instance_day: Annotated[float, Range(0, 100)]
    donate_s: Seconds  # in which an instance that has finished its work is donated
    network_sigma: Annotated[float, Range(0, 5)]  # of ln(network delay): its spread about the catalogue's
    pressure_share: PositiveShare  # Chiron: of the instances that may be busy with interactive requests
    # LT-UA: observed over forecast load, from which on and down to which it may pass its target
    surge_ratio: Annotated[float, Range(1, 1000)]
    slump_ratio: Share
    correction_minutes: Annotated[int, Range(0, 60)]  # LT-UA: the last minutes of the hour in which it may
    spread: Annotated[str, Known("spread", SPREADS)] = "in_order"  # between the pools of an llm in a region
    opportunism: Annotated[str, Known("opportunism", OPPORTUNISMS)] = "off"  # of prefill and decode apart
    keep_weight: Annotated[float, Range(0, 1_000_000)] = 1.0  # of what is left where a prompt was prefilled
    signal: Annotated[str, Known("signal", SIGNALS)] = "memory"  # of the policies that name none
    start: Annotated[str, Known("start", STARTS)] = "plan"  # what serves at the start: a plan, or the whole
    catch_up_s: Annotated[float, Range(1, 86_400)] = 60.0  # in which what waits is to be worked off
    reflex_share: Annotated[float, Range(0, 100, is_above=True)] = 1.3  # of what is sustained, to pass a plan
    cascades: Mapping[str, Cascade] = field(default_factory=dict)  # by the llm that is asked for
    levels: Levels = field(default_factory=Levels)
    moves: Moves = field(default_factory=Moves)
    is_balanced: bool = False  # requests move, as [replay.moves] says, where a policy says nothing
    freeness_out: Annotated[float, Range(-1_000_000, 1_000_000)] = -0.5  # of the mean, below which it grows
    freeness_in: Annotated[float, Range(-1_000_000, 1_000_000)] = 1.5  # and above which it shrinks


# that a policy may say itself
OF_REPLAY = ("signal", "order", "routing", "start", "is_balanced", "spread", "opportunism")


@dataclass(frozen=True)
class OwnPolicy:
    """A shipped policy with figures of its own, so that both stand on one board."""

    like: Annotated[str, Known("policy", (*POLICIES, *PLANNERS))]
    scaling: Annotated[str, Known("scaling", SCALINGS)] | None = None  # else that of the policy, likewise:
    stack: Annotated[str, Known("stack", tuple(STACKS))] | None = None
    order: Annotated[str, Known("queue order", ORDERS)] | None = None  # else that of [replay], likewise:
    routing: Annotated[str, Known("routing", ROUTINGS)] | None = None
    signal: Annotated[str, Known("signal", SIGNALS)] | None = None
    is_balanced: bool | None = None
    spread: Annotated[str, Known("spread", SPREADS)] | None = None
    opportunism: Annotated[str, Known("opportunism", OPPORTUNISMS)] | None = None
    answers: Annotated[str, Known("way to plan who answers", ANSWERS)] | None = None
    together: bool | None = None  # its plan holds only instances that do both phases; else as the policy
    capacity_share: PositiveShare | None = None  # else that of [plan] for its programme, likewise:
    quantile: Annotated[float, Among(QUANTILES)] | None = None
    slot_minutes: Annotated[int, Among((15, 20, 30, 60))] | None = None  # of its plan; else the whole hour

    @property
    def policy(self) -> Policy:
        """The shipped one with these figures."""
        own = {name: value for name, value in vars(self).items() if name != "like" and value is not None}
        like = (POLICIES | PLANNERS)[self.like]
        if self.stack is not None:  # what the shipped policy says of these it says no more
            like = like._replace(order=None, routing=None, is_balanced=None)
        return like._replace(**own)


@dataclass(frozen=True)
class Config:
    """One file of data/config: a trace, a fleet, and how to forecast, plan and replay."""

    file: Path
    trace: TraceConfig
    fleet: FleetConfig
    forecast: ForecastConfig
    plan: PlanConfig
    replay: ReplayConfig
    policies: Mapping[str, OwnPolicy] = field(default_factory=dict)  # beside the shipped ones
    catalogue: Mapping[str, Any] = field(default_factory=dict)  # what differs in it: changes.py
    quality: QualityConfig | None = None  # which llms may answer each other's requests
    calendar: Calendar = field(default_factory=Calendar)  # the file that [forecast] calendar names

    @cached_property
    def rules(self) -> dict[str, Policy]:
        """Every policy that can be replayed: the shipped ones, the planners, then the config's own.

        Where [quality] asks nothing, a planner has the llm answer that was asked.
        """
        found = POLICIES | PLANNERS | {name: own.policy for name, own in self.policies.items()}
        if self.quality is not None and self.quality.quality is not None:
            return found
        like = {name: own.like for name, own in self.policies.items()}
        return {
            name: policy._replace(answers=None) if like.get(name, name) in PLANNERS else policy
            for name, policy in found.items()
        }

    @property
    def of_a_night(self) -> list[str]:
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
            for name in self.of_a_night
            if rules[name].scaling == "hpa"
            or (rules[name].scaling in BY_SIGNAL and self.under(name).replay.signal == "memory")
        ]

    def slots(self, policy: str) -> int:
        """How many plans an hour has under a policy: as the config says, else as boots and buckets allow."""
        minutes = self.rules[policy].slot_minutes
        is_said = policy in self.policies and self.policies[policy].slot_minutes is not None
        fits = minutes % self.forecast.bucket_minutes == 0 and 2 * self.replay.boot_local_s <= 60 * minutes
        return 60 // minutes if is_said or fits else 1

    def under(self, policy: str) -> "Config":
        """The config as a policy sees it: with the figures that are its own."""
        rule = self.rules[policy]
        share, quantile = rule.capacity_share, rule.quantile
        plan = replaced(
            self.plan,
            capacity_share=share,
            corrected_capacity_share=share,
            quantile=quantile,
            together=rule.together or None,
        )
        own = {name: getattr(rule, name) for name in OF_REPLAY}
        return replace(self, plan=plan, replay=replaced(stacked(self.replay, STACKS[rule.stack]), **own))


def stacked(replay: ReplayConfig, stack: Stack, headroom_share: float | None = None) -> ReplayConfig:
    """The replay under a stack; a headroom that is said takes the place of its own, if it is one with any."""
    levels = replace(replay.levels, **stack.levels)
    if headroom_share is not None and stack.headroom_share != 0.0:
        levels = replace(levels, headroom_share=headroom_share)
    replay = replace(replay, levels=levels, moves=replace(replay.moves, **stack.moves))
    return replaced(replay, routing=stack.routing, order=stack.order, is_balanced=stack.is_balanced)


def replaced(table: Any, **said: Any) -> Any:
    """The dataclass with what is said (is not None) in place of its own."""
    return replace(table, **{name: value for name, value in said.items() if value is not None})
