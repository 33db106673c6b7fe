"""The pages say what the code has: every key, command, policy, figure; no link and no path leads nowhere."""

import dataclasses
import hashlib
import importlib
import os
import re
import runpy
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
import pytest
import typer
from PIL import Image

from fleetcast.models.forecast import FORECAST_METHODS
from fleetcast.models.quality.answer_copula import AnswerModel
from fleetcast.models.quality.judges import Judge
from fleetcast.models.world import catalogue_entries
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.kernel_times import KernelTimes
from fleetcast.models.world.mechanisms import BATCH_PULLS, BATCHINGS, ORDERS, ROUTINGS, SCALINGS, SIGNALS
from fleetcast.models.world.option_names import ENSEMBLES
from fleetcast.models.world.planners import BOARD_PLANNERS, IDEAS
from fleetcast.models.world.policies import REPLAY_POLICIES
from fleetcast.models.world.pool_rows import POOLINGS
from fleetcast.pipelines import cli_reference
from fleetcast.pipelines.cli import cli_app
from fleetcast.pipelines.lazy_group import import_commands

ROOT = Path(__file__).resolve().parent.parent
BOARD_TRACES = ("mooncake_weeks", "servegen", "bursts_weeks", "answers_weeks")  # columns of their table
FOUND = (path.relative_to(ROOT) for depth in ("", "*/", "*/*/") for path in ROOT.glob(f"{depth}README.md"))
DOCS = [
    path for path in ROOT.glob("data/*/**/*.md") if path.parts[len(ROOT.parts) + 1] in ("docs", "studies")
]
FILED = sorted(path.relative_to(ROOT) for path in DOCS if path.name != "README.md")
PAGES = [
    *sorted(path for path in FOUND if not path.parts[0].startswith(".")),
    Path("CHANGELOG.md"),
    Path("CONTRIBUTING.md"),
    Path("SECURITY.md"),
    *FILED,
]
# Made by a run, or not a part of the project.
MADE = (
    *("data/lake", "data/figures", "data/bench.json", "data/audit", "data/.", "data/landing/"),
    *(".venv", "../shared"),
)
TOPS = ("assets", "data", "models", "pipelines", "sql", "tests")
COMMANDS = import_commands(typer.main.get_command(cli_app))


def text(folder: str) -> str:
    """The page of a folder."""
    return (ROOT / folder / "README.md").read_text(encoding="utf-8")


def chapter(page: str, heading: str) -> str:
    """What stands under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", page, re.DOTALL | re.MULTILINE)
    assert found, f"there is no heading {heading!r}"
    return found[1]


def rows(table: str) -> list[str]:
    """The names in backticks that begin the rows of a table."""
    return re.findall(r"^\| `([^`|]+)` \|", table, re.MULTILINE)


def code(page: str) -> Iterator[str]:
    """Everything that is set as code: lines of blocks, and words between backticks."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE))


def anchors(page: str) -> set[str]:
    """The names that headings can be linked by."""
    heads = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / path).read_text(encoding="utf-8")):
        if not target.startswith("http"):
            file, _, anchor = target.partition("#")
            there = ROOT / path.parent / file if file else ROOT / path
            assert there.exists(), target
            assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_paths_that_are_named_are_there(path: Path) -> None:
    for word in " ".join(code((ROOT / path).read_text(encoding="utf-8"))).split():
        if re.fullmatch(r"(models|assets|pipelines)(\.\w+)+", word):
            module, _, name = word.rpartition(".")
            file = ROOT / f"{module.replace('.', '/')}.py"
            assert (ROOT / f"{word.replace('.', '/')}.py").exists() or name in file.read_text(), word
        is_path = re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?", word) and not re.search(r"[A-Z]{3}", word)
        if is_path and not word.startswith(MADE) and (word.split("/")[0] in TOPS or Path(word).suffix):
            found = [(base / word).exists() for base in (ROOT, ROOT / path.parent)]
            assert any(found), word


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_commands_that_are_named_are_there(path: Path) -> None:
    """Each `fleetcast ...` is a command of the program with options that it has."""
    for line in code((ROOT / path).read_text(encoding="utf-8")):
        for phrase in re.findall(r"(?<!from )\bfleetcast ([a-z][^;&|>#]*)", line):
            require_command(phrase)


def require_command(phrase: str) -> None:
    words = phrase.split()
    names = words[0].split("|")
    assert names[0] in COMMANDS, phrase
    command = COMMANDS[names[0]]
    if hasattr(command, "commands") and len(words) > 1:
        command = command.commands[words[1]]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, phrase


