"""The benches work: small sizes run, and the programs of all others import."""

import runpy
import subprocess
import sys
from pathlib import Path

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
QUICK += ("dynamo", "scaler", "vllm_scheduler", "quality_scale")


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
