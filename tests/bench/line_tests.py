"""Which tests run which lines: recorded by coverage.py, test file by test file, into data/.coverage.

Each test file is recorded in a process of its own, and its record is kept when it ends: an interruption loses
one file. Only tests that pass are recorded. This file is also the plugin of pytest that records:
`uv run --with coverage python -m pytest -p line_tests`.
The compiled kernel and SQL leave no trace there; `nearest_tests` finds test files by imports and names.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECORDS = ROOT / "data" / ".coverage"
SLOW = set(
    re.findall(
        r'"(\w+)"',
        re.findall(r"SLOWEST = \((.*?)^\)", (ROOT / "tests/conftest.py").read_text(), re.S | re.M)[0],
    )
)
FOLDERS = ("assets", "models", "pipelines")
FILE_LIMIT_S = 900.0  # seconds on the clock to record one test file


class LineRecorder:
    """A plugin that notes the time of each test and, with coverage.py, its lines."""

    def __init__(self, folder: Path) -> None:
        import coverage

        self.folder = folder
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        sources = [str(ROOT / name) for name in FOLDERS]
        self.coverage = coverage.Coverage(data_file=None, source=sources, config_file=False)
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what runs during a test, its fixtures included."""
        self.coverage.switch_context(item.nodeid)
        begun = time.perf_counter()
        yield
        self.seconds[item.nodeid] = time.perf_counter() - begun
        self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out a test that fails, or is skipped, without any change."""
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write one record by test file."""
        self.coverage.stop()
        for test in self.failed:
            self.seconds.pop(test, None)
        data, lines = self.coverage.get_data(), dict[str, dict[str, dict[str, list[int]]]]()
        for path in data.measured_files():
            source = str(Path(path).resolve().relative_to(ROOT))
            for line, tests in data.contexts_by_lineno(path).items():
                for test in self.seconds.keys() & set(tests):
                    of_file = lines.setdefault(test.partition("::")[0], {})
                    of_file.setdefault(source, {}).setdefault(test, []).append(line)
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in {test.partition("::")[0] for test in self.seconds}:
            own = {test: spent for test, spent in self.seconds.items() if test.startswith(f"{file}::")}
            sources = {
                source: [digest(ROOT / source), tests] for source, tests in lines.get(file, {}).items()
            }
            record = {"digest": digest(ROOT / file), "seconds": own, "sources": sources}
            (self.folder / f"{Path(file).stem}.json").write_text(json.dumps(record), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record where it is wanted."""
    if folder := os.environ.get("FLEETCAST_LINE_RECORDS"):
        config.pluginmanager.register(LineRecorder(Path(folder)))


def digest(path: Path) -> str:
    """The text of a file, in 16 characters."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def record_tests(files: Iterable[str], limit_s: float) -> None:
    """Record each test file that has no record of its present text, in a process of its own.

    A file that takes over FILE_LIMIT_S has no record; the whole takes at most `limit_s`, in seconds.
    """
    until_s = time.monotonic() + limit_s
    for file in files:
        left_s = min(until_s - time.monotonic(), FILE_LIMIT_S)
        if recorded(file) is None and left_s > 0 and not record_file(file, left_s):
            print(f"{file} was not recorded: over {left_s:.0f} s.", file=sys.stderr, flush=True)


def record_file(file: str, limit_s: float) -> bool:
    """Record one test file; whether it ended in time."""
    uv = (str(ROOT / ".venv" / "bin" / "uv"), "run", "--frozen", "--no-sync", "--with", "coverage")
    options = ("-n", "0", "-q", "-p", "no:cacheprovider", "-p", "line_tests")
    environment = {**os.environ, "PYTHONPATH": str(HERE), "FLEETCAST_LINE_RECORDS": str(RECORDS)}
    environment |= {"DAGSTER_HOME": str(ROOT), "MPLBACKEND": "Agg"}
    command = [*uv, "python", "-m", "pytest", *options, file]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=sys.stderr, start_new_session=True
    ) as process:
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False
    return True


def recorded(file: str) -> dict[str, Any] | None:
    """The record of a test file; None where there is none of its present text."""
    path = RECORDS / f"{Path(file).stem}.json"
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return record if record and record["digest"] == digest(ROOT / file) else None


def covering_tests(file: str, line: int, test_files: Iterable[str]) -> list[tuple[float, str]]:
    """The recorded tests that run a line, the quickest first; seconds and name of each."""
    found = []
    for record in filter(None, map(recorded, test_files)):
        of_source, tests = record["sources"].get(file, ("", {}))
        if of_source == digest(ROOT / file):
            found += [(record["seconds"][test], test) for test, lines in tests.items() if line in lines]
    return sorted(found)


@cache
def test_texts() -> dict[str, str]:
    """The test files, each with the text of the helpers that it imports."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").glob("*.py"))}
    helpers = {path.stem: text for path, text in texts.items() if not path.stem.startswith("test_")}
    found = {}
    for path, text in texts.items():
        if path.stem.startswith("test_"):
            named = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
            found[f"tests/{path.name}"] = text + "".join(helpers.get(name, "") for name in named)
    return found


def imported_modules(text: str) -> set[str]:
    """The names that a text imports from the project, each as module and as member of one."""
    found = set[str]()
    for module, many, one in re.findall(r"^from fleetcast\.([\w.]+) import (?:\(([^)]*)\)|(.*))", text, re.M):
        found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", many or one))}
    return found


@cache
def importers() -> dict[str, set[str]]:
    """The modules and test files that import each module."""
    found: dict[str, set[str]] = {}
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    texts = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text("utf-8") for path in paths
    }
    for name, text in (texts | test_texts()).items():
        for module in imported_modules(text):
            found.setdefault(module, set()).add(name)
    return found


def nearest_tests(file: str, most: int) -> list[str]:
    """Test files that import a module or name an SQL file, through the fewest modules; slow ones last."""
    path = Path(file)
    if path.suffix == ".sql":
        found = {test for test, text in test_texts().items() if re.search(rf"\b{path.stem}\b", text)}
    else:
        seen = near = {".".join(path.with_suffix("").parts)}
        found = set[str]()
        while near and not found:
            near = {name for module in near for name in importers().get(module, ())} - seen
            seen, found = seen | near, {name for name in near if name.endswith(".py")}

    def order(test: str) -> tuple[bool, bool, int]:
        name = Path(test).stem.removeprefix("test_")
        return name in SLOW, name not in path.stem and path.stem not in name, len(test_texts()[test])

    return sorted(found, key=order)[:most]
