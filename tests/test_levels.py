"""Demand levels: apps sleep and remember; requests come in clumps, batches and grids; tokens drift."""

import dataclasses
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_generate import APPS, FIRST, NAMES, draw, traffic

from fleetcast.models.characterise.gap_families import GAP_FAMILIES
from fleetcast.models.traffic.app_level_fit import fit_app_levels
from fleetcast.models.traffic.app_levels import draw_level_stretch
from fleetcast.models.traffic.client_changes import apply_client_changes
from fleetcast.models.traffic.client_fit import has_own_levels
from fleetcast.models.traffic.recorded_days import pick_recorded_day
from fleetcast.models.traffic.renewal_arrivals import (
    Spacing,
    coarsest_grid_us,
    count_cumulants,
    draw_arrivals,
    fit_batch_sizes,
    snap_to_grid,
)
from fleetcast.models.traffic.trace_changes import NewApp, TraceChanges

DAYS = 56
HOUR_OF_WEEK = np.arange(24 * DAYS) % 168


def draw_levels(levels, days=DAYS, seed=3):
    return np.concatenate(
        [
            draw_level_stretch(levels, seed, FIRST + timedelta(days=n), FIRST, n % 7).day_levels()
            for n in range(days)
        ],
        axis=1,
    )


def correlation(load, lag):
    return np.mean([np.corrcoef(row[:-lag], row[lag:])[0, 1] for row in load])


def sleep_statistics(load):
    """Return the share of hours asleep, and the mean hours of a sleep."""
    off = load == 0
    return off.mean(), off.sum() / (off[:, 1:] & ~off[:, :-1]).sum()


@pytest.mark.parametrize(("falls_asleep", "wakes"), [(0.05, 0.2), (0.3, 0.1)])
def test_a_two_state_process_keeps_its_share_and_sleep_length(falls_asleep, wakes):
    """Asleep for a share p / (p + q) of the hours, 1 / q hours at a time."""
    rng = np.random.default_rng(0)
    on = np.ones((20, 24 * DAYS), bool)
    for hour in range(1, 24 * DAYS):
        change = rng.random(20)
        on[:, hour] = np.where(on[:, hour - 1], change >= falls_asleep, change < wakes)
    made = draw_levels(fit_app_levels(on * rng.poisson(1000, on.shape).astype(float), HOUR_OF_WEEK))
    share, hours = sleep_statistics(made)
    assert share == pytest.approx(falls_asleep / (falls_asleep + wakes), abs=0.05)
    assert hours == pytest.approx(1 / wakes, rel=0.25)
    assert made.mean() == pytest.approx(1, abs=0.05)


def test_a_load_keeps_its_variation_its_memory_and_its_season():
    rng = np.random.default_rng(1)
    walk = rng.standard_normal((2, 20, 24 * DAYS))
    for part, memory in enumerate((np.exp(-1 / 96), np.exp(-1 / 2))):
        for hour in range(1, 24 * DAYS):
            fresh = np.sqrt(1 - memory**2) * walk[part, :, hour]
            walk[part, :, hour] = memory * walk[part, :, hour - 1] + fresh
    season = np.sin(2 * np.pi * HOUR_OF_WEEK / 24)
    load = 2000 * np.exp(0.5 * season + 0.4 * walk[0] + 0.4 * walk[1])
    made = draw_levels(fit_app_levels(load, HOUR_OF_WEEK))
    assert made.std() / made.mean() == pytest.approx(load.std() / load.mean(), rel=0.1)
    for lag in (1, 6, 24, 72, 168):
        assert correlation(made, lag) == pytest.approx(correlation(load, lag), abs=0.1), lag
    midnights = np.corrcoef(made[:, 23:-1:24].ravel(), made[:, 24::24].ravel())[0, 1]
    noons = np.corrcoef(made[:, 11:-1:24].ravel(), made[:, 12::24].ravel())[0, 1]
    assert midnights == pytest.approx(noons, abs=0.08)


