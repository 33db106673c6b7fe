"""`fleetcast sql`: query the lake, list what it can read, and describe a table."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from click.core import ParameterSource

from fleetcast.assets.lake.query_limits import QueryLimits
from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    expand_path,
    load_settings_and_day,
    parse_params,
)
from fleetcast.pipelines.terminal import ERR, cli_errors

if TYPE_CHECKING:
    from fleetcast.assets.lake.settings import RunSettings


def sql_command(
    context: typer.Context,
    query: Annotated[
        str | None,
        typer.Argument(
            help="A query, or a file with one; with --list a word, or nothing.", metavar="FILE|QUERY|WORD"
        ),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="The value of $NAME in the query.", metavar="NAME=VALUE")
    ] = None,
    is_list: Annotated[
        bool, typer.Option("--list", help="List questions, tables, marts and queries that have the word.")
    ] = False,
    date_: DayOption = None,
    config: ConfigOption = "office",
    memory_gib: Annotated[
        float,
        typer.Option(
            help="Memory limit of the query, GiB; on disk four times as much. Its process is ended at a "
            "quarter more and 0.25 GiB.",
            min=0.1,
            max=4096,
        ),
    ] = QueryLimits().memory_gib,
    time_limit_s: Annotated[
        float, typer.Option(help="Time limit of the query, seconds.", min=0.01, max=604_800)
    ] = QueryLimits().time_limit_s,
    allow: Annotated[
        list[Path] | None,
        typer.Option(help="A folder whose files the query may read besides the lake.", metavar="FOLDER"),
    ] = None,
) -> None:
    """Query the lake in SQL: every table, mart and macro by name. In a pipe the result is CSV.

    In a query $trace and $day are the config's trace and the day; --param sets any other $name.
    A query changes nothing, and reads nothing but the lake.

        fleetcast sql --list cost

        fleetcast sql "describe unit_cost"

        fleetcast sql "from scoreboard"

        fleetcast sql 'select policy, usd from scoreboard where trace = $trace and day = $day order by usd'

        fleetcast sql sql/queries/worst_hours.sql > worst_hours.csv

        fleetcast sql sql/queries/plan_changes.sql --param policy=lt_ua

        fleetcast sql "from read_csv('prices/2025.csv')" --allow prices
    """
    with cli_errors():
        if is_list:
            from fleetcast.assets.lake.sql_index import search_index
            from fleetcast.pipelines.sql_listing import show_index

            show_index(search_index(query or ""))
        elif query is None:
            raise ValueError("There is no query. Type one, or --list [WORD] to see what there is.")
        else:
            settings, day = load_settings_and_day(config, date_)
            limits = QueryLimits(memory_gib, time_limit_s)
            _answer_query(settings, day, query, param or [], limits, allow or [])
            _warn_of_unused_options(context, query)


def _answer_query(
    settings: "RunSettings", day: date, query: str, texts: list[str], limits: QueryLimits, folders: list[Path]
) -> None:
    """Print the result of a query, or why it has no rows; `texts`: NAME=VALUE."""
    from fleetcast.assets.lake.empty_query_hints import (
        explain_empty_result,
        query_parameters,
        require_parameters,
    )
    from fleetcast.assets.lake.sql_index import described_view
    from fleetcast.pipelines.sql_listing import show_description
    from fleetcast.pipelines.terminal_tables import show_table

    params = {"trace": settings.trace, "day": day, **parse_params(texts, query_parameters(query))}
    require_parameters(query, params)
    folders = [_resolve_folder(path) for path in folders]
    with settings.lake.answer(query, limits, folders, **params) as answer:
        view = described_view(query)
        rows = show_description(answer, view) if view else show_table(answer)
    if not rows:
        reasons = explain_empty_result(settings.lake, query, params)
        ERR.print(" ".join(["No rows.", *reasons]), style="yellow")


def _warn_of_unused_options(context: typer.Context, query: str) -> None:
    """Print a line for --date or --config if it was typed and the query has no parameter for it."""
    from fleetcast.assets.lake.empty_query_hints import query_parameters

    names = query_parameters(query)
    for option, argument, name, of in (
        ("--date", "date_", "day", "day"),
        ("--config", "config", "trace", "config's trace"),
    ):
        if name not in names and context.get_parameter_source(argument) == ParameterSource.COMMANDLINE:
            ERR.print(
                f"{option}: the query has no ${name}, so it does not depend on the {of}. "
                f"This filters by it: where {name} = ${name}, in single quotes.",
                style="yellow",
            )


def _resolve_folder(path: Path) -> Path:
    """Return the absolute path of a folder of --allow; ValueError if there is no such folder."""
    if not (folder := expand_path(path).resolve()).is_dir():
        raise ValueError(f"--allow {path}: there is no such folder. Name a folder that exists.")
    return folder