def test_the_reference_of_the_commands_is_current() -> None:
    page = cli_reference.CLI_PAGE.read_text(encoding="utf-8")
    assert page == cli_reference.render_page(), "run: python -m fleetcast.pipelines.cli_reference"


def linked_pages(page: Path) -> set[Path]:
    """The pages of the project that a page links to."""
    targets = re.findall(r"\]\(([^)\s#]+\.md)[^)\s]*\)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets if not target.startswith("http")}


def test_every_page_is_reached_from_the_index() -> None:
    """In two steps: from the index, or from an index that it links to."""
    index = ROOT / "data" / "docs" / "README.md"
    first = linked_pages(index)
    second = {page for path in first if path.name == "README.md" for page in linked_pages(path)}
    assert {(ROOT / path).resolve() for path in PAGES} - first - second - {index} == set()


def test_every_dependency_has_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    documented = re.findall(r"^\| ([\w, -]+) \|", chapter(text("."), "Packages"), re.MULTILINE)
    names = {name for line in documented for name in line.split(", ")} - {"package", "---"}
    assert names == {re.split(r"[\[<>=]", line)[0] for line in wanted}


def tables(cls: type, name: str) -> Iterator[tuple[str, type]]:
    """A dataclass that a TOML table fills and those in it, by the headings under which they stand."""
    yield f"[{name}]", cls
    for key, hint in typing.get_type_hints(cls).items():
        yield from held(hint, f"{name}.{key}")


def held(hint: typing.Any, name: str) -> Iterator[tuple[str, type]]:
    """The tables that a field holds: itself, a list of them, or one for each name."""
    arguments = typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        yield from tables(typing.cast(type, hint), name)
    elif types.NoneType in arguments:
        yield from held(arguments[0], name)
    elif typing.get_origin(hint) is tuple:
        yield from ((f"[{head}]", cls) for head, cls in held(arguments[0], name))
    elif issubclass(typing.get_origin(hint) or object, Mapping):
        yield from held(arguments[1], f"{name}.KEY")


def test_every_config_key_is_documented_with_its_unit() -> None:
    page, fields = text("data/config"), typing.get_type_hints(RunConfig)
    kinds = {"deployments": "LLM", "cascades": "LLM", "tiers": "TIER", "apps": "APP", "policies": "NAME"}
    for key, hint in fields.items():
        for head, cls in held(hint, key):
            for table, kind in kinds.items():
                head = head.replace(f"{table}.KEY", f"{table}.{kind}")
            head = {"[calendar]": "calendar"}.get(head, head.replace("[calendar.", "["))
            documented = chapter(page, head)
            assert rows(documented) == [field.name for field in dataclasses.fields(cls)], head
            for row in re.findall(r"^\| `\w+` \|(.*)\|$", documented, re.MULTILINE):
                assert all(cell.strip() for cell in (row.split("|")[0], row.split("|")[-1])), row


def test_the_config_that_is_shown_is_one(tmp_path: Path) -> None:
    [shown] = re.findall(r"^```toml\n(.*?)^```", text("data/config"), re.DOTALL | re.MULTILINE)
    (tmp_path / "mine.toml").write_text(shown)
    config = load_config(str(tmp_path / "mine.toml"), load_catalogue())
    assert (config.trace.name, config.trace.office, config.fleet.max_instances) == ("azure_llm", None, 60)


@pytest.mark.parametrize(
    ("file", "cls"),
    [
        ("gpus.toml", catalogue_entries.Gpu),
        ("llms.toml", catalogue_entries.Llm),
        ("regions.toml", catalogue_entries.Region),
        ("tiers.toml", catalogue_entries.Tier),
        ("latency.toml", catalogue_entries.LatencyProfile),
        ("roofline.toml", catalogue_entries.Efficiency),
        ("engine.toml", catalogue_entries.EngineCorrection),
        ("kernels.toml", KernelTimes),
        ("[answers.NAME]", AnswerModel),
        ("[judges.NAME]", Judge),
    ],
)
def test_every_catalogue_key_is_documented(file: str, cls: type) -> None:
    assert rows(chapter(text("data/catalogue"), file)) == [field.name for field in dataclasses.fields(cls)]


def test_every_policy_method_and_choice_is_documented() -> None:
    replay = text("models/replay")
    assert rows(chapter(replay, "Policies")) == list(REPLAY_POLICIES)
    assert rows(chapter(replay, "Planners")) == [*BOARD_PLANNERS, *IDEAS]
    assert rows(chapter(text("models"), "Forecasts")) == [*FORECAST_METHODS, *ENSEMBLES]
    documented = chapter(replay, "Mechanisms")
    for name in (*BATCHINGS, *BATCH_PULLS, *ROUTINGS, *ORDERS, *SIGNALS, *POOLINGS, *SCALINGS):
        assert f"`{name}`" in documented, name
    board = chapter(text("."), "One command")
    shipped = tomllib.loads((ROOT / "data" / "config" / "office.toml").read_text())["replay"]["policies"]
    assert [name for name in REPLAY_POLICIES if re.search(rf"^{name} ", board, re.MULTILINE)] == shipped


def test_every_measured_figure_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of data/bench.json; in the page capitals stand for several names."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "bench")
    subjects = runpy.run_path(str(ROOT / "tests" / "bench" / "__main__.py"))["SUBJECTS"]
    keys = [key for name in subjects for key in importlib.import_module(name).TARGETS]
    begins = {key.split("_")[0] for key in keys}
    documented = [
        w for w in code(text("tests/bench")) if re.fullmatch(r"\w+_\w+", w) and w.split("_")[0] in begins
    ]
    patterns = {word: re.sub(r"[A-Z]+", r"\\w+", word) for word in documented}
    for key in keys:
        assert any(re.fullmatch(pattern, key) for pattern in patterns.values()), key
    for word, pattern in patterns.items():
        assert any(re.fullmatch(pattern, key) for key in keys), word


def test_every_room_is_documented() -> None:
    for top, phrase in (("assets", "`assets/{}/`"), ("models", "| [{}](")):
        rooms = [path.parent.name for path in (ROOT / top).glob("*/__init__.py")]
        assert rooms
        assert [name for name in rooms if phrase.format(name) not in text(top)] == []


def test_the_picture_of_the_first_page_is_of_its_board() -> None:
    """A figure carries its texts: the GPU-hours of its panels are those of the printed scoreboard."""
    picture = Image.open(ROOT / "data" / "pictures" / "instances_against_demand.png")
    drawn = dict(re.findall(r"^(\w+)  ([\d,]+) GPU-h$", picture.info["Description"], re.MULTILINE))
    board = chapter(text("."), "One command")
    printed = dict(re.findall(r"^(\w+) +(?:[\d.]+ +){5}([\d,]+) +[\d,]+ +[\d,]+ +[+-]", board, re.MULTILINE))
    assert len(printed) == 13
    assert drawn == printed


def test_the_picture_of_the_planners_is_of_their_table() -> None:
    """It names the USD of each planner, as the page does; the cheapest is on top, so it is drawn last."""
    picture = Image.open(ROOT / "data" / "pictures" / "planner_board.png")
    drawn = re.findall(r"^ *([\d,]+) USD$", picture.info["Description"], re.MULTILINE)
    page = (ROOT / "data/docs/explanation/planner-comparison.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| [\w -]+ \| .* \| ([\d,]+) \| (?:[+-][\d.]+ %)? ?\| .*\|$", page, re.MULTILINE)
    assert len(drawn) == 6
    assert drawn[::-1] == table


def test_the_picture_of_the_boards_is_of_their_table() -> None:
    """It names the cheapest rival of each traffic, with its cost over compact: in the table in percent."""
    picture = Image.open(ROOT / "data" / "pictures" / "unseen_boards.png")
    named = re.findall(r"^(\w+) (\d\.\d\d)$", picture.info["Description"], re.MULTILINE)
    page = (ROOT / "data/docs/explanation/planner-comparison.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \| (.*[+-]\d+, \d.*) \|$", page, re.MULTILINE))
    assert len(named) == 4
    for policy, ratio in named:
        assert re.search(rf"(^|\| ){re.escape(f'{100 * float(ratio) - 100:+.0f}')}, ", table[policy]), (
            policy,
            ratio,
        )
    rows = pd.read_csv(ROOT / "tests/bench/picture_rows/unseen_boards.csv").set_index(["trace", "policy"])
    for policy, row in table.items():
        for trace, cell in zip(BOARD_TRACES, row.split(" | "), strict=True):
            board = rows.loc[trace, policy]
            over = 100 * board["total_usd"] / rows.at[(trace, "compact"), "total_usd"] - 100
            cost = f"{board['total_usd']:,.0f} USD" if policy == "compact" else f"{over:+.0f}"
            text = f"{cost}, {board['days_on_target']}"
            assert cell == (text if board["is_ranked"] else f"({text})"), (trace, policy)


