"""Options that commands share, and what becomes of them."""

from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import typer

from assets.settings import Progress
from pipelines.terminal import Bars

Config = Annotated[str, typer.Option(help="A file of data/config by name, or a TOML file by path.")]
Day = Annotated[
    datetime | None,
    typer.Option(
        "--date", formats=["%Y-%m-%d"], help="The day, UTC; without it the last day of the config's trace."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No bars, only the result.")]


def config_of(name: str) -> str:
    """A path that stays true wherever the process goes."""
    return str(Path(name).resolve()) if name.endswith(".toml") else name


def day_of(moment: datetime | None) -> date | None:
    """The day of --date."""
    return moment.date() if moment else None


def progress_of(quiet: bool) -> Progress:
    """Bars, or nothing."""
    return Progress() if quiet else Bars()
