"""Which tests run which lines: records by test file in data/.coverage, and the choice of tests by them.

line_recorder.py writes the records. The compiled kernel leaves no trace: its lines are recorded in
data/.coverage/plain, where the kernel is plain Python and each test ends after PLAIN_LIMIT_S.
"""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from line_recorder import FOLDERS, ROOT, digest
from measure import HERE

RECORDS = ROOT / "data" / ".coverage"
PLAIN = RECORDS / "plain"
PLAIN_LIMIT_S = 10.0  # CPU seconds of one test where the kernel is plain Python
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITION = FUNCTION | ast.ClassDef


class Ran(NamedTuple):
    """What a test runs of one file of the project."""

    seconds: float
    test: str
    lines: Sequence[int]


def record_tests(limit_s: float) -> None:
    """Record all test files that have no record of their present text; `limit_s` on the clock."""
    files = sorted(f"tests/{path.name}" for path in (ROOT / "tests").glob("test_*.py"))
    until_s = time.monotonic() + limit_s
    for folder, wanted in ((RECORDS, files), (PLAIN, kernel_test_files(files))):
        missing = [file for file in wanted if not is_recorded(folder, file)]
        left_s = until_s - time.monotonic()
        if missing and left_s > 0:
            record_files(missing, folder, left_s)
        if late := [file for file in missing if not is_recorded(folder, file)]:
            print(f"Not recorded: {' '.join(late)}", file=sys.stderr, flush=True)
    records.cache_clear()


def kernel_test_files(files: Iterable[str]) -> list[str]:
    """The test files that run the kernel by its session, without a lake."""
    return [file for file in files if re.search(r"models\.replay\.(run|session|kernel)", test_texts()[file])]


def record_files(files: Sequence[str], folder: Path, limit_s: float) -> None:
    """Record test files in one process, which ends after `limit_s`."""
    options = ("-n", "0", "-q", "-p", "no:cacheprovider", "-p", "line_recorder")
    environment = {**os.environ, "PYTHONPATH": str(HERE), "FLEETCAST_LINE_RECORDS": str(folder)}
    environment |= {"DAGSTER_HOME": str(ROOT), "MPLBACKEND": "Agg"}
    if folder == PLAIN:
        environment |= {"NUMBA_DISABLE_JIT": "1", "FLEETCAST_LINE_LIMIT_S": str(PLAIN_LIMIT_S)}
    command = [sys.executable, "-m", "pytest", *options, *files]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=sys.stderr, start_new_session=True
    ) as process:
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def is_recorded(folder: Path, file: str) -> bool:
    """Whether there is a record of the present text of a test file."""
    path = folder / f"{Path(file).stem}.json"
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["digest"] == digest(ROOT / file)


