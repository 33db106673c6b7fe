"""Forecasts: made from the past alone, equal to their naive twins, and no error on odd series."""

import functools
import logging

import numpy as np
import pytest
from demand_series import HOPELESS, ODD, SEASON, office
from forecast_scores import covered_share, wape
from hypothesis import given
from hypothesis import strategies as st
from real_series import DEMAND, NAIVE, predicted, ratio_to_naive, real_series

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast import ENSEMBLE_MEMBERS, FORECAST_METHODS, SLOW_METHODS, statespace
from fleetcast.models.forecast.backtest import BacktestClock, Walk, actual_demand, walk_forward
from fleetcast.models.forecast.bursts import BURST_DEMAND_RATIO, LEAST_BURSTS, LEVEL_SHARE, forecast_bursts
from fleetcast.models.forecast.forecast_method import Forecast, Past, log_floor
from fleetcast.models.forecast.intermittent import is_intermittent, on_off
from fleetcast.models.forecast.regression import HOURS_BACK, RIDGE, regression
from fleetcast.models.forecast.seasonal import (
    DAY_KEEP,
    LEVEL_KEEP,
    PULL_WEEKS,
    recent_days,
    seasonal_level,
    seasonal_mean,
    seasonal_naive,
    weekly_profile,
)
from fleetcast.models.forecast.statespace import ERROR_ORDERS, PLAIN_ORDERS, adjusted_arima, arima
from fleetcast.models.forecast.walk_predictions import methods_to_walk, predict_from_walks, warm_up_clock
from fleetcast.models.world import option_names
from fleetcast.models.world.option_names import ENSEMBLES

needs_real_series = pytest.mark.skipif(not DEMAND.exists(), reason="../shared/data/demand is not here")
values = st.lists(st.one_of(st.just(float("nan")), st.integers(0, 64).map(float)), max_size=40)


def past_of(history: Floats, horizon: int, season: int = SEASON) -> Past:
    """A panel of one series whose weeks go round from its first bucket."""
    phase = np.arange(history.size + horizon) % (7 * season)
    return Past(history[None].copy(), phase[None], horizon, season)


def one_of(history: Floats, horizon: int) -> Past:
    """The same for methods of single series."""
    return past_of(history, horizon).row(0)


# --- the walk ------------------------------------------------------------------------------------------


def test_a_config_may_name_every_method() -> None:
    assert tuple(FORECAST_METHODS) == option_names.METHOD_NAMES


@pytest.mark.parametrize("method", FORECAST_METHODS)
def test_data_after_a_cutoff_does_not_change_earlier_forecasts(method: str) -> None:
    demand = office(16)[None]
    changed = demand.copy()
    changed[:, 200:] = 1e6 * np.random.default_rng(1).random(changed[:, 200:].shape)
    before, after = (
        walk_forward(d, method, BacktestClock(26, 174, 3, SEASON)).mean for d in (demand, changed)
    )
    assert before[:, :2].tobytes() == after[:, :2].tobytes()  # the cutoffs 26 and 200 of three
    assert before[:, 2:].tobytes() != after[:, 2:].tobytes()


def test_a_method_receives_the_past_and_its_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, list[float], int, int | None]] = []

    def spy(past: Past, state: int | None) -> Forecast:
        buckets = past.demand.shape[1]
        seen.append((buckets, past.demand[:, -1].tolist(), past.phase.shape[1], state))
        for handed in (past.demand, past.phase):
            with pytest.raises(ValueError, match="read-only"):
                handed[:] = -1  # a method that overwrites its past does no damage
        return Forecast(np.full((2, 2), -5.0), buckets)

    monkeypatch.setitem(FORECAST_METHODS, "spy", spy)
    demand = np.arange(24.0).reshape(2, 12)
    result = walk_forward(demand, "spy", BacktestClock(5, 3, 2, 4))
    assert seen == [
        (5, [4.0, 16.0], 7, None), (8, [7.0, 19.0], 10, 5), (11, [10.0, 22.0], 13, 8),
    ]  # fmt: skip
    assert demand.tobytes() == np.arange(24.0).tobytes()
    assert result.mean.tobytes() == np.zeros((2, 3, 2)).tobytes()  # demand is never negative


