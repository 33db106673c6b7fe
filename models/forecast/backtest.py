"""Walk-forward: at every cutoff a method sees what was known then, and nothing else.

This is the only place that cuts a series, so that no method can see past its cutoff: it is handed what ends
there, which it cannot write to, and a state that its own earlier cutoffs made.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast import find_method
from fleetcast.models.forecast.forecast_method import SEASON_DAYS, Forecast, ForecastMethod, Past, last_value

CEILING = 3.0  # a forecast above this multiple of all that was ever seen has diverged
SERIES_PER_BATCH = 250  # what a method holds of them fits into memory, whatever the panel


class BacktestClock(NamedTuple):
    """When a walk forecasts, in buckets; at cutoff c the buckets 0 .. c - 1 are known."""

    first_cutoff: int
    every: int  # from one cutoff to the next
    horizon: int  # the buckets c .. c + horizon - 1 are forecast
    season: int  # buckets of a day

    def cutoffs(self, buckets: int) -> range:
        """The cutoffs of a walk over so many buckets."""
        return range(self.first_cutoff, buckets, self.every)

    @property
    def lag(self) -> int:
        """How many cutoffs later all that a cutoff forecasts is known."""
        return -(-self.horizon // self.every)

    @property
    def lags(self) -> tuple[int, ...]:
        """The same of each hour ahead; the last one may be shorter."""
        ends = range(self.hour, self.horizon + self.hour, self.hour)
        return tuple(-(-min(end, self.horizon) // self.every) for end in ends)

    @property
    def hour(self) -> int:
        """Buckets of an hour, whose maximum a plan is sized for; of the horizon where that is shorter."""
        return min(self.horizon, max(self.season // 24, 1))

    def earlier(self, cutoffs: int) -> "BacktestClock":
        """The clock that starts so many cutoffs before this one, or as many as leave a day to learn from."""
        room = max(self.first_cutoff - self.season, 0) // self.every
        return self._replace(first_cutoff=self.first_cutoff - min(cutoffs, room) * self.every)


class Walk(NamedTuple):
    """The forecasts of all series at all cutoffs."""

    mean: Floats  # rate, shape (series, cutoffs, horizon)
    fallbacks: NDArray[np.str_]  # which method answered instead and why, shape (series, cutoffs); "" if none


def walk_forward(
    demand: Floats, method: str, clock: BacktestClock, phase: Ints | None = None, factor: Floats | None = None
) -> Walk:
    """Forecast every series at every cutoff, from its past only.

    Parameters
    ----------
    demand
        Rate per bucket, shape (series, buckets); nan is a missing bucket, not an empty one. To forecast
        beyond the record, append nan.
    method
        A name in METHODS.
    phase
        Bucket of the week that each bucket behaves as, 0 .. 7 * season - 1, shape (series, buckets + horizon)
        (calendar.py); without it the weeks go round from the first bucket, whatever weekday that is.
    factor
        What known events multiply the demand of each bucket by, of the same shape: methods see the demand
        without them, the forecasts have them.
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
    series, buckets = demand.shape
    plain, phase = demand / factor[:, :buckets], phase.view()  # as if there had been no events
    highest = np.fmax.accumulate(np.pad(plain, ((0, 0), (1, 0))), axis=1)  # of what each bucket knows
    plain.flags.writeable = phase.flags.writeable = False
    state, means, fallbacks = None, [], []
    for end in clock.cutoffs(buckets):
        past = Past(plain[:, :end], phase[:, : end + clock.horizon], clock.horizon, clock.season)
        said = _bounded(forecast, past, state, highest[:, end])
        state = said.state
        means.append(said.mean * factor[:, end : end + clock.horizon])
        fallbacks.append(said.fallbacks)
    shape = (len(means), series)
    return Walk(
        np.array(means).reshape(*shape, clock.horizon).transpose(1, 0, 2),
        np.array(fallbacks, dtype=np.str_).reshape(shape).T,
    )


def join_walks(parts: Sequence[Walk]) -> Walk:
    """The walk of all series from walks of some of them, in their order."""
    means, fallbacks = zip(*parts, strict=True)
    return Walk(np.concatenate(means), np.concatenate(fallbacks))


def actual_demand(demand: Floats, clock: BacktestClock) -> Floats:
    """What came after each cutoff, shaped like the forecasts; nan beyond the record."""
    ends = np.array(clock.cutoffs(demand.shape[1]), dtype=np.int64)
    longer = np.pad(demand, ((0, 0), (0, clock.horizon)), constant_values=np.nan)
    return longer[:, ends[:, None] + np.arange(clock.horizon)]


def _bounded(forecast: ForecastMethod, past: Past, state: object, highest: Floats) -> Forecast:
    """The forecast, never negative; the last value for the series of which it diverged."""
    naive = last_value(past).mean
    mean, state, told = forecast(past, state)
    is_sound = np.all(mean <= CEILING * highest[:, None], axis=1)  # nan is not
    fallbacks = [
        why if sound else "last_value: the forecast diverged"
        for why, sound in zip(told or [""] * len(mean), is_sound, strict=True)
    ]
    return Forecast(np.maximum(np.where(is_sound[:, None], mean, naive), 0.0), state, fallbacks)


def _check(demand: Floats, clock: BacktestClock) -> None:
    if demand.ndim != 2:
        raise ValueError(f"demand has the shape {demand.shape}, needed (series, buckets).")
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
