"""Run tests with one file of the project changed in memory: nothing on disk changes, and caches stay valid.

`run_pytest` starts pytest with a `sitecustomize` that calls `change_file` in it and in each Python process
that a test starts. A change of the compiled kernel gives its cache another name, here in a temporary folder.
"""

import importlib.machinery
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from measure import HERE, ROOT

PASSED, FAILED = 0, 1  # of pytest; any other code says that the tests did not run
START = """import sys
sys.path.append({here!r})
from changed_file import change_file
change_file({path!r}, {text!r})
"""
USAGE, UNREAD = 4, "while loading conftest"
OPTIONS = ("-p", "no:cacheprovider", "--continue-on-collection-errors")  # an import that fails: FAILED
MEMORY_BYTES = 6 * 2**30  # of one process: a changed loop may fill the memory


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
        start = START.format(here=str(HERE), path=str(path), text=text)
        (Path(folder) / "sitecustomize.py").write_text(start, encoding="utf-8")
        variables = {**os.environ, "DAGSTER_HOME": str(ROOT), "MPLBACKEND": "Agg", "PYTHONPATH": folder}
        variables |= {"HYPOTHESIS_STORAGE_DIRECTORY": folder, **environment}
        if "models/replay" in str(path):
            variables.setdefault("NUMBA_CACHE_DIR", folder)
        command = [sys.executable, "-m", "pytest", "-x", "-q", *OPTIONS, *options, *tests]
        with subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, preexec_fn=partial(_limit_resources, limit_s),
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=10 * limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None, "on the clock, ten times the limit"
        code = None if process.returncode == -signal.SIGXCPU else process.returncode
        return FAILED if code == USAGE and UNREAD in output else code, output[-4000:]


def _limit_resources(cpu_s: float) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + 5))
