"""Every recipe of sql/queries answers its question: counted once more with pandas, on rows that it must find.

The lake is wired.py's scored day, with tables of other commands and some days of a week before written by
hand, so that no recipe may be empty.
"""

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from wired import DAY, LLMS, REGIONS

from assets.lake.schemas import SCHEMAS
from assets.lake.settings import Settings
from assets.lake.sql_files import SQL, read_sql
from assets.lake.warehouse import Lake
from models.characterise.gaps import FAMILIES

Frame = pd.DataFrame
START = datetime(2025, 7, 3, tzinfo=UTC)
ASKED = {"trace": "wired", "day": DAY}
TWINS: dict[str, tuple[Callable[["Tables"], Frame], dict[str, Any]]] = {}


def twin(**params: Any) -> Callable[[Callable[["Tables"], Frame]], Callable[["Tables"], Frame]]:
    """Register a function as what the recipe of its name must answer, asked with these parameters."""

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


@pytest.fixture(scope="module")
def tables(wired_scored: Settings, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    lake = Lake(tmp_path_factory.mktemp("recipes") / "lake")
    shutil.copytree(wired_scored.lake.root, lake.root)
    rng = np.random.default_rng(3)
    place = {"region": "north", "llm": LLMS[0], "tier": "iw_fast"}
    for day in (date(2025, 6, 24), date(2025, 6, 26), date(2025, 6, 28)):  # the last one is a Saturday
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        minutes = [
            place | {"region": region, "app": app, "bucket_start": midnight + timedelta(minutes=minute)}
            | {"tier": tier, "requests": int(rng.integers(1, 9))}
            | {"input_tokens": int(rng.integers(1, 999)), "output_tokens": int(rng.integers(1, 99))}
            for region in REGIONS for app in ("rag", "chat") for tier in ("iw_fast", "niw")
            for minute in rng.choice(1440, 90, replace=False).tolist()
        ]  # fmt: skip
        lake.write("demand", rows("demand", minutes), trace="wired", day=day)
    parts = [place | {"app": app, "requests_per_s": n, "skill_120min": s} for n, (app, s) in
             enumerate([("rag", 0.25), ("chat", 0.75), ("mail", None)])]  # fmt: skip
    lake.write("characterisation", rows("characterisation", parts), trace="wired")
    episodes = [
        place | {"app": f"app{n}", "kind": ("burst", "change")[n % 7 == 0], "starts_at": START, "minutes": n}
        | {"extra_requests": float(n * 37 % 101), "ratio": 1.5} for n in range(30)
    ]  # fmt: skip
    lake.write("episodes", rows("episodes", episodes), trace="wired")
    windows = [
        place | {"app": f"app{n % 25}", "level": ("client", "pooled")[n % 3 == 0], "gaps": 30 + n}
        | {"window_start": START + timedelta(minutes=10 * n), "cv": 0.5 + (n * 7 % 11) / 4}
        | {f"{f}_p": None if n % 5 == 0 else (n * k % 13) / 100 for k, f in enumerate(FAMILIES, start=2)}
        | {f"{f}_distance": (n * k % 17) / 50 for k, f in enumerate(FAMILIES, start=3)} for n in range(120)
    ]  # fmt: skip
    lake.write("arrival_windows", rows("arrival_windows", windows), **ASKED)
    steps = [
        {"tier": "niw", "llm": llm, "app": app, "kind": kind, "tokens": float(tokens)}
        | {"requests": int(rng.integers(1, 99))} for app in ("rag", "chat") for kind in ("input", "output")
        for llm in LLMS for tokens in range(10, 410, 10)
    ]  # fmt: skip
    lake.write("token_histogram", rows("token_histogram", steps), **ASKED)
    trials = [
        {"method": method, "tier": "iw_fast", "capacity_share": share, "usd": usd, "boot_usd": 1.0}
        | {"gpu_hours": usd, "attainment_share": met, "missed_share": 0.0, "matched_share": 0.95}
        for method, base in (("truth", 20.0), ("last_value", 30.0), ("seasonal_naive", 25.0))
        for share, usd, met in ((1.0, base, 0.98), (1.2, base - 5, 0.92))
    ]
    lake.write("decisions", rows("decisions", trials), **ASKED)
    backtests = [
        {"method": method, "llm": LLMS[0], "region": region, "cutoff": START, "bucket_minutes": 10}
        | {"bucket_start": START + timedelta(minutes=10 * n), "actual_per_s": 4.0}
        | {"forecast_per_s": 5.0 + n if method == "last_value" else 3.0}
        | {"p50_per_s": 4.0, "p90_per_s": 5.0, "p95_per_s": 6.0, "peak_p90_per_s": 5.0, "cpu_s": 0.5}
        for method in ("last_value", "seasonal_naive") for region in REGIONS for n in range(6)
    ]  # fmt: skip
    lake.write("backtests", rows("backtests", backtests), trace="wired", tier="interactive", day=DAY)
    requests = lake.read("requests", **ASKED).drop_columns(["trace", "day"]).slice(0, 8)
    hashes = pa.array([[1, 2, 3], [1, 2], [1, 2, 3, 4], None] * 2, pa.list_(pa.uint64()))
    at = requests.column_names.index("prefix_hashes")
    lake.write("requests", requests.set_column(at, "prefix_hashes", hashes), trace="hashed", day=DAY)
    plans = lake.read("plans", **ASKED).drop_columns(["trace", "day"]).to_pandas()
    short = (plans["policy"] == "lt_i") & (plans["hour_start"].dt.hour.isin([3, 4]))
    plans.loc[short, "short_tokens_per_s"] = np.arange(short.sum()) * 100.0
    alone = (plans["policy"] == "corrected") & (plans["hour_start"].dt.hour == 5)
    plans.loc[alone, "short_llm_tokens_per_s"] = 1234.0
    table = pa.Table.from_pandas(plans, preserve_index=False)
    lake.write("plans", table, **ASKED)
    return Tables(lake)


def shown(frame: Frame) -> Frame:
    """A frame of the trace of this file only."""
    return frame[frame["trace"] == "wired"] if "trace" in frame else frame


def summed(frame: Frame, keys: list[str], **columns: Any) -> Frame:
    return frame.groupby(keys, as_index=False).agg(**columns)


def ranked(frame: Frame, by: str, within: list[str], tie: list[str], most: int) -> Frame:
    """The `most` rows with the largest `by` of each group; ties by the columns `tie`."""
    order = frame.sort_values([by, *tie], ascending=[False] + [True] * len(tie), kind="stable")
    return order.groupby(within, sort=False).head(most)


def attained(frame: Frame, keys: list[str]) -> Frame:
    of = summed(frame, keys, requests=("requests", "sum"), met=("met", "sum"), pending=("pending", "sum"))
    return of.assign(share=of["met"] / (of["requests"] - of["pending"]))


# --- the load ------------------------------------------------------------------------------------------


def hourly(t: Tables) -> Frame:
    demand = shown(t.demand)
    demand["hour_start"] = demand["bucket_start"].dt.floor("h")
    demand["tokens"] = demand["input_tokens"] + demand["output_tokens"]
    return demand


@twin()
def busiest_hours(t: Tables) -> Frame:
    hours = summed(hourly(t), ["trace", "tier", "hour_start"], requests=("requests", "sum"))
    hours = hours.assign(weekday=hours["hour_start"].dt.isocalendar().day, hour=hours["hour_start"].dt.hour)
    week = summed(hours, ["trace", "tier", "weekday", "hour"], requests_per_s=("requests", "mean"))
    week["requests_per_s"] /= 3600
    week = week.sort_values(["requests_per_s", "weekday", "hour"], ascending=[False, True, True])
    week["place"] = week.groupby("tier").cumcount() + 1
    last = week.groupby("tier")["place"].transform("max")
    return week[(week["place"] <= 3) | (week["place"] == last)]


@twin()
def heaviest_requests(t: Tables) -> Frame:
    parts = summed(
        hourly(t), ["trace", "tier", "llm", "region"], requests=("requests", "sum"), tokens=("tokens", "sum")
    )
    each = parts["tokens"] / parts["requests"]
    mean = parts["tokens"].sum() / parts["requests"].sum()
    return parts.assign(tokens_per_request=each, of_mean=each / mean).drop(columns="tokens")


@twin()
def weekend_by_region(t: Tables) -> Frame:
    days = summed(hourly(t), ["trace", "tier", "region", "day"], requests=("requests", "sum"))
    is_weekend = pd.to_datetime(days["day"]).dt.dayofweek >= 5
    keys = ["trace", "tier", "region"]
    work = summed(days[~is_weekend], keys, working_day_requests=("requests", "mean"))
    rest = summed(days[is_weekend], keys, weekend_day_requests=("requests", "mean"))
    both = work.merge(rest, on=keys, how="left")
    return both.assign(weekend_ratio=both["weekend_day_requests"] / both["working_day_requests"])


@twin()
def room_at_night(t: Tables) -> Frame:
    load = hourly(t).assign(is_niw=lambda f: f["tier"] == "niw")
    hours = load.pivot_table(
        index=["trace", "day", "region", "hour_start"], columns="is_niw", values="tokens", aggfunc="sum"
    )
    hours = hours.fillna(0.0).reset_index().rename(columns={False: "interactive", True: "niw"})
    days = summed(
        hours, ["trace", "day", "region"], peak_hour_tokens=("interactive", "max"),
        all=("interactive", "sum"), hours=("interactive", "size"), niw_tokens=("niw", "sum"),
    )  # fmt: skip
    days["room_tokens"] = days["hours"] * days["peak_hour_tokens"] - days["all"]
    return days.assign(niw_in_room=days["niw_tokens"] / days["room_tokens"]).drop(columns=["all", "hours"])


@twin()
def growth_by_week(t: Tables) -> Frame:
    hours = summed(hourly(t), ["trace", "app", "hour_start"], requests=("requests", "sum"))
    week = timedelta(days=7)
    recorded = set(hours["hour_start"])
    hours = hours[hours["hour_start"].map(lambda hour: hour - week in recorded or hour + week in recorded)]
    found = []
    for app, own in hours.groupby("app"):
        now = [hour for hour in sorted(recorded) if hour - week in recorded]
        by_hour = own.set_index("hour_start")["requests"]
        this, before = (sum(by_hour.get(hour - back, 0) for hour in now) for back in (timedelta(0), week))
        row = {"trace": "wired", "app": app, "week_start": pd.Timestamp("2025-06-30", tz="UTC")}
        row |= {"compared_hours": len(now), "requests": this, "requests_before": before}
        found.append(row | {"growth_share": this / before - 1})
    return Frame(found)


@twin(**{**ASKED, "day": date(2025, 6, 26)})
def who_drove_the_peak(t: Tables) -> Frame:
    load, found = hourly(t), []
    for region, own in load.groupby("region"):
        day = own[own["day"].astype(str) == "2025-06-26"]
        sums = day.groupby("hour_start")["requests"].sum()
        peak = sums[sums == sums.max()].index.min()
        others = own[(own["bucket_start"].dt.hour == peak.hour) & (own["hour_start"] != peak)]
        for app, part in day[day["hour_start"] == peak].groupby("app"):
            same = others[others["app"] == app]
            usual = same["requests"].sum() / same["day"].nunique() if len(same) else np.nan
            requests = part["requests"].sum()
            row = {"trace": "wired", "region": region, "app": app, "requests": requests}
            row |= {"usual_requests": usual, "extra_requests": requests - np.nan_to_num(usual)}
            found.append(row | {"request_share": requests / sums.max(), "hour_start": peak})
    return Frame(found)


@twin()
def tokens_by_app(t: Tables) -> Frame:
    found = []
    steps = summed(t.token_histogram, ["trace", "app", "kind", "tokens"], requests=("requests", "sum"))
    for (trace, app, kind), own in steps.groupby(["trace", "app", "kind"]):
        each = np.repeat(own["tokens"], own["requests"]).to_numpy()
        row = {"trace": trace, "app": app, "kind": kind, "requests": each.size}
        quantiles = {f"p{q}_tokens": np.quantile(each, q / 100, method="inverted_cdf") for q in (50, 95, 99)}
        found.append(row | quantiles)
    return Frame(found)


@twin()
def clumpiest_clients(t: Tables) -> Frame:
    keys = ["trace", "app", "region", "llm", "tier"]
    own = t.arrival_windows.query("level == 'client'").assign(all=lambda f: f["cv"] * f["gaps"])
    clients = summed(
        own, keys, all=("all", "sum"), gaps=("gaps", "sum"), largest_cv=("cv", "max"), windows=("cv", "size")
    )
    clients["gap_cv"] = clients["all"] / clients["gaps"]
    clients["gap_share"] = clients["gaps"] / clients["gaps"].sum()
    return ranked(clients, "gap_cv", ["trace"], keys, 20).drop(columns=["all", "gaps"])


@twin()
def poisson_or_not(t: Tables) -> Frame:
    own = t.arrival_windows.dropna(subset="exponential_p")
    for family in FAMILIES:
        own[f"{family}_ok"] = own[f"{family}_p"] >= 0.05
    said = {"exponential": "poisson"}
    return summed(
        own,
        ["trace", "level", "tier", "region", "llm", "app"],
        windows=("cv", "size"),
        **{f"{said.get(f, f)}_share": (f"{f}_ok", "mean") for f in FAMILIES},
        **{f"{said.get(f, f)}_distance": (f"{f}_distance", "median") for f in FAMILIES},
    )


@twin()
def largest_bursts(t: Tables) -> Frame:
    bursts = t.episodes.query("kind == 'burst'").drop(columns="kind")
    return bursts.sort_values("extra_requests", ascending=False).head(20)


@twin()
def level_changes(t: Tables) -> Frame:
    keys = ["trace", "tier", "region", "llm", "app", "starts_at", "ratio"]
    return t.episodes.query("kind == 'change'")[keys]


@twin()
def how_foreseeable(t: Tables) -> Frame:
    keys = ["trace", "tier", "region", "llm", "app", "requests_per_s", "skill_120min"]
    return t.characterisation[keys]


@twin()
def prefix_caching(t: Tables) -> Frame:
    """Four blocks of llm 0's and of llm 1's prompts, whichever requests have them."""
    prompts = t.requests.query("trace == 'hashed'").dropna(subset="prefix_hashes")
    found = []
    for llm, own in prompts.groupby("llm"):
        blocks = [block for hashes in own["prefix_hashes"] for block in hashes]
        row = {"trace": "hashed", "llm": llm, "requests": len(own)}
        reused = 1 - len(set(blocks)) / len(blocks)
        found.append(row | {"reuse_share": reused, "uses_per_block": len(blocks) / len(set(blocks))})
    return Frame(found)


# --- forecasts -----------------------------------------------------------------------------------------


@twin()
def forecast_errors(t: Tables) -> Frame:
    found = []
    naive: dict[str, float] = {}
    keys = ["trace", "measure", "tier", "llm", "method"]
    for (trace, measure, tier, llm, method), own in t.forecasts.groupby(keys):  # last_value before others
        hours = own.groupby(["region", "cutoff"])
        peak = hours["actual_per_s"].max()
        wape = (own["forecast_per_s"] - own["actual_per_s"]).abs().sum() / own["actual_per_s"].sum()
        naive |= {llm: wape} if method == "last_value" else {}
        row = {"trace": trace, "measure": measure, "tier": tier, "llm": llm, "method": method}
        row |= {"wape_share": wape, "under_share": (peak > hours["forecast_per_s"].max()).mean()}
        row |= {"peak_below_p90_share": (peak <= hours["peak_p90_per_s"].first()).mean()}
        found.append(row | {"note": "worse than the last value" if wape > naive[llm] else None})
    return Frame(found)


@twin()
def forecast_leaderboard(t: Tables) -> Frame:
    """The last value is 1, 2 ... 6 too high of 4, the season 1 too low, also at the peak."""
    row = {"trace": "wired", "tier": "interactive", "cpu_ms": 500.0}
    wape = {"last_value": {10: 1 / 4, 60: 21 / 24, 120: 21 / 24}}
    wape["seasonal_naive"] = dict.fromkeys((10, 60, 120), 1 / 4)
    return Frame(
        [
            row | {"method": method, "horizon_minutes": minutes, "wape_share": share}
            | {"under_share": float(method == "seasonal_naive")}
            for method, shares in wape.items() for minutes, share in shares.items()
        ]
    )  # fmt: skip


@twin()
def expected_traffic(t: Tables) -> Frame:
    keys = ["trace", "day", "method", "measure", "tier", "llm", "region", "cutoff"]
    return summed(
        t.forecasts, keys, expected=("forecast_per_s", "mean"), expected_p90=("peak_p90_per_s", "first"),
        came=("actual_per_s", "mean"),
    )  # fmt: skip


@twin()
def day_ahead_errors(t: Tables) -> Frame:
    """The day ahead is foreseen 1.4-fold and the hour ahead 1.1-fold, both with P90 above every peak."""
    keys = ["trace", "day", "method", "llm"]
    found = t.day_ahead_forecasts[keys].drop_duplicates()
    shares = {"hour_ahead_wape_share": 0.1, "day_ahead_wape_share": 0.4}
    held = {f"{made}_peak_below_p90_share": 1.0 for made in ("hour_ahead", "day_ahead")}
    return found.assign(**shares, **held)


@twin(**ASKED)
def which_forecast_pays(t: Tables) -> Frame:
    """Half way between 0.98 and 0.92 lies 0.95: halfway between the two costs."""
    costs = {"truth": 17.5, "last_value": 27.5, "seasonal_naive": 22.5}
    return Frame(
        [
            {"trace": "wired", "method": method, "gpu_hours": usd, "usd": usd, "boot_usd": 1.0}
            | {"over_truth_share": usd / 17.5 - 1, "saved_on_last_value_share": 1 - usd / 27.5}
            | {"saved_on_seasonal_naive_share": 1 - usd / 22.5, "forecast_usd": usd - 17.5}
            for method, usd in costs.items()
        ]
    )


# --- plans ---------------------------------------------------------------------------------------------


@twin(**ASKED, region="north")
def plan_by_hour(t: Tables) -> Frame:
    keys = ["trace", "day", "policy", "hour_start"]
    own = t.all_plans.query("region == 'north'")
    own["gpus"] = own["instances"] * own["gpus_per_instance"]
    own["load"] = (own["demand_tokens_per_s"] + own["buffer_tokens_per_s"]) / (
        own["instances"] * own["capacity_tokens_per_s"]
    ).replace(0, np.nan)
    counts = ("instances", "reclaimed", "started", "donated", "gpus", "usd")
    return summed(
        own, keys, **{name: (name, "sum") for name in counts}, fullest_share=("load", "max"),
        short_tokens_per_s=("short_tokens_per_s", "sum"),
        short_llm_tokens_per_s=("short_llm_tokens_per_s", "sum"),
    )  # fmt: skip


@twin(**ASKED, policy="corrected")
def plan_changes(t: Tables) -> Frame:
    own = t.all_plans.query("policy == 'corrected'")
    own = own[own[["reclaimed", "started", "donated"]].sum(axis=1) > 0]
    keys = ["trace", "day", "policy", "hour_start", "llm", "region", "gpu"]
    return own[[*keys, "instances_before", "instances", "reclaimed", "started", "donated", "why"]]


@twin(**ASKED)
def short_plans(t: Tables) -> Frame:
    plans, found = t.all_plans, []
    for policy, own in plans.groupby("policy"):
        regions = own[own["short_tokens_per_s"] > 0]
        whole = own[own["short_llm_tokens_per_s"] > 0].drop_duplicates(["hour_start", "llm"])
        whole = whole.assign(region="all regions", short_tokens_per_s=whole["short_llm_tokens_per_s"])
        short = pd.concat([regions, whole])
        if not len(short):
            continue
        short["missing_instances"] = np.ceil(
            short["short_tokens_per_s"] / short["capacity_tokens_per_s"]
        ).astype(int)
        short = short.sort_values(
            ["missing_instances", "hour_start", "llm", "region"], ascending=[False, True, True, True]
        )
        row = {"trace": "wired", "policy": policy, "short_hours": short["hour_start"].nunique()}
        worst = short.iloc[0]
        found.append(row | {name: worst[name] for name in ("region", "llm", "missing_instances")})
    return Frame(found)


@twin()
def shadow(t: Tables) -> Frame:
    where = ["hour_start", "llm", "region"]
    plan = t.plans.query("policy == 'corrected'").set_index(where)
    fleet = t.fleet_by_hour
    at = pd.MultiIndex.from_frame(fleet[where])
    fleet["plan_gpus"] = (plan["instances"] * plan["gpus_per_instance"]).reindex(at).to_numpy()
    fleet["plan_usd"] = plan["usd"].reindex(at).to_numpy()
    fleet["held_short"] = fleet["held_gpus"] < 0.8 * fleet["needed_gpus"]
    fleet["plan_short"] = fleet["plan_gpus"] < 0.8 * fleet["needed_gpus"]
    told = summed(
        fleet, ["trace", "day", "policy", "hour_start"], held_gpus=("held_gpus", "sum"),
        plan_gpus=("plan_gpus", "sum"), held_usd=("usd", "sum"), plan_usd=("plan_usd", "sum"),
        held_short_endpoints=("held_short", "sum"), plan_short_endpoints=("plan_short", "sum"),
    )  # fmt: skip
    return told.assign(saved_usd=told["held_usd"] - told["plan_usd"])


# --- replays -------------------------------------------------------------------------------------------


@twin()
def cost_by_llm(t: Tables) -> Frame:
    hours = t.fleet_hours
    states = ("serving", "booting", "draining", "donated")
    for state in states:
        hours[state] = hours[f"{state}_s"] * hours["gpus_per_instance"] / 3600
    hours["usd"] = hours[list(states[:3])].sum(axis=1) * hours["usd_per_gpu_hour"]
    sums = {f"{state}_gpu_hours": (state, "sum") for state in states}
    return summed(hours, ["trace", "day", "policy", "llm"], usd=("usd", "sum"), **sums)


@twin()
def policies_over_days(t: Tables) -> Frame:
    board = t.scoreboard.assign(replayed_days=1)
    board["worst_llm_iw_fast_attainment_share"] = board["worst_llm_attainment_share"]
    board["worst_day_iw_fast_attainment_share"] = board["iw_fast_attainment_share"]
    sums = ["replayed_days", "gpu_hours", "left_gpu_hours", "usd"]
    shares = [f"{of}iw_fast_attainment_share" for of in ("", "worst_llm_", "worst_day_")]
    return board[["trace", "policy", *sums, *shares]]


@twin()
def served_elsewhere(t: Tables) -> Frame:
    own = t.outcomes.dropna(subset="served_region")
    keys = ["trace", "day", "policy", "tier", "region", "served_region"]
    counts = summed(
        own, keys, requests=("request_id", "size"), ttft_p95_s=("ttft_s", lambda s: s.quantile(0.95))
    )
    counts["share"] = counts["requests"] / counts.groupby(keys[:-1])["requests"].transform("sum")
    return counts


@twin(**ASKED, policy="lt_ua", llm=LLMS[0], region="south", hour=3)
def timeline(t: Tables) -> Frame:
    own = t.outcomes.query(
        f"policy == 'lt_ua' and llm == '{LLMS[0]}' and served_region == 'south' and status == 'finished'"
    )
    own = own[own["arrived_at"].dt.hour == 3]
    arrival_s = (own["arrived_at"] - START).dt.total_seconds()
    told = {
        "queued_from_s": arrival_s + own["held_s"],
        "prefill_from_s": arrival_s + own["held_s"] + own["waited_s"],
        "decode_from_s": arrival_s + own["ttft_s"] - own["network_s"],
        "finished_s": arrival_s + own["e2e_s"] - own["network_s"],
    }
    return own[["policy", "request_id", "instance", "tier"]].assign(**told)


@twin(**ASKED)
def uneven_instances(t: Tables) -> Frame:
    own = t.outcomes.query("status == 'finished'").assign(
        tokens=lambda f: f["input_tokens"] + f["output_tokens"]
    )
    first = own["arrived_at"] + pd.to_timedelta((1e6 * own["ttft_s"]).round().astype("int64"), unit="us")
    own = own.assign(minute=first.dt.floor("min"), region=own["served_region"])
    minutes = summed(
        own, ["trace", "day", "policy", "region", "llm", "instance", "minute"], tokens=("tokens", "sum")
    )
    minutes["hour_start"] = minutes["minute"].dt.floor("h")
    quantiles = {
        f"p{q}_tokens": ("tokens", lambda tokens, q=q: tokens.quantile(q / 100)) for q in (50, 95, 99)
    }
    keys = ["trace", "day", "policy", "region", "llm", "hour_start"]
    return summed(minutes, keys, instances=("instance", "nunique"), **quantiles)


@twin()
def what_the_forecast_is_worth(t: Tables) -> Frame:
    board = t.scoreboard
    (base,) = board.query("policy == 'reactive'").to_dict("records")
    return board[["trace", "day", "policy", "gpu_hours", "missed_share"]].assign(
        saved_gpu_hours=base["gpu_hours"] - board["gpu_hours"],
        saved_usd=base["usd"] - board["usd"],
        fewer_missed_share=base["missed_share"] - board["missed_share"],
    )


@twin(**ASKED)
def why_late(t: Tables) -> Frame:
    every, found = t.outcomes, []
    us = pd.Timedelta(microseconds=1)
    every["joined"] = every["arrived_at"] + (1e6 * every["held_s"]).round() * us
    every["answered"] = every["arrived_at"] + (1e6 * (every["ttft_s"] - every["network_s"])).round() * us
    booting = t.fleet_hours.set_index(["policy", "llm", "region", "hour_start"])["booting_s"] / 3600
    for policy, own in every.groupby("policy"):
        late = own[own["tier"] != "niw"].sort_values("ttft_s", ascending=False).head(5)
        for one in late.itertuples():
            same = own[(own["instance"] == one.instance) & (own["request_id"] != one.request_id)]
            ahead = same[(same["joined"] <= one.joined) & (same["answered"] > one.joined)]
            row = {"policy": policy, "request_id": one.request_id, "ttft_s": one.ttft_s, "ahead": len(ahead)}
            row |= {name: getattr(one, name) for name in ("held_s", "waited_s", "prefill_s", "network_s")}
            at = (policy, one.llm, one.served_region, one.arrived_at.floor("h"))
            found.append(row | {"booting": booting[at]})
    return Frame(found)


@twin()
def worst_hours(t: Tables) -> Frame:
    keys = ["trace", "day", "policy", "llm", "region", "hour_start"]
    own = t.scorecard.query("tier != 'niw'")
    hours = summed(
        own,
        keys,
        requests=("requests", "sum"),
        missed=("missed", "sum"),
        worst_ttft_p95_s=("ttft_p95_s", "max"),
    )
    hours["missed_share"] = hours["missed"].astype(float) / hours["requests"].astype(float)
    return ranked(hours[hours["missed"] > 0], "missed", keys[:3], keys[3:], 20)


# --- the tests -----------------------------------------------------------------------------------------


def test_every_recipe_has_a_twin() -> None:
    assert sorted(TWINS) == sorted(path.stem for path in (SQL / "queries").glob("*.sql"))


@pytest.mark.parametrize("name", TWINS)
def test_a_recipe_answers_what_pandas_counts(tables: Tables, name: str) -> None:
    function, params = TWINS[name]
    found = tables.lake.sql(f"queries/{name}.sql", **params).to_pandas()
    if name != "prefix_caching":
        found = shown(found)
    expected = function(tables).reset_index(drop=True)
    grain = [key for key in read_sql(f"queries/{name}.sql").listed("grain") if key in expected.columns]
    assert len(found) == len(expected) > 0
    both = found.merge(expected, on=grain, suffixes=("", "_twin"), validate="one_to_one")
    assert len(both) == len(found)
    values = [column for column in expected.columns if column not in grain]
    assert values
    for column in values:
        ours, theirs = both[column], both[f"{column}_twin"]
        if ours.dtype.kind in "if" and theirs.dtype.kind in "if":
            np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=1e-9, err_msg=column)
        else:
            assert ours.fillna("").astype(str).tolist() == theirs.fillna("").astype(str).tolist(), column
