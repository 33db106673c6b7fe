"""Forecasts: made from the past alone, equal to their naive twins, and never an error on an odd series."""

import importlib
import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.forecast import METHODS
from models.forecast.arima import ORDERS, arima
from models.forecast.backtest import actuals, walk, walk_forward
from models.forecast.losses import under_forecast_share, wape
from models.forecast.method import Floats, Forecast
from models.forecast.seasonal import PULL_WEEKS, profile, seasonal_naive

SEASON = 24  # hourly buckets keep the tests short
AZURE_HOURS = Path(__file__).parents[2] / "shared/data/demand/azure2024_code_hourly.csv"
values = st.lists(st.one_of(st.just(float("nan")), st.integers(0, 64).map(float)), max_size=40)


def office(days: int = 10, seed: int = 0) -> Floats:
    """Hourly demand with a day, a weekend and noise that remembers, shape (days * 24,)."""
    noise = np.random.default_rng(seed)
    hours = np.arange(days * SEASON)
    day = 2.0 + np.sin(2 * np.pi * hours / SEASON)
    week = np.where((hours // SEASON) % 7 < 5, 1.0, 0.5)
    drift = np.zeros(hours.size)
    for t in range(1, hours.size):
        drift[t] = 0.8 * drift[t - 1] + noise.normal(0.0, 0.05)
    return 1000.0 * day * week * np.exp(drift)


@pytest.mark.parametrize("method", METHODS)
def test_what_comes_after_a_cutoff_changes_nothing_before_it(method: str) -> None:
    demand = office(16)[None]
    changed = demand.copy()
    changed[:, 200:] = 1e6 * np.random.default_rng(1).random(changed[:, 200:].shape)
    before, after = (walk_forward(d, method, 140, 60, 3, SEASON) for d in (demand, changed))
    assert before[:, :2].tobytes() == after[:, :2].tobytes()  # the cutoffs 140 and 200
    assert before[:, 2:].tobytes() != after[:, 2:].tobytes()


def test_a_method_is_handed_the_past_and_its_own_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, float, int | None]] = []

    def spy(history: Floats, horizon: int, season: int, state: int | None = None) -> Forecast:
        seen.append((history.size, history[-1], state))
        history[:] = -1.0  # a method that scribbles on its past harms nobody
        return Forecast(np.full(horizon, -5.0), history.size)

    monkeypatch.setitem(METHODS, "spy", spy)
    demand = np.arange(24.0).reshape(2, 12)
    predicted = walk_forward(demand, "spy", 5, 3, 2, 4)
    assert seen == [
        (5, 4.0, None), (8, 7.0, 5), (11, 10.0, 8),
        (5, 16.0, None), (8, 19.0, 5), (11, 22.0, 8),
    ]  # fmt: skip
    assert demand.tobytes() == np.arange(24.0).tobytes()
    assert predicted.tobytes() == np.zeros((2, 3, 2)).tobytes()  # demand is never negative


@pytest.mark.parametrize("wrong", [1e9, np.inf, np.nan])
def test_a_forecast_that_diverges_is_replaced_and_named(
    wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "rocket", lambda history, horizon, *_: Forecast(np.full(horizon, wrong)))
    predicted, fallbacks = walk(np.arange(8.0)[None], "rocket", 6, 1, 2, 4)
    assert predicted.tolist() == [[[5.0, 5.0], [6.0, 6.0]]]
    assert fallbacks.tolist() == [["last_value: the forecast diverged"] * 2]


def test_arima_read_on_equals_the_same_model_filtered_over_the_whole_past() -> None:
    from statsmodels.tsa.arima.model import ARIMA

    demand = office()
    first = arima(demand[:216], 4, SEASON)
    state = arima(demand[:220], 4, SEASON, first.state).state
    forecast_, state, fallback = arima(demand[:222], 4, SEASON, state)
    assert fallback == ""
    assert state.fitted_at == 216
    logs = np.log(demand[:222] + state.floor)
    week = np.tile(profile(np.log(demand[:216] + state.floor), SEASON), 2)
    order = (state.model.model.k_ar, 0, state.model.model.k_ma)
    assert order in ORDERS
    twin = ARIMA(logs - week[:222], order=order, trend="c").filter(first.state.model.params).forecast(4)
    assert forecast_ == pytest.approx(np.exp(twin + week[222:226]) - state.floor)
    assert arima(demand[:240], 4, SEASON, state).state.fitted_at == 240  # a day later it is fitted anew


