"""Random mutants: lines drawn over all rooms, each changed by a tool; which change does no test notice?

    python tests/bench mutants_random [--seed N] [--count N] [--record-s S]

Without a seed it takes a fresh one and prints it. The tests of a mutant are those that run its line, the
quickest first, where test files have been recorded (at most S seconds, 0: none). Otherwise they are the
nearest test files by imports; of SQL those that name it; of the compiled kernel KERNEL_TESTS, interpreted. A
mutant of equivalent.toml changes no result, for the reason given there. A mutant whose tests need more CPU
than LIMIT_S is undecided; it counts neither way.
"""

import os
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

from changed_file import PASSED, run_pytest
from line_tests import covering_tests, nearest_tests, record_tests
from measure import ROOT, Figures, Target
from mutant_draws import Change, draw_changes
from rich.console import Console
from rich.table import Table

from fleetcast.models.replay.compiled import REPLAY_FOLDER, kernel_sources

SEED = int(os.environ.get("FLEETCAST_MUTANTS_SEED", time.time_ns() % 1_000_000))
COUNT = int(os.environ.get("FLEETCAST_MUTANTS", 200))
MOST_FILES = 3  # test files of a mutant
MOST_TESTS = 25  # tests of a mutant, the quickest
LIMIT_S = 120.0  # CPU seconds for the tests of one mutant
RECORD_S = float(os.environ.get("FLEETCAST_MUTANTS_RECORD_S", 3600.0))  # for the record of lines
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
KERNEL_TESTS = ("tests/test_replay_laws.py", "tests/test_legs.py", "tests/test_priorities.py")  # interpreted
VERDICTS = ("noticed", "survived", "undecided", "equivalent")
TARGETS = {
    "mutants_random": Target(
        "", "random one-line changes over all rooms by lines, decided and not equivalent", at_least=200
    ),
    "mutants_random_survived": Target(
        "share", "of those that are not equivalent and were decided, unnoticed", at_most=0.10
    ),
}


def random_mutants() -> Figures:
    """Change one random line after the other, in memory: which change does no test notice?"""
    changes = draw_changes(SEED, COUNT)
    print(f"seed {SEED}, {len(changes)} mutants", file=sys.stderr, flush=True)
    near = {test for change in changes for test in nearest_tests(change.file, MOST_FILES)}
    if RECORD_S > 0:
        record_tests(sorted(near), RECORD_S)
    rooms: dict[str, Counter[str]] = {}
    for change in changes:
        verdict = judge_change(change)
        rooms.setdefault(change.room, Counter())[verdict] += 1
        old, new = change.lines()
        line = f"{verdict}: {change.file}:{change.line}\n  - {old}\n  + {new}"
        print(line, file=sys.stdout if verdict == "survived" else sys.stderr, flush=True)
    Console(width=110).print(table_by_room(rooms))
    total = sum(rooms.values(), Counter[str]())
    judged = total["noticed"] + total["survived"]
    return {"mutants_random": judged, "mutants_random_survived": total["survived"] / max(judged, 1)}


def judge_change(change: Change) -> str:
    """One of VERDICTS."""
    old, new = change.lines()
    known = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutants"]
    if any((one["file"], one["old"], one["new"]) == (change.file, old, new) for one in known):
        return "equivalent"
    tests, environment = tests_of(change)
    if not tests:
        return "survived"
    code, _ = run_pytest(tests, ROOT / change.file, change.text(), LIMIT_S, "-n", "0", **environment)
    return "undecided" if code is None else "survived" if code == PASSED else "noticed"


def tests_of(change: Change) -> tuple[list[str], dict[str, str]]:
    """The tests of a change, the quickest first, and the environment that they need."""
    if ROOT / change.file in {REPLAY_FOLDER / f"{name.replace('.', '/')}.py" for name in kernel_sources()}:
        return list(KERNEL_TESTS), {"NUMBA_DISABLE_JIT": "1"}
    files = nearest_tests(change.file, MOST_FILES)
    covering = [test for _, test in covering_tests(change.file, change.line, files)][:MOST_TESTS]
    return covering or files, {}


def table_by_room(rooms: dict[str, Counter[str]]) -> Table:
    """How many mutants of each room came to which verdict."""
    shown = Table(title=f"seed {SEED}", title_justify="left", show_edge=False)
    for name in ("room", "mutants", *VERDICTS):
        shown.add_column(name, justify="left" if name == "room" else "right")
    for room, counted in [*sorted(rooms.items()), ("all", sum(rooms.values(), Counter[str]()))]:
        shown.add_row(room, *(str(n) for n in (counted.total(), *(counted[name] for name in VERDICTS))))
    return shown


FUNCTIONS = (random_mutants,)
