"""Requests of a day: generated from the office parameters, tiled from a landed trace, or landed."""

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import date

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.lake_preconditions import column_codes, require_day, require_unlanded
from fleetcast.assets.lake.schemas import SCHEMAS, TIMESTAMP
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.traffic.synthetic_days import office_day, tile_day
from fleetcast.models.traffic.trace_columns import DayColumns, TraceNames
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import TraceConfig

ID_STEP = 1 << 32  # first request id of a made day: its number since 0001-01-01 times this


def make_request_day(lake: Lake, trace: TraceConfig, catalogue: Catalogue, day: date) -> int:
    """Write one day of the configured trace into the lake and return its number of requests.

    A trace with neither [trace.office] nor [trace.tiled] is not made: LakeError if its day has not landed.
    """
    names = TraceNames.of(catalogue)
    if trace.office is not None or trace.tiled is not None:
        require_unlanded(lake, trace.name)
    if trace.office is not None:
        columns, apps = office_day(trace.office, day, trace.seed, names), list(trace.office.apps)
        source = "office"
    elif trace.tiled is not None:
        template, apps = read_template_trace(lake, trace.tiled.template, names)
        columns, source = tile_day(template, trace.tiled, day, trace.seed), f"tiled {trace.tiled.template}"
    else:
        require_day(lake, "requests", trace.name, day)
        write_tiers(lake, trace.name, catalogue)
        query = "select count(*) as requests from requests where trace = $trace and day = $day"
        return lake.sql(query, trace=trace.name, day=day)["requests"][0].as_py()
    table = canonical_requests(columns, day, source, catalogue, apps)
    write_tiers(lake, trace.name, catalogue)
    lake.write("requests", table, trace=trace.name, day=day)
    return table.num_rows


def write_tiers(lake: Lake, trace: str, catalogue: Catalogue) -> None:
    """Write the catalogue's tiers as a table of the trace (sql/tables/tiers.sql)."""
    rows = [{"tier": name, **dataclasses.asdict(tier)} for name, tier in catalogue.tiers.items()]
    lake.write("tiers", pa.Table.from_pylist(rows, SCHEMAS["tiers"]), trace=trace)


def canonical_requests(
    columns: DayColumns, day: date, source: str, catalogue: Catalogue, apps: Sequence[str]
) -> pa.Table:
    """Return the requests of a made day as the table `requests`; the deadline is the tier's.

    columns : requests in order of arrival, shape (requests,); times in microseconds since midnight, UTC
    source : text of the column `source`
    catalogue, apps : names of the codes of region, llm and tier, and of app
    """
    midnight = np.datetime64(day, "us").astype(np.int64)
    first_id = np.uint64(day.toordinal() * ID_STEP)
    deadlines = np.array([tier.deadline_s for tier in catalogue.tiers.values()])
    rows = columns.arrived_us.size
    arrays = {
        "request_id": first_id + np.arange(rows, dtype=np.uint64),
        "arrived_at": pa.array(columns.arrived_us + midnight).cast(TIMESTAMP),
        "region": _named(columns.region, catalogue.regions),
        "llm": _named(columns.llm, catalogue.llms),
        "tier": _named(columns.tier, catalogue.tiers),
        "app": _named(columns.app, apps),
        "input_tokens": columns.input_tokens,
        "output_tokens": columns.output_tokens,
        "deadline_s": deadlines[columns.tier],
        "source": _named(np.zeros(rows, np.int8), [source]),
        "tier_source": _named(np.zeros(rows, np.int8), ["given"]),
        "tier_confidence": np.ones(rows),
    }
    unknown = {f.name: pa.nulls(rows, f.type) for f in SCHEMAS["requests"] if f.name not in arrays}
    return pa.table({**arrays, **unknown}, schema=SCHEMAS["requests"])


def read_template_trace(lake: Lake, trace: str, names: TraceNames) -> tuple[DayColumns, list[str]]:
    """Read a whole landed trace: columns (requests,) with times in us since 1970, and names of its apps."""
    if not lake.days("requests", trace):
        raise LakeError(
            f"The trace {trace!r}, which is to be tiled, has not been landed. "
            "Put its file into data/landing and run: fleetcast ingest."
        )
    table = lake.sql(
        "select * from requests where trace = $trace order by arrived_at, request_id", trace=trace
    )
    apps = sorted(table["app"].unique().to_pylist())
    columns = DayColumns(
        arrived_us=table["arrived_at"].cast(pa.int64()).to_numpy(),
        region=column_codes(table, "region", names.regions),
        llm=column_codes(table, "llm", names.llms),
        tier=column_codes(table, "tier", names.tiers),
        app=column_codes(table, "app", apps),
        input_tokens=table["input_tokens"].to_numpy(),
        output_tokens=table["output_tokens"].to_numpy(),
    )
    return columns, apps


def _named(codes: np.ndarray, names: Iterable[str]) -> pa.Array:
    """Return the name of each code; shape (requests,) in and out."""
    return pa.DictionaryArray.from_arrays(codes, list(names)).cast(pa.string())
