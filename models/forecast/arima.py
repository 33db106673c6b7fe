"""ARIMA on the seasonally adjusted series, its order by AIC (SageServe 6.3 forecasts by ARIMA).

The series is taken to logarithms, its mean week is taken out, and what is left is an ARMA process around a
constant. Orders are compared and parameters fitted once a day; at the cutoffs between, the fitted model only
reads what has been seen since.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from models.forecast.method import Floats, Forecast, from_logs, to_logs
from models.forecast.seasonal import last_value, profile

# No order differences: the season is out already, and AIC ranks likelihoods of the same data only.
ORDERS = ((1, 0, 0), (3, 0, 0), (1, 0, 1), (2, 0, 1))
LEAST_DAYS = 2  # of known buckets; a profile of one day would explain that day perfectly


class State(NamedTuple):
    """A fitted model, and how to reach its scale and to come back."""

    fitted_at: int  # buckets known when it was fitted
    read: int  # buckets that it has read
    model: Any = None  # statsmodels results; None where no order could be fitted
    week: Floats = np.zeros(1)
    floor: float = 0.0
    reason: str = ""  # why there is no model

    def season_at(self, first: int, last: int) -> Floats:
        """The profile at buckets first .. last - 1."""
        return self.week[np.arange(first, last) % self.week.size]


def arima(history: Floats, horizon: int, season: int, state: State | None = None) -> Forecast:
    """Forecast by the best ARMA of the adjusted series; by last value, and why, where there is none."""
    if state is None or history.size - state.fitted_at >= season:
        state = _fit(history, season)
    if state.model is None:
        return last_value(history, horizon, season)._replace(
            state=state, fallback=f"last_value: {state.reason}"
        )
    if history.size > state.read:
        seen = np.log(history[state.read :] + state.floor) - state.season_at(state.read, history.size)
        state = state._replace(read=history.size, model=state.model.append(seen))
    ahead = state.model.forecast(horizon) + state.season_at(history.size, history.size + horizon)
    return Forecast(from_logs(ahead, state.floor), state)


def _fit(history: Floats, season: int) -> State:
    """The order of the lowest AIC among those that converge."""
    known, empty = history[~np.isnan(history)], State(history.size, history.size)
    if known.size < LEAST_DAYS * season:
        return empty._replace(reason=f"arima needs {LEAST_DAYS} days of history")
    if known.min() == known.max():
        return empty._replace(reason="the series is constant")
    logs, floor = to_logs(history)
    state = empty._replace(week=profile(logs, season), floor=floor)
    candidates = [_fit_order(logs - state.season_at(0, history.size), order) for order in ORDERS]
    converged = [model for model in candidates if model is not None]
    if not converged:
        return empty._replace(reason="arima did not converge")
    return state._replace(model=min(converged, key=lambda model: model.aic))


def _fit_order(adjusted: Floats, order: tuple[int, int, int]) -> Any:
    """The fitted model; None where it does not converge."""
    from statsmodels.tsa.arima.model import ARIMA

    # The innovations algorithm is faster and finds better optima, but knows no missing buckets.
    is_complete = not np.isnan(adjusted).any()
    method = "innovations_mle" if is_complete else "statespace"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they warn of is decided below
        try:
            model = ARIMA(adjusted, order=order, trend="c").fit(method=method)
        except (np.linalg.LinAlgError, ValueError):
            return None
    if is_complete:
        search = model.fit_details.arma_results[-1].minimize_results
        has_converged = search.status in (0, 2)  # scipy's BFGS: done, or as near as floats come
    else:
        has_converged = model.mle_retvals["converged"]
    return model if has_converged and np.isfinite(model.aic) else None
