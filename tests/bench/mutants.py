"""Mutants: each of the named changes of mutants.toml is made to a copy of the tree; does a test notice?

python tests/bench/mutants.py PATTERN ...    those with one in name, file or tests; prints survivors
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from measure import ROOT, Figures, Target

LIST = Path(__file__).with_name("mutants.toml")
COPIED = (
    ".package",
    "assets",
    "data",
    "models",
    "pipelines",
    "sql",
    "tests",
    "pyproject.toml",
    "dagster.yaml",
    "README.md",
    "CHANGELOG.md",
)
MADE = ("lake", "landing", "figures", ".numba", ".dagster")  # in data, by runs
TREES = 2  # copies, each with one mutant at a time
LIMIT_S = 1200.0  # of the tests of one mutant: some compile the replay; one that hangs has been noticed
PASSED, FAILED = 0, 1  # of pytest; any other code says that the tests did not run
TARGETS = {
    "wiring_mutants": Target("", "named one-line changes in tests/bench/mutants.toml", at_least=60),
    "wiring_mutants_survived": Target("", "of these, how many no test of their part noticed", at_most=0),
}


class Mutant(NamedTuple):
    """A change that the tests must notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.file}\n  - {self.old}\n  + {self.new}\n  unnoticed by {' '.join(self.tests)}"
        )

    def text(self, tree: Path) -> str:
        """The file's text with the change; ValueError unless the old text stands there once."""
        text = (tree / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(
                f"mutants.toml {self.name}: {self.file} has {self.old!r} {text.count(self.old)} times, "
                "needed once. Mend its old text, or drop the mutant."
            )
        return text.replace(self.old, self.new)


def mutants(*patterns: str) -> list[Mutant]:
    """Those of the list whose name, file or tests have one of the patterns; without any, all."""
    parts = tomllib.loads(LIST.read_text(encoding="utf-8"))["part"]
    every = [Mutant(**one, tests=tuple(part["tests"])) for part in parts for one in part["mutants"]]
    description = {mutant.name: " ".join((*mutant[:2], *mutant.tests)) for mutant in every}
    return [mutant for mutant in every if any(text in description[mutant.name] for text in patterns or ("",))]


def wiring() -> Figures:
    """Change one line after the other in copies of the tree: which change does no test notice?"""
    found = mutants()
    alive = survivors(found)
    print(*alive, sep="\n")
    return {"wiring_mutants": len(found), "wiring_mutants_survived": len(alive)}


def survivors(chosen: Sequence[Mutant]) -> list[Mutant]:
    """The mutants whose tests pass; RuntimeError where the tests fail without a change, or do not run."""
    for mutant in chosen:
        mutant.text(ROOT)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(TREES) as threads:
        free: queue.Queue[Path] = queue.Queue()
        for number in range(TREES):
            free.put(copy_of_the_tree(Path(folder) / str(number) / ROOT.name))

        def survives(mutant: Mutant) -> bool:
            tree = free.get()
            try:
                with applied(mutant, tree):
                    code, output = tested(tree, mutant.tests)
            finally:
                free.put(tree)
            if code not in (PASSED, FAILED):
                raise RuntimeError(f"{mutant.name}: its tests did not run.\n{output}")
            print(
                f"{mutant.name}: {'SURVIVED' if code == PASSED else 'noticed'}", file=sys.stderr, flush=True
            )
            return code == PASSED

        every = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
        for code, output in threads.map(lambda tree: tested(tree, every), tuple(free.queue)):
            if code != PASSED:
                raise RuntimeError(f"Without any change the tests do not pass.\n{output}")
        verdicts = threads.map(survives, chosen)
        return [mutant for mutant, is_alive in zip(chosen, verdicts, strict=True) if is_alive]


def copy_of_the_tree(to: Path) -> Path:
    """What the tests need of the project, without what it has made."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", *(MADE if name == "data" else ()))
            shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=left_out)
        else:
            shutil.copy2(ROOT / name, to / name)
    return to


@contextmanager
def applied(mutant: Mutant, tree: Path) -> Iterator[None]:
    """The tree with the change, and as it was afterwards: to the time, by which compiled code is known."""
    path = tree / mutant.file
    before, times = path.read_bytes(), path.stat()
    path.write_text(mutant.text(tree), encoding="utf-8")
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def tested(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests of a tree up to the first that fails: pytest's code, and the end of what it said."""
    environment = {**os.environ, "DAGSTER_HOME": str(tree), "MPLBACKEND": "Agg"}
    environment |= {"PYTHONPATH": str(tree / ".package")}
    environment |= {"PYTHONPYCACHEPREFIX": str(tree.parents[1] / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"still running after {LIMIT_S:.0f} s"
    return done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


FUNCTIONS = (wiring,)

if __name__ == "__main__":
    alive = survivors(mutants(*sys.argv[1:]))
    print(*alive, f"{len(alive)} survived", sep="\n")
    sys.exit(bool(alive))
