"""One vocabulary: no word of the old dialect, and no public name or file name that stands in two places."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import typer

from fleetcast.pipelines.cli import cli_app
from fleetcast.pipelines.lazy_group import import_commands

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("models", "assets", "pipelines")
CODE = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SQL = sorted((ROOT / "sql").rglob("*.sql"))
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *(path for top in ("sql", "tests", "data", *ROOMS) for path in (ROOT / top).rglob("*.md")),
    ]
    if path.name != "CHANGELOG.md" and "decisions" not in path.parts and ".venv" not in path.parts
)
BANNED = {
    *("asked", "asks", "told", "tells", "untold", "spoken", "nobody", "somebody", "whom", "beside", "ours"),
    *("dealt", "tried", "brought"),
}
WORD = re.compile(r"[a-z]+")
VALUE = re.compile(r"'\w+'")  # a value of a column in SQL, which stays


def banned_in(text: str) -> set[str]:
    """The words of a text, or the parts of a name, that are not to be used."""
    return BANNED & set(WORD.findall(text.lower()))


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Names, docstrings and comments of a Python file, each with its line."""
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.COMMENT):
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        is_documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if is_documented and (doc := ast.get_docstring(node)):
            yield node.body[0].lineno, doc


def findings(path: Path, pieces: Iterable[tuple[int, str]]) -> list[str]:
    """Each piece of a file with such a word: file, line and words."""
    where = path.relative_to(ROOT)
    return [f"{where}:{line} {', '.join(sorted(bad))}" for line, text in pieces if (bad := banned_in(text))]


def test_code_speaks_the_words_of_the_field() -> None:
    # Few files have such a word anywhere, and only these need to be taken apart.
    suspects = [path for path in (*CODE, *TESTS) if banned_in(path.read_text(encoding="utf-8"))]
    assert not [finding for path in suspects for finding in findings(path, prose_of(path))]


def test_sql_and_pages_speak_the_words_of_the_field() -> None:
    def lines(path: Path) -> Iterable[tuple[int, str]]:
        text = path.read_text(encoding="utf-8").replace("hostile_inputs_tried", "")  # a key
        return enumerate((VALUE.sub("", text) if path.suffix == ".sql" else text).splitlines(), 1)

    assert not [finding for path in (*SQL, *PAGES) for finding in findings(path, lines(path))]


def test_every_command_speaks_the_words_of_the_field() -> None:
    def texts(command: object, name: str) -> Iterator[tuple[str, str]]:
        yield name, str(getattr(command, "help", "") or "")
        for parameter in getattr(command, "params", []):
            yield f"{name} {parameter.name}", str(getattr(parameter, "help", "") or "")
        for inner, one in (import_commands(command) if isinstance(command, click.Group) else {}).items():
            yield from texts(one, f"{name} {inner}")

    found = {name: banned_in(text) for name, text in texts(typer.main.get_command(cli_app), "fleetcast")}
    assert len(found) > 100
    assert not {name: bad for name, bad in found.items() if bad}


def test_no_public_name_is_defined_in_two_files() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in CODE:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [
                    one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
                ]
            else:
                continue
            for name in names:
                if not name.startswith("_"):
                    places[name].add(str(path.relative_to(ROOT)))
    assert not {name: sorted(files) for name, files in places.items() if len(files) > 1}


def test_no_file_name_comes_back_in_another_room() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in CODE:
        if path.name != "__init__.py":
            places[path.name].append(str(path.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}


def test_every_term_of_the_glossary_is_computed_where_it_says() -> None:
    page = ROOT / "data" / "docs" / "reference" / "glossary.md"
    rows = re.findall(r"^\| ([^|]+) \| .* \| ([^|]+) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    terms = [(term, places) for term, places in rows if term not in ("term", "---")]
    assert len({term for term, _ in terms}) == len(terms) > 30
    for term, places in terms:
        links = re.findall(r"\[`([\w./]+)`\]\(([\w./]+)\)", places)
        assert links, term
        for name, link in links:
            file = (page.parent / link).resolve()
            assert file.is_file(), f"{term}: there is no {link}"
            is_defined = re.search(
                rf"^(def|class) {name}\b|^{name} = ", file.read_text(encoding="utf-8"), re.M
            )
            assert is_defined or file.name == Path(name).name, f"{term}: {name} is not in {link}"


def test_each_of_the_ten_tasks_opens_two_files_at_most() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("## Ten tasks")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (?!task|---)(.+?) \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) == 10
    for task, paths in rows:
        assert 1 <= len(re.findall(r"\]\(", paths)) + paths.count("a new file in `") <= 2, task


ARRAYS = re.compile(r"\b(Floats|Ints|Bools|NDArray|ndarray)\b")
SHAPE = re.compile(r"\([\w*+. |-]+,[\w*+. |,-]*\)|\bshape\b|\bscalar\b")  # (R,), (llms, regions)


def test_a_function_over_arrays_gives_their_shapes() -> None:
    found = []
    for path in CODE:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            given = [one.annotation for one in [*node.args.args, *node.args.kwonlyargs]] + [node.returns]
            types = [ast.unparse(annotation) for annotation in given if annotation is not None]
            if any(map(ARRAYS.search, types)) and not SHAPE.search(ast.get_docstring(node) or ""):
                found.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert not found