def test_the_table_of_forecasts_by_boot_time_is_of_its_picture() -> None:
    """Each line has the cells of the recorded rows of the picture, and each row is in a line."""
    rows = pd.read_csv(ROOT / "tests/bench/picture_rows/foresight.csv")
    page = (ROOT / "data/docs/explanation/planner-comparison.md").read_text(encoding="utf-8")
    page = chapter(page, "What a forecast is worth by boot time")
    assert re.findall(r"^\| `\w+_(?:weeks|regions)` \| .*\|$", page, re.MULTILINE) == foresight_lines(rows)
    titles = Image.open(ROOT / "data" / "pictures" / "foresight.png").info["Description"].splitlines()
    assert {title.partition(",")[0] for title in titles} == set(rows["trace"])
    with_minimum = rows[rows["min_instances"].notna()]
    assert sum("," in title for title in titles) == len(with_minimum.groupby(["trace", "boot_s"]))


def foresight_lines(rows: pd.DataFrame) -> list[str]:
    """The lines of the table: traffic, minutes of a boot, floor, and USD and difference of both pairs."""
    found = []
    groups = rows.groupby(["trace", "min_instances", "boot_s"], dropna=False, sort=False)
    for (trace, _, boot_s), of_line in groups:
        by_policy = of_line.set_index("policy")
        cells = [f"`{trace}`", f"{boot_s / 60:g}", f"{by_policy.at['reflex_gaps', 'minimum_share']:.0%}"]
        for policy in ("reflex_gaps", "corrected_gaps", "reflex", "corrected"):
            cells.append(foresight_cell(by_policy.loc[policy]) if policy in by_policy.index else "–")
        found.append(f"| {' | '.join(cells)} |")
    return found


