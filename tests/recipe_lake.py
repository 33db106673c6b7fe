"""The lake that recipes run on, and their twins: functions that count the same with pandas.

It is wired.py's scored day, with tables of other commands and some days of a week before written by hand, so
that no recipe may be empty.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from trial_rows import decided, trial_rows
from wired import DAY, LLMS, REGIONS

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.replays.fleet_hours import MOVE_COLUMNS
from fleetcast.models.characterise.gap_families import GAP_FAMILIES

Frame = pd.DataFrame
TIMES = ("ttft", "e2e", "stopped")  # of a trial of levels
START = datetime(2025, 7, 3, tzinfo=UTC)
TRACE_DAY = {"trace": "wired", "day": DAY}
PLACE = {"region": "north", "llm": LLMS[0], "tier": "iw_fast"}
TWINS: dict[str, tuple[Callable[["Tables"], Frame], dict[str, Any]]] = {}


def twin(**params: Any) -> Callable[[Callable[["Tables"], Frame]], Callable[["Tables"], Frame]]:
    """Register a function as what the recipe of its name must answer, with these parameters."""

    def register(function: Callable[["Tables"], Frame]) -> Callable[["Tables"], Frame]:
        TWINS[function.__name__] = function, params
        return function

    return register


class Tables:
    """Tables and marts of the lake as frames."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.read: dict[str, Frame] = {}

    def __getattr__(self, name: str) -> Frame:
        if name not in self.read:
            self.read[name] = self.lake.sql(f"select * from {name}").to_pandas()
        return self.read[name].copy()


def rows(table: str, some: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(SCHEMAS[table].names) | row for row in some], SCHEMAS[table])


def summed(frame: Frame, keys: list[str], **columns: Any) -> Frame:
    return frame.groupby(keys, as_index=False).agg(**columns)


def ranked(frame: Frame, by: str, within: list[str], tie: list[str], most: int) -> Frame:
    """The `most` rows with the largest `by` of each group; ties by the columns `tie`."""
    order = frame.sort_values([by, *tie], ascending=[False] + [True] * len(tie), kind="stable")
    return order.groupby(within, sort=False).head(most)


def write_by_hand(lake: Lake) -> None:
    """Fill the tables that a night leaves empty, and make its plans fall short in some hours."""
    rng = np.random.default_rng(3)
    write_days(lake, rng)
    write_character(lake, rng)
    write_judged_forecasts(lake)
    write_prefixes(lake)
    write_short_plans(lake)
    write_legs(lake)
    write_studies(lake)
    write_level_trials(lake)
    write_rented(lake)
    write_quality(lake)
    write_shadow(lake)
    write_commitments(lake)
    write_unserved(lake)


def write_unserved(lake: Lake) -> None:
    """Under one policy some last tokens never came; under another one the first llm served nothing."""
    for policy in ("static", "reactive"):
        scope = TRACE_DAY | {"policy": policy}
        table = lake.read("outcomes", **scope).drop_columns([*scope])
        if policy == "static":
            e2e_s = pa.array(table["e2e_s"].to_numpy(), mask=np.arange(table.num_rows) % 5 == 0)
            table = table.set_column(table.schema.get_field_index("e2e_s"), "e2e_s", e2e_s)
        else:
            table = table.filter(pc.field("served_llm") != LLMS[0])
        lake.write("outcomes", table, **scope)


def write_commitments(lake: Lake) -> None:
    """Three commitments each of two regions, and what is lost with either."""
    new_rows = [
        {
            "served_region": region,
            "gpu": "h100-80gb",
            "weeks": 2,
            "on_demand_usd": 12.0,
            "reserved_gpus": 8 * n,
            "is_best": n == best,
        }
        | {"exceeded_share": (0.7, 0.2, 0.0)[n], "on_demand_gpu_hours": 100.0 / (n + 1)}
        | {"spot_gpu_hours": 30.0 - 10.0 * n, "usd_per_week": 900.0 + 100.0 * abs(n - best)}
        | {"regret_usd": 5.0 * n, "worst_regret_usd": 9.0 * n}
        for region, best in (("north", 1), ("south", 2))
        for n in range(3)
    ]
    lake.write("commitments", rows("commitments", new_rows), **TRACE_DAY)
    lost = [
        {"served_region": region, "gpu": "h100-80gb", "more_on_demand_gpus": 3.0, "short_gpus": short}
        for region, short in (("north", 0.0), ("south", 4.0))
    ]
    lake.write("lost_pools", rows("lost_pools", lost), **TRACE_DAY)


