"""Series that are empty much of the time: whether they will be on, and how much they bring then.

The mean of such a series is a rate that hardly ever comes. What is forecast is the middle of the likely: the
latest demand while it is more likely on than not, else nothing; after how the series went on or stayed empty
before. Teunter, Syntetos and Babai (2011) smooth the two apart; here the chance is that of each bucket ahead,
given whether the series is on now.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.forecast_method import Forecast, Past, last_known_values

INTERMITTENT_SHARE = 0.5  # of the known buckets; above it a series is intermittent
BUCKETS_BEFORE = 1.0  # weight of the prior in a chance: as likely on as off


class OnOffState(NamedTuple):
    """How likely a series is on in each bucket ahead, fitted once a day."""

    fitted_at: int
    chance: Floats  # given that it is off or on now, shape (series, 2, horizon)


def on_off(past: Past, state: OnOffState | None = None) -> Forecast:
    """The last value where the series is more likely on than off in that bucket, else nothing.

    A series that is off and will be on brings what it brought when it was on last. One that is not
    intermittent keeps its last value.
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
    """Whether each series is, as each bucket and the end know it, shape (series, buckets + 1).

    Only times of the day at which it ever had demand count: a service that is shut at night is none.
    """
    series, buckets = demand.shape
    days = -(-buckets // season)
    filled = np.pad(demand, ((0, 0), (0, days * season - buckets)), constant_values=np.nan)
    of_days = filled.reshape(series, days, season)
    has_been_on = np.cumsum(of_days > 0, axis=1) > 0

    def counted(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        by_now = np.cumsum(chosen, axis=1) * has_been_on
        more = np.diff(by_now, axis=1, prepend=0).reshape(filled.shape)
        return np.pad(np.cumsum(more, axis=1), ((0, 0), (1, 0)))[:, : buckets + 1]

    found: NDArray[np.bool_] = counted(of_days == 0) > INTERMITTENT_SHARE * counted(~np.isnan(of_days))
    return found


def _chances(past: Past) -> Floats:
    """Shares of the past in which the series was on so many buckets after it was off, and on."""
    chance = np.tile(np.array([0.0, 1.0])[:, None], (len(past.demand), 1, past.horizon))
    empty = np.flatnonzero((past.demand == 0).any(axis=1))  # at times: no other can be intermittent
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
