"""The twins of the recipes about levels of priority and moves."""

import numpy as np
import pandas as pd
from recipe_lake import TRACE_DAY, Frame, Tables, twin

CASE = ["llm", "region", "needs_by", "load_factor", "stack", "headroom_share", "levels"]
PAIRS = {"llumnix": "freeness", "jsq_moves": "jsq"}  # with moves: without


def values_of(t: Tables) -> Frame:
    """The fewest instances of each case, one after the other; as level_value has them."""
    trials = t.level_trials.query("level == 'all'")
    found = []
    for key, own in trials.groupby(CASE):
        meeting = own.loc[own["is_met"], "instances"]
        fewest = meeting.min() if len(meeting) else np.nan
        below = own.loc[~own["is_met"] & (own["instances"] < fewest), "instances"]
        today = own[own["is_today"]].iloc[0]
        found.append(
            dict(zip(CASE, key, strict=True))
            | {"instances": fewest, "resolution": fewest - (below.max() if len(below) else 0)}
            | {"today_instances": today["instances"], "today_met_share": today["met"] / today["requests"]}
            | {"today_worst_need_share": today["worst_need_share"]}
        )
    return Frame(found)


@twin(**TRACE_DAY)
def how_many_levels(t: Tables) -> Frame:
    values = values_of(t)
    way = ["llm", "region", "needs_by", "load_factor"]
    for n, row in values.iterrows():
        alike = values[(values[way] == row[way]).all(axis=1)]
        one = alike[(alike["stack"] == row["stack"]) & (alike["levels"] == 1)]["instances"]
        one_level = one.iloc[0] if len(one) else np.nan
        same = alike[(alike["stack"] == row["stack"]) & (alike["headroom_share"] == row["headroom_share"])]
        fewer = same[(same["levels"] < row["levels"]) & (same["levels"] > 1)].sort_values("levels")[
            "instances"
        ]
        before = fewer.iloc[-1] if len(fewer) and not np.isnan(fewer.iloc[-1]) else one_level
        values.loc[n, "saved_on_one_level"] = one_level - row["instances"]
        values.loc[n, "saved_on_fewer"] = before - row["instances"] if row["levels"] > 1 else np.nan
        values.loc[n, "limit_instances"] = alike.loc[alike["stack"] == "edf", "instances"].iloc[0]
    return values


@twin(**TRACE_DAY)
def how_much_headroom(t: Tables) -> Frame:
    trials = t.level_trials.query("is_today and level != 'all' and levels > 1 and stack != 'edf'")
    trials["missed"] = 1 - trials["met"] / trials["requests"]
    top = trials[trials["level"] == "0"].set_index(CASE)["missed"]
    bottom = trials[trials["level"].astype(int) == trials["levels"] - 1].set_index(CASE)["ttft_p99_s"]
    table = Frame({"top_missed_share": top, "bottom_ttft_p99_s": bottom}).reset_index()
    least = table.sort_values("headroom_share").groupby([key for key in CASE if key != "headroom_share"])
    table["top_saved_share"] = least["top_missed_share"].transform("first") - table["top_missed_share"]
    first_s = least["bottom_ttft_p99_s"].transform(lambda seconds: seconds.iloc[0])
    table["bottom_cost_s"] = table["bottom_ttft_p99_s"] - first_s
    return table


@twin(**TRACE_DAY)
def who_was_moved(t: Tables) -> Frame:
    def later(seconds: pd.Series, share: float) -> float:
        known = np.sort(seconds.dropna().to_numpy())
        return float(known[int(np.ceil(share * known.size)) - 1]) if known.size else np.nan

    found = []
    for policy, rows in t.outcomes.groupby("policy"):
        if not rows["moves"].sum():
            continue
        for level, own in rows.groupby("level"):
            moved = own["moves"] > 0
            found.append(
                {"policy": policy, "level": level, "requests": len(own), "moved": moved.sum()}
                | {"moved_share": moved.mean()}
                | {f"stopped_p{n}_s": later(own["stopped_s"], n / 100) for n in (50, 99)}
                | {"moved_e2e_p50_s": later(own.loc[moved, "e2e_s"], 0.5)}
                | {"others_e2e_p50_s": later(own.loc[~moved, "e2e_s"], 0.5)}
            )
    return Frame(found)


@twin(**TRACE_DAY)
def what_moves_cost(t: Tables) -> Frame:
    trials = t.level_trials.query("is_today and level == 'all'")
    trials = trials.merge(values_of(t)[[*CASE, "instances"]], on=CASE, suffixes=("", "_fewest"))
    still = trials.set_index(CASE)
    found = []
    for row in trials.query("stack in @PAIRS").to_dict("records"):
        at = [PAIRS[row["stack"]] if key == "stack" else row[key] for key in CASE]
        if tuple(at) not in still.index:
            continue
        other = still.loc[tuple(at)]
        later = {
            f"{name}_p99_gain_s": other[f"{name}_p99_s"] - row[f"{name}_p99_s"] for name in ("ttft", "e2e")
        }
        found.append(
            later
            | {key: row[key] for key in (*CASE, "stopped_p99_s")}
            | {"without": at[4]}
            | {"moves_per_request": (row["moved_queued"] + row["moved_live"]) / row["requests"]}
            | {"given_up_share": row["moves_given_up"] / row["moved_live"] if row["moved_live"] else None}
            | {"met_gain_share": row["met"] / row["requests"] - other["met"] / other["requests"]}
            | {"worst_need_gain_share": row["worst_need_share"] - other["worst_need_share"]}
            | {"preemptions_saved": other["preemptions"] - row["preemptions"]}
            | {"instances_saved": other["instances_fewest"] - row["instances_fewest"]}
        )  # fmt: skip
    return Frame(found)
