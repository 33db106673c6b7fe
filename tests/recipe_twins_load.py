"""The twins of the recipes about load and forecasts."""

from datetime import date, timedelta

import numpy as np
import pandas as pd
from recipe_lake import TRACE_DAY, Frame, Tables, ranked, summed, twin

from fleetcast.models.characterise.gap_families import GAP_FAMILIES


def shown(frame: Frame) -> Frame:
    """Rows of the trace in question; there is another one, for the prompts."""
    return frame[frame["trace"] == "wired"]


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
    hours = hours.fillna(0.0).reset_index().rename(columns={False: "interactive", True: "held"})
    days = summed(
        hours, ["trace", "day", "region"], peak_hour_tokens=("interactive", "max"),
        all=("interactive", "sum"), hours=("interactive", "size"), held_tokens=("held", "sum"),
    )  # fmt: skip
    days["room_tokens"] = days["hours"] * days["peak_hour_tokens"] - days["all"]
    return days.assign(held_in_room=days["held_tokens"] / days["room_tokens"]).drop(columns=["all", "hours"])


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


@twin(**{**TRACE_DAY, "day": date(2025, 6, 26)})
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
    own = t.arrival_windows.query("stream_kind == 'client'").assign(all=lambda f: f["cv"] * f["gaps"])
    clients = summed(
        own, keys, all=("all", "sum"), gaps=("gaps", "sum"), largest_cv=("cv", "max"), windows=("cv", "size")
    )
    clients["gap_cv"] = clients["all"] / clients["gaps"]
    clients["gap_share"] = clients["gaps"] / clients["gaps"].sum()
    return ranked(clients, "gap_cv", ["trace"], keys, 20).drop(columns=["all", "gaps"])


@twin()
def poisson_or_not(t: Tables) -> Frame:
    own = t.arrival_windows.dropna(subset="exponential_p")
    for family in GAP_FAMILIES:
        own[f"{family}_ok"] = own[f"{family}_p"] >= 0.05
    names_of = {"exponential": "poisson"}
    return summed(
        own,
        ["trace", "stream_kind", "tier", "region", "llm", "app"],
        windows=("cv", "size"),
        **{f"{names_of.get(f, f)}_share": (f"{f}_ok", "mean") for f in GAP_FAMILIES},
        **{f"{names_of.get(f, f)}_distance": (f"{f}_distance", "median") for f in GAP_FAMILIES},
    )


@twin()
def largest_bursts(t: Tables) -> Frame:
    bursts = t.episodes.query("episode_kind == 'burst'").drop(columns="episode_kind")
    return bursts.sort_values("extra_requests", ascending=False).head(20)


@twin()
def level_changes(t: Tables) -> Frame:
    keys = ["trace", "tier", "region", "llm", "app", "starts_at", "ratio"]
    return t.episodes.query("episode_kind == 'change'")[keys]


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
    naive: dict[tuple[str, str, str], float] = {}
    keys = ["trace", "measure", "tier", "llm", "method"]
    for (trace, measure, tier, llm, method), own in t.forecasts.groupby(keys):  # last_value before others
        hours = own.groupby(["region", "cutoff"])
        peak = hours["actual_per_s"].max()
        wape = (own["forecast_per_s"] - own["actual_per_s"]).abs().sum() / own["actual_per_s"].sum()
        naive |= {(measure, tier, llm): wape} if method == "last_value" else {}
        row = {"trace": trace, "measure": measure, "tier": tier, "llm": llm, "method": method}
        row |= {"wape_share": wape, "under_share": (peak > hours["forecast_per_s"].max()).mean()}
        row |= {"peak_below_p90_share": (peak <= hours["peak_p90_per_s"].first()).mean()}
        found.append(
            row | {"note": "worse than the last value" if wape > naive[measure, tier, llm] else None}
        )
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


@twin(**TRACE_DAY)
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
