"""The benches work: small sizes run, and the programs of all others import."""

import importlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Set
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import hostile_verdict
import process_verdicts
import pytest

from fleetcast.models.world.project_paths import HOME

QUICK = (
    "fidelity",
    "legs",
    "levels",
    "plan",
    "replay",
    "wall",
    "traces",
    "gpus",
    "gpus_table3",
    "gpus_study",
)
QUICK += ("dynamo", "scaler", "vllm_scheduler", "quality_scale", "hostile")


def test_every_bench_imports_and_small_sizes_run() -> None:
    """In one process. A bench that lacks data or a package prints a line and is skipped."""
    done = subprocess.run(
        [sys.executable, "tests/bench", "--smoke", *QUICK],
        cwd=HOME, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line for line in done.stdout.splitlines() if line.endswith("CPU-s")]
    assert len(ran) >= 25, done.stdout


MEETS = """
import subprocess, sys
from pathlib import Path
from fleetcast.models import metrics

def test_it():
    assert metrics.CHANGED and "CHANGED" in Path(metrics.__file__).read_text()
    subprocess.run([sys.executable, "-c", "from fleetcast.models.metrics import CHANGED"], check=True)
"""


def test_the_tests_of_a_mutant_and_their_processes_meet_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(HOME / "tests" / "bench")
    run_pytest = runpy.run_path(str(HOME / "tests" / "bench" / "changed_file.py"))["run_pytest"]
    (tmp_path / "test_meets.py").write_text(MEETS)
    changed = HOME / "models" / "metrics.py"
    before = changed.read_bytes()
    code, output = run_pytest(
        [str(tmp_path / "test_meets.py")], changed, f"{before.decode()}CHANGED = True\n", 60.0, "-n", "0"
    )
    assert code == 0, output
    assert changed.read_bytes() == before


