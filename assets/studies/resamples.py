"""Replace a day's requests with a resample, in a scratch lake, and rebuild its demand."""

from datetime import date

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.lake.schemas import TIMESTAMP
from fleetcast.assets.lake.settings import RunSettings, midnight
from fleetcast.models.traffic.day_resample import resample_arrivals


def write_resampled_day(settings: RunSettings, day: date, draw: int) -> None:
    """Replace the day's requests with resample number `draw` (models/traffic/day_resample.py)."""
    lake, trace = settings.lake, settings.trace
    old_files = lake.files("requests", trace=trace, day=day)
    table = lake.read("requests", trace=trace, day=day).drop_columns(["trace", "day"]).sort_by("arrived_at")
    midnight_us = np.datetime64(midnight(day).replace(tzinfo=None), "us").astype(np.int64)
    arrived_us = table["arrived_at"].cast(pa.int64()).to_numpy() - midnight_us
    rng = np.random.default_rng([settings.config.trace.seed, day.toordinal(), draw])
    rows, at_us = resample_arrivals(arrived_us, rng)
    table = table.take(pa.array(rows))
    new_columns = {
        "arrived_at": pa.array(midnight_us + at_us).cast(TIMESTAMP),
        "request_id": pa.array(np.arange(rows.size, dtype=np.uint64)),
    }
    for name, column in new_columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    for file in old_files:
        lake.remove(file)
    lake.write("requests", table, trace=trace, day=day)
    build_demand(lake, trace, day)
