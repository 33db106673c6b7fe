"""SIGTERM and Ctrl-C end a real process within seconds, wherever it stands; the lake stays whole."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small import DAGSTER, small_config

from fleetcast.assets.lake.settings import run_parallel

ROOT = Path(__file__).resolve().parent.parent
WITHIN_S = 15.0  # on a machine that others use; alone it takes one or two, and five by force
COMMAND = """
import sys
import typer
from fleetcast.pipelines import shutdown
from fleetcast.pipelines.terminal import show_interrupted, cli_errors

def run():  # what it needs is imported here: the processes of a pool import the top
    from contextlib import contextmanager
    from fleetcast.assets.lake.settings import Progress
    from fleetcast.assets.pages.asset_metadata import SettingsResource
    from fleetcast.pipelines import nightly_run

    class Told(Progress):
        @contextmanager
        def bar(self, label, total):
            print(label.split()[0], flush=True)
            yield lambda done: None

    nightly_run.landed_files = list
    with cli_errors():
        nightly_run.run_night(SettingsResource(config=sys.argv[1], lake=sys.argv[2]), None, Told())

def stuck(what):
    import ctypes, multiprocessing, time
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
    print(child.pid, flush=True)
    callback = ctypes.CFUNCTYPE(None)(lambda: time.sleep(0.5))
    with cli_errors():
        while True:
            if what == "swallows":
                try:
                    time.sleep(600)
                except BaseException:
                    pass
            elif what == "loses":  # as a compiler that calls back into Python
                callback()
            else:  # of a pool whose processes got the signal too
                try:
                    time.sleep(600)
                except KeyboardInterrupt:
                    raise RuntimeError("a child process terminated abruptly") from None

if __name__ == "__main__":
    shutdown.GRACE_S = 2.0 if len(sys.argv) == 2 else shutdown.GRACE_S
    with shutdown.handle_signals(show_interrupted):
        try:
            run() if len(sys.argv) > 2 else stuck(sys.argv[1])
        except typer.Exit as left:
            sys.exit(left.exit_code)
"""


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command as a process of its own; a file, so that its children can be started too."""
    (folder / "command.py").write_text(COMMAND)
    (folder / "dagster.yaml").write_text(DAGSTER)
    env = os.environ | {"PYTHONPATH": str(ROOT), "DAGSTER_HOME": str(folder)}
    call = [sys.executable, str(folder / "command.py"), *arguments]
    return subprocess.Popen(call, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], by: signal.Signals) -> str:
    """Send the signal; what the process said before it ended with the signal's code, in time."""
    process.send_signal(by)
    begun = time.monotonic()
    try:
        _, output = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + by, output
    assert time.monotonic() - begun < WITHIN_S
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of one small night, which goes on from test to test."""
    folder = tmp_path_factory.mktemp("night")
    small_config(folder, policies='["reactive", "lt_i"]')
    return folder


@pytest.mark.parametrize("stage", ["requests", "forecast", "plan"])
def test_a_night_ends_in_seconds_at_every_stage_and_leaves_whole_files(stage: str, folder: Path) -> None:
    process = started(folder, str(folder / "small.toml"), str(folder / "lake"))
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == stage:
            break
    time.sleep(0.3)
    output = ended(process, signal.SIGTERM)
    assert output.strip() == "Interrupted. The lake has no partial files; run the same command to continue."
    for path in (folder / "lake").rglob("*.parquet"):
        pq.read_table(path, partitioning=None)
    assert list((folder / "lake" / ".scratch").glob("*")) == []


@pytest.mark.parametrize(
    ("what", "by"),
    [
        ("swallows", signal.SIGTERM),
        ("loses", signal.SIGTERM),
        ("fails", signal.SIGTERM),
        ("loses", signal.SIGINT),
    ],
)
def test_a_signal_that_is_swallowed_lost_or_turned_into_an_error_ends_it_too(
    what: str, by: signal.Signals, tmp_path: Path
) -> None:
    process = started(tmp_path, what)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    time.sleep(0.2)
    output = ended(process, by)
    assert output.strip() == "Interrupted. The lake has no partial files; run the same command to continue."
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_after_one_has_failed_no_item_begins() -> None:
    """Those in work are stopped, and end; of those that wait none begins."""
    begun, stopped = list[int](), threading.Event()

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise ValueError("of the first")
        assert stopped.wait(60)
        time.sleep(0.02)

    with pytest.raises(ValueError, match="of the first"):
        run_parallel(work, range(200), stopped.set)
    assert len(begun) < 200
    assert run_parallel(lambda item: item * item, range(200)) == [item * item for item in range(200)]
