"""The `fleetcast` command, with the nightly commands. Heavy imports wait until a command needs them."""

import os
import signal
import socket
import sys
import warnings
from importlib.metadata import version
from typing import Annotated

import typer

from fleetcast.models.world.policies import REPLAY_POLICIES
from fleetcast.pipelines import plan_cli, serve_cli, shutdown
from fleetcast.pipelines.advise_cli import advise_command
from fleetcast.pipelines.board_cli import board_command
from fleetcast.pipelines.calibrate_cli import calibrate_command
from fleetcast.pipelines.configure_cli import configure_command
from fleetcast.pipelines.error_cli import error_command, show_errors
from fleetcast.pipelines.gpus_cli import gpus_command
from fleetcast.pipelines.lake_commands import (
    check_command,
    explain_command,
    explore_command,
    timeline_command,
)
from fleetcast.pipelines.levels_cli import levels_command
from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    QuietOption,
    add_commands,
    make_progress,
    parse_day,
    resolve_config,
)
from fleetcast.pipelines.scoreboard import (
    show_leaderboard,
    show_other_targets,
    show_scoreboard,
    show_short_plans,
)
from fleetcast.pipelines.sql_cli import sql_command
from fleetcast.pipelines.study_cli import study_command
from fleetcast.pipelines.terminal import (
    cli_errors,
    exit_with_message,
    short_path,
    show_checks,
    show_interrupted,
    show_note,
    show_refused,
    show_warning,
)
from fleetcast.pipelines.terminal_tables import OUT
from fleetcast.pipelines.trace_commands import (
    characterise_command,
    forget_command,
    generate_command,
    ingest_command,
)
from fleetcast.pipelines.try_cli import try_command
from fleetcast.pipelines.whatif_cli import decide_command, whatif_command

cli_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
UI_HOST = "127.0.0.1"


def show_version(is_wanted: bool) -> None:
    """Print the version and end, if it is wanted."""
    if is_wanted:
        OUT.print(f"fleetcast {version('fleetcast')}", highlight=False)
        raise typer.Exit()


