"""Run tests with one file of the project changed in memory: nothing on disk changes, and caches stay valid.

`run_pytest` runs pytest in a fork of a process that has imported what the tests import from other packages:
that takes most of the seconds of a quick test. The fork, and each Python process that a test starts, calls
`change_file`. A change of the compiled kernel gives its cache another name, here in a temporary folder.
"""

import atexit
import importlib.machinery
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from measure import HERE, ONE_THREAD, ROOT

PASSED, FAILED = 0, 1  # of pytest; any other code says that the tests did not run
START = """import sys
sys.path.append({here!r})
from changed_file import change_file
change_file({path!r}, {text!r})
"""
SERVER = f"import sys; sys.path.append({str(HERE)!r}); from changed_file import serve_forks; serve_forks()"
FIRST_IMPORTS = """import sys
sys.path.insert(0, "tests")
import conftest, fleetcast.pipelines.definitions
files = {name: str(getattr(module, "__file__", "")) for name, module in sys.modules.items()}
print(*(name for name, file in files.items() if "site-packages" in file))
"""
USAGE = 4
NO_IMPORT = ("while loading conftest", "found no collectors for")  # a test's file could not be imported
OPTIONS = ("-p", "no:cacheprovider", "--continue-on-collection-errors")  # an import that fails: FAILED
MEMORY_BYTES = 6 * 2**30  # of one process: a changed loop may fill the memory
PER_THREAD = threading.local()


def change_file(path: str, text: str) -> None:
    """Let this process import and read another text of a file: by import, `open` and `Path.read_*`."""
    loader, of_path = importlib.machinery.SourceFileLoader, Path
    name, real = os.path.basename(path), os.path.realpath(path)

    def is_changed(other: Any) -> bool:
        return os.path.basename(other) == name and os.path.realpath(other) == real

    get_data, path_stats = loader.get_data, loader.path_stats
    read_text, read_bytes = of_path.read_text, of_path.read_bytes

    def stats(self: Any, other: str) -> Any:
        if is_changed(other):
            raise OSError("no stored bytecode is of this text")
        return path_stats(self, other)

    changes: dict[tuple[Any, str], Any] = {
        (loader, "path_stats"): stats,
        (loader, "get_data"): lambda self, other: (
            text.encode() if is_changed(other) else get_data(self, other)
        ),
        (of_path, "read_text"): lambda self, *a, **k: text if is_changed(self) else read_text(self, *a, **k),
        (of_path, "read_bytes"): lambda self: text.encode() if is_changed(self) else read_bytes(self),
    }
    for (owner, attribute), function in changes.items():
        setattr(owner, attribute, function)


def run_pytest(
    tests: Sequence[str], path: Path, text: str, limit_s: float, *options: str, **environment: str
) -> tuple[int | None, str]:
    """Run tests up to the first that fails: pytest's code, and the end of its output.

    A test file or conftest.py that cannot be imported has failed. The code is None where pytest takes
    more CPU seconds than `limit_s`, or ten times as many on the clock.
    """
    with tempfile.TemporaryDirectory() as folder:
        start, output = START.format(here=str(HERE), path=str(path), text=text), Path(folder) / "output"
        (Path(folder) / "sitecustomize.py").write_text(start, encoding="utf-8")
        variables = {**os.environ, "DAGSTER_HOME": str(ROOT), "MPLBACKEND": "Agg", "PYTHONPATH": folder}
        variables |= {"HYPOTHESIS_STORAGE_DIRECTORY": folder, **environment}
        if path in kernel_files():
            variables.setdefault("NUMBA_CACHE_DIR", folder)
        request = {
            "arguments": ["-x", "-q", *OPTIONS, *options, *tests], "environment": variables,
            "path": str(path), "text": text, "limit_s": limit_s, "output": str(output),
        }  # fmt: skip
        code = _ask_server(request)
        if code is None:
            return None, "on the clock, ten times the limit"
        printed = output.read_text(encoding="utf-8", errors="replace")
        if code == -signal.SIGXCPU:
            return None, printed[-4000:]
        is_failed = code == USAGE and any(text in printed for text in NO_IMPORT)
        return FAILED if is_failed else code, printed[-4000:]


def kernel_files() -> set[Path]:
    """The files that are compiled. Not imported above: the server must not have the project's modules."""
    from fleetcast.models.replay.compiled import REPLAY_FOLDER, kernel_sources

    return {REPLAY_FOLDER / f"{name.replace('.', '/')}.py" for name in kernel_sources()}


def _ask_server(request: dict[str, Any]) -> int | None:
    """Run pytest in a fork of this thread's server: its code, None after ten times its limit."""
    server: subprocess.Popen[bytes] | None = getattr(PER_THREAD, "server", None)
    if server is None or server.poll() is not None:
        server = PER_THREAD.server = subprocess.Popen(
            [sys.executable, "-c", SERVER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            bufsize=0,  # a line that is read ahead would not be seen by `select`
            env={**os.environ, **ONE_THREAD, "MPLBACKEND": "Agg", "DAGSTER_HOME": str(ROOT)},
        )  # fmt: skip
        atexit.register(server.kill)
    assert server.stdin
    assert server.stdout
    server.stdin.write(json.dumps(request).encode() + b"\n")
    pid = int(server.stdout.readline())
    is_over = not select.select([server.stdout], [], [], 10 * request["limit_s"])[0]
    with suppress(ProcessLookupError):  # also of the processes that the tests left
        os.killpg(pid, signal.SIGKILL)
    code = int(server.stdout.readline())
    return None if is_over else code


def serve_forks() -> None:
    """Run pytest in a fork for each line of the input; print the number of the fork, then its code."""
    command = [sys.executable, "-c", FIRST_IMPORTS]
    for name in subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split():
        with suppress(Exception):  # a module that another one must import first
            importlib.import_module(name)
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            _run_request(json.loads(line))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _run_request(request: dict[str, Any]) -> None:
    """Run pytest in this fork, and end it."""
    os.setsid()
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT)
    for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(request["environment"])
    cpu_s = int(request["limit_s"])
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    code: Any = FAILED
    try:
        import numba
        import pytest

        numba.config.reload_config()  # type: ignore[attr-defined]
        change_file(request["path"], request["text"])
        sys.path.insert(0, str(ROOT))
        code = pytest.main(request["arguments"])
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)
