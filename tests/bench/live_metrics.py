"""Metrics instead of logs: two weeks of 12 endpoints from a server to a plan, compared with the logs.

The requests are those of the office trace, served by three processes per endpoint, which count as vLLM does.
All are of one tier: metrics do not tell tiers unless a label does. A server in another process answers as
Prometheus' API does; tests/test_metrics_server.py needs a real one.
"""

import json
import multiprocessing
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from engine_counters import Served, answer, counters, results
from measure import Figures, Target, peak_gb, wall_seconds

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.settings import build_settings as made_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.day_ahead import plan_ahead
from fleetcast.assets.plans.plans import plan_day
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.traces.data_quality import assess_trace
from fleetcast.assets.traces.metrics_ingest import land_metrics
from fleetcast.assets.traces.prometheus_download import fetch_metrics_folder
from fleetcast.assets.traces.request_days import canonical_requests, write_tiers
from fleetcast.models.traffic.synthetic_days import office_day
from fleetcast.models.traffic.trace_columns import DayColumns, TraceNames
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config_loading import load_config

TIER, TRACE, PROCESSES, HISTORY = "iw_fast", "mine", 3, 14
REQUESTS_PER_DAY = 1_000_000.0  # of a weekday, half of the office trace's
STEP_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400
POLICY = "day_ahead"
SEEDS = (7, 8, 9)  # of the requests
CONFIG = """
based_on = "sageserve"
[trace]
name = "mine"
first_day = FIRST
days = 15
seed = 7
[fleet]
instances_at_start = 10
min_instances = 1
[forecast]
methods = ["seasonal_level", "weighted"]
paper_method = "seasonal_level"
[replay]
policies = ["day_ahead"]
"""
WORKLOAD = "12 M requests in two weeks of 12 endpoints, 3 processes each, a reading a minute"
TARGETS = {
    "live_metrics_to_plan_seconds": Target(
        "s", f"{WORKLOAD}: from the server to the plan of the day after; wall", at_most=120.0
    ),
    "live_metrics_to_plan_cpu_seconds": Target("s", "the same: CPU of the process, both cores"),
    "live_metrics_fetch_seconds": Target("s", "of these, until the answers lie in data/landing"),
    "live_metrics_land_seconds": Target("s", "of these, until requests and quality lie in the lake"),
    "live_metrics_requests_millions": Target("M", "requests that the engines counted in the two weeks"),
    "live_metrics_peak_gb": Target("GB", "the most memory of all this, the plan included"),
    "live_metrics_demand_error": Target(
        "", "input tokens per endpoint and quarter of an hour against the logs': WAPE", at_most=0.02
    ),
    "live_metrics_demand_error_minute": Target("", "the same by the minute"),
    "live_metrics_requests_error": Target("", "requests per endpoint and quarter of an hour: WAPE"),
    "live_metrics_output_error": Target("", "output tokens per endpoint and quarter of an hour: WAPE"),
    **{
        f"live_metrics_plan_gap{of}": Target(
            "", "GPU-hours of the day after, replayed: plan from metrics against plan from logs", at_most=0.02
        )
        for of in ("", *(f"_seed_{seed}" for seed in SEEDS[1:]))
    },
}


def from_metrics() -> Figures:
    """Two weeks of metrics of 12 endpoints from a server to a plan; demand, GPU-hours against the logs'."""
    return of_seed(SEEDS[0])


def other_seeds() -> Figures:
    """The same of other two weeks: how far the plans are apart."""
    gaps = [of_seed(seed)["live_metrics_plan_gap"] for seed in SEEDS[1:]]
    return {f"live_metrics_plan_gap_seed_{seed}": gap for seed, gap in zip(SEEDS[1:], gaps, strict=True)}


