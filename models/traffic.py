"""Parameters of a made trace ([trace.office], [trace.tiled] in data/config) and the columns of its days."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MINUTES = 1440


def require(holds: bool, broken: str) -> None:
    """Refuse trace parameters that break a rule."""
    if not holds:
        raise ValueError(f"Trace parameters: {broken}. Mend the [trace] tables of the config.")


def require_shares(what: str, shares: Iterable[float]) -> None:
    """Refuse shares that do not sum to 1."""
    total = sum(shares)
    require(math.isclose(total, 1.0, abs_tol=1e-6), f"{what} sums to {total:g}, needs 1")


@dataclass(frozen=True)
class TierTraffic:
    """One urgency class: how much of the load it is, when it comes, and from where."""

    share: float  # of the requests of the first week
    by_weekday: tuple[float, ...]  # Monday to Sunday, relative
    by_hour: tuple[float, ...]  # 24 figures, relative, UTC; linear between the middles of the hours
    growth_per_week: float  # a step from week to week
    daily_noise_share: float  # standard deviation of a cell's level from day to day, in its mean
    minute_noise_share: float  # the same from minute to minute
    minute_noise_minutes: float  # correlation time of the latter
    bulk_share: float  # of its requests that come in bulk jobs
    jobs_per_day: float
    job_minutes: int
    input_factor: float  # on the apps' input tokens
    mix: Mapping[str, Mapping[str, float]]  # llm -> region -> share of its requests
    heavier: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # on input tokens

    def __post_init__(self) -> None:
        require(len(self.by_weekday) == 7, f"by_weekday has {len(self.by_weekday)} figures, needs 7")
        require(len(self.by_hour) == 24, f"by_hour has {len(self.by_hour)} figures, needs 24")
        require(self.minute_noise_minutes > 0, "minute_noise_minutes must be above 0")
        require(0 < self.job_minutes <= MINUTES, f"job_minutes is {self.job_minutes}, needs 1 to {MINUTES}")
        require(self.bulk_share == 0 or self.jobs_per_day > 0, "bulk_share needs jobs_per_day above 0")
        require_shares("mix", (share for regions in self.mix.values() for share in regions.values()))


@dataclass(frozen=True)
class App:
    """An application: its share of the requests of each tier, and the median tokens of a request."""

    share: Mapping[str, float]
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True)
class Burst:
    """A stretch in which `factor` times the load arrives."""

    start: datetime
    minutes: int
    factor: float


@dataclass(frozen=True)
class OfficeTraffic:
    """Parameters of office-suite-like traffic."""

    requests_per_day: float  # mean weekday of the first week
    first_week: date  # where growth begins
    input_sigma: float  # of the logarithm of the tokens
    output_sigma: float
    max_input_tokens: int
    max_output_tokens: int
    tiers: Mapping[str, TierTraffic]
    apps: Mapping[str, App]
    bursts: tuple[Burst, ...] = ()

    def __post_init__(self) -> None:
        require_shares("the tiers' share", (traffic.share for traffic in self.tiers.values()))
        for tier in self.tiers:
            shares = (app.share.get(tier, 0.0) for app in self.apps.values())
            require_shares(f"the apps' share.{tier}", shares)


@dataclass(frozen=True)
class TiledTraffic:
    """Parameters of a short real trace repeated over days."""

    template: str  # the landed trace
    requests_share: float  # requests in the mean hour, in those of the template's hour
    by_hour_of_week: tuple[float, ...]  # 168 figures from Monday 00:00 UTC, relative

    def __post_init__(self) -> None:
        hours = len(self.by_hour_of_week)
        require(hours == 168, f"by_hour_of_week has {hours} figures, needs 168")


class Names(NamedTuple):
    """Names in catalogue order; codes are positions in them."""

    llms: tuple[str, ...]
    regions: tuple[str, ...]
    tiers: tuple[str, ...]


class Columns(NamedTuple):
    """The requests of a day by arrival, all of shape (requests,)."""

    arrived_us: NDArray[np.int64]  # microseconds since midnight, UTC
    region: NDArray[np.int16]
    llm: NDArray[np.int16]
    tier: NDArray[np.int16]
    app: NDArray[np.int16]
    input_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
