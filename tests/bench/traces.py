"""Traces: making them, and bringing them into the lake."""

import tempfile
from datetime import timedelta
from pathlib import Path

import landed_shares
import numpy as np
import pyarrow.parquet as pq
from measure import Figures, Target, cpu_seconds, peak_gb, wall_seconds
from workloads import office_week, setting

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.assets.traces.request_days import canonical_requests

REQUESTS, IDS = 10_000_000, 200_000
TARGETS = {
    "generate_requests_per_s": Target("requests/s", "10 million office requests; CPU", at_least=1e6),
    "ingest_10m_seconds": Target(
        "s", "a Parquet file of 10 million requests into the lake, 2 threads; wall", at_most=60.0
    ),
    "ingest_10m_peak_gb": Target("GB", "the same, with writing the file", at_most=4.0),
    "landing_shares_max_error": Target(
        "",
        "share less wanted share of llm, tier, region, app; 200,000 ids of each pattern, worst",
        at_most=0.01,
    ),
}


def generate() -> Figures:
    """Draw a week of 10 million office requests."""
    made: list[int] = []
    spent = cpu_seconds(lambda: made.extend(day.arrived_us.size for day in office_week(REQUESTS)))
    return {"generate_requests_per_s": sum(made) / spent}


def ingest_10m() -> Figures:
    """Land one Parquet file of 10 million requests of a week."""
    catalogue, _ = setting()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "week.parquet"
        write_week(path)
        lake, reports = Lake(Path(folder) / "lake"), []
        spent = wall_seconds(lambda: reports.append(ingest_file(path, lake, catalogue)))
    if reports[0].rows_kept != reports[0].rows_in:
        raise RuntimeError(f"{reports[0].rows_quarantined} generated requests were quarantined.")
    return {"ingest_10m_seconds": spent * REQUESTS / reports[0].rows_in, "ingest_10m_peak_gb": peak_gb()}


def write_week(path: Path) -> None:
    """Write a generated week as one canonical file, day by day so that memory stays small."""
    catalogue, config = setting()
    office = config.trace.office
    with pq.ParquetWriter(path, SCHEMAS["requests"], compression="zstd") as writer:
        for n, columns in enumerate(office_week(REQUESTS)):
            day = config.trace.first_day + timedelta(days=n)
            apps = list(office.apps) if office is not None else []
            writer.write_table(canonical_requests(columns, day, "bench", catalogue, apps))


def shares() -> Figures:
    """Land ids of several patterns; deal out what their files do not say."""
    catalogue, _ = setting()
    found = []
    for first, step in landed_shares.PATTERNS.values():
        ids = np.uint64(first) + np.uint64(step) * np.arange(IDS, dtype=np.uint64)
        with tempfile.TemporaryDirectory() as folder:
            found += landed_shares.errors(landed_shares.land_ids(Path(folder), ids, catalogue)).values()
    return {"landing_shares_max_error": max(map(abs, found))}


FUNCTIONS = (generate, ingest_10m, shares)
SMOKE = {"generate": {"REQUESTS": 5000}, "ingest_10m": {"REQUESTS": 5000}, "shares": {"IDS": 2000}}
