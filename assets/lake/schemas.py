"""The tables of the lake: their partitions, and the columns of those whose schema is checked on write."""

from collections.abc import Mapping

import pyarrow as pa

from assets.lake.result_schemas import RESULTS, TIMESTAMP
from assets.lake.store import Place
from models.characterise.families import FAMILIES
from models.characterise.load import HORIZONS_MINUTES

LAKE_VERSION = 1  # raise it when a table changes in a way that older code cannot read
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
    "commitments": ("trace", "day"),
    "lost_pools": ("trace", "day"),
    "shadow_runs": ("trace", "day"),
    "decisions": ("trace", "day"),
    "planner_trials": ("trace", "day"),
    "whatifs": ("trace", "day", "case_name"),
    "gpu_prices": ("trace", "day", "llm"),
    "gpu_fleets": ("trace", "day", "llm"),
    "error_draws": ("trace", "day"),
    "level_trials": ("trace", "day"),
    "quality_plans": ("trace", "question"),
    "quality_pools": ("trace", "question"),
    "studies": ("study", "variant"),
    "paper_values": ("paper",),
    "outcomes": ("trace", "day", "policy"),
    "legs": ("trace", "day", "policy"),
    "fleet_hours": ("trace", "day", "policy"),
    "scorecard": ("trace", "day"),
    "token_histogram": ("trace", "day"),
    "arrival_windows": ("trace", "day"),
    "characterisation": ("trace",),
    "episodes": ("trace",),
}
_TEXT, _COUNT, _FIGURE = pa.string(), pa.int64(), pa.float64()
_KEYS = {"region": _TEXT, "llm": _TEXT, "tier": _TEXT, "app": _TEXT}
_OPTIONAL = {  # null where the source does not say
    "session_id": _TEXT,
    "query_id": _TEXT,  # of the query that landed answers are to
    "cached_tokens": pa.int32(),  # of the input, found in a cache where the trace was taken
    "prefix_hashes": pa.list_(pa.uint64()),  # of the prompt's blocks, in order
    "images": pa.int32(),
    "source_llm": _TEXT,  # what the source calls the llm
    "source_ttft_s": pa.float64(),  # as measured where the trace was taken
    "source_e2e_s": pa.float64(),
    "tier_source": _TEXT,  # given, mapping, dealt, or the rule of sql/staging/tiers.sql
    "tier_confidence": pa.float64(),  # 1 = given by the source or the mapping, 0 = dealt out
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
        **_OPTIONAL,
    }
)
OPTIONAL: Mapping[str, frozenset[str]] = {  # null in older files, and where a writer leaves them out
    "requests": frozenset(_OPTIONAL),
    "ingests": frozenset(("largest_step_back_s", "clock")),
}
SCHEMAS: Mapping[str, pa.Schema] = {
    **RESULTS,
    "requests": REQUEST_SCHEMA,
    "tiers": pa.schema(
        {
            "tier": _TEXT,
            **dict.fromkeys(("ttft_slo_s", "tpot_slo_s", "deadline_s", "attainment_target_share"), _FIGURE),
            "is_held": pa.bool_(),
        }
    ),
    "tier_verdicts": pa.schema(
        {
            **{**dict.fromkeys(("app", "tier", "rule"), _TEXT), "confidence": _FIGURE, "first_at": TIMESTAMP},
            **dict.fromkeys(("hours", "requests"), _COUNT),
        }
    ),
    "quarantine": pa.schema({"file": _TEXT, "row": _COUNT, "reason": _TEXT, "raw": _TEXT}),
    "answers": pa.schema(
        {
            **dict.fromkeys(("file", "query_id", "llm"), _TEXT),
            "score": _FIGURE,
            **dict.fromkeys(("output_tokens", "input_tokens"), pa.int32()),
            "hardness": _FIGURE,
            "judges": pa.map_(_TEXT, _FIGURE),
        }
    ),
    "ingests": pa.schema(
        {
            **dict.fromkeys(("file", "format", "sha256"), _TEXT),
            **dict.fromkeys(("rows_in", "rows_kept", "rows_quarantined", "rows_out_of_order"), _COUNT),
            **dict.fromkeys(("first_at", "last_at"), TIMESTAMP),
            "largest_step_back_s": pa.float64(),
            "clock": _TEXT,
        }
    ),
    "silences": pa.schema(
        {
            **dict.fromkeys(("silence_start", "silence_end"), TIMESTAMP),
            "slots": _COUNT,
            "expected_requests": pa.float64(),
        }
    ),
    "quality": pa.schema(
        {
            **dict.fromkeys(("file", "aspect"), _TEXT),
            "rows": _COUNT,
            "share": pa.float64(),
            **dict.fromkeys(("detail", "verdict"), _TEXT),
        }
    ),
    "metric_findings": pa.schema(
        {
            **dict.fromkeys(("file", "aspect", "detail", "verdict"), _TEXT),
            "rows": _COUNT,
            "share": _FIGURE,
        }
    ),
    "engine_histograms": pa.schema(
        {
            "hour_start": TIMESTAMP,
            **dict.fromkeys(("engine", "source_llm", "llm", "region", "tier", "app", "measure"), _TEXT),
            "at_most": _FIGURE,
            "samples": _COUNT,
        }
    ),
    "demand": pa.schema(
        {
            **_KEYS,
            "bucket_start": TIMESTAMP,
            **dict.fromkeys(("requests", "input_tokens", "output_tokens"), _COUNT),
        }
    ),
    "token_histogram": pa.schema(
        {
            **dict.fromkeys(("tier", "llm", "app", "kind"), _TEXT),
            "tokens": _FIGURE,
            "requests": _COUNT,
        }
    ),
    "arrival_windows": pa.schema(
        {
            "level": _TEXT,
            **_KEYS,
            "window_start": TIMESTAMP,
            "gaps": _COUNT,
            "cv": _FIGURE,
            **{f"{family}_{what}": _FIGURE for family in FAMILIES for what in ("distance", "p")},
        }
    ),
    "characterisation": pa.schema(
        {
            **_KEYS,
            "requests": _COUNT,
            **dict.fromkeys(("requests_per_s", "tokens_per_s", "peak_requests_per_s", "dispersion"), _FIGURE),
            **dict.fromkeys(("gap_cv", "client_gap_cv"), _FIGURE),
            **dict.fromkeys(("poisson_share", "gamma_share", "weibull_share"), _FIGURE),
            **dict.fromkeys(("lognormal_share", "hyperexponential_share"), _FIGURE),
            **dict.fromkeys(("daily_strength", "weekly_strength"), _FIGURE),
            **dict.fromkeys(("acf_10min", "acf_1h", "acf_1d", "acf_1w"), _FIGURE),
            **{"bursts": _COUNT, "burst_share": _FIGURE, "changes": _COUNT},
            **{f"best_{minutes}min": _TEXT for minutes in HORIZONS_MINUTES},
            **{f"skill_{minutes}min": _FIGURE for minutes in HORIZONS_MINUTES},
        }
    ),
    "episodes": pa.schema(
        {
            **_KEYS,
            "kind": _TEXT,
            "starts_at": TIMESTAMP,
            "minutes": _COUNT,
            "ratio": _FIGURE,
            "extra_requests": _FIGURE,
        }
    ),
}


