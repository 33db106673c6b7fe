"""Forecasts by the minute: equal to a twin of lists, exact where demand is a season, covered by P90."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.conformal import BASE_SHARE, FIRST_STEP, LEAST_STEP, QUANTILE_LEVELS
from fleetcast.models.forecast.minutes import (
    HALF_LIVES_MINUTES,
    LEAST_RESIDUALS,
    LOSS_HALF_LIFE_MINUTES,
    MINUTE_SHARPNESS,
    RESIDUALS,
    MinuteForecast,
    MinuteForecaster,
)


def walk(demand: Floats, season: Floats, horizon: int) -> list[MinuteForecast]:
    """The forecasts after each minute of `demand` (pools, minutes), season (pools, minutes + horizon)."""
    forecaster = MinuteForecaster(len(demand), horizon)
    return [
        forecaster.step(now, season[:, at], season[:, at + 1 : at + 1 + horizon])
        for at, now in enumerate(demand.T)
    ]


def naive_minutes(demand: list[float], season: list[float], horizon: int) -> list[list[list[float]]]:
    """One pool by lists, everything from the start at each minute: mean and quantiles, [minute][lead]."""
    levels: list[list[float]] = []  # [minute][half-life]
    means: list[list[float]] = []
    units: list[list[float]] = []
    tails: list[list[list[float]]] = []  # [minute][lead]
    places = [list(QUANTILE_LEVELS) for _ in range(horizon)]
    moves, found = [0] * horizon, []
    for now in range(len(demand)):
        for lead in range(horizon):
            then = now - lead - 1
            if then < 0 or math.isnan(demand[now]) or not tails[then][lead]:
                continue
            moves[lead] += 1
            step = max(FIRST_STEP / math.sqrt(moves[lead]), LEAST_STEP) / (lead + 1)
            residual = (demand[now] - means[then][lead]) / units[then][lead]
            for q, wanted in enumerate(QUANTILE_LEVELS):
                moved = places[lead][q] + step * (wanted - (residual <= tails[then][lead][q]))
                places[lead][q] = min(max(moved, 0.01), 0.995)
        seen = [at for at in range(now + 1) if not math.isnan(demand[at])]
        shares = [[0.5 ** ((len(seen) - 1 - k) / h) for k in range(len(seen))] for h in HALF_LIVES_MINUTES]
        sums = [
            [sum(w * of[at] for w, at in zip(share, seen, strict=True)) for share in shares]
            for of in (demand, season)
        ]
        levels.append([d / s for d, s in zip(*sums, strict=True)])
        usual = sums[0][-1] / sum(0.5 ** (k / HALF_LIVES_MINUTES[-1]) for k in range(len(seen)))
        means.append([])
        units.append([])
        tails.append([])
        for lead in range(horizon):
            scored = [at for at in seen if at - lead - 1 >= 0]
            fading = [0.5 ** (k / LOSS_HALF_LIFE_MINUTES) for k in range(len(scored))][::-1]
            losses = []
            for m in range(len(HALF_LIVES_MINUTES)):
                off = [abs(levels[at - lead - 1][m] * season[at] - demand[at]) for at in scored]
                losses.append(float(np.average(off, weights=fading)) if off else 1.0)
            weights = [(min(losses) / loss) ** MINUTE_SHARPNESS for loss in losses]
            ahead = [level * season[now + 1 + lead] for level in levels[now]]
            means[now].append(float(np.average(ahead, weights=weights)))
            units[now].append(means[now][lead] + BASE_SHARE * usual)
            recent = [at for at in scored if at > now - RESIDUALS]
            window = sorted(
                (demand[at] - means[at - lead - 1][lead]) / units[at - lead - 1][lead] for at in recent
            )
            if len(window) < LEAST_RESIDUALS:
                tails[now].append([])
                continue
            ranks = [min(max(math.ceil((len(window) + 1) * p), 1), len(window)) for p in places[lead]]
            tails[now].append([window[rank - 1] for rank in ranks])
        rows = []
        for lead in range(horizon):
            row = [max(means[now][lead] + units[now][lead] * t, 0.0) for t in tails[now][lead] or [0.0] * 3]
            rows.append([means[now][lead], *(max(row[: q + 1]) for q in range(3))])
        found.append(rows)
    return found


def test_forecasts_equal_a_twin_of_lists() -> None:
    rng, horizon = np.random.default_rng(4), 3
    season = 2.0 + np.sin(np.arange(200 + horizon) / 20)
    demand = rng.gamma(4.0, 0.25, 200) * season[:200]
    demand[[50, 51, 90]] = np.nan
    found = walk(demand[None], season[None], horizon)
    twin = np.array(naive_minutes(demand.tolist(), season.tolist(), horizon))
    assert np.array([each.mean[0] for each in found]) == pytest.approx(twin[..., 0])
    assert np.array([each.quantiles[0] for each in found]) == pytest.approx(twin[..., 1:])


@settings(max_examples=4, deadline=None)
@given(st.floats(1e-3, 1e6), st.integers(1, 12), st.integers(0, 99))
def test_a_demand_that_is_its_season_is_forecast_exactly_and_units_do_not_matter(
    unit: float, horizon: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    season = rng.uniform(0.5, 9.0, (2, 25 + horizon))
    exact = walk(unit * season[:, :25], season, horizon)
    for at, each in enumerate(exact):
        assert each.mean == pytest.approx(unit * season[:, at + 1 : at + 1 + horizon])
    demand = rng.poisson(season[:, :25]).astype(np.float64)
    plain, scaled = walk(demand, season, horizon)[-1], walk(unit * demand, 7.0 * season, horizon)[-1]
    assert scaled.mean == pytest.approx(unit * plain.mean)
    assert scaled.quantiles == pytest.approx(unit * plain.quantiles, abs=1e-9 * unit)


def test_p90_covers_nine_in_ten_at_each_lead_and_the_error_is_that_of_the_known_rate() -> None:
    """Poisson arrivals whose rate is known but for its level: no forecast can be better than the rate."""
    rng, horizon, minutes = np.random.default_rng(1), 10, 320
    season = 2.0 + np.sin(np.arange(minutes + horizon) / 90)[None] + np.zeros((30, 1))
    rate = rng.uniform(3, 60, (30, 1)) * season
    demand = rng.poisson(rate[:, :minutes]).astype(np.float64)
    found = walk(demand, season, horizon)
    for lead in (1, 5, 10):
        at = range(100, minutes - lead)
        came = np.array([demand[:, k + lead] for k in at])
        p90 = np.array([found[k].quantiles[:, lead - 1, 1] for k in at])
        assert (came <= p90).mean() == pytest.approx(0.90, abs=0.015)
        off = np.mean([np.abs(came[n] - found[k].mean[:, lead - 1]) for n, k in enumerate(at)])
        best = np.mean([np.abs(came[n] - rate[:, k + lead]) for n, k in enumerate(at)])
        assert best < off < 1.06 * best


def test_pools_do_not_disturb_each_other_and_a_new_one_has_the_tails_of_the_rest() -> None:
    rng = np.random.default_rng(2)
    demand, season = rng.poisson(20.0, (4, 200)).astype(np.float64), np.ones((4, 203))
    demand[3, :190] = np.nan  # ten minutes old
    together, alone = walk(demand, season, 3)[-1], walk(demand[:1], season[:1], 3)[-1]
    assert together.mean[:1] == pytest.approx(alone.mean)
    assert together.quantiles[:1] == pytest.approx(alone.quantiles)
    tail = together.quantiles[3, :, 1] / together.mean[3]
    assert tail == pytest.approx(together.quantiles[:3, :, 1].mean(axis=0) / 20.0, rel=0.1)
    nothing = MinuteForecaster(1, 2).step(np.array([np.nan]), np.zeros(1), np.ones((1, 2)))
    assert (nothing.mean, nothing.quantiles) == (pytest.approx(0.0), pytest.approx(0.0))


@pytest.mark.parametrize(
    ("demand", "season", "message"),
    [([1.0, 2.0], [1.0], "demand: needed the shape"), ([1.0], [-1.0], "season: needed"),
     ([np.inf], [1.0], "demand: needed"), ([1.0], [np.nan], "season: needed")],
)  # fmt: skip
def test_a_minute_that_cannot_be_is_one_line(demand: list[float], season: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MinuteForecaster(1, 2).step(np.array(demand), np.array(season), np.ones((1, 2)))
    with pytest.raises(ValueError, match="got 3 pools, 0 minutes ahead"):
        MinuteForecaster(3, 0)
