"""`fleetcast levels`: how many levels of priority, how much headroom, and whether moving requests pays."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Annotated, Any, TypeVar

import typer

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.world.mechanisms import LEVELS_BY
from fleetcast.models.world.stacks import REPLAY_STACKS
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    QuietOption,
    load_settings_and_day,
    make_progress,
)
from fleetcast.pipelines.terminal import cli_errors, short_path
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board

N = TypeVar("N", int, float)
STACK_NAMES = ", ".join(REPLAY_STACKS)


def levels_command(
    llm: Annotated[
        str | None, typer.Option(help="Whose requests; else the endpoint that has most to do.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="Where they come from, and are served.")] = None,
    levels_: Annotated[
        str, typer.Option("--levels", help="How many levels of priority, 1 to 10.")
    ] = "1,2,3,4,6,10",
    by: Annotated[
        str, typer.Option(help=f"How needs and levels are dealt: {', '.join(LEVELS_BY[:-1])}.")
    ] = "enterprise",
    stack: Annotated[
        str | None, typer.Option(help=f"Of {STACK_NAMES}; all without it, edf always.", show_default=False)
    ] = None,
    load: Annotated[str, typer.Option(help="Requests for each one of the day.")] = "1",
    headroom: Annotated[
        str | None, typer.Option(help="Shares of an instance's memory for level 0; else the stack's own.")
    ] = None,
    needs: Annotated[
        str | None,
        typer.Option(help="Seconds: the strictest and the loosest need that are drawn; else the tiers'."),
    ] = None,
    hours: Annotated[int, typer.Option(help="The busiest of the day on end.")] = 4,
    date_: DayOption = None,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Try levels of priority at an endpoint, by stack: needs met by level, the fewest instances for all.

        fleetcast levels

        fleetcast levels --llm llama2-70b --region east --levels 1,2,4 --stack jsq,llumnix

        fleetcast levels --by uniform --load .7,.9,1.1 --headroom 0,.1,.2

    Each request wants its first token within a time, on ten steps; levels see it as a class. The trace's own
    tiers are tried beside it. Instances are fixed. A minute or two.
    """
    with cli_errors():
        from fleetcast.assets.pages.on_demand_asset import AssetRows
        from fleetcast.assets.studies.level_search import (
            LevelsQuery,
            describe_endpoint_levels,
            level_trials_scope,
            read_level_values,
            try_levels,
        )
        from fleetcast.assets.studies_on_demand import level_trials
        from fleetcast.pipelines.runs import publish_on_demand

        settings, day = load_settings_and_day(config, date_)
        stacks = LevelsQuery().stacks if stack is None else split_names(stack)
        shares = () if headroom is None else parse_numbers("--headroom", headroom, float)
        asked = LevelsQuery(
            llm, region, parse_numbers("--levels", levels_, int), by, stacks, parse_numbers("--load", load,
            float), shares,
            None if needs is None else parse_pair("--needs", needs), hours,
        )  # fmt: skip
        table = try_levels(settings, day, asked, make_progress(quiet))
        of = level_trials_scope(day, table)
        publish_on_demand(level_trials, settings, AssetRows(table, of))
        place = {name: of[name] for name in ("llm", "region")}
        for rows in read_level_values(settings, day, **place):
            show_levels(rows, read_in_time_shares(settings, day, rows[0]), settings.trace, day)
        for sentence in describe_endpoint_levels(settings, day, **place):
            OUT.print(sentence, markup=False, soft_wrap=True)
        OUT.print(
            f"figures  {short_path(settings.figures(day))}/level_value.png, level_ttft, headroom, ablation"
        )
        OUT.print('tables   fleetcast sql "from level_value", "from level_isolation", "from level_trials"')


def split_names(said: str) -> tuple[str, ...]:
    """The names of a list with commas."""
    return tuple(part.strip() for part in said.split(","))


def parse_numbers(option: str, said: str, kind: Callable[[str], N]) -> tuple[N, ...]:
    """The numbers of a list with commas; ConfigError names what is none."""
    found = []
    for part in split_names(said):
        try:
            found.append(kind(part))
        except ValueError as error:
            needed = "whole numbers" if kind is int else "numbers"
            raise ConfigError(f"{option}: got {part!r}, needed {needed} with commas between.") from error
    return tuple(found)


def parse_pair(option: str, said: str) -> tuple[float, float]:
    """Two numbers; ConfigError for more or fewer."""
    found = parse_numbers(option, said, float)
    if len(found) != 2:
        raise ConfigError(f"{option}: got {len(found)} numbers, needed two: STRICTEST,LOOSEST.")
    return found[0], found[1]


def read_in_time_shares(settings: RunSettings, day: date, of: Mapping[str, Any]) -> Mapping[Any, float]:
    """The share in time on today's instances, by stack, levels, headroom and level."""
    names = ("llm", "region", "needs_by", "load_factor")
    rows = settings.lake.sql(
        "reads/levels_in_time.sql", trace=settings.trace, day=day, **{name: of[name] for name in names}
    )
    keys = ("stack", "levels", "headroom_share", "level")
    return {tuple(row[name] for name in keys): row["share"] for row in rows.to_pylist()}


def show_levels(
    rows: Sequence[Mapping[str, Any]], in_time: Mapping[Any, float], trace: str, day: date
) -> None:
    """A line for each stack, number of levels and headroom."""
    most = max(row["levels"] for row in rows)
    of = rows[0]
    today = f"in time %,\n{of['today_instances']} of them"
    heads = ["", "fewest\ninstances", "\nwithin", "saved on\none level", today]
    heads += [f"level\n{code}" for code in range(most)]
    lines = []
    for row in sorted(
        rows, key=lambda r: (list(REPLAY_STACKS).index(r["stack"]), r["levels"], r["headroom_share"])
    ):
        key = (row["stack"], row["levels"], row["headroom_share"])
        headroom = (
            f", {row['headroom_share']:.0%} headroom" if row["headroom_share"] and row["levels"] > 1 else ""
        )
        shares = [
            format_percent(in_time.get((*key, code)), ".1f") for code in ("all", *map(str, range(most)))
        ]
        counts = [
            format_figure(row[name], ",.0f") for name in ("instances", "resolution", "saved_on_one_level")
        ]
        lines.append((f"{row['stack']}, {row['levels']}{headroom}", *counts, *shares))
    load = "" if of["load_factor"] == 1 else f", {of['load_factor']:g} times the load"
    show_board(
        f"{of['llm']} in {of['region']}, {trace}, {day}: needs by {of['needs_by']}{load}", heads, lines
    )
