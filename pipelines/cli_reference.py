"""data/docs/reference/cli.md, every command with its options: python -m fleetcast.pipelines.cli_reference."""

import inspect
import re
from collections.abc import Iterator
from itertools import groupby

import click
import typer

from fleetcast.assets.lake.sql_docs import escape_cell
from fleetcast.models.world.project_paths import ROOT
from fleetcast.pipelines.cli import cli_app
from fleetcast.pipelines.lazy_group import import_commands

CLI_PAGE = ROOT / "data" / "docs" / "reference" / "cli.md"
CLI_INTRODUCTION = """# Which commands and options does fleetcast have?

Written from the program by `python -m fleetcast.pipelines.cli_reference`. To change a text, change
the command. `fleetcast COMMAND --help` prints the same.

| exit code | meaning |
| --- | --- |
| 0 | every check holds |
| 1 | a check does not hold |
| 2 | a mistake in the input; one line says which |
| 141 | nothing reads the output any more, as after `\\| head` |
| 130, 143 | stopped by Ctrl-C or SIGTERM, within seconds; nothing is left half written |
"""
COMMAND_LINE = re.compile(r"(?:fleetcast|cp|FLEETCAST_\w+=\S+) ")  # how an example of a help text begins


def render_page() -> str:
    """The whole page as Markdown: a list of the commands, then a section for each."""
    commands = list(walk_commands(typer.main.get_command(cli_app), "fleetcast"))
    rows = [
        f"| [`{name}`](#{name.replace(' ', '-')}) | {escape_cell(_summary(command))} |"
        for name, command in commands
    ]
    index = "\n".join(["| command | what it does |", "| --- | --- |", *rows, ""])
    return "\n".join([CLI_INTRODUCTION, index, *(_section(name, command) for name, command in commands)])


def walk_commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its full name, in the order of `--help`."""
    if isinstance(command, click.Group):
        for key, inner in import_commands(command).items():
            yield from walk_commands(inner, f"{name} {key}")
    else:
        yield name, command


def write_page() -> None:
    """Write the page."""
    CLI_PAGE.write_text(render_page(), encoding="utf-8")


def _summary(command: click.Command) -> str:
    """The first paragraph of a help text, on one line."""
    return " ".join(_paragraphs(command)[0].split())


def _paragraphs(command: click.Command) -> list[str]:
    return [part for part in inspect.cleandoc(command.help or "").split("\n\n") if part.strip()]


def _section(name: str, command: click.Command) -> str:
    """A command: its help text, its examples as code, its arguments and options as a table."""
    parts = [f"## {name}", ""]
    for is_code, texts in groupby(_paragraphs(command), lambda text: bool(COMMAND_LINE.match(text.strip()))):
        lines = [inspect.cleandoc(text) for text in texts]
        parts += ["```", *lines, "```", ""] if is_code else [line for text in lines for line in (text, "")]
    parameters = [one for one in command.params if getattr(one, "help", None) or one.required]
    if parameters:
        parts += ["| argument or option | value | default | meaning |", "| --- | --- | --- | --- |"]
        parts += [_row(one) for one in parameters]
        parts.append("")
    return "\n".join(parts)


def _row(parameter: click.Parameter) -> str:
    is_option = isinstance(parameter, click.Option)
    name = (
        ", ".join(parameter.opts) if is_option else parameter.make_metavar(click.Context(click.Command("")))
    )
    has_default = parameter.default not in (None, False, "", ())
    default = "required" if parameter.required else f"`{parameter.default}`" if has_default else ""
    meaning = escape_cell(" ".join((getattr(parameter, "help", None) or "").split()))
    return f"| `{name}` | {escape_cell(_value(parameter))} | {escape_cell(default)} | {meaning} |"


def _value(parameter: click.Parameter) -> str:
    """What a parameter takes, in words."""
    kind = parameter.type
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "flag"
    if isinstance(kind, click.IntRange | click.FloatRange):
        noun = "integer" if isinstance(kind, click.IntRange) else "number"
        if kind.min is not None and kind.max is not None:
            return f"{noun}, {kind.min:g} to {kind.max:g}"
        return f"{noun}, at least {kind.min:g}" if kind.min is not None else f"{noun}, at most {kind.max:g}"
    if isinstance(kind, click.DateTime):
        formats = (one.replace("%Y-%m-%d", "YYYY-MM-DD").replace("%H:%M", "HH:MM") for one in kind.formats)
        return " or ".join(formats)
    if isinstance(kind, click.Choice):
        return ", ".join(str(choice) for choice in kind.choices)
    nouns = {"integer": "integer", "float": "number", "boolean": "flag", "path": "path"}
    return nouns.get(kind.name, "text")


if __name__ == "__main__":
    write_page()
