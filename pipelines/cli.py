"""`fleetcast`: the night's work, one command each. Heavy imports wait until a command needs them."""

import os
import socket
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from assets.lake.limits import Limits
from models.replay.policies import POLICIES
from pipelines import plan_cli, serve_cli, stopping, trace_commands
from pipelines.advise_cli import advise
from pipelines.board_cli import board
from pipelines.calibrate import calibrate
from pipelines.error_cli import error, show_errors
from pipelines.gpus_cli import gpus
from pipelines.levels_cli import levels
from pipelines.options import Config, Day, Quiet, config_of, day_of, file_of, params_of, progress_of
from pipelines.study_cli import study
from pipelines.tables import OUT, show_table
from pipelines.terminal import (
    near,
    refuse,
    say_interrupted,
    show_checks,
    show_empty,
    show_explanation,
    show_findings,
    show_landed,
    show_leaderboard,
    show_other_targets,
    show_refused,
    show_scoreboard,
    show_short,
    spoken,
)
from pipelines.try_cli import try_

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
HOST = "127.0.0.1"
EMPTY = "data/landing has no trace file. Copy one there; data/landing/README.md names the formats."


@app.callback()
def fleetcast() -> None:
    """Forecast the demand on a fleet of LLM servers, plan it, replay it: what does each policy cost and miss?

    **Start here**

        fleetcast nightly       # two weeks of history, one replayed day, a scoreboard

        fleetcast ui            # lineage, plots and checks in the browser

    **Then**

        cp my-trace.csv.gz data/landing/ && fleetcast ingest

        fleetcast nightly --config azure

        fleetcast characterise office && fleetcast generate --like office --scale 5

        fleetcast sql "from scoreboard"
    """


@app.command()
def nightly(
    date_: Day = None,
    days: Annotated[
        int, typer.Option(help="How many days, up to --date, one after the other.", min=1, max=3660)
    ] = 1,
    config: Config = "office",
    quiet: Quiet = False,
) -> None:
    """Run a day from its requests to the scoreboard: history first, then forecast, plan, replay, score.

        fleetcast nightly

        fleetcast nightly --date 2025-07-12

        fleetcast nightly --date 2025-07-21 --days 7 && fleetcast sql sql/queries/policies_over_days.sql

        fleetcast nightly --config azure --quiet

    Exit code 0 only when every check holds; 1 when one does not; 2 for a mistake, said in one line.
    """
    is_broken = False
    with spoken():
        from assets.pages.telling import SettingsResource
        from pipelines.night import run_nights

        resource = SettingsResource(config=config_of(config))
        for night in run_nights(resource, day_of(date_), days, progress_of(quiet)):
            if night.board is not None:
                show_scoreboard(night.board, night.trace, night.day)
                show_other_targets(night.other_targets)
                show_errors(resource.load(), night.day, night.board)
                OUT.print(f"figures  {near(night.figures)}/*.png")
                OUT.print(f'tables   {near(night.warehouse)}   (fleetcast sql "from scoreboard")')
                OUT.print("pages    fleetcast ui   (lineage, plots, checks)")
                OUT.print("next     fleetcast plan ahead   (the fleet of the day to come)")
            show_short(night.short)
            show_refused(night.refused)
            show_checks(night.checks, night.broken, night.alarms)
            is_broken = is_broken or bool(night.broken)
    raise typer.Exit(1 if is_broken else 0)


