"""`fleetcast serve`: servers for a cluster's autoscaler, and for Dagster."""

import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from fleetcast.pipelines.options import (
    ConfigOption,
    PolicyOption,
    expand_path,
    load_cli_settings,
    make_progress,
)
from fleetcast.pipelines.terminal import cli_errors
from fleetcast.pipelines.terminal_tables import OUT

serve_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode="markdown", add_completion=False, suggest_commands=False
)
INSTANT = "%Y-%m-%dT%H:%M"


@serve_app.callback()
def serve_group() -> None:
    """Serve plans from the lake to a cluster's autoscaler, or the definitions to Dagster."""


@serve_app.command("scaler")
def scaler_command(
    address: Annotated[str, typer.Option(help="HOST:PORT to listen on.")] = "127.0.0.1:6000",
    policy: PolicyOption = "day_ahead",
    config: ConfigOption = "office",
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="URL of a Prometheus server: follow the rule compact on its metrics, and the plan without.",
        ),
    ] = None,
    where: Annotated[
        str, typer.Option(help="With --from: label matchers of the engines' series, like 'cluster=\"a\"'.")
    ] = "",
    now: Annotated[
        datetime | None,
        typer.Option(
            formats=[INSTANT], help="The start of the server's clock, UTC, to test it on a past day."
        ),
    ] = None,
) -> None:
    """Answer KEDA's external scaler calls (gRPC) from the plan in the lake, until Ctrl-C.

        fleetcast serve scaler --address 0.0.0.0:6000

        fleetcast plan export --format keda-scaler --policy day_ahead --region east | kubectl apply -f -

    A new plan is served ten seconds after it was written. After the end of the plan, the scaler serves the
    same hour of the day before. It serves the floor if the plan is two days old, or while the last value
    forecasts an endpoint better than the forecast (the alarm forecasts_beat_last_value). The server prints
    each change of state. It has no TLS: listen on an address that only the cluster can reach.

    With --from the replicas follow the work that the engines measure, every ten seconds, by the rule compact:

        fleetcast serve scaler --from http://prometheus:9090 --config mine.toml
    """
    with cli_errors():
        import asyncio

        from fleetcast.assets.plans.current_plan import CurrentPlan
        from fleetcast.assets.plans.keda_scaler import KedaScaler, run_scaler_server
        from fleetcast.assets.replays.live_replicas import LiveReplicas

        if not re.fullmatch(r"\S+:\d{1,5}", address) or int(address.rpartition(":")[2]) > 65_535:
            raise ValueError(f"--address: got {address!r}, needed HOST:PORT, like 0.0.0.0:6000.")
        ahead = timedelta(0) if now is None else now.replace(tzinfo=UTC) - datetime.now(UTC)
        if where and from_ is None:
            raise ValueError("--where: it selects series of a server. Name the server by --from URL.")
        plan = CurrentPlan(load_cli_settings(config), policy, lambda: datetime.now(UTC) + ahead)
        source = plan if from_ is None else LiveReplicas(plan, from_, where, make_progress(quiet=False))
        host = address.rpartition(":")[0]
        followed = policy if from_ is None else f"compact, or {policy} without metrics,"
        asyncio.run(
            run_scaler_server(
                KedaScaler(source, OUT.print),
                address,
                lambda port: OUT.print(f"serving {followed} on {host}:{port}   (Ctrl-C stops it)"),
            )
        )


@serve_app.command("code")
def code_command(
    location: Annotated[
        str | None,
        typer.Argument(help="A location of FLEETCAST_DEPLOYMENT; default: that of the environment."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The port; default: that of the file.", min=1, max=65535)
    ] = None,
    host: Annotated[str | None, typer.Option(help="The host; default: that of the file.")] = None,
) -> None:
    """Serve the definitions of a location to Dagster's daemon and web server (gRPC), until Ctrl-C.

        FLEETCAST_DEPLOYMENT=deploy.toml fleetcast serve code chat

    You need this server if the daemon and the web server are other processes or machines. It refuses a port
    that is taken: with two servers on one port, the one with the older code would reply.
    """
    with cli_errors():
        from fleetcast.pipelines import deployment

        chosen = deployment.find_location(location)
        listen = (host or chosen.host, port or chosen.port or deployment.PORT)
        deployment.require_executor(chosen.executor)
        deployment.require_cluster(chosen.executor)
        deployment.take_port(*listen)
        OUT.print(f"serving {location or 'fleetcast'} on {listen[0]}:{listen[1]}   (Ctrl-C stops it)")
        module = "fleetcast.pipelines." + ("locations" if location else "definitions")
        target = [module, *(("-a", location) if location else ())]
        command = ["-h", listen[0], "-p", str(listen[1]), "--location-name", location or "fleetcast"]
        program = [sys.executable, "-W", "ignore", "-m", "dagster", "code-server", "start", "-m"]
        os.execv(sys.executable, [*program, *target, *command])


@serve_app.command("workspace")
def workspace_command(
    file: Annotated[Path, typer.Argument(help="A deployment file with locations.")],
) -> None:
    """Check all configs of a deployment, and print its workspace.yaml.

    fleetcast serve workspace deploy.toml > workspace.yaml
    """
    with cli_errors():
        from fleetcast.pipelines import deployment

        locations = deployment.read_deployment(expand_path(file))
        deployment.check_deployment(locations)
        OUT.print(deployment.workspace_yaml(locations), end="")
