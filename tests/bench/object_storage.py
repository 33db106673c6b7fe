"""A night whose lake lies in a bucket, against the same night on this disk.

The store is moto in a process of its own, real HTTP on this machine: its requests cost CPU of the same cores,
and no network. A night is `run_night` in a fresh process, three days of requests, history included.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import s3_server
from measure import ROOT, Figures, Skipped, Target
from small import small_config

from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.replay.session.background_compile import compile_kernel

REQUESTS_PER_DAY = 100_000.0
ROUNDS = 2  # by turns; the least of each
PRESENT_S = 15.0  # the server answers so long before it leaves again
NIGHT = """
import sys, time
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.pipelines.nightly_run import run_night
begun_s = time.perf_counter()
night = run_night(SettingsResource(config=sys.argv[1], lake=sys.argv[2]), None, Progress())
assert night.checks and not night.broken
print(time.perf_counter() - begun_s)
"""
HOW = f"a night of {REQUESTS_PER_DAY:,.0f} requests a day, wall seconds"
AWAY = f"a night while the server is away for {s3_server.AWAY_S:g} s again and again"
TARGETS = {
    "scaleout_s3_over_local": Target("x", f"{HOW}, lake on s3:// over lake on disk", at_most=1.5),
    "scaleout_s3_night_s": Target("s", f"{HOW}, lake on s3://"),
    "scaleout_local_night_s": Target("s", f"{HOW}, lake on disk"),
    "scaleout_s3_absences_survived": Target("", f"{AWAY}; it ends well, and bit for bit", at_least=3),
    "scaleout_s3_absences": Target("", AWAY),
}


def object_storage() -> Figures:
    """Run the same night on a disk and in a bucket, by turns."""
    with parts() as (folder, server):
        config = small_config(folder, requests_per_day=f"{REQUESTS_PER_DAY}", history_days="2")
        spent: dict[str, list[float]] = {"local": [], "s3": []}
        for turn in range(ROUNDS):
            for name, root in (("local", str(folder)), ("s3", f"s3://{s3_server.BUCKET}")):
                spent[name].append(seconds_of(begun(folder, server, config, f"{root}/{turn}/lake")))
                print(name, *spent[name], os.getloadavg()[0], file=sys.stderr, flush=True)
    local_s, s3_s = min(spent["local"]), min(spent["s3"])
    return {
        "scaleout_s3_over_local": s3_s / local_s,
        "scaleout_s3_night_s": s3_s,
        "scaleout_local_night_s": local_s,
    }


def absences() -> Figures:
    """A night while the server leaves again and again; none counts unless the lake is as of a quiet one."""
    with parts() as (folder, server):
        config = small_config(folder, history_days="2")
        roots = (f"{folder}/quiet/lake", f"s3://{s3_server.BUCKET}/lake")
        seconds_of(begun(folder, server, config, roots[0]))
        night, left = begun(folder, server, config, roots[1]), 0
        while night.poll() is None:
            time.sleep(PRESENT_S)
            if night.poll() is None:
                server.leave()
                left += 1
                time.sleep(s3_server.AWAY_S)
        seconds_of(night)
        os.environ.update(server.environ)
        quiet, with_absence = (
            {lake.below(path): path.read_bytes() for path in lake.root.rglob("*.parquet")}
            for lake in map(Lake, roots)
        )
    return {"scaleout_s3_absences": left, "scaleout_s3_absences_survived": left * (quiet == with_absence)}


@contextmanager
def parts() -> Iterator[tuple[Path, s3_server.Server]]:
    """A folder and a server, with the kernel compiled."""
    if s3_server.LACKING:
        raise Skipped(s3_server.SKIPPED)
    compile_kernel()
    with tempfile.TemporaryDirectory() as folder, s3_server.serving() as server:
        yield Path(folder), server


def begun(folder: Path, server: s3_server.Server, config: str, lake: str) -> subprocess.Popen[str]:
    """A night in a process of its own, with records of its own."""
    home = tempfile.mkdtemp(dir=folder)
    environ = {**os.environ, **server.environ, "DAGSTER_HOME": home, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", NIGHT, config, lake]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=environ, text=True, **pipes)


def seconds_of(night: "subprocess.Popen[str]") -> float:
    """What it took; RuntimeError with its last line where it failed."""
    output, errors = night.communicate()
    if night.returncode:
        raise RuntimeError(errors.strip().splitlines()[-1])
    return float(output.split()[-1])


FUNCTIONS = (object_storage, absences)
