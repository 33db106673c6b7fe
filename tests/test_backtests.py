"""Backtests: the marts equal the plain formulas, alarms ring when they should, and processes agree."""

import dataclasses
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date, timedelta
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from forecast_scores import covered_share, pinball, under_forecast_share, wape
from small import small_config

from fleetcast.assets.demand.demand import LEAST_PART_SHARE, build_demand
from fleetcast.assets.forecasts import backtests, walks
from fleetcast.assets.forecasts.forecast_figures import forecast_leaderboard_figure
from fleetcast.assets.forecasts.forecasts import forecast_day, read_day_forecast_errors
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.request_days import make_request_day
from fleetcast.models import forecast
from fleetcast.models.forecast import walk_predictions
from fleetcast.models.forecast.backtest import BacktestClock
from fleetcast.models.forecast.wape_bootstrap import bootstrap_difference

DAY = date(2025, 7, 4)
TIERS = ("interactive", "niw")
FAST = ("last_value", "seasonal_naive", "weighted")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """Three small days of history, then two that are backtested and forecast by quick methods."""
    folder = tmp_path_factory.mktemp("backtest")
    names = str(list(FAST)).replace("'", '"')
    config = small_config(folder, days="5", method='"weighted"', methods=names)
    settings = load_settings(config, folder / "lake")
    for number in range(5):
        day = date(2025, 7, 1) + timedelta(days=number)
        make_request_day(settings.lake, settings.config.trace, settings.catalogue, day)
        build_demand(settings.lake, settings.trace, day)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backtests, "BACKTESTED_METHODS", FAST)
        for tier in TIERS:
            backtests.backtest_methods(settings, DAY, DAY + timedelta(days=1), tier, Progress())
    forecast_day(settings, DAY, Progress())
    return settings


def test_every_hour_is_forecast_two_hours_ahead(ran: RunSettings) -> None:
    rows = ran.lake.read("backtests", trace="small").to_pandas()
    assert sorted(rows["day"].unique()) == [DAY, DAY + timedelta(days=1)]
    assert len(rows) == len(TIERS) * len(FAST) * 12 * 48 * 12  # methods, series, cutoffs, buckets
    ahead = rows["bucket_start"] - rows["cutoff"]
    assert (ahead.min(), ahead.max()) == (timedelta(0), timedelta(minutes=110))
    assert (rows["cutoff"].dt.date == rows["day"]).all()
    beyond = rows["actual_per_s"].isna()
    assert (rows["bucket_start"][beyond].dt.date == DAY + timedelta(days=2)).all()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("minutes", [10, 60, 120])
