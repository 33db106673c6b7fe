"""The first five minutes: `fleetcast nightly` with nothing there, and once more, against a commit before.

    python tests/bench first_run              against BASE
    BASE=9a04f68b python tests/bench first_run    against another revision with the import name fleetcast

Wall seconds are counted in those of a reference loop that is timed around each run, in CPU seconds, so that a
slow machine counts as much for both; the runs take turns. Both have a set-up environment, its bytecode too.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import ROOT, Figures, Target, cpu_seconds, cpu_seconds_of

BASE = os.environ.get("BASE", "9a04f68b")  # before the kernel compiled as one program
ROUNDS = 1  # of four runs; minutes each
WARM = (  # of the tree, not of the environment
    "import fleetcast, os; assert fleetcast.__file__.startswith(os.getcwd()), fleetcast.__file__; "
    "import fleetcast.pipelines.nightly_run, statsmodels.tsa.arima.model, prophet, matplotlib.pyplot, highspy"
)
NIGHTLY = "from fleetcast.pipelines.cli import main; main()"
HOW = f"`fleetcast nightly`, {BASE} over now"
TARGETS = {
    "run_cold_speedup": Target("x", f"{HOW}, wall seconds, nothing there", at_least=1.6),
    "run_again_speedup": Target("x", f"{HOW}, wall seconds, once more", at_least=1.6),
    "run_cold_cpu_speedup": Target("x", f"{HOW}, CPU seconds, nothing there"),
    "run_again_cpu_speedup": Target("x", f"{HOW}, CPU seconds, once more"),
    "run_cold_s": Target("s", "now, wall seconds, nothing there", at_most=100),
    "run_again_s": Target("s", "now, wall seconds, once more"),
    "help_seconds": Target("s", "`fleetcast --help`, the whole process, the least of five; CPU", at_most=0.5),
    "help_wall_seconds": Target("s", "the same; wall", at_most=0.5),
}


class Spent(NamedTuple):
    """What a night took."""

    wall_s: float
    cpu_s: float
    loop_s: float  # CPU seconds of the reference loop around it


def first_run() -> Figures:
    """Run the night of a clean clone and the next, by turns before and now, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        trees = {"before": Path(folder, "before"), "now": Path(folder, "now")}
        fill_from_revision(trees["before"], BASE)
        fill_from_here(trees["now"])
        env = environment(Path(folder))
        for tree in trees.values():
            subprocess.run([sys.executable, "-c", WARM], cwd=tree, env=env | home(tree), check=True)
        spent: dict[tuple[str, str], list[Spent]] = {}
        for _ in range(ROUNDS):
            for made in ("lake", ".numba", ".dagster"):
                for tree in trees.values():
                    shutil.rmtree(tree / "data" / made, ignore_errors=True)
            for what in ("cold", "again"):
                for name, tree in trees.items():
                    spent.setdefault((what, name), []).append(night(tree, env | home(tree)))
    return figures_of(spent)


def start_help() -> Figures:
    """Print the help five times, each in a process of its own."""
    program = str(Path(sys.executable).with_name("fleetcast"))
    cpu_s, wall_s = [], []
    for _ in range(5):
        began_s = time.perf_counter()
        cpu_s.append(cpu_seconds_of(program, "--help"))
        wall_s.append(time.perf_counter() - began_s)
    return {"help_seconds": min(cpu_s), "help_wall_seconds": min(wall_s)}


def figures_of(spent: dict[tuple[str, str], list[Spent]]) -> Figures:
    """How many times longer it took before, in units of the reference loop."""
    found: Figures = {}
    for what in ("cold", "again"):
        before, now = spent[what, "before"], spent[what, "now"]
        found[f"run_{what}_speedup"] = ratio(before, now, lambda one: one.wall_s / one.loop_s)
        found[f"run_{what}_cpu_speedup"] = ratio(before, now, lambda one: one.cpu_s / one.loop_s)
        found[f"run_{what}_s"] = min(one.wall_s for one in now)
    return found


def ratio(before: list[Spent], now: list[Spent], cost: Callable[[Spent], float]) -> float:
    """The sum of the costs before over that of the costs now."""
    return sum(map(cost, before)) / sum(map(cost, now))


def night(tree: Path, env: dict[str, str]) -> Spent:
    """One `fleetcast nightly` in a tree; RuntimeError with its last line when it fails."""
    loops, used = [cpu_seconds(reference_loop)], resource.getrusage(resource.RUSAGE_CHILDREN)
    begun_s = time.perf_counter()
    command = [sys.executable, "-c", NIGHTLY, "nightly", "--quiet"]
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    wall_s = time.perf_counter() - begun_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    loops.append(cpu_seconds(reference_loop))
    if done.returncode:
        raise RuntimeError(f"nightly ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    spent = Spent(wall_s, cpu_s, sum(loops) / len(loops))
    print(f"{tree.name}: {spent}, load average {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return spent


def reference_loop() -> None:
    """A second or two of what a night does: sorting and adding arrays, and plain Python."""
    values = np.random.default_rng(0).random(1_000_000)
    for _ in range(5):
        np.cumsum(np.sort(values)).sum()
    sum(n * n % 7 for n in range(3_000_000))


def fill_from_revision(tree: Path, revision: str) -> None:
    """The files of a revision, without its history."""
    tree.mkdir()
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x"], cwd=tree, input=packed, check=True)


def fill_from_here(tree: Path) -> None:
    """The files as they stand here, without what is ignored."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)


def environment(folder: Path) -> dict[str, str]:
    """Of a user's shell, with bytecode that is written once and shared by the trees."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "MPLBACKEND": "Agg"}


def home(tree: Path) -> dict[str, str]:
    """Where a tree imports from, and keeps Dagster's records."""
    return {"PYTHONPATH": str(tree / ".package"), "DAGSTER_HOME": str(tree)}


FUNCTIONS = (first_run, start_help)
SMOKE: dict[str, dict[str, object]] = {"start_help": {}}
