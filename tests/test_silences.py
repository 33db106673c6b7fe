"""Silences of landed traces: inferred from the pattern so far, unknown to forecasts, changed by nothing
later.
"""

import dataclasses
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleetcast.assets.demand.demand import INTERACTIVE, build_demand, read_demand_matrix
from fleetcast.assets.demand.demand_history import (
    require_day_demand,
    unknown_day_sentence,
    unknown_history_sentence,
)
from fleetcast.assets.forecasts.backtests import backtest_methods
from fleetcast.assets.forecasts.forecasts import forecast_day, forecast_day_ahead
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings, midnight
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.plan_loads import day_ahead_load, day_loads, latest_value_by_hour
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.assets.traces.data_quality import assess_trace
from fleetcast.assets.traces.ingest import ingest_file

MONDAY = date(2024, 5, 6)
HOUR_S = 3600.0
FRIDAY = 11  # of the second week
CONFIG = """based_on = "sageserve"
[trace]
name = "mine"
first_day = 2024-05-06
days = 28
seed = 1
[fleet.deployments]
"llama2-70b" = { gpu = "h100-80gb", tensor_parallel = 4 }
[forecast]
method = "weighted"
paper_method = "last_value"
methods = ["weighted", "last_value"]
bucket_minutes = 60
"""


def arrivals(per_hour: Callable[[int], float], days: int, seed: int = 1) -> np.ndarray:
    """Poisson arrivals, seconds since MONDAY, at a rate by the hour since then."""
    rng = np.random.default_rng(seed)
    hours = (hour * HOUR_S + rng.uniform(0, HOUR_S, rng.poisson(per_hour(hour))) for hour in range(24 * days))
    return np.sort(np.concatenate(list(hours)))


def at_work(hour: int) -> float:
    """Monday to Friday, nine to six."""
    return 700.0 if hour // 24 % 7 < 5 and 9 <= hour % 24 < 18 else 0.0


def by_day(hour: int) -> float:
    """Every day, more at noon than at night."""
    return 600.0 - 400.0 * np.cos(2 * np.pi * hour / 24)


def land(settings: RunSettings, seconds: np.ndarray, file: str = "one") -> None:
    """Land requests as a person would, and build their demand."""
    for day in land_only(settings, seconds, file):
        build_demand(settings.lake, "mine", day)


def land_only(settings: RunSettings, seconds: np.ndarray, file: str = "one") -> tuple[date, ...]:
    """Land requests: canonical Parquet, a mapping next to it; the days."""
    folder, rng = settings.lake.root.parent, np.random.default_rng(seconds.size)
    us = (1e6 * seconds).astype(np.int64) + int(midnight(MONDAY).timestamp()) * 1_000_000
    rows = pa.table(
        {
            "request_id": us.astype(np.uint64),
            "arrived_at": pa.array(us).cast(pa.timestamp("us", "UTC")),
            "input_tokens": rng.integers(500, 1500, us.size),
            "output_tokens": rng.integers(50, 150, us.size),
        }
    )
    pq.write_table(rows, folder / f"{file}.parquet")
    names = 'trace = "mine"\nllm = "llama2-70b"\nregion = "east"\ntier = "iw_fast"\n'
    (folder / f"{file}.toml").write_text(names)
    report = ingest_file(folder / f"{file}.parquet", settings.lake, settings.catalogue)
    assess_trace(settings.lake, "mine")
    return report.days


@pytest.fixture
def mine(tmp_path: Path) -> RunSettings:
    (tmp_path / "mine.toml").write_text(CONFIG)
    return load_settings(str(tmp_path / "mine.toml"), tmp_path / "lake")


def silences(lake: Lake) -> list[tuple[float | None, float | None]]:
    """Hours since MONDAY at which silences begin and end."""
    rows = lake.sql("select silence_start, silence_end from silences order by silence_end").to_pylist()
    return [
        tuple(t and (t - midnight(MONDAY)).total_seconds() / HOUR_S for t in row.values()) for row in rows
    ]


