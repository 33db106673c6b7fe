"""Statistical models of single series, fitted once a day by statsmodels; between fits they read new buckets.

arima           on the series itself, order by AIC, as in SageServe 6.3 and 7.1
adjusted_arima  on logarithms without their mean week, order by AIC
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

# One difference in every order: AIC compares only likelihoods of the same data. (3, 1, 2) is the order of
# SageServe's artefact.
PLAIN_ORDERS = ((1, 1, 0), (1, 1, 1), (2, 1, 1), (3, 1, 2))
# No difference: the season is already subtracted.
ERROR_ORDERS = ((1, 0, 0), (3, 0, 0), (1, 0, 1), (2, 0, 1))
LEAST_STATESPACE_DAYS = 2  # of known buckets; a profile of one day would explain that day perfectly
HARMONICS = 6  # of the day
WEEKEND_HARMONICS = 3  # of the difference of Saturday and Sunday
# A search ends where the log likelihood, some thousands, changes by less than this per unit of a parameter.
# scipy's default of 1e-5 is below the noise of its differences: most searches ended at "precision loss".
GRADIENT_TOLERANCE = 1e-2

# (logs, phase, season) -> the mean week, shape (7 * season,)
WeekCurve = Callable[[Floats, Ints, int], Floats]


class StatespaceState(NamedTuple):
    """A fitted model, and the transform to its scale."""

    fitted_at: int  # number of buckets known at the fit
    read: int  # number of buckets that the model has read
    model: Any = None  # statsmodels results; None where none could be fitted
    # Mean week of the logarithms, shape (7 * season,); None where the model is of the series itself.
    week: Floats | None = None
    floor: float = 0.0  # rate added before logarithms
    reason: str = ""  # why there is no model


def arima(past: Past, state: StatespaceState | None = None) -> SeriesForecast:
    """Forecast by ARIMA of the series itself, order by AIC (SageServe 6.3, 7.1)."""
    return _forecast(past, state, "arima", None, PLAIN_ORDERS)


def adjusted_arima(past: Past, state: StatespaceState | None = None) -> SeriesForecast:
    """Forecast by ARMA, order by AIC, of the logarithms less their mean week."""
    return _forecast(past, state, "adjusted_arima", _mean_week, ERROR_ORDERS)


def harmonic(past: Past, state: StatespaceState | None = None) -> SeriesForecast:
    """Forecast by ARMA, order by AIC, of the logarithms less a Fourier series of day and weekend."""
    return _forecast(past, state, "harmonic", fourier_week, ERROR_ORDERS)


def stl_ets(past: Past, state: StatespaceState | None = None) -> SeriesForecast:
    """Forecast by damped exponential smoothing of the logarithms less the season of STL."""
    return _forecast(past, state, "stl_ets", _stl_week, ())


def _forecast(
    past: Past,
    state: StatespaceState | None,
    name: str,
    curve: WeekCurve | None,
    orders: tuple[tuple[int, int, int], ...],
) -> SeriesForecast:
    """Fit once a day, read new buckets, forecast; exponential smoothing where `orders` is empty."""
    buckets = past.demand.size
    if state is None or buckets - state.fitted_at >= past.season:
        state = _fit(past, name, curve, orders)
    if state.model is None:
        return SeriesForecast(None, state, state.reason)
    if buckets > state.read:
        seen = _to_model(past.demand[state.read :], past.behind[state.read :], state)
        # `extend` reads only what is new; exponential smoothing would begin again from its fitted level.
        read = state.model.extend if orders else state.model.append
        state = state._replace(read=buckets, model=read(seen))
    ahead = state.model.forecast(past.horizon)
    if state.week is None:
        return SeriesForecast(np.maximum(ahead, 0.0), state)
    return SeriesForecast(from_logs(ahead + state.week[past.ahead], np.array(state.floor)), state)


def _fit(
    past: Past, name: str, curve: WeekCurve | None, orders: Iterable[tuple[int, int, int]]
) -> StatespaceState:
    """Fit the model of the lowest AIC among those that converge."""
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
    """Transform the demand to the model's scale; `demand` and `phase` (buckets,), as the result."""
    return demand if state.week is None else np.log(demand + state.floor) - state.week[phase]


