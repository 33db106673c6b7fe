"""How far the shares that landing imputes are off, for request ids of any pattern."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.world.catalogue import Catalogue

WANTED = {
    "region": {"east": 0.45, "central": 0.33, "west": 0.22},
    "llm": {"llama3.1-405b-fp8": 0.25, "llama3.1-70b": 0.35, "llama3.1-8b": 0.22, "gpt-oss-20b": 0.18},
    "tier": {"iw_fast": 0.42, "iw_normal": 0.30, "niw": 0.28},
    "app": {"alpha": 0.6, "beta": 0.3, "gamma": 0.1},
}
FIRST_US = 1_751_328_000_000_000  # 2025-07-01, in microseconds since 1970
PATTERNS = {  # first id and step
    "counted": (0, 1),
    "multiples of 2^16": (0, 1 << 16),
    "multiples of 2^40": (0, 1 << 40),
    "instants": (FIRST_US, 1_000_000),
    "of made days": (739_000 << 32, 1),
}


def land_ids(folder: Path, ids: NDArray[np.uint64], catalogue: Catalogue) -> Lake:
    """Land canonical requests with only these ids, a millisecond apart, and return their lake."""
    start = datetime(2025, 7, 1, tzinfo=UTC)
    table = pa.table(
        {
            "request_id": ids,
            "arrived_at": pa.array([start + timedelta(milliseconds=n) for n in range(ids.size)]),
            "input_tokens": np.full(ids.size, 9),
            "output_tokens": np.full(ids.size, 5),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "c.parquet")
    shares = ", ".join(f"{name} = {share}" for name, share in WANTED["app"].items())
    (folder / "c.toml").write_text(f"app = {{ {shares} }}\n")
    lake = Lake(folder / "lake")
    ingest_file(folder / "c.parquet", lake, catalogue)
    return lake


def errors(lake: Lake) -> dict[tuple[str, str], float]:
    """Return share minus wanted share of each name of each key."""
    found = {}
    for key, wanted in WANTED.items():
        rows = lake.sql(
            f"select {key} as name, count(*) / sum(count(*)) over () as share from requests group by 1"
        )
        there = dict(zip(rows["name"].to_pylist(), rows["share"].to_pylist(), strict=True))
        found |= {(key, name): there.get(name, 0.0) - share for name, share in wanted.items()}
    return found
