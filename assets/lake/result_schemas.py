"""Columns of the tables that forecasts, plans and replays write."""

from collections.abc import Mapping

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
TEXT, COUNT, FIGURE = pa.string(), pa.int64(), pa.float64()
_PREDICTION = {
    **dict.fromkeys(("method", "llm", "region"), TEXT),
    **dict.fromkeys(("cutoff", "bucket_start"), TIMESTAMP),
    "bucket_minutes": pa.int32(),
    "forecast_per_s": FIGURE,  # the middle of what is expected
    "actual_per_s": FIGURE,
    # also of the largest bucket of the hour, on each of its rows
    **{f"{of}p{level}_per_s": FIGURE for of in ("", "peak_") for level in (50, 90, 95)},
    "fallback": TEXT,  # what forecast instead and why, null where the method itself did
    "reason": TEXT,  # whom an ensemble listened to, null for a single method
}
ENDPOINT = dict.fromkeys(("llm", "role", "region"), TEXT)
_PLAN = {
    "programme": TEXT,
    "hour_start": TIMESTAMP,
    **ENDPOINT,
    "gpu": TEXT,
    **dict.fromkeys(("demand_tokens_per_s", "buffer_tokens_per_s", "capacity_tokens_per_s"), FIGURE),
    **dict.fromkeys(("gpus_per_instance", "instances_before", "instances", "delta"), COUNT),
    **dict.fromkeys(("reclaimed", "started", "donated"), COUNT),
    "why": TEXT,
    **dict.fromkeys(("short_tokens_per_s", "short_llm_tokens_per_s"), FIGURE),
    "status": TEXT,
    "gap_share": FIGURE,
    **dict.fromkeys(("usd", "plan_usd", "plan_bound_usd", "plan_lp_bound_usd"), FIGURE),
}
FLOWS = ("capacity", "exports", "imports", "unserved", "remote", "buffer_short")
BOUNDS = ("fluid", "whole", "minimum", "hour")
RESULTS: Mapping[str, pa.Schema] = {
    **dict.fromkeys(
        ("forecasts", "day_ahead_forecasts"),
        pa.schema({**dict.fromkeys(("measure", "tier"), TEXT), **_PREDICTION}),
    ),
    "backtests": pa.schema({**_PREDICTION, "cpu_s": FIGURE, "naive_step_per_s": FIGURE}),
    **dict.fromkeys(("plans", "day_ahead_plans"), pa.schema({"policy": TEXT, **_PLAN})),
    "closed_plans": pa.schema(_PLAN),
    "rolling_plans": pa.schema({"made_at": TIMESTAMP, "day": pa.date32(), "policy": TEXT, **_PLAN}),
    "ran_fleets": pa.schema(
        {
            "hour_start": TIMESTAMP,
            **ENDPOINT,
            "gpu": TEXT,
            "gpus_per_instance": COUNT,
            "instances": FIGURE,
            "samples": COUNT,
        }
    ),
    "plan_windows": pa.schema(
        {
            "policy": TEXT,
            **dict.fromkeys(("hour_start", "window_start"), TIMESTAMP),
            **ENDPOINT,
            **{f"{name}_tokens_per_s": FIGURE for name in ("demand", "buffer", *FLOWS)},
        }
    ),
    "quality_plans": pa.schema(
        {
            **dict.fromkeys(("plan", "kind", "rule", "answers", "judge"), TEXT),
            "judge_skill": FIGURE,
            **dict.fromkeys(("judge_llm", "thresholds"), TEXT),
            "shadow_share": FIGURE,
            **dict.fromkeys(("requests_per_s", "asked_quality", "asked_latency_s"), FIGURE),
            **dict.fromkeys(("budget_usd_per_hour", "usd_per_hour"), FIGURE),
            **dict.fromkeys(("promised_quality", "promised_p95_s"), FIGURE),
            **dict.fromkeys(("quality", "quality_low", "quality_high"), FIGURE),
            **dict.fromkeys(("p95_s", "p95_low_s", "p95_high_s"), FIGURE),
        }
    ),
    "quality_pools": pa.schema(
        {
            **dict.fromkeys(("plan", "llm", "gpu"), TEXT),
            **dict.fromkeys(("tensor_parallel", "pipeline_parallel", "instances", "gpus"), COUNT),
            **dict.fromkeys(("usd_per_hour", "dealt_share", "asked_share", "shadow_share"), FIGURE),
            **dict.fromkeys(("answered_share", "leg_p95_s"), FIGURE),
        }
    ),
    "plan_bounds": pa.schema({"hour_start": TIMESTAMP, **{f"{name}_usd": FIGURE for name in BOUNDS}}),
    "outcomes": pa.schema(
        {
            "request_id": pa.uint64(),
            **dict.fromkeys(("region", "llm", "tier", "app"), TEXT),
            "arrived_at": TIMESTAMP,
            **dict.fromkeys(("input_tokens", "output_tokens"), pa.int32()),
            "is_held": pa.bool_(),
            **dict.fromkeys(("deadline_s", "ttft_slo_s", "tpot_slo_s"), FIGURE),
            **dict.fromkeys(("served_llm", "served_region", "status"), TEXT),
            "score": FIGURE,
            **dict.fromkeys(("ttft_s", "tpot_s", "e2e_s", "queued_s"), FIGURE),
            **dict.fromkeys(("preemptions", "level", "moves"), pa.int32()),
            "stopped_s": FIGURE,
            **dict.fromkeys(("reused_tokens", "legs"), pa.int32()),
            "instance": COUNT,
            **dict.fromkeys(("earlier_s", "held_s", "waited_s", "prefill_s", "network_s"), FIGURE),
        }
    ),
    "legs": pa.schema(
        {
            "request_id": pa.uint64(),
            "leg": pa.int32(),
            **dict.fromkeys(("llm", "role", "region", "gpu"), TEXT),
            "judges": pa.bool_(),
            "instance": COUNT,
            **dict.fromkeys(("hand_over_s", "link_s"), FIGURE),
            **dict.fromkeys(("came_s", "began_s", "first_token_s", "ended_s"), FIGURE),
        }
    ),
    "fleet_hours": pa.schema(
        {
            "hour_start": TIMESTAMP,
            **dict.fromkeys(("llm", "role", "region", "gpu"), TEXT),
            "gpus_per_instance": COUNT,
            **{f"{state}_s": FIGURE for state in ("serving", "booting", "draining", "donated")},
            **dict.fromkeys(("kv_utilisation_share", "usd_per_gpu_hour", "board_w"), FIGURE),
            **dict.fromkeys(("moved_queued", "moved_live", "moves_given_up"), COUNT),
        }
    ),
}
