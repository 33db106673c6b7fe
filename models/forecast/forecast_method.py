"""What a forecasting method is: a plain function of the known past of a panel of series."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints

SEASON_DAYS = 7  # of the longest season
FLOOR_SHARE = 0.01  # of the mean


class Past(NamedTuple):
    """All that is known at a cutoff. One series of it (`row`) has the same fields without the first axis."""

    demand: Floats  # rate per bucket up to the cutoff, nan where a bucket is missing, shape (series, buckets)
    phase: Ints  # bucket of the week that each bucket behaves as, shape (series, buckets + horizon)
    horizon: int  # buckets to forecast
    season: int  # buckets of a day

    @property
    def ahead(self) -> Ints:
        """Phases of the buckets to forecast."""
        return self.phase[..., -self.horizon :]

    @property
    def behind(self) -> Ints:
        """Phases of the known buckets."""
        return self.phase[..., : self.demand.shape[-1]]

    @property
    def hour(self) -> int:
        """Buckets of an hour, at least one."""
        return max(self.season // 24, 1)

    def row(self, series: int) -> "Past":
        """One series of the panel."""
        return self._replace(demand=self.demand[series], phase=self.phase[series])


class Forecast(NamedTuple):
    """What a method says at one cutoff."""

    mean: Floats  # expected rate per bucket, shape (series, horizon)
    state: Any = None  # what the next cutoff of the same panel may reuse
    fallbacks: Sequence[
        str
    ] = ()  # per series: which method answered instead and why, "" if none; () if none at all


# `state` is what the previous cutoff of the same panel returned (None at first), so that a method can refit
# rarely and update often.
ForecastMethod = Callable[[Past, Any], Forecast]


class SeriesForecast(NamedTuple):
    """What a method of single series says; `mean` is None where it has to fall back on the last value."""

    mean: Floats | None
    state: Any
    reason: str = ""  # why there is no mean


def lift_to_panel(method: Callable[[Past, Any], SeriesForecast]) -> ForecastMethod:
    """Lift a method of single series to panels; where it has no answer the last value stands in."""

    def lifted(past: Past, state: Any) -> Forecast:
        series = len(past.demand)
        each = [method(past.row(i), state[i] if state else None) for i in range(series)]
        naive = last_value(past).mean
        means = [naive[i] if one.mean is None else one.mean for i, one in enumerate(each)]
        fallbacks = [f"last_value: {one.reason}" if one.mean is None else "" for one in each]
        return Forecast(np.array(means).reshape(naive.shape), [one.state for one in each], fallbacks)

    return lifted


def last_value(past: Past, state: Any = None) -> Forecast:
    """Hold the last known value; zero where nothing is known."""
    return Forecast(np.repeat(last_known_values(past.demand)[:, None], past.horizon, axis=1))


def last_known_values(demand: Floats) -> Floats:
    """The last known value of each series, 0 where none is, shape (series,)."""
    if demand.shape[1] == 0:
        return np.zeros(len(demand))
    last = demand[:, -1].copy()
    for series in np.flatnonzero(np.isnan(last)):
        known = demand[series][~np.isnan(demand[series])]
        last[series] = known[-1] if known.size else 0.0
    return last


def mean_level(demand: Floats) -> Floats:
    """The mean of what is known, 1 where that is nothing or zero; shape (..., 1)."""
    total, count = demand.sum(axis=-1, keepdims=True), np.array(demand.shape[-1])
    if np.isnan(total).any():
        known = ~np.isnan(demand)
        total, count = (of.sum(axis=-1, keepdims=True) for of in (np.where(known, demand, 0.0), known))
    mean = total / np.maximum(count, 1)
    return np.where(mean > 0, mean, 1.0)


def log_floor(demand: Floats) -> Floats:
    """What is added before taking logarithms: an empty bucket is low, not minus infinity; shape (..., 1)."""
    return FLOOR_SHARE * mean_level(demand)


def from_logs(logs: Floats, floor: Floats) -> Floats:
    """The way back from log(demand + floor), never negative."""
    with np.errstate(over="ignore"):  # what diverges becomes inf, and the walk forward sees that
        return np.maximum(np.exp(logs) - floor, 0.0)
