"""Hostile inputs to all readers and entry points: each ends with one clear line, within its limits."""

import json
import os
import sys
import tempfile
from pathlib import Path

from hostile_verdict import MOST_CPU_S, MOST_GB, MOST_WALL_S, Verdict
from measure import ROOT, Figures, Target, run_fresh

SEED = int(os.environ.get("FLEETCAST_HOSTILE_SEED", "42"))
COUNTS = {
    "trace_files": 160,
    "metrics_folders": 60,
    "toml_files": 100,
    "statements": 60,
    "environment": 40,
    "servers": 60,
    "scaler_requests": 100,
    "command_line": 160,
}
TARGETS = {
    "hostile_inputs_tried": Target("", "hostile inputs, drawn by a seed from eight groups", at_least=300),
    "hostile_tracebacks": Target("", "inputs that end in a traceback, or in no clear line", at_most=0),
    "hostile_over_limits": Target(
        "", f"inputs that take over {MOST_CPU_S:.0f} CPU-s, {MOST_WALL_S:.0f} s or {MOST_GB:g} GB", at_most=0
    ),
    "hostile_most_cpu_s": Target("CPU-s", "the most that one input takes, with the processes that it starts"),
    "hostile_most_gb": Target("GB", "the most memory that one input adds"),
}


def hostile_inputs() -> Figures:
    """Try inputs of each group, in a process with a home and a lake of its own; print what went wrong."""
    program = (sys.executable, str(ROOT / "tests" / "hostile_groups.py"), str(SEED))
    with tempfile.TemporaryDirectory() as folder:
        own = {"FLEETCAST_HOME": folder, "FLEETCAST_LAKE": str(Path(folder) / "lake")}
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            counts = (f"{group}={count}" for group, count in COUNTS.items())
            groups = json.loads(run_fresh(*program, *counts))
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
    verdicts = [Verdict(*fields) for found in groups.values() for fields in found]
    for group, found in groups.items():
        for one in (Verdict(*fields) for fields in found):
            if one.trouble or one.is_over:
                print(
                    f"{group}: {one.name}: {one.trouble or one.line} ({one.cpu_s:.1f} CPU-s, {one.gb:.2f} GB)"
                )
    return {
        "hostile_inputs_tried": len(verdicts),
        "hostile_tracebacks": sum(bool(one.trouble) for one in verdicts),
        "hostile_over_limits": sum(one.is_over for one in verdicts),
        "hostile_most_cpu_s": max(one.cpu_s for one in verdicts),
        "hostile_most_gb": max(one.gb for one in verdicts),
    }


FUNCTIONS = (hostile_inputs,)
SMOKE = {
    "hostile_inputs": {
        "COUNTS": {"toml_files": 10, "scaler_requests": 10, "statements": 3, "command_line": 3}
    }
}
