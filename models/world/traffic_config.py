"""[trace.office] and [trace.tiled]: the parameters of a synthetic trace."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated

from fleetcast.models.world.calendar import HOURS_PER_WEEK, WEEKDAYS
from fleetcast.models.world.toml_dataclasses import MERGED_BY_NAME, Range, Share, TraceName

TRAFFIC_DAY_MINUTES = 1440

Relative = Annotated[float, Range(0, 1_000_000)]
Factor = Annotated[float, Range(0, 1000, is_above=True)]
NoiseShare = Annotated[float, Range(0, 10)]  # standard deviation, in the mean
Sigma = Annotated[float, Range(0, 10)]
MedianTokens = Annotated[float, Range(1, 10_000_000)]


def require_traffic(holds: bool, broken: str) -> None:
    """Raise ValueError for trace parameters that break a rule."""
    if not holds:
        raise ValueError(f"{broken}. Correct it.")


def require_shares(what: str, shares: Iterable[float]) -> None:
    """Raise ValueError for shares that do not sum to 1."""
    total = sum(shares)
    require_traffic(math.isclose(total, 1.0, abs_tol=1e-6), f"{what} sums to {total:g}, needs 1")


@dataclass(frozen=True)
class TierTraffic:
    """Traffic of one tier: its share of the load, over time, llms and regions."""

    share: Share  # of the requests of the first week
    by_weekday: tuple[Relative, ...]  # Monday to Sunday
    by_hour: tuple[Relative, ...]  # 24 figures, UTC; linear between the middles of the hours
    growth_per_week: Annotated[float, Range(-1, 10, is_above=True)]  # a step from week to week
    daily_noise_share: NoiseShare  # of a cell's level from day to day
    minute_noise_share: NoiseShare  # the same from minute to minute
    # correlation time of the noise from minute to minute
    minute_noise_minutes: Annotated[float, Range(0, TRAFFIC_DAY_MINUTES, is_above=True)]
    bulk_share: Share  # of its requests that arrive in bulk jobs
    jobs_per_day: Annotated[float, Range(0, 1_000_000)]
    job_minutes: Annotated[int, Range(1, TRAFFIC_DAY_MINUTES)]
    input_factor: Factor  # of the apps' input tokens
    mix: Mapping[str, Mapping[str, Share]]  # llm -> region -> share of its requests
    heavier: Mapping[str, Mapping[str, Factor]] = field(default_factory=dict)  # factor of input tokens

    def __post_init__(self) -> None:
        require_traffic(len(self.by_weekday) == 7, f"by_weekday has {len(self.by_weekday)} figures, needs 7")
        require_traffic(len(self.by_hour) == 24, f"by_hour has {len(self.by_hour)} figures, needs 24")
        for name in ("by_weekday", "by_hour"):
            require_traffic(any(getattr(self, name)), f"{name} has nothing but 0, needs a figure above it")
        require_traffic(
            self.bulk_share == 0 or self.jobs_per_day > 0, "bulk_share needs jobs_per_day above 0"
        )
        require_shares("mix", (share for regions in self.mix.values() for share in regions.values()))


@dataclass(frozen=True)
class App:
    """An application: its share of the requests of each tier, and the median tokens of a request."""

    share: Mapping[str, Share]
    input_tokens: MedianTokens
    output_tokens: MedianTokens


@dataclass(frozen=True)
class BurstConfig:
    """A period in which `factor` times the load arrives."""

    start: datetime
    minutes: Annotated[int, Range(1, 1_000_000)]
    factor: Annotated[float, Range(0, 1000)]


@dataclass(frozen=True)
class OfficeTraffic:
    """Parameters of office-suite-like traffic."""

    requests_per_day: Annotated[float, Range(0, 1_000_000_000, is_above=True)]  # mean weekday, first week
    first_week: date  # start of the growth
    input_sigma: Sigma  # of the logarithm of the tokens
    output_sigma: Sigma
    max_input_tokens: Annotated[int, Range(1, 10_000_000)]
    max_output_tokens: Annotated[int, Range(1, 10_000_000)]
    tiers: Mapping[str, TierTraffic] = field(metadata=MERGED_BY_NAME)  # others have no requests
    apps: Mapping[str, App]
    bursts: tuple[BurstConfig, ...] = ()

    def __post_init__(self) -> None:
        require_shares("the tiers' share", (traffic.share for traffic in self.tiers.values()))
        for tier, traffic in self.tiers.items():
            if traffic.share > 0:
                shares = (app.share.get(tier, 0.0) for app in self.apps.values())
                require_shares(f"the apps' share.{tier}", shares)


@dataclass(frozen=True)
class TiledTraffic:
    """Parameters of a short real trace repeated over days."""

    template: TraceName  # the landed trace
    requests_share: Factor  # requests in the mean hour, relative to the template's hour
    by_hour_of_week: tuple[Relative, ...]  # 168 figures a week from Monday 00:00 UTC; the weeks repeat
    first_week: date | None = None  # the Monday of the first of several weeks

    def __post_init__(self) -> None:
        hours = len(self.by_hour_of_week)
        require_traffic(
            hours > 0 and hours % HOURS_PER_WEEK == 0,
            f"by_hour_of_week has {hours} figures, needs {HOURS_PER_WEEK} for each week",
        )
        if self.first_week is None:
            require_traffic(
                hours == HOURS_PER_WEEK,
                f"by_hour_of_week has {hours // HOURS_PER_WEEK} weeks, needs first_week",
            )
        else:
            weekday = WEEKDAYS[self.first_week.weekday()]
            require_traffic(weekday == WEEKDAYS[0], f"first_week is a {weekday}, needs a {WEEKDAYS[0]}")
        require_traffic(
            any(self.by_hour_of_week), "by_hour_of_week has nothing but 0, needs a figure above it"
        )