def _fit_order(series: Floats, order: tuple[int, int, int]) -> Any:
    """Fit ARIMA to a series, shape (buckets,), nan where missing; None where the fit does not converge.

    The innovations algorithm may divide by a variance of 0: that order does not converge either.
    """
    from statsmodels.tsa.arima.model import ARIMA

    # The innovations algorithm is faster and finds better optima, but cannot handle missing buckets.
    is_complete = not np.isnan(series).any()
    method = "innovations_mle" if is_complete else "statespace"
    search = {"minimize_kwargs": {"options": {"gtol": GRADIENT_TOLERANCE}}} if is_complete else {}
    trend = "n" if order[1] else "c"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # convergence is checked below
        try:
            model = ARIMA(series, order=order, trend=trend)
            fitted = model.fit(method=method, method_kwargs=search, cov_type="none")
        except (np.linalg.LinAlgError, ValueError, ZeroDivisionError):
            return None
    if is_complete:
        details = fitted.fit_details  # with a constant there are several searches; the last one counts
        found = (details.arma_results[-1] if "arma_results" in details else details).minimize_results
        has_converged = found.status in (0, 2)  # scipy's BFGS: converged, or precision loss
    else:
        has_converged = fitted.mle_retvals["converged"]
    return fitted if has_converged and np.isfinite(fitted.aic) else None


def _fit_smoothing(series: Floats) -> Any:
    """Fit exponential smoothing with a damped trend, shape (buckets,); None where it does not converge."""
    from statsmodels.tsa.statespace.exponential_smoothing import ExponentialSmoothing

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = ExponentialSmoothing(series, trend=True, damped_trend=True)
            fitted = model.fit(disp=False, cov_type="none")
        except (np.linalg.LinAlgError, ValueError):
            return None
    return fitted if fitted.mle_retvals["converged"] and np.isfinite(fitted.aic) else None


# --- the week that is subtracted -----------------------------------------------------------------------


def _mean_week(logs: Floats, phase: Ints, season: int) -> Floats:
    """Return the mean week, shape (7 * season,), of logs and phase, both (buckets,)."""
    return weekly_profile(logs[None], phase[None], season)[0]


def fourier_week(logs: Floats, phase: Ints, season: int) -> Floats:
    """Fit a constant, HARMONICS of the day and their difference on weekends by least squares.

    `logs` (nan where unknown) and `phase` have the shape (buckets,), the fitted week (7 * season,).
    """
    every_phase = np.arange(SEASON_DAYS * season)
    known = ~np.isnan(logs)
    terms = _fourier_terms(every_phase, season)
    coefficients, *_ = np.linalg.lstsq(terms[phase[known]], logs[known], rcond=None)
    week: Floats = terms @ coefficients
    return week


def _fourier_terms(phase: Ints, season: int) -> Floats:
    """Return the regression terms at each phase, shape (phases, terms)."""
    angle = 2 * np.pi * phase[:, None] / season * np.arange(1, min(HARMONICS, season // 2) + 1)
    waves = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    few = np.concatenate([np.cos(angle[:, :WEEKEND_HARMONICS]), np.sin(angle[:, :WEEKEND_HARMONICS])], axis=1)
    constant = np.ones((phase.size, 1))
    weekend = (phase[:, None] // season >= 5).astype(np.float64)
    return np.concatenate([constant, waves, weekend, weekend * few], axis=1)


def _stl_week(logs: Floats, phase: Ints, season: int) -> Floats:
    """Return the mean week, shape (7 * season,), of STL's season (Cleveland et al., 1990).

    The period is a week, or a day where there are less than two weeks. `logs` and `phase` are (buckets,).
    """
    from statsmodels.tsa.seasonal import STL

    known = ~np.isnan(logs)
    every = np.arange(logs.size)
    whole = np.interp(every, every[known], logs[known])  # STL cannot handle missing buckets
    period = SEASON_DAYS * season if logs.size >= 2 * SEASON_DAYS * season else season
    jump = max(season // 24, 1)
    model = STL(whole, period=period, seasonal_jump=jump, trend_jump=jump, low_pass_jump=jump)
    return weekly_profile(np.where(known, model.fit().seasonal, np.nan)[None], phase[None], season)[0]
