"""Each place that handles errors is in external_reads.toml, with a test that reaches it."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fleetcast.models.world.project_paths import HOME

ROWS = tomllib.loads((HOME / "tests" / "external_reads.toml").read_text(encoding="utf-8"))["reached"]


def handlers(file: str, node: ast.AST, function: str = "") -> Iterator[str]:
    """Yield "FILE:FUNCTION: ERRORS" of each `except` and each `suppress` below a node."""
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.ExceptHandler):
            yield f"{file}:{name}: {ast.unparse(child.type) if child.type else 'all'}"
        elif isinstance(child, ast.Call) and ast.unparse(child.func).split(".")[-1] == "suppress":
            yield f"{file}:{name}: suppress {', '.join(map(ast.unparse, child.args))}"
        yield from handlers(file, child, name)


@cache
def functions_of(file: str) -> frozenset[str]:
    """The test functions of a file."""
    tree = ast.parse((HOME / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_each_handler_has_a_row_and_each_row_a_handler() -> None:
    files = [path for top in ("assets", "models", "pipelines") for path in sorted((HOME / top).rglob("*.py"))]
    names = {path: str(path.relative_to(HOME)) for path in files}
    found = {key for path in files for key in handlers(names[path], ast.parse(path.read_text("utf-8")))}
    assert len(found) > 100
    assert (sorted(found - ROWS.keys()), sorted(ROWS.keys() - found)) == ([], [])


def test_each_named_test_is_there() -> None:
    for site, test in ROWS.items():
        file, _, name = test.partition("::")
        assert Path(HOME / file).is_file(), site
        assert name in functions_of(file), (site, test)
