"""How figures are measured: each function in a process of its own, so that none inherits memory or caches.

    python tests/bench/measure.py replay endpoint     prints what the function returned, as JSON

CPU seconds are what the work takes on a core of its own, whoever else uses the machine; they are used for
all that one thread of one process computes. Wall seconds are used for the rest: disk, threads, solvers.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHARED = ROOT.parent / "shared" / "data"  # real traces, where a checkout lies next to it them
sys.path.append(str(ROOT / "tests"))  # its laws, and its readers of what others measured
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Figures = dict[str, float]


class Target(NamedTuple):
    """What a figure is measured in, what it must be, and how it comes about."""

    unit: str
    how: str
    at_least: float | None = None
    at_most: float | None = None

    def bounds(self) -> str:
        """The target as it is shown; empty where there is none."""
        signs = ((">=", self.at_least), ("<=", self.at_most))
        return " ".join(f"{sign} {bound:,.12g}" for sign, bound in signs if bound is not None)

    def is_met(self, value: float) -> bool:
        """Whether the value keeps both bounds."""
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


class Skipped(Exception):
    """A figure that cannot be measured here; the message says what is missing and how to get it."""


def cpu_seconds(work: Callable[[], Any], repeats: int = 1) -> float:
    """CPU seconds of this process for `work`: the least of the repeats."""
    spent = []
    for _ in range(repeats):
        before = time.process_time()
        work()
        spent.append(time.process_time() - before)
    return min(spent)


def wall_seconds(work: Callable[[], Any], repeats: int = 1) -> float:
    """Seconds on the clock for `work`: the least of the repeats."""
    spent = []
    for _ in range(repeats):
        before = time.perf_counter()
        work()
        spent.append(time.perf_counter() - before)
    return min(spent)


def peak_gb() -> float:
    """The most memory that this process has held so far, GB."""
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes / 1e9


def run_fresh(*command: str, cwd: Path = ROOT) -> str:
    """Run a command in a process of its own, single-threaded; what it printed."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def cpu_seconds_of(*command: str, cwd: Path = ROOT) -> float:
    """CPU seconds of a command in a process of its own, start-up included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_fresh(*command, cwd=cwd)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(subject: str, function: str) -> Figures | str:
    """The figures of one function, measured in a fresh process, or why it was skipped; shows what it says."""
    *printed, last = run_fresh(sys.executable, str(HERE / "measure.py"), subject, function).splitlines()
    print(*printed, sep="\n", end="\n" if printed else "")
    figures: Figures | str = json.loads(last)
    return figures


if __name__ == "__main__":
    sys.modules["measure"] = sys.modules[__name__]  # the subjects raise this file's Skipped, not a twin's
    try:
        print(json.dumps(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()))
    except Skipped as reason:
        print(json.dumps(str(reason)))