@pytest.mark.parametrize("file", ["models/metrics.py", "models/plan/boute.py", "sql/marts/planner_board.sql"])
def test_a_random_change_is_of_one_place_and_can_be_read(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HOME / "tests" / "bench")
    draws = runpy.run_path(str(HOME / "tests" / "bench" / "mutant_draws.py"))
    text = (HOME / file).read_text()
    found = list(draws["python_changes" if file.endswith(".py") else "sql_changes"](file, text))
    kinds = {change.kind for change in found}
    assert len(kinds) >= 5, kinds
    for change in found:
        changed = change.text()
        assert changed != text
        assert (changed[: change.start], changed[change.start + len(change.new) :]) == (
            text[: change.start], text[change.end :],
        )  # fmt: skip
        assert change.lines()[0] != change.lines()[1] or change.new.isspace()
        assert not file.endswith(".py") or draws["is_compilable"](changed), change.lines()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a file of tests/bench."""
    monkeypatch.syspath_prepend(HOME / "tests" / "bench")
    return importlib.import_module


JUDGED = {
    "noticed": "def test_it(): assert not CHANGED",
    "noticed after its limit": "def test_it():\n    while CHANGED: pass",
    "noticed at import": "assert not CHANGED\ndef test_it(): pass",
    "noticed at import, one test": "assert not CHANGED\ndef test_it(): pass\ndef test_that(): assert 0",
    "survived": "def test_it(): pass",
    "undecided, red without a change": "def test_it(): assert False",
    "undecided, nothing to run": "",
    "undecided, a crash": "import os\ndef test_it(): os._exit(3 if CHANGED else 0)",
}


@pytest.mark.parametrize(("verdict", "text"), JUDGED.items(), ids=JUDGED)
def test_only_a_test_that_passes_without_the_change_notices_it(
    verdict: str,
    text: str,
    bench: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutants_random, changed = bench("mutants_random"), HOME / "models" / "metrics.py"
    start = "from fleetcast.models import metrics\nCHANGED = hasattr(metrics, 'CHANGED')\n"
    (tmp_path / "test_judged.py").write_text(start + text)
    file = os.path.relpath(tmp_path / "test_judged.py", HOME)
    runs = [([f"{file}::test_it" if "one test" in verdict else file], 5.0, {})]
    monkeypatch.setattr(mutants_random, "test_runs", lambda *_: runs)
    size = len(changed.read_text())
    line = bench("mutant_draws").Change("models/metrics.py", 1, size, size, "CHANGED = 1\n", "statement")
    found, passed = mutants_random.judge_change(line, set())
    assert found == verdict.split()[0].rstrip(",")
    assert len(passed) == (found == "survived")


def test_a_survivor_is_judged_again_by_tests_that_it_has_not_met(
    bench: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutants_random, line_tests, file = bench("mutants_random"), bench("line_tests"), "models/metrics.py"
    tests = [f"tests/test_plan.py::test_{n}" for n in range(200)]
    chosen = [line_tests.Ran(1.0, test, [1]) for test in tests]
    monkeypatch.setattr(mutants_random, "choose_tests", lambda *_: chosen)
    change, met, ran = bench("mutant_draws").Change(file, 1, 0, 0, "", ""), set[str](), list[str]()
    for _ in range(4):
        for part, _, _ in mutants_random.test_runs(change, set(met)):
            ran += part
            met |= set(map(mutants_random.text_and_name, part))
    assert sorted(ran) == sorted(tests), "each once"
    monkeypatch.setattr(mutants_random, "digest", lambda _: "another text")
    assert mutants_random.test_runs(change, met)[0][0] == tests[:4]


def test_an_interrupted_run_of_random_mutants_goes_on_where_it_ended(
    bench: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutants_random, judged = bench("mutants_random"), list[str]()
    verdicts = 3 * ("survived", "undecided", "noticed")

    def judge(change: object, met: Set[str], _: int | None) -> tuple[str, list[str]]:
        if met:
            return verdicts[judged.index(str(change))], []  # there is no other test
        if len(judged) == 3:
            judged.append("")
            raise KeyboardInterrupt
        judged.append(str(change))
        return verdicts[len(judged) - 1], ["a test"]

    for name, value in {"SEED": 5, "COUNT": 6, "RECORDS": tmp_path, "RECORD_S": 0.0}.items():
        monkeypatch.setattr(mutants_random, name, value)
    monkeypatch.setattr(mutants_random, "judge_change", judge)
    monkeypatch.setattr(bench("mutant_draws"), "FOLDERS", ("models/plan", "sql/macros"))  # of all: quicker
    with pytest.raises(KeyboardInterrupt):
        mutants_random.random_mutants()
    journal = tmp_path / "mutants_5.jsonl"
    with journal.open("a") as opened:
        opened.write('{"file": "cut')
    found = mutants_random.random_mutants()
    assert (len(set(judged)), len(judged)) == (7, 7)
    assert found == {"mutants_random": 6, "mutants_random_survived": 4 / 6, "mutants_random_undecided": 2}
    assert mutants_random.random_mutants() == found
    assert len(judged) == 7
    whole = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
    assert [row["verdict"] for row in whole].count("noticed") == 2
    monkeypatch.setattr(mutants_random, "judge_change", lambda *_: ("noticed", []))
    assert mutants_random.random_mutants()["mutants_random_survived"] == 0


RECORDED = """
import subprocess, sys
import pytest
from fleetcast.assets.lake import sql_files
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.project_paths import ROOT

CHILD = "from fleetcast.assets.lake.shared_columns import renamed_column_hint; renamed_column_hint('', '')"
IMPORTED = sql_files.words_of_query("select 1", [])

@pytest.fixture(scope="module")
def shared():
    return sql_files.read_sql("queries/cost_by_llm.sql")

def test_one(shared): assert sql_files.load_macros_and_marts()
def test_two(shared): assert sql_files.load_macros_and_marts()
def test_asks(tmp_path): Lake(tmp_path).sql("select may_wait(true, 'niw')")
def test_starts(): subprocess.run([sys.executable, "-c", CHILD], check=True)
def test_forks():
    import os
    if (pid := os.fork()) == 0:
        sql_files.SQL.exists()
        sql_files._nearest_file(ROOT)
        os._exit(0)
    os.waitpid(pid, 0)
