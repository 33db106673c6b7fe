"""The interface of forecast methods: plain functions of the known past of a panel of series."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints

SEASON_DAYS = 7  # of the longest season
FLOOR_SHARE = 0.01  # of the mean


class Past(NamedTuple):
    """The past of all series at a cutoff. One series (`row`) has the same fields without the first axis."""

    demand: Floats  # rate per bucket up to the cutoff, nan where a bucket is missing, shape (series, buckets)
    phase: Ints  # bucket of the week that each bucket behaves as, shape (series, buckets + horizon)
    horizon: int  # buckets to forecast
    season: int  # buckets of a day

    @property
    def ahead(self) -> Ints:
        """Phases of the buckets to forecast, shape (series, horizon)."""
        return self.phase[..., -self.horizon :]

    @property
    def behind(self) -> Ints:
        """Phases of the known buckets, shape (series, buckets)."""
        return self.phase[..., : self.demand.shape[-1]]

    @property
    def hour(self) -> int:
        """Buckets of an hour, at least one."""
        return max(self.season // 24, 1)

    def row(self, series: int) -> "Past":
        """Return one series of the panel."""
        return self._replace(demand=self.demand[series], phase=self.phase[series])


class Forecast(NamedTuple):
    """The forecast of a method at one cutoff."""

    mean: Floats  # expected rate per bucket, shape (series, horizon)
    state: Any = None  # passed to the method at the next cutoff of the same panel
    # Per series: the method used instead and why, "" where none was; () where no series has a fallback.
    fallbacks: Sequence[str] = ()


# (past, state) -> forecast. `state` is what the previous cutoff of the same panel returned, None at first.
# With it a method can refit rarely and update often.
ForecastMethod = Callable[[Past, Any], Forecast]


class SeriesForecast(NamedTuple):
    """The forecast of a method of single series; `mean` is None where the last value replaces it."""

    mean: Floats | None  # expected rate per bucket, shape (horizon,)
    state: Any
    reason: str = ""  # why there is no mean


def lift_to_panel(method: Callable[[Past, Any], SeriesForecast]) -> ForecastMethod:
    """Lift a method of single series to panels; the last value replaces a forecast that it cannot make."""

    def lifted(past: Past, state: Any) -> Forecast:
        series = len(past.demand)
        each = [method(past.row(i), state[i] if state else None) for i in range(series)]
        naive = last_value(past).mean
        means = [naive[i] if found.mean is None else found.mean for i, found in enumerate(each)]
        fallbacks = [f"last_value: {found.reason}" if found.mean is None else "" for found in each]
        return Forecast(np.array(means).reshape(naive.shape), [found.state for found in each], fallbacks)

    return lifted


def last_value(past: Past, state: Any = None) -> Forecast:
    """Hold the last known value; zero where nothing is known."""
    return Forecast(np.repeat(last_known_values(past.demand)[:, None], past.horizon, axis=1))


def last_known_values(demand: Floats) -> Floats:
    """Return the last known rate of each series, (series,), of `demand` (series, buckets); 0 if unknown."""
    if demand.shape[1] == 0:
        return np.zeros(len(demand))
    last = demand[:, -1].copy()
    for series in np.flatnonzero(np.isnan(last)):
        known = demand[series][~np.isnan(demand[series])]
        last[series] = known[-1] if known.size else 0.0
    return last


def mean_level(demand: Floats) -> Floats:
    """Return the mean known rate, (..., 1), of `demand` (..., buckets); 1 where it is unknown or zero."""
    total, count = demand.sum(axis=-1, keepdims=True), np.array(demand.shape[-1])
    if np.isnan(total).any():
        known = ~np.isnan(demand)
        total, count = (of.sum(axis=-1, keepdims=True) for of in (np.where(known, demand, 0.0), known))
    mean = total / np.maximum(count, 1)
    return np.where(mean > 0, mean, 1.0)


def log_floor(demand: Floats) -> Floats:
    """Return the rate added before taking logarithms, shape (..., 1), which keeps log(0) finite.

    `demand` has the shape (..., buckets).
    """
    return FLOOR_SHARE * mean_level(demand)


def from_logs(logs: Floats, floor: Floats) -> Floats:
    """Return the demand, never negative, of logs = log(demand + floor), same shape; `floor` broadcasts."""
    with np.errstate(over="ignore"):  # a diverged forecast becomes inf, which walk_forward replaces
        return np.maximum(np.exp(logs) - floor, 0.0)
