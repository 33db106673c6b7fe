"""Statistical models of single series, fitted once a day by statsmodels; between fits they read what came.

arima           on the series itself, its order by AIC: what SageServe 6.3 and 7.1 describe
adjusted_arima  on logarithms without their mean week, its order by AIC
harmonic        dynamic harmonic regression: logarithms, Fourier terms for day and weekend, ARMA errors
stl_ets         logarithms without the season of an STL decomposition, damped exponential smoothing
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast.forecast_method import SEASON_DAYS, Past, SeriesForecast, from_logs, log_floor
from fleetcast.models.forecast.seasonal import weekly_profile

# One difference in every order: AIC ranks likelihoods of the same data only. (3, 1, 2) is the artefact's.
PLAIN_ORDERS = ((1, 1, 0), (1, 1, 1), (2, 1, 1), (3, 1, 2))
# The season is out already: no difference.
ERROR_ORDERS = ((1, 0, 0), (3, 0, 0), (1, 0, 1), (2, 0, 1))
LEAST_STATESPACE_DAYS = 2  # of known buckets; a profile of one day would explain that day perfectly
HARMONICS = 6  # of the day
WEEKEND_HARMONICS = 3  # in which Saturday and Sunday differ from it

WeekCurve = Callable[
    [Floats, Ints, int], Floats
]  # (logs, phase, season) -> the mean week, shape (7 * season,)


class StatespaceState(NamedTuple):
    """A fitted model, and how to reach its scale and to come back."""

    fitted_at: int  # buckets known when it was fitted
    read: int  # buckets that it has read
    model: Any = None  # statsmodels results; None where none could be fitted
    week: Floats | None = (
        None  # logarithms, shape (7 * season,); None where the model is of the series itself
    )
    floor: float = 0.0
    reason: str = ""  # why there is no model


def arima(past: Past, state: StatespaceState | None = None) -> SeriesForecast:
    """ARIMA of the series as it is, its order by AIC (SageServe 6.3, 7.1)."""
    return _forecast(past, state, "arima", None, PLAIN_ORDERS)


def adjusted_arima(past: Past, state: StatespaceState | None = None) -> SeriesForecast:
    """ARMA, its order by AIC, of what the mean week leaves of the logarithms."""
    return _forecast(past, state, "adjusted_arima", _mean_week, ERROR_ORDERS)


def harmonic(past: Past, state: StatespaceState | None = None) -> SeriesForecast:
    """ARMA, its order by AIC, of what a Fourier series of day and weekend leaves of the logarithms."""
    return _forecast(past, state, "harmonic", fourier_week, ERROR_ORDERS)


def stl_ets(past: Past, state: StatespaceState | None = None) -> SeriesForecast:
    """Damped exponential smoothing of what STL's season leaves of the logarithms."""
    return _forecast(past, state, "stl_ets", _stl_week, ())


def _forecast(
    past: Past,
    state: StatespaceState | None,
    name: str,
    curve: WeekCurve | None,
    orders: Iterable[tuple[int, int, int]],
) -> SeriesForecast:
    """Fit once a day, read what has come since, forecast; without orders: exponential smoothing."""
    buckets = past.demand.size
    if state is None or buckets - state.fitted_at >= past.season:
        state = _fit(past, name, curve, orders)
    if state.model is None:
        return SeriesForecast(None, state, state.reason)
    if buckets > state.read:
        seen = _to_model(past.demand[state.read :], past.behind[state.read :], state)
        state = state._replace(read=buckets, model=state.model.append(seen))
    ahead = state.model.forecast(past.horizon)
    if state.week is None:
        return SeriesForecast(np.maximum(ahead, 0.0), state)
    return SeriesForecast(from_logs(ahead + state.week[past.ahead], np.array(state.floor)), state)


