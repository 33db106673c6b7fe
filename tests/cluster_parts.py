"""The real parts of a cluster, as processes of this machine: Postgres, Dagster's servers, Ray with two nodes.

Each says in a sentence what is missing where it cannot be had; all of them end with the block that they are in.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._cli.job import _create_run
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import GrpcServerTarget

from models.world.places import ROOT

NODES = ("127.0.0.1", "127.0.0.2")
PYTHON = (sys.executable, "-W", "ignore")
FLEETCAST = (*PYTHON, "-c", "from pipelines.cli import main; main()")


class Missing(Exception):
    """A part that is not on this machine; the message says how to get it."""


def free_port(host: str = NODES[0]) -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def wait_until(is_so: Callable[[], Any], what: str, limit_s: float = 60.0, every_s: float = 0.1) -> Any:
    """What `is_so` gives as soon as that is something; TimeoutError says what did not come."""
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
        """End it at once, as a machine that loses its power does: what was not committed is gone."""
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *options: Any) -> subprocess.CompletedProcess[str]:
        command = [*self.user, str(self.programs / program), *map(str, options)]
        # A server that is left running keeps what it inherits open: so no pipes.
        with (self.folder / "said").open("w+") as said:
            done = subprocess.run(command, cwd=self.folder, stdout=said, stderr=said, timeout=120)
            said.seek(0)
            text = said.read()
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
        """Start one; what it says goes to NAME.log."""
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
        """What it said so far."""
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

    def __init__(self, folder: Path, database: Postgres, locations: dict[str, dict[str, Any]]) -> None:
        self.home, self.database = folder, database
        for table in locations.values():
            table["port"] = free_port()
        lines = [f"[locations.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
                 for name, table in locations.items()]  # fmt: skip
        (folder / "deploy.toml").write_text("\n".join(lines), encoding="utf-8")
        said = yaml.safe_load((ROOT / "data" / "deploy" / "dagster.yaml").read_text(encoding="utf-8"))
        said["run_monitoring"]["poll_interval_seconds"] = 2  # ten, where nobody waits for it
        (folder / "dagster.yaml").write_text(yaml.safe_dump(said), encoding="utf-8")
        environment = os.environ | {
            "DAGSTER_HOME": str(folder),
            "FLEETCAST_POSTGRES_URL": database.url,
            "FLEETCAST_DEPLOYMENT": str(folder / "deploy.toml"),
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        }
        self.environment, self.locations = environment, locations
        self.servers = Servers(folder, environment)
        workspace = subprocess.run(
            [*FLEETCAST, "serve", "workspace", "deploy.toml"],
            cwd=folder, env=environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        (folder / "workspace.yaml").write_text(workspace, encoding="utf-8")

    def start(self) -> None:
        """Start all of it; returns when every location answers."""
        for name in self.locations:
            self.serve(name)
        self.start_daemon()
        for name, table in self.locations.items():
            wait_until(lambda port=table["port"]: answers(port), f"the code server of {name}")

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
        self, location: str, job: str, day: str, until: str = "", run_config: dict[str, Any] | None = None
    ) -> str:
        """Put a run into the queue; its id."""
        ends = {f"dagster/asset_partition_range_{end}": at for end, at in (("start", day), ("end", until))}
        port = self.locations[location]["port"]
        target = GrpcServerTarget(host=NODES[0], port=port, socket=None, location_name=location)
        with WorkspaceProcessContext(self.instance, target) as process:
            workspace = process.create_request_context()
            code = workspace.get_code_location(location)
            (repository,) = code.get_repositories().values()
            run = _create_run(
                self.instance, code, repository, repository.get_full_job(job), run_config=run_config or {},
                tags=ends if until else {"dagster/partition": day}, op_selection=None, run_id=None,
            )  # fmt: skip
            self.instance.submit_run(run.run_id, workspace)
        return run.run_id

    def ended(self, run: str, limit_s: float = 300.0) -> dg.DagsterRun:
        """The run once it has ended, or the one that took its place."""

        def last() -> dg.DagsterRun | None:
            runs = self.instance.get_runs(dg.RunsFilter(tags={"dagster/root_run_id": run}))
            newest = max([*runs, self.instance.get_run_by_id(run)], key=self.number)
            waits = newest.tags.get("dagster/will_retry") == "true"
            return newest if newest.is_finished and not waits else None

        return wait_until(last, f"the end of run {run}", limit_s, 0.5)

    def number(self, run: dg.DagsterRun) -> int:
        """How many runs came before it."""
        record = self.instance.get_run_record_by_id(run.run_id)
        return record.storage_id

    def end(self) -> None:
        """End all processes."""
        self.servers.end()


def answers(port: int, host: str = NODES[0]) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
