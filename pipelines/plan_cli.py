"""`fleetcast plan` and `fleetcast whatif`: a plan with its reasons, handed on, or under other conditions."""

from enum import StrEnum
from typing import Annotated

import typer

from models.policies import planned
from pipelines.options import Config, Day, Quiet, config_of, day_of, progress_of
from pipelines.tables import OUT, show_table
from pipelines.terminal import near, show_decisions, show_whatifs, spoken

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
Policy = Annotated[str, typer.Option(help=f"Whose plan: {', '.join(planned())}.")]


class Format(StrEnum):
    """How a plan is written."""

    JSON = "json"
    K8S = "k8s"


@app.callback()
def plan() -> None:
    """Show the plan of a day with its reasons, or hand it to whoever carries it out."""


@app.command()
def show(policy: Policy = "corrected", date_: Day = None, config: Config = "office") -> None:
    """Print every change of a day's plan with its reason; in a pipe as CSV.

    fleetcast plan show --policy corrected
    """
    with spoken():
        from assets.plan_export import plan_of
        from assets.settings import load_settings

        settings = load_settings(config_of(config))
        day = day_of(date_) or settings.config.trace.replay_day
        plan_of(settings, day, policy)  # refuses what is not there
        changes = settings.lake.sql("queries/plan_changes.sql", trace=settings.trace, day=day, policy=policy)
        show_table(changes.drop_columns(["trace", "day", "policy"]))


@app.command()
def export(
    format_: Annotated[Format, typer.Option("--format", help="json, or k8s: KEDA ScaledObjects as YAML.")],
    policy: Policy = "corrected",
    region: Annotated[str | None, typer.Option(help="Only this region: one cluster.")] = None,
    date_: Day = None,
    config: Config = "office",
) -> None:
    """Write a day's plan to stdout: JSON with the reasons, or replica targets for Kubernetes.

    fleetcast plan export --format json > plan.json

    fleetcast plan export --format k8s --region east | kubectl --context east apply -f -
    """
    with spoken():
        from assets.plan_export import FORMATS, plan_of
        from assets.settings import load_settings

        settings = load_settings(config_of(config))
        day = day_of(date_) or settings.config.trace.replay_day
        typer.echo(FORMATS[format_.value](plan_of(settings, day, policy, region)).rstrip("\n"))


def whatif(
    cases: Annotated[
        list[str] | None, typer.Argument(help="Cases of data/whatif.toml; without any all.", metavar="CASE")
    ] = None,
    date_: Day = None,
    config: Config = "office",
    quiet: Quiet = False,
) -> None:
    """Plan and replay a day under other prices, GPUs, regions, budgets: a table of cost against attainment.

        fleetcast whatif

        fleetcast whatif as_is a100 east_down

    The day must have forecasts (`fleetcast nightly`). A case takes some ten seconds.
    """
    with spoken():
        from assets.settings import load_settings
        from assets.studies import whatifs_said
        from assets.whatif import draw, what_if
        from pipelines.runs import report

        settings = load_settings(config_of(config))
        day = day_of(date_) or settings.config.trace.replay_day
        table = what_if(settings, day, cases or [], progress_of(quiet))
        settings.lake.publish()
        report("whatifs", whatifs_said(settings, day, table))
        show_whatifs(table, settings.trace, day)
        OUT.print(f"figure   {near(draw(settings, day, table.to_pandas()))}")
        OUT.print('table    fleetcast sql "from whatifs"')


def decide(date_: Day = None, config: Config = "office", quiet: Quiet = False) -> None:
    """Let every forecast method plan a planned day and replay it: what is each worth? Minutes.

    fleetcast decide

    fleetcast sql sql/queries/which_forecast_pays.sql
    """
    with spoken():
        from assets import decisions
        from assets.settings import load_settings
        from assets.studies import decisions_said
        from pipelines.runs import report

        settings = load_settings(config_of(config))
        day = day_of(date_) or settings.config.trace.replay_day
        table = decisions.decide(settings, day, progress_of(quiet))
        report("decisions", {day.isoformat(): decisions_said(settings, day, table)})
        show_decisions(decisions.leaderboard(settings, day), settings.trace, day)
        OUT.print(f"figure   {near(settings.figures(day))}/decision_curves.png")
        OUT.print('tables   fleetcast sql "from decisions", "from decision_leaderboard"')