def test_only_series_beyond_season_and_noise_get_a_level():
    rng = np.random.default_rng(2)
    week = np.tile(200.0 + 100 * np.sin(np.arange(336) / 4), (3, 1))
    load = rng.poisson(week).astype(float)
    load[1] *= rng.choice([0.0, 1.5], 336)
    few = rng.poisson(0.5, 336).astype(float)
    assert has_own_levels(load, week).tolist() == [False, True, False]
    assert not has_own_levels(few[None], np.full((1, 336), 0.5))[0]
    assert not has_own_levels(load[:, :40], week[:, :40]).any()


@settings(max_examples=15)
@given(st.floats(0.05, 1.0), st.floats(1.2, 8.0))
def test_batches_have_the_cumulants_of_their_fit(share, size):
    mean = 1 + share * (size - 1)
    second = (1 - share + share * size * (2 * size - 1)) / mean
    third = (1 - share + share * size * (6 * size**2 - 6 * size + 1)) / mean
    found = fit_batch_sizes(np.array([second]), np.array([third]))
    assert np.ravel(found) == pytest.approx([share, size], rel=1e-6)


def test_the_dispersion_of_seconds_is_that_of_their_batches():
    spacing = Spacing(np.zeros(1, np.int64), np.array([0.2]), np.array([6.0]))
    minute, _ = draw_arrivals(np.random.default_rng(0), np.full((1, 1440), 120.0), np.ones((1, 144)), spacing)
    assert minute.size == pytest.approx(1440 * 120, rel=0.03)
    counts = np.bincount((minute * 60).astype(int), minlength=86_400).reshape(-1, 60).astype(float)
    found = count_cumulants(counts)
    assert np.ravel(fit_batch_sizes(*np.array(found)[:, None])) == pytest.approx([0.2, 6.0], rel=0.1)
    assert found[0] == pytest.approx((0.8 + 0.2 * 6 * 11) / 2, rel=0.06)
    seldom, _ = draw_arrivals(np.random.default_rng(0), np.full((1, 1440), 4.0), np.ones((1, 144)), spacing)
    gaps = np.diff(np.sort(seldom))
    assert gaps.std() / gaps.mean() == pytest.approx(spacing.batch_cv()[0], rel=0.06)


def test_clumps_are_uniform_in_their_window():
    spacing = Spacing(np.full(30, list(GAP_FAMILIES).index("gamma")), np.zeros(30), np.ones(30))
    minute, sender = draw_arrivals(
        np.random.default_rng(0), np.full((30, 1440), 6.0), np.full((30, 144), 6.0), spacing
    )
    place = minute % 10
    assert np.mean((place < 0.1) | (place > 9.9)) == pytest.approx(0.02, abs=0.006)
    gaps = np.diff(np.sort(minute[sender == 0]))
    assert gaps.std() / gaps.mean() > 3


def test_a_grid_is_found_and_kept():
    made = dataclasses.replace(traffic(), grid_us=3_000_000, grid_first_us=1_000_000)
    instants = draw(made).arrived_us
    assert set(instants % 3_000_000) == {1_000_000}
    assert coarsest_grid_us(instants) == 3_000_000
    assert coarsest_grid_us(np.arange(0, 10**9, 7_000_001)) == 7_000_001
    assert coarsest_grid_us(np.array([5, 90_000_005])) == 1
    assert snap_to_grid(np.array([0, 2, 7]), 5, 2).tolist() == [2, 2, 7]