@pytest.mark.parametrize("wrong", [1e9, np.inf, np.nan])
def test_a_forecast_that_diverges_is_replaced_and_named_for_that_series_alone(
    wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        FORECAST_METHODS, "rocket", lambda past, _: Forecast(np.array([[wrong] * 2, [1.0] * 2]))
    )
    mean, fallbacks = walk_forward(np.tile(np.arange(8.0), (2, 1)), "rocket", BacktestClock(6, 1, 2, 4))
    assert mean.tolist() == [[[5.0, 5.0], [6.0, 6.0]], [[1.0, 1.0]] * 2]
    assert fallbacks.tolist() == [["last_value: the forecast diverged"] * 2, [""] * 2]


def test_actuals_are_aligned_with_forecasts_and_end_in_nan() -> None:
    demand, clock = np.arange(6.0)[None], BacktestClock(2, 3, 2, 2)
    assert actual_demand(demand, clock)[:, :, 0].tolist() == [[2.0, 5.0]]
    assert np.isnan(actual_demand(demand, clock)[0, 1, 1])
    assert walk_forward(demand, "last_value", clock).mean[0, :, 0].tolist() == [1.0, 4.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "arma"}, r"unknown forecast method 'arma'\. Did you mean 'arima'\?"),
        ({"method": "zzz"}, "Known: last_value, seasonal_naive, seasonal_naive_day"),
        ({"horizon": 0}, "horizon: got 0, needed at least 1 bucket"),
        ({"first_cutoff": 9}, r"first_cutoff: got 9, needed 0 \.\. 6"),
        ({"demand": np.zeros(6)}, r"demand: got the shape \(6,\), needed \(series, buckets\)"),
        ({"demand": np.array([[1.0, -2.0]] * 2)}, "demand of series 0, bucket 1: got -2.0"),
    ],
)
def test_invalid_walks_are_refused(changes: dict[str, object], message: str) -> None:
    demand, method = changes.pop("demand", np.zeros((1, 6))), changes.pop("method", "last_value")
    clock = BacktestClock(**{**{"first_cutoff": 2, "every": 1, "horizon": 1, "season": 2}, **changes})  # type: ignore
    with pytest.raises(ValueError, match=message):
        walk_forward(demand, method, clock)  # type: ignore[arg-type]


# --- methods and their twins ---------------------------------------------------------------------------


@given(values, st.integers(1, 9), st.sampled_from([1, 2, 3]))
def test_seasonal_naive_equals_a_search_backwards(past: list[float], horizon: int, season: int) -> None:
    predicted = seasonal_naive(past_of(np.array(past), horizon, season)).mean[0]
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


def test_the_level_is_the_last_hour_over_the_same_hour_a_week_ago() -> None:
    rising = np.concatenate([office(7), 2.0 * office(7)])[:200]
    assert seasonal_level(past_of(rising, 3)).mean[0] == pytest.approx(2.0 * rising[200 - 168 : 203 - 168])
    steep = np.concatenate([office(7), 100.0 * office(7)])[:200]
    assert seasonal_level(past_of(steep, 1)).mean[0, 0] == pytest.approx(5.0 * steep[200 - 168])  # no higher
    for bucket, value in ((199, np.nan), (31, 0.0)):
        unknown = np.where(np.arange(200) == bucket, value, rising)
        assert seasonal_level(past_of(unknown, 1)).mean[0, 0] == rising[200 - 168]  # no level to compare with


@given(values, st.sampled_from([1, 2, 3]))
def test_the_profile_is_each_bucket_s_mean_pulled_to_the_day_s(past: list[float], season: int) -> None:
    one = past_of(np.array(past), 1, season)
    week = weekly_profile(one.demand, one.behind, season)[0]
    assert week.shape == (7 * season,)
    known = [v for v in past if v == v]
    for bucket in range(7 * season):
        own = [v for v in past[bucket :: 7 * season] if v == v]
        day = [v for v in past[bucket % season :: season] if v == v] or known or [0.0]
        pulled = (sum(own) + PULL_WEEKS * sum(day) / len(day)) / (len(own) + PULL_WEEKS)
        assert week[bucket] == pytest.approx(pulled)
        if bucket == len(past) % (7 * season):
            same = own or day  # the weeks that are known at this time, else the days
            # the days have a billionth of the weight of the weeks
            assert seasonal_mean(one).mean[0, 0] == pytest.approx(sum(same) / len(same), abs=1e-6)


def test_the_profile_is_smoothed_over_an_hour() -> None:
    quarters = past_of(np.where(np.arange(7 * 96) == 0, 1.0, 0.0), 1, 96)
    week = weekly_profile(quarters.demand, quarters.behind, 96)[0]
    assert np.flatnonzero(week > 0.05).tolist() == [0, 1, 2, 670, 671]