def foresight_cell(row: pd.Series) -> str:
    """USD of the rule without a forecast, else what a rule with one costs over it in %, with its interval."""
    low, over, high = (round(100 * row[f"{end}over_reflex_share"]) for end in ("low_", "", "high_"))
    is_without = row.name == row["against"]
    text = f"{row['total_usd']:,.0f}" if is_without else f"{over:+d} ({low} to {high})"
    return text if row["is_ranked"] else f"{text}, missed"


def test_the_readme_has_the_figures_of_the_boards() -> None:
    """Each cell of its table of nine traffics is that of the board on the page of the comparison."""
    readme = chapter((ROOT / "README.md").read_text(encoding="utf-8"), "Nine traffics")
    lines = [line.strip("|").split("|") for line in readme.splitlines() if "|" in line]
    rows = [[cell.strip() for cell in line] for line in lines]
    boards = boards_of_the_page()
    assert [len(rows), len(boards)] == [2 + 9, 9]
    columns = ["compact", "reflex_gaps", "reactive_gaps", "hpa_gaps", "", "lt_ua"]
    for row, board in zip(rows[2:], boards, strict=True):
        for policy, cell in zip(columns, row[1:], strict=True):
            plain = re.match(r"`(\w+)` (.*)", cell)
            assert cell.replace("**", "") in board.get(policy, {"missed", ""}) or (
                plain and plain[2] in board[plain[1]]
            ), (row[0], policy, cell, board.get(policy))


def boards_of_the_page() -> list[dict[str, set[str]]]:
    """What may stand for each policy of each board: its cost over compact in %, with or without a range."""
    page = (ROOT / "data/docs/explanation/planner-comparison.md").read_text(encoding="utf-8")
    page = re.sub(r"`(\w+)` with both mechanisms", r"`\1_gaps`", page)
    tables = [
        re.findall(r"^\| `(\w+)`(?: \([\w ]+\))? \| (.*) \|$", chapter(page, heading), re.MULTILINE)
        for heading in (
            "On days that no search has seen",
            "A real hour of Azure",
            "Code completions, where `compact` is no better",
            "Few real users, where `compact` loses",
            "Other traffics",
        )
    ]
    split = [
        [(policy, [cell.strip() for cell in text.split("|")]) for policy, text in table] for table in tables
    ]
    with_usd = [[(policy, *row[first : first + 2]) for policy, row in split[0]] for first in (1, 4)]
    with_usd += [[(policy, *row[:2]) for policy, row in table] for table in split[1:4]]
    boards = [board_in_usd(table) for table in with_usd]
    for column in range(4):
        boards.append({policy: {cell_of_day_count(row[column])} for policy, row in split[4]})
    return boards