def test_clumps_of_one_sender_stay_together_over_clients():
    """Distributed over four clients, the clumps of one sender stay together, in the shares of their rates."""
    rate = np.array([4.0, 2.0, 1.0, 1.0])[:, None] * np.full((4, 168), 500.0)
    alone = dataclasses.replace(traffic(cv=4.0), requests_per_hour=rate)
    spacing = Spacing(*(values[:1] for values in alone.spacing))
    history = alone.history._replace(gap_cv=alone.history.gap_cv[:1])
    made = dataclasses.replace(alone, sender=np.zeros(4, np.int64), spacing=spacing, history=history)

    def correlation_of_two(day):
        seconds = (
            np.bincount(day.arrived_us[day.llm == llm] // 1_000_000, minlength=86_400) for llm in (0, 1)
        )
        return np.corrcoef(*seconds)[0, 1]

    day = draw(made)
    assert correlation_of_two(day) > 0.5 > 0.1 > correlation_of_two(draw(alone))
    assert np.bincount(day.llm) / day.llm.size == pytest.approx([0.5, 0.25, 0.125, 0.125], abs=0.02)


def test_tokens_drift_as_on_the_source_day():
    """A pair states its day and hour: a generated hour has pairs of one day, each day once in three."""
    day, hour = np.divmod(np.arange(3 * 24).repeat(60), 24)
    pairs = np.stack([1 + 24 * day + hour, 1 + day], axis=1).astype(np.int32)
    history = traffic().history._replace(
        weekday=np.array([1, 2, 3]), pair_hour=24 * day + hour, gap_cv=np.ones((4, 3, 144), np.float32)
    )
    made = dataclasses.replace(
        traffic(),
        pool=np.zeros(4, np.int64),
        first_pair=np.array([0, len(pairs)]),
        pairs=pairs,
        history=history,
    )
    lived = []
    for number in range(15):
        when = FIRST + timedelta(days=number)
        if when.weekday() < 5:
            columns = draw(made, day=when)
            assert np.array_equal((columns.input_tokens - 1) % 24, columns.arrived_us // 3_600_000_000)
            lived.append(set(columns.output_tokens.tolist()))
    assert all(len(one) == 1 for one in lived)
    assert min(sum(one == {day} for one in lived) for day in (1, 2, 3)) >= 2


def test_a_copied_app_sleeps_alike_but_independently():
    on = np.random.default_rng(0).random((1, 24 * DAYS)) < 0.5
    led = dataclasses.replace(
        traffic(),
        level=np.array([-1, 0, -1, 0]),
        levels=fit_app_levels(np.where(on, 1000.0, 0.0), HOUR_OF_WEEK),
        history=traffic().history._replace(levels=np.ones((1, 24)), input_share=np.ones(1)),
    )
    made, apps = apply_client_changes(
        led, TraceChanges(new_apps=(NewApp("agents", "rag", 0.5),)), 1.0, NAMES, APPS
    )
    assert made.levels.level.deviation.size == 2
    days = [draw(made, day=FIRST + timedelta(days=n)) for n in range(10)]
    asleep = np.array(
        [
            [np.bincount(d.arrived_us[d.app == code] // 3_600_000_000, minlength=24) == 0 for d in days]
            for code in (0, 1, apps.index("agents"))
        ]
    ).reshape(3, -1)
    assert asleep.mean(axis=1) == pytest.approx([0.0, 0.5, 0.5], abs=0.15)
    assert np.mean(asleep[1] == asleep[2]) == pytest.approx(0.5, abs=0.15)


def test_a_generated_day_does_not_depend_on_other_days():
    levels = fit_app_levels(
        np.random.default_rng(0).poisson(20.0, (3, 336)).astype(float), np.arange(336) % 168
    )
    day = date(2025, 7, 4)
    alone = draw_level_stretch(levels, 5, day, FIRST, 4).day_levels()
    draw_level_stretch(levels, 5, day + timedelta(days=1), FIRST, 5)
    assert np.array_equal(alone, draw_level_stretch(levels, 5, day, FIRST, 4).day_levels())
    assert not np.array_equal(alone, draw_level_stretch(levels, 6, day, FIRST, 4).day_levels())


def test_a_stretch_keeps_the_distribution_of_a_level():
    """With a memory of four days and a CV of 2, two weeks have the mean and the variation of the record."""
    rng = np.random.default_rng(0)
    walk = rng.standard_normal((2, 336))
    for hour in range(1, 336):
        walk[:, hour] = np.exp(-1 / 96) * walk[:, hour - 1] + np.sqrt(1 - np.exp(-2 / 96)) * walk[:, hour]
    counts = rng.poisson(300 * np.exp(1.3 * walk)).astype(float)
    levels = fit_app_levels(counts, np.arange(336) % 168)
    assert levels.stretch_days == 14
    for seed in range(3):
        made = draw_levels(levels, days=28, seed=seed).reshape(2, 2, 336)
        assert made.mean(axis=2) == pytest.approx(1.0, abs=0.03)
        cv = counts.std(axis=1) / counts.mean(axis=1)
        assert made.std(axis=2) == pytest.approx(np.repeat(cv[:, None], 2, axis=1), rel=0.1)


def test_source_days_are_matched_by_level():
    """Tokens stay with the load that they came with; each day is used once in a stretch."""
    rng = np.random.default_rng(1)
    of_days = rng.permutation(np.exp(np.linspace(-1, 1, 14)))
    counts = rng.poisson(500 * np.repeat(of_days, 24)).astype(float)[None]
    weekday = np.arange(14) % 7
    led = dataclasses.replace(
        traffic(),
        level=np.array([0, -1, -1, -1]),
        levels=fit_app_levels(counts, np.arange(336) % 168),
        pool=np.zeros(4, np.int64),
        first_pair=np.array([0, 336]),
        pairs=np.stack([np.arange(336) // 24 + 1] * 2, axis=1).astype(np.int32),
        history=traffic().history._replace(
            weekday=weekday,
            gap_cv=np.ones((4, 14, 144), np.float32),
            pair_hour=np.arange(336),
            levels=np.repeat(of_days, 24)[None] / of_days.mean(),
            input_share=np.ones(1),
        ),
    )
    days = [FIRST + timedelta(days=n) for n in range(14)]
    stretch = draw_level_stretch(led.levels, 7, FIRST, FIRST, 0)
    lived = [
        pick_recorded_day(led.history, draw_level_stretch(led.levels, 7, d, FIRST, d.weekday()), 7)
        for d in days
    ]
    assert sorted(lived) == list(range(14))
    assert np.array_equal(weekday[lived] >= 5, weekday >= 5)
    working = weekday < 5
    made, seen = stretch.levels.mean(axis=2)[0, working], of_days[np.array(lived)[working]]
    assert np.array_equal(made.argsort(), seen.argsort())


def test_tokens_follow_the_load_of_the_hour():
    """An hour has the tokens of an hour with as much load: only quiet hours had heavy requests."""
    rng = np.random.default_rng(1)
    of_hours = rng.permutation(np.exp(np.linspace(-1.5, 1.5, 336)))
    counts = rng.poisson(500 * of_hours).astype(float)[None]
    tokens = np.where(of_hours < np.median(of_hours), 900, 100).astype(np.int32)
    made = dataclasses.replace(
        traffic(requests_per_hour=500.0),
        level=np.array([0, -1, -1, -1]),
        levels=fit_app_levels(counts, np.arange(336) % 168),
        pool=np.zeros(4, np.int64),
        first_pair=np.array([0, 336 * 60]),
        pairs=np.repeat(tokens, 60)[:, None] * np.ones(2, np.int32),
        history=traffic().history._replace(
            weekday=np.arange(14) % 7,
            gap_cv=np.ones((4, 14, 144), np.float32),
            pair_hour=np.arange(336).repeat(60),
            levels=of_hours[None] / of_hours.mean(),
            input_share=np.ones(1),
        ),
    )
    columns = draw(made)
    own = columns.region == made.region[0]
    own &= columns.llm == made.llm[0]
    hour = columns.arrived_us[own] // 3_600_000_000
    sent = np.bincount(hour, minlength=24)
    mean = np.bincount(hour, columns.input_tokens[own], 24) / sent
    is_busy = sent > 500 * np.median(of_hours) / of_hours.mean()
    assert 3 < is_busy.sum() < 21
    assert mean[is_busy].mean() < 200
    assert mean[~is_busy].mean() > 800


def test_an_hour_has_the_mean_tokens_of_its_source_hour():
    """Heavy tails: drawn one by one, the mean of an hour would be off by a third."""
    rng = np.random.default_rng(2)
    pairs = np.repeat(np.ceil(rng.lognormal(5, 2, (24 * 300, 1))), 2, axis=1).astype(np.int32)
    made = dataclasses.replace(
        traffic(requests_per_hour=75.0),
        pool=np.zeros(4, np.int64),
        first_pair=np.array([0, len(pairs)]),
        pairs=pairs,
        history=traffic().history._replace(pair_hour=np.arange(24).repeat(300)),
    )
    columns = draw(made)
    hour = columns.arrived_us // 3_600_000_000
    mean = np.bincount(hour, columns.input_tokens) / np.bincount(hour)
    assert mean == pytest.approx(pairs[:, 0].reshape(24, 300).mean(axis=1), rel=0.2)
