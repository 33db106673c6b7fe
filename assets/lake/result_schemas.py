"""Columns of the tables that forecasts, plans and replays write."""

from collections.abc import Mapping

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
_TEXT, _COUNT, _FIGURE = pa.string(), pa.int64(), pa.float64()
_RATE = _FIGURE
_PREDICTION = {
    **dict.fromkeys(("method", "llm", "region"), _TEXT),
    **dict.fromkeys(("cutoff", "bucket_start"), TIMESTAMP),
    "bucket_minutes": pa.int32(),
    "forecast_per_s": _RATE,  # the middle of what is expected
    "actual_per_s": _RATE,
    # also of the largest bucket of the hour, on each of its rows
    **{f"{of}p{level}_per_s": _RATE for of in ("", "peak_") for level in (50, 90, 95)},
    "fallback": _TEXT,  # what forecast instead and why, null where the method itself did
    "reason": _TEXT,  # whom an ensemble listened to, null for a single method
}
_ENDPOINT = dict.fromkeys(("llm", "role", "region"), _TEXT)
_PLAN = {
    "programme": _TEXT,
    "hour_start": TIMESTAMP,
    **_ENDPOINT,
    "gpu": _TEXT,
    **dict.fromkeys(("demand_tokens_per_s", "buffer_tokens_per_s", "capacity_tokens_per_s"), _RATE),
    **dict.fromkeys(("gpus_per_instance", "instances_before", "instances", "delta"), _COUNT),
    **dict.fromkeys(("reclaimed", "started", "donated"), _COUNT),
    "why": _TEXT,
    **dict.fromkeys(("short_tokens_per_s", "short_llm_tokens_per_s"), _RATE),
    "status": _TEXT,
    "gap_share": _FIGURE,
    **dict.fromkeys(("usd", "plan_usd", "plan_bound_usd", "plan_lp_bound_usd"), _FIGURE),
}
FLOWS = ("capacity", "exports", "imports", "unserved", "remote", "buffer_short")
BOUNDS = ("fluid", "whole", "minimum", "hour")
REGRET = ("fluid", "rounding", "minimum", "hour", "routing", "foresight", "boot", "scaling")  # and left
RESULTS: Mapping[str, pa.Schema] = {
    **dict.fromkeys(
        ("forecasts", "day_ahead_forecasts"),
        pa.schema({**dict.fromkeys(("measure", "tier"), _TEXT), **_PREDICTION}),
    ),
    "backtests": pa.schema({**_PREDICTION, "cpu_s": _FIGURE, "naive_step_per_s": _RATE}),
    "backtest_intervals": pa.schema(
        {
            **dict.fromkeys(("method", "against"), _TEXT),
            "horizon_minutes": pa.int32(),
            "cutoffs": _COUNT,
            "saved_share": _FIGURE,  # how much lower the method's WAPE is than that of `against`
            **dict.fromkeys(("low_share", "high_share"), _FIGURE),  # its 95 % interval
        }
    ),
    "decisions": pa.schema(
        {
            **dict.fromkeys(("method", "tier"), _TEXT),
            **dict.fromkeys(("capacity_share", "usd", "boot_usd", "gpu_hours"), _FIGURE),
            **dict.fromkeys(("attainment_share", "missed_share", "matched_share"), _FIGURE),
        }
    ),
    "planner_trials": pa.schema(
        {
            **dict.fromkeys(("planner", "what", "ideas"), _TEXT),
            **dict.fromkeys(("capacity_share", "usd", "left_usd", "gpu_hours"), _FIGURE),
            **dict.fromkeys(("asked_ratio", "attained_ratio", "asked_quality", "quality"), _FIGURE),
            "worst_tier": _TEXT,
            **dict.fromkeys(("ttft_p95_s", "tpot_p95_s", "e2e_p95_s"), _FIGURE),
            **dict.fromkeys((f"{part}_usd" for part in REGRET), _FIGURE),
            "usd_error_share": _FIGURE,
        }
    ),
    **dict.fromkeys(("plans", "day_ahead_plans"), pa.schema({"policy": _TEXT, **_PLAN})),
    "closed_plans": pa.schema(_PLAN),
    "rolling_plans": pa.schema({"made_at": TIMESTAMP, "day": pa.date32(), "policy": _TEXT, **_PLAN}),
    "ran_fleets": pa.schema(
        {
            "hour_start": TIMESTAMP,
            **_ENDPOINT,
            "gpu": _TEXT,
            "gpus_per_instance": _COUNT,
            "instances": _FIGURE,
            "samples": _COUNT,
        }
    ),
    "commitments": pa.schema(
        {
            **dict.fromkeys(("region", "gpu"), _TEXT),
            "weeks": _COUNT,
            **dict.fromkeys(("reserved_usd", "on_demand_usd", "spot_usd"), _FIGURE),
            "reserved_gpus": _COUNT,
            **dict.fromkeys(("exceeded_share", "on_demand_gpu_hours", "spot_gpu_hours"), _FIGURE),
            **dict.fromkeys(("usd_per_week", "regret_usd", "worst_regret_usd"), _FIGURE),
            "is_best": pa.bool_(),
        }
    ),
    "lost_pools": pa.schema(
        {
            **dict.fromkeys(("region", "gpu"), _TEXT),
            "needed_gpus": _FIGURE,
            "reserved_elsewhere_gpus": _COUNT,
            **dict.fromkeys(("more_on_demand_gpus", "more_usd_per_day"), _FIGURE),
            "room_elsewhere_gpus": _COUNT,
            "short_gpus": _FIGURE,
        }
    ),
    "shadow_runs": pa.schema(
        {
            **dict.fromkeys(("policy", "fleet", "tier"), _TEXT),
            **dict.fromkeys(("requests", "in_time"), _COUNT),
            "ttft_p95_s": _FIGURE,
            **dict.fromkeys(("measured", "measured_in_time"), _COUNT),
            "measured_ttft_p95_s": _FIGURE,
        }
    ),
    "plan_windows": pa.schema(
        {
            "policy": _TEXT,
            **dict.fromkeys(("hour_start", "window_start"), TIMESTAMP),
            **_ENDPOINT,
            **{f"{name}_tokens_per_s": _RATE for name in ("demand", "buffer", *FLOWS)},
        }
    ),
    "whatifs": pa.schema(
        {
            **dict.fromkeys(("usd", "gpu_hours"), _FIGURE),
            **{f"{tier}_attainment_share": _FIGURE for tier in ("iw_fast", "iw_normal", "niw")},
            **dict.fromkeys(("missed_share", "dearest_hour_usd"), _FIGURE),
            "short_hours": _COUNT,
            **dict.fromkeys(("remote_share", "buffer_short_share"), _FIGURE),
            "below_minimum_hours": _COUNT,
            "what": _TEXT,
            "policy": _TEXT,
        }
    ),
    "gpu_prices": pa.schema(
        {
            "gpu": _TEXT,
            "gpus_per_instance": _COUNT,
            **dict.fromkeys(("usd_per_gpu_hour", "usd_per_million_input_tokens"), _FIGURE),
            "usd_per_million_output_tokens": _FIGURE,
            "decode_batch": _COUNT,
            "tpot_s": _FIGURE,
            "is_best_of_gpu": pa.bool_(),
            **dict.fromkeys(("prefill_turns_at_usd", "decode_turns_at_usd"), _FIGURE),
            **dict.fromkeys(("mean_input_tokens", "mean_output_tokens"), _FIGURE),
            "apart_saving_bound_share": _FIGURE,
            "latency": _TEXT,
            "median_error_share": _FIGURE,
        }
    ),
    "gpu_fleets": pa.schema(
        {
            **dict.fromkeys(("fleet", "option"), _TEXT),
            "options": _COUNT,
            "goodput_per_s": _RATE,
            "gpus": _COUNT,
            "usd_per_hour": _FIGURE,
            "is_apart": pa.bool_(),
            "asked_per_s": _RATE,
            "fleet_usd_per_hour": _FIGURE,
            "is_best": pa.bool_(),
            **{f"{of}attainment_share": _FIGURE for of in ("", "ttft_", "tpot_")},
            **dict.fromkeys(("ttft_p95_s", "tpot_p95_s", "served_per_s", "tokens_per_usd"), _FIGURE),
        }
    ),
    "error_draws": pa.schema(
        {"policy": _TEXT, "draw": pa.int32(), "figure": _TEXT, "value": _FIGURE},
    ),
    "level_trials": pa.schema(
        {
            **dict.fromkeys(("llm", "region", "dealt_by", "stack"), _TEXT),
            "levels": pa.int32(),
            **dict.fromkeys(("headroom_share", "headroom_decay", "load_factor"), _FIGURE),
            **dict.fromkeys(("instances", "hours", "seed"), _COUNT),
            **dict.fromkeys(("is_today", "is_met"), pa.bool_()),
            "worst_need_share": _FIGURE,
            "level": _TEXT,
            **dict.fromkeys(("requests", "finished", "met"), _COUNT),
            **dict.fromkeys(("ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "e2e_p50_s", "e2e_p99_s"), _FIGURE),
            **dict.fromkeys(("preemptions", "moved_queued", "moved_live", "moves_given_up"), _COUNT),
            "stopped_p99_s": _FIGURE,
            "recomputed_tokens": _COUNT,
            **dict.fromkeys(("gpu_hours", "usd"), _FIGURE),
        }
    ),
    "quality_plans": pa.schema(
        {
            **dict.fromkeys(("plan", "kind", "rule", "answers", "judge"), _TEXT),
            "judge_skill": _FIGURE,
            **dict.fromkeys(("judge_llm", "thresholds"), _TEXT),
            "shadow_share": _FIGURE,
            **dict.fromkeys(("requests_per_s", "asked_quality", "asked_latency_s"), _FIGURE),
            **dict.fromkeys(("budget_usd_per_hour", "usd_per_hour"), _FIGURE),
            **dict.fromkeys(("promised_quality", "promised_p95_s"), _FIGURE),
            **dict.fromkeys(("quality", "quality_low", "quality_high"), _FIGURE),
            **dict.fromkeys(("p95_s", "p95_low_s", "p95_high_s"), _FIGURE),
        }
    ),
    "quality_pools": pa.schema(
        {
            **dict.fromkeys(("plan", "llm", "gpu"), _TEXT),
            **dict.fromkeys(("tensor_parallel", "pipeline_parallel", "instances", "gpus"), _COUNT),
            **dict.fromkeys(("usd_per_hour", "dealt_share", "asked_share", "shadow_share"), _FIGURE),
            **dict.fromkeys(("answered_share", "leg_p95_s"), _FIGURE),
        }
    ),
    "studies": pa.schema({**dict.fromkeys(("policy", "metric", "tier", "llm"), _TEXT), "value": _FIGURE}),
    "paper_values": pa.schema(
        {
            **dict.fromkeys(("study", "variant", "policy", "against", "metric", "tier", "llm"), _TEXT),
            "value": _FIGURE,
            "section": _TEXT,
        }
    ),
    "plan_bounds": pa.schema({"hour_start": TIMESTAMP, **{f"{name}_usd": _FIGURE for name in BOUNDS}}),
    "outcomes": pa.schema(
        {
            "request_id": pa.uint64(),
            **dict.fromkeys(("region", "llm", "tier", "app"), _TEXT),
            "arrived_at": TIMESTAMP,
            **dict.fromkeys(("input_tokens", "output_tokens"), pa.int32()),
            "is_held": pa.bool_(),
            **dict.fromkeys(("deadline_s", "ttft_slo_s", "tpot_slo_s"), _FIGURE),
            **dict.fromkeys(("served_llm", "served_region", "status"), _TEXT),
            "score": _FIGURE,
            **dict.fromkeys(("ttft_s", "tpot_s", "e2e_s", "queued_s"), _FIGURE),
            **dict.fromkeys(("preemptions", "level", "moves"), pa.int32()),
            "stopped_s": _FIGURE,
            **dict.fromkeys(("reused_tokens", "legs"), pa.int32()),
            "instance": _COUNT,
            **dict.fromkeys(("earlier_s", "held_s", "waited_s", "prefill_s", "network_s"), _FIGURE),
        }
    ),
    "legs": pa.schema(
        {
            "request_id": pa.uint64(),
            "leg": pa.int32(),
            **dict.fromkeys(("llm", "role", "region", "gpu"), _TEXT),
            "judges": pa.bool_(),
            "instance": _COUNT,
            **dict.fromkeys(("hand_over_s", "link_s"), _FIGURE),
            **dict.fromkeys(("came_s", "began_s", "first_token_s", "ended_s"), _FIGURE),
        }
    ),
    "fleet_hours": pa.schema(
        {
            "hour_start": TIMESTAMP,
            **dict.fromkeys(("llm", "role", "region", "gpu"), _TEXT),
            "gpus_per_instance": _COUNT,
            **{f"{state}_s": _FIGURE for state in ("serving", "booting", "draining", "donated")},
            **dict.fromkeys(("kv_utilisation_share", "usd_per_gpu_hour", "board_w"), _FIGURE),
            **dict.fromkeys(("moved_queued", "moved_live", "moves_given_up"), _COUNT),
        }
    ),
}