def test_the_mart_of_losses_equals_the_formulas(ran: RunSettings, minutes: int, tier: str) -> None:
    rows = ran.lake.read("backtests", trace="small", tier=tier).to_pandas()
    rows = rows[(rows["method"] == "weighted") & (rows["llm"] == "bloom-176b") & (rows["region"] == "east")]
    rows = rows.sort_values(["cutoff", "bucket_start"])

    def grid(name: str) -> np.ndarray:
        return rows[name].to_numpy().reshape(48, 12)[:, : minutes // 10]

    actual, mean = grid("actual_per_s"), grid("forecast_per_s")
    mart = ran.lake.sql(
        "select * from forecast_losses where method = 'weighted' and llm = 'bloom-176b' and region = 'east' "
        "and horizon_minutes = $minutes and tier = $tier", minutes=minutes, tier=tier,
    ).to_pylist()[0]  # fmt: skip
    known = ~np.isnan(actual)
    both = np.where(actual + mean > 0, actual + mean, 1.0)
    off = np.abs(actual - mean)
    assert mart["buckets"] == known.sum()
    assert mart["wape_share"] == pytest.approx(wape(actual, mean))
    assert mart["smape_share"] == pytest.approx((2 * off / both)[known].mean())
    assert mart["mase"] == pytest.approx(off[known].mean() / rows["naive_step_per_s"].iloc[0])
    for name, level in (("p50", 0.50), ("p90", 0.90), ("p95", 0.95)):
        quantile = grid(f"{name}_per_s")
        loss = pinball(actual, quantile[..., None], (level,))
        assert mart[f"pinball_{name}"] == pytest.approx(np.nansum(loss))
        assert mart[f"below_{name}_share"] == pytest.approx(covered_share(actual, quantile))
    hour = rows[rows["bucket_start"] - rows["cutoff"] < timedelta(hours=1)]
    peaks = (hour[f"{name}_per_s"].to_numpy().reshape(48, 6) for name in ("actual", "forecast"))
    assert mart["under_share"] == pytest.approx(under_forecast_share(*peaks))


def test_a_day_without_demand_is_refused(ran: RunSettings) -> None:
    with pytest.raises(
        LakeError, match=r"^The trace 'small' has no demand on 2025-07-09\. It has 2025-07-01 to"
    ):
        backtests.backtest_methods(ran, DAY, date(2025, 7, 9), "interactive", Progress())


def test_the_leaderboard_has_every_method_with_interval_and_resamples(ran: RunSettings) -> None:
    board = backtests.read_forecast_leaderboard(ran, "interactive").to_pandas()
    assert sorted(set(zip(board["horizon_minutes"], board["method"], strict=True))) == [
        (minutes, method) for minutes in (10, 60, 120) for method in FAST
    ]
    hour = board[board["horizon_minutes"] == 60].set_index("method")
    sums = ran.lake.sql("staging/errors_by_cutoff.sql", trace="small", tier="interactive").to_pandas()
    error = {m: g["error"].to_numpy() for m, g in sums[sums["horizon_minutes"] == 60].groupby("method")}
    saved = bootstrap_difference(error["weighted"], error["last_value"], 24)
    shown = hour.loc["last_value", ["saved_share", "saved_low_share", "saved_high_share"]].tolist()
    assert shown == pytest.approx(list(saved))
    ratio = hour.loc["weighted", "wape_share"] / hour.loc["last_value", "wape_share"]
    assert 1 - ratio == pytest.approx(saved.saved_share)
    figure = forecast_leaderboard_figure(ran, DAY)
    titles = [f"{tier}, {minutes} minutes ahead" for tier in TIERS for minutes in (10, 60, 120)]
    assert [axes.get_title() for axes in figure.axes] == titles


def test_an_installed_method_is_on_the_leaderboard(
    ran: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is walked as the shipped ones are, and has an error."""
    shutil.copytree(ran.lake.root, tmp_path / "lake")
    settings = dataclasses.replace(ran, lake=Lake(tmp_path / "lake"))
    own = {"mine": lambda demand, horizon: np.repeat(demand[:, -1:], horizon, axis=1)}
    for module in (backtests, forecast, walk_predictions):
        monkeypatch.setattr(module, "installed_forecasts", lambda: own)
    monkeypatch.setattr(backtests, "BACKTESTED_METHODS", FAST)
    backtests.backtest_methods(settings, DAY, DAY, "niw", Progress())
    board = backtests.read_forecast_leaderboard(settings, "niw").to_pandas()
    hour = board[board["horizon_minutes"] == 60].set_index("method")
    assert set(hour.index) == {*FAST, "mine"}
    assert hour["wape_share"].between(0, 10, inclusive="neither").all()


def test_the_board_averages_live_endpoints_only(ran: RunSettings) -> None:
    """An endpoint that expects and receives nothing fulfils every quantile, so it is left out."""
    table = ran.lake.read("backtests", trace="small", tier="niw", day=DAY).to_pandas()
    frame = table.drop(columns=["trace", "tier", "day"])
    where = frame["region"] + frame["llm"]
    dead, idle = sorted(set(where))[:2]
    rates = [name for name in frame if name.endswith("_per_s") and name != "naive_step_per_s"]
    frame.loc[where == dead, rates] = 0.0
    frame.loc[where == idle, "actual_per_s"] = 0.0  # expected, but nothing arrived
    frame["tier"] = "niw"
    rows = pa.Table.from_pandas(frame, preserve_index=False).select(SCHEMAS["backtests"].names)
    ran.lake.write("backtests", rows, trace="dead", tier="niw", day=DAY)
    try:
        board = ran.lake.sql("from forecast_leaderboard where trace = 'dead'").to_pandas()
    finally:
        ran.lake.path("backtests", trace="dead", tier="niw", day=DAY).unlink()
    shown = board.set_index(["method", "horizon_minutes"])
    own = frame[(where != dead) & frame["actual_per_s"].notna()].assign(endpoint=where)
    for minutes in (10, 60, 120):
        judged = own[own["bucket_start"] - own["cutoff"] < timedelta(minutes=minutes)]
        living = judged.groupby("endpoint")[["actual_per_s", "forecast_per_s"]].sum().gt(0).any(axis=1)
        assert (shown.xs(minutes, level="horizon_minutes")["endpoints"] == living.sum()).all()
        for method, all_rows in judged.groupby("method"):
            sums = all_rows.groupby("endpoint")[["actual_per_s", "forecast_per_s"]].transform("sum")
            rows_of = all_rows[(sums > 0).any(axis=1)]
            for level in ("p50", "p90", "p95"):
                below = rows_of["actual_per_s"] <= rows_of[f"{level}_per_s"]
                share = below.groupby(rows_of["endpoint"]).mean().mean()
                assert shown.loc[(method, minutes), f"below_{level}_share"] == pytest.approx(share)
            real, mean = rows_of["actual_per_s"], rows_of["forecast_per_s"]
            smape = (2 * (real - mean).abs() / (real + mean)).fillna(0).groupby(rows_of["endpoint"]).mean()
            assert shown.loc[(method, minutes), "smape_share"] == pytest.approx(smape.mean())


def test_a_forecast_worse_than_the_last_value_raises_an_alarm(ran: RunSettings) -> None:
    errors = read_day_forecast_errors(ran, DAY).to_pandas().set_index(["tier", "llm", "method"])
    assert set(errors.index.get_level_values("tier")) == {"interactive", "iw_fast", "iw_normal", "niw"}
    for (tier, llm, _method), row in errors.iterrows():
        is_worse = row["wape_share"] > errors.loc[(tier, llm, "last_value"), "wape_share"]
        assert (row["note"] == "worse than the last value") == is_worse
    rang = {}
    for method in FAST:
        found = ran.lake.sql("alarms/forecasts_beat_last_value.sql", trace="small", day=DAY, method=method)
        rang[method] = found.num_rows
    assert rang["last_value"] == 0
    assert rang["seasonal_naive"] > rang["weighted"]


def test_dead_endpoints_do_not_change_the_shares_of_a_day(ran: RunSettings) -> None:
    """An endpoint where nothing is expected and nothing arrives changes no share, present or not."""
    frame = ran.lake.read("forecasts", trace="small", day=DAY).drop_columns(["trace", "day"]).to_pandas()
    dead = (frame["llm"] == frame["llm"].min()) & (frame["region"] == frame["region"].min())
    frame.loc[dead, [name for name in frame if name.endswith("_per_s")]] = 0.0
    frames = []
    try:
        for rows in (frame, frame[~dead]):
            table = pa.Table.from_pandas(rows, SCHEMAS["forecasts"], preserve_index=False)
            ran.lake.write("forecasts", table, trace="dead", day=DAY)
            frames.append(ran.lake.sql("from forecast_errors where trace = 'dead' order by all").to_pandas())
    finally:
        ran.lake.path("forecasts", trace="dead", day=DAY).unlink()
    pd.testing.assert_frame_equal(*frames)


def test_a_series_with_a_wrong_p90_is_named(ran: RunSettings) -> None:
    """Five days of one endpoint too low, one too high, one exact; a single day names none."""
    frame = ran.lake.read("forecasts", trace="small", day=DAY).drop_columns(["trace", "day"]).to_pandas()
    frame = frame[(frame["tier"] == "interactive") & (frame["measure"] == "requests")]
    frame = frame[(frame["llm"] == frame["llm"].min()) & (frame["method"] == "weighted")]
    for region, factor in (("central", 0.0), ("west", 1e9)):
        frame.loc[frame["region"] == region, "peak_p90_per_s"] *= factor
    own = frame[(frame["region"] == "east") & frame["actual_per_s"].notna()]
    hours = own.groupby("cutoff")
    below = (hours["actual_per_s"].max() <= hours["peak_p90_per_s"].first()).mean()
    days = [DAY + timedelta(days=number) for number in range(5)]
    try:
        for number, day in enumerate(days):
            later = frame.assign(
                **{at: frame[at] + timedelta(days=number) for at in ("cutoff", "bucket_start")}
            )
            table = pa.Table.from_pandas(later, SCHEMAS["forecasts"], preserve_index=False)
            ran.lake.write("forecasts", table, trace="often", day=day)
            shown = ran.lake.sql("from forecast_coverage where trace = 'often'").to_pandas()
            shown = shown.set_index("region")
            assert (shown["hours"] == 24 * (number + 1)).all()
            if number == 0:
                assert shown["p90_note"].isna().all()
    finally:
        for day in days:
            ran.lake.path("forecasts", trace="often", day=day).unlink(missing_ok=True)
    assert shown.loc[["central", "west"], "p90_note"].tolist() == ["P90 too low", "P90 too high"]
    assert shown.loc["east", "peak_below_p90_share"] == pytest.approx(below)
    assert shown.loc["east", "wape_share"] == pytest.approx(wape(own["actual_per_s"], own["forecast_per_s"]))
    notes = [ran.lake.sql(f"select p90_note({share}, 100)").to_pylist()[0] for share in (0.88, 0.92, 0.869)]
    assert [next(iter(note.values())) for note in notes] == [None, None, "P90 too low"]
    assert set(ran.lake.sql("from forecast_coverage where trace = 'small'")["made"].to_pylist()) == {
        "hour_ahead", "day_ahead",
    }  # fmt: skip


def test_every_tier_and_measure_is_forecast(ran: RunSettings) -> None:
    rows = ran.lake.read("forecasts", trace="small", day=DAY).to_pandas()
    assert rows.groupby(["method", "measure", "tier"]).size().eq(12 * 96).all()
    assert len(rows) == len(FAST) * 3 * 4 * 12 * 96  # methods, measures, tiers, series, buckets
    totals = ran.lake.sql(
        "select tier, sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens, "
        "sum(requests) as requests from demand where trace = 'small' and day = $day group by tier",
        day=DAY,
    ).to_pandas().set_index("tier").astype(float)  # fmt: skip
    totals.loc["interactive"] = totals.loc[["iw_fast", "iw_normal"]].sum()
    for (measure, tier), part in rows[rows["method"] == "weighted"].groupby(["measure", "tier"]):
        assert (part["actual_per_s"] * 900).sum() == pytest.approx(totals.loc[tier, measure])
        share = part["forecast_per_s"].sum() / part["actual_per_s"].sum()
        assert (0.5 if tier == "interactive" else 0.0) < share < 1.5  # few requests: the middle lies low
        assert (part["p90_per_s"] >= part["p50_per_s"]).all()
        assert (part["p95_per_s"] >= part["p90_per_s"]).all()
        assert (part["p95_per_s"] > part["p90_per_s"]).any()


def test_planned_demand_is_forecast_with_its_apps_too(ran: RunSettings) -> None:
    """Each endpoint is the sum of its large apps and the rest; only what plans cover is forecast so."""
    panel = walks.read_panel(ran, (date(2025, 7, 1), DAY), 60, 0, ("interactive",), "input_tokens", None, 72)
    parts = panel.parts
    assert parts is not None
    assert np.unique(parts.of_sum).tolist() == list(range(12))
    summed = np.zeros(panel.demand.shape)
    np.add.at(summed, parts.of_sum, parts.demand)
    assert np.allclose(summed, panel.demand)
    share = parts.demand[:, :72].sum(axis=1) / panel.demand[parts.of_sum, :72].sum(axis=1)
    assert (share < LEAST_PART_SHARE).sum() <= 12  # the rest of each endpoint
    known = panel.end_at(48)
    assert (known.demand.shape[1], known.parts.demand.shape[1]) == (49, 49)
    assert np.isnan(known.parts.demand[:, -1]).all()
    early = walks.read_panel(ran, (date(2025, 7, 1), DAY), 60, 0, ("interactive",), "input_tokens", 60, 60)
    for rates, whole in (
        (early.demand, panel.demand),
        (early.parts.demand.sum(axis=0), panel.demand.sum(axis=0)),
    ):
        assert np.isnan(rates[..., 60:]).all(), "what is not known yet is in neither sums nor parts"
        assert np.allclose(rates[..., :60], whole[..., :60])
    for table in ("forecasts where measure = 'input_tokens'", "day_ahead_forecasts where true"):
        found = ran.lake.sql(f"select distinct tier from {table} and ensemble_weights like '%from its parts'")
        assert found["tier"].to_pylist() == ["interactive"], table


def test_an_unknown_tier_is_named(ran: RunSettings) -> None:
    with pytest.raises(ValueError, match=r"unknown tier 'iw_fats'\. Did you mean 'iw_fast'"):
        backtests.backtest_methods(ran, DAY, DAY, "iw_fats", Progress())


def test_a_change_of_demand_raises_an_alarm(ran: RunSettings) -> None:
    table = ran.lake.read("forecasts", trace="small", day=DAY).drop_columns(["trace", "day"])
    ask = {"trace": "changed", "day": DAY, "method": "weighted"}
    hour = table["cutoff"].to_numpy().astype("datetime64[h]").astype(np.int64) % 24
    for factor, hours, rings in ((1.0, 24, False), (9.0, 8, True), (0.1, 24, True)):
        demand = table["actual_per_s"].to_numpy()
        actual = pa.array(np.where(hour < hours, factor, 1.0) * demand)
        at = table.schema.get_field_index("actual_per_s")
        changed = table.set_column(at, "actual_per_s", actual)
        ran.lake.write("forecasts", changed, trace="changed", day=DAY)
        assert (ran.lake.sql("alarms/demand_behaves_as_before.sql", **ask).num_rows > 3) == rings
    at_median = pa.array(table["peak_p50_per_s"].to_numpy())  # neither above nor below it
    ran.lake.write("forecasts", table.set_column(at, "actual_per_s", at_median), trace="changed", day=DAY)
    assert ran.lake.sql("alarms/demand_behaves_as_before.sql", **ask).num_rows == 0
    ran.lake.path("forecasts", trace="changed", day=DAY).unlink()


def test_two_processes_give_the_result_of_one() -> None:
    demand = np.arange(1.0, 4.0)[:, None] * np.ones(54)  # constant: arima gives up at once, series by series
    phase = np.tile(np.arange(56) % 168, (3, 1))
    panel, clock = walks.Panel([], demand, phase, np.ones(phase.shape)), BacktestClock(50, 2, 2, 24)
    pieces = walks.split_into_pieces(["last_value", "arima"], 3)
    assert [piece.first_series for piece in pieces] == [0, 0, 2]
    steps: list[int] = []
    found, cpu_s = walks.walk_pieces(panel, clock, pieces, steps.append)
    assert steps == [1, 2, 3]
    assert sorted(cpu_s) == sorted(found) == ["arima", "last_value"]
    assert found["arima"].mean[:, -1, -1].tolist() == [1.0, 2.0, 3.0]
    assert found["arima"].fallbacks[:, -1].tolist() == ["last_value: the series is constant"] * 3


class SlowClock(BacktestClock):
    """A clock that takes a minute to get into another process."""

    def __reduce__(self) -> tuple[object, ...]:
        return time.sleep, (60,)


def test_an_interrupted_walk_ends_its_processes() -> None:
    panel = walks.Panel([], np.ones((1, 54)), np.zeros((1, 56), int), np.ones((1, 56)))
    pieces, begun_s = walks.split_into_pieces(["last_value", "arima"], 1), time.monotonic()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        walks.walk_pieces(panel, SlowClock(50, 2, 2, 24), pieces, interrupt)
    while active_children() and time.monotonic() - begun_s < 30:  # the pool's thread waits for them too
        time.sleep(0.01)
    assert active_children() == []


def test_ctrl_c_is_left_to_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker begins by ignoring it: a terminal sends it to all processes."""
    program = (
        "import os, signal; from fleetcast.assets.forecasts import walks; walks._leave_interrupts(); "
        "os.kill(os.getpid(), signal.SIGINT); print('alive')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "alive\n"
    pools = []

    class Pool(ProcessPoolExecutor):
        def __init__(self, *arguments: object) -> None:
            pools.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(walks, "ProcessPoolExecutor", Pool)
    assert walks.walk_pieces(walks.Panel([], np.zeros((1, 2)), *2 * [np.zeros((1, 2))]), None, [], int) == (
        {},
        {},
    )
    assert pools[0][2] is walks._leave_interrupts
