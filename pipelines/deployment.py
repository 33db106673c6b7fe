"""Several configs in one Dagster instance: each is a code location, which is a process with an environment.

So the same definitions serve them all, and each has its config, lake and executor, its own schedules and
sensor, its own days, and asset keys that begin with its name.
"""

import fcntl
import os
import re
import socket
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import yaml

from fleetcast.assets.lake.environment_variables import (
    CONFIG_TEXT_VARIABLE,
    CONFIG_VARIABLE,
    DEPLOYMENT_VARIABLE,
    EXECUTOR_VARIABLE,
    EXECUTORS,
    LAKE_VARIABLE,
    LANDS_VARIABLE,
    LOCATION_VARIABLE,
)
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.project_paths import HOME
from fleetcast.models.world.toml_dataclasses import (
    ConfigError,
    Range,
    build_dataclass,
    read_toml,
    require_known,
)

IN_ONE_PROCESS = "in_process"  # a process per step would cost two seconds each
PACKAGES = {"ray": "dagster_ray", "k8s": "dagster_k8s"}  # that an executor needs, and the extra brings
MODULE = "fleetcast.pipelines.locations"
HOST, PORT = "127.0.0.1", 4000


def require_executor(name: str, where: str = EXECUTOR_VARIABLE) -> None:
    """Refuse an executor that nobody knows, or whose packages are not here."""
    require_known(name, EXECUTORS, "executor", where)
    if name in PACKAGES and find_spec(PACKAGES[name]) is None:
        raise ConfigError(f"{where} is {name}, whose packages are not here: pip install 'fleetcast[{name}]'.")


@dataclass(frozen=True)
class Location:
    """[locations.NAME]: a config, its lake, where its steps run; where its server listens, if it has one."""

    config: str
    lake: str = ""
    executor: str = IN_ONE_PROCESS
    host: str = HOST
    port: Annotated[int, Range(1, 65_535)] | None = None


def read_deployment(path: Path) -> dict[str, Location]:
    """The locations of a deployment's file, by name. ConfigError says in a line what is wrong with it.

    `lake` and `executor` above the tables are those of every location that names none. Paths are seen from
    the file.
    """
    tables = read_toml(path)
    for key in tables:
        require_known(key, ("lake", "executor", "locations"), "key", path.name)
    shared: dict[str, Any] = {key: tables[key] for key in ("lake", "executor") if key in tables}
    if not isinstance(named := tables.get("locations"), dict) or not named:
        raise ConfigError(f'{path.name} names no config. Write one: [locations.office] config = "office".')
    return {name: _location(name, shared, table, path) for name, table in named.items()}


def _location(name: str, shared: dict[str, Any], table: object, path: Path) -> Location:
    where = f"{path.name} [locations.{name}]"
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise ConfigError(f"{where}: a location is called by letters, digits and _. Give it another name.")
    said: Location = build_dataclass(
        Location, {**shared, **table} if isinstance(table, dict) else table, where
    )
    require_executor(said.executor, f"{where} executor")
    config = str(path.parent.resolve() / said.config) if said.config.endswith(".toml") else said.config
    lake = said.lake if "://" in said.lake or not said.lake else str(path.parent.resolve() / said.lake)
    return Location(config, lake, said.executor, said.host, said.port)


def check_deployment(locations: dict[str, Location]) -> None:
    """Read every config. ConfigError where one is wrong, or two would write the same days of one lake."""
    catalogue = load_catalogue()
    owners: dict[tuple[str, str], str] = {}
    for name, one in locations.items():
        trace = load_config(one.config, catalogue).trace.name
        owner = owners.setdefault((trace, one.lake), name)
        if owner != name:
            raise ConfigError(
                f"The locations {owner} and {name} both make the trace {trace!r} in one lake. "
                "Give one another [trace] name, or another lake."
            )


def enter_location(name: str) -> None:
    """Make this process, and what it starts, the location of that name, as FLEETCAST_DEPLOYMENT says.

    A run or a step is what started it: it was told all that stands there, on another machine by the executor.
    This comes before anything is imported that the environment speaks to.
    """
    if os.environ.get(LOCATION_VARIABLE) == name:
        return
    os.environ[LOCATION_VARIABLE] = name
    if file := os.environ.get(DEPLOYMENT_VARIABLE):
        locations = read_deployment(Path(file))
        require_known(name, locations, "location", Path(file).name)
        one = locations[name]
        beside = [other for other, told in locations.items() if told.lake == one.lake]
        told = {
            CONFIG_VARIABLE: one.config,
            EXECUTOR_VARIABLE: one.executor,
            LANDS_VARIABLE: "yes" if beside[0] == name else "no",
        }
        os.environ |= told | ({LAKE_VARIABLE: one.lake} if one.lake else {})
        os.environ.pop(CONFIG_TEXT_VARIABLE, None)


def find_location(name: str | None) -> Location:
    """The location of that name in FLEETCAST_DEPLOYMENT; without a name what the environment says."""
    if name is None:
        return Location(config="", executor=os.environ.get(EXECUTOR_VARIABLE) or IN_ONE_PROCESS)
    file = os.environ.get(DEPLOYMENT_VARIABLE)
    if file is None:
        raise ConfigError(
            f"{DEPLOYMENT_VARIABLE} names no file, so that there is no location {name}. Set it, or name none."
        )
    locations = read_deployment(Path(file))
    require_known(name, locations, "location", Path(file).name)
    return locations[name]


def take_port(host: str, port: int) -> None:
    """Hold a port until this process, or what it becomes, has ended. ConfigError where another has it.

    gRPC lets two servers listen on one port: the lock is for those that start at once, the probe for others.
    """
    taken = f"Port {port} of {host} is taken: is this code server running? Stop it, or choose another --port."
    lock = (Path(tempfile.gettempdir()) / f"fleetcast-{os.getuid()}-{port}.lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (BlockingIOError, OSError) as error:
        raise ConfigError(taken) from error
    os.set_inheritable(os.dup(lock.fileno()), True)


def dagster_dev_arguments() -> list[str]:
    """What `dagster dev` is told to load: FLEETCAST_DEPLOYMENT's locations, or the one of the environment."""
    if (file := os.environ.get(DEPLOYMENT_VARIABLE)) is None:
        require_executor(os.environ.get(EXECUTOR_VARIABLE) or IN_ONE_PROCESS)
        return ["-m", "fleetcast.pipelines.definitions"]
    path = Path(file).expanduser().resolve()
    locations = read_deployment(path)
    check_deployment(locations)
    os.environ[DEPLOYMENT_VARIABLE] = str(path)
    written = HOME / "data" / ".dagster" / "workspace.yaml"
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(workspace_yaml(locations), encoding="utf-8")
    return ["-w", str(written)]


def workspace_yaml(locations: dict[str, Location]) -> str:
    """A workspace.yaml: Dagster starts the server of a location, unless that has a port."""
    entries = [
        {"python_module": {"module_name": MODULE, "attribute": name, "location_name": name}}
        if one.port is None
        else {"grpc_server": {"host": one.host, "port": one.port, "location_name": name}}
        for name, one in locations.items()
    ]
    return yaml.safe_dump({"load_from": entries}, sort_keys=False)