def write_shadow(lake: Lake) -> None:
    """A fleet that ran, and its plans, and what two tiers met on it and on the advised one."""
    new_rows = ("hour_start", "llm", "role", "served_region", "gpu", "gpus_per_instance")
    plans = lake.sql("select * from plans where policy = 'clairvoyant'").to_pylist()
    ran = [
        {name: row[name] for name in new_rows}
        | {"instances": row["instances"] + (n % 3) - 0.75, "samples": 4}
        for n, row in enumerate(plans)
    ]
    lake.write("ran_fleets", rows("ran_fleets", ran), **TRACE_DAY)
    met = [
        (
            {"variant": fleet, "labels": {"advice": "day_ahead"}},
            {("requests", tier): 1000, ("ttft_attainment_share", tier): in_time / 1000}
            | {("ttft_p95_s", tier): 0.5, ("measured", tier): measured, ("measured_in_time", tier): good}
            | {("measured_ttft_p95_s", tier): 0.6},
        )
        for fleet, tier, in_time, measured, good in (
            ("ran", "iw_fast", 940, 100, 93),
            ("advised", "iw_fast", 980, None, None),
            ("ran", "iw_normal", 990, 100, 90),
            ("advised", "iw_normal", 995, None, None),
        )
    ]
    lake.write("trials", trial_rows(met), experiment="grade", **TRACE_DAY)


def write_rented(lake: Lake) -> None:
    """What `fleetcast gpus` writes, of two llms: for one of them no combo was requested."""
    gpus = ("h100-80gb", "a100-80gb", "l40s-48gb")
    for n, llm in enumerate(LLMS[:2]):
        prices = [
            {"gpu": gpu, "gpus_per_instance": size, "is_best_of_gpu": size == 1 + k % 2}
            | {"latency": "composed", "usd_per_gpu_hour": 3.0 + k}
            | {"usd_per_million_input_tokens": (5 + 3 * k + n) / 8}
            | {"usd_per_million_output_tokens": (9 - 2 * k + size) / 4, "decode_batch": 64, "tpot_s": 0.02}
            | {"mean_input_tokens": 1500.0, "mean_output_tokens": 200.0, "median_error_share": 0.07}
            | {"disaggregation_saving_bound_share": 0.125 * n, "prefill_turns_at_usd": 4.0,
            "decode_turns_at_usd": 5.0}
            for k, gpu in enumerate(gpus) for size in (1, 2)
        ]  # fmt: skip
        lake.write("gpu_prices", rows("gpu_prices", prices), **TRACE_DAY, llm=llm)
        fleets = [
            {
                "fleet": kind,
                "option": f"1x{gpu}",
                "options": k + 2,
                "gpus": k + 2,
                "usd_per_hour": 4.0 * (k + 2),
            }
            | {
                "is_disaggregated": kind == "combos",
                "fleet_usd_per_hour": 40.0 - 4 * m,
                "is_best": m == 1 - n,
            }
            | {
                "attainment_share": 0.96,
                "tokens_per_usd": 1e6 + m,
                "goodput_per_s": 5.0,
                "required_requests_per_s": 9.0,
            }
            for m, kind in enumerate(("one_type", "mixed_types", "combos")[: 3 - n])
            for k, gpu in enumerate(gpus[: 1 + (m > 0)])
        ]
        lake.write("gpu_fleets", rows("gpu_fleets", fleets), **TRACE_DAY, llm=llm)