def test_arima_takes_the_order_of_the_lowest_aic_and_finds_the_memory() -> None:
    from statsmodels.tsa.arima.model import ARIMA

    demand = office(28)
    state = arima(demand, 1, SEASON).state
    adjusted = np.log(demand + state.floor) - state.season_at(0, demand.size)
    fits = [ARIMA(adjusted, order=order, trend="c").fit(method="innovations_mle") for order in ORDERS]
    assert state.model.aic == min(fit.aic for fit in fits)
    assert state.model.arparams[0] == pytest.approx(0.8, abs=0.15)  # as office() was made


@given(values, st.integers(1, 9), st.sampled_from([1, 2, 3]))
def test_seasonal_naive_equals_a_search_backwards(past: list[float], horizon: int, season: int) -> None:
    predicted = seasonal_naive(np.array(past), horizon, season).mean
    known = [v for v in past if v == v]
    for step in range(horizon):
        target, want = len(past) + step, None
        for period in (7 * season, season):
            back = target - period
            while back >= 0 and want is None:
                if back < len(past) and past[back] == past[back]:
                    want = past[back]
                back -= period
        if want is None:
            want = known[-1] if known else 0.0
        assert predicted[step] == want


@given(values, st.sampled_from([1, 2, 3]))
def test_the_profile_is_each_bucket_s_mean_pulled_to_the_day_s(past: list[float], season: int) -> None:
    week = profile(np.array(past), season)
    assert week.shape == (7 * season,)
    known = [v for v in past if v == v]
    for bucket in range(7 * season):
        own = [v for v in past[bucket :: 7 * season] if v == v]
        day = [v for v in past[bucket % season :: season] if v == v] or known or [0.0]
        pulled = (sum(own) + PULL_WEEKS * sum(day) / len(day)) / (len(own) + PULL_WEEKS)
        assert week[bucket] == pytest.approx(pulled)


def test_the_profile_is_smoothed_over_an_hour() -> None:
    quarters = np.zeros(7 * 96)
    quarters[0] = 1.0
    week = profile(quarters, 96)
    assert np.flatnonzero(week > 0.05).tolist() == [0, 1, 2, 670, 671]