def _fit(
    past: Past, name: str, curve: WeekCurve | None, orders: Iterable[tuple[int, int, int]]
) -> StatespaceState:
    """The model of the lowest AIC among those that converge."""
    known, state = past.demand[~np.isnan(past.demand)], StatespaceState(past.demand.size, past.demand.size)
    if known.size < LEAST_STATESPACE_DAYS * past.season:
        return state._replace(reason=f"{name} needs {LEAST_STATESPACE_DAYS} days of history")
    if np.ptp(known) <= 1e-9 * known.max():
        return state._replace(reason="the series is constant")
    if curve is not None:
        floor = log_floor(past.demand).item()
        week = curve(np.log(past.demand + floor), past.behind, past.season)
        state = state._replace(week=week, floor=floor)
    series = _to_model(past.demand, past.behind, state)
    fits = [_fit_order(series, order) for order in orders] or [_fit_smoothing(series)]
    converged = [model for model in fits if model is not None]
    if not converged:
        return state._replace(reason=f"{name} did not converge")
    return state._replace(model=min(converged, key=lambda model: model.aic))


def _to_model(demand: Floats, phase: Ints, state: StatespaceState) -> Floats:
    """The scale on which the model was fitted."""
    return demand if state.week is None else np.log(demand + state.floor) - state.week[phase]


def _fit_order(series: Floats, order: tuple[int, int, int]) -> Any:
    """The fitted ARIMA; None where it does not converge."""
    from statsmodels.tsa.arima.model import ARIMA

    # The innovations algorithm is faster and finds better optima, but knows no missing buckets.
    is_complete = not np.isnan(series).any()
    method = "innovations_mle" if is_complete else "statespace"
    trend = "n" if order[1] else "c"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # what they warn of is decided below
        try:
            model = ARIMA(series, order=order, trend=trend).fit(method=method)
        except (np.linalg.LinAlgError, ValueError):
            return None
    if is_complete:
        details = model.fit_details  # of the last of several searches where a constant is estimated as well
        search = (details.arma_results[-1] if "arma_results" in details else details).minimize_results
        has_converged = search.status in (0, 2)  # scipy's BFGS: done, or as near as floats come
    else:
        has_converged = model.mle_retvals["converged"]
    return model if has_converged and np.isfinite(model.aic) else None


def _fit_smoothing(series: Floats) -> Any:
    """The fitted exponential smoothing with a damped trend; None where it does not converge."""
    from statsmodels.tsa.statespace.exponential_smoothing import ExponentialSmoothing

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = ExponentialSmoothing(series, trend=True, damped_trend=True).fit(disp=False)
        except (np.linalg.LinAlgError, ValueError):
            return None
    return model if model.mle_retvals["converged"] and np.isfinite(model.aic) else None


# --- the season that is taken out ----------------------------------------------------------------------


def _mean_week(logs: Floats, phase: Ints, season: int) -> Floats:
    return weekly_profile(logs[None], phase[None], season)[0]


def fourier_week(logs: Floats, phase: Ints, season: int) -> Floats:
    """Least squares of a constant, HARMONICS of the day, and what Saturday and Sunday add to them."""
    every_phase = np.arange(SEASON_DAYS * season)
    known = ~np.isnan(logs)
    terms = _fourier_terms(every_phase, season)
    coefficients, *_ = np.linalg.lstsq(terms[phase[known]], logs[known], rcond=None)
    week: Floats = terms @ coefficients
    return week


def _fourier_terms(phase: Ints, season: int) -> Floats:
    """Shape (phases, terms)."""
    angle = 2 * np.pi * phase[:, None] / season * np.arange(1, min(HARMONICS, season // 2) + 1)
    waves = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    few = np.concatenate([np.cos(angle[:, :WEEKEND_HARMONICS]), np.sin(angle[:, :WEEKEND_HARMONICS])], axis=1)
    constant = np.ones((phase.size, 1))
    weekend = (phase[:, None] // season >= 5).astype(np.float64)
    return np.concatenate([constant, waves, weekend, weekend * few], axis=1)


def _stl_week(logs: Floats, phase: Ints, season: int) -> Floats:
    """The mean week of STL's season (Cleveland et al., 1990): by the week, by the day under two weeks."""
    from statsmodels.tsa.seasonal import STL

    known = ~np.isnan(logs)
    every = np.arange(logs.size)
    whole = np.interp(every, every[known], logs[known])  # STL knows no missing buckets
    period, jump = (
        SEASON_DAYS * season if logs.size >= 2 * SEASON_DAYS * season else season,
        max(season // 24, 1),
    )
    seasonal = (
        STL(whole, period=period, seasonal_jump=jump, trend_jump=jump, low_pass_jump=jump).fit().seasonal
    )
    return weekly_profile(np.where(known, seasonal, np.nan)[None], phase[None], season)[0]
