"""The twins of the recipes about plans and replays."""

import numpy as np
import pandas as pd
from recipe_lake import START, TRACE_DAY, Frame, Tables, ranked, summed, twin
from wired import LLMS

# --- plans ---------------------------------------------------------------------------------------------


@twin(**TRACE_DAY, region="north")
def plan_by_hour(t: Tables) -> Frame:
    keys = ["trace", "day", "policy", "hour_start"]
    own = t.all_plans.query("served_region == 'north'")
    own["gpus"] = own["instances"] * own["gpus_per_instance"]
    load = own["demand_tokens_per_s"] + own["buffer_tokens_per_s"]
    own["load"] = load / own["sustained_tokens_per_s"].replace(0, np.nan)
    counts = ("instances", "reclaimed", "started", "donated", "gpus", "usd")
    return summed(
        own, keys, **{name: (name, "sum") for name in counts}, fullest_share=("load", "max"),
        short_tokens_per_s=("short_tokens_per_s", "sum"),
        short_llm_tokens_per_s=("short_llm_tokens_per_s", "sum"),
    )  # fmt: skip


@twin(**TRACE_DAY)
def graded_shadow(t: Tables) -> Frame:
    keys = ["hour_start", "llm", "role", "served_region", "gpu", "gpus_per_instance"]
    own, best = (
        t.plans.query(f"policy == '{policy}'").set_index(keys) for policy in ("day_ahead", "clairvoyant")
    )
    ran = t.ran_fleets.set_index(keys)["instances"].reindex(own.index)
    need, plan = best["instances"].reindex(own.index), own["instances"]
    gpus = own.index.get_level_values("gpus_per_instance")
    dear = (own["usd"] / plan.replace(0, np.nan)).groupby(level=["gpu", "gpus_per_instance"]).transform("max")
    each = (own["usd"] / plan.replace(0, np.nan)).fillna(dear)
    table = {
        "trace": "wired", "day": own["day"].iloc[0], "policy": "day_ahead", "covered_hours": 24,
        "saved_gpu_hours": ((ran - plan) * gpus).sum(), "saved_usd": ((ran - plan) * each).sum(),
        "advised_short_hours": (plan < need).sum(), "ran_short_hours": (ran < need).sum(),
    }  # fmt: skip
    names = ("least_gained_tier", "gained_share", "replay_error_share", "is_beyond_error")
    return Frame([table | dict(zip(names, ("iw_normal", 0.005, 0.09, False), strict=True))])


@twin(**TRACE_DAY)
def energy_and_usd(t: Tables) -> Frame:
    """Bloom on 8 x A100 was measured at 254 W a board; of llama2-70b on H100 nothing is known."""
    keys, hours = ["trace", "day", "policy", "llm"], t.fleet_hours
    hours["serving_gpu_hours"] = hours["serving_s"] * hours["gpus_per_instance"] / 3600
    paid_s = hours["serving_s"] + hours["booting_s"] + hours["draining_s"]
    hours["usd"] = paid_s * hours["gpus_per_instance"] / 3600 * hours["usd_per_gpu_hour"]
    own = summed(hours, keys, serving_gpu_hours=("serving_gpu_hours", "sum"), usd=("usd", "sum"))
    own["kwh"] = np.where(own["llm"] == "bloom-176b", 0.254 * own["serving_gpu_hours"], np.nan)
    ended = t.outcomes[t.outcomes["e2e_s"].notna()]
    tokens = (
        ended.assign(llm=ended["served_llm"], tokens=ended["input_tokens"] + ended["output_tokens"])
        .groupby(keys)["tokens"].sum()
    )  # fmt: skip
    row_keys = own.set_index(keys).index
    own["joules_per_token"] = 3.6e6 * own["kwh"] / tokens.reindex(row_keys).to_numpy()
    return own


@twin(**TRACE_DAY)
def what_to_buy(t: Tables) -> Frame:
    own = t.commitments
    none = own[own["reserved_gpus"] == 0].set_index("served_region")
    bought = none["on_demand_gpu_hours"] + none["spot_gpu_hours"]
    best = own[own["is_best"]].merge(t.lost_pools, on=["trace", "day", "served_region", "gpu"])
    best["saved_share"] = 1 - best["usd_per_week"] / best["served_region"].map(bought * none["on_demand_usd"])
    names = ["reserved_gpus", "on_demand_gpu_hours", "spot_gpu_hours", "usd_per_week", "saved_share"]
    best = best.rename(columns={"short_gpus": "lost_short_gpus"})
    return best[["trace", "day", "served_region", "gpu", *names, "worst_regret_usd", "lost_short_gpus"]]


