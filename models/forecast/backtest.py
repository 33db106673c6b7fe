"""Walk-forward backtests: at every cutoff a method sees only what was known then.

Series are cut here and nowhere else, so that no method can see past its cutoff. A method gets a read-only
view that ends at the cutoff, and the state that it returned at the previous cutoff.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast import find_method
from fleetcast.models.forecast.forecast_method import SEASON_DAYS, Forecast, ForecastMethod, Past, last_value

CEILING = 3.0  # a forecast above this multiple of the highest rate seen so far has diverged
SERIES_PER_BATCH = 250  # bounds the memory of a method, whatever the size of the panel


class BacktestClock(NamedTuple):
    """When a walk forecasts, in buckets; at cutoff c the buckets 0 .. c - 1 are known."""

    first_cutoff: int
    every: int  # buckets from one cutoff to the next
    horizon: int  # the buckets c .. c + horizon - 1 are forecast
    season: int  # buckets of a day

    def cutoffs(self, buckets: int) -> range:
        """Return the cutoffs of a walk over this number of buckets."""
        return range(self.first_cutoff, buckets, self.every)

    @property
    def lag(self) -> int:
        """Number of cutoffs after which the whole horizon of a forecast is known."""
        return -(-self.horizon // self.every)

    @property
    def lags(self) -> tuple[int, ...]:
        """The lag of each hour ahead; the last hour may be shorter."""
        ends = range(self.hour, self.horizon + self.hour, self.hour)
        return tuple(-(-min(end, self.horizon) // self.every) for end in ends)

    @property
    def hour(self) -> int:
        """Buckets of an hour, at most the horizon; a plan is sized for the maximum of each hour."""
        return min(self.horizon, max(self.season // 24, 1))

    def earlier(self, cutoffs: int) -> "BacktestClock":
        """Return a clock that starts this number of cutoffs earlier, but leaves at least a day of history."""
        room = max(self.first_cutoff - self.season, 0) // self.every
        return self._replace(first_cutoff=self.first_cutoff - min(cutoffs, room) * self.every)


class Walk(NamedTuple):
    """The forecasts of all series at all cutoffs."""

    mean: Floats  # rate, shape (series, cutoffs, horizon)
    fallbacks: NDArray[np.str_]  # the method used instead and why, shape (series, cutoffs); "" where none


def walk_forward(
    demand: Floats, method: str, clock: BacktestClock, phase: Ints | None = None, factor: Floats | None = None
) -> Walk:
    """Forecast every series at every cutoff, from its past only.

    demand : rate per bucket, shape (series, buckets); nan is a missing bucket, not an empty one. To forecast
        beyond the record, append nan.
    method : a name in FORECAST_METHODS
    phase : bucket of the week that each bucket behaves as, 0 .. 7 * season - 1, shape (series, buckets +
        horizon) (calendar.py). Without it, weeks are counted from the first bucket, whatever its weekday.
    factor : factor of known events on the demand of each bucket, shape as `phase`: methods see the demand
        without events, and the forecasts include them

    Raises
    ------
    ValueError
        Unknown method, demand that is not (series, buckets) of rates >= 0 or nan, or a clock out of range.
    """
    forecast = find_method(method)
    _check(demand, clock)
    series, buckets = demand.shape
    if phase is None:
        phase = np.tile(np.arange(buckets + clock.horizon) % (SEASON_DAYS * clock.season), (series, 1))
    if factor is None:
        factor = np.ones(phase.shape)
    starts = range(0, max(series, 1), SERIES_PER_BATCH)
    parts = (slice(start, start + SERIES_PER_BATCH) for start in starts)
    return join_walks([_walk(demand[part], forecast, clock, phase[part], factor[part]) for part in parts])


def _walk(
    demand: Floats, forecast: ForecastMethod, clock: BacktestClock, phase: Ints, factor: Floats
) -> Walk:
    """Walk one batch of series; shapes as in `walk_forward`."""
    series, buckets = demand.shape
    plain, phase = demand / factor[:, :buckets], phase.view()  # demand without events
    highest = np.fmax.accumulate(np.pad(plain, ((0, 0), (1, 0))), axis=1)  # known before each bucket
    plain.flags.writeable = phase.flags.writeable = False
    state, means, fallbacks = None, [], []
    for end in clock.cutoffs(buckets):
        past = Past(plain[:, :end], phase[:, : end + clock.horizon], clock.horizon, clock.season)
        bounded = _bounded(forecast, past, state, highest[:, end])
        state = bounded.state
        means.append(bounded.mean * factor[:, end : end + clock.horizon])
        fallbacks.append(bounded.fallbacks)
    shape = (len(means), series)
    return Walk(
        np.array(means).reshape(*shape, clock.horizon).transpose(1, 0, 2),
        np.array(fallbacks, dtype=np.str_).reshape(shape).T,
    )


def join_walks(parts: Sequence[Walk]) -> Walk:
    """Concatenate the walks of parts of the series, in their order."""
    means, fallbacks = zip(*parts, strict=True)
    return Walk(np.concatenate(means), np.concatenate(fallbacks))


def actual_demand(demand: Floats, clock: BacktestClock) -> Floats:
    """Return the demand after each cutoff, shape (series, cutoffs, horizon), from `demand` (series, buckets).

    Buckets beyond the record are nan.
    """
    ends = np.array(clock.cutoffs(demand.shape[1]), dtype=np.int64)
    longer = np.pad(demand, ((0, 0), (0, clock.horizon)), constant_values=np.nan)
    return longer[:, ends[:, None] + np.arange(clock.horizon)]


def _bounded(forecast: ForecastMethod, past: Past, state: object, highest: Floats) -> Forecast:
    """Return the method's forecast, never negative; the last value of a series whose forecast diverged.

    `highest`, shape (series,), is the highest rate that each series has had so far.
    """
    naive = last_value(past).mean
    mean, state, reasons = forecast(past, state)
    is_sound = np.all(mean <= CEILING * highest[:, None], axis=1)  # false for nan
    fallbacks = [
        reason if sound else "last_value: the forecast diverged"
        for reason, sound in zip(reasons or [""] * len(mean), is_sound, strict=True)
    ]
    return Forecast(np.maximum(np.where(is_sound[:, None], mean, naive), 0.0), state, fallbacks)


def _check(demand: Floats, clock: BacktestClock) -> None:
    """Raise ValueError unless demand is (series, buckets) of rates >= 0 or nan, and the clock fits it."""
    if demand.ndim != 2:
        raise ValueError(f"demand: got the shape {demand.shape}, needed (series, buckets).")
    for name in ("every", "horizon", "season"):
        if getattr(clock, name) < 1:
            raise ValueError(f"{name}: got {getattr(clock, name)}, needed at least 1 bucket.")
    if not 0 <= clock.first_cutoff <= demand.shape[1]:
        raise ValueError(
            f"first_cutoff: got {clock.first_cutoff}, needed 0 .. {demand.shape[1]}, the buckets of demand."
        )
    wrong = np.argwhere((demand < 0) | np.isinf(demand))
    if wrong.size:
        series, bucket = wrong[0]
        raise ValueError(
            f"demand of series {series}, bucket {bucket}: got {demand[series, bucket]}, "
            "needed a rate >= 0, or nan where the bucket is missing."
        )