# What a column held before there was one: in files that do not have it.
BEFORE = {"role": "whole"}

# What a table that has no file yet is made of, so that a view over it can stand.
DUCKDB_TYPES = {
    _TEXT: "varchar",
    _COUNT: "bigint",
    TIMESTAMP: "timestamptz",
    pa.date32(): "date",
    pa.uint64(): "ubigint",
    pa.int32(): "integer",
    pa.bool_(): "boolean",
    _FIGURE: "double",
    pa.list_(pa.uint64()): "ubigint[]",
    pa.map_(_TEXT, _FIGURE): "map(varchar, double)",
}


def scan(table: str, files: Place) -> str:
    """A query for every row of the files of a table; what an older file lacks is as in BEFORE, else null."""
    types = ", ".join(f"'{key}': {'date' if key == 'day' else 'varchar'}" for key in PARTITIONS[table])
    options = f"hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true"
    rows = f"select * from read_parquet('{quoted(files)}', {options})"
    if table not in SCHEMAS:
        return rows
    whole = f"{no_rows(table)} union all by name {rows}"
    known = [
        f"coalesce({name}, '{value}') as {name}"
        for name, value in BEFORE.items()
        if name in SCHEMAS[table].names
    ]
    return f"select * replace ({', '.join(known)}) from ({whole})" if known else whole


def no_rows(table: str) -> str:
    """A query for the columns of a table without a row."""
    keys = {key: pa.date32() if key == "day" else pa.string() for key in PARTITIONS[table]}
    schema = SCHEMAS[table]
    columns = {**{field.name: field.type for field in schema}, **keys}
    nulls = ", ".join(f"null::{DUCKDB_TYPES[kind]} as {name}" for name, kind in columns.items())
    return f"select {nulls} where false"


def quoted(path: object) -> str:
    """A path as it stands between the quotes of an SQL text."""
    return str(path).replace("'", "''")
