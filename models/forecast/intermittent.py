"""Series that are empty much of the time: whether they will be on, and their demand then.

The mean of such a series is a rate that hardly ever occurs. The forecast is a median instead: the latest
demand where the series is more likely on than off, else zero. Teunter, Syntetos and Babai (2011) smooth
chance and demand separately; here the chance of each bucket ahead depends on whether the series is on now.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.forecast_method import Forecast, Past, last_known_values

INTERMITTENT_SHARE = 0.5  # of the known buckets; above it a series is intermittent
BUCKETS_BEFORE = 1.0  # weight of the prior chance of 1/2, in buckets


class OnOffState(NamedTuple):
    """The chance that a series is on in each bucket ahead, fitted once a day."""

    fitted_at: int  # number of buckets known at the fit
    chance: Floats  # given that the series is off, on now: shape (series, 2, horizon)


def on_off(past: Past, state: OnOffState | None = None) -> Forecast:
    """Forecast the last value in buckets where the series is more likely on than off, else zero.

    A series that is off now and will be on is forecast at its last rate above 0. One that is not intermittent
    keeps its last value.
    """
    buckets = past.demand.shape[1]
    if state is None or buckets - state.fitted_at >= past.season:
        state = OnOffState(buckets, _chances(past))
    now = last_known_values(past.demand)
    is_on = now > 0
    chance = state.chance[np.arange(len(now)), is_on.astype(np.int64)]
    recent = past.demand[:, -past.season :]
    size = np.where(is_on, now, last_known_values(np.where(recent > 0, recent, np.nan)))
    return Forecast(np.where(chance > 0.5, size[:, None], 0.0), state)


def is_intermittent(demand: Floats, season: int) -> NDArray[np.bool_]:
    """Whether each series is intermittent, as known before each bucket and at the end.

    Only times of the day at which the series has had demand count, so that a service which is closed at night
    is not intermittent. `demand` has the shape (series, buckets), the result (series, buckets + 1).
    """
    series, buckets = demand.shape
    days = -(-buckets // season)
    filled = np.pad(demand, ((0, 0), (0, days * season - buckets)), constant_values=np.nan)
    of_days = filled.reshape(series, days, season)
    has_been_on = np.cumsum(of_days > 0, axis=1) > 0

    def counted(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the chosen (series, days, season) buckets so far, (series, buckets + 1)."""
        by_now = np.cumsum(chosen, axis=1) * has_been_on
        more = np.diff(by_now, axis=1, prepend=0).reshape(filled.shape)
        return np.pad(np.cumsum(more, axis=1), ((0, 0), (1, 0)))[:, : buckets + 1]

    is_mostly_empty: NDArray[np.bool_]
    is_mostly_empty = counted(of_days == 0) > INTERMITTENT_SHARE * counted(~np.isnan(of_days))
    return is_mostly_empty


def _chances(past: Past) -> Floats:
    """Return the share of past buckets h buckets after which the series was on, shape (series, 2, horizon).

    The second axis: the series was off, on in the earlier bucket.
    """
    chance = np.tile(np.array([0.0, 1.0])[:, None], (len(past.demand), 1, past.horizon))
    empty = np.flatnonzero((past.demand == 0).any(axis=1))  # only these can be intermittent
    for series in empty[is_intermittent(past.demand[empty], past.season)[:, -1]]:
        demand = past.demand[series]
        known, on = ~np.isnan(demand), demand > 0
        for step in range(min(past.horizon, demand.size - 1)):
            then, now = slice(step + 1, None), slice(None, -step - 1)
            for is_on in (0, 1):
                use = known[now] & known[then] & (on[now] == is_on)
                went_on = (use & on[then]).sum()
                chance[series, is_on, step] = (went_on + BUCKETS_BEFORE / 2) / (use.sum() + BUCKETS_BEFORE)
    return chance