@cache
def records(folder: Path) -> dict[str, list[Ran]]:
    """What the recorded tests run of each file of the project.

    If a file of the project has changed since, its lines stand elsewhere: its tests are taken to run no line.
    """
    found: dict[str, list[Ran]] = {}
    for path in sorted(folder.glob("test_*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if not (ROOT / "tests" / f"{path.stem}.py").exists():
            continue
        for source, (text, tests) in record["sources"].items():
            is_same = (ROOT / source).exists() and text == digest(ROOT / source)
            for test, lines in tests.items():
                seconds = record["seconds"][test]
                found.setdefault(source, []).append(Ran(seconds, test, array("i", lines if is_same else ())))
    return found


def choose_tests(file: str, line: int, folder: Path = RECORDS) -> list[Ran]:
    """The recorded tests that show the effect of a line, the quickest first, in turn from different files.

    Those that run the line, or else its statement; for a line that runs at import alone, those that run a
    line which names what it defines. Where there are none, all that run the file. Of SQL, which has no lines,
    those whose file names it come first, then those that run the least of SQL.
    """
    own = records(folder).get(file, [])
    if file.endswith(".sql"):
        stem, count = Path(file).stem, sql_files_run(folder)
        return sorted(own, key=lambda ran: (not names(ran.test, stem), count[ran.test], ran))
    around = statements_around(file, line)
    if is_in_function(file, line):
        statement = range(around[-1].lineno, last_line(around[-1]) + 1)
        found = [ran for ran in own if line in ran.lines]
        found = found or [ran for ran in own if any(one in ran.lines for one in statement)]
    else:
        found = tests_naming(file, around, folder)
    return in_turn(found or own)


def in_turn(tests: Iterable[Ran]) -> list[Ran]:
    """The quickest test of each file, the quickest first; then the second of each, and so on."""
    ordered = sorted(tests)
    files = [ran.test.partition("::")[0] for ran in ordered]
    turn = [files[:n].count(file) for n, file in enumerate(files)]
    return [ran for _, ran in sorted(zip(turn, ordered, strict=True))]


def names(test: str, word: str) -> bool:
    """Whether the file of a test names a word."""
    return bool(re.search(rf"\b{word}\b", test_texts()[test.partition("::")[0]]))


@cache
def sql_files_run(folder: Path) -> Counter[str]:
    """How many files of sql/ each test runs."""
    return Counter(
        ran.test for file, tests in records(folder).items() if file.endswith(".sql") for ran in tests
    )


def statements_around(file: str, line: int) -> list[ast.stmt]:
    """The statements that a line is in, the outermost first."""
    around, inside = list[ast.stmt](), list[ast.AST]([syntax_tree(file)])
    while inside:
        parts = [part for one in inside for part in ast.iter_child_nodes(one)]
        found = [part for part in parts if isinstance(part, ast.stmt) and has_line(part, line)]
        around += found[:1]
        # An `except` or a `case` is no statement, and has some.
        inside = [*found[:1]] or [
            part for part in parts if isinstance(part, ast.excepthandler | ast.match_case)
        ]
    return around


def is_in_function(file: str, line: int) -> bool:
    """Whether a line runs when a function is called, and not at import."""
    return any(isinstance(one, FUNCTION) for one in statements_around(file, line)[:-1])


def has_line(statement: ast.stmt, line: int) -> bool:
    """Whether a line is one of a statement's, its decorators included."""
    first = min(one.lineno for one in (statement, *getattr(statement, "decorator_list", ())))
    return first <= line <= (statement.end_lineno or 0)


def last_line(statement: ast.stmt) -> int:
    """The last line of a statement, without its body."""
    body = getattr(statement, "body", None)
    return body[0].lineno - 1 if body and body[0].lineno > statement.lineno else statement.end_lineno or 0


def tests_naming(file: str, around: Sequence[ast.stmt], folder: Path) -> list[Ran]:
    """Tests that run a line which names what a statement defines, in its file or where that is imported."""
    module = ".".join(Path(file).with_suffix("").parts)
    users = [file, *importers().get(module, ())]
    for statement in reversed(around):
        words = names_behind(file, statement)
        word, found = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b"), list[Ran]()
        for user in users if words else ():
            texts = (ROOT / user).read_text(encoding="utf-8").splitlines()
            naming = {
                n for n, text in enumerate(texts, start=1) if word.search(text) and is_in_function(user, n)
            }
            found += [ran for ran in records(folder).get(user, ()) if not naming.isdisjoint(ran.lines)]
        if found:
            return list({ran.test: ran for ran in found}.values())
    return []


def names_behind(file: str, statement: ast.stmt) -> set[str]:
    """The names that a statement defines, and those that the file's other assignments make of them."""
    others = [one for one in syntax_tree(file).body if isinstance(one, ast.Assign | ast.AnnAssign)]
    found, more = set[str](), defined_names(statement)
    while more - found:
        found |= more
        more = {
            name for one in others for name in defined_names(one)
            if any(isinstance(part, ast.Name) and part.id in found for part in ast.walk(one))
        }  # fmt: skip
    return found


def defined_names(statement: ast.stmt) -> set[str]:
    """The names that an assignment, a function or a class defines."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    parts = [part for target in targets if target for part in ast.walk(target)]
    found = {part.id for part in parts if isinstance(part, ast.Name)}
    return found | ({statement.name} if isinstance(statement, DEFINITION) else set())


@cache
def syntax_tree(file: str) -> ast.Module:
    """A file of the project as Python reads it."""
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


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
    """The files of the project that import each module."""
    found: dict[str, set[str]] = {}
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for module in imported_modules(path.read_text(encoding="utf-8")):
            found.setdefault(module, set()).add(str(path.relative_to(ROOT)))
    return found
