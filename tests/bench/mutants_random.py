"""Random mutants: lines drawn over all rooms, each changed by a tool; which change does no test notice?

    python tests/bench mutants_random [--seed N] [--count N] [--record-s S] [--limit-s S]

Without a seed it takes a fresh one and prints it. The tests of a mutant are those that run its line, the
quickest first, where test files have been recorded (at most S seconds, 0: none). Otherwise they are the
nearest test files by imports; of SQL those that name it; of the compiled kernel KERNEL_TESTS.

A mutant is noticed if a test fails, or the tests take more CPU than LIMIT_S, and the same tests pass
within it without the change. A run that ends otherwise is undecided, and counts as not noticed. A mutant of
equivalent.toml changes no result, for the reason given there.

Each verdict is a line of data/.coverage/mutants_SEED.jsonl: the same seed on the same files goes on where an
interruption, or --limit-s, ended it. Remove that file to judge again.
"""

import json
import os
import re
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from changed_file import FAILED, PASSED, run_pytest
from line_tests import RECORDS, covering_tests, digest, nearest_tests, record_tests
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
    changes = draw_changes(SEED, COUNT)
    print(f"seed {SEED}, {len(changes)} mutants", file=sys.stderr, flush=True)
    if RECORD_S > 0:
        near = {test for change in changes for test in nearest_tests(change.file, MOST_FILES)}
        record_tests(sorted(near), RECORD_S)
    journal = RECORDS / f"mutants_{SEED}.jsonl"
    rooms: dict[str, Counter[str]] = {}
    for change in changes:
        verdict = known_verdicts(journal).get(journal_key(change))
        if verdict is None and time.monotonic() < END_S:
            verdict = judge_change(change)
            note_verdict(journal, change, verdict)
        if verdict is not None:
            rooms.setdefault(change.room, Counter())[verdict] += 1
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


def known_verdicts(journal: Path) -> dict[tuple[str, str, int, str], str]:
    """The verdicts that a journal has; a last line that an interruption cut is left out."""
    known = {}
    for line in journal.read_text(encoding="utf-8").splitlines() if journal.exists() else ():
        if line.endswith("}"):
            row = json.loads(line)
            known[row["file"], row["digest"], row["start"], row["new_text"]] = row["verdict"]
    return known


def note_verdict(journal: Path, change: Change, verdict: str) -> None:
    """Append a verdict to the journal, and print it."""
    (old, new), (file, text, start, new_text) = change.lines(), journal_key(change)
    row = {"file": file, "line": change.line, "old": old, "new": new, "verdict": verdict, "room": change.room}
    row |= {"digest": text, "start": start, "new_text": new_text}
    journal.parent.mkdir(parents=True, exist_ok=True)
    is_cut = journal.exists() and not journal.read_bytes().endswith(b"\n")
    with journal.open("a", encoding="utf-8") as opened:
        opened.write("\n" * is_cut + json.dumps(row) + "\n")
    line = f"{verdict}: {file}:{change.line}\n  - {old}\n  + {new}"
    print(line, file=sys.stderr if verdict == "noticed" else sys.stdout, flush=True)


def judge_change(change: Change) -> str:
    """One of VERDICTS."""
    old, new = change.lines()
    known = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutants"]
    if any((one["file"], one["old"], one["new"]) == (change.file, old, new) for one in known):
        return "equivalent"
    tests, limit_s = tests_of(change)
    if not tests:
        return "survived"
    code, output = run_pytest(tests, ROOT / change.file, change.text(), limit_s, "-n", "0")
    if code == PASSED:
        return "survived"
    if code not in (FAILED, None):
        return "undecided"
    failing = tests if code is None else failed_tests(output) or tests
    return "noticed" if pass_unchanged(tuple(failing), limit_s) else "undecided"


def failed_tests(output: str) -> list[str]:
    """The tests, or test files, that pytest's summary names."""
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)


@cache
def pass_unchanged(tests: Sequence[str], limit_s: float) -> bool:
    """Whether tests pass, within the limit, without any change."""
    text = EQUIVALENT.read_text(encoding="utf-8")
    return run_pytest(tests, EQUIVALENT, text, limit_s, "-n", "0")[0] == PASSED


def tests_of(change: Change) -> tuple[list[str], float]:
    """The tests of a change, the quickest first, and their CPU seconds at most."""
    if ROOT / change.file in {REPLAY_FOLDER / f"{name.replace('.', '/')}.py" for name in kernel_sources()}:
        return list(KERNEL_TESTS), KERNEL_LIMIT_S
    files = nearest_tests(change.file, MOST_FILES)
    covering = [test for _, test in covering_tests(change.file, change.line, files)][:MOST_TESTS]
    return covering or files, LIMIT_S


def table_by_room(rooms: dict[str, Counter[str]]) -> Table:
    """How many mutants of each room came to which verdict."""
    shown = Table(title=f"seed {SEED}", title_justify="left", show_edge=False)
    for name in ("room", "mutants", *VERDICTS):
        shown.add_column(name, justify="left" if name == "room" else "right")
    for room, counted in [*sorted(rooms.items()), ("all", sum(rooms.values(), Counter[str]()))]:
        shown.add_row(room, *(str(n) for n in (counted.total(), *(counted[name] for name in VERDICTS))))
    return shown


FUNCTIONS = (random_mutants,)
