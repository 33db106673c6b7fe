"""Tables of figures on the pages: the rows of their commands, or a reason why no test compares them."""

import importlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from test_pages import PAGES, ROOT

REST = tomllib.loads((ROOT / "tests" / "page_tables.toml").read_text(encoding="utf-8"))
ACCURACY, GPUS = "data/docs/explanation/accuracy.md", "data/studies/gpus.md"
PROFILES = {
    "bloom-176b, 8 x A100 / H100": ("bloom_176b_a100_8", "bloom_176b_h100_8"),
    "llama2-70b, 2, 4, 8 x A100": tuple(f"llama2_70b_a100_{n}" for n in (2, 4, 8)),
    "llama2-70b, 2, 4, 8 x H100": tuple(f"llama2_70b_h100_{n}" for n in (2, 4, 8)),
}
GPU_KEYS: tuple[list[str], ...] = (
    ["h100_80gb"],
    ["h200_141gb"],
    ["b200_180gb"],
    [],
)  # by column; none left out of the fit
Table = list[list[str]]


def find_tables(page: Path) -> dict[str, Table]:
    """The rows of each table of a page, in cells, by its number and its head."""
    found, rows, before = dict[str, Table](), Table(), ""
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if re.match(r"\| ?-{3}", line):
            rows = found[f"{len(found)} {before}"] = []
        elif line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        else:
            rows = []
        before = line
    return found


def is_of_figures(rows: Table) -> bool:
    """Whether half of the rows have a cell, but the first, that begins with a number."""
    return sum(any(re.match(r"[+*~-]*\d", cell) for cell in row[1:]) for row in rows) >= len(rows) / 2


def name_part(name: str) -> str:
    """A name as it stands in a key of a figure."""
    return re.sub(r"[-.]", "_", name.lower())


def printed_rows(subject: str, function: str, capsys: pytest.CaptureFixture[str]) -> Table:
    """The rows that a function of tests/bench prints."""
    getattr(importlib.import_module(subject), function)()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def fidelity_rows(
    function: str, keys_of_cell: Callable[[list[str], int], list[str]], page: Table, digits: int = 0
) -> Table:
    """The rows of a page with the figures that a function of tests/bench fidelity returns, in percent."""
    module = importlib.import_module("fidelity")
    try:
        figures = getattr(module, function)()
    except module.Skipped as skipped:
        pytest.skip(str(skipped))
    rows = []
    for row in page:
        found = [keys_of_cell(row, column) if row[column] else [] for column in range(1, len(row))]
        cells = ([f"{100 * figures[key]:.{digits}f}" for key in keys] for keys in found)
        rows.append([row[0], *(", ".join(cell) for cell in cells)])
    return rows


COMPARED: dict[tuple[str, str], Callable[[pytest.CaptureFixture[str], Table], Table]] = {
    (GPUS, "| Weights |"): lambda capsys, _: printed_rows("gpus_paper", "by_phase", capsys),
    (GPUS, "| Tokens in, out |"): lambda capsys, _: printed_rows("gpus_paper", "by_length", capsys),
    (ACCURACY, "| model | H100 | H200 |"): lambda _, page: fidelity_rows(
        "roofline",
        lambda row, column: [
            f"fidelity_roofline_{gpu}_{name_part(row[0])}"
            for gpu in GPU_KEYS[column - 1]
            if not row[0].startswith("GPU")
        ],
        page,
    ),
    (ACCURACY, "| engine | H100 | A100 |"): lambda _, page: fidelity_rows(
        "static_batches",
        lambda row, column: [
            f"fidelity_static_all_{('h100_80gb', 'a100_40gb')[column - 1]}_"
            f"{name_part(row[0]).removesuffix(' of 2024')}"
        ],
        page,
    ),
    (ACCURACY, "| profile | prefill |"): lambda _, page: fidelity_rows(
        "held_out",
        lambda row, column: [
            f"fidelity_{profile}_{('prefill', 'step', 'e2e')[column - 1]}" for profile in PROFILES[row[0]]
        ],
        page,
        digits=1,
    ),
}


@pytest.mark.parametrize(("page", "head"), COMPARED)
def test_a_table_has_the_rows_of_its_command(
    page: str, head: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each figure as it is rounded there; a cell that is empty on the page is not compared."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "bench")
    [shown] = [rows for line, rows in find_tables(Path(page)).items() if head in line]
    made = COMPARED[page, head](capsys, shown)
    compared = 0
    for row, expected in zip(shown, made, strict=True):
        for cell, figure in zip(row[1:], expected[1:], strict=True):
            if re.search(r"\d", cell) and figure:
                assert re.findall(r"[\d.,]*\d", cell) == re.findall(r"[\d.,]*\d", figure), row
                compared += 1
    assert compared >= 4


def test_each_other_table_of_figures_has_a_reason() -> None:
    """By page, with the number of its tables: a new table is compared, or counted with a reason."""
    left = dict[str, int]()
    for page in PAGES:
        heads = [head for path, head in COMPARED if path == str(page)]
        tables = {line: rows for line, rows in find_tables(page).items() if is_of_figures(rows)}
        count = sum(not any(head in line for head in heads) for line in tables)
        left |= {str(page): count} if count else {}
    assert left == {page: entry["tables"] for page, entry in REST.items()}
    assert all(len(entry["why"].split()) >= 4 for entry in REST.values())
