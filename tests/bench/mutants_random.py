"""Random mutants: lines drawn over all rooms, each changed by a tool; which change does no test notice?

    python tests/bench mutants_random [--seed N] [--count N] [--record-s S] [--limit-s S]

Without a seed it takes a fresh one and prints it. First all test files are recorded that have changed since
the last time (at most S seconds, 0: none). Tests that run the line of a mutant judge it, by the choice of
line_tests.py: some quick ones, then the others. Those of the kernel run it as plain Python; then
KERNEL_TESTS run it compiled. A test file that has no record judges nothing.

A mutant is noticed if a test fails, or the tests take more CPU than LIMIT_S, and the same tests pass
within it without the change. A run that ends otherwise is undecided, and counts as not noticed. A mutant of
equivalent.toml changes no result, for the reason given there.

Each verdict is a line of data/.coverage/mutants_SEED.jsonl: the same seed on the same files goes on where an
interruption, or --limit-s, ended it. What was not noticed is judged again by tests that it has not met: those
of test files that were recorded or changed since, and those beyond MOST_TESTS.
"""

import json
import os
import re
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence, Set
from functools import cache
from pathlib import Path

from changed_file import FAILED, PASSED, kernel_files, run_pytest
from line_recorder import digest
from line_tests import PLAIN, RECORDS, Ran, choose_tests, record_tests
from measure import ROOT, Figures, Target
from mutant_draws import Change, draw_changes
from rich.console import Console
from rich.table import Table

SEED = int(os.environ.get("FLEETCAST_MUTANTS_SEED", time.time_ns() % 1_000_000))
COUNT = int(os.environ.get("FLEETCAST_MUTANTS", 200))
QUICK, QUICK_S = 4, 4.0  # tests that run first, and their seconds
MOST_TESTS, MOST_S = 80, 80.0  # all recorded tests of a mutant, and their seconds when they were recorded
LIMIT_S = 120.0  # CPU seconds for tests that run at once
KERNEL_LIMIT_S = 180.0  # the same with the compilation of the kernel
RECORD_S = float(os.environ.get("FLEETCAST_MUTANTS_RECORD_S", 3600.0))  # for the record of lines
END_S = time.monotonic() + float(os.environ.get("FLEETCAST_MUTANTS_LIMIT_S", "inf"))  # no mutant begins later
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
KERNEL_TESTS = ("tests/test_replay_laws.py", "tests/test_legs.py", "tests/test_priorities.py")
VERDICTS = ("noticed", "survived", "undecided", "equivalent")
TARGETS = {
    "mutants_random": Target(
        "", "random one-line changes over all rooms by lines, not equivalent", at_least=200
    ),
    "mutants_random_survived": Target(
        "share", "of those, not noticed, undecided ones included", at_most=0.10
    ),
    "mutants_random_undecided": Target("", "of those, how many are undecided"),
}


def random_mutants() -> Figures:
    """Change one random line after the other, in memory: which change does no test notice?"""
    kernel = kernel_files()
    changes = sorted(draw_changes(SEED, COUNT), key=lambda change: ROOT / change.file in kernel)  # slow: last
    print(f"seed {SEED}, {len(changes)} mutants", file=sys.stderr, flush=True)
    if RECORD_S > 0:
        record_tests(RECORD_S)
    journal = RECORDS / f"mutants_{SEED}.jsonl"
    known = known_verdicts(journal)
    for runs in (1, None):  # the quick tests judge all mutants before the others judge those that are left
        for change in changes:
            before, met = known.get(journal_key(change), (None, frozenset[str]()))
            is_next = before is None if runs else before not in ("noticed", "equivalent")
            if is_next and time.monotonic() < END_S:
                verdict, passed = judge_change(change, met, runs)
                if passed or verdict != before:
                    note_verdict(journal, change, verdict, sorted({*met, *passed}))
                known[journal_key(change)] = verdict, met.union(passed)
    rooms: dict[str, Counter[str]] = {}
    for change in changes:
        if journal_key(change) in known:
            rooms.setdefault(change.room, Counter())[known[journal_key(change)][0]] += 1
    Console(width=110).print(table_by_room(rooms))
    total = sum(rooms.values(), Counter[str]())
    counted = total.total() - total["equivalent"]
    return {
        "mutants_random": counted,
        "mutants_random_survived": (total["survived"] + total["undecided"]) / max(counted, 1),
        "mutants_random_undecided": total["undecided"],
    }


def journal_key(change: Change) -> tuple[str, str, int, str]:
    """What a line of the journal is about: the file with its text, the place, and the new text."""
    return change.file, digest(ROOT / change.file), change.start, change.new


def known_verdicts(journal: Path) -> dict[tuple[str, str, int, str], tuple[str, frozenset[str]]]:
    """The verdicts that a journal has, and the tests that noticed nothing; not a line that was cut."""
    known = {}
    for line in journal.read_text(encoding="utf-8").splitlines() if journal.exists() else ():
        if line.endswith("}"):
            row = json.loads(line)
            place = row["file"], row["digest"], row["start"], row["new_text"]
            known[place] = row["verdict"], frozenset(row["met"])
    return known


