"""The benches work: small sizes run, and the programs of all others import."""

import importlib
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
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
    monkeypatch.setattr(mutants_random, "tests_of", lambda _: ([str(tmp_path / "test_judged.py")], 5.0))
    size = len(changed.read_text())
    line = bench("mutant_draws").Change("models/metrics.py", 1, size, size, "CHANGED = 1\n", "statement")
    assert mutants_random.judge_change(line) == verdict.split()[0].rstrip(",")


def test_an_interrupted_run_of_random_mutants_goes_on_where_it_ended(
    bench: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutants_random, judged = bench("mutants_random"), list[str]()

    def judge(change: object) -> str:
        if len(judged) == 3:
            judged.append("")
            raise KeyboardInterrupt
        judged.append(str(change))
        return ("noticed", "survived", "undecided")[len(judged) % 3]

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


def test_a_test_file_that_takes_too_long_keeps_no_other_from_its_record(
    bench: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    line_tests, begun = bench("line_tests"), list[str]()
    monkeypatch.setattr(line_tests, "recorded", lambda file: {} if file == "known" else None)
    monkeypatch.setattr(line_tests, "record_file", lambda file, _: begun.append(file) or file != "slow")
    line_tests.record_tests(["slow", "known", "next"], 60.0)
    assert begun == ["slow", "next"]


def test_what_an_input_takes_includes_the_processes_that_it_starts() -> None:
    # Of processes that ended Linux keeps the largest peak alone: the test's own may have been larger.
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        begun_gb, found, after = fresh.submit(process_verdicts.verdicts_on_a_process).result()
    assert found.cpu_s > 0.2
    assert found.gb > begun_gb + 0.4
    assert found.trouble == ""
    assert found.is_over == (found.gb > hostile_verdict.MOST_GB)
    assert after.gb < 0.05, "the process before is not its own"
