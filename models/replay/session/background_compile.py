"""Compile the kernel in a background process while this process does other work.

Numba keeps the interpreter busy while it compiles, so a thread would not help. The process only fills the
cache on disk. If it fails, the first process that needs the kernel compiles it.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from fleetcast.models.latency.profile_order import complete_catalogue
from fleetcast.models.replay.compiled import is_kernel_cached
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.replay.session.trace_rows import EMPTY_TRACE
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.project_paths import CODE

LIMIT_S = 600.0  # a longer compilation is stopped
_running: list[subprocess.Popen[bytes]] = []


@contextmanager
def compile_in_background() -> Iterator[None]:
    """Compile in the background during a `with` block, unless the kernel is cached; stop at its end."""
    if is_kernel_cached() or _running:
        yield
        return
    command = [sys.executable, "-m", "fleetcast.models.replay.session.background_compile"]
    # A new session: Ctrl-C reaches only this process. The child's input ends with it, even on kill -9.
    with subprocess.Popen(
        command, cwd=CODE, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        _running.append(process)
        try:
            yield
        finally:
            _running.remove(process)
            process.kill()


def is_compiling() -> bool:
    """Return whether a background process is compiling."""
    return any(process.poll() is None for process in _running)


def wait_for_compilation(progress: Callable[[int], None]) -> None:
    """Wait until no background process compiles; call `progress` every second with the seconds passed."""
    for process in _running:
        passed_s = 0
        while process.poll() is None:
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                passed_s += 1
                progress(passed_s)


def compile_kernel(with_balancer: bool = False) -> None:
    """Compile the kernel into the cache on disk, by an empty replay of one second.

    `with_balancer`: also the one that moves requests, in the same process.
    """
    catalogue = load_catalogue()
    office = load_config("office", catalogue)
    catalogue = complete_catalogue(catalogue.serving(office.fleet.deployments), office)
    for policy in ("lt_i", "llumnix") if with_balancer else ("lt_i",):
        config = office.under(policy)
        fleet = make_fleet(catalogue, config.fleet, config.replay, seed=0)
        schedule = Schedule(np.zeros((1, fleet.gpus.size, fleet.network_s.shape[0])))
        rules = make_rules(catalogue, config.replay, "follow")
        replay_trace(EMPTY_TRACE, fleet, schedule, rules, horizon_s=1.0)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    limit = threading.Timer(LIMIT_S, os._exit, (1,))
    limit.daemon = True
    limit.start()
    compile_kernel()
