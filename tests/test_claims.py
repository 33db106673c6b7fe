"""The page of the papers' claims equals its data; its figures are on the pages where they are measured."""

import re
import runpy
from collections import Counter
from itertools import pairwise
from pathlib import Path

import claims_page
import pytest
import typer
from claims_page import NOT_TESTED, PaperClaim, load_claims

from fleetcast.pipelines.cli import cli_app
from fleetcast.pipelines.lazy_group import import_commands

ROOT = Path(__file__).resolve().parent.parent
CLAIMS = load_claims()
MEASURED = [claim for claim in CLAIMS if claim.verdict != NOT_TESTED]
COMMANDS = import_commands(typer.main.get_command(cli_app))
BENCH = ".venv/bin/python tests/bench "
GOOD = {
    "paper": "Cauchy",
    "claim": "more tokens per USD",
    "place": "4.2",
    "paper_value": "+16 %",
    "command": "fleetcast study scaling",
    "page": "data/studies/gpus.md#claim-by-claim",
    "figure": "0 %",
    "reading": "",
    "verdict": "holds",
}


def name_of(claim: PaperClaim) -> str:
    return f"{claim.paper}: {claim.claim}: {claim.figure}"


def test_the_page_is_current() -> None:
    page = claims_page.CLAIMS_PAGE.read_text(encoding="utf-8")
    assert page == claims_page.render_claims(CLAIMS), "run: python tests/claims_page.py"


def anchored(page: str) -> str:
    """The chapter of a page that an anchor names, up to the next heading of its kind or above."""
    path, _, anchor = page.partition("#")
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    heads = [(n, line) for n, line in enumerate(lines) if re.match(r"#+ ", line)]
    for first, head in heads:
        level, _, title = head.partition(" ")
        if re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") == anchor:
            after = (n for n, line in heads if n > first and len(line.split(" ")[0]) <= len(level))
            return "\n".join(lines[first : next(after, len(lines))])
    raise AssertionError(f"{path} has no heading for #{anchor}")


def is_found(claim: PaperClaim, chapter: str) -> bool:
    """Whether a chapter has the figure as a figure of its own, on the line that the claim names."""
    pieces = chapter.splitlines() if claim.line else [chapter]
    figure = re.compile(rf"(?<![\w.,+-]){re.escape(' '.join(claim.figure.split()))}(?![\w%]|[.,]\d)")
    texts = [" ".join(piece.split()) for piece in pieces if claim.line in piece]
    return any(figure.search(text) for text in texts)


@pytest.mark.parametrize("claim", MEASURED, ids=name_of)
def test_every_figure_is_on_its_page(claim: PaperClaim) -> None:
    assert is_found(claim, anchored(claim.page))


def test_a_part_of_a_figure_is_not_found() -> None:
    claim = PaperClaim(**{**GOOD, "figure": "0.5 %"}, line="| a |")
    assert is_found(claim, "| a | 0.5 % |")
    assert is_found(claim, "| a | is 0.5 %.")
    for other in ("| a | 10.5 % |", "| a | -0.5 % |", "| b | 0.5 % |", "| a |\n| b | 0.5 % |", "| a | 0.5 |"):
        assert not is_found(claim, other), other
    assert not is_found(PaperClaim(**{**GOOD, "figure": "2"}), "2.5 and 2,000 and 12")


def command_fault(command: str, subjects: tuple[str, ...]) -> str:
    """What a command names that is not there; empty where all is there."""
    if command.startswith(BENCH):
        return " ".join(set(command.removeprefix(BENCH).split()) - set(subjects))
    program, name, *words = command.split()
    if program != "fleetcast" or name not in COMMANDS:
        return f"{program} {name}"
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    if unknown := {word for word in words if word.startswith("--")} - known:
        return " ".join(unknown)
    configs = [after for before, after in pairwise(words) if before == "--config"]
    files = [f"data/config/{config}.toml" for config in configs]
    files += [f"data/studies/{words[0]}.toml"] if name == "study" else []
    return " ".join(file for file in files if not (ROOT / file).is_file())


def test_every_command_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests" / "bench")
    subjects = runpy.run_path(str(ROOT / "tests" / "bench" / "__main__.py"))["SUBJECTS"]
    faults = {claim.command: command_fault(claim.command, subjects) for claim in MEASURED}
    assert {command: fault for command, fault in faults.items() if fault} == {}
    for command, fault in (
        (f"{BENCH}gpus no_subject", "no_subject"),
        ("fleetcast no_command", "fleetcast no_command"),
        ("fleetcast study no_study", "data/studies/no_study.toml"),
        ("fleetcast nightly --config no_config", "data/config/no_config.toml"),
        ("fleetcast nightly --no-option", "--no-option"),
        ("make bench", "make bench"),
    ):
        assert command_fault(command, subjects) == fault


def test_every_verdict_has_its_figure_and_command() -> None:
    for claim in CLAIMS:
        assert claim.verdict in claims_page.CLAIM_VERDICTS
        assert claim.paper in claims_page.CLAIMING_PAPERS
        assert all(text.strip() for text in (claim.claim, claim.place, claim.paper_value)), claim
        given = (claim.command, claim.page, claim.figure)
        assert not any(given) if claim.verdict == NOT_TESTED else all(given), name_of(claim)


def test_each_paper_has_its_claims_and_none_is_there_twice() -> None:
    for paper in claims_page.CLAIMING_PAPERS:
        assert 5 <= len({claim.claim for claim in CLAIMS if claim.paper == paper}) <= 15, paper
    rows = Counter((claim.paper, claim.claim, claim.reading) for claim in CLAIMS)
    assert [row for row, count in rows.items() if count > 1] == []


def test_readings_of_a_claim_are_next_to_each_other() -> None:
    """And give the same value of the paper, so that a range can be read."""
    order = [(claim.paper, claim.claim) for claim in CLAIMS]
    changes = 1 + sum(one != other for one, other in pairwise(order))
    assert changes == len(set(order))
    values = {(claim.paper, claim.claim, claim.place, claim.paper_value) for claim in CLAIMS}
    assert len(values) == len(set(order))


def test_a_text_cannot_break_its_row() -> None:
    page = claims_page.render_claims([PaperClaim(**{**GOOD, "claim": "a | b *"})])
    assert "\n| a \\| b \\* | 4.2 | +16 % | [0 %](../../studies/gpus.md#claim-by-claim) |  |" in page