@twin(**TRACE_DAY)
def which_gpus(t: Tables) -> Frame:
    keys, found = ["trace", "day", "llm", "fleet"], []
    for key, own in t.gpu_fleets.groupby(keys):
        parts = [f"{n} x ({name})" for name, n in sorted(zip(own["option"], own["options"], strict=True))]
        found.append(
            dict(zip(keys, key, strict=True))
            | {"rented": " + ".join(parts), "gpus": own["gpus"].sum(), "is_best": own["is_best"].any()}
            | {"usd_per_hour": own["fleet_usd_per_hour"].iloc[0]}
        )
    return Frame(found)


@twin(**TRACE_DAY)
def apart_or_together(t: Tables) -> Frame:
    found = []
    for llm, own in t.gpu_prices.groupby("llm"):
        fleets = t.gpu_fleets.query("llm == @llm").groupby("fleet")["fleet_usd_per_hour"].first()
        whole = fleets.drop("combos", errors="ignore").min()
        found.append(
            {"trace": "wired", "day": own["day"].iloc[0], "llm": llm, "together_usd": whole}
            | {"prefill_gpu": own.loc[own["usd_per_million_input_tokens"].idxmin(), "gpu"]}
            | {"decode_gpu": own.loc[own["usd_per_million_output_tokens"].idxmin(), "gpu"]}
            | {"saved_share": 1 - fleets.get("combos", np.nan) / whole}
        )
    return Frame(found)


@twin(**TRACE_DAY, policy="corrected")
def plan_changes(t: Tables) -> Frame:
    own = t.all_plans.query("policy == 'corrected'")
    own = own[own[["reclaimed", "started", "donated"]].sum(axis=1) > 0]
    keys = ["trace", "day", "policy", "hour_start", "llm", "served_region", "gpu"]
    return own[[*keys, "instances_before", "instances", "reclaimed", "started", "donated", "why"]]


@twin(**TRACE_DAY)
def short_plans(t: Tables) -> Frame:
    plans, found = t.all_plans, []
    for policy, own in plans.groupby("policy"):
        regions = own[own["short_tokens_per_s"] > 0.01 * own["capacity_tokens_per_s"]]
        whole = own[own["short_llm_tokens_per_s"] > 0.01 * own["capacity_tokens_per_s"]].drop_duplicates(
            ["hour_start", "llm"]
        )
        whole = whole.assign(served_region="all regions", short_tokens_per_s=whole["short_llm_tokens_per_s"])
        short = pd.concat([regions, whole])
        if not len(short):
            continue
        short["missing_instances"] = np.ceil(
            short["short_tokens_per_s"] / short["capacity_tokens_per_s"]
        ).astype(int)
        short = short.sort_values(
            ["missing_instances", "hour_start", "llm", "served_region"], ascending=[False, True, True, True]
        )
        row = {"trace": "wired", "policy": policy, "short_hours": short["hour_start"].nunique()}
        worst = short.iloc[0]
        found.append(row | {name: worst[name] for name in ("served_region", "llm", "missing_instances")})
    return Frame(found)


@twin()
def shadow(t: Tables) -> Frame:
    where = ["hour_start", "llm", "served_region"]
    plan = t.plans.query("policy == 'corrected'").set_index(where)
    fleet = t.fleet_by_hour.copy()
    at = pd.MultiIndex.from_frame(fleet[where])
    fleet["plan_gpus"] = (plan["instances"] * plan["gpus_per_instance"]).reindex(at).to_numpy()
    fleet["plan_usd"] = plan["usd"].reindex(at).to_numpy()
    fleet["held_short"] = fleet["held_gpus"] < 0.8 * fleet["needed_gpus"]
    fleet["plan_short"] = fleet["plan_gpus"] < 0.8 * fleet["needed_gpus"]
    table = summed(
        fleet, ["trace", "day", "policy", "hour_start"], held_gpus=("held_gpus", "sum"),
        plan_gpus=("plan_gpus", "sum"), held_usd=("usd", "sum"), plan_usd=("plan_usd", "sum"),
        held_short_endpoints=("held_short", "sum"), plan_short_endpoints=("plan_short", "sum"),
    )  # fmt: skip
    return table.assign(saved_usd=table["held_usd"] - table["plan_usd"])


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
    board["worst_day_attainment_share"] = board["attainment_share"]
    sums = ["replayed_days", "gpu_hours", "backlog_gpu_hours", "usd"]
    shares = [f"{of}attainment_share" for of in ("", "worst_llm_", "worst_day_")]
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


