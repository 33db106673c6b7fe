"""Make the lake of an earlier release.

Run `git worktree add --detach TREE 7e9ca47e` for 0.1.0, then with PYTHONPATH=TREE/.package, DAGSTER_HOME=TREE
and NUMBA_DISABLE_JIT=1: `python tests/lakes/make.py FOLDER`, and
`tar -C FOLDER --exclude=configs --exclude=warehouse.duckdb -czf tests/lakes/0.1.0.tar.gz lake upgrade.toml`
(both have the path of FOLDER). The lake has a landed trace of four days, the
nightly run of the third, and one row of each table that other commands fill.
"""

import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fleetcast.assets.lake.schemas import PARTITIONS, SCHEMAS
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.telling import SettingsResource
from fleetcast.assets.plans import plans
from fleetcast.assets.traces.ingest import ingest
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.pipelines.night import run_night

FIRST, DAYS, NIGHT, REQUESTS = datetime(2025, 7, 1, tzinfo=UTC), 4, date(2025, 7, 3), 90
CONFIG = """based_on = "office"
[trace]
name = "upgrade"
first_day = 2025-07-01
days = 4
seed = 1
[fleet.deployments]
"llama3.1-8b" = { gpu = "h100-80gb", tensor_parallel = 1 }
[forecast]
method = "last_value"
paper_method = "last_value"
methods = ["last_value"]
[plan]
capacity = "throughput"
[replay]
policies = ["lt_ua", "reactive"]
"""


def land(folder: Path, lake: Lake) -> None:
    """Land requests of four days, as a Parquet file."""
    draw = np.random.default_rng(1)
    seconds = np.sort(draw.uniform(0, 86_400 * DAYS, REQUESTS * DAYS))
    count = seconds.size
    rows = {
        "request_id": range(count),
        "arrived_at": [FIRST + timedelta(seconds=float(s)) for s in seconds],
        "region": ["east"] * count,
        "app": ["chat"] * count,
        "tier": list(draw.choice(["iw_fast", "iw_normal", "niw"], count)),
        "llm": ["llama3.1-8b"] * count,
        "input_tokens": draw.integers(20, 900, count),
        "output_tokens": draw.integers(5, 60, count),
    }
    pq.write_table(pa.table(rows), folder / "upgrade.parquet")
    (folder / "upgrade.toml.map").write_text('trace = "upgrade"\n')
    (folder / "upgrade.toml.map").rename(folder / "upgrade.toml")
    ingest(folder / "upgrade.parquet", lake, load_catalogue())
    (folder / "upgrade.toml").write_text(CONFIG)


def row_of(table: str) -> pa.Table:
    """One row of a table: 1, "x", or nothing."""
    schema = SCHEMAS[table]
    values = [
        pa.array([1], field.type)
        if pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        else pa.array(["x"], field.type)
        if pa.types.is_string(field.type)
        else pa.nulls(1, field.type)
        for field in schema
    ]
    return pa.table(values, schema=schema)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    plans.sustained_tokens_per_s = lambda *_: [2000.0]  # no trial of it: interpreted, one takes minutes
    lake = Lake(folder / "lake")
    land(folder, lake)
    night = run_night(
        SettingsResource(config=str(folder / "upgrade.toml"), lake=str(lake.root)), NIGHT, Progress()
    )
    print(night.board.to_pandas().to_string(), night.broken)
    for table, keys in PARTITIONS.items():
        if table in SCHEMAS and not lake.files(table):
            known = {"trace": "other", "day": NIGHT, "made_day": NIGHT}
            lake.write(table, row_of(table), **{key: known.get(key, "x") for key in keys})
