"""Options that several commands share, and the functions that parse them."""

import os
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import typer

from fleetcast.assets.lake import settings as lake_settings
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.models.world.calendar import require_in_years
from fleetcast.models.world.config_loading import CONFIG_DIR, config_path
from fleetcast.models.world.policies import planned_policies
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known
from fleetcast.pipelines.terminal import MinuteLines, ProgressBars

ConfigOption = Annotated[
    str,
    typer.Option(
        envvar="FLEETCAST_CONFIG",
        show_envvar=False,
        help="The name of a config in data/config, or the path of a TOML file; ~ is your home.",
    ),
]
# How an llm is named, in the help of an option or argument.
LLM_NAME = (
    "a name in llms.toml, a model on Hugging Face like Qwen/Qwen3-32B, or a folder with its config.json"
)
DayOption = Annotated[
    datetime | None,
    typer.Option(
        "--date", formats=["%Y-%m-%d"], help="The day, UTC; default: the last day of the config's trace."
    ),
]
PolicyOption = Annotated[
    str, typer.Option(help=f"The policy of the plan: {', '.join(planned_policies())}, rolling.")
]
ProviderOption = Annotated[
    str | None,
    typer.Option(help="Whose prices, of data/catalogue/prices.toml; default: the first with all types."),
]
ComparedProviderOption = Annotated[
    str | None,
    typer.Option(help="Whose prices, of data/catalogue/prices.toml; default: those of gpus.toml."),
]
PriceListsOption = Annotated[
    Path | None,
    typer.Option(
        help="A TOML file with your own prices: USD per GPU-hour by type, or a table per provider as in "
        "prices.toml."
    ),
]
GpuTypesOption = Annotated[
    str | None,
    typer.Option(
        "--gpus", help="GPU types, with commas between. Default: all with a price whose kernels were timed."
    ),
]
ServerMatchersOption = Annotated[
    str, typer.Option(help="--from: further label matchers, like 'namespace=\"prod\"'.")
]
TtftTargetOption = Annotated[
    float | None, typer.Option(help="TTFT target in seconds. Default: that of the strictest tier.", min=0.001)
]
TpotTargetOption = Annotated[
    float | None,
    typer.Option(help="TPOT target in seconds. Default: that of the strictest tier.", min=0.0001),
]
RegionOption = Annotated[str | None, typer.Option(help="Only this region: one cluster.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no progress but a line a minute, and the result.")
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns of a log by name, like arrived_at=startTime,input_tokens=usage.prompt_tokens; an empty "
        "name leaves a column out.",
        metavar="NAME=COLUMN,...",
    ),
]


def resolve_config(name: str) -> str:
    """Return the name of a shipped config as it is, and any other as an absolute path."""
    path = config_path(name)
    return name if path == CONFIG_DIR / f"{name}.toml" else str(path.resolve())


def load_cli_settings(config: str) -> RunSettings:
    """Return the settings of --config."""
    return lake_settings.load_settings(resolve_config(config))


def load_settings_and_day(config: str, moment: datetime | None) -> tuple[RunSettings, date]:
    """Return the settings of --config, and the day of --date or the last day of the config's trace."""
    settings = load_cli_settings(config)
    return settings, parse_day(moment) or settings.config.trace.replay_day


def parse_day(moment: datetime | None) -> date | None:
    """Return the day of --date. Raises ConfigError for a day outside the years that fleetcast supports."""
    if moment is None:
        return None
    require_in_years(moment.date(), 1, "--date")
    return moment.date()


def expand_path(path: Path) -> Path:
    """Return the path with ~ expanded: a shell does not expand it in `--changes=~/x.toml`.

    The ~ of a user that the machine does not have stays: there is no such file. ConfigError for a device:
    /dev/zero never ends.
    """
    expanded = Path(os.path.expanduser(path))
    if (expanded.is_char_device() or expanded.is_block_device()) and str(expanded) != os.devnull:
        raise ConfigError(f"{path} is a device, which may never end. Name a file.")
    return expanded


def make_progress(quiet: bool) -> Progress:
    """Return progress bars, or with --quiet a progress that prints a line a minute."""
    return MinuteLines() if quiet else ProgressBars()


def parse_phases(apart: bool, together: bool) -> str:
    """Return where prefill and decode may run: apart, together or any. Raises ValueError for both options."""
    if apart and together:
        raise ValueError("--disaggregated and --colocated: one or the other, or neither for both.")
    return "apart" if apart else "together" if together else "any"


def parse_columns(texts: Sequence[str] | None) -> dict[str, str]:
    """Return the columns of --columns by name. Raises ValueError for a text without =."""
    pairs = [pair.partition("=") for text in texts or () for pair in text.split(",") if pair.strip()]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(
                f"--columns {name}: it must be NAME=COLUMN, like arrived_at=startTime,input_tokens=in."
            )
    return {name.strip(): column.strip() for name, _, column in pairs}


def parse_params(texts: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Return the values of NAME=VALUE texts by name.

    Raises ValueError for a text without =, or for a name that is not in `known`.
    """
    pairs = [text.partition("=") for text in texts]
    for (name, equals, _), text in zip(pairs, texts, strict=True):
        if not equals:
            raise ValueError(f"--param {text}: it must be NAME=VALUE, like --param policy=lt_ua.")
        require_known(name, known, "parameter", "the query")
    return {name: value for name, _, value in pairs}
