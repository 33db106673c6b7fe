"""Columns of the tables that studies and plans on demand write."""

from collections.abc import Mapping

import pyarrow as pa

from fleetcast.assets.lake.result_schemas import COUNT, FIGURE, TEXT

REGRET = ("fluid", "rounding", "minimum", "hour", "routing", "foresight", "boot", "scaling")  # and left
STUDIED: Mapping[str, pa.Schema] = {
    "backtest_intervals": pa.schema(
        {
            **dict.fromkeys(("method", "against"), TEXT),
            "horizon_minutes": pa.int32(),
            "cutoffs": COUNT,
            "saved_share": FIGURE,  # how much lower the method's WAPE is than that of `against`
            **dict.fromkeys(("low_share", "high_share"), FIGURE),  # its 95 % interval
        }
    ),
    "planner_trials": pa.schema(
        {
            **dict.fromkeys(("planner", "what", "ideas"), TEXT),
            "draw": COUNT,
            **dict.fromkeys(("capacity_share", "usd", "left_usd", "gpu_hours"), FIGURE),
            **dict.fromkeys(("asked_ratio", "attained_ratio", "asked_quality", "quality"), FIGURE),
            "worst_tier": TEXT,
            **dict.fromkeys(("ttft_p95_s", "tpot_p95_s", "e2e_p95_s"), FIGURE),
            **dict.fromkeys((f"{part}_usd" for part in REGRET), FIGURE),
            "usd_error_share": FIGURE,
        }
    ),
    "trials": pa.schema(
        {
            **dict.fromkeys(("variant", "policy", "purpose"), TEXT),
            **dict.fromkeys(("resample", "draw"), pa.int32()),
            "knobs": pa.map_(TEXT, FIGURE),
            "labels": pa.map_(TEXT, TEXT),
            **dict.fromkeys(("metric", "tier", "llm"), TEXT),
            "value": FIGURE,
        }
    ),
    "commitments": pa.schema(
        {
            **dict.fromkeys(("region", "gpu"), TEXT),
            "weeks": COUNT,
            **dict.fromkeys(("reserved_usd", "on_demand_usd", "spot_usd"), FIGURE),
            "reserved_gpus": COUNT,
            **dict.fromkeys(("exceeded_share", "on_demand_gpu_hours", "spot_gpu_hours"), FIGURE),
            **dict.fromkeys(("usd_per_week", "regret_usd", "worst_regret_usd"), FIGURE),
            "is_best": pa.bool_(),
        }
    ),
    "lost_pools": pa.schema(
        {
            **dict.fromkeys(("region", "gpu"), TEXT),
            "needed_gpus": FIGURE,
            "reserved_elsewhere_gpus": COUNT,
            **dict.fromkeys(("more_on_demand_gpus", "more_usd_per_day"), FIGURE),
            "room_elsewhere_gpus": COUNT,
            "short_gpus": FIGURE,
        }
    ),
    "gpu_prices": pa.schema(
        {
            "gpu": TEXT,
            "gpus_per_instance": COUNT,
            **dict.fromkeys(("usd_per_gpu_hour", "usd_per_million_input_tokens"), FIGURE),
            "usd_per_million_output_tokens": FIGURE,
            "decode_batch": COUNT,
            "tpot_s": FIGURE,
            "is_best_of_gpu": pa.bool_(),
            **dict.fromkeys(("prefill_turns_at_usd", "decode_turns_at_usd"), FIGURE),
            **dict.fromkeys(("mean_input_tokens", "mean_output_tokens"), FIGURE),
            "apart_saving_bound_share": FIGURE,
            "latency": TEXT,
            "median_error_share": FIGURE,
        }
    ),
    "gpu_fleets": pa.schema(
        {
            **dict.fromkeys(("fleet", "option"), TEXT),
            "options": COUNT,
            "goodput_per_s": FIGURE,
            "gpus": COUNT,
            "usd_per_hour": FIGURE,
            "is_apart": pa.bool_(),
            "asked_per_s": FIGURE,
            "fleet_usd_per_hour": FIGURE,
            "is_best": pa.bool_(),
            **{f"{of}attainment_share": FIGURE for of in ("", "ttft_", "tpot_")},
            **dict.fromkeys(("ttft_p95_s", "tpot_p95_s", "served_per_s", "tokens_per_usd"), FIGURE),
        }
    ),
    "level_trials": pa.schema(
        {
            **dict.fromkeys(("llm", "region", "dealt_by", "stack"), TEXT),
            "levels": pa.int32(),
            **dict.fromkeys(("headroom_share", "headroom_decay", "load_factor"), FIGURE),
            **dict.fromkeys(("instances", "hours", "seed"), COUNT),
            **dict.fromkeys(("is_today", "is_met"), pa.bool_()),
            "worst_need_share": FIGURE,
            "level": TEXT,
            **dict.fromkeys(("requests", "finished", "met"), COUNT),
            **dict.fromkeys(("ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "e2e_p50_s", "e2e_p99_s"), FIGURE),
            **dict.fromkeys(("preemptions", "moved_queued", "moved_live", "moves_given_up"), COUNT),
            "stopped_p99_s": FIGURE,
            "recomputed_tokens": COUNT,
            **dict.fromkeys(("gpu_hours", "usd"), FIGURE),
        }
    ),
    "paper_values": pa.schema(
        {
            **dict.fromkeys(("study", "variant", "policy", "against", "metric", "tier", "llm"), TEXT),
            "value": FIGURE,
            "section": TEXT,
        }
    ),
}