def board_in_usd(table: list[tuple[str, str, str]]) -> dict[str, set[str]]:
    """From the USD of each policy, and its cost over the cheapest one with a range, "" for compact."""
    compact = next(float(usd.replace(",", "")) for policy, usd, _ in table if policy == "compact")
    board = {}
    for policy, usd, over in table:
        if usd.startswith("("):
            board[policy] = {"missed"}
        elif policy == "compact":
            board[policy] = {usd}
        elif usd:
            percent = f"{100 * float(usd.replace(',', '')) / compact - 100:+.0f}"
            board[policy] = {percent, over} if over.startswith(f"{percent} (") else {percent}
    return board


def cell_of_day_count(text: str) -> str:
    """The same from "+117, 5", "(+120, 5)" or "82,509 USD, 4": percent, or USD, and the days on target."""
    over, days = text.rsplit(", ", 1)
    if text.startswith("("):
        return "missed"
    return over.replace(" USD", f", {days} of 5 days" if days != "5" else "") if "USD" in over else over


def test_the_picture_of_the_measured_runs_has_as_many_as_its_text() -> None:
    description = Image.open(ROOT / "data" / "pictures" / "wall.png").info["Description"]
    page = (ROOT / "data/docs/explanation/accuracy.md").read_text(encoding="utf-8")
    [alternative] = re.findall(r"!\[(.*?)\]\(.*wall\.png\)", page)
    counted = re.compile(r"([\d,]+) (stages|closed loops)")
    assert len(counted.findall(description)) == 2
    assert counted.findall(description) == counted.findall(alternative)


def test_the_pictures_of_the_characterisation_are_of_their_table() -> None:
    """Drawn from recorded rows, whose values the page prints: panels 3 and 4 of the load, 6 of the replay."""
    page = chapter((ROOT / "data/studies/README.md").read_text(encoding="utf-8"), "characterisation")
    folder = ROOT / "tests/bench/picture_rows"
    load = pd.read_parquet(folder / "load.parquet")
    boxes, minutes, instances = (
        pd.read_csv(folder / f"latency_{name}.csv") for name in ("boxes", "minutes", "instances")
    )

    def percent(of: pd.Series) -> dict[str, str]:
        return {str(key): f"{100 * value:.0f}" for key, value in of.items()}

    def shares(of: pd.DataFrame, by: str, column: str = "requests") -> dict[str, str]:
        sums = of.groupby(by)[column].sum()
        return percent(sums / sums.sum())

    fast, batch = (load[load["tier"] == tier] for tier in ("iw_fast", "niw"))
    requests, tokens = shares(load, "tier"), shares(load, "tier", "tokens")
    region, quiet = shares(fast, "region"), shares(batch, "region")["west"]
    rate = load.groupby(["tier", "llm", "region"])["requests"].sum() / load["time"].nunique()
    a, b, n = rate["iw_fast", "bloom-176b"], rate["iw_fast", "llama2-70b"], rate["iw_normal", "llama2-70b"]
    box = boxes.set_index(["tier", "served_region"]).sort_index()
    f, p95 = box.loc["iw_fast"], box["p95_s"]
    moved = minutes.groupby("tier")["mean_s"]
    by_minute = percent(moved.std() / moved.mean())
    apart = percent(
        (instances["p99_tokens"] / instances["p50_tokens"] - 1).groupby(instances["served_region"]).mean()
    )
    for text in (
        f"{requests['iw_fast']}, {requests['iw_normal']} %",
        f"niw {tokens['niw']} %, iw_fast {tokens['iw_fast']}, iw_normal {tokens['iw_normal']}",
        f"{region['east']}, {region['central']}, {region['west']} %",
        f"{a['east'] / a['west']:.1f} times",
        f"{b['central']:.2f} requests/s; {b['east']:.2f} in east, {b['west']:.2f} in west",
        f"{n['west']:.2f} requests/s; {n['east']:.2f}, {n['central']:.2f}",
        f"{quiet} % of it",
        "; ".join(f"{f.at[at, 'mean_s']:.1f}, {f.at[at, 'p95_s']:.1f}" for at in ("west", "central", "east")),
        ", ".join(f"{f.at[at, 'p50_s']:.1f}" for at in ("west", "central", "east")),
        f"P95 {p95['niw'].min():.0f} to {p95['niw'].max():.0f} s, of iw_fast {f['p95_s'].min():.0f} to "
        f"{f['p95_s'].max():.0f} s",
        f"{by_minute['iw_fast']} and {by_minute['iw_normal']} % of their means",
        f"P99 is {apart['east']} % above P50 in east, {apart['west']} and {apart['central']} % in west",
    ):
        assert text in page, text


