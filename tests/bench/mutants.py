"""Mutants: each of the named changes of mutants.toml is made in memory; does a test notice?

A mutant is noticed if a test fails, or the tests take more CPU than LIMIT_S, and all pass without a change,
as in mutants_random.py.

python tests/bench/mutants.py PATTERN ...    those with one in name, file or tests; prints survivors
"""

import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from changed_file import FAILED, PASSED, run_pytest
from measure import ROOT, Figures, Target

LIST = Path(__file__).with_name("mutants.toml")
AT_ONCE = 2  # mutants
LIMIT_S = 1200.0  # CPU seconds for the tests of one mutant: some compile the replay; a hang is noticed
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

    def text(self) -> str:
        """The file's text with the change; ValueError unless the old text stands there once."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
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
    """Change one line after the other: which change does no test notice?"""
    found = mutants()
    alive = survivors(found)
    print(*alive, sep="\n")
    return {"wiring_mutants": len(found), "wiring_mutants_survived": len(alive)}


def survivors(chosen: Sequence[Mutant]) -> list[Mutant]:
    """The mutants whose tests pass; RuntimeError where the tests fail without a change, or do not run."""

    def survives(mutant: Mutant) -> bool:
        code, output = run_pytest(mutant.tests, ROOT / mutant.file, mutant.text(), LIMIT_S)
        if code not in (PASSED, FAILED, None):
            raise RuntimeError(f"{mutant.name}: its tests did not run.\n{output}")
        print(f"{mutant.name}: {'SURVIVED' if code == PASSED else 'noticed'}", file=sys.stderr, flush=True)
        return code == PASSED

    for mutant in chosen:
        mutant.text()
    every = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
    code, output = run_pytest(every, LIST, LIST.read_text(encoding="utf-8"), AT_ONCE * LIMIT_S)
    if every and code != PASSED:
        raise RuntimeError(f"Without any change the tests do not pass.\n{output}")
    with ThreadPoolExecutor(AT_ONCE) as threads:
        verdicts = threads.map(survives, chosen)
        return [mutant for mutant, is_alive in zip(chosen, verdicts, strict=True) if is_alive]


FUNCTIONS = (wiring,)

if __name__ == "__main__":
    alive = survivors(mutants(*sys.argv[1:]))
    print(*alive, f"{len(alive)} survived", sep="\n")
    sys.exit(bool(alive))
