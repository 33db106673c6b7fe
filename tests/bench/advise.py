"""From a CSV to a page: `fleetcast advise` in a fresh process, with and without the kernel's cache.

    python tests/bench advise

The file has 100,000 requests of eight days: hours of the Azure trace of 2024 (demand/azure2024_code_hourly),
lengths of that of 2023. It lands, is foreseen, planned and replayed in a copy of this tree, nothing made.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from first_run import WARM, environment, fill_from_here, home
from measure import SHARED, Figures, Skipped, Target

REQUESTS, DAYS = 100_000, 8
COMMAND = "from fleetcast.pipelines.cli import main; main()"
TARGETS = {
    "advise_seconds": Target(
        "s", "`fleetcast advise`, 100,000 rows of CSV, nothing there, kernel compiled; wall", at_most=60
    ),
    "advise_warm_seconds": Target("s", "the same, once more; wall"),
}


def advise() -> Figures:
    """From a CSV of 100,000 requests to the page: a clean tree, then once more with the kernel there."""
    hours, lengths = (
        SHARED / name
        for name in ("demand/azure2024_code_hourly.csv", "traces/AzureLLMInferenceTrace_conv.csv.gz")
    )
    if not hours.is_file():
        raise Skipped(f"{hours} is not there; it comes with the shared data.")
    with tempfile.TemporaryDirectory() as folder:
        tree, file = Path(folder, "tree"), Path(folder, "week.csv")
        fill_from_here(tree)
        write_trace(file, pd.read_csv(hours)["request_count"].to_numpy(float), pd.read_csv(lengths))
        env = environment(Path(folder)) | home(tree)
        subprocess.run([sys.executable, "-c", WARM], cwd=tree, env=env, check=True)
        cold = seconds(tree, file, env)
        return {"advise_seconds": cold, "advise_warm_seconds": seconds(tree, file, env)}


def seconds(tree: Path, file: Path, env: dict[str, str]) -> float:
    """Wall seconds of one command; RuntimeError with its last line when it fails, or leaves no page."""
    command = [sys.executable, "-c", COMMAND, "advise", str(file), "--quiet"]
    begun_s = time.perf_counter()
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    took_s = time.perf_counter() - begun_s
    if done.returncode or not (tree / "data/figures/advice/week/advice.html").is_file():
        raise RuntimeError(f"advise ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    print(f"{took_s:.0f} s, load average {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return took_s


def write_trace(file: Path, by_hour: np.ndarray, lengths: pd.DataFrame) -> None:
    """A CSV as Azure writes it: Poisson arrivals within the minute at the rates of these hours."""
    rng = np.random.default_rng(1)
    minutes = np.repeat(np.resize(by_hour, 24 * DAYS), 60)
    minutes *= rng.lognormal(0, 0.25, minutes.size)
    counts = rng.multinomial(REQUESTS, minutes / minutes.sum())
    at_s = np.sort(np.repeat(60.0 * np.arange(minutes.size), counts) + 60.0 * rng.random(REQUESTS))
    picked = lengths.iloc[rng.integers(0, len(lengths), REQUESTS)]
    at = pd.Timestamp("2024-05-10") + pd.to_timedelta(at_s, unit="s")
    rows = picked[["ContextTokens", "GeneratedTokens"]].reset_index(drop=True).clip(lower=1)
    rows.insert(0, "TIMESTAMP", at.strftime("%Y-%m-%d %H:%M:%S.%f"))
    rows.to_csv(file, index=False)


FUNCTIONS = (advise,)
