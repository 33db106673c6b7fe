"""A plugin of pytest that records which lines of the project each test runs, with coverage.py.

`FLEETCAST_LINE_RECORDS=FOLDER PYTHONPATH=tests/bench python -m pytest -p line_recorder FILE ...`, all in one
process. When a test file ends, its record is written to FOLDER: an interruption loses one file. Only tests
that pass are recorded. Also recorded are processes that a test starts (line_recorder is then imported by
`sitecustomize`), and files of sql/ whose text DuckDB gets: of these the line is 0.

What runs once for many tests counts for each: the fixtures of a module or session that it uses, and what
its file runs when it is imported. Caches of functions are cleared before each test.
With FLEETCAST_LINE_LIMIT_S a test is ended after so many CPU seconds, and recorded up to there: the kernel as
plain Python (NUMBA_DISABLE_JIT) is slow.
"""

import atexit
import hashlib
import json
import os
import re
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

from pluggy import HookimplMarker

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("assets", "models", "pipelines")
TEST, CHILDREN = "FLEETCAST_LINE_TEST", "FLEETCAST_LINE_CHILDREN"  # for the processes that a test starts
LIMIT_S = float(os.environ.get("FLEETCAST_LINE_LIMIT_S", 0.0))  # 0: none
START = "import sys; sys.path += {paths!r}; import line_recorder; line_recorder.record_child()"
Lines = dict[str, set[int]]  # by file of the project
around = HookimplMarker("pytest")(wrapper=True)


class TestLimitError(BaseException):
    """A test took longer than LIMIT_S."""


