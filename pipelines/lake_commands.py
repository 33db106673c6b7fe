"""`fleetcast sql`, `explore`, `explain`, `timeline`: questions to the lake, and why a request was late."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from fleetcast.assets.lake.limits import Limits
from fleetcast.pipelines.options import Config, Day, file_of, params_of, run_of
from fleetcast.pipelines.tables import OUT, figure, show_board, show_table
from fleetcast.pipelines.terminal import ERR, near, refuse, spoken


def sql(
    query: Annotated[str, typer.Argument(help="A query, or a file with one.", metavar="FILE|QUERY")],
    param: Annotated[
        list[str] | None, typer.Option(help="What a $NAME of the query stands for.", metavar="NAME=VALUE")
    ] = None,
    date_: Day = None,
    config: Config = "office",
    memory_gib: Annotated[
        float, typer.Option(help="Memory that it may take; on disk four times as much.", min=0.1, max=4096)
    ] = Limits().memory_gib,
    time_limit_s: Annotated[
        float, typer.Option(help="Seconds that it may work.", min=0.01, max=604_800)
    ] = Limits().time_limit_s,
) -> None:
    """Ask the lake: every table, mart and macro by name. In a pipe the answer is CSV.

    $trace and $day in a query stand for the config's trace and the day, any other $name for its --param.

        fleetcast sql "from scoreboard"

        fleetcast sql "select policy, sum(usd) as usd from fleet_by_hour group by policy"

        fleetcast sql sql/queries/worst_hours.sql > worst_hours.csv

        fleetcast sql sql/queries/plan_changes.sql --param policy=lt_ua
    """
    with spoken():
        from fleetcast.assets.lake.recipes import parameters, why_empty

        settings, day = run_of(config, date_)
        given = {"trace": settings.trace, "day": day, **params_of(param or [], parameters(query))}
        with settings.lake.answer(query, Limits(memory_gib, time_limit_s), **given) as answer:
            rows = show_table(answer)
        if not rows:
            show_empty(why_empty(settings.lake, query, given))


def show_empty(reasons: Iterable[str]) -> None:
    """Why a query has no rows."""
    ERR.print(" ".join(["No rows.", *reasons]), style="yellow", markup=False, soft_wrap=True)


def explore(
    folder: Annotated[Path, typer.Argument(help="Where the project goes: empty, or one already.")],
) -> None:
    """Write a Rill project over the lake: a metrics view and a dashboard for each mart, from the SQL headers.

    fleetcast explore ~/fleetcast-rill && rill start ~/fleetcast-rill
    """
    with spoken():
        from fleetcast.assets.lake.rill import write_project
        from fleetcast.assets.lake.warehouse import Lake

        lake, target = Lake(), file_of(folder)
        lake.publish()
        shown = write_project(lake, target)
        OUT.print(f"{near(target)}: {len(shown)} dashboards   (rill start {near(target)})")


def explain(
    request: Annotated[int, typer.Argument(help="A request_id of outcomes.", metavar="REQUEST")],
    date_: Day = None,
    config: Config = "office",
) -> None:
    """Say why a request got its first token when it did: held, queued behind whom, prefilled, sent elsewhere;
    and where it went, if it was handed on.

    fleetcast sql sql/queries/why_late.sql   # the latest requests of the day

    fleetcast explain REQUEST_ID
    """
    with spoken():
        settings, day = run_of(config, date_)
        told = settings.lake.sql("queries/why_late.sql", trace=settings.trace, day=day, request=request)
        if not told.num_rows:
            refuse(
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
        explained.append((row["policy"], *(figure(seconds, ",.2f") for seconds in times), ahead, where))
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
            figure(row["hand_over_s"], ",.3f"),
            *(figure(row[name], ",.2f") for name in times),
            f"{row['llm']} on {row['gpu']}, {row['region']} #{row['instance']}",
        )
        for row in legs.to_pylist()
    ]
    if rows:
        heads = ("policy", "leg", "hand-\nover s", "came s", "in batch s", "1st token s", "ended s", "where")
        show_board("its legs, seconds from its arrival", heads, rows)


def timeline(
    llm: Annotated[str, typer.Option(help="Whose requests.")],
    region: Annotated[str, typer.Option(help="Where they were served.")],
    hour: Annotated[int, typer.Option(help="Hour of the day, UTC.", min=0, max=23)],
    policy: Annotated[str, typer.Option(help="Under which policy.")] = "lt_i",
    date_: Day = None,
    config: Config = "office",
) -> None:
    """Write an hour of one endpoint as a Chrome trace: hand-over, queue, prefill and decode of every request.

    fleetcast timeline --llm bloom-176b --region east --hour 19
    """
    with spoken():
        from fleetcast.assets.replays.timeline import write_timeline

        settings, day = run_of(config, date_)
        path = write_timeline(settings, day, policy, llm, region, hour)
        OUT.print(f"{near(path)}   (open it in ui.perfetto.dev or chrome://tracing)")
