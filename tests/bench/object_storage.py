"""A night whose lake lies in a bucket, against the same night on this disk.

The store is moto in a process of its own, real HTTP on this machine: its requests cost CPU of the same cores,
and no network. A night is `run_night` in a fresh process, three days of requests, history included.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import s3_server
from measure import ROOT, Figures, Skipped, Target
from small import small_config

REQUESTS_PER_DAY = 100_000.0
ROUNDS = 2  # by turns; the least of each
NIGHT = """
import sys, time
from assets.lake.settings import Progress
from assets.pages.telling import SettingsResource
from pipelines.night import run_night
begun_s = time.perf_counter()
night = run_night(SettingsResource(config=sys.argv[1], lake=sys.argv[2]), None, Progress())
assert night.checks and not night.broken
print(time.perf_counter() - begun_s)
"""
HOW = f"a night of {REQUESTS_PER_DAY:,.0f} requests a day, wall seconds"
TARGETS = {
    "scaleout_s3_over_local": Target("x", f"{HOW}, lake on s3:// over lake on disk", at_most=1.5),
    "scaleout_s3_night_s": Target("s", f"{HOW}, lake on s3://"),
    "scaleout_local_night_s": Target("s", f"{HOW}, lake on disk"),
}


def object_storage() -> Figures:
    """Run the same night on a disk and in a bucket, by turns."""
    if s3_server.LACKING:
        raise Skipped(s3_server.SKIPPED)
    from models.replay.beside import compile_kernel

    compile_kernel()
    with tempfile.TemporaryDirectory() as folder, s3_server.serving() as server:
        config = small_config(Path(folder), requests_per_day=f"{REQUESTS_PER_DAY}", history_days="2")
        spent: dict[str, list[float]] = {"local": [], "s3": []}
        for turn in range(ROUNDS):
            for name, root in (("local", folder), ("s3", f"s3://{s3_server.BUCKET}")):
                home = Path(folder) / f"{name}{turn}"
                home.mkdir()
                environ = {**os.environ, **server.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": str(ROOT)}
                command = [sys.executable, "-c", NIGHT, config, f"{root}/{turn}/lake"]
                done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
                if done.returncode:
                    raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1:]}")
                spent[name].append(float(done.stdout.split()[-1]))
                print(name, *spent[name], os.getloadavg()[0], file=sys.stderr, flush=True)
    local_s, s3_s = min(spent["local"]), min(spent["s3"])
    return {
        "scaleout_s3_over_local": s3_s / local_s,
        "scaleout_s3_night_s": s3_s,
        "scaleout_local_night_s": local_s,
    }


FUNCTIONS = (object_storage,)
