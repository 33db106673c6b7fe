"""Architecture rules: which modules may import which."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from fleetcast.models.replay.compiled import kernel_sources

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path for top in ("models", "assets", "pipelines") for path in (ROOT / top).rglob("*.py"))
ROOMS = (
    "lake",
    "pages",
    "traces",
    "demand",
    "forecasts",
    "plans",
    "replays",
    "studies",
    "advice",
)  # as data flows
# Every package of models and the packages that it imports besides the type aliases. Assets combine them.
ARROWS: dict[str, set[str]] = {
    "world": set(),
    "metrics": {"world"},
    "forecast": {"world"},
    "latency": {"world"},
    "normal_scores": set(),
    "quality": {"normal_scores", "world"},
    "characterise": {"forecast"},
    "plan": {"latency", "world"},
    "traffic": {"characterise", "normal_scores", "world"},
    "replay": {"latency", "quality", "world"},
    "trials": {"latency", "metrics", "quality", "replay", "world"},
    "configure": {"latency", "metrics", "replay", "trials", "world"},
    "simulation": {"latency", "replay", "world"},
}
PLAYING = {"run", "background_compile"}  # files of models/replay that run the kernel


def list_imports(path: Path) -> set[str]:
    """Return every module that a file imports, at its top or inside a function."""
    names = imported_names(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {name.removeprefix("fleetcast.") for name in names}


def imported_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the modules that these statements import, and the names that they import from them."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def forbidden_prefixes(path: Path) -> set[str]:
    """Return the prefixes of modules that the file at this path may not import."""
    top, *inner = path.relative_to(ROOT).with_suffix("").parts
    rules = {
        "models": {"assets", "pipelines", "dagster", "duckdb"},
        "assets": {"pipelines"},
        "pipelines": {"duckdb"},
    }
    found = set(rules[top])
    if top == "models" and inner[0] == "replay" and inner[-1] not in PLAYING:
        found |= {"models.replay.run", *({"models.replay.kernel"} if inner[-1] != "kernel" else ())}
    if top == "assets" and inner not in (
        ["lake", "warehouse"],
        ["lake", "duckdb_connection"],
        ["lake", "read_only_query"],
        ["lake", "query_days"],
    ):
        found.add("duckdb")
    if top != "assets" or inner[-1] not in ("bucket", "bucket_errors", "bucket_objects"):
        found |= {"s3fs", "botocore", "aiohttp"}
    if top == "assets" and len(inner) > 1:
        later = ROOMS[ROOMS.index(inner[0]) + 1 :]
        found |= {
            f"assets.{name}" for name in (*later, "lineage", "studies_on_demand", "plans_on_demand", "checks")
        }
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_layers(path: Path) -> None:
    broken = {
        name
        for name in list_imports(path)
        for rule in forbidden_prefixes(path)
        if name == rule or name.startswith(f"{rule}.")
    }
    assert not broken, f"{path.relative_to(ROOT)} may not import {', '.join(sorted(broken))}"


def test_every_asset_folder_has_a_place_in_the_order() -> None:
    """A new folder of assets must take a place in the order; otherwise no import into it is checked."""
    assert {path.parent.name for path in (ROOT / "assets").glob("*/__init__.py")} == set(ROOMS)


def test_model_packages_import_only_allowed_packages() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "models").rglob("*.py"):
        room = path.relative_to(ROOT / "models").with_suffix("").parts[0]
        rooms = {name.split(".")[1] for name in list_imports(path) if name.startswith("models.")}
        found[room] |= rooms - {room, "aliases"}
    assert {room: rooms for room, rooms in found.items() if room not in ("__init__", "aliases")} == ARROWS


def test_imports_have_no_cycle() -> None:
    """CycleError names the files of a cycle."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    graph = {name: list_imports(path) & modules.keys() - {name} for name, path in modules.items()}
    TopologicalSorter(graph).prepare()


def test_heavy_packages_are_imported_inside_functions() -> None:
    """Of scipy only scipy.special is quick to import; scipy.stats takes a second."""
    heavy = re.compile(r"prophet|statsmodels|pulp|matplotlib|scipy\.(?!special)")
    for path in FILES:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        found = [name for name in imported_names(body) if heavy.match(name)]
        assert not found, f"{path.name} imports {found} before anyone needs it"


def test_the_kernel_cache_key_covers_every_compiled_file() -> None:
    """The kernel imports every compiled file. Files that only run it are not hashed and may change."""
    known, room = set(kernel_sources()) - {"mechanisms"}, ROOT / "models" / "replay"
    files = {".".join(path.relative_to(room).with_suffix("").parts): path for path in room.rglob("*.py")}
    compiled = {
        name
        for name, path in files.items()
        if re.search(r"^@(compiled|called|entry)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert compiled <= known
    for name in known:
        found = list_imports(files[name])
        assert {other for other in files if f"models.replay.{other}" in found} <= known
    assert not {name.rsplit(".")[-1] for name in known} & {"run", "initial_state", "begin", "rules"}
