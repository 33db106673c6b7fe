"""Hostile configs, statements, variables and values of options."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import click
import typer
from hostile_values import ALMOST, ARGUMENTS, spoil_toml
from hostile_verdict import run_command, trouble_of_error_output
from small import small_config
from test_sources import fixture

from fleetcast.assets.lake.settings import load_settings
from fleetcast.assets.studies.whatif_cases import resolve_cases
from fleetcast.assets.traces.trace_mapping import read_mapping
from fleetcast.models.quality.judges import load_quality
from fleetcast.models.traffic.trace_changes import load_changes
from fleetcast.models.world.catalogue import CATALOGUE_DIR, load_catalogue
from fleetcast.models.world.config_loading import CONFIG_DIR
from fleetcast.models.world.prices import load_price_lists
from fleetcast.models.world.project_paths import ROOT
from fleetcast.pipelines.cli import cli_app
from fleetcast.pipelines.deployment import read_deployment

Work = Callable[[], str]
DAY = date(2025, 7, 3)
TABLES = ("gpus", "llms", "regions", "tiers", "latency", "roofline", "kernels", "engine", "quality")


def toml_files(folder: Path, draw: random.Random) -> Iterator[tuple[str, Work]]:
    """Shipped TOML files with a line or bytes changed, each read as its command reads it."""
    catalogue = load_catalogue()

    def read_catalogue(path: Path) -> None:
        there = path.parent / f"of {path.stem}"
        shutil.copytree(CATALOGUE_DIR, there)
        shutil.copy(path, there / path.name)
        load_catalogue(there)
        load_quality(there)

    def read_config(path: Path) -> None:
        settings = load_settings(str(path), folder / "lake")
        assert settings.history(settings.config.trace.replay_day) is not None
        assert settings.grid.service_options

    readers: list[tuple[Path, Callable[[Path], Any]]] = [
        *((path, read_config) for path in sorted(CONFIG_DIR.glob("*.toml")) * 3),
        *((CATALOGUE_DIR / f"{name}.toml", read_catalogue) for name in TABLES * 4),
        *((CATALOGUE_DIR / "mapping.toml", lambda path: read_mapping(path, "t", catalogue)),) * 8,
        *((CATALOGUE_DIR / "prices.toml", lambda path: load_price_lists(catalogue, path)),) * 4,
        *((ROOT / "data/changes/example.toml", load_changes),) * 8,
        *((ROOT / "data/deploy/deploy.toml", read_deployment),) * 4,
        *((ROOT / "data/whatif.toml", lambda p: resolve_cases(load_settings("office"), [], path=p)),) * 8,
    ]
    for n, (path, read) in enumerate(readers):
        what, content = spoil_toml(path.read_text(encoding="utf-8"), draw)

        def work(
            n: int = n, path: Path = path, read: Callable[[Path], Any] = read, content: bytes = content
        ) -> str:
            own = folder / f"toml{n}"
            own.mkdir()
            (own / path.name).write_bytes(content)
            read(own / path.name)
            return ""

        yield f"{path.name} {what}", work


STATEMENTS = (
    *("", ";", "--", "select", "select 1; select 2", "(" * 5000, "select " + "(" * 900 + "1" + ")" * 900),
    *("select " + "-" * 5001 + "1", "select " + "not " * 3000 + "true", "select '" + "x" * 2_000_000 + "'"),
    *("select " + "1+" * 20_000 + "1", "select case " + "when 1 then 2 " * 9000 + "end", "select [" * 3000),
    *("select 1 as " + "x" * 100_000, 'select 1 as "\x1b[2J"', "select chr(27) || '[2J'", "select '[red]'"),
    *("select chr(0)", "select '\ud800'", "select '\udcff'", "select 1 -- \u202e", "\ufeffselect 1"),
    *("select repeat('x', 1000000000)", "select list(range) from range(1000000000)", "from range(1e10)"),
    *("with recursive t as (select 1 a union all select a + 1 from t) select count(*) from t",),
    *("select regexp_matches(repeat('a', 100000), '(a+)+$')", "select 10::decimal(38,37)", "select 1/0"),
    *("select cast('x' as int)", "select 1e400", "select 'inf'::double", "select timestamp '294247-01-10'"),
    *("select date '-5877641-06-25'", "select interval 1e9 year", "select -17e37::int128"),
    *("select uuid()", "select blob '\\x00\\xff'", "select map {1: [{'a': null}]}", "select bitstring '101'"),
    *("from nothing", "select nothing()", "select $nothing", "select $1", "select ?"),
    *("copy (select 1) to '/tmp/hostile.csv'", "attach '/tmp/x.db'", "install httpfs", "load spatial"),
    *("from read_csv('/etc/passwd')", "from '/dev/zero'", "from glob('/**')", "select getenv('HOME')"),
    *("from read_text('https://localhost:1/')", "pragma version", "set threads = 99999", "call x()"),
    *("explain analyze select 1", "pivot (select 1 a) on a", "summarize select 1", "/dev/zero", "/", "x.sql"),
    *("select * from requests, requests, requests", "from scoreboard order by nothing"),
    *(f"select {', '.join(f'{n} as c{n}' for n in range(5000))}", "select 1 group by all having"),
)  # fmt: skip


def statements(folder: Path, draw: random.Random) -> Iterator[tuple[str, Work]]:
    """Queries by `fleetcast sql`, with small limits."""
    limits = ("--memory-gib", "0.2", "--time-limit-s", "2")
    for text in STATEMENTS:
        yield f"sql {text[:50]!r}", lambda text=text: run_command(["sql", *limits, "--", text])  # type: ignore[misc]
    file = folder / "query.sql"
    for content in (
        b"select '\xff'",
        "select 1".encode("utf-16"),
        b"\x00" * 100,
        b"select 1" + b" " * (1 << 24),
        b"",
    ):

        def of_file(content: bytes = content) -> str:
            file.write_bytes(content)
            return run_command(["sql", *limits, str(file)])

        yield f"sql of a file {content[:20]!r}", of_file
    for text in draw.sample(ARGUMENTS, 12):
        yield (
            f"--param {text[:40]!r}",
            lambda text=text: run_command(  # type: ignore[misc]
                ["sql", *limits, "--param", f"policy={text}", "select $policy as p"]
            ),
        )


IN_PROCESS = ("FLEETCAST_CONFIG", "FLEETCAST_CONFIG_TEXT", "FLEETCAST_CORES", "FLEETCAST_MEMORY_GIB",
              "FLEETCAST_EXECUTOR", "FLEETCAST_UNITS", "FLEETCAST_DEPLOYMENT", "FLEETCAST_PROFILE_CACHE",
              "FLEETCAST_LOCATION", "FLEETCAST_SCRATCH")  # fmt: skip
AT_START = ("FLEETCAST_HOME", "FLEETCAST_LAKE", "FLEETCAST_LOCATION", "FLEETCAST_LANDS", "NUMBA_CACHE_DIR",
            "DAGSTER_HOME", "FLEETCAST_CONFIG", "TZ", "COLUMNS", "LANG")  # fmt: skip


def environment(folder: Path, draw: random.Random) -> Iterator[tuple[str, Work]]:
    """Variables with hostile values: in this process, and in one that starts with them."""
    for name in IN_PROCESS:
        for text in draw.sample(ARGUMENTS, 5):
            yield (
                f"{name}={text[:40]!r}",
                lambda name=name, text=text: run_command(  # type: ignore[misc]
                    ["plan", "show", "--date", "2025-07-03"], **{name: text}
                ),
            )
    command = [
        sys.executable,
        "-c",
        "from fleetcast.pipelines.cli import main; main()",
        "sql",
        "from scoreboard",
    ]
    for name in AT_START:
        [text] = draw.sample(ARGUMENTS, 1)

        def start(name: str = name, text: str = text) -> str:
            given = {**os.environ, name: text.encode("utf-8", "replace").decode()}
            ended = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=50)
            if "Traceback" in ended.stderr or ended.returncode not in (0, 2):
                return ended.stderr[-1500:]
            return trouble_of_error_output(ended.stderr) if ended.returncode else ""

        yield f"{name}={text[:40]!r} at the start", start


SERVERS = {("ui",), ("serve", "scaler"), ("serve", "code")}  # they serve until they are stopped
FILE = str(fixture("azure_llm"))
LOAD = {"--rate": "1", "--input": "100", "--output": "10", "--requests": "20"}
BASES: dict[str, dict[str, str]] = {  # values with which a command gets further than to its options
    "try": {"file": "llama2-70b", **LOAD},
    "advise": {"file": FILE, "--out": "advice"},
    "configure": {"llm": "llama2-70b", "--trace": FILE, "--out": "settings.yaml"},
    "ingest": {"file": FILE},
    "gpus": {"--llm": "llama2-70b"},
}
NEEDED = {"--llm": "llama2-70b", "--gpu": "h200-141gb", "--tensor-parallel": "2", "--region": "east"}
NEEDED |= {"--hour": "1", "--policy": "reactive", "--like": "small", "--reserved": "0.7", "--quality": "0.5"}
NEEDED |= {"--latency": "5", "--format": "json", "--trace": "none.csv", "query": "select 1", "request": "1"}
NEEDED |= {"trace": "small", "file": "none.csv", "folder": "none"}


def command_line(folder: Path, draw: random.Random) -> Iterator[tuple[str, Work]]:
    """Each option and argument of each command with hostile values, in an empty lake."""
    config = small_config(folder)
    for path, command in _commands(typer.main.get_command(cli_app)):
        base = BASES.get(" ".join(path), {})
        for parameter in command.params if path not in SERVERS else ():
            if parameter.type.name == "boolean":
                continue
            for text in (*draw.sample(ARGUMENTS, 2), *draw.sample(ALMOST, 2)):
                arguments = [*path]
                for other in command.params:
                    name = other.opts[0]
                    value = base.get(name, NEEDED.get(name) if other.required else None)
                    value = text if other is parameter else config if name == "--config" else value
                    if value is not None:
                        arguments.append(f"{name}={value}" if name.startswith("--") else value)
                yield f"{' '.join(path)} {parameter.opts[0]} {text[:40]!r}", _command_work(folder, arguments)


def _command_work(folder: Path, arguments: list[str]) -> Work:
    def work() -> str:
        os.chdir(folder)
        return run_command(arguments)

    return work


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command below a group with its path; their modules are imported when they are named."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command
