"""Prophet (Taylor and Letham, 2018) on logarithms: for comparison, refitted once a day."""

import logging
from typing import Any, NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.forecast_method import SEASON_DAYS, Past, SeriesForecast, from_logs, log_floor


class ProphetState(NamedTuple):
    """The forecast of the last fit."""

    fitted_at: int  # number of buckets known at the fit
    ahead: Floats  # rates from bucket `fitted_at` on, shape (season + horizon,)


def prophet(past: Past, state: ProphetState | None = None) -> SeriesForecast:
    """Forecast from the fit of the day; Prophet models days and weeks, not the phases of the calendar."""
    buckets, known = past.demand.size, past.demand[~np.isnan(past.demand)]
    if known.size < 2 or known.min() == known.max():
        return SeriesForecast(None, state, "prophet needs two values that differ")
    if state is None or buckets - state.fitted_at >= past.season:
        state = ProphetState(buckets, _fit_and_predict(past.demand, past.season + past.horizon, past.season))
    first = buckets - state.fitted_at
    return SeriesForecast(state.ahead[first : first + past.horizon], state)


def _fit_and_predict(history: Floats, buckets: int, season: int) -> Floats:
    """Fit the history, shape (known,), and return the rates of the next buckets, shape (buckets,)."""
    import pandas as pd

    logging.getLogger("prophet.plot").setLevel(logging.CRITICAL)  # it logs while it is imported
    from cmdstanpy import disable_logging
    from prophet import Prophet

    logging.getLogger("prophet").setLevel(logging.ERROR)  # its import has just set it to INFO
    floor = log_floor(history)
    days = np.arange(history.size + buckets) / season
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")
    has_week = history.size > SEASON_DAYS * season  # by default Prophet needs two weeks
    model: Any = Prophet(uncertainty_samples=0, weekly_seasonality=has_week)
    with disable_logging():
        model.fit(pd.DataFrame({"ds": times[: history.size], "y": np.log(history + floor)}))
    ahead = model.predict(pd.DataFrame({"ds": times[history.size :]}))["yhat"].to_numpy()
    return from_logs(ahead, floor)
