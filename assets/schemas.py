"""The tables of the lake: their partitions, and the columns of those whose schema is checked on write."""

from collections.abc import Mapping

import pyarrow as pa

LAKE_VERSION = 1  # raise it when a table changes in a way that older code cannot read
PARTITIONS: Mapping[str, tuple[str, ...]] = {
    "requests": ("trace", "day"),
    "quarantine": ("trace",),
    "ingests": ("trace",),
    "demand": ("trace", "day"),
    "forecasts": ("trace", "day"),
    "traffic_forecasts": ("trace", "day"),
    "backtests": ("trace", "day"),
    "backtest_intervals": ("trace",),
    "plans": ("trace", "day"),
    "outcomes": ("trace", "day", "policy"),
    "fleet_hours": ("trace", "day", "policy"),
    "scorecard": ("trace", "day"),
}
TIMESTAMP = pa.timestamp("us", "UTC")
_TEXT, _COUNT = pa.string(), pa.int64()
_RATE = pa.float64()
_KEYS = {"region": _TEXT, "llm": _TEXT, "tier": _TEXT, "app": _TEXT}
_FORECAST_KEYS = {
    **dict.fromkeys(("llm", "region", "method"), _TEXT),
    **dict.fromkeys(("cutoff", "bucket_start"), TIMESTAMP),
    "bucket_minutes": pa.int32(),
}
_FORECAST_MAKERS = {
    "fallback": _TEXT,  # what forecast instead and why, null where the method itself did
    "reason": _TEXT,  # whom an ensemble listened to, null for a single method
}
REQUEST_SCHEMA = pa.schema(
    {
        "request_id": pa.uint64(),
        "arrived_at": TIMESTAMP,
        **_KEYS,
        "input_tokens": pa.int32(),
        "output_tokens": pa.int32(),
        "deadline_s": pa.float64(),
        "source": _TEXT,
    }
)
SCHEMAS: Mapping[str, pa.Schema] = {
    "requests": REQUEST_SCHEMA,
    "quarantine": pa.schema({"file": _TEXT, "row": _COUNT, "reason": _TEXT, "raw": _TEXT}),
    "ingests": pa.schema(
        {
            **dict.fromkeys(("file", "format", "sha256"), _TEXT),
            **dict.fromkeys(("rows_in", "rows_kept", "rows_quarantined", "rows_out_of_order"), _COUNT),
            **dict.fromkeys(("first_at", "last_at"), TIMESTAMP),
        }
    ),
    "demand": pa.schema(
        {
            **_KEYS,
            "bucket_start": TIMESTAMP,
            **dict.fromkeys(("requests", "input_tokens", "output_tokens"), _COUNT),
        }
    ),
}
_FORECASTS = {
    **_FORECAST_KEYS,
    "input_tokens_per_s": _RATE,  # the middle of what is expected
    "actual_input_tokens_per_s": _RATE,
    **{f"p{level}_tokens_per_s": _RATE for level in (50, 90, 95)},
    # of the largest bucket of the hour, on each of its rows
    **{f"peak_p{level}_tokens_per_s": _RATE for level in (50, 90, 95)},
    **_FORECAST_MAKERS,
}
# Tables whose views always have these columns: null where files of older runs lack them, no rows before any.
VIEWS: Mapping[str, pa.Schema] = {
    "forecasts": pa.schema(_FORECASTS),
    "backtests": pa.schema({**_FORECASTS, "cpu_s": _RATE, "naive_step_tokens_per_s": _RATE}),
    "backtest_intervals": pa.schema(
        {
            **dict.fromkeys(("method", "against"), _TEXT),
            "horizon_minutes": pa.int32(),
            "cutoffs": _COUNT,
            "saved_share": _RATE,  # how much lower the method's WAPE is than that of `against`
            **dict.fromkeys(("low_share", "high_share"), _RATE),  # its 95 % interval
        }
    ),
    "traffic_forecasts": pa.schema(
        {
            "measure": _TEXT,  # output_tokens or requests, per second
            **_FORECAST_KEYS,
            **dict.fromkeys(("per_s", "actual_per_s"), _RATE),
            **{f"{of}p{level}_per_s": _RATE for of in ("", "peak_") for level in (50, 90, 95)},
            **_FORECAST_MAKERS,
        }
    ),
}


# What a table that has no file yet is made of, so that a view over it can stand.
DUCKDB_TYPES = {
    _TEXT: "varchar",
    _COUNT: "bigint",
    TIMESTAMP: "timestamptz",
    pa.date32(): "date",
    pa.uint64(): "ubigint",
    pa.int32(): "integer",
    pa.float64(): "double",
}