@app.command()
def ingest(
    from_: Annotated[
        str | None,
        typer.Option("--from", help="A Prometheus server: its metrics come into data/landing first."),
    ] = None,
    name: Annotated[str, typer.Option(help="Of the folder and the trace, with --from.")] = "prometheus",
    days: Annotated[int, typer.Option(help="How many, up to --until.", min=1, max=3660)] = 14,
    until: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"], help="UTC; without it now."),
    ] = None,
    step: Annotated[int, typer.Option(help="Seconds between two readings.", min=1, max=3600)] = 60,
    where: Annotated[str, typer.Option(help="Further label matchers, like 'namespace=\"prod\"'.")] = "",
    quiet: Quiet = False,
) -> None:
    """Bring the trace files in data/landing into the lake; rows that break a rule go to quarantine.

    A file is recognised by its content. What it lacks (region, llm, tier) comes from a mapping file beside
    it: data/landing/README.md says how.

        cp AzureLLMInferenceTrace_conv.csv.gz data/landing/ && fleetcast ingest

    Without logs: from what vLLM, SGLang or Dynamo export to Prometheus. What came is kept; a second time asks
    for the rest. A token is taken from the environment variable PROMETHEUS_TOKEN.

        fleetcast ingest --from http://prometheus:9090 --name mine --where 'namespace="prod"'
    """
    with spoken():
        from assets.pages.telling import SettingsResource
        from assets.traces.ingest import LANDING, landed_files
        from assets.traces.prometheus import fetch
        from pipelines.night import land

        if from_ is not None:
            line = fetch(from_, name, days, until, step, where, LANDING, progress_of(quiet))
            OUT.print(line, markup=False, soft_wrap=True)
        if not landed_files():
            refuse(EMPTY)
        landed = land(SettingsResource.deployed(), progress_of(quiet))
        show_landed(landed.files)
        show_findings(landed.findings)
        show_refused(landed.refused)
        show_checks(landed.checks, landed.broken)
    raise typer.Exit(1 if landed.broken else 0)


@app.command()
def forget(file: Annotated[str, typer.Argument(help="A landed file, by its name.")]) -> None:
    """Take a landed file out of the lake again, with all its requests.

    fleetcast forget AzureLLMInferenceTrace_conv.csv.gz
    """
    with spoken():
        from assets.lake.settings import load_settings
        from assets.traces.ingest import LANDING
        from assets.traces.landing import forget as take_out

        traces = take_out(load_settings("office"), file)
        OUT.print(f"{file} is no longer in the trace {', '.join(traces)}.", markup=False)
        if (LANDING / file).exists():
            OUT.print("It still lies in data/landing: take it away, or the next ingest lands it again.")


@app.command()
def replay(
    policy: Annotated[str, typer.Option(help=f"{', '.join(POLICIES)}.")],
    date_: Day = None,
    config: Config = "office",
    quiet: Quiet = False,
) -> None:
    """Replay one policy on a day that `nightly` has planned, and print its row of the scoreboard.

    fleetcast replay --policy reactive
    """
    with spoken():
        from assets.pages.telling import SettingsResource
        from assets.replays.scorecards import other_targets
        from pipelines.night import replay_policy

        resource = SettingsResource(config=config_of(config))
        board, trace, day = replay_policy(resource, day_of(date_), policy, progress_of(quiet))
        show_scoreboard(board, trace, day)
        show_other_targets(other_targets(resource.load(), day, policy))
        show_errors(resource.load(), day, board)


@app.command()
def backtest(
    days: Annotated[int, typer.Option(help="How many days, up to --date.", min=1, max=3660)] = 3,
    tier: Annotated[
        str, typer.Option(help="A tier, or interactive: all that nobody holds back as one series.")
    ] = "interactive",
    date_: Day = None,
    config: Config = "office",
    quiet: Quiet = False,
) -> None:
    """Forecast past days by every method and print the leaderboard; a minute or two a day.

    fleetcast backtest --days 7

    fleetcast backtest --tier niw

    fleetcast sql sql/queries/forecast_leaderboard.sql
    """
    with spoken():
        from assets.pages.telling import SettingsResource
        from pipelines.night import backtest_days

        resource = SettingsResource(config=config_of(config))
        board, figures = backtest_days(resource, day_of(date_), days, tier, progress_of(quiet))
        show_leaderboard(board)
        OUT.print(f"figure   {near(figures)}/forecast_leaderboard.png")
        OUT.print('tables   fleetcast sql "from forecast_leaderboard", "from forecast_losses"')