def test_fails(): assert False
"""


def test_a_record_has_what_each_test_runs_though_it_ran_once_for_many_or_in_another_process(
    tmp_path: Path, bench: Callable[[str], ModuleType]
) -> None:
    (tmp_path / "test_recorded.py").write_text(RECORDED)
    environment = {**os.environ, "FLEETCAST_LINE_RECORDS": str(tmp_path / "records")}
    environment["PYTHONPATH"] = str(HOME / "tests" / "bench")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "line_recorder", "test_recorded.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=False)
    record = json.loads((tmp_path / "records" / "test_recorded.json").read_text())
    assert {test.rpartition("::")[2] for test in record["seconds"]} == {
        "test_one", "test_two", "test_asks", "test_starts", "test_forks",
    }  # fmt: skip

    def tests_of(source: str, text: str) -> set[str]:
        line = (HOME / source).read_text().splitlines().index(text) + 1
        return {
            test.rpartition("::")[2] for test, lines in record["sources"][source][1].items() if line in lines
        }

    files = "assets/lake/sql_files.py"
    every = {test.rpartition("::")[2] for test in record["seconds"]}
    assert tests_of(files, '    words = set(_words(query or ""))') == every, "at the import of the file"
    assert tests_of(files, "    if path is None:") >= {"test_one", "test_two"}, "in a shared fixture"
    cached = "    return {Path(path): read_sql(path) for path, _, _ in files}"
    assert tests_of(files, cached) >= {"test_one", "test_two", "test_asks"}, "behind a cache"
    assert tests_of(files, "    if near := difflib.get_close_matches(path.stem, known, n=1):") == {
        "test_forks"
    }
    assert "test_starts" in {
        test.rpartition("::")[2] for test in record["sources"]["assets/lake/shared_columns.py"][1]
    }
    queried = {file for file, (_, tests) in record["sources"].items() if file.endswith(".sql")}
    assert queried == {"sql/macros/may_wait.sql"}


def test_the_tests_of_a_line_run_it_or_what_it_defines_the_quickest_first_from_different_files(
    bench: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    line_tests = bench("line_tests")

    def line_of(file: str, text: str) -> int:
        return (HOME / file).read_text().splitlines().index(text) + 1

    def chosen(file: str, text: str, *ran: tuple[float, str, int]) -> list[str]:
        found = [line_tests.Ran(seconds, test, [line]) for seconds, test, line in ran]
        monkeypatch.setattr(line_tests, "records", lambda _: {file: found})
        line_tests.sql_files_run.cache_clear()
        return [one.test for one in line_tests.choose_tests(file, line_of(file, text))]

    file, text = "models/metrics.py", "    return (e2e_s - ttft_s) / later"
    at = line_of(file, text)
    quick = [(0.1, "a::one", at), (0.2, "a::two", at), (0.3, "b::one", at), (0.1, "c::other", at - 1)]
    assert chosen(file, text, *quick) == ["a::one", "b::one", "a::two"]
    assert chosen(file, text, *quick[3:]) == ["c::other"], "the file alone"
    file = "assets/lake/sql_files.py"
    lines = (HOME / file).read_text().splitlines()
    [text] = [line for line in lines if line.startswith("HEADER_FIELDS = ")]
    use = '    fields = {m[1]: m[2] for line in header if (m := re.match(rf"({HEADER_FIELDS}): (.+)", line))}'
    reads = (0.2, "a::reads", line_of(file, use))
    assert chosen(file, text, reads, (0.1, "a::other", 1)) == ["a::reads"]
    stack = line_tests.statements_around(
        "models/world/stacks.py", line_of("models/world/stacks.py", "JSQ_STACK = Stack(")
    )
    assert line_tests.names_behind("models/world/stacks.py", stack[-1]) == {
        "JSQ_STACK", "FREENESS_STACK", "REPLAY_STACKS",
    }  # fmt: skip
    monkeypatch.setattr(line_tests, "test_texts", lambda: {"a": "the mart slo", "b": ""})
    sql = ((0.1, "b::quick", 0), (0.2, "a::named", 0))
    assert chosen("sql/macros/slo.sql", "", *sql) == ["a::named", "b::quick"]


def test_what_an_input_takes_includes_the_processes_that_it_starts() -> None:
    # Of processes that ended Linux keeps the largest peak alone: the test's own may have been larger.
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        begun_gb, found, after = fresh.submit(process_verdicts.verdicts_on_a_process).result()
    assert found.cpu_s > 0.2
    assert found.gb > begun_gb + 0.4
    assert found.trouble == ""
    assert found.is_over == (found.gb > hostile_verdict.MOST_GB)
    assert after.gb < 0.05, "the process before is not its own"
