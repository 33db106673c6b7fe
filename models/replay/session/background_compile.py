"""The kernel compiled by a process beside this one, while other work is done.

Numba keeps the interpreter busy while it compiles, so a thread would not do. The process only fills the cache
on disk; where it fails, whoever needs the kernel compiles it, as if it had never been.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from fleetcast.models.replay.compiled import is_kernel_cached
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.replay.session.trace_rows import EMPTY_TRACE
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.project_paths import CODE

LIMIT_S = 600.0  # a compilation that takes longer is given up
_running: list[subprocess.Popen[bytes]] = []


@contextmanager
def compile_in_background() -> Iterator[None]:
    """Compile beside the block, unless that was done before; what is not done when it ends is given up."""
    if is_kernel_cached() or _running:
        yield
        return
    command = [sys.executable, "-m", "fleetcast.models.replay.session.background_compile"]
    # A session of its own: Ctrl-C is ours to handle. Its input ends when we do, be it by kill -9.
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
    """Whether a process beside this one is at it."""
    return any(process.poll() is None for process in _running)


def wait_for_compilation(tell: Callable[[int], None]) -> None:
    """Wait until nobody compiles, telling every second how many have passed."""
    for process in _running:
        passed_s = 0
        while process.poll() is None:
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                passed_s += 1
                tell(passed_s)


def compile_kernel() -> None:
    """Play nothing for a second, on a fleet like any other: the cache on disk is full afterwards."""
    catalogue = load_catalogue()
    config = load_config("office", catalogue)
    catalogue = catalogue.serving(config.fleet.deployments)
    fleet = make_fleet(catalogue, config.fleet, config.replay, seed=0)
    nobody = np.zeros((1, fleet.gpus.size, fleet.network_s.shape[0]))
    replay_trace(
        EMPTY_TRACE, fleet, Schedule(nobody), make_rules(catalogue, config.replay, "follow"), horizon_s=1.0
    )


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    limit = threading.Timer(LIMIT_S, os._exit, (1,))
    limit.daemon = True
    limit.start()
    compile_kernel()
