"""`fleetcast nightly`, `replay`, `backtest`: run a day, one policy of it, or forecasts of past days."""

from typing import Annotated

import typer

from fleetcast.models.world.policies import REPLAY_POLICIES
from fleetcast.pipelines.error_cli import show_errors
from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    QuietOption,
    make_progress,
    parse_day,
    resolve_config,
)
from fleetcast.pipelines.scoreboard import (
    show_leaderboard,
    show_other_targets,
    show_promises,
    show_scoreboard,
    show_short_plans,
)
from fleetcast.pipelines.terminal import (
    cli_errors,
    short_path,
    show_checks,
    show_mends,
    show_note,
    show_refused,
)
from fleetcast.pipelines.terminal_tables import OUT


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

    Exit codes: 0 if every check holds; 1 if one does not, or if rows of a file in data/landing went to
    quarantine in bulk; 2 for a wrong input, with the reason in one line.
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
                settings = resource.load()
                show_scoreboard(night.board, night.trace, night.day)
                show_other_targets(night.other_targets)
                show_errors(settings, night.day, night.board)
                OUT.print(f"figures  {short_path(night.figures)}/*.png")
                OUT.print(f'tables   {short_path(night.warehouse)}   (fleetcast sql "from scoreboard")')
                OUT.print("pages    fleetcast ui   (lineage, plots, checks)")
                OUT.print(f"next     {settings.command('plan ahead')}   (the fleet of the next day)")
            show_note(night.not_known)
            show_promises(night.promises)
            show_short_plans(night.short)
            show_refused(night.refused)
            show_mends(night.mends)
            show_checks(night.checks, night.broken, night.alarms)
            is_broken = is_broken or bool(night.broken or night.mends)
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
