"""`fleetcast plan`: show, make, export and grade plans, and list the GPUs to buy."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Annotated

import typer

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.pipelines.error_cli import describe_cost_error, describe_replayed_saving
from fleetcast.pipelines.export_cli import export_command
from fleetcast.pipelines.handover_cli import grade_command, ran_command
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
from fleetcast.pipelines.scoreboard import show_promises
from fleetcast.pipelines.terminal import cli_errors, short_path, show_note
from fleetcast.pipelines.terminal_tables import show_table

plan_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode="markdown", add_completion=False, suggest_commands=False
)
NextDayOption = Annotated[
    datetime | None,
    typer.Option(
        "--date", formats=["%Y-%m-%d"], help="The day, UTC; default: the day after the last one with demand."
    ),
]


@plan_app.callback()
def plan_group() -> None:
    """Show the plan of a day with its reasons, make plans for the next days, or export them to a cluster."""


@plan_app.command("show")
def show_command(
    policy: PolicyOption = "corrected",
    region: RegionOption = None,
    date_: DayOption = None,
    config: ConfigOption = "office",
) -> None:
    """Print a day's plan: the fleet of the first hour, every change with its reason, GPUs and USD by hour.

    For the endpoint with the highest utilisation, fleetcast prints its load, with the buffer, as a share of
    its capacity; above 100 % another region helps. The last line has the cost with the instances that boot
    before they serve. In a pipe the output is CSV: the fleet of the first hour,
    then the changes. On stderr it prints the hours before the day without data, because the forecast
    does not know them, and how far errors of the latency profiles may move the cost. After `fleetcast error`
    it also prints whether the replayed saving is significant.

        fleetcast plan show --region east
    """
    with cli_errors():
        settings = load_cli_settings(config)
        _print_plans(settings, [parse_day(date_) or settings.config.trace.replay_day], policy, region)


def _print_plans(
    settings: RunSettings,
    days: Sequence[date],
    policy: str,
    region: str | None,
    plans_from: RunSettings | None = None,
) -> None:
    """Print the plans of consecutive days, from the lake of `plans_from` if it is another.

    The gaps in the data before the first day hold for all of them.
    """
    from fleetcast.assets.demand.demand_history import unknown_history_sentence
    from fleetcast.assets.plans.cluster_workloads import early_boots
    from fleetcast.assets.plans.plan_export import drop_empty_places, ordered_plan_steps, read_plan_rows

    source = plans_from or settings
    plans = [read_plan_rows(source, day, policy, region) for day in days]
    params = {"trace": settings.trace, "policy": policy, "region": region}
    hours = [source.lake.sql("queries/plan_by_hour.sql", day=day, **params).to_pylist() for day in days]
    show_plans(
        [
            (ordered_plan_steps(drop_empty_places(settings.grid, rows)), by_hour, early_boots(settings, rows))
            for rows, by_hour in zip(plans, hours, strict=True)
        ]
    )
    show_note(unknown_history_sentence(settings, days[0]))
    show_note(describe_cost_error(settings, [row for rows in plans for row in rows]))
    for day in days if region is None else ():
        show_note(describe_replayed_saving(settings, day, policy))


@plan_app.command("ahead")
def ahead_command(
    date_: NextDayOption = None,
    days: Annotated[int, typer.Option(help="Number of days; --date is the first.", min=1, max=2)] = 1,
    local: Annotated[
        bool,
        typer.Option("--local", help="No requests between regions, where a region has the GPUs; its cost."),
    ] = False,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Plan the next day, or the next two, from the demand so far, and print each like `plan show`.

        fleetcast plan ahead

        fleetcast plan ahead --days 2

        fleetcast plan export --format keda-scaler --policy day_ahead --date DAY --region east

    Each hour of the plan carries a quantile of its largest load. The forecast of both days is made at the
    start of the first day. The plan starts from the fleet at the end of the day-ahead plan of the day before,
    or else from all instances of the config.
    """
    with cli_errors():
        from fleetcast.assets.plans.day_ahead import DAY_AHEAD_POLICY, next_plan_day, plan_ahead
        from fleetcast.assets.plans_on_demand import day_ahead_plans
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings = load_cli_settings(config)
        first = parse_day(date_) or next_plan_day(settings)
        planned_days = [first + timedelta(days=number) for number in range(days)]
        for day in planned_days:
            table = plan_ahead(settings, day, make_progress(quiet), local)
            publish_on_demand(
                day_ahead_plans, settings, AssetRows(table, {"day": day, "policy": DAY_AHEAD_POLICY})
            )
        _print_plans(settings, planned_days, DAY_AHEAD_POLICY, None)