def test_the_pictures_of_the_studies_are_of_their_tables() -> None:
    """Each is drawn from recorded rows, whose values the page prints."""
    page = (ROOT / "data/studies/README.md").read_text(encoding="utf-8")
    rows, paper = (
        pd.read_csv(ROOT / f"tests/bench/picture_rows/{name}.csv") for name in ("studies", "paper")
    )
    for study, own in rows.groupby("study"):
        drawn = Image.open(ROOT / f"data/pictures/study_{study}.png").info["Description"].splitlines()
        hours = [f"{value:,.0f}" for value in own[own["metric"] == "gpu_hours"]["value"]]
        assert drawn[3 : 3 + len(hours)] == hours, study
    value = rows.set_index(["study", "policy", "variant", "metric"])["value"].sort_index()
    found = re.findall(r"^\| (\w+) \|" + 3 * r" ([\d.]+), ([\d,]+) \|" + "$", chapter(page, "bursts"), re.M)
    assert len(found) == 5
    for policy, *cells in found:
        for variant, share, hours in zip(("calm", "inside", "outside"), cells[::2], cells[1::2], strict=True):
            at = value["bursts", policy, variant]
            assert (f"{at['attainment_share']:.1%}", f"{at['gpu_hours']:,.0f}") == (f"{share}%", hours)
    for row in paper.itertuples():
        number = row.fleetcast_value
        is_share = isinstance(row.against, str) or row.metric.endswith("_share")
        text = f"{100 * number:.1f}".lstrip("-") if is_share else f"{number:,.{2 if number > 100 else 1}f}"
        text = text.rstrip("0").rstrip(".")
        assert re.search(rf"(?<![\d.]){re.escape(text)}(?:\.?0)?(?!\.?\d)", chapter(page, row.study)), row


def test_each_picture_has_an_alternative_text_and_the_runs_that_draw_it() -> None:
    listed = tomllib.loads((ROOT / "tests" / "bench" / "pictures.toml").read_text(encoding="utf-8"))
    pages = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in PAGES)
    shown = {Path(file).stem: alt for alt, file in re.findall(r"!\[([^\]]*)\]\((.*?\.png)\)", pages)}
    there = {path.stem for path in (ROOT / "data" / "pictures").iterdir()}
    assert shown.keys() == there, "a picture that no page shows, or that is missing"
    assert listed.keys() == there, "a picture without its runs in pictures.toml"
    assert [name for name, alt in shown.items() if len(alt.split()) < 5] == []
    for name, picture in listed.items():
        for run in picture["runs"]:
            program, _, phrase = run.partition(" ")
            if program == "fleetcast":
                require_command(phrase)
            else:
                assert (ROOT / phrase).is_file(), run
        trace, _, day = picture["title"].partition(", ")
        if name.startswith("study_"):
            found = {run.split()[-1] for run in picture["runs"]}
            assert found <= {path.stem for path in (ROOT / "data" / "studies").glob("*.toml")}
            assert name == "study_against_the_paper" or found == {trace} == {name.removeprefix("study_")}
        elif day:
            assert load_config(trace, load_catalogue()).trace.replay_day.isoformat() == day, name


def test_each_picture_is_drawn_from_its_recorded_rows() -> None:
    """It has their digest, and its titles and numbers as text."""
    listed = tomllib.loads((ROOT / "tests" / "bench" / "pictures.toml").read_text(encoding="utf-8"))
    folder = ROOT / "tests" / "bench" / "picture_rows"
    assert {file for picture in listed.values() for file in picture["rows"]} == set(os.listdir(folder))
    for name, picture in listed.items():
        info = Image.open(ROOT / "data" / "pictures" / f"{name}.png").info
        recorded = b"".join((folder / file).read_bytes() for file in picture["rows"])
        redraw = f"python tests/bench/pictures.py --recorded {name}"
        assert info.get("Rows") == hashlib.sha256(recorded).hexdigest(), redraw
        assert info["Description"], name