@twin(**TRACE_DAY, policy="lt_ua", llm=LLMS[0], region="south", hour=3)
def timeline(t: Tables) -> Frame:
    own = t.outcomes.query(
        f"policy == 'lt_ua' and llm == '{LLMS[0]}' and served_region == 'south' and status == 'finished'"
    )
    own = own[own["arrived_at"].dt.hour == 3]
    arrival_s = (own["arrived_at"] - START).dt.total_seconds()
    table = {
        "queued_from_s": arrival_s + own["held_s"],
        "prefill_from_s": arrival_s + own["held_s"] + own["waited_s"],
        "decode_from_s": arrival_s + own["ttft_s"] - own["network_s"],
        "finished_s": arrival_s + own["e2e_s"] - own["network_s"],
    }
    table["handed_from_s"] = table["queued_from_s"]
    return own[["policy", "request_id", "instance", "tier"]].assign(leg=1, role="whole", **table)


@twin(**TRACE_DAY)
def request_legs(t: Tables) -> Frame:
    found = []
    for _, own in t.legs.groupby("policy"):
        longest = summed(own.dropna(subset="hand_over_s"), ["request_id"], most=("hand_over_s", "max"))
        slowest = longest.sort_values(["most", "request_id"], ascending=[False, True]).head(5)
        found.append(own[own["request_id"].isin(slowest["request_id"])].drop(columns=["trace", "day"]))
    return pd.concat(found)


@twin(**TRACE_DAY)
def links_busy(t: Tables) -> Frame:
    keys = ["policy", "request_id"]
    row_keys = t.requests[t.requests["day"].astype(str) == str(TRACE_DAY["day"])][
        ["request_id", "arrived_at"]
    ]
    got = t.legs.dropna(subset="link_s").merge(row_keys, on="request_id")
    came = got["arrived_at"] + pd.to_timedelta((1e6 * got["came_s"]).round().astype("int64"), unit="us")
    got["hour_start"] = came.dt.floor("h")
    gave = t.legs.merge(
        got.assign(leg=got["leg"] - 1)[[*keys, "leg", "link_s", "hand_over_s", "hour_start"]],
        on=[*keys, "leg"],
        suffixes=("_own", ""),
    )
    ends = pd.concat([got, gave])
    table = []
    for at, own in ends.groupby(["policy", "hour_start", "served_region", "llm", "role", "gpu"]):
        busy = own.groupby("instance")["link_s"].sum() / 3600
        figures = {
            "links": len(busy),
            "caches": len(own),
            "busy_share": busy.mean(),
            "busiest_share": busy.max(),
        }
        middle, late = (np.quantile(own["hand_over_s"], q, method="inverted_cdf") for q in (0.5, 0.95))
        of = dict(zip(["policy", "hour_start", "served_region", "llm", "role", "gpu"], at, strict=True))
        table.append(of | figures | {"hand_over_p50_s": middle, "hand_over_p95_s": late})
    return pd.DataFrame(table)


@twin(**TRACE_DAY)
def uneven_instances(t: Tables) -> Frame:
    own = t.outcomes.query("status == 'finished'").assign(
        tokens=lambda f: f["input_tokens"] + f["output_tokens"]
    )
    first = own["arrived_at"] + pd.to_timedelta((1e6 * own["ttft_s"]).round().astype("int64"), unit="us")
    own = own.assign(minute=first.dt.floor("min"))
    keys = ["trace", "day", "policy", "served_region", "llm"]
    minutes = summed(own, [*keys, "instance", "minute"], tokens=("tokens", "sum"))
    minutes["hour_start"] = minutes["minute"].dt.floor("h")
    quantiles = {
        f"p{q}_tokens": ("tokens", lambda tokens, q=q: tokens.quantile(q / 100)) for q in (50, 95, 99)
    }
    return summed(minutes, [*keys, "hour_start"], instances=("instance", "nunique"), **quantiles)


