"""Several configs in one Dagster instance. Each config is a code location: a process with an environment.

All locations load the same definitions. Each location has a config, a lake, an executor, schedules, a sensor
and days of its own. Its asset keys begin with its name.
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
from urllib.parse import urlsplit

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

IN_ONE_PROCESS = "in_process"  # the default: a process per step takes two seconds more each
PACKAGES = {"ray": "dagster_ray", "k8s": "dagster_k8s"}  # by executor: needed, installed by the extra
RAY_VARIABLE, RAY_PORT, RAY_TIMEOUT_S = "RAY_ADDRESS", 8265, 5.0
MODULE = "fleetcast.pipelines.locations"
HOST, PORT = "127.0.0.1", 4000


def require_executor(name: str, where: str = EXECUTOR_VARIABLE) -> None:
    """Raise ConfigError for an unknown executor, or one whose packages are not installed."""
    require_known(name, EXECUTORS, "executor", where)
    if name in PACKAGES and find_spec(PACKAGES[name]) is None:
        raise ConfigError(
            f"{where} is {name}, whose packages are not installed: pip install 'fleetcast[{name}]'."
        )


def require_cluster(name: str) -> None:
    """Raise ConfigError if the executor is ray and no cluster answers at RAY_ADDRESS, http://HOST:PORT."""
    if name != "ray":
        return
    address = os.environ.get(RAY_VARIABLE, "")
    remedy = f"Start one (ray start --head), and name its dashboard: {RAY_VARIABLE}=http://HEAD:8265."
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or RAY_PORT
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError(address)
        socket.create_connection((host, port), RAY_TIMEOUT_S).close()
    except ValueError as error:
        raise ConfigError(
            f"The executor ray needs a cluster, and {RAY_VARIABLE} is {address!r}. {remedy}"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"No Ray cluster answers at {RAY_VARIABLE}={address} ({reason}). {remedy}"
        ) from error


@dataclass(frozen=True)
class Location:
    """[locations.NAME]: a config, its lake and executor, and the address of its code server, if any."""

    config: str
    lake: str = ""
    executor: str = IN_ONE_PROCESS
    host: str = HOST
    port: Annotated[int, Range(1, 65_535)] | None = None


def read_deployment(path: Path) -> dict[str, Location]:
    """Return the locations of a deployment file by name. Raises ConfigError if the file is wrong.

    `lake` and `executor` above the tables are the defaults of all locations. Paths are relative to the file.
    """
    tables = read_toml(path)
    for key in tables:
        require_known(key, ("lake", "executor", "locations"), "key", path.name)
    shared: dict[str, Any] = {key: tables[key] for key in ("lake", "executor") if key in tables}
    if not isinstance(locations := tables.get("locations"), dict) or not locations:
        raise ConfigError(f'{path.name} names no config. Add one: [locations.office] config = "office".')
    return {name: _parse_location(name, shared, table, path) for name, table in locations.items()}


def _parse_location(name: str, shared: dict[str, Any], table: object, path: Path) -> Location:
    where = f"{path.name} [locations.{name}]"
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise ConfigError(
            f"{where}: the name of a location has letters, digits and _ only. Give it another name."
        )
    read: Location = build_dataclass(
        Location, {**shared, **table} if isinstance(table, dict) else table, where
    )
    require_executor(read.executor, f"{where} executor")
    config = str(path.parent.resolve() / read.config) if read.config.endswith(".toml") else read.config
    lake = read.lake if "://" in read.lake or not read.lake else str(path.parent.resolve() / read.lake)
    return Location(config, lake, read.executor, read.host, read.port)


def check_deployment(locations: dict[str, Location]) -> None:
    """Load every config. Raises ConfigError if one is wrong, or if two write the same days of one lake."""
    catalogue = load_catalogue()
    owners: dict[tuple[str, str], str] = {}
    for name, location in locations.items():
        trace = load_config(location.config, catalogue).trace.name
        owner = owners.setdefault((trace, location.lake), name)
        if owner != name:
            raise ConfigError(
                f"The locations {owner} and {name} both make the trace {trace!r} in one lake. "
                "Give one of them another [trace] name, or another lake."
            )


def enter_location(name: str) -> None:
    """Set the environment of this process and its children to that location of FLEETCAST_DEPLOYMENT.

    A run or a step inherits this environment, on another machine through the executor. Call this before you
    import a module that reads the environment.
    """
    if os.environ.get(LOCATION_VARIABLE) == name:
        return
    os.environ[LOCATION_VARIABLE] = name
    if file := os.environ.get(DEPLOYMENT_VARIABLE):
        locations = read_deployment(Path(file))
        require_known(name, locations, "location", Path(file).name)
        chosen = locations[name]
        first_of_lake = next(other for other in locations if locations[other].lake == chosen.lake)
        os.environ |= {
            CONFIG_VARIABLE: chosen.config,
            EXECUTOR_VARIABLE: chosen.executor,
            LANDS_VARIABLE: "yes" if name == first_of_lake else "no",
        }
        if chosen.lake:
            os.environ[LAKE_VARIABLE] = chosen.lake
        os.environ.pop(CONFIG_TEXT_VARIABLE, None)


def find_location(name: str | None) -> Location:
    """Return the location of that name in FLEETCAST_DEPLOYMENT; without a name that of the environment.

    Raises ConfigError if the deployment file, or the location in it, is missing.
    """
    if name is None:
        return Location(config="", executor=os.environ.get(EXECUTOR_VARIABLE) or IN_ONE_PROCESS)
    file = os.environ.get(DEPLOYMENT_VARIABLE)
    if file is None:
        raise ConfigError(
            f"{DEPLOYMENT_VARIABLE} names no file, so there is no location {name}. Set it, or name none."
        )
    locations = read_deployment(Path(file))
    require_known(name, locations, "location", Path(file).name)
    return locations[name]


def take_port(host: str, port: int) -> None:
    """Reserve a port until this process, or the program it execs, has ended. Raises ConfigError if taken.

    gRPC lets two servers listen on one port. The lock finds a server that starts at the same moment, the
    probe any other.
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
    """Return the arguments of `dagster dev`: FLEETCAST_DEPLOYMENT's locations, or that of the environment."""
    if (file := os.environ.get(DEPLOYMENT_VARIABLE)) is None:
        executor = os.environ.get(EXECUTOR_VARIABLE) or IN_ONE_PROCESS
        require_executor(executor)
        require_cluster(executor)
        return ["-m", "fleetcast.pipelines.definitions"]
    path = Path(os.path.expanduser(file)).resolve()
    locations = read_deployment(path)
    check_deployment(locations)
    for executor in sorted({location.executor for location in locations.values()}):
        require_cluster(executor)
    os.environ[DEPLOYMENT_VARIABLE] = str(path)
    workspace = HOME / "data" / ".dagster" / "workspace.yaml"
    workspace.parent.mkdir(parents=True, exist_ok=True)
    workspace.write_text(workspace_yaml(locations), encoding="utf-8")
    return ["-w", str(workspace)]


def workspace_yaml(locations: dict[str, Location]) -> str:
    """Return a workspace.yaml. Dagster starts the code server of each location that has no port."""
    entries = [
        {"python_module": {"module_name": MODULE, "attribute": name, "location_name": name}}
        if location.port is None
        else {"grpc_server": {"host": location.host, "port": location.port, "location_name": name}}
        for name, location in locations.items()
    ]
    return yaml.safe_dump({"load_from": entries}, sort_keys=False)