def write_quality(lake: Lake) -> None:
    """What `fleetcast plan quality --front` writes."""
    for q, question in enumerate(("0.5_10s", "0.6_12s")):
        plans, pools = [], []
        named = [("chosen", "chosen", "route", "learned"), ("alone", "baseline", "route", "learned")]
        named += [(f"{rule}_{judge}_{n:02d}", "front", rule, judge) for rule in ("cascade", "route")
                  for judge in ("learned", "random") for n in (1, 2, 3)]  # fmt: skip
        for n, (plan, kind, rule, judge) in enumerate(named):
            figures = {"usd_per_hour": 20 + (7 * n + q) % 13, "quality": 0.4 + (11 * n % 19 + q) / 64}
            figures |= {"p95_s": None if n == 9 else 8 + (5 * n) % 7, "required_quality": 0.45 + q / 32}
            figures["quality_low"] = figures["quality"] - 0.02
            new_rows = {"plan": plan, "plan_kind": kind, "rule": rule, "judge": judge}
            figures["required_latency_s"] = 10.0 + 2 * q
            plans.append(new_rows | figures | {"judge_skill": 0.0 if judge == "random" else None})
            pools += [
                {"plan": plan, "llm": llm, "gpu": gpu, "tensor_parallel": 1, "pipeline_parallel": 1}
                | {"instances": n + m, "gpus": 2 * (n + m), "usd_per_hour": 3.0 * (n + m)}
                | {"stage_share": 0.75, "leg_p95_s": 5.0}
                | {"final_answer_share": (0.75, 0.25)[llm == LLMS[1]]}
                for m, (llm, gpu) in enumerate([(LLMS[0], "a"), (LLMS[0], "b"), (LLMS[1], "a")], start=1)
            ]
        for table, some in (("quality_plans", plans), ("quality_pools", pools)):
            lake.write(table, rows(table, some), trace="wired", question=question)


def write_studies(lake: Lake) -> None:
    """Two variants of a study, of which a paper publishes one that was not run as well."""
    figures = ("quarter_instance_hours", "instance_hours", "gpu_hours", "attainment_share")
    for n, variant in enumerate(("a", "b")):
        new_rows = [
            {"policy": policy, "metric": metric, "llm": llm, "value": (7 + 3 * n + 2 * p + k + len(llm)) / 64}
            | {"tier": "iw_fast" if metric == "attainment_share" else "all"}
            for p, policy in enumerate(("reactive", "lt_ua")) for k, metric in enumerate(figures)
            for llm in (LLMS[0], "all")
        ]  # fmt: skip
        keys = {"variant": variant, "purpose": "judged", "resample": 0, "draw": 0, "knobs": []}
        new_rows = [row | keys | {"labels": [("study", "s")]} for row in new_rows]
        lake.write("trials", rows("trials", new_rows), f"s@{variant}", experiment="study", **TRACE_DAY)
    values = [
        {"study": "s", "variant": variant, "policy": "lt_ua", "against": against, "metric": metric}
        | {"tier": "iw_fast" if metric == "missed_share" else "all", "llm": llm, "value": 0.25}
        | {"section": "7"}
        for variant in ("a", "b", "never_run") for against in (None, "reactive") for llm in (LLMS[0], "all")
        for metric in ("quarter_instance_hours", "gpu_hours", "missed_share")
    ]  # fmt: skip
    lake.write("paper_values", rows("paper_values", values), paper="p")


