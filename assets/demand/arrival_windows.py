"""The arrivals of a day by windows: the variation of their gaps, and tests of renewal processes."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.characterise.gap_families import GAP_FAMILIES
from fleetcast.models.characterise.gap_fit import (
    LEAST_GAPS,
    WINDOW_US,
    GapWindows,
    first_gaps,
    fit_gaps,
    window_cvs,
)
from fleetcast.models.traffic.renewal_arrivals import SECOND_US, coarsest_grid_us

WINDOW_KEYS = ("tier", "region", "llm", "app")
# Requests are pooled over everything, and by each combination of these keys, as in sql/marts/streams.sql.
POOLS: tuple[tuple[str, ...], ...] = ((), ("tier",), ("region",), ("llm",), ("app",), ("tier", "region"))
TESTED_POOLS = ((), ("tier",))
TESTED_CLIENTS = 5  # those with the most requests on the day
TESTED_WINDOWS_PER_STREAM = 6  # windows of a stream on a day, spread evenly
SCHEMA = SCHEMAS["arrival_windows"]


def write_arrival_windows(lake: Lake, trace: str, day: date) -> None:
    """Write arrival_windows of a day (sql/tables/arrival_windows.sql describes its columns).

    The table is empty where all arrivals lie on a grid of a second or more: the gaps are those of the grid.
    """
    content = lake.content("requests", trace=trace, day=day)
    columns = lake.sql(
        f"select epoch_us(arrived_at) - epoch_us($day::timestamptz) as arrived_us, {', '.join(WINDOW_KEYS)} "
        "from requests where trace = $trace and day = $day::date",
        trace=trace,
        day=day,
    )
    arrived_us = columns["arrived_us"].to_numpy()
    order = np.argsort(arrived_us, kind="stable")
    arrived_us = arrived_us[order]
    if coarsest_grid_us(arrived_us) >= SECOND_US:
        lake.write("arrival_windows", SCHEMA.empty_table(), made_from=content, trace=trace, day=day)
        return
    codes, names = {}, {}
    for key in WINDOW_KEYS:
        encoded = pc.dictionary_encode(columns[key].combine_chunks())
        codes[key], names[key] = encoded.indices.to_numpy()[order], encoded.dictionary.to_pylist()
    rng = np.random.default_rng(day.toordinal())
    tables = []
    for keys in (*POOLS, WINDOW_KEYS):
        stream, members = _number_streams([codes[key] for key in keys], arrived_us.size)
        tested = _streams_to_test(keys, stream, len(members))
        windows = window_cvs(arrived_us, stream)
        texts = {key: [names[key][m] for m in member] for key, member in zip(keys, members.T, strict=True)}
        tables.append(_rows(windows, texts, day, _test_families(arrived_us, stream, windows, tested, rng)))
    lake.write("arrival_windows", pa.concat_tables(tables), made_from=content, trace=trace, day=day)


def _number_streams(codes: Sequence[NDArray[np.int32]], rows: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Number the streams: the stream of each request, (rows,), and each stream's codes, (streams, keys).

    `codes` has one array of shape (rows,) for each key.
    """
    if not codes:
        return np.zeros(rows, np.int16), np.zeros((1, 0), np.int64)
    sizes = [int(code.max()) + 1 for code in codes]
    packed = np.ravel_multi_index(codes, sizes)
    present = np.flatnonzero(np.bincount(packed, minlength=int(np.prod(sizes))))
    place = np.zeros(int(np.prod(sizes)), np.int16 if present.size < 1 << 15 else np.int64)
    place[present] = np.arange(present.size)
    return place[packed], np.transpose(np.unravel_index(present, sizes))


def _streams_to_test(keys: tuple[str, ...], stream: NDArray[np.int64], members: int) -> Sequence[int]:
    """Return the streams whose gaps are tested against the families; `stream` has the shape (rows,)."""
    if keys == WINDOW_KEYS:
        return np.argsort(-np.bincount(stream, minlength=members), kind="stable")[:TESTED_CLIENTS].tolist()
    return range(members) if keys in TESTED_POOLS else ()


def _test_families(
    arrived_us: NDArray[np.int64],
    stream: NDArray[np.int64],
    windows: GapWindows,
    tested: Sequence[int],
    rng: np.random.Generator,
) -> dict[str, NDArray[np.float64]]:
    """Test every family; return columns of distances and p-values, (windows,), nan where not tested.

    `arrived_us` ascends and has, as `stream`, the shape (rows,).
    """
    columns = {name: np.full(windows.cv.size, np.nan) for name in SCHEMA.names[-2 * len(GAP_FAMILIES) :]}
    for member in tested:
        rows = np.flatnonzero(windows.stream == member)
        arrivals = arrived_us[stream == member]
        if rows.size:
            rows = rows[np.unique(np.linspace(0, rows.size - 1, TESTED_WINDOWS_PER_STREAM).astype(int))]
        for row in rows:
            gaps = first_gaps(arrivals, int(windows.window[row]))
            if gaps.size < LEAST_GAPS:
                continue
            for family in GAP_FAMILIES:
                columns[f"{family}_distance"][row], columns[f"{family}_p"][row] = fit_gaps(gaps, family, rng)
    return columns


def _rows(
    windows: GapWindows, texts: dict[str, list[str]], day: date, tests: dict[str, NDArray[np.float64]]
) -> pa.Table:
    """Return the windows of one pool as rows of the table; a pooled key has the value all."""
    midnight = np.datetime64(day, "us").astype(np.int64)
    names = {
        key: np.array(texts[key])[windows.stream] if key in texts else ["all"] * windows.cv.size
        for key in WINDOW_KEYS
    }
    columns: dict[str, Any] = {
        "stream_kind": ["client" if len(texts) == len(WINDOW_KEYS) else "pooled"] * windows.cv.size,
        **names,
        "window_start": pa.array(midnight + windows.window * WINDOW_US).cast(
            SCHEMA.field("window_start").type
        ),
        "gaps": windows.gaps,
        "cv": windows.cv,
        **{name: pa.array(values, from_pandas=True) for name, values in tests.items()},
    }
    return pa.table(columns).select(SCHEMA.names).cast(SCHEMA)
