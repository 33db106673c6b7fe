"""A run on three landed days of one's own: nothing of it is made."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from fleetcast.assets.lake.settings import RunSettings, load_settings
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.world.catalogue import load_catalogue

FIRST, DAYS = datetime(2025, 7, 1, tzinfo=UTC), 3
CONFIG = """
based_on = "sageserve"
[trace]
name = "mine"
first_day = {first:%Y-%m-%d}
days = {days}
seed = 1
[fleet.deployments]
{deployments}
[forecast]
method = "{method}"
paper_method = "{method}"
methods = ["{method}"]
"""


def mine(folder: Path, deployments: str, method: str) -> RunSettings:
    """The run, of a trace that has not landed yet; `deployments` in TOML."""
    text = CONFIG.format(first=FIRST, days=DAYS, deployments=deployments, method=method)
    (folder / "mine_run.toml").write_text(text)
    return load_settings(str(folder / "mine_run.toml"), folder / "lake")


def land(settings: RunSettings, seconds: ArrayLike, trace: str = "mine", **columns: Any) -> None:
    """Land chats of the east that come at these seconds from FIRST on; columns, or one value for all rows."""
    came = [FIRST + timedelta(seconds=float(s)) for s in np.sort(seconds)]
    known = {"request_id": range(len(came)), "arrived_at": came, "region": "east", "app": "chat", **columns}
    table = pa.table(
        {
            name: [value] * len(came) if isinstance(value, str | int) else list(value)
            for name, value in known.items()
        }
    )
    folder = settings.lake.root.parent
    pq.write_table(table, folder / f"{trace}.parquet")
    (folder / f"{trace}.toml").write_text(f'trace = "{trace}"\n')
    ingest_file(folder / f"{trace}.parquet", settings.lake, load_catalogue())
