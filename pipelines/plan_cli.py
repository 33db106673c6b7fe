"""`fleetcast plan`: a plan with its reasons, of a day, ahead, rolling, to buy for, or handed on."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Annotated

import typer

from fleetcast.assets.lake.settings import Settings
from fleetcast.pipelines.error_cli import cost_error_said, drawn_saving_said
from fleetcast.pipelines.handover_cli import export, grade, ran
from fleetcast.pipelines.options import Config, Day, Policy, Quiet, Region, day_of, progress_of, settings_of
from fleetcast.pipelines.plan_shown import show_plans
from fleetcast.pipelines.quality_cli import quality
from fleetcast.pipelines.tables import show_table
from fleetcast.pipelines.terminal import near, show_note, spoken

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
ComingDay = Annotated[
    datetime | None,
    typer.Option(
        "--date", formats=["%Y-%m-%d"], help="The day, UTC; without it the one after the last with demand."
    ),
]


@app.callback()
def plan() -> None:
    """Show the plan of a day with its reasons, or hand it to whoever carries it out."""


@app.command()
def show(
    policy: Policy = "corrected", region: Region = None, date_: Day = None, config: Config = "office"
) -> None:
    """Print a day's plan: the fleet to begin with, every change with its reason, GPUs and USD by hour.

    The fullest endpoint is told by its load, buffer included, of what its instances sustain; above 100 %
    another region helps. In a pipe it is CSV: the fleet of the first hour, then the changes. Hours before
    the day in which nobody was collecting are told on stderr: the forecast does not know them. So is how far
    the cost may be off because the latency profiles are, and after `fleetcast error` what that leaves of the
    saving.

        fleetcast plan show --region east
    """
    with spoken():
        settings = settings_of(config)
        _shown(settings, [day_of(date_) or settings.config.trace.replay_day], policy, region)


def _shown(settings: Settings, days: Sequence[date], policy: str, region: str | None) -> None:
    """Print the plans of days in a row; what the first of them does not know, none knows."""
    from fleetcast.assets.demand.history import not_known
    from fleetcast.assets.plans.export import plan_of, steps

    rows = [plan_of(settings, day, policy, region) for day in days]
    asked = {"trace": settings.trace, "policy": policy, "region": region}
    hours = [settings.lake.sql("queries/plan_by_hour.sql", day=day, **asked).to_pylist() for day in days]
    show_plans([(steps(of_day), by_hour) for of_day, by_hour in zip(rows, hours, strict=True)])
    show_note(not_known(settings, days[0]))
    show_note(cost_error_said(settings, [row for of_day in rows for row in of_day]))
    for day in days if region is None else ():
        show_note(drawn_saving_said(settings, day, policy))


@app.command()
def ahead(
    date_: ComingDay = None,
    days: Annotated[int, typer.Option(help="How many days, from --date on.", min=1, max=2)] = 1,
    config: Config = "office",
    quiet: Quiet = False,
) -> None:
    """Plan a day to come, or two, from the demand so far, and print each like `plan show`.

        fleetcast plan ahead

        fleetcast plan ahead --days 2

        fleetcast plan export --format keda-scaler --policy day_ahead --date DAY --region east

    Each hour carries a quantile of its largest load, as it is foreseen when the day begins, that of a second
    day when the first one begins. The plan starts from what the day-ahead plan of the day before leaves, else
    from all instances of the config.
    """
    with spoken():
        from fleetcast.assets.pages.on_demand import Made
        from fleetcast.assets.plans.ahead import POLICY, day_to_come, plan_ahead
        from fleetcast.assets.plans_on_demand import day_ahead_plans
        from fleetcast.pipelines.runs import report_made

        settings = settings_of(config)
        first = day_of(date_) or day_to_come(settings)
        coming = [first + timedelta(days=number) for number in range(days)]
        for day in coming:
            table = plan_ahead(settings, day, progress_of(quiet))
            report_made(day_ahead_plans, settings, Made(table, {"day": day, "policy": POLICY}))
        _shown(settings, coming, POLICY, None)


@app.command()
def rolling(
    at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M"], help="When it is made, UTC; without it when demand is known until."
        ),
    ] = None,
    config: Config = "office",
    quiet: Quiet = False,
) -> None:
    """Plan the next 48 hours from the demand until now; print the days that it reaches like `plan show`.

        fleetcast plan rolling

        fleetcast plan rolling --at 2025-07-15T14:15

        fleetcast plan export --format keda-scaler --policy rolling --date 2025-07-15 --region east

    [plan.rolling] says how often the schedule makes one, whether it carries max(current, predicted), and by
    how many instances an hour may differ from the one before. The rolling plan before it is where it starts
    from. Of each hour the plan that was made last is shown, exported and served.
    """
    with spoken():
        from fleetcast.assets.plans.rolling import ROLLING, plan_rolling
        from fleetcast.assets.plans_on_demand import made_rolling, rolling_plans
        from fleetcast.pipelines.runs import report_made

        settings = settings_of(config)
        table = plan_rolling(settings, at, progress_of(quiet))
        report_made(rolling_plans, settings, made_rolling(table))
        _shown(settings, sorted(set(table["day"].to_pylist())), ROLLING, None)


@app.command()
def buy(
    reserved: Annotated[
        float, typer.Option(help="What a reserved GPU-hour costs of one on demand, as your contract says.")
    ],
    spot: Annotated[float, typer.Option(help="The same of one of spot; 1: none is to be had.")] = 1.0,
    weeks: Annotated[int, typer.Option(help="How many whole weeks back.", min=1, max=104)] = 4,
    config: Config = "office",
    quiet: Quiet = False,
) -> None:
    """List which GPUs to reserve, to buy on demand and to take from spot, from the need of past weeks.

        fleetcast plan buy --reserved 0.6 --spot 0.35

        fleetcast sql "from commitments where gpu = 'h100-80gb'"

    Interactive load is bought on demand where it exceeds what is reserved; what may wait is done where
    reserved GPUs are idle, else on spot. The regret of a commitment is what it cost above the best one of
    each week in hindsight. A lost place is one region without its GPUs of a type, on the day of the largest
    need: what the others would buy on top, and what they have no room for.
    """
    with spoken():
        from fleetcast.assets.pages.on_demand import Made
        from fleetcast.assets.plans_on_demand import commitments
        from fleetcast.assets.studies.buying import Terms
        from fleetcast.assets.studies.buying import buy as list_of
        from fleetcast.pipelines.runs import report_made

        settings = settings_of(config)
        day, table = list_of(settings, Terms(reserved, spot), weeks, progress_of(quiet))
        report_made(commitments, settings, Made(table, {"day": day}))
        board = settings.lake.sql("queries/what_to_buy.sql", trace=settings.trace, day=day)
        show_table(board.to_reader())
        show_note(f"figure   {near(settings.figures(day))}/commitments.png")


app.command(name="quality")(quality)
for handed in (export, ran, grade):
    app.command()(handed)
