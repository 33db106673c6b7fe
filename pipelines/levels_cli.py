"""`fleetcast levels`: how many priority levels to use, how much headroom, and whether migration pays."""

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
COUNTED_LINE = (
    "fewest instances: each target as often as required, of the requests that an idle instance serves in "
    "time; attained: of all"
)


def levels_command(
    llm: Annotated[
        str | None, typer.Option(help="The llm of the endpoint; default: the endpoint with the most load.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="The region of the endpoint.")] = None,
    levels_: Annotated[
        str, typer.Option("--levels", help="Numbers of priority levels to try, each 1 to 10.")
    ] = "1,2,3,4,6,10",
    by: Annotated[
        str, typer.Option(help=f"How TTFT targets and levels are assigned: {', '.join(LEVELS_BY[:-1])}.")
    ] = "enterprise",
    stack: Annotated[
        str | None,
        typer.Option(
            help=f"Stacks to try, of {STACK_NAMES}; default: all. edf always runs.", show_default=False
        ),
    ] = None,
    load: Annotated[str, typer.Option(help="Factors on the number of requests.")] = "1",
    headroom: Annotated[
        str | None,
        typer.Option(help="Shares of an instance's memory to reserve for level 0; default: the stack's."),
    ] = None,
    needs: Annotated[
        str | None,
        typer.Option(
            help="STRICTEST,LOOSEST: range of the sampled TTFT targets, seconds; default: the tiers'."
        ),
    ] = None,
    hours: Annotated[int, typer.Option(help="Length of the busiest stretch of the day to replay.")] = 4,
    date_: DayOption = None,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Try priority levels at an endpoint, by stack: targets met by level, the fewest instances that meet all.

        fleetcast levels

        fleetcast levels --llm llama3.1-70b --region east --levels 1,2,4 --stack jsq,llumnix

        fleetcast levels --by uniform --load .7,.9,1.1 --headroom 0,.1,.2

    Each request gets a TTFT target, one of ten values. The levels group these values into classes. It
    also tries the tiers of the trace. The number of instances is fixed in each trial. Requests that even an
    idle instance serves too late do not count against a number of instances. Takes one to two minutes.
    """
    with cli_errors():
        from fleetcast.assets.studies.level_search import (
            LevelsQuery,
            describe_endpoint_levels,
            level_trials_scope,
            try_levels,
        )
        from fleetcast.assets.studies_on_demand import level_trials
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings, day = load_settings_and_day(config, date_)
        stacks = LevelsQuery().stacks if stack is None else split_names(stack)
        query = LevelsQuery(
            llm,
            region,
            parse_numbers("--levels", levels_, int),
            by,
            stacks,
            parse_numbers("--load", load, float),
            () if headroom is None else parse_numbers("--headroom", headroom, float),
            None if needs is None else parse_pair("--needs", needs),
            hours,
        )
        table = try_levels(settings, day, query, make_progress(quiet))
        scope = level_trials_scope(day, table)
        publish_on_demand(level_trials, settings, AssetRows(table, scope))
        endpoint = {name: scope[name] for name in ("llm", "region")}
        show_endpoint_levels(settings, day, **endpoint)
        for sentence in describe_endpoint_levels(settings, day, **endpoint):
            OUT.print(sentence)
        OUT.print(
            f"figures  {short_path(settings.figures(day))}/level_value.png, level_ttft, headroom, ablation"
        )
        OUT.print('tables   fleetcast sql "from level_value", "from level_isolation", "from level_trials"')


def split_names(text: str) -> tuple[str, ...]:
    """Return the names of a list with commas."""
    return tuple(part.strip() for part in text.split(","))


def parse_numbers(option: str, text: str, kind: Callable[[str], N]) -> tuple[N, ...]:
    """Return the numbers of a list with commas. Raises ConfigError for a part that is not a number."""
    found = []
    for part in split_names(text):
        try:
            found.append(kind(part))
        except ValueError as error:
            needed = "whole numbers" if kind is int else "numbers"
            raise ConfigError(f"{option}: got {part!r}, needed {needed} with commas between.") from error
    return tuple(found)


def parse_pair(option: str, text: str) -> tuple[float, float]:
    """Return two numbers. Raises ConfigError for more or fewer."""
    found = parse_numbers(option, text, float)
    if len(found) != 2:
        raise ConfigError(f"{option}: got {len(found)} numbers, needed two: STRICTEST,LOOSEST.")
    return found[0], found[1]


def read_in_time_shares(settings: RunSettings, day: date, row: Mapping[str, Any]) -> Mapping[Any, float]:
    """Return the SLO attainment on today's instances, a share, by (stack, levels, headroom_share, level).

    `row`: a row of the mart level_value, which names the endpoint, the targets and the load.
    """
    names = ("llm", "region", "needs_by", "load_factor")
    rows = settings.lake.sql(
        "reads/levels_in_time.sql", trace=settings.trace, day=day, **{name: row[name] for name in names}
    )
    keys = ("stack", "levels", "headroom_share", "level")
    return {tuple(row[name] for name in keys): row["share"] for row in rows.to_pylist()}


def show_endpoint_levels(settings: RunSettings, day: date, llm: str, region: str) -> None:
    """Print a table for each source of needs and load, then what their columns count."""
    from fleetcast.assets.studies.level_search import read_level_values

    for rows in read_level_values(settings, day, llm, region):
        show_levels(rows, read_in_time_shares(settings, day, rows[0]), settings.trace, day)
    OUT.print(COUNTED_LINE)


def show_levels(
    rows: Sequence[Mapping[str, Any]], in_time: Mapping[Any, float], trace: str, day: date
) -> None:
    """Print a line for each stack, number of levels and headroom.

    `rows`: rows of the mart level_value of one endpoint; `in_time`: from read_in_time_shares.
    """
    most = max(row["levels"] for row in rows)
    endpoint = rows[0]
    today = f"attained %,\n{endpoint['today_instances']} instances"
    heads = ["", "fewest\ninstances", "resolu-\ntion", "saved on\none level", today]
    heads += [f"level\n{code}" for code in range(most)]
    lines = []
    stacks = list(REPLAY_STACKS)
    for row in sorted(rows, key=lambda r: (stacks.index(r["stack"]), r["levels"], r["headroom_share"])):
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
    load = "" if endpoint["load_factor"] == 1 else f", {endpoint['load_factor']:g} times the load"
    title = (
        f"{endpoint['llm']} in {endpoint['region']}, {trace}, {day}: targets by {endpoint['needs_by']}{load}"
    )
    show_board(title, heads, lines)
