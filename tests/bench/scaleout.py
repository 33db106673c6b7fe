"""What kill -9 does to a night on a cluster: Postgres, daemon, queue, code servers and Ray, all of them real.

A run ends in success, by itself or after it reported why it did not and was started again; its tables are
bit for bit those of one process, and no file is half written. tests/cluster_parts.py starts the parts.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
from measure import ROOT, Figures, Skipped, Target

sys.path.append(str(ROOT / "tests"))
import s3_server
from cluster_parts import Cluster, Missing, Ray, postgres, wait_until
from scaleout_lakes import BUCKET, Lakes
from small import small_config

DAY = date(2025, 7, 3)
DOWN_S = 10.0  # of Postgres
LIMIT_S = 240.0
RUN_START, STEP_START = dg.DagsterEventType.PIPELINE_START, dg.DagsterEventType.STEP_START


class Trial(NamedTuple):
    """What is killed while a run's replays are under way, and where that run computes its steps."""

    name: str
    location: str  # here: in one process; steps: a process each; ray: two nodes; bucket: in S3 too
    kill: Callable[["Stage", str], None]
    max_runtime_s: str = ""  # of the run, where nothing is left to look after it


class Stage:
    """The parts, and the lake that a run is given."""

    def __init__(self, cluster: Cluster, ray: Ray, lakes: Lakes) -> None:
        self.cluster, self.ray, self.lakes = cluster, ray, lakes

    def submit(self, trial: Trial) -> str:
        """Ask for the replays of the day."""
        tags = {"dagster/max_runtime": trial.max_runtime_s} if trial.max_runtime_s else {}
        return self.cluster.submit(trial.location, "nightly", DAY.isoformat(), only=("replays",), tags=tags)

    def pid_of_replay(self, run: str) -> int:
        """The process in which a replay has begun, as soon as one has."""

        def begun() -> int | None:
            events = [one for one in self.cluster.events(run) if one.event_type is STEP_START]
            return next((one.pid for one in events if "replay" in (one.step_key or "")), None)

        return int(wait_until(begun, "the first replay", LIMIT_S, 0.05))

    def pid_of_run(self, run: str) -> int:
        """The process of a run, which need not be that of its steps."""
        self.pid_of_replay(run)
        return int(next(one.pid for one in self.cluster.events(run) if one.event_type is RUN_START))


def kill_step(stage: Stage, run: str) -> None:
    """The process of the replay."""
    os.kill(stage.pid_of_replay(run), signal.SIGKILL)


def kill_run(stage: Stage, run: str) -> None:
    """The process that looks after the steps of the run."""
    os.kill(stage.pid_of_run(run), signal.SIGKILL)


def kill_daemon(stage: Stage, run: str) -> None:
    """The daemon; another one comes three seconds later."""
    stage.pid_of_replay(run)
    kill_daemon_at_once(stage, run)


def kill_daemon_at_once(stage: Stage, run: str) -> None:
    """The daemon, with the run perhaps still in its queue."""
    stage.cluster.servers.kill("daemon")
    time.sleep(3)
    stage.cluster.start_daemon()


def kill_server(stage: Stage, run: str) -> None:
    """The code server with the run that it started: a machine that is gone. Another one comes."""
    stage.pid_of_replay(run)
    stage.cluster.servers.kill("here")
    stage.cluster.serve("here")


def kill_postgres(stage: Stage, run: str) -> None:
    """Postgres, for ten seconds."""
    stage.pid_of_replay(run)
    stage.cluster.database.stop()
    time.sleep(DOWN_S)
    stage.cluster.database.start()


def kill_store(stage: Stage, run: str) -> None:
    """The S3 server, for ten seconds."""
    stage.pid_of_replay(run)
    stage.lakes.store.leave()


def kill_node(stage: Stage, run: str) -> None:
    """The node of Ray that has the replay, or the other one where the head has it; another one comes."""
    stage.pid_of_replay(run)
    stage.ray.kill()
    stage.ray.add()


def run_twice(stage: Stage, run: str) -> None:
    """Nothing; the same day is requested a second time at once, from another location into the same lake."""
    other = stage.submit(Trial("", "steps", run_twice))
    stage.cluster.ended(other, LIMIT_S)


