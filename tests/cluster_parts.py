"""The real parts of a cluster, as processes of this machine: Postgres, Dagster's servers, Ray with two nodes.

A missing part is named in one sentence; all processes end with the block that starts them.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.definitions.selector import JobSubsetSelector
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import GrpcServerTarget

from fleetcast.models.world.project_paths import ROOT
from fleetcast.pipelines import deployment

NODES = ("127.0.0.1", "127.0.0.2")
PYTHON = (sys.executable, "-W", "ignore")
FLEETCAST = (*PYTHON, "-c", "from fleetcast.pipelines.cli import main; main()")


class Missing(Exception):
    """A part that is not on this machine; the message names the way to install it."""


def free_port(host: str = NODES[0]) -> int:
    """A port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def wait_until(is_so: Callable[[], Any], what: str, limit_s: float = 60.0, every_s: float = 0.1) -> Any:
    """The first true value of `is_so`; TimeoutError names what did not happen."""
    ends_s = time.monotonic() + limit_s
    while time.monotonic() < ends_s:
        if given := is_so():
            return given
        time.sleep(every_s)
    raise TimeoutError(f"{what} did not come within {limit_s:g} s")


# --- Postgres ---------------------------------------------------------------------------------------------


class Postgres:
    """A server in a folder of its own, reached over a socket there; stopped and started again by tests."""

    def __init__(self) -> None:
        newest = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
        if not newest:
            raise Missing("no Postgres here: apt install postgresql")
        if not (find_spec("dagster_postgres") and find_spec("psycopg2")):
            raise Missing("no dagster-postgres here: uv sync --extra cluster")
        self.programs = newest[-1].parent
        self.folder = Path(
            tempfile.mkdtemp(prefix="fleetcast-")
        )  # a socket's path has 107 characters at most
        self.user: list[str] = []
        if os.geteuid() == 0:  # root may not run it; the user that Debian's package made may
            self.user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            shutil.chown(self.folder, "postgres")
        made = self._run("initdb", "-D", self.folder / "data", "-U", "dagster", "-A", "trust", "--no-sync")
        if made.returncode:
            raise Missing(f"Postgres could not be set up here: {made.stderr.strip().splitlines()[-1]}")
        self.url = f"postgresql+psycopg2://dagster@/postgres?host={self.folder}"

    def start(self) -> None:
        """Serve; returns when it answers."""
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections=300"
        log = self.folder / "log"
        done = self._run("pg_ctl", "-D", self.folder / "data", "-l", log, "-o", options, "-w", "start")
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self) -> None:
        """End it at once, as a power failure does: uncommitted data is lost."""
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *options: Any) -> subprocess.CompletedProcess[str]:
        command = [*self.user, str(self.programs / program), *map(str, options)]
        # A server that is left running keeps what it inherits open: so no pipes.
        with (self.folder / "said").open("w+") as output:
            done = subprocess.run(command, cwd=self.folder, stdout=output, stderr=output, timeout=120)
            output.seek(0)
            text = output.read()
        return subprocess.CompletedProcess(command, done.returncode, text, text)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A Postgres that serves while the block lasts. Missing where there is none."""
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


# --- processes that serve ---------------------------------------------------------------------------------


class Servers:
    """Processes by name, each in a group of its own, which ends as a whole."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str, **more: str) -> subprocess.Popen[bytes]:
        """Start one; its output goes to NAME.log."""
        log = (self.folder / f"{name}.log").open("ab")
        self.running[name] = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment | more,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        return self.running[name]

    def kill(self, name: str) -> None:
        """kill -9 of a process and of all that it started."""
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def log(self, name: str) -> str:
        """Its output so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def end(self) -> None:
        """End all of them."""
        for name in list(self.running):
            try:
                self.kill(name)
            except ProcessLookupError:
                self.running.pop(name, None)


# --- Dagster on Postgres ----------------------------------------------------------------------------------


class Cluster:
    """Dagster as data/deploy sets it up: Postgres, a daemon with a queue, a code server for each location."""

    def __init__(
        self, folder: Path, database: Postgres, locations: dict[str, dict[str, Any]], **more: str
    ) -> None:
        self.home, self.database = folder, database
        for table in locations.values():
            table["port"] = free_port()
        lines = list[str]()
        for name, table in locations.items():
            lines += [f"[locations.{name}]", *(f"{key} = {json.dumps(v)}" for key, v in table.items())]
        (folder / "deploy.toml").write_text("\n".join(lines), encoding="utf-8")
        config = yaml.safe_load((ROOT / "data" / "deploy" / "dagster.yaml").read_text(encoding="utf-8"))
        config["run_monitoring"]["poll_interval_seconds"] = 2  # ten, outside of tests
        (folder / "dagster.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        environment = (
            os.environ
            | more
            | {
                "DAGSTER_HOME": str(folder),
                "FLEETCAST_POSTGRES_URL": database.url,
                "FLEETCAST_DEPLOYMENT": str(folder / "deploy.toml"),
                "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
            }
        )
        self.environment, self.locations = environment, locations
        self.servers = Servers(folder, environment)
        workspace = deployment.workspace_yaml(deployment.read_deployment(folder / "deploy.toml"))
        (folder / "workspace.yaml").write_text(workspace, encoding="utf-8")

    def start(self) -> None:
        """Start all of it; returns when every location answers."""
        for name in self.locations:
            self.serve(name)
        self.start_daemon()
        for name, table in self.locations.items():
            wait_until(lambda port=table["port"]: answers(port), f"the code server of {name}", 300)

    def serve(self, name: str) -> None:
        """Start the code server of a location."""
        self.servers.start(name, *FLEETCAST, "serve", "code", name)

    def start_daemon(self) -> None:
        """Start the daemon, which takes runs from the queue and looks after them."""
        self.servers.start("daemon", *PYTHON, "-m", "dagster._daemon", "run", "-w", "workspace.yaml")

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        """The instance, as a client of Postgres."""
        os.environ["FLEETCAST_POSTGRES_URL"] = self.database.url  # named by dagster.yaml
        return dg.DagsterInstance.from_config(str(self.home))

    def submit(
        self, location: str, job: str, day: str, until: str = "",
        only: Sequence[str] = (), tags: dict[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Put a run into the queue, of all assets of the job or of some without their checks; its id."""
        ends = {f"dagster/asset_partition_range_{end}": at for end, at in (("start", day), ("end", until))}
        selection = {self.key(location, name) for name in only}
        port = self.locations[location]["port"]
        target = GrpcServerTarget(host=NODES[0], port=port, socket=None, location_name=location)
        wait_until(lambda: self.is_loaded(target, location), f"the code of {location}", 120, 1.0)
        with WorkspaceProcessContext(self.instance, target) as process:
            workspace = process.create_request_context()
            code = workspace.get_code_location(location)
            (repository,) = code.get_repositories().values()
            selector = JobSubsetSelector(
                location, repository.name, job, None,
                asset_selection=selection or None, asset_check_selection=set() if selection else None,
            )  # fmt: skip
            chosen = code.get_job(selector)
            run_tags = {**(tags or {}), **(ends if until else {"dagster/partition": day})}
            planned = code.get_execution_plan(chosen, {}, None, None, instance=self.instance)
            plan = planned.execution_plan_snapshot
            run = self.instance.create_run(
                job_name=job, run_id=None, run_config={}, status=None, tags=run_tags, root_run_id=None,
                parent_run_id=None, step_keys_to_execute=plan.step_keys_to_execute,
                execution_plan_snapshot=plan, job_snapshot=chosen.job_snapshot,
                parent_job_snapshot=chosen.parent_job_snapshot, asset_selection=selector.asset_selection,
                asset_check_selection=selector.asset_check_selection, resolved_op_selection=None,
                op_selection=None, remote_job_origin=chosen.get_remote_origin(),
                job_code_origin=chosen.get_python_origin(), asset_graph=repository.asset_graph,
            )  # fmt: skip
            self.instance.submit_run(run.run_id, workspace)
        return run.run_id

    def is_loaded(self, target: GrpcServerTarget, location: str) -> bool:
        """Whether the server of a location has loaded its definitions."""
        with WorkspaceProcessContext(self.instance, target) as process:
            return process.create_request_context().has_code_location(location)

    def ended(self, run: str, limit_s: float = 300.0) -> dg.DagsterRun:
        """The run once it has ended, or the one that took its place."""

        def last() -> dg.DagsterRun | None:
            runs = self.instance.get_runs(dg.RunsFilter(tags={"dagster/root_run_id": run}))
            newest = max([*runs, self.instance.get_run_by_id(run)], key=self.number)
            failed = newest.status is dg.DagsterRunStatus.FAILURE  # the tag comes a moment later
            waits = failed and newest.tags.get("dagster/will_retry") != "false"
            return newest if newest.is_finished and not waits else None

        return wait_until(last, f"the end of run {run}", limit_s, 0.5)

    def events(self, run: str) -> list[dg.DagsterEvent]:
        """What happened in a run so far."""
        entries = self.instance.all_logs(run)
        return [entry.dagster_event for entry in entries if entry.dagster_event]

    def why(self, run: str) -> str:
        """The failures of a run, as text."""
        failed = [event for event in self.events(run) if event.is_failure]
        return "\n".join(str(event.event_specific_data or event.message) for event in failed)

    @staticmethod
    def key(*parts: str) -> dg.AssetKey:
        """The key of an asset, with that of its location first."""
        return dg.AssetKey(list(parts))

    def number(self, run: dg.DagsterRun) -> int:
        """The number of runs before it."""
        record = self.instance.get_run_record_by_id(run.run_id)
        return record.storage_id

    def end(self) -> None:
        """End all processes."""
        self.servers.end()


