"""[replay] of a config: thresholds and times, cascades, levels of priority, and moves of requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fleetcast.models.world.mechanisms import (
    BATCH_PULLS,
    DEMANDS,
    GEARS_BY,
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
    """Escalation shares of a cascade from a measured load on: CascadeServe's gears, or a limit under load."""

    at_least: Annotated[float, Range(0, 1_000_000_000)]  # requests/s, or a share
    escalation_shares: tuple[Share, ...]


@dataclass(frozen=True)
class Cascade:
    """The llms that serve a request one after the other until an answer is accepted (Cascadia 3.3)."""

    llms: tuple[str, ...]
    escalation_shares: tuple[Share, ...]  # escalated share of the answers of each llm but the last
    judge_s: ReplaySeconds  # that an external judge takes for an answer
    gears: tuple[Gear, ...] = ()  # shares at higher loads than for `escalation_shares`
    # rate: requests/s that arrive at the first llm; load: queued and running requests of the next llm, over
    # those that fit
    gears_by: Annotated[str, KnownName("way to choose a gear", GEARS_BY)] = "rate"
    judge_llm: str | None = None  # llm of the fleet that is the judge; None: an external judge
    rubric_tokens: Annotated[int, Range(0, 1_000_000)] = 200  # that the judge reads with prompt and answer
    shadow_share: Share = 0.0  # of the requests, served by all llms, so that the scores stay known
    at_arrival: bool = False  # the serving llm is chosen when the request arrives (BoUTE 4.1)

    @property
    def is_judged_outside(self) -> bool:
        """Whether an external service decides which answers are escalated."""
        return self.judge_llm is None and not self.at_arrival


@dataclass(frozen=True)
class LevelsConfig:
    """Levels of priority, 0 the highest, and the headroom of instances for them (multi-tier Llumnix 3.3)."""

    count: Annotated[int, Range(1, 10)] = 1
    by: Annotated[str, KnownName("way to draw levels", LEVELS_BY)] = "tier"
    shares: tuple[Share, ...] | None = None  # of the requests, by level, if levels are drawn by "shares"
    headroom_share: Share = 0.2  # of an instance's memory, for level 0; each next level has e^-1 of it
    demand: Annotated[str, KnownName("demand", DEMANDS)] = "head"  # of queued requests
    promote_s: Annotated[float, Range(0, 1_000_000, is_above=True)] | None = None  # None: never
    least_ceiling_share: Share | None = None  # of saturation, for the last level; None: no ceiling


@dataclass(frozen=True)
class MovesConfig:
    """Interval and limits of the balancer, which moves requests (multi-tier Llumnix 3.5)."""

    interval_s: Annotated[float, Range(0, 86_400, is_above=True)] = 0.5
    gap_blocks: Annotated[float, Range(0, 1_000_000)] = 0.3  # of freeness, between source and destination
    # freeness of a source; None: any
    from_blocks: Annotated[float, Range(-1_000_000, 1_000_000)] | None = None
    is_guarded: bool = True
    lowest_first: bool = True  # of queued requests
    # tokens of the last copy, during which decode is paused
    last_copy_tokens: Annotated[int, Range(0, 1_000_000)] = 16
    max_copies: Annotated[int, Range(1, 100)] = 8
    hand_over_s: ReplaySeconds = 0.01  # between the last copy and the next step at the destination


@dataclass(frozen=True)
class ReplayConfig:
    """Thresholds and times of the replay (SageServe 4, 6.1, 6.2, 6.4, 7.1)."""

    policies: tuple[str, ...]
    routing: Annotated[str, KnownName("routing", ROUTINGS)]  # to an instance
    order: Annotated[str, KnownName("queue order", ORDERS)]  # of an instance's queue
    tau_p_s: ReplaySeconds  # DPA: urgent when less than this is left to the first token's deadline
    tau_n_s: ReplaySeconds  # DPA: severely expired when the deadline is longer past than this
    route_utilisation_share: Share
    scale_out_share: Annotated[float, Range(0, 10, is_above=True)]  # work may exceed what instances sustain
    scale_in_share: Annotated[float, Range(0, 10)]
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
    donate_s: ReplaySeconds  # in which a drained instance is donated to spot
    network_sigma: Annotated[float, Range(0, 5)]  # spread of ln(network delay) around the catalogue's
    pressure_share: PositiveShare  # Chiron: limit of the share of instances busy with interactive requests
    # LT-UA: ratios of observed to forecast load above and below which it may deviate from its target
    surge_ratio: Annotated[float, Range(1, 1000)]
    slump_ratio: Share
    correction_minutes: Annotated[int, Range(0, 60)]  # LT-UA: last minutes of the hour in which it may
    # between the pools of an llm in a region
    spread: Annotated[str, KnownName("spread", POOL_SPREADS)] = "in_order"
    # with separate prefill and decode instances
    opportunism: Annotated[str, KnownName("opportunism", OPPORTUNISMS)] = "off"
    # of the backlog of the instance that has prefilled the prompt
    opportunism_weight: Annotated[float, Range(0, 1_000_000)] = 1.0
    signal: Annotated[str, KnownName("signal", SIGNALS)] = "memory"  # of policies without a signal
    # of deferred requests of the batch tier
    batch_pull: Annotated[str, KnownName("batch pull", BATCH_PULLS)] = "memory"
    # instances that serve at the start: those of a plan, or the whole fleet
    start: Annotated[str, KnownName("start", STARTS)] = "plan"
    catch_up_s: Annotated[float, Range(1, 86_400)] = 60.0  # in which a backlog is to be worked off
    # load relative to the capacity above which reactive scale-out exceeds a plan
    reactive_share: Annotated[float, Range(0, 100, is_above=True)] = 1.3
    cascades: Mapping[str, Cascade] = field(default_factory=dict)  # by the requested llm
    levels: LevelsConfig = field(default_factory=LevelsConfig)
    moves: MovesConfig = field(default_factory=MovesConfig)
    is_balanced: bool = False  # requests move by [replay.moves], unless a policy has its own rule
    freeness_out: Annotated[float, Range(-1_000_000, 1_000_000)] = -0.5  # mean below which a pool scales out
    freeness_in: Annotated[float, Range(-1_000_000, 1_000_000)] = 1.5  # mean above which it scales in
