"""Block hashes of a made trace, fitted to those of the original (models/traffic/prefixes.py)."""

from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from assets.lake.schemas import REQUEST_SCHEMA
from assets.lake.warehouse import Lake
from models.traffic import prefixes
from models.traffic.drawing import Integers, stream

MOST_REQUESTS = 50_000  # of the original, the earliest, that are templates
NAME = "prefix_hashes"


class PrefixTraffic(NamedTuple):
    """What is fitted to a trace; without streams where it has no hash."""

    streams: dict[tuple[str, str], int]  # llm and app
    templates: prefixes.Prefixes | None


def fit_prefixes(lake: Lake, trace: str) -> PrefixTraffic:
    """Fit the earliest requests of a trace of which the source gives block hashes."""
    rows = lake.sql(
        "select llm, app, input_tokens, coalesce(prefix_hashes, []) as hashes from requests "
        "where trace = $trace and (llm, app) in "
        "(select (llm, app) from requests where trace = $trace and len(prefix_hashes) > 0) "
        "order by arrived_at, request_id limit $most",
        trace=trace,
        most=MOST_REQUESTS,
    )
    pairs = list(zip(rows["llm"].to_pylist(), rows["app"].to_pylist(), strict=True))
    streams = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    if not streams:
        return PrefixTraffic({}, None)
    hashes = rows["hashes"].combine_chunks()
    first = hashes.offsets.to_numpy().astype(np.int64)
    codes = np.array([streams[pair] for pair in pairs])
    tokens = rows["input_tokens"].to_numpy().astype(np.int64)
    fitted = prefixes.fit(codes, tokens, first, hashes.values.to_numpy().astype(np.uint64))
    return PrefixTraffic(streams, fitted)


def with_prefixes(rows: pa.Table, traffic: PrefixTraffic, day: date, seed: int) -> pa.Table:
    """The requests of a made day, in order of arrival, with block hashes."""
    if traffic.templates is None:
        return rows
    codes = _streams(rows, traffic)
    tokens = rows["input_tokens"].to_numpy().astype(np.int64)
    rng = stream(seed, day, "prefixes")
    first, hashes = prefixes.draw(traffic.templates, codes, tokens, rows["request_id"].to_numpy(), rng)
    offsets = pa.array(first, pa.int32(), mask=np.append(np.diff(first) == 0, False))
    drawn = pa.ListArray.from_arrays(offsets, pa.array(hashes, pa.uint64()))
    at = rows.column_names.index(NAME)
    return rows.set_column(at, NAME, drawn.cast(REQUEST_SCHEMA.field(NAME).type))


def _streams(rows: pa.Table, traffic: PrefixTraffic) -> Integers:
    """The stream of each request, -1 where it has none."""
    pairs = zip(rows["llm"].to_pylist(), rows["app"].to_pylist(), strict=True)
    return np.array([traffic.streams.get(pair, -1) for pair in pairs], np.int64)
