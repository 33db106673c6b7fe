"""Policies: a generated week under the paper's LT-UA, the corrected plan and the clairvoyant one."""

import os
import re
import tempfile
from datetime import date, timedelta
from pathlib import Path

from measure import Figures, Target

from assets.lake.settings import Progress
from assets.pages.telling import SettingsResource
from models.world.loading import CONFIG_DIR
from pipelines.night import run_night

FIRST = date(2025, 7, 15)
DAYS = 7
CHANGES = {
    "policies": '["lt_ua", "corrected", "clairvoyant"]',
    "methods": '["arima", "weighted"]',
    "name": '"bench"',
}
TARGETS = {
    "plan_gpu_hours_ratio_to_lt_ua": Target(
        "",
        "GPU-hours of corrected over those of lt_ua in a generated week, those left to do at midnight too",
        at_most=0.9,
    ),
    "plan_attainment_over_lt_ua": Target("", "the same week: iw_fast attainment, difference", at_least=0.0),
    "plan_regret_to_clairvoyant": Target(
        "", "the same week: GPU-hours of corrected above the clairvoyant's", at_most=0.15
    ),
    "plan_least_ratio_to_lt_ua": Target(
        "", "the same week: what any plan by the hour with the minimum of 2 per endpoint costs, over lt_ua"
    ),
}


def week() -> Figures:
    """Seven nights in a lake of their own, from making the history to the scoreboard."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DAGSTER_HOME"] = folder  # its runs are nobody's
        resource = SettingsResource(config=config(Path(folder)), lake=str(Path(folder) / "lake"))
        for number in range(DAYS):
            run_night(resource, FIRST + timedelta(days=number), Progress())
        rows = resource.load().lake.sql(
            "select policy, sum(gpu_hours + left_gpu_hours) as gpu_hours, sum(usd) as usd, "
            "avg(iw_fast_attainment_share) as attainment_share from scoreboard group by policy"
        )
        least = resource.load().lake.sql("select sum(hour_usd) as usd from plan_bounds")["usd"][0].as_py()
    board = {row["policy"]: row for row in rows.to_pylist()}
    paper, ours, best = (board[name] for name in ("lt_ua", "corrected", "clairvoyant"))
    return {
        "plan_gpu_hours_ratio_to_lt_ua": ours["gpu_hours"] / paper["gpu_hours"],
        "plan_attainment_over_lt_ua": ours["attainment_share"] - paper["attainment_share"],
        "plan_regret_to_clairvoyant": ours["gpu_hours"] / best["gpu_hours"] - 1,
        "plan_least_ratio_to_lt_ua": least / paper["usd"],
    }


def config(folder: Path) -> str:
    """The default run with fewer policies and methods, under a name of its own."""
    text = (CONFIG_DIR / "office.toml").read_text(encoding="utf-8")
    for key, value in CHANGES.items():
        text = re.sub(rf"^{key} = [^#\n]*", f"{key} = {value}", text, count=1, flags=re.M)
    path = folder / "bench.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


FUNCTIONS = (week,)
