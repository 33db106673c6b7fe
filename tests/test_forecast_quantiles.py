"""Quantiles and ensembles: equal to naive twins, made from the past alone, valid on held-out days."""

import functools
import math

import numpy as np
import pytest
from demand_series import SEASON, office
from forecast_scores import covered_share, pinball, under_forecast_share, wape
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast import ENSEMBLE_MEMBERS, conformal
from fleetcast.models.forecast.backtest import CEILING, BacktestClock, actual_demand, walk_forward
from fleetcast.models.forecast.conformal import (
    BASE_SHARE,
    EMPTY_HOUR_SHARE,
    FIRST_STEP,
    LEAST_ALIKE,
    LEAST_STEP,
    OVERLAP,
    QUANTILE_LEVELS,
    RESIDUAL_WINDOW,
    UNSETTLED_HALF_LIFE,
    UNSETTLED_MOST,
    UNSETTLED_RATIO,
    USUAL_HALF_LIFE,
    calibrate_quantiles,
)
from fleetcast.models.forecast.ensemble import (
    HALF_LIFE,
    HYSTERESIS,
    SHARPNESS,
    SeriesKinds,
    choose_member,
    describe_members,
    ensemble_weights,
    hourly_errors,
    weight_by_loss,
)
from fleetcast.models.forecast.walk_predictions import (
    Parts,
    Prediction,
    _weigh_parts,
    methods_to_walk,
    predict_from_walks,
    sum_part_forecasts,
    warm_up_clock,
)
from fleetcast.models.forecast.wape_bootstrap import bootstrap_difference
from fleetcast.models.world.option_names import ENSEMBLES

FAST = (*ENSEMBLE_MEMBERS, *ENSEMBLES)
ALONE = 40  # cutoffs after which a series has residuals enough of its own


def predicted(demand: Floats, clock: BacktestClock) -> dict[str, Prediction]:
    walks = {name: walk_forward(demand, name, warm_up_clock(clock, name)) for name in methods_to_walk(FAST)}
    return predict_from_walks(demand, walks, clock, FAST)


# --- made from the past alone --------------------------------------------------------------------------


@functools.cache
def of_two_offices(older_days: int) -> tuple[Floats, BacktestClock, dict[str, Prediction]]:
    """Two series, of which the level of one breaks before the first cutoff, and their predictions."""
    days, older = 5 + older_days, older_days * SEASON
    demand, clock = np.stack([office(days), office(days, 1)]), BacktestClock(90 + older, 4, 6, SEASON)
    demand[1] *= np.where(np.arange(demand.shape[1]) < 80 + older, 1.0, 4.0)
    return demand, clock, predicted(demand, clock)


@settings(max_examples=12)
@given(
    st.sampled_from([0, 4]),
    st.integers(94, 116),
    st.sampled_from(["shifted", "wiped out", "scaled"]),
    st.integers(1, 30),
)
def test_the_future_does_not_change_a_prediction(older_days: int, cut: int, how: str, amount: int) -> None:
    """Neither for a young series nor for one whose level may break."""
    older = older_days * SEASON
    demand, clock, before = of_two_offices(older_days)
    changed = demand.copy()
    after = changed[:, cut + older :]
    changed[:, cut + older :] = {
        "shifted": np.roll(after, amount, axis=1),
        "wiped out": np.where(np.arange(after.shape[1]) < amount, np.nan, after),
        "scaled": amount * after,
    }[how]
    same = [end <= cut + older for end in clock.cutoffs(demand.shape[1])]
    now = predicted(changed, clock)
    for name in FAST:
        for one, other in zip(before[name], now[name], strict=True):
            assert np.array_equal(one[:, same], other[:, same]), name


# --- quantiles -----------------------------------------------------------------------------------------