def note_verdict(journal: Path, change: Change, verdict: str, met: Sequence[str]) -> None:
    """Append a verdict to the journal, with the tests that noticed nothing, and print it."""
    (old, new), (file, text, start, new_text) = change.lines(), journal_key(change)
    row = {"file": file, "line": change.line, "old": old, "new": new, "verdict": verdict, "room": change.room}
    row |= {"digest": text, "start": start, "new_text": new_text, "met": met}
    journal.parent.mkdir(parents=True, exist_ok=True)
    is_cut = journal.exists() and not journal.read_bytes().endswith(b"\n")
    with journal.open("a", encoding="utf-8") as opened:
        opened.write("\n" * is_cut + json.dumps(row) + "\n")
    line = f"{verdict}: {file}:{change.line}\n  - {old}\n  + {new}"
    print(line, file=sys.stderr if verdict == "noticed" else sys.stdout, flush=True)


def judge_change(change: Change, met: Set[str], runs: int | None = None) -> tuple[str, list[str]]:
    """One of VERDICTS by tests that a change has not met, of the first `runs` of test_runs or all.

    Also returns those of them that noticed nothing.
    """
    old, new = change.lines()
    known = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutants"]
    if any((one["file"], one["old"], one["new"]) == (change.file, old, new) for one in known):
        return "equivalent", []
    passed = list[str]()
    for tests, limit_s, environment in test_runs(change, met)[:runs]:
        if not tests:
            continue
        code, output = run_pytest(tests, ROOT / change.file, change.text(), limit_s, "-n", "0", **environment)
        if code not in (PASSED, FAILED, None):
            return "undecided", passed
        if code != PASSED:
            failing = tests if code is None else failed_tests(output, tests) or tests
            passes = pass_unchanged(tuple(failing), limit_s, tuple(environment.items()))
            return "noticed" if passes else "undecided", passed
        passed += map(text_and_name, tests)
    return "survived", passed


def text_and_name(test: str) -> str:
    """The name of a test, with the text of its file."""
    return f"{digest(ROOT / test.partition('::')[0])} {test}"


def failed_tests(output: str, tests: Sequence[str]) -> list[str]:
    """The tests that pytest's summary names; of a file that cannot be imported, those that were to run."""
    named = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", output, re.MULTILINE)
    own = [test for test in tests if test.partition("::")[0] in named]
    return own or named


@cache
def pass_unchanged(tests: Sequence[str], limit_s: float, environment: Sequence[tuple[str, str]]) -> bool:
    """Whether tests pass, within the limit, without any change."""
    text = EQUIVALENT.read_text(encoding="utf-8")
    return run_pytest(tests, EQUIVALENT, text, limit_s, "-n", "0", **dict(environment))[0] == PASSED


def test_runs(change: Change, met: Set[str]) -> list[tuple[list[str], float, dict[str, str]]]:
    """The tests that a change has not met and that run at once, their CPU seconds at most, and variables.

    First the quick ones, then others, then files of the compiled kernel.
    """
    is_kernel = ROOT / change.file in kernel_files()
    environment = {"NUMBA_DISABLE_JIT": "1"} if is_kernel else {}
    every = choose_tests(change.file, change.line, PLAIN if is_kernel else RECORDS)
    chosen = [ran for ran in every if text_and_name(ran.test) not in met]
    quick = within(chosen[:QUICK], QUICK_S)
    others = within([ran for ran in chosen if ran not in quick][:MOST_TESTS], MOST_S)
    runs = [([ran.test for ran in part], LIMIT_S, environment) for part in (quick, others)]
    if is_kernel:
        runs.append((list(KERNEL_TESTS), KERNEL_LIMIT_S, {}))
    return [([test for test in tests if text_and_name(test) not in met], *how) for tests, *how in runs]


def within(tests: Sequence[Ran], seconds: float) -> list[Ran]:
    """Those that together take at most so many seconds, each if it still fits; at least the first."""
    found, left_s = list[Ran](), seconds
    for ran in tests:
        if ran.seconds <= left_s or not found:
            found.append(ran)
            left_s -= ran.seconds
    return found


def table_by_room(rooms: dict[str, Counter[str]]) -> Table:
    """How many mutants of each room came to which verdict."""
    shown = Table(title=f"seed {SEED}", title_justify="left", show_edge=False)
    for name in ("room", "mutants", *VERDICTS):
        shown.add_column(name, justify="left" if name == "room" else "right")
    for room, counted in [*sorted(rooms.items()), ("all", sum(rooms.values(), Counter[str]()))]:
        shown.add_row(room, *(str(n) for n in (counted.total(), *(counted[name] for name in VERDICTS))))
    return shown


FUNCTIONS = (random_mutants,)