ODD = {
    "three points": np.array([3.0, 1.0, 2.0]),
    "nothing known": np.full(80, np.nan),
    "all zero": np.zeros(80),
    "constant": np.full(80, 7.0),
    "one huge spike": np.where(np.arange(80) == 60, 1e12, 1.0 + np.arange(80) % 3),
    "a day missing": np.where(np.arange(240) // 24 == 8, np.nan, office()),
    "a level five times as high": office() * np.where(np.arange(240) < 220, 1.0, 5.0),
    "mostly empty": np.where(np.arange(240) % 37 == 0, 1e5, 0.0),
    "almost constant": 1.0 + 1e-12 * (np.arange(240) % 2),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("method", METHODS)
def test_odd_series_never_raise(method: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    series = ODD[name]
    predicted, fallbacks = walk(series[None], method, max(series.size - 2, 0), 1, 3, SEASON)
    highest = np.max(series, initial=0.0, where=~np.isnan(series))
    assert np.isfinite(predicted).all()
    assert ((predicted >= 0) & (predicted <= 3 * highest)).all()
    assert predicted.shape == (1, 2, 3)
    assert caplog.messages == []  # Prophet and its engine chatter
    if method == "arima":
        hopeless = ("three points", "nothing known", "all zero", "constant")
        assert [bool(why) for why in fallbacks[0]] == [name in hopeless] * 2


def test_arima_that_does_not_converge_says_so_and_is_not_tried_again_that_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[object] = []
    module = importlib.import_module("models.forecast.arima")
    monkeypatch.setattr(module, "_fit_order", lambda adjusted, order: tried.append(order))
    _, fallbacks = walk(office()[None], "arima", 200, 6, 1, SEASON)
    assert set(fallbacks.ravel()) == {"last_value: arima did not converge"}
    assert tried == [*ORDERS, *ORDERS]  # at the cutoffs 200 and 224 of seven


def test_fallbacks_are_logged_once_with_their_reason(caplog: pytest.LogCaptureFixture) -> None:
    walk_forward(np.full((2, 60), 7.0), "arima", 56, 1, 2, SEASON)
    assert caplog.messages == ["arima: 8 of 8 forecasts by last_value: the series is constant"]


def test_twice_the_demand_is_twice_the_forecast() -> None:
    for method, tolerance in (("last_value", 0.0), ("seasonal_naive", 0.0), ("arima", 1e-3)):
        one, four = (walk_forward(k * office()[None], method, 216, 6, 4, SEASON) for k in (1.0, 4.0))
        assert four == pytest.approx(4.0 * one, rel=tolerance)


@pytest.mark.skipif(not AZURE_HOURS.exists(), reason="the Azure 2024 hours are not here")
def test_arima_beats_the_naive_methods_on_the_azure_hours() -> None:
    """72 held-out hours of AzurePublicDataset 2024 (code), one hour ahead, from at least four days."""
    tokens = np.loadtxt(AZURE_HOURS, delimiter=",", skiprows=1, usecols=3)[None] / 3600
    actual = actuals(tokens, 96, 1, 1)
    error = {m: wape(actual, walk_forward(tokens, m, 96, 1, 1, SEASON)) for m in list(METHODS)[:3]}
    assert error["arima"] < error["seasonal_naive"] < error["last_value"]
    assert error["arima"] < 0.08


def test_losses_by_hand_ignore_what_is_unknown() -> None:
    actual = np.array([[10.0, 20.0], [30.0, np.nan], [np.nan, np.nan]])
    predicted = np.array([[12.0, 19.0], [30.0, 99.0], [1.0, 1.0]])
    assert wape(actual, predicted) == 3.0 / 60.0
    assert under_forecast_share(actual, predicted) == 0.5
    assert np.isnan(wape(np.zeros(2), np.ones(2)))
    assert np.isnan(under_forecast_share(actual[2:], predicted[2:]))


def test_actuals_lie_beside_their_forecasts_and_end_in_nan() -> None:
    demand = np.arange(6.0)[None]
    assert actuals(demand, 2, 3, 2)[:, :, 0].tolist() == [[2.0, 5.0]]
    assert np.isnan(actuals(demand, 2, 3, 2)[0, 1, 1])
    assert walk_forward(demand, "last_value", 2, 3, 2, 2)[0, :, 0].tolist() == [1.0, 4.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "arma"}, r"Unknown forecast method 'arma'\. Did you mean 'arima'\?"),
        ({"method": "zzz"}, "Known: last_value, seasonal_naive, arima, prophet"),
        ({"horizon": 0}, "horizon: got 0, needed at least 1 bucket"),
        ({"first_cutoff": 9}, r"first_cutoff: got 9, needed 0 \.\. 6"),
        ({"demand": np.zeros(6)}, r"demand has the shape \(6,\), needed \(series, buckets\)"),
        ({"demand": np.array([[1.0, -2.0]] * 2)}, "demand of series 0, bucket 1: got -2.0"),
    ],
)
def test_what_cannot_be_walked_is_refused(changes: dict[str, object], message: str) -> None:
    arguments = {
        **{"demand": np.zeros((1, 6)), "method": "last_value", "first_cutoff": 2},
        **{"cutoffs_every": 1, "horizon": 1, "season": 2},
    }
    with pytest.raises(ValueError, match=message):
        walk(**{**arguments, **changes})  # type: ignore[arg-type]
