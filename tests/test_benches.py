"""The benches work: small sizes run, and the programs of all others import."""

import subprocess
import sys

from fleetcast.models.world.project_paths import HOME


def test_every_bench_imports_and_small_sizes_run() -> None:
    """All in one process. A bench that lacks data or a package prints a line and is skipped."""
    done = subprocess.run(
        [sys.executable, "tests/bench", "--smoke"], cwd=HOME, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line for line in done.stdout.splitlines() if line.endswith("CPU-s")]
    assert len(ran) >= 12, done.stdout
