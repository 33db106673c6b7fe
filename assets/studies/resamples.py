"""Another draw of a day's requests in a lake that is thrown away, with the demand that they make."""

from datetime import date

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.lake.schemas import TIMESTAMP
from fleetcast.assets.lake.settings import RunSettings, midnight
from fleetcast.models.traffic.day_resample import resample_arrivals


def write_resampled_day(settings: RunSettings, day: date, draw: int) -> None:
    """Put the given draw of the day's requests (models/traffic/day_resample.py) in their place."""
    lake, trace = settings.lake, settings.trace
    there = lake.files("requests", trace=trace, day=day)
    table = lake.read("requests", trace=trace, day=day).drop_columns(["trace", "day"]).sort_by("arrived_at")
    begins_us = np.datetime64(midnight(day).replace(tzinfo=None), "us").astype(np.int64)
    arrived_us = table["arrived_at"].cast(pa.int64()).to_numpy() - begins_us
    rng = np.random.default_rng([settings.config.trace.seed, day.toordinal(), draw])
    rows, at_us = resample_arrivals(arrived_us, rng)
    table = table.take(pa.array(rows))
    anew = {
        "arrived_at": pa.array(begins_us + at_us).cast(TIMESTAMP),
        "request_id": pa.array(np.arange(rows.size, dtype=np.uint64)),
    }
    for name, column in anew.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    for file in there:
        file.unlink()
    lake.write("requests", table, trace=trace, day=day)
    build_demand(lake, trace, day)
