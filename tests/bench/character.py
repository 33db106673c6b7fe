"""Characterisation: a week of 10 million requests from its file to its statistics, and a trace like it."""

import tempfile
from pathlib import Path

from measure import Figures, Target, cpu_seconds, peak_gb, wall_seconds
from traces import REQUESTS, write_week
from workloads import setting

from fleetcast.assets.demand.characterise import characterise_trace
from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.demand.generate_trace import fit_clients
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.traffic.clients import client_day
from fleetcast.models.traffic.trace_changes import TraceChanges
from fleetcast.models.traffic.trace_columns import TraceNames
from fleetcast.models.world.catalogue import Catalogue

CHECKS = ("requests_are_valid", "request_ids_are_unique", "rows_are_conserved", "demand_conserves_tokens")
MARTS = ("concentration", "growth", "load_by_hour", "load_by_weekday", "minute_percentiles", "streams",
         "token_cdf", "top_apps")  # fmt: skip
TARGETS = {
    "prepare_10m_seconds": Target(
        "s", "10 million requests: ingest, demand and checks, 2 threads; wall", at_most=90.0
    ),
    "prepare_10m_peak_gb": Target("GB", "the same, with writing the file", at_most=4.0),
    "characterise_10m_seconds": Target(
        "s", "that week from its demand to its statistics, 2 threads; wall", at_most=30.0
    ),
    "mart_query_seconds": Target("s", "the slowest mart over that week, every row of it; wall", at_most=1.0),
    "generate_like_requests_per_s": Target(
        "requests/s", "a week fitted to that one, drawn again; CPU, fit and writing apart", at_least=1e6
    ),
}


def character_10m() -> Figures:
    """Bring a week of 10 million requests into the lake, check it, characterise it and make one like it."""
    catalogue, _ = setting()
    with tempfile.TemporaryDirectory() as folder:
        path, lake, trace = Path(folder) / "week.parquet", Lake(Path(folder) / "lake"), "canonical"
        write_week(path)
        prepared = wall_seconds(lambda: prepare(path, lake, catalogue, trace))
        memory = peak_gb()
        rows = lake.sql("select sum(rows_kept)::bigint as rows from ingests")["rows"][0].as_py()
        characterised = wall_seconds(lambda: characterise_trace(lake, trace, Progress()))
        queries = [f"select * from {mart}" for mart in MARTS]
        slowest = max(wall_seconds(lambda text=query: lake.sql(text), repeats=2) for query in queries)
        return {
            "prepare_10m_seconds": prepared * REQUESTS / rows,
            "prepare_10m_peak_gb": memory,
            "characterise_10m_seconds": characterised * REQUESTS / rows,
            "mart_query_seconds": slowest,
            "generate_like_requests_per_s": draw_like(lake, catalogue, trace),
        }


def prepare(path: Path, lake: Lake, catalogue: Catalogue, trace: str) -> None:
    """Land the file, build the demand of its days, and run the checks of both."""
    ingest_file(path, lake, catalogue)
    for day in lake.days("requests", trace):
        build_demand(lake, trace, day)
    for check in CHECKS:
        if lake.sql(f"checks/{check}.sql", trace=trace).num_rows:
            raise RuntimeError(f"The generated week breaks the check {check}.")


def draw_like(lake: Lake, catalogue: Catalogue, trace: str) -> float:
    """Requests drawn per CPU second, of a week like the trace."""
    names = TraceNames.of(catalogue)
    traffic, _ = fit_clients(lake, trace, names, Progress())
    days = lake.days("requests", trace)
    made: list[int] = []
    spent = cpu_seconds(
        lambda: made.extend(
            client_day(traffic, TraceChanges(), day, days[0], 7, names).arrived_us.size for day in days
        )
    )
    return sum(made) / spent


FUNCTIONS = (character_10m,)
SMOKE = {"character_10m": {"REQUESTS": 4000, "traces.REQUESTS": 4000}}
