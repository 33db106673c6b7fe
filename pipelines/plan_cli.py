"""`fleetcast plan`: a plan with its reasons, of a day, ahead, rolling, to buy for, or handed on."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Annotated

import typer

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.pipelines.error_cli import describe_cost_error, describe_replayed_saving
from fleetcast.pipelines.handover_cli import export_command, grade_command, ran_command
from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    PolicyOption,
    QuietOption,
    RegionOption,
    load_cli_settings,
    make_progress,
    parse_day,
)
from fleetcast.pipelines.plan_display import show_plans
from fleetcast.pipelines.quality_cli import quality_command
from fleetcast.pipelines.terminal import cli_errors, short_path, show_note
from fleetcast.pipelines.terminal_tables import show_table

plan_app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
NextDayOption = Annotated[
    datetime | None,
    typer.Option(
        "--date", formats=["%Y-%m-%d"], help="The day, UTC; without it the one after the last with demand."
    ),
]


@plan_app.callback()
def plan_group() -> None:
    """Show the plan of a day with its reasons, or hand it to whoever carries it out."""


@plan_app.command("show")
def show_command(
    policy: PolicyOption = "corrected",
    region: RegionOption = None,
    date_: DayOption = None,
    config: ConfigOption = "office",
) -> None:
    """Print a day's plan: the fleet to begin with, every change with its reason, GPUs and USD by hour.

    The fullest endpoint is told by its load, buffer included, of what its instances sustain; above 100 %
    another region helps. In a pipe it is CSV: the fleet of the first hour, then the changes. Hours before
    the day in which nobody was collecting are told on stderr: the forecast does not know them. So is how far
    the cost may be off because the latency profiles are, and after `fleetcast error` what that leaves of the
    saving.

        fleetcast plan show --region east
    """
    with cli_errors():
        settings = load_cli_settings(config)
        _print_plans(settings, [parse_day(date_) or settings.config.trace.replay_day], policy, region)


def _print_plans(settings: RunSettings, days: Sequence[date], policy: str, region: str | None) -> None:
    """Print the plans of days in a row; what the first of them does not know, none knows."""
    from fleetcast.assets.demand.demand_history import unknown_history_sentence
    from fleetcast.assets.plans.plan_export import ordered_plan_steps, read_plan_rows

    rows = [read_plan_rows(settings, day, policy, region) for day in days]
    asked = {"trace": settings.trace, "policy": policy, "region": region}
    hours = [settings.lake.sql("queries/plan_by_hour.sql", day=day, **asked).to_pylist() for day in days]
    show_plans([(ordered_plan_steps(of_day), by_hour) for of_day, by_hour in zip(rows, hours, strict=True)])
    show_note(unknown_history_sentence(settings, days[0]))
    show_note(describe_cost_error(settings, [row for of_day in rows for row in of_day]))
    for day in days if region is None else ():
        show_note(describe_replayed_saving(settings, day, policy))


@plan_app.command("ahead")
def ahead_command(
    date_: NextDayOption = None,
    days: Annotated[int, typer.Option(help="How many days, from --date on.", min=1, max=2)] = 1,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Plan a day to come, or two, from the demand so far, and print each like `plan show`.

        fleetcast plan ahead

        fleetcast plan ahead --days 2

        fleetcast plan export --format keda-scaler --policy day_ahead --date DAY --region east

    Each hour carries a quantile of its largest load, as it is foreseen when the day begins, that of a second
    day when the first one begins. The plan starts from what the day-ahead plan of the day before leaves, else
    from all instances of the config.
    """
    with cli_errors():
        from fleetcast.assets.pages.on_demand_asset import AssetRows
        from fleetcast.assets.plans.day_ahead import DAY_AHEAD_POLICY, next_plan_day, plan_ahead
        from fleetcast.assets.plans_on_demand import day_ahead_plans
        from fleetcast.pipelines.runs import publish_on_demand

        settings = load_cli_settings(config)
        first = parse_day(date_) or next_plan_day(settings)
        coming = [first + timedelta(days=number) for number in range(days)]
        for day in coming:
            table = plan_ahead(settings, day, make_progress(quiet))
            publish_on_demand(
                day_ahead_plans, settings, AssetRows(table, {"day": day, "policy": DAY_AHEAD_POLICY})
            )
        _print_plans(settings, coming, DAY_AHEAD_POLICY, None)


@plan_app.command("rolling")
def rolling_command(
    at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M"], help="When it is made, UTC; without it when demand is known until."
        ),
    ] = None,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Plan the next 48 hours from the demand until now; print the days that it reaches like `plan show`.

        fleetcast plan rolling

        fleetcast plan rolling --at 2025-07-15T14:15

        fleetcast plan export --format keda-scaler --policy rolling --date 2025-07-15 --region east

    [plan.rolling] says how often the schedule makes one, whether it carries max(current, predicted), and by
    how many instances an hour may differ from the one before. The rolling plan before it is where it starts
    from. Of each hour the plan that was made last is shown, exported and served.
    """
    with cli_errors():
        from fleetcast.assets.plans.rolling_plan import ROLLING_POLICY, plan_rolling
        from fleetcast.assets.plans_on_demand import rolling_plan_result, rolling_plans
        from fleetcast.pipelines.runs import publish_on_demand

        settings = load_cli_settings(config)
        table = plan_rolling(settings, at, make_progress(quiet))
        publish_on_demand(rolling_plans, settings, rolling_plan_result(table))
        _print_plans(settings, sorted(set(table["day"].to_pylist())), ROLLING_POLICY, None)


@plan_app.command("buy")
def buy_command(
    reserved: Annotated[
        float, typer.Option(help="What a reserved GPU-hour costs of one on demand, as your contract says.")
    ],
    spot: Annotated[float, typer.Option(help="The same of one of spot; 1: none is to be had.")] = 1.0,
    weeks: Annotated[int, typer.Option(help="How many whole weeks back.", min=1, max=104)] = 4,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """List which GPUs to reserve, to buy on demand and to take from spot, from the need of past weeks.

        fleetcast plan buy --reserved 0.6 --spot 0.35

        fleetcast sql "from commitments where gpu = 'h100-80gb'"

    Interactive load is bought on demand where it exceeds what is reserved; what may wait is done where
    reserved GPUs are idle, else on spot. The regret of a commitment is what it cost above the best one of
    each week in hindsight. A lost place is one region without its GPUs of a type, on the day of the largest
    need: what the others would buy on top, and what they have no room for.
    """
    with cli_errors():
        from fleetcast.assets.pages.on_demand_asset import AssetRows
        from fleetcast.assets.plans_on_demand import commitments
        from fleetcast.assets.studies.buying import PurchaseTerms
        from fleetcast.assets.studies.buying import write_buying_list as list_of
        from fleetcast.pipelines.runs import publish_on_demand

        settings = load_cli_settings(config)
        day, table = list_of(settings, PurchaseTerms(reserved, spot), weeks, make_progress(quiet))
        publish_on_demand(commitments, settings, AssetRows(table, {"day": day}))
        board = settings.lake.sql("queries/what_to_buy.sql", trace=settings.trace, day=day)
        show_table(board.to_reader())
        show_note(f"figure   {short_path(settings.figures(day))}/commitments.png")


PLAN_COMMANDS: dict[str, Callable[..., None]] = {
    "quality": quality_command,
    "export": export_command,
    "ran": ran_command,
    "grade": grade_command,
}
for name, command in PLAN_COMMANDS.items():
    plan_app.command(name)(command)