@plan_app.command("promise")
def promise_command(
    date_: NextDayOption = None, config: ConfigOption = "office", quiet: QuietOption = False
) -> None:
    """Promise what the plan of the next day attains and costs, nine days in ten; the nightly run grades it.

        fleetcast plan ahead && fleetcast plan promise

        fleetcast sql "from graded_tiers"

    The plan of `plan ahead` is replayed on 20 to 40 versions of the day: other loads, requests, latencies and
    failures. On an office day of two million requests this takes one to two minutes of CPU.
    """
    with cli_errors():
        from fleetcast.assets.advice.nightly_promise import describe_promises, promise_next_day
        from fleetcast.assets.plans.day_ahead import next_plan_day
        from fleetcast.assets.plans_on_demand import advised_days
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings = load_cli_settings(config)
        day = parse_day(date_) or next_plan_day(settings)
        table = promise_next_day(settings, day, make_progress(quiet))
        publish_on_demand(advised_days, settings, AssetRows(table, {"day": day}))
        show_promises(describe_promises(settings, day - timedelta(days=1)))


@plan_app.command("rolling")
def rolling_command(
    at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M"],
            help="The time of planning, UTC; default: the end of the known demand.",
        ),
    ] = None,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Plan the next 48 hours from the demand until now; print this plan like `plan show`.

        fleetcast plan rolling

        fleetcast plan rolling --at 2025-07-15T14:15

        fleetcast plan export --format keda-scaler --policy rolling --date 2025-07-15 --region east

    [plan.rolling] sets how often the schedule makes a plan, whether the plan carries max(current, predicted),
    and the largest change of instances from one hour to the next. A plan starts from the rolling plan before
    it. For each hour, fleetcast shows, exports and serves the latest plan.
    """
    with cli_errors():
        from fleetcast.assets.plans.rolling_plan import ROLLING_POLICY, only_this_plan, plan_rolling
        from fleetcast.assets.plans_on_demand import rolling_plan_result, rolling_plans
        from fleetcast.pipelines.runs import publish_on_demand

        settings = load_cli_settings(config)
        table = plan_rolling(settings, at, make_progress(quiet))
        publish_on_demand(rolling_plans, settings, rolling_plan_result(table))
        with only_this_plan(settings, table) as alone:
            _print_plans(settings, sorted(set(table["day"].to_pylist())), ROLLING_POLICY, None, alone)


@plan_app.command("buy")
def buy_command(
    reserved: Annotated[
        float,
        typer.Option(help="Price of a reserved GPU-hour as a share of the on-demand price (your contract)."),
    ],
    spot: Annotated[
        float, typer.Option(help="Price of a spot GPU-hour as a share of on demand; 1: no spot.")
    ] = 1.0,
    weeks: Annotated[int, typer.Option(help="Number of whole past weeks to learn from.", min=1, max=104)] = 4,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """List which GPUs to reserve, to buy on demand and to take from spot, from the demand of past weeks.

        fleetcast plan buy --reserved 0.6 --spot 0.35

        fleetcast sql "from commitments where gpu = 'h100-80gb'"

    Interactive load above the reserved GPUs is bought on demand. Deferred batch load runs on idle reserved
    GPUs, or else on spot. The regret of a commitment is its cost above the best commitment of each week in
    hindsight. A lost pool is a region that loses its GPUs of one type on the day of the largest demand: the
    list has what the other regions would buy in addition, and what they have no capacity for.
    """
    with cli_errors():
        from fleetcast.assets.plans_on_demand import commitments
        from fleetcast.assets.studies.buying import PurchaseTerms, write_buying_list
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings = load_cli_settings(config)
        day, table = write_buying_list(settings, PurchaseTerms(reserved, spot), weeks, make_progress(quiet))
        publish_on_demand(commitments, settings, AssetRows(table, {"day": day}))
        board = settings.lake.sql("queries/what_to_buy.sql", trace=settings.trace, day=day)
        show_table(board.to_reader())
        show_note(f"figure   {short_path(settings.figures(day))}/commitments.png")


for name, command in (
    ("quality", quality_command),
    ("export", export_command),
    ("ran", ran_command),
    ("grade", grade_command),
):
    plan_app.command(name)(command)