def of_seed(seed: int) -> Figures:
    """All figures of two weeks that are drawn so."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        logs, metered = (settings_of(root / name) for name in ("logs", "metrics"))
        with answering(logs, seed) as url:
            figures = timed(url, metered)
        for day in metered.lake.days("requests", TRACE):
            build_demand(metered.lake, TRACE, day)
        figures |= errors(logs, metered)
        used = [gpu_hours(settings, logs) for settings in (logs, metered)]
    print(f"GPU-hours from logs {used[0]:,.0f}, from metrics {used[1]:,.0f}")
    return {**figures, "live_metrics_plan_gap": abs(used[1] / used[0] - 1)}


def settings_of(root: Path) -> RunSettings:
    """A lake with nothing in it, and the config of both."""
    root.mkdir()
    path = root / "mine.toml"
    path.write_text(CONFIG.replace("FIRST", str(first_day())))
    catalogue = load_catalogue()
    config = load_config(str(path), catalogue)
    config = replace(config, trace=replace(config.trace, office=None))
    lake = Lake(root / "lake")
    settings = made_settings(lake, catalogue, config)
    write_tiers(lake, TRACE, settings.catalogue)
    return settings


def first_day() -> date:
    """The first of the two weeks."""
    return date(2025, 7, 1)


def office(seed: int) -> Iterator[tuple[date, DayColumns]]:
    """The days of the office trace, all of one tier."""
    catalogue = load_catalogue()
    trace = load_config("sageserve", catalogue).trace
    assert trace.office is not None
    parameters = replace(trace.office, requests_per_day=REQUESTS_PER_DAY)
    for day in (first_day() + timedelta(days=n) for n in range(HISTORY + 1)):
        columns = office_day(parameters, day, seed, TraceNames.of(catalogue))
        tier = np.full_like(columns.tier, list(catalogue.tiers).index(TIER))
        yield day, columns._replace(tier=tier)


@contextmanager
def answering(logs: RunSettings, seed: int) -> Iterator[str]:
    """The logs in their lake, and the address of a server that answers for the engines that served them."""
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(logs, theirs, seed), daemon=True)
    process.start()
    try:
        yield mine.recv()
    finally:
        process.terminate()
        process.join(10)


def serve(logs: RunSettings, ready: Connection, seed: int) -> None:
    """Write the logs, count them as the engines do, and answer until the process ends."""
    parts: dict[tuple[int, int], list[np.ndarray]] = {}
    for day, columns in office(seed):
        apps = ["app"] * (int(columns.app.max()) + 1)
        rows = canonical_requests(columns, day, "office", logs.catalogue, apps)
        logs.lake.write("requests", rows, trace=TRACE, day=day)
        build_demand(logs.lake, TRACE, day)
        at = (day - date(1970, 1, 1)).days * DAY_S + columns.arrived_us / 1e6
        values = np.stack([at, columns.input_tokens, columns.output_tokens])
        for llm in np.unique(columns.llm):
            for region in np.unique(columns.region):
                own = (columns.llm == llm) & (columns.region == region)
                parts.setdefault((int(llm), int(region)), []).append(values[:, own])
    table = {key: np.concatenate(found, axis=1) for key, found in parts.items()}
    counted = curves(table, logs.catalogue)
    table.clear()
    kept = {key: json.dumps(reply(counted, *key)).encode() for key in stretches(counted)}

    names = json.dumps({"status": "success", "data": list(counted)}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            key = (parameters.get("query"), float(parameters["start"]), float(parameters["end"]))
            body = kept.get(key, names)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    ready.send(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()


Counted = dict[str, list[tuple[dict[str, str], str | None, np.ndarray, np.ndarray]]]


def curves(table: dict[tuple[int, int], np.ndarray], catalogue: Catalogue) -> Counted:
    """By metric: labels, le, instants and values of each counter."""
    rng = np.random.default_rng(11)
    start = (first_day() - date(1970, 1, 1)).days * DAY_S
    t = start + np.arange(0, HISTORY * DAY_S + 1, STEP_S)
    found: Counted = {}
    for (llm, region), (at, inputs, outputs) in table.items():
        process = rng.integers(0, PROCESSES, at.size)
        ttft_s = rng.gamma(2.0, 0.05 + inputs / 40_000)
        e2e_s = ttft_s + outputs * rng.uniform(0.02, 0.04, at.size)
        for number in range(PROCESSES):
            own = process == number
            served = Served(*(column[own] for column in (at, inputs, outputs, ttft_s, e2e_s)))
            labels = {"model_name": list(catalogue.llms)[llm], "region": list(catalogue.regions)[region]}
            labels |= {"instance": f"10.{llm}.{region}.{number}:8000", "job": "vllm"}
            for name, le, instants, value in counters(served, t, t[:: int(HOUR_S / STEP_S)]):
                found.setdefault(name, []).append((labels, le, instants, value))
    return found


def stretches(counted: Counted) -> Iterator[tuple[str, float, float]]:
    """The queries to come: each metric, day by day. A server has it at hand, in one form or another."""
    start = (first_day() - date(1970, 1, 1)).days * DAY_S
    for name in counted:
        for day in range(HISTORY):
            yield name, float(start + day * DAY_S), float(start + (day + 1) * DAY_S)


def reply(counted: Counted, name: str, first: float, last: float) -> dict[str, Any]:
    """What Prometheus would answer."""
    found = []
    for labels, le, t, value in counted[name]:
        span = slice(*np.searchsorted(t, [first, last + 1e-6]))
        found.append(results(labels, name, le, t[span], value[span]))
    return answer(found)


def timed(url: str, metered: RunSettings) -> Figures:
    """Fetch, land and plan, as the commands do."""
    landing = metered.lake.root.parent / "landing"
    landing.mkdir()
    (landing / f"{TRACE}.toml").write_text(f'tier = "{TIER}"\napp = "app"\n')
    after = first_day() + timedelta(days=HISTORY)
    until = datetime(after.year, after.month, after.day, tzinfo=UTC)
    rows: list[int] = []

    def landed() -> None:
        report = land_metrics(landing / f"{TRACE}.metrics", metered.lake, metered.catalogue)
        assess_trace(metered.lake, TRACE)
        rows.append(report.rows_kept)

    before = time.process_time()
    fetched = wall_seconds(
        lambda: print(fetch_metrics_folder(url, TRACE, HISTORY, until, 60, "", landing, Progress()))
    )
    landing_s = wall_seconds(landed)
    planned = wall_seconds(lambda: plan_ahead(metered, after, Progress()))
    spent = time.process_time() - before
    print(f"fetch {fetched:.0f} s, land {landing_s:.0f} s, plan {planned:.0f} s")
    return {
        "live_metrics_to_plan_seconds": fetched + landing_s + planned,
        "live_metrics_to_plan_cpu_seconds": spent,
        "live_metrics_fetch_seconds": fetched,
        "live_metrics_land_seconds": landing_s,
        "live_metrics_requests_millions": rows[0] / 1e6,
        "live_metrics_peak_gb": peak_gb(),
    }


def errors(logs: RunSettings, metered: RunSettings) -> Figures:
    """How far the demand of the metrics is from that of the logs, weighted by what came."""
    found = {}
    for minutes in (15, 1):
        one, other = (series(settings.lake, minutes) for settings in (logs, metered))
        both = one.join(other, how="outer", lsuffix="", rsuffix="_metered").fillna(0.0)
        for column in one.columns:
            off = (both[f"{column}_metered"] - both[column]).abs().sum() / both[column].sum()
            found[column, minutes] = float(off)
    return {
        "live_metrics_demand_error": found["input_tokens", 15],
        "live_metrics_demand_error_minute": found["input_tokens", 1],
        "live_metrics_requests_error": found["requests", 15],
        "live_metrics_output_error": found["output_tokens", 15],
    }


def series(lake: Lake, minutes: int) -> pd.DataFrame:
    """Demand of the two weeks by endpoint and bucket."""
    last = first_day() + timedelta(days=HISTORY - 1)
    query = "select * from demand_series($minutes) where day between $first and $last"
    rows = lake.sql(query, minutes=minutes, first=first_day(), last=last).to_pandas()
    keys = ["llm", "region", "bucket_start"]
    return rows.groupby(keys)[["requests", "input_tokens", "output_tokens"]].sum().astype(float)


def gpu_hours(settings: RunSettings, logs: RunSettings) -> float:
    """What the policy spends on the true requests of the day after, planned from this lake's history."""
    day = first_day() + timedelta(days=HISTORY)
    rows = logs.lake.read("requests", trace=TRACE, day=day).drop_columns(["trace", "day"])
    settings.lake.write("requests", rows, trace=TRACE, day=day)
    build_demand(settings.lake, TRACE, day)
    forecast_day(settings, day, Progress())
    plan_day(settings, day, Progress())
    replay_day(settings, day, [POLICY], Progress())
    query = "select sum(paid_gpu_hours) as used from fleet_by_hour where trace = $trace and day = $day"
    return float(settings.lake.sql(query, trace=TRACE, day=day)["used"][0].as_py())


FUNCTIONS = (from_metrics, other_seeds)
