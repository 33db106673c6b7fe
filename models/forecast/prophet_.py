"""Prophet (Taylor and Letham, 2018) on logarithms: offered for comparison, refitted once a day."""

import logging
from typing import Any, NamedTuple

import numpy as np

from models.forecast.method import Floats, Forecast, from_logs, to_logs
from models.forecast.seasonal import last_value


class State(NamedTuple):
    """What the last fit expects of the buckets from `fitted_at` on."""

    fitted_at: int
    ahead: Floats


def prophet(history: Floats, horizon: int, season: int, state: State | None = None) -> Forecast:
    """Read the forecast from today's fit; last value, with the reason, where there is none."""
    known = history[~np.isnan(history)]
    if known.size < 2 or known.min() == known.max():
        reason = "prophet needs two values that differ"
        return last_value(history, horizon, season)._replace(fallback=f"last_value: {reason}")
    if state is None or history.size - state.fitted_at >= season:
        state = State(history.size, _fit_and_predict(history, season + horizon, season))
    first = history.size - state.fitted_at
    return Forecast(state.ahead[first : first + horizon], state)


def _fit_and_predict(history: Floats, buckets: int, season: int) -> Floats:
    import pandas as pd

    logging.getLogger("prophet.plot").setLevel(logging.CRITICAL)  # it speaks while it is imported
    from cmdstanpy import disable_logging
    from prophet import Prophet

    logging.getLogger("prophet").setLevel(logging.ERROR)  # its import has just set it to INFO
    logs, floor = to_logs(history)
    days = np.arange(history.size + buckets) / season
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")
    model: Any = Prophet(uncertainty_samples=0)
    with disable_logging():
        model.fit(pd.DataFrame({"ds": times[: history.size], "y": logs}))
    ahead = model.predict(pd.DataFrame({"ds": times[history.size :]}))["yhat"].to_numpy()
    return from_logs(ahead, floor)