def answers(port: int, host: str = NODES[0]) -> bool:
    """Whether a server listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


# --- Ray --------------------------------------------------------------------------------------------------


class Ray:
    """A head and a node of Ray, each on a loopback address of its own: to Ray these are two machines."""

    def __init__(self, environment: dict[str, str]) -> None:
        if not (find_spec("ray") and find_spec("dagster_ray")):
            raise Missing("no Ray here: uv sync --extra ray")
        self.folder = Path(tempfile.mkdtemp(prefix="fcray"))  # of sockets, whose paths are short
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        more = {"PATH": path, "RAY_raylet_start_wait_time_s": "60"}  # a step is the command `dagster`
        self.servers = Servers(self.folder, environment | more)
        self.port, self.pages = free_port(), free_port()

    def start(self) -> None:
        """Start both; returns when Ray has both."""
        self._start(NODES[0], "--head", f"--port={self.port}", f"--temp-dir={self.folder}",
                    f"--dashboard-host={NODES[0]}", f"--dashboard-port={self.pages}")  # fmt: skip
        wait_until(self.alive, "Ray's head", 120, 0.5)
        self.add()

    def add(self) -> None:
        """Start the other node; a busy machine may need a second attempt."""

        def is_there() -> bool:
            if NODES[1] not in self.servers.running or self.servers.running[NODES[1]].poll() is not None:
                self._start(NODES[1], f"--address={NODES[0]}:{self.port}")
            return NODES[1] in self.alive()

        wait_until(is_there, "Ray's second node", 400, 0.5)

    def kill(self) -> None:
        """kill -9 of the other node with all that runs on it."""
        self.servers.kill(NODES[1])
        wait_until(lambda: NODES[1] not in self.alive(), "the death of Ray's second node", 120, 0.5)

    def alive(self) -> list[str]:
        """The addresses of the nodes that Ray has."""
        try:
            with urllib.request.urlopen(f"{self.address}/api/v0/nodes", timeout=20) as answer:
                nodes = json.load(answer)["data"]["result"]["result"]
        except (OSError, ValueError):
            return []
        return [node["node_ip"] for node in nodes if node["state"] == "ALIVE"]

    @property
    def address(self) -> str:
        """Where jobs are submitted: RAY_ADDRESS."""
        return f"http://{NODES[0]}:{self.pages}"

    def _start(self, host: str, *options: str) -> None:
        own = [f"--{name}={free_port(host)}" for name in ("dashboard-agent-grpc-port", "metrics-export-port")]
        own += [f"--dashboard-agent-listen-port={free_port(host)}", f"--node-ip-address={host}"]
        small = ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats", "--block"]
        program = "from ray.scripts.scripts import main; main()"
        self.servers.start(host, *PYTHON, "-c", program, "start", *options, *own, *small)

    def end(self) -> None:
        """End both."""
        self.servers.end()
        shutil.rmtree(self.folder, ignore_errors=True)
