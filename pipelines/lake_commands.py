"""`fleetcast sql`, `explore`, `explain`, `timeline`: questions to the lake, and why a request was late."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from fleetcast.assets.lake.query_limits import QueryLimits
from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    expand_path,
    load_settings_and_day,
    parse_params,
)
from fleetcast.pipelines.terminal import ERR, cli_errors, exit_with_message, short_path
from fleetcast.pipelines.terminal_tables import OUT, format_figure, show_board, show_table


def sql_command(
    query: Annotated[str, typer.Argument(help="A query, or a file with one.", metavar="FILE|QUERY")],
    param: Annotated[
        list[str] | None, typer.Option(help="What a $NAME of the query stands for.", metavar="NAME=VALUE")
    ] = None,
    date_: DayOption = None,
    config: ConfigOption = "office",
    memory_gib: Annotated[
        float, typer.Option(help="Memory that it may take; on disk four times as much.", min=0.1, max=4096)
    ] = QueryLimits().memory_gib,
    time_limit_s: Annotated[
        float, typer.Option(help="Seconds that it may work.", min=0.01, max=604_800)
    ] = QueryLimits().time_limit_s,
) -> None:
    """Ask the lake: every table, mart and macro by name. In a pipe the answer is CSV.

    $trace and $day in a query stand for the config's trace and the day, any other $name for its --param.

        fleetcast sql "from scoreboard"

        fleetcast sql "select policy, sum(usd) as usd from fleet_by_hour group by policy"

        fleetcast sql sql/queries/worst_hours.sql > worst_hours.csv

        fleetcast sql sql/queries/plan_changes.sql --param policy=lt_ua
    """
    with cli_errors():
        from fleetcast.assets.lake.empty_query_hints import explain_empty_result, query_parameters

        settings, day = load_settings_and_day(config, date_)
        given = {"trace": settings.trace, "day": day, **parse_params(param or [], query_parameters(query))}
        with settings.lake.answer(query, QueryLimits(memory_gib, time_limit_s), **given) as answer:
            rows = show_table(answer)
        if not rows:
            show_why_empty(explain_empty_result(settings.lake, query, given))


def show_why_empty(reasons: Iterable[str]) -> None:
    """Why a query has no rows."""
    ERR.print(" ".join(["No rows.", *reasons]), style="yellow", markup=False, soft_wrap=True)


def explore_command(
    folder: Annotated[Path, typer.Argument(help="Where the project goes: empty, or one already.")],
) -> None:
    """Write a Rill project over the lake: a metrics view and a dashboard for each mart, from the SQL headers.

    fleetcast explore ~/fleetcast-rill && rill start ~/fleetcast-rill
    """
    with cli_errors():
        from fleetcast.assets.lake.rill_project import write_rill_project
        from fleetcast.assets.lake.warehouse import Lake

        lake, target = Lake(), expand_path(folder)
        lake.publish()
        shown = write_rill_project(lake, target)
        OUT.print(f"{short_path(target)}: {len(shown)} dashboards   (rill start {short_path(target)})")


def explain_command(
    request: Annotated[int, typer.Argument(help="A request_id of outcomes.", metavar="REQUEST")],
    date_: DayOption = None,
    config: ConfigOption = "office",
) -> None:
    """Say why a request got its first token when it did: held, queued behind whom, prefilled, sent elsewhere;
    and where it went, if it was handed on.

    fleetcast sql sql/queries/why_late.sql   # the latest requests of the day

    fleetcast explain REQUEST_ID
    """
    with cli_errors():
        settings, day = load_settings_and_day(config, date_)
        told = settings.lake.sql("queries/why_late.sql", trace=settings.trace, day=day, request=request)
        if not told.num_rows:
            exit_with_message(
                f"No replay of {settings.trace} on {day} has a request {request}. "
                "Look some up: fleetcast sql sql/queries/why_late.sql"
            )
        legs = settings.lake.sql("queries/request_legs.sql", trace=settings.trace, day=day, request=request)
        show_explanation(told, legs)


def show_explanation(told: pa.Table, legs: pa.Table) -> None:
    """One request under each policy: what the time to its first token was made of, and where it went."""
    rows = told.to_pylist()
    OUT.print(
        "request {request_id}: {tier} for {llm} from {region}, {arrived_at:%Y-%m-%d %H:%M:%S} UTC, "
        "{input_tokens:,} tokens in, {output_tokens:,} out".format(**rows[0])
    )
    waits = {"TTFT s": "ttft_s", "drafts s": "earlier_s", "held s": "held_s", "queued s": "waited_s",
             "prefill s": "prefill_s", "net s": "network_s"}  # fmt: skip
    if not any(row["earlier_s"] for row in rows):
        del waits["drafts s"]
    heads = ("policy", *waits, "ahead (tokens)", "prefilled by")
    explained = []
    for row in rows:
        times = (row[name] for name in waits.values())
        ahead = f"{row['ahead']} ({row['ahead_input_tokens']:,})"
        where = f"{row['served_region']} #{row['instance']}" if row["served_region"] else row["status"]
        explained.append(
            (row["policy"], *(format_figure(seconds, ",.2f") for seconds in times), ahead, where)
        )
    show_board("", heads, explained)
    show_legs(legs)
    for row in rows:
        if row["preemptions"]:
            OUT.print(f"{row['policy']}: its memory was taken {row['preemptions']} times and it began anew.")
        if row["booting"] and row["booting"] > 0.01:
            OUT.print(
                f"{row['policy']}: {row['booting']:.2f} instances of its llm were booting in that hour."
            )


def show_legs(legs: pa.Table) -> None:
    """Where a request went, leg by leg, under each policy under which several instances had it."""
    times = ("came_s", "began_s", "first_token_s", "ended_s")
    rows = [
        (
            row["policy"],
            f"{row['leg']} {row['role']}",
            format_figure(row["hand_over_s"], ",.3f"),
            *(format_figure(row[name], ",.2f") for name in times),
            f"{row['llm']} on {row['gpu']}, {row['region']} #{row['instance']}",
        )
        for row in legs.to_pylist()
    ]
    if rows:
        heads = ("policy", "leg", "hand-\nover s", "came s", "in batch s", "1st token s", "ended s", "where")
        show_board("its legs, seconds from its arrival", heads, rows)


def timeline_command(
    llm: Annotated[str, typer.Option(help="Whose requests.")],
    region: Annotated[str, typer.Option(help="Where they were served.")],
    hour: Annotated[int, typer.Option(help="Hour of the day, UTC.", min=0, max=23)],
    policy: Annotated[str, typer.Option(help="Under which policy.")] = "lt_i",
    date_: DayOption = None,
    config: ConfigOption = "office",
) -> None:
    """Write an hour of one endpoint as a Chrome trace: hand-over, queue, prefill and decode of every request.

    fleetcast timeline --llm bloom-176b --region east --hour 19
    """
    with cli_errors():
        from fleetcast.assets.replays.timeline import write_timeline

        settings, day = load_settings_and_day(config, date_)
        path = write_timeline(settings, day, policy, llm, region, hour)
        OUT.print(f"{short_path(path)}   (open it in ui.perfetto.dev or chrome://tracing)")
