"""Policies: a week of sageserve_large in one go, as the study `week` plays it, and who spends how much."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
from measure import Figures, Target

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.plans import plan_day
from fleetcast.assets.replays.replays import replay_days
from fleetcast.assets.studies.experiment import INPUT_TABLES, share_tables
from fleetcast.assets.studies.study import prepare_lake
from fleetcast.assets.studies.study_files import load_study

STUDY, VARIANT, BASE = "week", "in_one_go", "sageserve_large"
POLICIES = ("reactive", "lt_ua", "corrected", "clairvoyant")
METHODS = ("arima", "weighted")
TARGETS = {
    "plan_gpu_hours_ratio_to_lt_ua": Target(
        "",
        "a week of sageserve_large: GPU-hours of corrected over those of lt_ua, the last backlog included",
        at_most=0.93,
    ),
    "plan_attainment_over_lt_ua": Target("", "the same week: iw_fast attainment, difference", at_least=0.0),
    "plan_regret_to_clairvoyant": Target(
        "", "the same week: GPU-hours of corrected above the clairvoyant's", at_most=0.05
    ),
    "plan_least_ratio_to_lt_ua": Target(
        "", "the same week: what any plan by the hour with the minimum of 2 per endpoint costs, over lt_ua"
    ),
}
for _policy in POLICIES:
    TARGETS[f"plan_gpu_hours_{_policy}"] = Target("GPU-h", f"the same week: {_policy}, backlog included")
    TARGETS[f"plan_attainment_{_policy}"] = Target("", f"the same week: {_policy}, iw_fast in time")


def week() -> Figures:
    """The study `week` on sageserve_large, seven days in one go, in a lake of its own."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder))
        variant = next(one for one in load_study(STUDY, lake, BASE) if one.name == VARIANT)
        config = variant.settings.config
        config = replace(
            config,
            forecast=replace(config.forecast, methods=METHODS),
            replay=replace(config.replay, policies=POLICIES),
        )
        variant = variant._replace(settings=replace(variant.settings, config=config))
        known = prepare_lake(variant.settings, variant.days, Progress())
        own = replace(variant.settings, lake=Lake(Path(folder) / "own"))
        share_tables(known, own.lake, INPUT_TABLES)
        for day in variant.days:
            plan_day(own, day, Progress())
        for policy in POLICIES:  # one after the other: each holds sixty million outcomes
            replay_days(own, variant.days, [policy], Progress())
        board = {policy: policy_figures(own.lake, policy) for policy in POLICIES}
        least_usd = own.lake.sql("select sum(whole_hours_usd) as usd from plan_bounds")["usd"][0].as_py()
    paper, corrected, best = (board[name] for name in ("lt_ua", "corrected", "clairvoyant"))
    return {
        "plan_gpu_hours_ratio_to_lt_ua": corrected["spent"] / paper["spent"],
        "plan_attainment_over_lt_ua": corrected["attained"] - paper["attained"],
        "plan_regret_to_clairvoyant": corrected["spent"] / best["spent"] - 1,
        "plan_least_ratio_to_lt_ua": least_usd / paper["usd"],
        **{f"plan_gpu_hours_{name}": board[name]["spent"] for name in POLICIES},
        **{f"plan_attainment_{name}": board[name]["attained"] for name in POLICIES},
    }


def policy_figures(lake: Lake, policy: str) -> dict[str, float]:
    """What a policy spent, backlog included, and how many of iw_fast came in time."""
    rows = lake.sql("marts/studies.sql", policy=policy, in_one_go=True)
    rows = rows.filter(pc.equal(rows["llm"], "all")).to_pylist()
    value = {(row["metric"], row["tier"]): row["value"] for row in rows}
    return {
        "spent": value["gpu_hours", "all"] + value.get(("backlog_gpu_hours", "all"), 0.0),
        "attained": value["attainment_share", "iw_fast"],
        "usd": value["usd", "all"],
    }


FUNCTIONS = (week,)