@twin(policy="reactive")
def latency_by_region(t: Tables) -> Frame:
    own = t.outcomes.query("policy == 'reactive' and status == 'finished'")
    shares = {f"p{q}_s": ("e2e_s", lambda e2e_s, q=q: e2e_s.quantile(q / 100)) for q in (5, 25, 50, 75, 95)}
    keys = ["trace", "day", "policy", "tier", "served_region"]
    return summed(own, keys, requests=("e2e_s", "size"), mean_s=("e2e_s", "mean"), **shares)


def busiest_hour(own: Frame) -> Frame:
    hours = own["arrived_at"].dt.floor("h")
    counts = hours.value_counts()
    return own[hours == counts[counts == counts.max()].index.min()].assign(
        minute=lambda f: f["arrived_at"].dt.floor("min")
    )


@twin(policy="lt_ua")
def peak_hour_latency(t: Tables) -> Frame:
    own = busiest_hour(t.outcomes.query("policy == 'lt_ua' and status == 'finished'"))
    keys = ["trace", "day", "policy", "tier", "minute"]
    wait = {"mean_s": ("e2e_s", "mean"), "deviation_s": ("e2e_s", "std")}
    return summed(own, keys, requests=("e2e_s", "size"), **wait)


@twin(policy="lt_ua")
def peak_hour_instances(t: Tables) -> Frame:
    own = busiest_hour(t.outcomes.query("policy == 'lt_ua' and status == 'finished'"))
    own = own.assign(tokens=own["input_tokens"] + own["output_tokens"])
    own = own.assign(llm=own["served_llm"])
    keys = ["trace", "day", "policy", "served_region", "llm", "minute"]
    each = summed(own, [*keys, "instance"], tokens=("tokens", "sum"))
    shares = {f"p{q}_tokens": ("tokens", lambda sums, q=q: sums.quantile(q / 100)) for q in (50, 95, 99)}
    return summed(each, keys, instances=("instance", "size"), **shares)


@twin()
def what_the_forecast_is_worth(t: Tables) -> Frame:
    board = t.scoreboard
    (base,) = board.query("policy == 'reactive'").to_dict("records")
    return board[["trace", "day", "policy", "gpu_hours", "missed_share"]].assign(
        saved_gpu_hours=base["gpu_hours"] - board["gpu_hours"],
        saved_usd=base["usd"] - board["usd"],
        fewer_missed_share=base["missed_share"] - board["missed_share"],
    )


@twin(**TRACE_DAY)
def why_late(t: Tables) -> Frame:
    first = (
        t.legs.dropna(subset="first_token_s")
        .sort_values("leg")
        .drop_duplicates(["policy", "request_id"], keep="last")
    )
    first = first.set_index(["policy", "request_id"])[
        "instance"
    ].to_dict()  # where several had it: that which made its first token
    every, found = t.outcomes, []
    there = pd.Series(
        [first.get(key) for key in zip(every["policy"], every["request_id"], strict=True)], every.index
    )
    every["instance"] = there.astype(float).fillna(every["instance"])
    us = pd.Timedelta(microseconds=1)
    every["joined"] = every["arrived_at"] + (1e6 * every["held_s"]).round() * us
    every["answered"] = every["arrived_at"] + (1e6 * (every["ttft_s"] - every["network_s"])).round() * us
    booting = t.fleet_hours.set_index(["policy", "llm", "served_region", "hour_start"])["booting_s"] / 3600
    first_token = (every["ttft_s"] / every["ttft_slo_s"]).fillna(
        np.inf
    )  # the wired tiers have no TPOT target
    every["target_ratio"] = first_token.where(
        every["ttft_slo_s"].notna(), every["e2e_s"] / every["deadline_s"]
    )
    for policy, own in every.groupby("policy"):
        late = own[(own["tier"] != "niw") & (own["target_ratio"] > 1)]
        late = late.sort_values("target_ratio", ascending=False).head(3)
        for one in late.itertuples():
            same = own[(own["instance"] == one.instance) & (own["request_id"] != one.request_id)]
            ahead = same[(same["joined"] <= one.joined) & (same["answered"] > one.joined)]
            row = {"policy": policy, "request_id": one.request_id, "ttft_s": one.ttft_s, "ahead": len(ahead)}
            row["target_ratio"] = one.target_ratio
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
        worst_ttft_p95_s=("ttft_p95_s", lambda s: s.max(skipna=False)),
    )
    hours["missed_share"] = hours["missed"].astype(float) / hours["requests"].astype(float)
    return ranked(hours[hours["missed"] > 0], "missed", keys[:3], keys[3:], 20)