def digest(path: Path) -> str:
    """The text of a file, in 16 characters."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def cpu_seconds() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


@cache
def sql_bodies() -> dict[str, str]:
    """The text of each file of sql/ without its header."""
    paths = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "sql").rglob("*.sql"))}
    return {str(path.relative_to(ROOT)): re.sub(r"\A(--.*\n)+", "", text) for path, text in paths.items()}


@cache
def sql_files_of(query: str) -> tuple[str, ...]:
    """The files of sql/ whose text a query has."""
    text = query.replace("replace temp macro", "replace macro")
    return tuple(file for file, body in sql_bodies().items() if body.strip() in text)


class LineReader:
    """The lines, and files of sql/, that this process runs, by context."""

    def __init__(self) -> None:
        import coverage
        import duckdb

        self.context, self.sql = "", defaultdict[str, set[str]](set)
        sources = [str(ROOT / name) for name in FOLDERS]
        self.coverage = coverage.Coverage(data_file=None, source=sources, config_file=False)
        for name in ("execute", "sql", "query"):
            setattr(duckdb.DuckDBPyConnection, name, self.noting(getattr(duckdb.DuckDBPyConnection, name)))
        self.coverage.start()

    def noting(self, method: Any) -> Any:
        """The method of a connection, which also notes the files of sql/."""

        def noted(connection: Any, query: Any, *others: Any, **named: Any) -> Any:
            if isinstance(query, str):
                self.sql[self.context].update(sql_files_of(query))
            return method(connection, query, *others, **named)

        return noted

    def switch(self, context: str) -> str:
        """Begin another context; the one before."""
        before, self.context = self.context, context
        self.coverage.switch_context(context)
        return before

    def take(self) -> dict[str, Lines]:
        """All that was recorded since the last time, by context."""
        self.coverage.stop()
        found: dict[str, Lines] = defaultdict(dict)
        data = self.coverage.get_data()
        for path in data.measured_files():
            source = os.path.relpath(os.path.realpath(path), ROOT)
            for line, contexts in data.contexts_by_lineno(path).items():
                for context in contexts:
                    found[context].setdefault(source, set()).add(line)
        for context, files in self.sql.items():
            found[context] |= {file: {0} for file in files}
        self.sql.clear()
        self.coverage.erase()
        self.coverage.start()
        return found


def record_child() -> None:
    """Record this process, which a test has started, until it ends."""
    if not (test := os.environ.get(TEST)):
        return
    reader, leave = LineReader(), os._exit
    reader.switch(test)

    def write() -> None:
        lines = {source: sorted(lines) for source, lines in reader.take().get(test, {}).items()}
        file = Path(os.environ[CHILDREN]) / f"{uuid4().hex}.json"
        file.write_text(json.dumps([test, lines]), encoding="utf-8")

    def write_and_leave(code: int) -> None:
        write()
        leave(code)

    atexit.register(write)
    os._exit = write_and_leave  # a process of multiprocessing ends so


class LineRecorder:
    """Notes the seconds and the lines of each test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reader = folder, LineReader()
        paths = (path for name in ("tests", "sql", *FOLDERS) for path in (ROOT / name).rglob("*.*"))
        files = [path for path in paths if path.suffix in (".py", ".sql")]
        self.digests = {str(path.relative_to(ROOT)): digest(path) for path in files}  # as the tests begin
        self.children = Path(tempfile.mkdtemp())
        start = START.format(paths=[str(Path(__file__).parent), *sys.path])
        (self.children / "sitecustomize.py").write_text(start, encoding="utf-8")
        os.environ[CHILDREN] = str(self.children)
        os.environ["PYTHONPATH"] = str(self.children)
        self.seconds, self.failed = dict[str, float](), set[str]()
        self.uses = dict[str, set[str]]()  # the shared contexts of each test
        self.shared, self.shared_s = defaultdict[str, Lines](dict), dict[str, float]()
        if hasattr(os, "fork"):
            os.register_at_fork(after_in_child=self.record_fork)

    def record_fork(self) -> None:
        """Record a forked process, which ends with os._exit, until then."""
        leave, test = os._exit, os.environ.get(TEST, "")

        def write_and_leave(code: int) -> None:
            lines = {source: sorted(lines) for source, lines in self.reader.take().get(test, {}).items()}
            (self.children / f"{uuid4().hex}.json").write_text(json.dumps([test, lines]), encoding="utf-8")
            leave(code)

        os._exit = write_and_leave

    def in_context(self, context: str) -> Generator[None, Any, Any]:
        """Record what runs until this generator ends for a shared context."""
        before, begun = self.reader.switch(context), cpu_seconds()
        result = yield
        self.shared_s[context] = cpu_seconds() - begun
        self.reader.switch(before)
        return result

    @HookimplMarker("pytest")(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Take the slowest files last, which conftest.py takes first: an interruption loses those."""
        files = dict.fromkeys(item.path for item in items)
        place = {file: -n for n, file in enumerate(files)}
        items.sort(key=lambda item: place[item.path])

    @around
    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, Any]:
        """Note what a test file runs when it is imported."""
        return (yield from self.in_context(f"import {collector.nodeid}"))

    @around
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Note what a fixture of many tests runs; one of a single test is a part of it."""
        name = f"fixture {fixturedef.baseid}::{fixturedef.argname}"
        is_own = fixturedef.scope == "function"
        return (yield) if is_own else (yield from self.in_context(name))

    @around
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Generator[None, Any, Any]:
        """Note what runs during a test; write the record of its file after the last."""
        file = item.nodeid.partition("::")[0]
        fixtures = [one for found in item._fixtureinfo.name2fixturedefs.values() for one in found[-1:]]
        shared = {f"fixture {one.baseid}::{one.argname}" for one in fixtures if one.scope != "function"}
        self.uses[item.nodeid] = {*shared, f"import {file}"}
        for name, module in list(sys.modules.items()):
            for value in list(vars(module).values()) if name.startswith("fleetcast.") else ():
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()
        os.environ[TEST] = item.nodeid
        self.reader.switch(item.nodeid)
        begun, before_s = cpu_seconds(), sum(self.shared_s.values())
        if LIMIT_S:
            signal.signal(signal.SIGPROF, self.end_test)
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        result = yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.reader.switch("")
        fresh_s = sum(self.shared_s.values()) - before_s
        self.seconds[item.nodeid] = cpu_seconds() - begun - fresh_s
        if nextitem is None or nextitem.nodeid.partition("::")[0] != file:
            self.write_record(file, item.path)
        return result

    @staticmethod
    def end_test(_: int, frame: FrameType | None) -> None:
        """End a test after LIMIT_S."""
        import pytest

        pytest.fail("over the limit")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Leave out a test that fails, or is skipped, without any change."""
        if not (report.passed or (LIMIT_S and "over the limit" in str(report.longrepr))):
            self.failed.add(report.nodeid)

    def write_record(self, file: str, path: Path) -> None:
        """Write the record of a test file that has ended."""
        found = self.reader.take()
        for child in self.children.glob("*.json"):
            test, lines = json.loads(child.read_text(encoding="utf-8"))
            merge(found.setdefault(test, {}), {source: set(those) for source, those in lines.items()})
            child.unlink()
        for context in [name for name in found if name.startswith(("import ", "fixture "))]:
            merge(self.shared[context], found[context])
        tests = [test for test in self.seconds if test.startswith(f"{file}::") and test not in self.failed]
        sources: dict[str, dict[str, list[int]]] = {}
        for test in tests:
            lines: Lines = {}
            for part in (found.get(test, {}), *(self.shared[name] for name in self.uses[test])):
                merge(lines, part)
            for source, those in lines.items():
                sources.setdefault(source, {})[test] = sorted(those)
        fixture_s = {name: spent for name, spent in self.shared_s.items() if name.startswith("fixture ")}
        spent = {
            test: round(self.seconds[test] + sum(fixture_s.get(name, 0.0) for name in self.uses[test]), 3)
            for test in tests
        }
        record = {
            "digest": self.digests.get(os.path.relpath(path, ROOT)),
            "seconds": spent,
            "sources": {source: [self.digests.get(source), those] for source, those in sources.items()},
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{Path(file).stem}.json").write_text(json.dumps(record), encoding="utf-8")


def merge(lines: Lines, others: Lines) -> None:
    """Add lines of other contexts."""
    for source, those in others.items():
        lines.setdefault(source, set()).update(those)


def pytest_configure(config: Any) -> None:
    """Record where it is wanted."""
    if folder := os.environ.get("FLEETCAST_LINE_RECORDS"):
        config.pluginmanager.register(LineRecorder(Path(folder)))
