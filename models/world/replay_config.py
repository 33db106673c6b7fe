"""[replay]: its thresholds and clocks, cascades, levels of priority and moves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fleetcast.models.world.mechanisms import (
    DEMANDS,
    GEARS_BY,
    HEADROOMS,
    LEVELS_BY,
    OPPORTUNISMS,
    ORDERS,
    POOL_SPREADS,
    ROUTINGS,
    SIGNALS,
    STARTS,
)
from fleetcast.models.world.toml_dataclasses import KnownName, PositiveShare, Range, Share

ReplaySeconds = Annotated[float, Range(0, 2_592_000)]  # to 30 days


@dataclass(frozen=True)
class Gear:
    """What an llm of a cascade sends on from a measured load on: CascadeServe's gears, or a valve."""

    at_least: Annotated[float, Range(0, 1_000_000_000)]  # requests/s, or a share
    escalation_shares: tuple[Share, ...]


@dataclass(frozen=True)
class Cascade:
    """What a request for an llm goes through: llm after llm, until an answer will do (Cascadia 3.3)."""

    llms: tuple[str, ...]
    escalation_shares: tuple[Share, ...]  # of the answers of each llm but the last, that will not do
    judge_s: ReplaySeconds  # that judging an answer takes, of a judge outside
    gears: tuple[Gear, ...] = ()  # above the shares that are said
    # rate: requests/s that come to the first llm; load: of the llm behind, what waits and runs over what fits
    gears_by: Annotated[str, KnownName("way to choose a gear", GEARS_BY)] = "rate"
    judge_llm: str | None = None  # of ours, that judges; None: a judge outside
    rubric_tokens: Annotated[int, Range(0, 1_000_000)] = 200  # that it reads besides prompt and answer
    shadow_share: Share = 0.0  # of the requests, that all llms answer so that the scores stay known
    at_arrival: bool = False  # which llm answers is chosen before any does (BoUTE 4.1)

    @property
    def is_judged_outside(self) -> bool:
        """Whether a service outside says which answers will not do."""
        return self.judge_llm is None and not self.at_arrival


@dataclass(frozen=True)
class LevelsConfig:
    """Levels of priority, 0 the highest, and what instances keep free for them (multi-tier Llumnix 3.3)."""

    count: Annotated[int, Range(1, 10)] = 1
    by: Annotated[str, KnownName("way to draw levels", LEVELS_BY)] = "tier"
    shares: tuple[Share, ...] | None = None  # of the requests, by level, where they are drawn by "shares"
    headroom_share: Share = 0.2  # of an instance's memory, for level 0
    headroom_decay: Annotated[float, Range(0, 100)] = 1.0  # from level to level: e^-decay
    headroom_adapts: bool = False  # more while the level is late, less while it is on time
    headroom_counts: Annotated[str, KnownName("headroom that counts", HEADROOMS)] = "all"
    demand: Annotated[str, KnownName("demand", DEMANDS)] = "head"  # of those that wait
    promote_s: Annotated[float, Range(0, 1_000_000, is_above=True)] | None = None  # None: never
    least_ceiling_share: Share | None = None  # of saturation, for the last level; None: nobody is kept back


@dataclass(frozen=True)
class MovesConfig:
    """When the balancer looks, and what it moves (multi-tier Llumnix 3.5)."""

    interval_s: Annotated[float, Range(0, 86_400, is_above=True)] = 0.5
    gap_blocks: Annotated[float, Range(0, 1_000_000)] = 0.3  # of freeness, between source and destination
    from_blocks: Annotated[float, Range(-1_000_000, 1_000_000)] | None = None  # of a source; None: any
    is_guarded: bool = True
    lowest_first: bool = True  # of those that wait
    last_copy_tokens: Annotated[int, Range(0, 1_000_000)] = 16  # so few go while the request stands still
    max_copies: Annotated[int, Range(1, 100)] = 8
    hand_over_s: ReplaySeconds = 0.01  # between the last copy and the next step at the other instance


@dataclass(frozen=True)
class ReplayConfig:
    """The replay's thresholds and clocks (SageServe 4, 6.1, 6.2, 6.4, 7.1)."""

    policies: tuple[str, ...]
    routing: Annotated[str, KnownName("routing", ROUTINGS)]  # to an instance
    order: Annotated[str, KnownName("queue order", ORDERS)]  # of an instance's queue
    tau_p_s: ReplaySeconds  # DPA: urgent when less than this is left to the first token's deadline
    tau_n_s: ReplaySeconds  # DPA: severely expired when the deadline is longer past than this
    route_utilisation_share: Share
    scale_out_share: Share
    scale_in_share: Share
    cooldown_s: ReplaySeconds
    monitor_s: Annotated[float, Range(0.1, 3600)]
    niw_pull_one_share: Share
    niw_pull_two_share: Share
    niw_priority_age_s: ReplaySeconds
    boot_spot_s: Annotated[float, Range(0, 86_400, is_above=True)]  # median; draws: half of it to the maximum
    boot_spot_max_s: ReplaySeconds
    boot_local_s: ReplaySeconds
    boot_remote_s: ReplaySeconds
    failures_per_instance_day: Annotated[float, Range(0, 100)]
    donate_s: ReplaySeconds  # in which an instance that has finished its work is donated
    network_sigma: Annotated[float, Range(0, 5)]  # of ln(network delay): its spread about the catalogue's
    pressure_share: PositiveShare  # Chiron: of the instances that may be busy with interactive requests
    # LT-UA: observed over forecast load, from which on and down to which it may pass its target
    surge_ratio: Annotated[float, Range(1, 1000)]
    slump_ratio: Share
    correction_minutes: Annotated[int, Range(0, 60)]  # LT-UA: the last minutes of the hour in which it may
    spread: Annotated[str, KnownName("spread", POOL_SPREADS)] = (
        "in_order"  # between the pools of an llm in a region
    )
    opportunism: Annotated[str, KnownName("opportunism", OPPORTUNISMS)] = "off"  # of prefill and decode apart
    opportunism_weight: Annotated[float, Range(0, 1_000_000)] = (
        1.0  # of what is left where a prompt was prefilled
    )
    signal: Annotated[str, KnownName("signal", SIGNALS)] = "memory"  # of the policies that name none
    start: Annotated[str, KnownName("start", STARTS)] = (
        "plan"  # what serves at the start: a plan, or the whole
    )
    catch_up_s: Annotated[float, Range(1, 86_400)] = 60.0  # in which what waits is to be worked off
    reactive_share: Annotated[float, Range(0, 100, is_above=True)] = (
        1.3  # of what is sustained, to pass a plan
    )
    cascades: Mapping[str, Cascade] = field(default_factory=dict)  # by the llm that is asked for
    levels: LevelsConfig = field(default_factory=LevelsConfig)
    moves: MovesConfig = field(default_factory=MovesConfig)
    is_balanced: bool = False  # requests move, as [replay.moves] says, where a policy says nothing
    freeness_out: Annotated[float, Range(-1_000_000, 1_000_000)] = -0.5  # of the mean, below which it grows
    freeness_in: Annotated[float, Range(-1_000_000, 1_000_000)] = 1.5  # and above which it shrinks