def hourly(settings: RunSettings, days: int) -> np.ndarray:
    """Input tokens/s of the one endpoint that has any, hour by hour from MONDAY."""
    last = MONDAY + timedelta(days=days - 1)
    found = read_demand_matrix(settings.lake, "mine", MONDAY, last, 60, settings.catalogue)
    east = list(settings.catalogue.regions).index("east")
    return found.tier_series(INTERACTIVE)[0, east]


def test_what_stops_when_it_always_stops_is_no_silence(mine: RunSettings) -> None:
    """After the first evening, when nothing was usual yet: nights, weekends, a holiday are 0."""
    seconds = arrivals(at_work, 28)
    land(mine, seconds[seconds // 86_400 != 14])  # the third Monday is a holiday
    assert silences(mine.lake)[1:] == [(18.0, 33.0)]
    assert [f["aspect"] for f in mine.lake.read("quality").to_pylist() if f["verdict"] == "warn"] == []
    rates = hourly(mine, 28)
    assert np.isnan(rates).nonzero()[0].tolist() == [*range(9), *range(18, 24), *range(24, 33)]
    assert (rates[[5 * 24 + 12, 14 * 24 + 12]] == 0).all()


@pytest.mark.parametrize("pause_s", [300.0, 3600.0])
def test_a_service_that_comes_in_bursts_has_next_to_none(mine: RunSettings, pause_s: float) -> None:
    rng, seconds, now_s = np.random.default_rng(5), [], 0.0
    while now_s < 12 * 86_400:
        lasts_s = rng.exponential(HOUR_S)
        seconds.append(now_s + rng.uniform(0, lasts_s, rng.poisson(lasts_s / 4)))
        now_s += lasts_s + rng.exponential(pause_s)
    land_only(mine, np.concatenate(seconds))
    assert len(silences(mine.lake)) <= 1 + 4


def known_of(settings: RunSettings, day: date) -> dict[str, object]:
    """All that is made for a day, and from the days before it, by name."""
    before = day - timedelta(days=1)
    forecast_day(settings, before, Progress())
    forecast_day_ahead(settings, day, Progress())
    backtest = backtest_methods(settings, before - timedelta(days=1), before, "iw_fast", Progress())
    load, mixes = day_ahead_load(settings, day), token_mixes(settings, day)
    hour_of_cutoff = 24.0 * (day - MONDAY).days
    return {
        "hour ahead": settings.lake.read("forecasts", day=before),
        "day ahead": settings.lake.read("day_ahead_forecasts", day=day).drop_columns("actual_per_s"),
        "backtest": backtest.drop_columns("cpu_s"),
        "load": (load.demand.tobytes(), load.buffer.tobytes()),
        "loads of the day before": [
            (name, of.demand.tobytes(), of.buffer.tobytes())
            for name, of in day_loads(settings, before).items()
        ],
        "mixes": {llm: [tokens.tobytes() for tokens in mix[:2]] for llm, mix in mixes.items()},
        "not known": unknown_history_sentence(settings, day),
        "silences": {
            (start, min(end or np.inf, hour_of_cutoff))
            for start, end in silences(settings.lake)
            if start is None or start < hour_of_cutoff
        },
    }


def test_nothing_that_lands_later_changes_what_was_known(mine: RunSettings, monkeypatch) -> None:
    """Twelve days with a hole, cut on the last at three; then days at three times the load, at every hour.

    test_no_leak.py holds the same of the method that weighs all others.
    """
    methods = ("seasonal_mean", "last_value")
    monkeypatch.setattr("fleetcast.assets.forecasts.backtests.BACKTESTED_METHODS", methods)
    forecast = dataclasses.replace(mine.config.forecast, method=methods[0], methods=methods)
    mine = dataclasses.replace(mine, config=dataclasses.replace(mine.config, forecast=forecast))
    hours = arrivals(at_work, FRIDAY + 1) / HOUR_S
    is_kept = ((hours < 81.5) | (hours > 86)) & (hours < 24 * FRIDAY + 15)
    land(mine, hours[is_kept] * HOUR_S)
    there = known_of(mine, MONDAY + timedelta(days=FRIDAY + 1))
    assert "from 2024-05-17 15:00 to 2024-05-18 00:00" in there["not known"]
    later = arrivals(lambda hour: 3.0 * at_work(12), 5, seed=2) + 86_400 * (FRIDAY + 1) + 6 * HOUR_S
    land(mine, later, "two")
    after = known_of(mine, MONDAY + timedelta(days=FRIDAY + 1))
    for name, known in there.items():
        assert known == after[name], name


def test_truncated_edges_are_unknown_and_reported(mine: RunSettings) -> None:
    """The day after is forecast as if the rest of the last day were not there, not as if it were nothing."""
    hours, day = arrivals(by_day, 16) / HOUR_S, MONDAY + timedelta(days=15)
    land(mine, hours[hours < 14 * 24 + 15] * HOUR_S)
    assert silences(mine.lake) == [(None, 0.0), (14 * 24 + 15.0, None)]
    assert unknown_history_sentence(mine, day) == (
        "9.0 of the 336 hours before 2024-05-21 are not known, the last ones from 2024-05-20 15:00 to "
        "2024-05-21 00:00: no data was collected."
    )
    assert unknown_day_sentence(mine, day - timedelta(days=1)) == (
        "9.0 of the 24 hours of 2024-05-20 are not known, the last ones from 2024-05-20 15:00 to 2024-05-21 "
        "00:00: no data was collected. They count as hours without requests: the scores are not of a whole "
        "day."
    )
    assert unknown_day_sentence(mine, day - timedelta(days=2)) == ""
    rows = forecast_day_ahead(mine, day, Progress()).to_pandas()
    foreseen = rows.loc[rows["region"] == "east", "forecast_per_s"].to_numpy().reshape(24, -1)
    came = 1000.0 * np.array([by_day(hour) for hour in range(24)]) / HOUR_S
    assert foreseen.sum() / foreseen.shape[1] == pytest.approx(came.sum(), rel=0.1)
    held = hourly(mine, 15)[-24:]
    assert np.isnan(held).nonzero()[0].tolist() == [*range(15, 24)]


def test_a_first_minute_without_data_is_no_unknown_hour(mine: RunSettings) -> None:
    """Metrics begin a minute after midnight: a line on that would hide the lines that matter."""
    hours = arrivals(lambda hour: 600.0, 4) / HOUR_S
    land(mine, hours[hours > 1 / 60] * HOUR_S)
    start, first = silences(mine.lake)[0]
    assert start is None
    assert 0 < first < 0.05
    assert unknown_history_sentence(mine, MONDAY + timedelta(days=4)) == ""
    assert unknown_day_sentence(mine, MONDAY) == ""


def test_a_last_day_that_ends_at_a_quiet_hour_is_unknown_from_there(mine: RunSettings) -> None:
    """As that of a log of whole local days: no request is missed for hours, and the day is not nothing."""
    hours = arrivals(lambda hour: 600.0 if 9 <= hour % 24 < 21 else 3.0, 16) / HOUR_S
    land(mine, hours[hours < 14 * 24 + 4] * HOUR_S)
    _, (start, end) = silences(mine.lake)
    assert 14 * 24 + 2 < start <= 14 * 24 + 4 + 1 / 6
    assert end is None
    rows = forecast_day_ahead(mine, MONDAY + timedelta(days=15), Progress()).to_pandas()
    foreseen = rows.loc[rows["region"] == "east", "forecast_per_s"].to_numpy().reshape(24, -1).mean(axis=1)
    assert foreseen[9:21].mean() == pytest.approx(600 * 1000 / HOUR_S, rel=0.1)


def test_a_day_after_the_last_may_be_planned_where_the_days_between_are_always_empty(
    mine: RunSettings,
) -> None:
    land(mine, arrivals(at_work, FRIDAY + 1))
    lands = {n: MONDAY + timedelta(days=n) for n in range(FRIDAY, FRIDAY + 4)}
    empty_or_there = (FRIDAY - 6, FRIDAY - 5, FRIDAY, FRIDAY + 1, FRIDAY + 2)
    for number in empty_or_there:
        require_day_demand(mine, MONDAY + timedelta(days=number))
    saturday, sunday = (forecast_day_ahead(mine, lands[FRIDAY + n], Progress()).to_pandas() for n in (1, 2))
    weekday = forecast_day_ahead(mine, lands[FRIDAY], Progress()).to_pandas()
    assert max(saturday["forecast_per_s"].sum(), sunday["forecast_per_s"].sum()) < 0.01 * (
        weekday["forecast_per_s"].sum()
    )
    with pytest.raises(LakeError, match="no demand on 2024-05-20"):
        require_day_demand(mine, lands[FRIDAY + 3])
    unlanded = dataclasses.replace(mine, lake=Lake(mine.lake.root.parent / "other"))
    with pytest.raises(LakeError, match="no demand on 2024-05-18"):
        require_day_demand(unlanded, lands[FRIDAY + 1])


def at_night(hour: int) -> float:
    """Every day from midnight to five."""
    return 300.0 if hour % 24 < 5 else 0.0


# Seconds since MONDAY; what is foreseen for 03:00 and 15:00 of the day after, in the mean rate; the unknown.
SMALL = {
    "an hour": (18 * HOUR_S + np.linspace(0, HOUR_S, 4000), (1.0, 1.0), "22.8 of the 24 hours"),
    "one burst": (14 * HOUR_S + np.linspace(0, 200, 500), (0.0, 0.0), "14.0 of the 24 hours"),
    "one request": (np.array([11 * HOUR_S]), (0.0, 0.0), "11.0 of the 24 hours"),
    "a client of the night": (arrivals(at_night, 8), (1.0, 0.0), "19.0 of the 192 hours"),
}


@pytest.mark.parametrize(("seconds", "wanted", "unknown"), SMALL.values(), ids=SMALL)
def test_small_traces_report_known_and_unknown_figures(mine: RunSettings, seconds, wanted, unknown) -> None:
    """An hour shows its rate, and that the rest is not known; a burst that is over, nothing of tomorrow."""
    land(mine, seconds)
    day = MONDAY + timedelta(days=int(seconds[-1] // 86_400) + 1)
    rows = forecast_day_ahead(mine, day, Progress()).to_pandas()
    foreseen = rows.loc[rows["region"] == "east", "forecast_per_s"].to_numpy()
    rates = hourly(mine, (day - MONDAY).days)
    level = np.nanmean(rates[rates > 0])
    assert foreseen[[3, 15]] / level == pytest.approx(wanted, abs=0.15)
    assert unknown_history_sentence(mine, day).startswith(unknown)
    assert all(input_tokens.size for input_tokens, *_ in token_mixes(mine, day).values())


def test_landed_day_without_demand_is_unknown(mine: RunSettings) -> None:
    land(mine, arrivals(at_night, 3))
    mine.lake.path("demand", trace="mine", day=MONDAY + timedelta(days=1)).unlink()
    assert np.isnan(hourly(mine, 3)[24:]).nonzero()[0].tolist() == [*range(24)]


def test_the_load_to_keep_free_for_is_the_latest_that_is_known() -> None:
    hours = np.tile([[1.0], [2.0], [np.nan]], (1, 24))
    hours[2, :15], hours[:, 20] = 3.0, np.nan
    assert (
        latest_value_by_hour(hours.reshape(1, 72))[0].tolist() == [3.0] * 15 + [2.0] * 5 + [0.0] + [2.0] * 3
    )