def write_level_trials(lake: Lake) -> None:
    """Trials of two endpoints: four stacks, three numbers of levels, some with several headrooms."""
    rng, new_rows = np.random.default_rng(16), []
    stacks = {"jsq": (0.0,), "jsq_moves": (0.0,), "freeness": (0.1, 0.2), "llumnix": (0.1, 0.2)}
    cases = [(stack, levels, share) for stack, shares in stacks.items() for levels in (1, 2, 4)
             for share in (shares if levels > 1 else shares[:1])]  # fmt: skip
    cases += [("edf", 10, 0.0)]
    for llm in LLMS:
        for needs_by, load in (("uniform", 1.0), ("uniform", 1.5), ("tier", 1.0)):
            for stack, levels, share in cases:
                enough = int(rng.integers(4, 9)) if stack != "freeness" or levels < 4 else 99
                for instances in range(3, 10):
                    key = {"llm": llm, "region": "north", "needs_by": needs_by, "load_factor": load}
                    key |= {"stack": stack, "levels": levels, "headroom_share": share, "instances": instances}
                    key |= {"is_today": instances == 6, "is_met": instances >= enough}
                    key |= {"worst_need_share": float(rng.uniform(0.5, 1.0)), "hours": 4, "seed": 5}
                    whole = {name: int(rng.integers(0, 99)) for name in MOVE_COLUMNS}
                    for level in ("all", *map(str, range(levels))):
                        requests = int(rng.integers(50, 99))
                        new_rows.append(
                            key | (whole if level == "all" else {}) | {"level": level, "requests": requests}
                            | {"met": int(rng.integers(0, requests)), "preemptions": int(rng.integers(0, 9))}
                            | {f"{name}_p99_s": float(rng.uniform(1, 9)) for name in TIMES}
                            | ({"ttft_p99_s": None} if level == "1" else {})
                        )  # fmt: skip
    lake.write("level_trials", rows("level_trials", new_rows), **TRACE_DAY)


def write_legs(lake: Lake) -> None:
    """Requests that were handed on, under a policy of their own: the fleet of the others hands nothing on."""
    request_ids = lake.read("requests", **TRACE_DAY)["request_id"].to_pylist()
    new_rows = [
        {
            "request_id": request_ids[1000 * n],
            "leg": leg,
            "role": role,
            "llm": LLMS[0],
            "served_region": REGIONS[n % 3],
            "gpu": "h100-80gb",
        }
        | {"instance": 7 * (n % 5) + leg, "hand_over_s": None if leg == 1 else (37 * n % 100) / 64}
        | {"link_s": None if leg == 1 or n == 4 else n / 16}  # of the fourth nothing was sent
        | {"came_s": leg + n / 8, "began_s": leg + n / 4, "ended_s": leg + n / 2}
        | {"first_token_s": leg + 0.5 if leg == 1 else None}
        for n in range(1, 12)
        for leg, role in ((1, "prefill"), (2, "decode"))
    ]
    lake.write("legs", rows("legs", new_rows), **TRACE_DAY, policy="by_hand")


def write_days(lake: Lake, rng: np.random.Generator) -> None:
    """Three days of demand a week before; an app comes on the second of them alone."""
    for day in (date(2025, 6, 24), date(2025, 6, 26), date(2025, 6, 28)):  # the last one is a Saturday
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        minutes = [
            PLACE | {"region": region, "app": app, "bucket_start": midnight + timedelta(minutes=minute)}
            | {"tier": tier, "requests": int(rng.integers(1, 9))}
            | {"input_tokens": int(rng.integers(1, 999)), "output_tokens": int(rng.integers(1, 99))}
            for region in REGIONS for app in ("rag", "chat", "mail")[: 2 + (day.day == 26)]
            for tier in ("iw_fast", "niw")
            for minute in rng.choice(1440, 90, replace=False).tolist()
        ]  # fmt: skip
        lake.write("demand", rows("demand", minutes), trace="wired", day=day)