TRIALS = (
    Trial("the run, in one process", "here", kill_run),
    Trial("the run and its code server", "here", kill_server, max_runtime_s="30"),
    Trial("the daemon", "here", kill_daemon),
    Trial("the daemon, with the run in its queue", "here", kill_daemon_at_once),
    Trial("Postgres for 10 s", "here", kill_postgres),
    Trial("nothing; two nights of one day at once", "here", run_twice),
    Trial("a step, a process each", "steps", kill_step),
    Trial("the run, a process each", "steps", kill_run),
    Trial("Postgres for 10 s, a process each", "steps", kill_postgres),
    Trial("a step on Ray", "ray", kill_step),
    Trial("a node of Ray", "ray", kill_node),
    Trial("the run whose steps are on Ray", "ray", kill_run),
    Trial("the daemon, with steps on Ray", "ray", kill_daemon),
    Trial("Postgres for 10 s, with steps on Ray", "ray", kill_postgres),
    Trial("the S3 server for 10 s, with steps on Ray", "bucket", kill_store),
)
TARGETS = {
    "scaleout_kills": Target("", "kill -9 in the middle of a night, one thing each", at_least=12),
    "scaleout_kills_survived": Target(
        "", "the run ended well or gave its reason, tables bit-equal, no half file", at_least=len(TRIALS)
    ),
}


def kills() -> Figures:
    """Nights of a small config, each with something killed in the middle: Postgres, Ray, daemon, workers."""
    survived = 0
    with stage() as parts:
        for trial in TRIALS:
            begun_s = time.monotonic()
            try:
                how, is_well = run_trial(parts, trial)
            except Exception as error:  # the other trials go on
                how, is_well = f"{type(error).__name__}: {str(error).splitlines()[0]}", False
            survived += is_well
            took = f"{time.monotonic() - begun_s:.0f} s"
            print(f"  {trial.name} ({trial.location}): {how}, {took}", flush=True)
    return {"scaleout_kills": float(len(TRIALS)), "scaleout_kills_survived": float(survived)}


def run_trial(parts: Stage, trial: Trial) -> tuple[str, bool]:
    """How a trial ended, in words, and whether it was survived."""
    parts.lakes.clear()
    run = parts.submit(trial)
    trial.kill(parts, run)
    ended = parts.cluster.ended(run, LIMIT_S)
    how = "success" if ended.run_id == run else "success of the run that took its place"
    if not ended.is_success:
        why = parts.cluster.why(ended.run_id)
        if not why:
            return "it failed and does not say why", False
        again = parts.cluster.ended(parts.submit(trial._replace(max_runtime_s="")), LIMIT_S)
        how = f"it gave a reason ({why.splitlines()[0][:120]}), run again: {again.status.value.lower()}"
        ended = again
    difference = parts.lakes.difference(trial.location)
    return f"{how}, files: {difference or 'bit-equal'}", ended.is_success and not difference


@contextmanager
def stage() -> Iterator[Stage]:
    """All parts, and a lake with the history, the forecasts and the plans of a day."""
    from fleetcast.assets.lake.settings import Progress
    from fleetcast.assets.pages.asset_metadata import SettingsResource
    from fleetcast.pipelines.nightly_run import run_night

    with ExitStack() as stack:
        if s3_server.LACKING:
            raise Skipped(s3_server.SKIPPED)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleetcast-")))
        config = small_config(folder, requests_per_day="30000.0")
        store = stack.enter_context(s3_server.serving(DOWN_S))
        os.environ.update(store.environ)
        try:
            database = stack.enter_context(postgres())
            ray = Ray(os.environ | {"PYTHONPATH": str(ROOT), "FLEETCAST_POSTGRES_URL": database.url})
        except Missing as reason:
            raise Skipped(str(reason)) from reason
        stack.callback(ray.end)
        known, lake = folder / "known", folder / "lake"
        resource = SettingsResource(config=config, lake=str(known))
        os.environ["DAGSTER_HOME"] = str(folder / "own")
        (folder / "own").mkdir()
        (folder / "own" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        assert run_night(resource, DAY, Progress()).board is not None
        lakes = Lakes(known, lake, store)
        executors = {"here": "in_process", "steps": "multiprocess", "ray": "ray"}
        tables: dict[str, dict[str, Any]] = {
            name: {"config": config, "lake": str(lake), "executor": executor}
            for name, executor in executors.items()
        }
        tables["bucket"] = {**tables["ray"], "lake": f"s3://{BUCKET}"}
        cluster = Cluster(folder, database, tables, RAY_ADDRESS=ray.address)
        stack.callback(cluster.end)
        if any(trial.location in ("ray", "bucket") for trial in TRIALS):
            ray.start()
        cluster.start()
        yield Stage(cluster, ray, lakes)


FUNCTIONS = (kills,)