@cli_app.callback()
def fleetcast(
    version_: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Forecast the demand on a fleet of LLM servers, plan it, and replay the plan: cost, SLO attainment.

    fleetcast advise my-trace.csv.gz   # a fleet for tomorrow

    fleetcast nightly                  # from requests to a scoreboard

    fleetcast sql "from scoreboard"    # any table

    fleetcast ui                       # lineage, plots, checks
    """


def nightly_command(
    date_: DayOption = None,
    days: Annotated[
        int, typer.Option(help="Number of days, one after the other; --date is the last.", min=1, max=3660)
    ] = 1,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Run a day from its requests to the scoreboard: history, forecast, plan, replay, score.

        fleetcast nightly

        fleetcast nightly --date 2025-07-12

        fleetcast nightly --date 2025-07-21 --days 7 && fleetcast sql sql/queries/policies_over_days.sql

        fleetcast nightly --config azure --quiet

    Exit codes: 0 if every check holds; 1 if one does not; 2 for a wrong input, with the reason in one line.
    """
    is_broken = False
    with cli_errors():
        from fleetcast.assets.pages.asset_metadata import SettingsResource
        from fleetcast.pipelines.executors import describe_unused_executor
        from fleetcast.pipelines.nightly_run import run_nights

        show_note(describe_unused_executor())
        resource = SettingsResource(config=resolve_config(config))
        for night in run_nights(resource, parse_day(date_), days, make_progress(quiet)):
            if night.board is not None:
                show_scoreboard(night.board, night.trace, night.day)
                show_other_targets(night.other_targets)
                show_errors(resource.load(), night.day, night.board)
                OUT.print(f"figures  {short_path(night.figures)}/*.png")
                OUT.print(f'tables   {short_path(night.warehouse)}   (fleetcast sql "from scoreboard")')
                OUT.print("pages    fleetcast ui   (lineage, plots, checks)")
                OUT.print("next     fleetcast plan ahead   (the fleet of the next day)")
            show_short_plans(night.short)
            show_refused(night.refused)
            show_checks(night.checks, night.broken, night.alarms)
            is_broken = is_broken or bool(night.broken)
    raise typer.Exit(1 if is_broken else 0)


def replay_command(
    policy: Annotated[str, typer.Option(help=f"{', '.join(REPLAY_POLICIES)}.")],
    date_: DayOption = None,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Replay one policy on a day that `nightly` has planned; print its row of the scoreboard.

    fleetcast replay --policy reactive
    """
    with cli_errors():
        from fleetcast.assets.pages.asset_metadata import SettingsResource
        from fleetcast.assets.replays.scorecards import attainment_by_target
        from fleetcast.pipelines.nightly_run import replay_policy

        resource = SettingsResource(config=resolve_config(config))
        board, trace, day = replay_policy(resource, parse_day(date_), policy, make_progress(quiet))
        show_scoreboard(board, trace, day)
        show_other_targets(attainment_by_target(resource.load(), day, policy))
        show_errors(resource.load(), day, board)


def backtest_command(
    days: Annotated[int, typer.Option(help="Number of days; --date is the last.", min=1, max=3660)] = 3,
    tier: Annotated[
        str, typer.Option(help="A tier, or interactive: the sum of all tiers that are not deferred.")
    ] = "interactive",
    date_: DayOption = None,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Forecast past days with every method and print the leaderboard. Takes one to two minutes a day.

    fleetcast backtest --days 7

    fleetcast backtest --tier niw

    fleetcast sql sql/queries/forecast_leaderboard.sql
    """
    with cli_errors():
        from fleetcast.assets.pages.asset_metadata import SettingsResource
        from fleetcast.pipelines.nightly_run import run_backtests

        resource = SettingsResource(config=resolve_config(config))
        board, figures = run_backtests(resource, parse_day(date_), days, tier, make_progress(quiet))
        show_leaderboard(board)
        OUT.print(f"figure   {short_path(figures)}/forecast_leaderboard.png")
        OUT.print('tables   fleetcast sql "from forecast_leaderboard", "from forecast_losses"')


def ui_command(
    port: Annotated[int, typer.Option(help="A free port of this machine.", min=1, max=65535)] = 3000,
) -> None:
    """Start Dagster's web pages on this machine: lineage, runs, plots, checks. Ctrl-C stops it.

    FLEETCAST_DEPLOYMENT=deploy.toml shows all configs of that file.

    The calendar has the days of the traces in data/config and in the lake. To see days that land while the
    pages are open, reload the code location there (Deployment, Reload).
    """
    with cli_errors():
        with socket.socket() as probe:
            if probe.connect_ex((UI_HOST, port)) == 0:
                exit_with_message(
                    f"Port {port} is in use. Is the UI running already? Stop it, or choose another --port."
                )
        from fleetcast.assets.lake.partitions import FEW_DAYS_VARIABLE
        from fleetcast.pipelines.deployment import dagster_dev_arguments
        from fleetcast.pipelines.runs import set_dagster_home

        arguments = dagster_dev_arguments()
        set_dagster_home()
        os.environ[FEW_DAYS_VARIABLE] = "1"
        OUT.print(f"http://{UI_HOST}:{port}   (Ctrl-C stops it)")
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
        ):  # a shell script starts background jobs with SIGINT ignored
            signal.signal(number, signal.SIG_DFL)
        command = ["-W", "ignore", "-m", "dagster", "dev", *arguments, "-h", UI_HOST, "-p", str(port)]
        os.execv(sys.executable, [sys.executable, *command])


# The parts of --help, in this order.
add_commands(cli_app, advise_command, try_command, ingest_command, nightly_command, panel="Start here")
add_commands(
    cli_app,
    sql_command,
    explain_command,
    timeline_command,
    explore_command,
    check_command,
    ui_command,
    panel="Explore",
)
cli_app.add_typer(plan_cli.plan_app, name="plan", rich_help_panel="Plan")
add_commands(cli_app, gpus_command, configure_command, levels_command, calibrate_command, panel="Plan")
cli_app.add_typer(serve_cli.serve_app, name="serve", rich_help_panel="Plan")
add_commands(
    cli_app,
    board_command,
    whatif_command,
    decide_command,
    error_command,
    study_command,
    replay_command,
    backtest_command,
    panel="Compare",
)
add_commands(cli_app, characterise_command, generate_command, forget_command, panel="Traces")


def main() -> None:
    """Run the `fleetcast` command."""
    warnings.showwarning = show_warning
    with shutdown.handle_signals(show_interrupted):
        cli_app()
