"""SageServe: what the reflex is worth under bursts and costs on a calm day; which mechanisms act at all."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from measure import ROOT, Figures, Target

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.pipelines.nightly_run import run_night

OTHERS = ("siloed", "reactive", "hpa", "chiron", "lt_i", "lt_u", "lt_ua")
CALM = """
based_on = "sageserve"

[trace]
name = "calm"

[trace.office]

[replay]
policies = ["corrected", "plain"]

[policies.plain]
like = "corrected"
scaling = "follow"
"""
PAGE = ROOT / "models" / "replay" / "README.md"
SECTION = PAGE.read_text(encoding="utf-8").split("## What acts where")[1].split("\n## ")[0]
MECHANISMS = len(re.findall(r"^\| [^|`]+? \| `\w+` \|", SECTION, re.MULTILINE))  # of the page's table
PROOF = "test_a_mechanism_that_is_switched_off_is_missed"
TARGETS = {
    "sageserve_burst_corrected_over_best_missed": Target(
        "", "sageserve_bursts: iw_fast missed by corrected over the least of any other rule", at_most=1.0
    ),
    "sageserve_burst_corrected_over_lt_ua_gpu_hours": Target(
        "", "the same day: GPU-hours over those of lt_ua, the backlog at midnight included", at_most=1.0
    ),
    "sageserve_burst_missed_share": Target("", "the same day: iw_fast missed by corrected"),
    "sageserve_calm_cost_of_reflex": Target(
        "", "office: GPU-hours of corrected over the same without reflex, less 1", at_most=0.005
    ),
    "sageserve_calm_gain_of_reflex": Target("", "the same day: iw_fast attainment, difference"),
    "sageserve_mechanisms_exercised": Target(
        "",
        f"of {MECHANISMS} mechanisms (models/replay), those without which the day of stress is another one",
        at_least=MECHANISMS,
    ),
}


def bursts() -> Figures:
    """The night of sageserve_bursts in a lake of its own."""
    board = night("sageserve_bursts")
    missed = {policy: 1 - row["attainment_share"] for policy, row in board.items()}
    spent = {policy: row["gpu_hours"] + row["backlog_gpu_hours"] for policy, row in board.items()}
    return {
        "sageserve_burst_corrected_over_best_missed": missed["corrected"] / min(missed[p] for p in OTHERS),
        "sageserve_burst_corrected_over_lt_ua_gpu_hours": spent["corrected"] / spent["lt_ua"],
        "sageserve_burst_missed_share": missed["corrected"],
    }


def calm() -> Figures:
    """The default day with and without the reflex."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calm.toml"
        path.write_text(CALM, encoding="utf-8")
        board = night(str(path))
    spent = {policy: row["gpu_hours"] + row["backlog_gpu_hours"] for policy, row in board.items()}
    attained = {policy: row["attainment_share"] for policy, row in board.items()}
    return {
        "sageserve_calm_cost_of_reflex": spent["corrected"] / spent["plain"] - 1,
        "sageserve_calm_gain_of_reflex": attained["corrected"] - attained["plain"],
    }


def mechanisms() -> Figures:
    """The mechanisms that tests/test_reached.py finds to act in the night of stress."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = (sys.executable, "-m", "pytest", "-q", "tests/test_reached.py", f"--junitxml={report}")
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if not report.exists():
            raise RuntimeError(ran.stdout + ran.stderr)
        cases = ElementTree.parse(report).iter("testcase")
        proved = [one for one in cases if one.attrib["name"].startswith(PROOF) and not len(one)]
    return {"sageserve_mechanisms_exercised": float(len(proved))}


def night(config: str) -> dict[str, dict[str, float]]:
    """The scoreboard of a night in a lake of its own, by policy."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DAGSTER_HOME"] = folder  # its runs belong to no location
        resource = SettingsResource(config=config, lake=str(Path(folder) / "lake"))
        run_night(resource, None, Progress())
        rows = resource.load().lake.sql(
            "select policy, gpu_hours, backlog_gpu_hours, attainment_share from scoreboard"
        )
    return {row["policy"]: row for row in rows.to_pylist()}


FUNCTIONS = (bursts, calm, mechanisms)