def naive_quantiles(
    mean: Floats, actual: Floats, level: Floats, highest: Floats, lag: int, grown: Floats | None = None
) -> Floats:
    """One series and one step: shape (cutoffs, levels), by lists."""
    grown = np.ones(len(mean)) if grown is None else grown
    units = [(m + BASE_SHARE * seen) * g for m, seen, g in zip(mean, level, grown, strict=True)]
    kinds = [m > EMPTY_HOUR_SHARE * seen for m, seen in zip(mean, level, strict=True)]
    residuals = [(a - m) / unit for m, a, unit in zip(mean, actual, units, strict=True)]
    found, spreads = [], []
    levels, moves = {kind: list(QUANTILE_LEVELS) for kind in (False, True)}, {False: 0, True: 0}
    for now in range(len(mean)):
        judged = now - lag
        spread = [0.0] * len(QUANTILE_LEVELS)
        had_any = any(r == r for r in residuals[: max(judged - lag + 1, 0)])
        if judged > lag and had_any and residuals[judged] == residuals[judged]:
            kind = bool(kinds[judged])
            moves[kind] += 1
            step = max(FIRST_STEP / math.sqrt(moves[kind]), LEAST_STEP) / lag
            for i, wanted in enumerate(QUANTILE_LEVELS):
                moved = levels[kind][i] + step * (wanted - (residuals[judged] <= spreads[judged][i]))
                lowest, highest_level = 0.2 * wanted, 1 - 0.2 * (1 - wanted)
                levels[kind][i] = min(max(moved, lowest), highest_level)
        known = [
            k for k in range(max(judged + 1 - RESIDUAL_WINDOW, 0), judged + 1) if residuals[k] == residuals[k]
        ]
        alike = [k for k in known if kinds[k] == kinds[now]]
        window = sorted(residuals[k] for k in (alike if len(alike) >= LEAST_ALIKE else known))
        if window:
            size = len(window)
            as_one = min(lag, OVERLAP)
            ranks = [
                math.ceil((size + 1) * at + (as_one - 1) * (2 * at - 1)) for at in levels[bool(kinds[now])]
            ]
            spread = [window[min(max(rank, 1), size) - 1] for rank in ranks]
        spreads.append(spread)
        most = CEILING * max(highest[now], mean[now])
        row = [min(max(mean[now] + units[now] * s, 0.0), most) for s in spread]
        found.append([max(row[: i + 1]) for i in range(len(row))])
    return np.array(found)


