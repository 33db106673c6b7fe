"""`fleetcast ui`: Dagster's web pages on this machine."""

import os
import signal
import socket
import sys
from typing import Annotated

import typer

from fleetcast.pipelines.terminal import cli_errors, exit_with_message
from fleetcast.pipelines.terminal_tables import OUT

UI_HOST = "127.0.0.1"


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
        from fleetcast.assets.lake.environment_variables import UI_VARIABLE
        from fleetcast.pipelines.deployment import dagster_dev_arguments
        from fleetcast.pipelines.runs import set_dagster_home

        arguments = dagster_dev_arguments()
        set_dagster_home()
        os.environ[UI_VARIABLE] = "1"
        OUT.print(f"http://{UI_HOST}:{port}   (Ctrl-C stops it)")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # a shell script starts background jobs with SIGINT ignored
        command = ["-W", "ignore", "-m", "dagster", "dev", *arguments, "-h", UI_HOST, "-p", str(port)]
        os.execv(sys.executable, [sys.executable, *command])