def known_mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def test_regression_equals_ridge_solved_one_series_and_one_step_at_a_time() -> None:
    panel = np.stack([office(12, seed)[:270] for seed in range(3)])
    panel[1, 100:110] = np.nan
    phase = np.tile(np.arange(273) % 168, (3, 1))
    mean = regression(Past(panel, phase, 3, SEASON)).mean
    for row, series in enumerate(panel):
        floor = 0.01 * np.nanmean(series)
        week = weekly_profile(np.log(series + floor)[None], phase[:1, :270], SEASON)[0]
        left = np.log(series + floor) - week[phase[0, :270]]
        seen = [[left[t - 1], *(known_mean(left[max(t - h, 0) : t]) for h in HOURS_BACK), 1.0]
                for t in range(1, 271)]  # fmt: skip
        for step in range(3):
            use = [t for t in range(1, 270 - step) if not np.isnan([*seen[t - 1], left[t + step]]).any()]
            x, y = np.array([seen[t - 1] for t in use]), np.array([left[t + step] for t in use])
            spread = np.sqrt((x**2).mean(axis=0))
            beta = np.linalg.solve((x / spread).T @ (x / spread) + RIDGE * np.eye(5), (x / spread).T @ y)
            expected = np.exp(np.array(seen[269]) @ (beta / spread) + week[(270 + step) % 168]) - floor
            assert mean[row, step] == pytest.approx(expected)


def test_adjusted_arima_read_on_equals_the_same_model_filtered_over_the_whole_past() -> None:
    from statsmodels.tsa.arima.model import ARIMA

    demand = office()
    first = adjusted_arima(one_of(demand[:216], 4))
    state = adjusted_arima(one_of(demand[:220], 4), first.state).state
    mean, state, reason = adjusted_arima(one_of(demand[:222], 4), state)
    assert reason == ""
    assert state.fitted_at == 216
    assert state.floor == log_floor(demand[:216]).item()
    fitted = past_of(np.log(demand[:216] + state.floor), 1)
    week = np.tile(weekly_profile(fitted.demand, fitted.behind, SEASON)[0], 2)
    order = (state.model.model.k_ar, 0, state.model.model.k_ma)
    assert order in ERROR_ORDERS
    logs = np.log(demand[:222] + state.floor) - week[:222]
    twin = ARIMA(logs, order=order, trend="c").filter(first.state.model.params).forecast(4)
    assert mean == pytest.approx(np.exp(twin + week[222:226]) - state.floor)
    assert adjusted_arima(one_of(demand[:240], 4), state).state.fitted_at == 240  # fitted anew after a day


def test_an_order_whose_variance_becomes_zero_is_left_out() -> None:
    """statsmodels divides by zero at order (1, 1, 1) of this series; the other orders converge."""
    _, state, reason = arima(one_of(1e-160 * (100 + 50 * np.sin(np.arange(240.0))), 3))
    assert (state.model.model.order != (1, 1, 1), reason) == (True, "")


@pytest.mark.filterwarnings("ignore:Provided `endog`")
def test_arima_is_the_series_itself_at_the_order_of_the_lowest_aic() -> None:
    from statsmodels.tsa.arima.model import ARIMA

    demand = office(14)
    mean, state, _ = arima(one_of(demand, 3))
    fits = [ARIMA(demand, order=order, trend="n").fit(method="innovations_mle") for order in PLAIN_ORDERS]
    best = min(fits, key=lambda fit: fit.aic)
    assert state.model.aic == pytest.approx(best.aic, abs=1e-3)
    assert mean == pytest.approx(best.forecast(3), rel=1e-4)


def test_a_method_without_convergence_warns_and_is_not_refitted_that_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders: list[object] = []
    monkeypatch.setattr(statespace, "_fit_order", lambda adjusted, order: orders.append(order))
    _, fallbacks = walk_forward(office()[None], "arima", BacktestClock(200, 6, 1, SEASON))
    assert set(fallbacks.ravel()) == {"last_value: arima did not converge"}
    assert orders == [*PLAIN_ORDERS, *PLAIN_ORDERS]  # at the cutoffs 200 and 224 of seven