@app.command()
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
        from assets.lake.recipes import parameters, why_empty
        from assets.lake.settings import load_settings

        settings = load_settings(config_of(config))
        day = day_of(date_) or settings.config.trace.replay_day
        given = {"trace": settings.trace, "day": day, **params_of(param or [], parameters(query))}
        with settings.lake.answer(query, Limits(memory_gib, time_limit_s), **given) as answer:
            rows = show_table(answer)
        if not rows:
            show_empty(why_empty(settings.lake, query, given))


@app.command()
def explore(
    folder: Annotated[Path, typer.Argument(help="Where the project goes: empty, or one already.")],
) -> None:
    """Write a Rill project over the lake: a metrics view and a dashboard for each mart, from the SQL headers.

    fleetcast explore ~/fleetcast-rill && rill start ~/fleetcast-rill
    """
    with spoken():
        from assets.lake.rill import write_project
        from assets.lake.warehouse import Lake

        lake, target = Lake(), file_of(folder)
        lake.publish()
        shown = write_project(lake, target)
        OUT.print(f"{near(target)}: {len(shown)} dashboards   (rill start {near(target)})")


@app.command()
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
        from assets.lake.settings import load_settings

        settings = load_settings(config_of(config))
        day = day_of(date_) or settings.config.trace.replay_day
        told = settings.lake.sql("queries/why_late.sql", trace=settings.trace, day=day, request=request)
        if not told.num_rows:
            refuse(
                f"No replay of {settings.trace} on {day} has a request {request}. "
                "Look some up: fleetcast sql sql/queries/why_late.sql"
            )
        legs = settings.lake.sql("queries/request_legs.sql", trace=settings.trace, day=day, request=request)
        show_explanation(told, legs)


@app.command()
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
        from assets.lake.settings import load_settings
        from assets.replays.timeline import write_timeline

        settings = load_settings(config_of(config))
        day = day_of(date_) or settings.config.trace.replay_day
        path = write_timeline(settings, day, policy, llm, region, hour)
        OUT.print(f"{near(path)}   (open it in ui.perfetto.dev or chrome://tracing)")


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="A free port of this machine.", min=1, max=65535)] = 3000,
) -> None:
    """Open Dagster's pages on this machine: lineage, runs, plots, checks; Ctrl-C ends it.

    FLEETCAST_DEPLOYMENT=deploy.toml shows the configs of that file beside each other.

    Its calendar has the days of the traces in data/config and in the lake; days that land while it is open
    appear when the code location is reloaded there (Deployment, Reload).
    """
    with spoken():
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                refuse(f"Port {port} answers already. Is the UI running? Stop it, or choose another --port.")
        from assets.lake.partitions import FEW_DAYS
        from pipelines.deployment import locations_shown
        from pipelines.runs import embedded_home

        shown = locations_shown()
        embedded_home()
        os.environ[FEW_DAYS] = "1"
        OUT.print(f"http://{HOST}:{port}   (Ctrl-C ends it)")
        command = ["-W", "ignore", "-m", "dagster", "dev", *shown, "-h", HOST, "-p", str(port)]
        os.execv(sys.executable, [sys.executable, *command])


app.command()(trace_commands.characterise)
app.command()(trace_commands.generate)
app.command()(plan_cli.whatif)
app.command()(plan_cli.decide)
app.command()(board)
app.command()(study)
app.command()(error)
app.command()(levels)
app.command()(gpus)
app.command()(calibrate)
app.command("try")(try_)
app.command()(advise)
app.add_typer(plan_cli.app, name="plan")
app.add_typer(serve_cli.app, name="serve")


def main() -> None:
    """Entry point of the `fleetcast` command."""
    with stopping.listening(say_interrupted):
        app()
