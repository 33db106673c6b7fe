"""No table knows what came later: a lake without the requests after a cutoff has the same rows before it.

So have the plan of a day and its promise, made where that day has come and where half of it has.
"""

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fleetcast.assets.advice.nightly_promise import promise_next_day
from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.forecasts.forecasts import forecast_day_ahead, forecast_measure
from fleetcast.assets.forecasts.rolling_forecast import forecast_hours_from
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings, midnight
from fleetcast.assets.plans.day_ahead import plan_ahead
from fleetcast.assets.traces.data_quality import assess_trace
from fleetcast.assets.traces.ingest import ingest_file

MONDAY = date(2024, 5, 6)
LAST = MONDAY + timedelta(days=8)
CUT = midnight(LAST) + timedelta(hours=14)
CONFIG = """based_on = "sageserve"
[trace]
name = "mine"
first_day = 2024-05-06
days = 9
seed = 1
[fleet.deployments]
"llama2-70b" = { gpu = "h100-80gb", tensor_parallel = 4 }
[forecast]
method = "weighted"
paper_method = "last_value"
methods = ["weighted", "last_value"]
bucket_minutes = 60
"""
BEFORE = {
    "requests": "select * from requests where arrived_at < $cut order by request_id",
    "silences": "select * from silences where silence_end <= $cut order by all",
    "tier_verdicts": "select * from tier_verdicts order by all",
    "demand": "select * from demand where bucket_start < $cut order by all",
    "day_ahead_forecasts": "select * exclude (actual_per_s) from day_ahead_forecasts order by all",
}


def arrivals() -> np.ndarray:
    """Seconds since MONDAY: a day's season, a gap of nine hours, and three times the load after CUT."""
    rng = np.random.default_rng(7)
    per_hour = 90 - 60 * np.cos(2 * np.pi * np.arange(24 * 9) / 24)
    per_hour[24 * 6 + 8 : 24 * 6 + 17] = 0
    per_hour[24 * 8 + 14 :] *= 3
    hours = (3600 * (hour + rng.uniform(0, 1, rng.poisson(rate))) for hour, rate in enumerate(per_hour))
    return np.sort(np.concatenate(list(hours)))


def build(folder: Path, seconds: np.ndarray) -> RunSettings:
    """Land requests without tiers and regions, which are then distributed, and forecast the last day."""
    folder.mkdir()
    (folder / "mine.toml").write_text(CONFIG)
    settings = load_settings(str(folder / "mine.toml"), folder / "lake")
    us = (1e6 * seconds).astype(np.int64) + int(midnight(MONDAY).timestamp()) * 1_000_000
    tokens = 500 + us % 997
    rows = {"request_id": us.astype(np.uint64), "arrived_at": pa.array(us).cast(pa.timestamp("us", "UTC")),
            "input_tokens": tokens, "output_tokens": tokens // 9}  # fmt: skip
    pq.write_table(pa.table(rows), folder / "one.parquet")
    (folder / "one.toml").write_text('trace = "mine"\nllm = "llama2-70b"\n')
    for day in ingest_file(folder / "one.parquet", settings.lake, settings.catalogue).days:
        build_demand(settings.lake, "mine", day)
    assess_trace(settings.lake, "mine")
    forecast_day_ahead(settings, LAST, Progress())
    return settings


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSettings, RunSettings]:
    """The lake of all requests, and the one without those after CUT."""
    seconds, folder = arrivals(), tmp_path_factory.mktemp("lakes")
    is_known = seconds < (CUT - midnight(MONDAY)).total_seconds()
    return build(folder / "whole", seconds), build(folder / "cut", seconds[is_known])


def test_a_lake_without_the_requests_after_a_cutoff_has_the_same_rows_before_it(lakes) -> None:
    whole, cut = lakes
    for table, query in BEFORE.items():
        found, wanted = (
            each.lake.sql(query, **({"cut": CUT} if "$cut" in query else {})) for each in (cut, whole)
        )
        assert wanted.num_rows > 0, table
        assert found.equals(wanted), table
    tiers = cut.lake.sql("select distinct tier from requests").num_rows
    assert tiers == len(cut.catalogue.tiers)  # the shares are those of the catalogue, not of the trace
    by_tier = [
        forecast_measure(each, LAST, "input_tokens", ("iw_fast",), ("weighted",), Progress())
        .filter(pc.field("cutoff") <= CUT)
        .drop_columns(["actual_per_s"])
        for each in (cut, whole)
    ]
    assert by_tier[0].equals(by_tier[1])
    hours = [forecast_hours_from(each, CUT, 5, Progress()) for each in (cut, whole)]
    for found, wanted in zip(*hours, strict=True):
        assert np.array_equal(found, wanted, equal_nan=True)
    assert hours[0].mean.sum() > 0


def test_a_promise_knows_nothing_of_its_day(lakes) -> None:
    """After CUT three times the load comes; in the plan and in its promise there is none of it."""
    promised = [
        (plan_ahead(settings, LAST, Progress()), promise_next_day(settings, LAST, Progress()))
        for settings in lakes
    ]
    for found, wanted in zip(*promised, strict=True):
        assert wanted.num_rows > 0
        assert found.equals(wanted)
