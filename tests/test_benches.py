"""The benches work: small sizes run, and the programs of all others import."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from fleetcast.models.world.project_paths import HOME


def test_every_bench_imports_and_small_sizes_run() -> None:
    """All in one process. A bench that lacks data or a package prints a line and is skipped."""
    done = subprocess.run(
        [sys.executable, "tests/bench", "--smoke"], cwd=HOME, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line for line in done.stdout.splitlines() if line.endswith("CPU-s")]
    assert len(ran) >= 12, done.stdout


def test_the_tests_of_a_mutant_import_the_mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the installed package, of which no mutant would ever be noticed."""
    monkeypatch.syspath_prepend(HOME / "tests" / "bench")
    bench = runpy.run_path(str(HOME / "tests" / "bench" / "mutants.py"))
    tree = bench["copy_of_the_tree"](tmp_path / "copies" / "tree")
    body = f"assert models.__path__[0].startswith({str(tree)!r})"
    (tree / "tests" / "test_where.py").write_text(
        f"from fleetcast import models\n\ndef test_it():\n    {body}\n"
    )
    code, output = bench["tested"](tree, ["tests/test_where.py"])
    assert code == 0, output
