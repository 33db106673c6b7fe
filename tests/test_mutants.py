"""The list of mutants (tests/bench/mutants.toml) follows the code: each changes one line that there is."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = tomllib.loads((ROOT / "tests" / "bench" / "mutants.toml").read_text(encoding="utf-8"))["part"]


def test_every_mutant_finds_its_line_once_and_the_tests_that_should_notice_it() -> None:
    mutants = [mutant for part in PARTS for mutant in part["mutants"]]
    assert len({mutant["name"] for mutant in mutants}) == len(mutants) >= 60
    for mutant in mutants:
        text = (ROOT / mutant["file"]).read_text(encoding="utf-8")
        assert text.count(mutant["old"]) == 1, f"{mutant['name']}: {mutant['file']} no longer has its line"
        assert mutant["new"] != mutant["old"], mutant["name"]
    for test in (test for part in PARTS for test in part["tests"]):
        assert (ROOT / test.partition("::")[0]).is_file(), test