def test_recent_days_equals_a_twin_over_each_past_day() -> None:
    """From a Tuesday after four days: working days use working days, the last hour sets the level."""
    series, floor = office(5)[:98], 0.01 * office(5)[:98].mean()
    weekday = [(4 + bucket // SEASON) % 7 for bucket in range(122)]  # it began on a Friday

    def of_days(bucket: int) -> float:
        before = [b for b in range(bucket - SEASON, -1, -SEASON) if b < 98]
        alike = [b for b in before if (weekday[b] > 4) == (weekday[bucket] > 4)] or before
        shares = [DAY_KEEP ** ((bucket - b) // SEASON) for b in alike]
        return float(np.average([np.log(series[b] + floor) for b in alike], weights=shares))

    phase = (4 * SEASON + np.arange(122)) % 168
    mean = recent_days(Past(series[None], phase[None], 24, SEASON)).mean[0]
    level = np.log((series[97] + floor) / np.exp(of_days(97)))
    for step in range(24):
        expected = np.exp(of_days(98 + step) + level * LEVEL_KEEP ** (step + 1)) - floor
        assert mean[step] == pytest.approx(expected)


def test_on_off_is_the_likelier_of_nothing_and_the_latest_size() -> None:
    pulses = np.tile([0.0] * 6 + [3.0, 4.0, 5.0], 20)  # six buckets off, three on, at no time of the day
    for end in range(171, 181):
        mean = on_off(past_of(pulses[:end], 2)).mean[0]
        known, on = pulses[:end], pulses[:end] > 0
        now, size = on[-1], known[on][-1]
        for step in range(2):
            went = [on[t + step + 1] for t in range(end - step - 1) if on[t] == now]
            assert mean[step] == (size if (sum(went) + 0.5) / (len(went) + 1.0) > 0.5 else 0.0)
    busy = np.where(np.arange(161) % 3 == 0, 0.0, 7.0)
    assert on_off(past_of(busy, 2)).mean[0].tolist() == [7.0, 7.0]  # a third is empty: the last value


def test_a_burst_under_way_lasts_as_long_as_those_before_it_did() -> None:
    """The twin looks at every run of high buckets, from each end; one bucket in twenty is unknown."""
    rng = np.random.default_rng(6)
    lengths = rng.choice([2, 5], 60)
    parts = [(rng.uniform(1, 1.2, rng.integers(3, 12)), rng.uniform(8, 9, size)) for size in lengths]
    series = np.concatenate([part for pair in parts for part in pair])[:400]
    series = np.where(rng.random(400) < 0.05, np.nan, series)
    series[300:340] = 30.0 * 1.25 ** np.arange(40)  # above every threshold for more than a day: no burst
    state, held = None, 0
    for end in range(380):
        mean, state, _ = forecast_bursts(past_of(series[:end], 7), state)
        last = known_last(series[:end])
        runs, run, before, threshold = [], 0, 0.0, np.inf
        for bucket, rate in enumerate(series[:end]):
            if bucket and bucket % SEASON == 0:
                day = series[bucket - SEASON : bucket]
                threshold = BURST_DEMAND_RATIO * np.nanmedian(day) + LEVEL_SHARE * np.nanmean(day)
            if rate > threshold:
                run = run + 1 if run < SEASON else 0
            elif rate == rate:
                runs += [run] if run else []
                run, before = 0, rate
        for step in range(1, 8):
            as_long = [length for length in runs if length >= run]
            on = sum(length >= run + step for length in as_long) > len(as_long) / 2
            goes_on = on if len(as_long) >= LEAST_BURSTS else step <= run
            assert mean[0, step - 1] == (last if run == 0 or goes_on else before)
            held += bool(run and goes_on)
    assert held > 100


def known_last(series: Floats) -> float:
    known = series[~np.isnan(series)]
    return float(known[-1]) if known.size else 0.0


def test_a_service_that_closes_at_night_is_not_intermittent() -> None:
    """The twin goes slot by slot, from what is known at each bucket."""
    rng = np.random.default_rng(4)
    shut = np.tile([0.0, 0.0, 0.0, 5.0], 30)
    rare = np.where(rng.random(120) < 0.3, 1.0, 0.0)
    torn = np.where(rng.random(120) < 0.2, np.nan, rare)
    found = is_intermittent(np.stack([shut, rare, torn]), 4)
    for series, is_rare in zip((shut, rare, torn), found, strict=True):
        for end in range(121):
            slots = [series[n:end:4] for n in range(4)]
            on = np.concatenate([slot for slot in slots if (slot > 0).any()] or [np.zeros(0)])
            assert is_rare[end] == ((on == 0).sum() > 0.5 * (~np.isnan(on)).sum())
    assert not found[0].any()
    assert found[1:, 40:].all()


# --- laws of all methods -------------------------------------------------------------------------------


ODD_BUCKETS = sorted({series.size for series in ODD.values()})


@functools.cache
def odd_panel(buckets: int) -> tuple[list[str], Floats, BacktestClock]:
    """The odd series of one length: their names, themselves as rows, and two cutoffs at their end."""
    names = [name for name, series in ODD.items() if series.size == buckets]
    return names, np.stack([ODD[name] for name in names]), BacktestClock(max(buckets - 2, 0), 1, 3, SEASON)


@functools.cache
def walked_odd(method: str, buckets: int) -> Walk:
    """Walked once for the method itself and for every ensemble that contains it."""
    _, panel, clock = odd_panel(buckets)
    return walk_forward(panel, method, clock if method in SLOW_METHODS else warm_up_clock(clock, method))


@pytest.mark.parametrize("buckets", ODD_BUCKETS)
@pytest.mark.parametrize("method", [*FORECAST_METHODS, *ENSEMBLES])
def test_odd_series_never_raise(method: str, buckets: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    names, panel, clock = odd_panel(buckets)
    walks = {m: walked_odd(m, buckets) for m in methods_to_walk([method])}
    if method in SLOW_METHODS:
        mean, fallbacks = walks[method]
    else:
        found = predict_from_walks(panel, walks, clock, [method])[method]
        mean, fallbacks = found.mean, found.fallbacks
        assert np.isfinite(found.quantiles).all()
        assert (np.diff(found.quantiles, axis=-1) >= 0).all()
        assert (found.peak_quantiles >= 0).all()
    highest = np.max(panel, axis=1, initial=0.0, where=~np.isnan(panel))
    assert np.isfinite(mean).all()
    assert ((mean >= 0) & (mean <= 3 * highest[:, None, None])).all()
    assert mean.shape == (len(names), 2, 3)
    assert caplog.messages == []  # Prophet and its engine log messages
    if method in ("arima", "adjusted_arima"):
        for name, reasons in zip(names, fallbacks, strict=True):
            assert [bool(why) for why in reasons] == [name in HOPELESS] * 2, name


@pytest.mark.parametrize("method", [*ENSEMBLE_MEMBERS, "adjusted_arima"])
def test_four_times_the_demand_is_four_times_the_forecast(method: str) -> None:
    one, four = (
        walk_forward(k * office()[None], method, BacktestClock(216, 6, 4, SEASON)).mean for k in (1.0, 4.0)
    )
    assert four == pytest.approx(4.0 * one, rel=2e-3)


@needs_real_series
def test_methods_that_know_the_season_beat_those_that_do_not_on_the_azure_hours() -> None:
    """Every third of 72 held-out hours of AzurePublicDataset 2024 (code), from at least four days."""
    tokens, clock = real_series()["azure_code_tuesday"]
    clock = clock._replace(every=3)
    names = ("last_value", "arima", "seasonal_naive", "seasonal_level", "regression", "harmonic")
    error = {
        name: wape(actual_demand(tokens, clock), walk_forward(tokens, name, clock).mean) for name in names
    }
    for name in names[2:]:
        assert error[name] < 0.8 * error["arima"] < 0.8 * error["last_value"]


@needs_real_series
def test_the_default_is_never_worse_than_naive_methods_on_real_series() -> None:
    for name, held in real_series().items():
        found = predicted(held, ("weighted", *NAIVE))
        assert ratio_to_naive(held, found, "weighted") < 1.0, name
        covered = covered_share(actual_demand(*held), found["weighted"].quantiles[..., 1])
        few = held.demand.size < 200 and held.clock.first_cutoff > 24  # 72 hours: four of them are 6 %
        assert covered == pytest.approx(0.90, abs=0.05 if few else 0.03), name


@pytest.mark.filterwarnings("ignore:Provided `endog`")
def test_the_published_in_sample_errors_are_optimistic() -> None:
    """SageServe's released simulator predicts one step in-sample by an ARIMA(3,1,2) of the whole week.

    No forecast can know this when the hour begins: one from known data is off by half as much again.
    """
    from statsmodels.tsa.arima.model import ARIMA

    week = office(10)
    in_sample = ARIMA(week, order=(3, 1, 2), trend="n").fit(method="innovations_mle").fittedvalues
    clock = BacktestClock(7 * SEASON, 12, 4, SEASON)
    honest = walk_forward(week[None], "arima", clock).mean
    flattering = wape(week[7 * SEASON :], in_sample[7 * SEASON :])
    assert wape(actual_demand(week[None], clock), honest) > 1.5 * flattering
