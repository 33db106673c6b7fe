"""Scale-out by units: what it costs to cut a night, and a day of a hundred million requests here."""

import os
import shutil
import tempfile
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import Figures, Target, cpu_seconds, peak_gb

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.process_resources import MEMORY_VARIABLE
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.plans.plans import plan_day
from fleetcast.assets.replays import nightly_replays
from fleetcast.assets.replays.replay_units import UNITS_VARIABLE
from fleetcast.assets.replays.scorecards import read_scoreboard, score_day
from fleetcast.assets.traces.request_days import canonical_requests, make_request_day, write_tiers
from fleetcast.models.traffic.synthetic_days import office_day
from fleetcast.models.traffic.trace_columns import TraceNames

SOURCES, OF_SOURCE = 50, 2_000_000  # a day of a hundred million requests, landed as so many files
HISTORY = 2
SIMPLE = {
    "methods": ("seasonal_naive", "last_value"),
    "method": "seasonal_naive",
    "paper_method": "last_value",
    "history_days": HISTORY,
}
FEW = ("reactive", "lt_ua", "corrected", "day_ahead")
TARGETS = {
    "scaleout_unit_overhead_share": Target(
        "", "a day of office under four policies: CPU of a unit each over threads, less one", at_most=0.05
    ),
    "scaleout_100m_peak_gb": Target(
        "GB",
        "100 M requests in a day: landed, forecast, planned, replayed by llm, scored, on a board",
        at_most=8.0,
    ),
    "scaleout_100m_replay_seconds": Target("s", "the same day: replays and outcomes of one policy; wall"),
    "scaleout_100m_score_seconds": Target("s", "the same day: its scorecard; wall"),
    "scaleout_100m_attainment_share": Target("", "the same day: iw_fast in time under corrected"),
}


def units() -> Figures:
    """The same day cut by policy and not, in one process."""
    with tempfile.TemporaryDirectory() as folder:
        settings = small_day(Path(folder))
        day = settings.config.trace.replay_day
        plan_day(settings, day, Progress())
        spent = {}
        for cut in ("all", "policy", "all", "policy"):  # the first of each warms up
            os.environ[UNITS_VARIABLE] = cut
            shutil.rmtree(settings.lake.root / "outcomes", ignore_errors=True)
            spent[cut] = cpu_seconds(lambda: night(settings, day))
        return {"scaleout_unit_overhead_share": spent["policy"] / spent["all"] - 1}


def large_day() -> Figures:
    """A hundred million requests, by units of one llm, within eight gigabytes."""
    os.environ.update({UNITS_VARIABLE: "llm", MEMORY_VARIABLE: "8"})
    with tempfile.TemporaryDirectory() as folder:
        settings = large(load_settings("sageserve_large", Path(folder) / "lake"), ("corrected",))
        day = settings.config.trace.replay_day
        land_sources(settings, day)
        build_demand(settings.lake, settings.trace, day)
        remember(settings, day)
        forecast_day(settings, day, Progress())
        plan_day(settings, day, Progress())
        begun = time.perf_counter()
        night(settings, day)
        replayed = time.perf_counter()
        score_day(settings, day)
        scored = time.perf_counter()
        read_scoreboard(settings, day)
        met = settings.lake.sql(
            "select sum(met) / sum(requests) as share from scorecard where tier = 'iw_fast'"
        )
        return {
            "scaleout_100m_peak_gb": peak_gb(),
            "scaleout_100m_replay_seconds": replayed - begun,
            "scaleout_100m_score_seconds": scored - replayed,
            "scaleout_100m_attainment_share": met["share"][0].as_py(),
        }


def night(settings: RunSettings, day: date) -> None:
    """All units of a day, one after the other."""
    for unit in nightly_replays.begin_units(settings, day):
        nightly_replays.replay_missing_policies(settings, day, unit, Progress())
    nightly_replays.end_units(settings, day)


def small_day(folder: Path) -> RunSettings:
    """The last day of office under few policies, forecast from two days."""
    settings = load_settings("sageserve", folder / "lake")
    config = settings.config
    config = replace(
        config,
        forecast=replace(config.forecast, **SIMPLE),
        replay=replace(config.replay, policies=FEW),
    )  # fmt: skip
    settings = replace(settings, config=config)
    day = config.trace.replay_day
    for one in (*settings.history(day), day):
        make_request_day(settings.lake, config.trace, settings.catalogue, one)
        build_demand(settings.lake, settings.trace, one)
    forecast_day(settings, day, Progress())
    return settings


def large(settings: RunSettings, policies: tuple[str, ...]) -> RunSettings:
    """Ten times sageserve_large, on regions whose caps do not bind."""
    config, catalogue = settings.config, settings.catalogue
    regions = {
        name: replace(region, cap_gpus=dict.fromkeys(region.cap_gpus, 100_000))
        for name, region in catalogue.regions.items()
    }
    config = replace(
        config,
        fleet=replace(config.fleet, max_instances=1500, instances_at_start=800),
        forecast=replace(config.forecast, **SIMPLE),
        replay=replace(config.replay, policies=policies),
    )  # fmt: skip
    return replace(settings, config=config, catalogue=replace(catalogue, regions=regions))


def land_sources(settings: RunSettings, day: date) -> None:
    """The day as fifty services send it, a file each; ids are unique."""
    catalogue, office = settings.catalogue, settings.config.trace.office
    assert office is not None
    office_config = replace(office, requests_per_day=float(OF_SOURCE))
    for source in range(SOURCES):
        columns = office_day(office_config, day, source, TraceNames.of(catalogue))
        table = canonical_requests(columns, day, f"service {source}", catalogue, list(office.apps))
        own = pa.array(np.uint64(source << 24) + table["request_id"].to_numpy())
        table = table.set_column(0, "request_id", own)
        settings.lake.write("requests", table, file=f"service_{source:02}", trace=settings.trace, day=day)
    write_tiers(settings.lake, settings.trace, catalogue)


def remember(settings: RunSettings, day: date) -> None:
    """A past that was as the day is; of the day before one service's requests, for the mix of lengths."""
    lake, trace = settings.lake, settings.trace
    first = lake.path("requests", file="service_00", trace=trace, day=day)
    for back in range(1, HISTORY + 1):
        past = day - timedelta(days=back)
        shifted = lake.sql(
            "select * exclude (trace, day) replace (bucket_start - to_days($back) as bucket_start) "
            "from demand where trace = $trace and day = $day::date order by all",
            back=back, trace=trace, day=day,
        )  # fmt: skip
        lake.write("demand", shifted, trace=trace, day=past)
        there = lake.path("requests", trace=trace, day=past)
        there.parent.mkdir(parents=True)
        shutil.copy(first, there)


FUNCTIONS = (units, large_day)
