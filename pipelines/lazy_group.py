"""Commands whose modules are imported when a command is used: `fleetcast --help` imports none of them."""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import click
import typer
from typer.core import TyperCommand, TyperGroup

_PACKAGE, _FOLDER = __name__.rpartition(".")[0], Path(__file__).parent


class LazyGroup(TyperGroup):
    """A group of commands, each a function NAME_command or an app NAME_app of a module of this package."""

    modules: ClassVar[Mapping[str, Mapping[str, str]]] = {}  # part of --help -> command -> module

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._module_of = {name: module for part in self.modules.values() for name, module in part.items()}
        self._is_listing = False
        for panel, commands in self.modules.items():
            for name, module in commands.items():
                summary = read_summary(module, name)
                self.commands[name] = TyperCommand(name, help=summary, rich_help_panel=panel)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command with its options; while the help lists commands, one with its summary only."""
        if self._is_listing or cmd_name not in self._module_of:
            return super().get_command(ctx, cmd_name)
        return import_command(self._module_of[cmd_name], cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a command and its arguments; one that begins with an SQL comment is no option."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, ["\n" + text if text.startswith("-- ") else text for text in rest]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help without an import of a command."""
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False


def import_commands(group: click.Group) -> dict[str, click.Command]:
    """Return every command of a group with its options, by name and in the order of the help."""
    context = click.Context(group)
    names = group.list_commands(context)
    return {name: command for name in names if (command := group.get_command(context, name))}


def import_command(module: str, name: str) -> click.Command:
    """Import a module of this package and return its command or group of that name."""
    found = import_module(f"{_PACKAGE}.{module}")
    app = getattr(found, f"{name}_app", None)
    if app is None:
        app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
        app.command(name)(getattr(found, f"{name}_command"))
    command = typer.main.get_command(app)
    command.name = name
    return command


def read_summary(module: str, name: str) -> str:
    """Read the first paragraph of a command's docstring from its source, without an import."""
    text = (_FOLDER / f"{module}.py").read_text(encoding="utf-8")
    head = rf'^def {name}_(?:command|group)\(.*?-> None:\s+"""(.*?)(?:\n\s*\n|""")'
    found = re.search(head, text, re.DOTALL | re.MULTILINE)
    assert found, f"{module}.py has no {name}_command with a docstring"
    return " ".join(found[1].split())
