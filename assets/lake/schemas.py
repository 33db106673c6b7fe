"""The tables of the lake: their partitions, and the columns of those whose schema is checked on write."""

from collections.abc import Mapping

import pyarrow as pa

from fleetcast.assets.lake.result_schemas import COUNT, FIGURE, RESULTS, TEXT, TIMESTAMP
from fleetcast.assets.lake.study_schemas import STUDIED
from fleetcast.models.characterise.families import FAMILIES
from fleetcast.models.characterise.load import HORIZONS_MINUTES

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
    "trials": ("experiment", "trace", "day"),
    "planner_trials": ("trace", "day"),
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
    "token_histogram": ("trace", "day"),
    "arrival_windows": ("trace", "day"),
    "characterisation": ("trace",),
    "episodes": ("trace",),
}
_KEYS = {"region": TEXT, "llm": TEXT, "tier": TEXT, "app": TEXT}
_OPTIONAL = {  # null where the source does not say
    "session_id": TEXT,
    "query_id": TEXT,  # of the query that landed answers are to
    "cached_tokens": pa.int32(),  # of the input, found in a cache where the trace was taken
    "prefix_hashes": pa.list_(pa.uint64()),  # of the prompt's blocks, in order
    "images": pa.int32(),
    "source_llm": TEXT,  # what the source calls the llm
    "source_ttft_s": pa.float64(),  # as measured where the trace was taken
    "source_e2e_s": pa.float64(),
    "tier_source": TEXT,  # given, mapping, dealt, or the rule of sql/staging/tiers.sql
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
        "source": TEXT,
        **_OPTIONAL,
    }
)
OPTIONAL: Mapping[str, frozenset[str]] = {  # null in older files, and where a writer leaves them out
    "requests": frozenset(_OPTIONAL),
    "ingests": frozenset(("largest_step_back_s", "clock")),
}
SCHEMAS: Mapping[str, pa.Schema] = {
    **RESULTS,
    **STUDIED,
    "requests": REQUEST_SCHEMA,
    "tiers": pa.schema(
        {
            "tier": TEXT,
            **dict.fromkeys(("ttft_slo_s", "tpot_slo_s", "deadline_s", "attainment_target_share"), FIGURE),
            "is_held": pa.bool_(),
        }
    ),
    "tier_verdicts": pa.schema(
        {
            **{**dict.fromkeys(("app", "tier", "rule"), TEXT), "confidence": FIGURE, "first_at": TIMESTAMP},
            **dict.fromkeys(("hours", "requests"), COUNT),
        }
    ),
    "quarantine": pa.schema({"file": TEXT, "row": COUNT, "reason": TEXT, "raw": TEXT}),
    "answers": pa.schema(
        {
            **dict.fromkeys(("file", "query_id", "llm"), TEXT),
            "score": FIGURE,
            **dict.fromkeys(("output_tokens", "input_tokens"), pa.int32()),
            "hardness": FIGURE,
            "judges": pa.map_(TEXT, FIGURE),
        }
    ),
    "ingests": pa.schema(
        {
            **dict.fromkeys(("file", "format", "sha256"), TEXT),
            **dict.fromkeys(("rows_in", "rows_kept", "rows_quarantined", "rows_out_of_order"), COUNT),
            **dict.fromkeys(("first_at", "last_at"), TIMESTAMP),
            "largest_step_back_s": pa.float64(),
            "clock": TEXT,
        }
    ),
    "silences": pa.schema(
        {
            **dict.fromkeys(("silence_start", "silence_end"), TIMESTAMP),
            "slots": COUNT,
            "expected_requests": pa.float64(),
        }
    ),
    "quality": pa.schema(
        {
            **dict.fromkeys(("file", "aspect"), TEXT),
            "rows": COUNT,
            "share": pa.float64(),
            **dict.fromkeys(("detail", "verdict"), TEXT),
        }
    ),
    "metric_findings": pa.schema(
        {
            **dict.fromkeys(("file", "aspect", "detail", "verdict"), TEXT),
            "rows": COUNT,
            "share": FIGURE,
        }
    ),
    "engine_histograms": pa.schema(
        {
            "hour_start": TIMESTAMP,
            **dict.fromkeys(("engine", "source_llm", "llm", "region", "tier", "app", "measure"), TEXT),
            "at_most": FIGURE,
            "samples": COUNT,
        }
    ),
    "demand": pa.schema(
        {
            **_KEYS,
            "bucket_start": TIMESTAMP,
            **dict.fromkeys(("requests", "input_tokens", "output_tokens"), COUNT),
        }
    ),
    "token_histogram": pa.schema(
        {
            **dict.fromkeys(("tier", "llm", "app", "kind"), TEXT),
            "tokens": FIGURE,
            "requests": COUNT,
        }
    ),
    "arrival_windows": pa.schema(
        {
            "level": TEXT,
            **_KEYS,
            "window_start": TIMESTAMP,
            "gaps": COUNT,
            "cv": FIGURE,
            **{f"{family}_{what}": FIGURE for family in FAMILIES for what in ("distance", "p")},
        }
    ),
    "characterisation": pa.schema(
        {
            **_KEYS,
            "requests": COUNT,
            **dict.fromkeys(("requests_per_s", "tokens_per_s", "peak_requests_per_s", "dispersion"), FIGURE),
            **dict.fromkeys(("gap_cv", "client_gap_cv"), FIGURE),
            **dict.fromkeys(("poisson_share", "gamma_share", "weibull_share"), FIGURE),
            **dict.fromkeys(("lognormal_share", "hyperexponential_share"), FIGURE),
            **dict.fromkeys(("daily_strength", "weekly_strength"), FIGURE),
            **dict.fromkeys(("acf_10min", "acf_1h", "acf_1d", "acf_1w"), FIGURE),
            **{"bursts": COUNT, "burst_share": FIGURE, "changes": COUNT},
            **{f"best_{minutes}min": TEXT for minutes in HORIZONS_MINUTES},
            **{f"skill_{minutes}min": FIGURE for minutes in HORIZONS_MINUTES},
        }
    ),
    "episodes": pa.schema(
        {
            **_KEYS,
            "kind": TEXT,
            "starts_at": TIMESTAMP,
            "minutes": COUNT,
            "ratio": FIGURE,
            "extra_requests": FIGURE,
        }
    ),
}
