"""Traces: making them, and bringing them into the lake."""

import itertools
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import landed_shares
import numpy as np
import pyarrow.parquet as pq
from measure import Figures, Target, cpu_seconds, peak_gb, wall_seconds
from workloads import office_week, setting

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import IngestReport, ingest_file
from fleetcast.assets.traces.request_days import canonical_requests
from fleetcast.models.world.catalogue import load_catalogue

REQUESTS, IDS = 10_000_000, 200_000
LOG_ROWS, BLOCK_ROWS = 10_000_000, 100_000  # of each log; that are written at once
MOST_REFUSED = 1e-6  # share of the rows: some distributions of ServeGen have an output of 0 tokens
SERVEGEN_REQUESTS = 1_420_558_786  # of m-small at its own rates
SERVEGEN = Path(__file__).resolve().parents[3] / "shared" / "data" / "demand"
TARGETS = {
    "generate_requests_per_s": Target("requests/s", "10 million office requests; CPU", at_least=1e6),
    "ingest_10m_seconds": Target(
        "s", "a Parquet file of 10 million requests into the lake, 2 threads; wall", at_most=60.0
    ),
    "ingest_10m_peak_gb": Target("GB", "the same, with writing the file", at_most=4.0),
    **{
        f"ingest_{name}_rows_per_s": Target("rows/s", f"10 million rows, {what}; CPU")
        for name, what in (
            ("azure", "Azure's CSV"),
            ("mooncake", "JSON lines"),
            ("log", "a log by its names"),
        )
    },
    "ingest_servegen_rows_per_s": Target(
        "rows/s", "10 million requests of ServeGen's m-small; CPU", at_least=400_000
    ),
    "ingest_logs_peak_gb": Target("GB", "the same, with writing the files", at_most=1.0),
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


def logs() -> Figures:
    """Land one log of LOG_ROWS requests in each of several formats, and ServeGen's m-small."""
    catalogue = load_catalogue()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, path in (*write_logs(folder), *pack_servegen(folder)):
            reports: list[IngestReport] = []
            lake = Lake(folder / f"lake_{name}")
            spent = cpu_seconds(lambda: reports.append(ingest_file(path, lake, catalogue)))  # noqa: B023
            if reports[0].rows_quarantined > MOST_REFUSED * reports[0].rows_in:
                raise RuntimeError(f"{reports[0].rows_quarantined} rows of {path.name} were quarantined.")
            figures[f"ingest_{name}_rows_per_s"] = reports[0].rows_in / spent
    return {**figures, "ingest_logs_peak_gb": peak_gb()}


def write_logs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write the same requests as Azure's CSV, Mooncake's JSON lines, and a log with other names."""
    lines = {
        "azure": ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "{1},{2},{3}\n"),
        "mooncake": ("m.jsonl", "", '{{"timestamp": {0}, "input_length": {2}, "output_length": {3}}}\n'),
        "log": (
            "l.jsonl", "",
            '{{"id": "r", "start_time": "{1}Z", "model": "m", '
            '"usage": {{"prompt_tokens": {2}, "completion_tokens": {3}}}}}\n',
        ),
    }  # fmt: skip
    for name, (file, header, line) in lines.items():
        with (folder / file).open("w") as out:
            out.write(header)
            for block in log_blocks():
                out.writelines(line.format(*row) for row in block)
        yield name, folder / file


def log_blocks() -> Iterator[Iterator[tuple[Any, ...]]]:
    """Yield LOG_ROWS rows of a week in blocks, so that the peak of memory is that of the ingest.

    A row: milliseconds of the week, the instant as text, input tokens, output tokens.
    """
    rng = np.random.default_rng(7)
    ends = np.linspace(0, 7 * 86_400_000, -(-LOG_ROWS // BLOCK_ROWS) + 1).astype(int)
    for number, (first, end) in enumerate(itertools.pairwise(ends)):
        rows = min(BLOCK_ROWS, LOG_ROWS - number * BLOCK_ROWS)
        ms = np.sort(rng.integers(first, end, rows))
        instants = (np.datetime64("2025-07-01", "ms") + ms).astype(str)
        yield zip(ms, instants, *rng.integers(1, 4000, (2, rows)), strict=True)


def pack_servegen(folder: Path) -> Iterator[tuple[str, Path]]:
    """Pack ServeGen's m-small, scaled to some LOG_ROWS requests; nothing where the data is absent."""
    parts = [SERVEGEN / f"servegen_m-small.{part}" for part in ("traces.tar.gz", "datasets.tar.xz")]
    if not all(part.exists() for part in parts):
        return
    target = folder / "s.tar"
    with tarfile.open(target, "w") as packed:
        for part in parts:
            with tarfile.open(part) as archive:
                for member in archive:
                    packed.addfile(member, archive.extractfile(member) if member.isfile() else None)
    (folder / "s.toml").write_text(f"rate_scale = {LOG_ROWS / SERVEGEN_REQUESTS}\n")
    yield "servegen", target


def shares() -> Figures:
    """Land ids of several patterns; deal out what their files do not say."""
    catalogue, _ = setting()
    found = []
    for first, step in landed_shares.PATTERNS.values():
        ids = np.uint64(first) + np.uint64(step) * np.arange(IDS, dtype=np.uint64)
        with tempfile.TemporaryDirectory() as folder:
            found += landed_shares.errors(landed_shares.land_ids(Path(folder), ids, catalogue)).values()
    return {"landing_shares_max_error": max(map(abs, found))}


FUNCTIONS = (generate, ingest_10m, logs, shares)
SMOKE = {
    "generate": {"REQUESTS": 5000},
    "ingest_10m": {"REQUESTS": 5000},
    "logs": {"LOG_ROWS": 2000},
    "shares": {"IDS": 2000},
}
