"""The tables of the lake: their partitions, and the schemas that are checked on write.

Columns, types, units and meanings are declared once, in the headers of sql/tables. For a table that a mart of
the same name makes, they are in the header of that mart.
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from fleetcast.assets.lake.sql_files import SQL, read_sql

LAKE_VERSION = 2  # raise it when a table changes in a way that older code cannot read
PARTITIONS: Mapping[str, tuple[str, ...]] = {
    "requests": ("trace", "day"),
    "tiers": ("trace",),
    "tier_verdicts": ("trace",),
    "quarantine": ("trace",),
    "ingests": ("trace",),
    "answers": ("trace",),
    "silences": ("trace",),
    "quality": ("trace",),
    "metric_findings": ("trace",),
    "engine_histograms": ("trace",),
    "demand": ("trace", "day"),
    "forecasts": ("trace", "day"),
    "day_ahead_forecasts": ("trace", "day"),
    "backtests": ("trace", "tier", "day"),
    "backtest_intervals": ("trace", "tier"),
    "plans": ("trace", "day"),
    "plan_windows": ("trace", "day"),
    "plan_bounds": ("trace", "day"),
    "closed_plans": ("trace", "day", "policy"),
    "day_ahead_plans": ("trace", "day"),
    "rolling_plans": ("trace", "made_day"),
    "ran_fleets": ("trace", "day"),
    "witnessed": ("trace", "day"),
    "advised_days": ("trace", "day"),
    "commitments": ("trace", "day"),
    "lost_pools": ("trace", "day"),
    "trials": ("experiment", "trace", "day"),
    "gpu_prices": ("trace", "day", "llm"),
    "gpu_fleets": ("trace", "day", "llm"),
    "level_trials": ("trace", "day"),
    "quality_plans": ("trace", "question"),
    "quality_pools": ("trace", "question"),
    "paper_values": ("paper",),
    "outcomes": ("trace", "day", "policy"),
    "legs": ("trace", "day", "policy"),
    "fleet_hours": ("trace", "day", "policy"),
    "scorecard": ("trace", "day"),
    "scoreboard": ("trace", "day"),
    "learned_shares": ("trace", "day"),
    "token_histogram": ("trace", "day"),
    "arrival_windows": ("trace", "day"),
    "characterisation": ("trace",),
    "episodes": ("trace",),
}
OPTIONAL_COLUMNS: Mapping[str, frozenset[str]] = {  # null in older files, and if a writer omits them
    "requests": frozenset(
        {
            *("session_id", "query_id", "cached_tokens", "prefix_hashes", "images", "source_llm"),
            *("source_ttft_s", "source_e2e_s", "tier_source", "tier_confidence", "source_request_id"),
        }
    ),
    "advised_days": frozenset(("llms", "regions")),
    "ingests": frozenset(("largest_step_back_s", "clock", "columns")),
    **dict.fromkeys(
        ("plans", "day_ahead_plans", "closed_plans", "rolling_plans"), frozenset(("sustained_tokens_per_s",))
    ),
}
TIMESTAMP = pa.timestamp("us", "UTC")
ARROW_TYPES: Mapping[str, pa.DataType] = {  # by their names in DuckDB
    "varchar": pa.string(),
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "ubigint": pa.uint64(),
    "ubigint[]": pa.list_(pa.uint64()),
    "double": pa.float64(),
    "double[]": pa.list_(pa.float64()),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamptz": TIMESTAMP,
    "map(varchar, double)": pa.map_(pa.string(), pa.float64()),
    "map(varchar, varchar)": pa.map_(pa.string(), pa.string()),
}


def table_header_path(table: str) -> Path:
    """Return the SQL file whose header documents a table."""
    file = SQL / "tables" / f"{table}.sql"
    return file if file.exists() else SQL / "marts" / f"{table}.sql"


def read_column_types() -> dict[str, Mapping[str, str]]:
    """Read the columns that assets write and their DuckDB types, of each table that has some."""
    types = {table: read_sql(table_header_path(table)).types for table in PARTITIONS}
    return {table: columns for table, columns in types.items() if columns}


COLUMN_TYPES = read_column_types()
SCHEMAS: Mapping[str, pa.Schema] = {
    table: pa.schema({column: ARROW_TYPES[kind] for column, kind in types.items()})
    for table, types in COLUMN_TYPES.items()
}
