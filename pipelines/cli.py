"""`fleetcast`: all commands, those of the night here. Heavy imports wait until a command needs them."""

import os
import socket
import sys
from typing import Annotated

import typer

from fleetcast.models.world.policies import POLICIES
from fleetcast.pipelines import plan_cli, serve_cli, stopping
from fleetcast.pipelines.advise_cli import advise
from fleetcast.pipelines.board_cli import board
from fleetcast.pipelines.calibrate import calibrate
from fleetcast.pipelines.error_cli import error, show_errors
from fleetcast.pipelines.gpus_cli import gpus
from fleetcast.pipelines.lake_commands import explain, explore, sql, timeline
from fleetcast.pipelines.levels_cli import levels
from fleetcast.pipelines.options import Config, Day, Quiet, config_of, day_of, progress_of
from fleetcast.pipelines.scoreboard import show_leaderboard, show_other_targets, show_scoreboard, show_short
from fleetcast.pipelines.study_cli import study
from fleetcast.pipelines.tables import OUT
from fleetcast.pipelines.terminal import near, refuse, say_interrupted, show_checks, show_refused, spoken
from fleetcast.pipelines.trace_commands import characterise, forget, generate, ingest
from fleetcast.pipelines.try_cli import try_
from fleetcast.pipelines.whatif_cli import decide, whatif

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
HOST = "127.0.0.1"


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
        from fleetcast.assets.pages.telling import SettingsResource
        from fleetcast.pipelines.night import run_nights

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
        from fleetcast.assets.pages.telling import SettingsResource
        from fleetcast.assets.replays.scorecards import other_targets
        from fleetcast.pipelines.night import replay_policy

        resource = SettingsResource(config=config_of(config))
        board, trace, day = replay_policy(resource, day_of(date_), policy, progress_of(quiet))
        show_scoreboard(board, trace, day)
        show_other_targets(other_targets(resource.load(), day, policy))
        show_errors(resource.load(), day, board)


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
        from fleetcast.assets.pages.telling import SettingsResource
        from fleetcast.pipelines.night import backtest_days

        resource = SettingsResource(config=config_of(config))
        board, figures = backtest_days(resource, day_of(date_), days, tier, progress_of(quiet))
        show_leaderboard(board)
        OUT.print(f"figure   {near(figures)}/forecast_leaderboard.png")
        OUT.print('tables   fleetcast sql "from forecast_leaderboard", "from forecast_losses"')


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
        from fleetcast.assets.lake.partitions import FEW_DAYS
        from fleetcast.pipelines.deployment import locations_shown
        from fleetcast.pipelines.runs import embedded_home

        shown = locations_shown()
        embedded_home()
        os.environ[FEW_DAYS] = "1"
        OUT.print(f"http://{HOST}:{port}   (Ctrl-C ends it)")
        command = ["-W", "ignore", "-m", "dagster", "dev", *shown, "-h", HOST, "-p", str(port)]
        os.execv(sys.executable, [sys.executable, *command])


for command in (
    *(nightly, ingest, forget, replay, backtest, sql, explore, explain, timeline, ui, characterise, generate),
    *(whatif, decide, board, study, error, levels, gpus, calibrate),
):  # in the order of --help
    app.command()(command)
app.command("try")(try_)
app.command()(advise)
app.add_typer(plan_cli.app, name="plan")
app.add_typer(serve_cli.app, name="serve")


def main() -> None:
    """Entry point of the `fleetcast` command."""
    with stopping.listening(say_interrupted):
        app()
