"""A small lake whose files are damaged bit by bit."""

from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.schemas import COLUMN_TYPES, SCHEMAS
from fleetcast.assets.lake.warehouse import Lake

DAYS = (date(2025, 7, 1), date(2025, 7, 2))
SEED = 20251124


def rows(table: str, count: int = 2000) -> pa.Table:
    """Random rows of a table's schema."""
    rng = np.random.default_rng(SEED)
    columns = {}
    for field in SCHEMAS[table]:
        if pa.types.is_floating(field.type):
            columns[field.name] = pa.array(rng.random(count))
        elif pa.types.is_integer(field.type):
            columns[field.name] = pa.array(rng.integers(0, 99, count)).cast(field.type)
        elif pa.types.is_string(field.type):
            columns[field.name] = pa.array(np.array(["a", "b", "c"])[rng.integers(0, 3, count)])
        else:
            columns[field.name] = pa.nulls(count, field.type)
    return pa.table(columns)


def small_lake(root: Path) -> Lake:
    """Two days of a trace by Arrow, and one by DuckDB, which writes no checksum of pages."""
    lake = Lake(root)
    for day in DAYS:
        lake.write("requests", rows("requests"), trace="t", day=day)
        lake.write("outcomes", rows("outcomes"), trace="t", day=day, policy="static")
    with lake.connect() as con:
        columns = ", ".join(SCHEMAS["requests"].names)
        query = f"select {columns} from requests where trace = 't' and day = '{DAYS[0]}'"
        lake.copy(con, query, "requests", file="a.csv", trace="landed", day=DAYS[0])
        nulls = ", ".join(f"null::{kind} as {name}" for name, kind in COLUMN_TYPES["ingests"].items())
        lake.copy(con, f"select {nulls}", "ingests", file="a.csv", trace="landed")
    return lake


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