# --- studies -------------------------------------------------------------------------------------------


@twin()
def against_the_paper(t: Tables) -> Frame:
    keys = ["study", "variant", "policy", "metric", "tier", "llm"]
    here = t.studies.set_index(keys)["value"].to_dict()
    here |= {(*k[:3], "missed_share", *k[4:]): 1 - v for k, v in here.items() if k[3] == "attainment_share"}
    found = t.paper_values.rename(columns={"value": "paper_value"})

    def value(row: pd.Series, metric: str) -> float:
        own, base = (here.get((row["study"], row["variant"], policy, metric, row["tier"], row["llm"]), np.nan)
                     for policy in (row["policy"], row["against"]))  # fmt: skip
        return own if pd.isna(row["against"]) else own / base - 1

    found["fleetcast_value"] = [value(row, row["metric"]) for _, row in found.iterrows()]
    is_counted = found["metric"] == "quarter_instance_hours"
    integral = pd.Series([value(row, "instance_hours") for _, row in found.iterrows()])
    found["fleetcast_integral"] = integral.where(is_counted)
    is_share = found["against"].notna() | found["metric"].str.endswith("_share")
    apart = found["fleetcast_value"] - found["paper_value"]
    found["off"] = apart.where(is_share, found["fleetcast_value"] / found["paper_value"] - 1)
    return found.replace({np.nan: None}).astype(
        {"fleetcast_value": float, "fleetcast_integral": float, "off": float}
    )


# --- quality -------------------------------------------------------------------------------------------


@twin(trace="wired")
def cheapest_for_quality(t: Tables) -> Frame:
    plans = t.quality_plans
    error = (plans["quality"] - plans["quality_low"]) / 1.96
    kept = (plans["quality"] + error >= plans["required_quality"]) & (
        plans["p95_s"] <= plans["required_latency_s"]
    )
    keys = ["trace", "question", "judge"]
    best = plans[kept].sort_values("usd_per_hour", kind="stable").groupby(keys, as_index=False).first()
    best["who"] = f"{LLMS[0]} 75 %, {LLMS[1]} 25 %"
    return best[[*keys, "plan", "usd_per_hour", "quality", "p95_s", "who"]]


@twin(trace="wired")
def who_answers(t: Tables) -> Frame:
    plans = t.quality_plans.query("plan_kind == 'chosen'")[["trace", "question", "plan"]]
    own, keys = t.quality_pools.merge(plans), ["trace", "question", "llm"]
    found = own.groupby(keys, as_index=False).agg(
        instances=("instances", "sum"), gpus=("gpus", "sum"), usd_per_hour=("usd_per_hour", "sum"),
        stage_share=("stage_share", "first"), final_answer_share=("final_answer_share", "first"),
        leg_p95_s=("leg_p95_s", "first"),
    )  # fmt: skip
    whole = found.groupby(["trace", "question"])["usd_per_hour"].transform("sum")
    return found.assign(money_share=found["usd_per_hour"] / whole)


@twin(trace="wired")
def what_the_judge_is_worth(t: Tables) -> Frame:
    good = t.quality_plans.query("plan_kind == 'front' and quality >= required_quality")
    keys = ["trace", "question", "rule"]
    found = good.groupby([*keys, "judge"], as_index=False)["usd_per_hour"].min()
    lots = found[found["judge"] == "random"].set_index(keys)["usd_per_hour"]
    by_lot = lots.reindex(pd.MultiIndex.from_frame(found[keys])).to_numpy()
    skill = found["judge"].map({"random": 0.0, "learned": np.nan})
    return found.assign(saved_usd_per_hour=by_lot - found["usd_per_hour"], judge_skill=skill)