@pytest.mark.parametrize("lag", [1, 2, 3, 8])
def test_quantiles_equal_a_twin_of_lists(lag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformal, "ROWS_TOGETHER", 2 * 2 * 3)  # two hours of two series, then the third hour
    rng = np.random.default_rng(lag)
    mean, actual = rng.uniform(1, 9, (2, 2, 230, 5))  # two hours of two buckets, and half of a third
    level, highest = rng.uniform(1, 5, (2, 230)), rng.uniform(3, 4, (2, 230))
    actual[0, :3] = actual[0, 5:9] = np.nan
    actual[1, :, 2] *= 0.0
    mean[1, 100] = 50.0  # a known event
    mean[0, 40:90, :2] = actual[0, 40:90, :2] = 0.0  # empty, and forecast as empty
    lags = (1, lag, lag)  # of each hour ahead
    of_buckets, of_peaks = calibrate_quantiles(mean, actual, level, highest, lags, 2)
    assert of_peaks.shape == (2, 230, 2, len(QUANTILE_LEVELS))
    for series in range(2):
        so_far = level[series], highest[series]
        peak, came = (part[series, :, :4].reshape(230, 2, 2).max(axis=-1) for part in (mean, actual))
        next_hour = np.abs(came - peak)[:, 0] / (peak[:, 0] + BASE_SHARE * level[series])
        grown = [None, None, naive_growth(next_hour)]
        for step in range(5):
            twin = naive_quantiles(
                mean[series, :, step], actual[series, :, step], *so_far, lags[step // 2], grown[step // 2]
            )
            assert of_buckets[series, ALONE:, step] == pytest.approx(twin[ALONE:])
        for hour in range(2):
            twin = naive_quantiles(peak[:, hour], came[:, hour], *so_far, lags[hour])
            assert of_peaks[series, ALONE:, hour] == pytest.approx(twin[ALONE:])


def test_a_new_series_borrows_the_tails_of_its_kin_until_it_has_its_own() -> None:
    rng = np.random.default_rng(3)
    mean, actual = rng.uniform(1, 9, (2, 3, 160, 1))
    level, highest = np.full((3, 160), 2.0), np.full((3, 160), 1e3)
    actual[2, :100] = np.nan  # not there yet
    found = calibrate_quantiles(mean, actual, level, highest, (1,), 1).bucket_quantiles[2, :, 0]
    alone = naive_quantiles(mean[2, :, 0], actual[2, :, 0], level[2], highest[2], 1)
    residuals = ((actual - mean) / (mean + BASE_SHARE * 2.0))[:, :, 0]
    for now in (100, 101, 110, 119):
        pooled = residuals[:, now - LEAST_ALIKE : now]
        kin = np.quantile(pooled[~np.isnan(pooled)], QUANTILE_LEVELS)
        unit = mean[2, now, 0] + BASE_SHARE * 2.0
        own = (now - 100) / LEAST_ALIKE
        mixed = own * alone[now] + (1 - own) * (mean[2, now, 0] + unit * kin)
        assert found[now] == pytest.approx(np.maximum(mixed, 0.0))
    assert found[120:] == pytest.approx(alone[120:])


def test_hours_ahead_without_errors_have_the_spread_of_the_hour_before() -> None:
    mean, actual = np.random.default_rng(5).uniform(5, 6, (2, 1, 30, 4))
    level, highest = np.full((1, 30), 2.0), np.full((1, 30), 1e3)
    buckets, peaks = calibrate_quantiles(mean, actual, level, highest, (1, 12), 2)
    unit = mean + BASE_SHARE * level[..., None]
    spread = (buckets - mean[..., None]) / unit[..., None]
    assert np.abs(spread[0, 1:12, :2]).min() > 0
    assert spread[0, 1:12, 2:] == pytest.approx(spread[0, 1:12, :2])
    peak = mean.reshape(1, 30, 2, 2).max(axis=-1)
    spread = (peaks - peak[..., None]) / (peak + BASE_SHARE * 2.0)[..., None]
    assert spread[0, 1:12, 1] == pytest.approx(spread[0, 1:12, 0])


def naive_growth(error: Floats) -> Floats:
    """Growth of units with the lead time at each cutoff, of one series; its next hour is known after it."""
    found = []
    for now in range(len(error)):
        known = [float(e) for e in error[:now] if e == e]
        means = []
        for half in (UNSETTLED_HALF_LIFE, USUAL_HALF_LIFE):
            shares = [0.5 ** (age / half) for age in range(len(known))][::-1]
            means.append(float(np.average(known, weights=shares)) if known else 0.0)
        ratio = means[0] / (UNSETTLED_RATIO * means[1]) if known else 1.0
        found.append(min(max(ratio, 1.0), UNSETTLED_MOST))
    return np.array(found)


def test_days_are_covered_when_nights_are_empty_by_forecast() -> None:
    """Six services that close at night, weeks apart from all data used for tuning."""
    rng, season = np.random.default_rng(8), 2 * SEASON
    is_open = (np.arange(season) // 2 >= 9) & (np.arange(season) // 2 < 18)
    demand = np.tile(is_open, 28) * rng.gamma(9.0, 1 / 9.0, (6, 28 * season))
    found = predicted(demand, BacktestClock(14 * season, 2, 2, season))["weighted"]
    came = actual_demand(demand, BacktestClock(14 * season, 2, 2, season))
    is_busy = np.tile(is_open, 14)[::2][: came.shape[1]]
    busy = covered_share(came[:, is_busy].max(axis=-1), found.peak_quantiles[:, is_busy, 0, 1])
    assert busy == pytest.approx(0.90, abs=0.04)  # 67 % where nights are included
    assert found.peak_quantiles[:, ~is_busy, 0, 1].mean() < 0.05  # almost nothing at night


def test_quantiles_hold_on_held_out_days_with_a_weekend() -> None:
    demand = np.stack([office(28, seed) for seed in range(12)])
    clock = BacktestClock(14 * SEASON, 1, 1, SEASON)
    found, actual = predicted(demand, clock), actual_demand(demand, clock)
    for name in FAST:
        shares = [covered_share(actual, found[name].quantiles[..., i]) for i in range(len(QUANTILE_LEVELS))]
        assert shares == pytest.approx(QUANTILE_LEVELS, abs=0.03), name
    errors = {name: wape(actual, found[name].mean) for name in FAST}
    assert errors["weighted"] < 1.05 * min(errors.values())
    assert errors["choice"] < 1.08 * min(errors.values())


def test_the_peak_has_a_quantile_of_its_own() -> None:
    rng = np.random.default_rng(0)
    demand = np.exp(rng.normal(0.0, 0.3, (20, 60 * 12)))
    clock = BacktestClock(30 * 12, 4, 4, 12 * 8)  # hours of four buckets
    found = predicted(demand, clock)["weighted"]
    peak = actual_demand(demand, clock).max(axis=-1)
    assert under_forecast_share(actual_demand(demand, clock), found.mean) > 0.8
    assert covered_share(peak, found.peak_quantiles[:, :, 0, 1]) == pytest.approx(0.90, abs=0.04)
    assert covered_share(peak, found.quantiles[..., 1].max(axis=-1)) < 0.86  # of single buckets: too low


def test_a_day_ahead_every_hour_s_peak_is_covered() -> None:
    """Held-out days with a weekend, each forecast at midnight from two weeks; half hours."""
    season, days, hour = 2 * SEASON, range(14, 21), 2
    rng = np.random.default_rng(4)
    noise = np.exp(rng.normal(0.0, 0.1, (6, 21 * season)))
    demand = noise * np.stack([np.repeat(office(21, seed), hour) for seed in range(6)])
    peak_p90, came, off = [], [], []
    for day in days:
        known = np.full((6, 14 * season + 1), np.nan)
        known[:, :-1] = demand[:, (day - 14) * season : day * season]
        phase = np.tile((day * season + np.arange(15 * season)) % (7 * season), (6, 1))
        clock = BacktestClock(14 * season, hour, season, season)
        walks = {
            name: walk_forward(known, name, warm_up_clock(clock, name), phase)
            for name in methods_to_walk(["weighted"])
        }
        found = predict_from_walks(known, walks, clock, ["weighted"])["weighted"]
        today = demand[:, day * season : (day + 1) * season]
        peak_p90.append(found.peak_quantiles[:, 0, :, 1])
        came.append(today.reshape(6, SEASON, hour).max(axis=-1))
        off.append(wape(today, found.mean[:, 0]))
    p90, peak = np.array(peak_p90), np.array(came)
    assert covered_share(peak, p90) == pytest.approx(0.90, abs=0.03)
    assert p90.sum() < 1.25 * peak.sum()  # and not because it lies far above everything
    assert np.mean(off) < 0.15


def test_a_known_event_lifts_mean_and_tail_at_its_first_occurrence() -> None:
    """Five times the usual on one afternoon: P90 lies above the mean as far as on other days."""
    factor = np.ones((24, 16 * SEASON))
    factor[:, 14 * SEASON + 12 : 14 * SEASON + 18] = 5.0
    usual = np.stack([office(16, seed) for seed in range(24)])
    clock, phase = BacktestClock(14 * SEASON, 1, 1, SEASON), np.tile(np.arange(16 * SEASON) % 168, (24, 1))
    found = {}
    for demand, known in ((usual, np.ones(factor.shape)), (usual * factor, factor)):
        demand = demand[:, :-1]
        walks = {
            name: walk_forward(demand, name, warm_up_clock(clock, name), phase, known)
            for name in methods_to_walk(["weighted"])
        }
        found[known.max()] = predict_from_walks(demand, walks, clock, ["weighted"])["weighted"]
    event = slice(12, 18)
    mean, p90 = (found[5.0].mean[:, event, 0], found[5.0].quantiles[:, event, 0, 1])
    assert mean.sum() == pytest.approx(5 * found[1.0].mean[:, event, 0].sum(), rel=0.02)
    usual_tail = found[1.0].quantiles[:, event, 0, 1] / found[1.0].mean[:, event, 0]
    assert np.mean(p90 / mean) == pytest.approx(np.mean(usual_tail), abs=0.02)


def test_a_sum_moves_to_its_parts_by_their_known_errors_and_not_before() -> None:
    """Parts that are always right, for one of two equal series."""
    demand, clock = np.stack([office(10, 1)] * 2), BacktestClock(3 * SEASON, 1, 3, SEASON)
    walks = {name: walk_forward(demand, name, warm_up_clock(clock, name)) for name in ENSEMBLE_MEMBERS}
    truth = actual_demand(demand, warm_up_clock(clock, ENSEMBLE_MEMBERS[0]))
    by_parts = np.stack([np.nan_to_num(truth[0]), np.full(truth[0].shape, np.nan)])
    [(_, alone), (_, mixed)] = [
        *predict_from_walks(demand, walks, clock, ["weighted"]).items(),
        *predict_from_walks(demand, walks, clock, ["weighted"], {"weighted": by_parts}).items(),
    ]
    assert np.array_equal(mixed.mean[1], alone.mean[1])  # no parts
    late = slice(0, -clock.horizon)
    assert np.allclose(mixed.mean[0, late], actual_demand(demand, clock)[0, late], rtol=0.01)
    assert mixed.reasons[0, -1].endswith("; 100% from its parts")
    begun = clock.earlier(2 * SEASON)  # of which nothing is known when the first forecast is made
    first, _ = _weigh_parts(walks["last_value"].mean, by_parts, truth, begun)
    assert np.array_equal(first[:, 0], walks["last_value"].mean[:, 0])


def test_the_parts_of_a_sum_are_forecast_as_series_by_themselves() -> None:
    demand, clock = np.stack([office(10, seed) for seed in range(3)]), BacktestClock(4 * SEASON, 1, 2, SEASON)
    phase = np.tile(np.arange(11 * SEASON) % (7 * SEASON), (3, 1))
    [summed] = sum_part_forecasts(
        Parts(demand, np.array([2, 0, 2])), phase, np.ones(phase.shape), clock, FAST[-2:-1]
    ).values()
    single = predicted(demand, clock)[FAST[-2]].mean
    late = slice(-single.shape[1], None)
    assert np.allclose(summed[2, late], single[0] + single[2])
    assert np.allclose(summed[0, late], single[1])
    assert np.isnan(summed[1]).all()


# --- ensembles -----------------------------------------------------------------------------------------


def all_alike(cutoffs: int, members: int = 2) -> SeriesKinds:
    never, always = np.zeros(members, np.bool_), np.ones((1, cutoffs), np.bool_)
    return SeriesKinds(never, always, 0, never, ~always, np.full(members, -1))


def test_weights_follow_the_known_discounted_errors_of_each_hour_ahead() -> None:
    rng = np.random.default_rng(1)
    mean, actual = rng.uniform(1, 9, (2, 1, 40, 5)), rng.uniform(1, 9, (1, 40, 5))
    actual[0, 10], actual[0, 11, 0] = np.nan, np.nan
    lags, hour = (1, 2, 3), 2  # the last hour has one bucket
    error = np.array([hourly_errors(each, actual, hour) for each in mean])
    found = ensemble_weights(error, np.ones((1, 40)), lags, weight_by_loss, all_alike(40))
    for now in range(40):
        before: list[float] = []
        for ahead, lag in enumerate(lags):
            losses = []
            for member in range(2):
                off = np.abs(mean[member, 0] - actual[0])[:, hour * ahead : hour * (ahead + 1)]
                known = [float(np.nanmean(off[k])) for k in range(now - lag + 1) if (off[k] == off[k]).any()]
                shares = [0.5 ** (age / HALF_LIFE) for age in range(len(known))][::-1]
                losses.append(float(np.average(known, weights=shares)) if known else float("nan"))
            losses = before if any(loss != loss for loss in losses) else losses  # use the hour before
            before = losses
            if not losses:
                assert found[:, 0, now, ahead].tolist() == [1.0, 0.0]  # nothing known: the first member
                continue
            ratio = (losses[1] / losses[0]) ** SHARPNESS
            assert found[0, 0, now, ahead] == pytest.approx(ratio / (1 + ratio))


def test_weights_follow_the_losses_and_the_choice_stays_until_it_is_clear() -> None:
    close, clear = 1.0 - HYSTERESIS / 2, 1.0 - 2 * HYSTERESIS
    losses = np.array([[np.nan, 1.0, 1.0, 1.0, 0.0], [np.nan, close, clear, 1.0 / clear, 0.0]])
    before, chosen, weights = np.array([1.0, 0.0]), [], []
    for now in losses.T:
        before = choose_member(now[:, None, None], before[:, None, None])[:, 0, 0]
        chosen.append(before[1])
        weights.append(weight_by_loss(now[:, None, None], before)[:, 0, 0])
    assert chosen == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert weights[0].tolist() == [1.0, 0.0]  # nothing known: the first member
    assert np.sum(weights, axis=1) == pytest.approx(1.0)
    assert weights[2][1] / weights[2][0] == pytest.approx(clear**-SHARPNESS)
    assert weights[4].tolist() == [0.5, 0.5]
    words = describe_members(np.transpose(weights)[:, None, :, None], ("one", "other"))[0].tolist()
    assert words[0] == "one 100%"
    assert words[2].startswith("other 7")


def test_a_far_member_counts_far_ahead_and_only_where_it_does_not_lose_to_its_rival() -> None:
    """Three members; the third is far, and its rival the second."""
    error = np.ones((3, 1, 60, 4))
    error[2] = 0.5
    kinds = all_alike(60, 3)._replace(rival=np.array([-1, -1, 1]))
    weights = ensemble_weights(error, np.ones((1, 60)), (1, 2, 3, 4), weight_by_loss, kinds)[:, 0, -1]
    assert weights[2].tolist() == [0.0, 0.0, *[pytest.approx(1.0, abs=0.01)] * 2]
    error[1] = 0.4
    weights = ensemble_weights(error, np.ones((1, 60)), (1, 2, 3, 4), weight_by_loss, kinds)[:, 0, -1]
    assert weights[2].tolist() == [0.0] * 4


def test_an_aperiodic_series_selects_methods_without_season() -> None:
    steps = np.random.default_rng(2).normal(0.0, 0.1, (4, 480))
    clock = BacktestClock(14 * SEASON, 1, 1, SEASON)
    demand = np.exp(np.cumsum(steps, axis=1))
    found, actual = predicted(demand, clock), actual_demand(demand, clock)
    robust = min(wape(actual, found[m].mean) for m in ("last_value", "seasonal_naive"))
    for name in ENSEMBLES:
        assert wape(actual, found[name].mean) < 1.02 * robust
    assert {text.split(" ")[0] for text in found["choice"].reasons.ravel()} <= {
        "last_value",
        "autoregression",
    }


def test_a_level_break_resets_the_past_losses_of_members() -> None:
    """One member was three times as good as the other for a week, and is three times as bad now."""
    error = np.ones((2, 1, 200, 2))
    error[0, :, :168], error[1, :, :168] = 0.1, 0.3
    error[0, :, 168:], error[1, :, 168:] = 0.9, 0.3
    kinds, unit = all_alike(200), np.ones((1, 200))
    grown = kinds._replace(is_young=~kinds.is_young)
    weights = ensemble_weights(error, unit, (1, 24), weight_by_loss, grown)[:, 0]
    assert weights[0, 169].min() > 0.99  # one hour is an outlier
    assert weights[1, 170, 0] > 0.99  # two are not
    assert weights[1, 170, 1] > 0.99  # nor a day ahead, where no loss is known since then
    young = ensemble_weights(error, unit, (1, 24), weight_by_loss, kinds)[:, 0]
    assert young[0, 170].min() > 0.99  # in its first week a series breaks every weekend
    noisy = error.copy()
    noisy[1, :, 168:] = 0.8  # no member was near: noise
    assert ensemble_weights(noisy, unit, (1, 24), weight_by_loss, grown)[0, 0, 170, 0] > 0.99


def test_only_a_young_series_uses_its_latest_days() -> None:
    demand, clock = office(12)[None], BacktestClock(4 * SEASON, 6, SEASON, SEASON)
    reasons = predicted(demand, clock)["weighted"].reasons[0]
    has_member = ["recent_days" in text for text in reasons]
    assert any(has_member[: 3 * 4])
    assert not any(has_member[3 * 4 :])  # from the eighth day on


def test_a_series_that_is_mostly_empty_has_a_method_of_its_own() -> None:
    rng = np.random.default_rng(5)
    demand = np.where(rng.random((1, 480)) < 0.25, rng.uniform(1, 2, (1, 480)), 0.0)
    found = predicted(np.concatenate([demand, demand + 1.0]), BacktestClock(14 * SEASON, 1, 1, SEASON))[
        "weighted"
    ]
    assert set(found.reasons[0]) == {"on_off 100%"}
    assert not any("on_off" in text for text in found.reasons[1])
    assert found.mean[0].max() == 0.0  # it comes in one hour of four
    assert covered_share(demand[:, 336:, None], found.quantiles[:1, :, :, 1]) == pytest.approx(0.9, abs=0.04)


def test_an_unknown_method_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"unknown forecast method 'weigthed'\. Did you mean 'weighted'\?"):
        methods_to_walk(["weigthed"])


# --- losses --------------------------------------------------------------------------------------------


def test_losses_by_hand_ignore_unknown_values() -> None:
    actual = np.array([[10.0, 20.0], [30.0, np.nan], [np.nan, np.nan]])
    mean = np.array([[12.0, 19.0], [30.0, 99.0], [1.0, 1.0]])
    assert wape(actual, mean) == 3.0 / 60.0
    assert under_forecast_share(actual, mean) == 0.5
    assert covered_share(actual, mean) == 2 / 3
    assert np.isnan(wape(np.zeros(2), np.ones(2)))
    assert np.isnan(under_forecast_share(actual[2:], mean[2:]))
    assert np.isnan(covered_share(actual[2:], mean[2:]))
    assert pinball(np.array([10.0]), np.array([[8.0, 14.0]]), (0.5, 0.9))[0] == pytest.approx([1.0, 0.4])


def test_the_bootstrap_distinguishes_a_real_difference_from_none() -> None:
    rng = np.random.default_rng(3)
    errors = rng.uniform(0.5, 1.5, 240)
    better = bootstrap_difference(0.8 * errors, errors, 24)
    assert (better.saved_share, better.low, better.high) == pytest.approx(
        (0.2, 0.2, 0.2)
    )  # paired: no spread
    assert np.isnan(bootstrap_difference(errors[:24], errors[24:48], 24).low)  # a single day
    other = bootstrap_difference(errors, rng.permutation(errors), 24)
    assert other.low < 0 < other.high
    assert other.saved_share == pytest.approx(0.0)