def write_character(lake: Lake, rng: np.random.Generator) -> None:
    """What `fleetcast characterise` writes."""
    parts = [PLACE | {"app": app, "requests_per_s": n, "skill_120min": s} for n, (app, s) in
             enumerate([("rag", 0.25), ("chat", 0.75), ("mail", None)])]  # fmt: skip
    lake.write("characterisation", rows("characterisation", parts), trace="wired")
    episodes = [
        PLACE | {"app": f"app{n}", "episode_kind": ("burst", "change")[n % 7 == 0], "starts_at": START}
        | {"minutes": n, "extra_requests": float(n * 37 % 101), "ratio": 1.5} for n in range(30)
    ]  # fmt: skip
    lake.write("episodes", rows("episodes", episodes), trace="wired")
    windows = [
        PLACE
        | {"app": f"app{n % 25}", "stream_kind": ("client", "pooled")[n % 3 == 0], "gaps": 30 + n}
        | {"window_start": START + timedelta(minutes=10 * n), "cv": 0.5 + (n * 7 % 11) / 4}
        | {f"{f}_p": None if n % 5 == 0 else (n * k % 13) / 100 for k, f in enumerate(GAP_FAMILIES, start=2)}
        | {f"{f}_distance": (n * k % 17) / 50 for k, f in enumerate(GAP_FAMILIES, start=3)}
        for n in range(120)
    ]
    lake.write("arrival_windows", rows("arrival_windows", windows), **TRACE_DAY)
    steps = [
        {"tier": "niw", "llm": llm, "app": app, "kind": kind, "tokens": float(tokens)}
        | {"requests": int(rng.integers(1, 99))} for app in ("rag", "chat") for kind in ("input", "output")
        for llm in LLMS for tokens in range(10, 410, 10)
    ]  # fmt: skip
    lake.write("token_histogram", rows("token_histogram", steps), **TRACE_DAY)


def write_judged_forecasts(lake: Lake) -> None:
    """What `fleetcast decide` and `fleetcast backtest` write."""
    trials = [
        decided(method, share, met, 0.95, usd=usd, boot_usd=1.0, gpu_hours=usd, missed_share=0.0)
        for method, base in (("truth", 20.0), ("last_value", 30.0), ("seasonal_naive", 25.0))
        for share, usd, met in ((1.0, base, 0.98), (1.2, base - 5, 0.92))
    ]
    lake.write("trials", trial_rows(trials), experiment="decide", **TRACE_DAY)
    backtests = [
        {"method": method, "llm": LLMS[0], "region": region, "cutoff": START, "bucket_minutes": 10}
        | {"bucket_start": START + timedelta(minutes=10 * n), "actual_per_s": 4.0}
        | {"forecast_per_s": 5.0 + n if method == "last_value" else 3.0}
        | {"p50_per_s": 4.0, "p90_per_s": 5.0, "p95_per_s": 6.0, "peak_p90_per_s": 5.0, "cpu_s": 0.5}
        for method in ("last_value", "seasonal_naive") for region in REGIONS for n in range(6)
    ]  # fmt: skip
    lake.write("backtests", rows("backtests", backtests), trace="wired", tier="interactive", day=DAY)


def write_prefixes(lake: Lake) -> None:
    """A trace whose requests tell the blocks of their prompts."""
    requests = lake.read("requests", **TRACE_DAY).drop_columns(["trace", "day"]).slice(0, 8)
    hashes = pa.array([[1, 2, 3], [1, 2], [1, 2, 3, 4], None] * 2, pa.list_(pa.uint64()))
    at = requests.column_names.index("prefix_hashes")
    lake.write("requests", requests.set_column(at, "prefix_hashes", hashes), trace="hashed", day=DAY)


def write_short_plans(lake: Lake) -> None:
    """Two hours in which regions are short, one in which an llm is, and one that lacks next to nothing."""
    plans = lake.read("plans", **TRACE_DAY).drop_columns(["trace", "day"]).to_pandas()
    short = (plans["policy"] == "lt_i") & (plans["hour_start"].dt.hour.isin([3, 4]))
    plans.loc[short, "short_tokens_per_s"] = np.arange(short.sum()) * 100.0
    plans.loc[(plans["policy"] == "lt_i") & (plans["hour_start"].dt.hour == 6), "short_tokens_per_s"] = 0.4
    alone = (plans["policy"] == "corrected") & (plans["hour_start"].dt.hour == 5)
    plans.loc[alone, "short_llm_tokens_per_s"] = 1234.0
    table = pa.Table.from_pandas(plans, preserve_index=False)
    lake.write("plans", table, **TRACE_DAY)
