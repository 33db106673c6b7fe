"""The `fleetcast` command: its parts, and what ends it. A command's module is imported when it is used."""

import warnings
from typing import Annotated, Any, ClassVar

import typer

from fleetcast.pipelines import shutdown
from fleetcast.pipelines.lazy_group import LazyGroup


class FleetcastCommands(LazyGroup):
    """All commands, in the order of --help: part -> command -> module."""

    modules: ClassVar = {
        "Start here": {
            "advise": "advise_cli",
            "try": "try_cli",
            "ingest": "trace_commands",
            "nightly": "nightly_cli",
        },
        "Explore": {
            "sql": "sql_cli",
            "explain": "lake_commands",
            "timeline": "lake_commands",
            "explore": "lake_commands",
            "check": "lake_commands",
            "tidy": "lake_commands",
            "ui": "ui_cli",
        },
        "Plan": {
            "plan": "plan_cli",
            "gpus": "gpus_cli",
            "configure": "configure_cli",
            "levels": "levels_cli",
            "calibrate": "calibrate_cli",
            "witness": "witness_cli",
            "serve": "serve_cli",
        },
        "Compare": {
            "board": "board_cli",
            "whatif": "whatif_cli",
            "decide": "whatif_cli",
            "error": "error_cli",
            "study": "study_cli",
            "replay": "nightly_cli",
            "backtest": "nightly_cli",
        },
        "Traces": {
            "characterise": "trace_commands",
            "generate": "trace_commands",
            "forget": "trace_commands",
        },
    }


cli_app = typer.Typer(
    cls=FleetcastCommands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click suggests already
)


def show_version(is_wanted: bool) -> None:
    """Print the version and end, if it is wanted."""
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"fleetcast {version('fleetcast')}")
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


def main() -> None:
    """Run the `fleetcast` command."""
    warnings.showwarning = _show_warning
    with shutdown.handle_signals(_show_interrupted), shutdown.exit_on_closed_pipe():
        cli_app()


def _show_warning(*arguments: Any, **options: Any) -> None:
    from fleetcast.pipelines.terminal import show_warning

    show_warning(*arguments, **options)


def _show_interrupted() -> None:
    from fleetcast.pipelines.terminal import show_interrupted

    show_interrupted()
