"""`fleetcast board`: compare the planners of five papers with fleetcast at equal attainment and quality."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any

import pyarrow as pa
import typer

from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    QuietOption,
    load_settings_and_day,
    make_progress,
)
from fleetcast.pipelines.terminal import cli_errors, short_path
from fleetcast.pipelines.terminal_tables import (
    OUT,
    format_figure,
    format_percent,
    show_board,
    show_resolution,
)

LEAST_UNSEEN_DAYS = 5  # that --boot-s takes where no number is given


def board_command(
    planner: Annotated[
        list[str] | None, typer.Option("--planner", help="Only this planner, or any policy; may be repeated.")
    ] = None,
    ideas: Annotated[
        bool, typer.Option("--ideas", help="Also the saving of each idea of fleetcast. Takes twice as long.")
    ] = False,
    draws: Annotated[
        int, typer.Option(help="Also this many resamples of the day's requests. Each adds half of the time.")
    ] = 0,
    unseen_days: Annotated[
        int, typer.Option(min=0, help="Tune policies on the days before, and score them on this many days.")
    ] = 0,
    known_days: Annotated[int, typer.Option(min=1, help="Days before the unseen ones, to tune on.")] = 4,
    trials: Annotated[int, typer.Option(min=1, help="Trials of each policy on the known days.")] = 9,
    boot_s: Annotated[
        list[float] | None,
        typer.Option("--boot-s", help="What a forecast is worth if instances take so long; may be repeated."),
    ] = None,
    min_instances: Annotated[
        list[int] | None,
        typer.Option(
            "--min-instances", min=1, help="With --boot-s: so many at least per pool; may be repeated."
        ),
    ] = None,
    date_: DayOption = None,
    config: ConfigOption = "together",
    quiet: QuietOption = False,
) -> None:
    """Compare what each planner costs on a planned day at the same SLO attainment. Takes minutes.

    For each planner, it searches the capacity share (the utilisation target of its plans), or the
    thresholds of a rule without a plan, at which every tier reaches its SLO target. If some planner cannot
    reach a target on that day, the required fraction is the best value of the weakest planner.

        fleetcast nightly --config together && fleetcast board

        fleetcast board --ideas

        fleetcast board --draws 3

    With --unseen-days, no plan of a nightly run is needed. Each policy gets the same number of trials on
    the known days; its best settings are frozen, then the unseen days are scored. The last unseen day is
    --date.

        fleetcast board --config weeks --unseen-days 7

    With --boot-s, a rule without a forecast is compared with rules that have one, for each boot time.

        fleetcast board --config weeks --unseen-days 5 --boot-s 60 --boot-s 300 --boot-s 900
    """
    if unseen_days or boot_s:
        counts = (unseen_days or LEAST_UNSEEN_DAYS, known_days, trials)
        variants = (boot_s or (), min_instances or ())
        board_of_unseen_days(config, date_, counts, planner or (), variants, quiet)
        return
    with cli_errors():
        from fleetcast.assets.studies import planner_board
        from fleetcast.assets.studies_on_demand import planner_trials
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings, day = load_settings_and_day(config, date_)
        table = planner_board.try_planners(settings, day, planner or (), ideas, make_progress(quiet), draws)
        publish_on_demand(planner_trials, settings, AssetRows(table, {"day": day}))
        show_planners(planner_board.read_planner_board(settings, day), settings.trace, day)
        show_ideas(planner_board.read_idea_worth(settings, day))
        OUT.print(f"figure   {short_path(settings.figures(day))}/planner_board.png")
        OUT.print('tables   fleetcast sql "from planner_board", "from idea_worth", "from planner_trials"')


def board_of_unseen_days(
    config: str,
    last: datetime | None,
    counts: tuple[int, int, int],
    names: Sequence[str],
    variants: tuple[Sequence[float], Sequence[int]],
    quiet: bool,
) -> None:
    """Run and print the comparison on unseen days.

    `counts`: unseen days, known days, trials; `variants`: boot times in s, minimums of instances.
    """
    boots_s, minimums = variants
    with cli_errors():
        from fleetcast.assets.pages.figure_files import save_day_figure
        from fleetcast.assets.studies.foresight import compare_boot_times, draw_foresight
        from fleetcast.assets.studies.unseen_days import compare_on_unseen_days, last_days
        from fleetcast.assets.studies.unseen_figures import unseen_drawings
        from fleetcast.assets.studies_on_demand import unseen_days
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand
        from fleetcast.pipelines.unseen_board import show_foresight, show_unseen_board

        settings, day = load_settings_and_day(config, last)
        period = last_days(day, *counts)
        if boots_s:
            table = compare_boot_times(settings, period, boots_s, names, make_progress(quiet), minimums)
            settings.lake.publish()
            show_foresight(table.to_pylist(), f"{settings.trace}, {period.unseen[0]} to {day}")
            figure = save_day_figure(settings, day, "foresight", lambda: draw_foresight(table.to_pandas()))
            OUT.print(f"figure   {short_path(figure)}")
            OUT.print('table    fleetcast sql "from foresight"')
            return
        table = compare_on_unseen_days(settings, period, names, make_progress(quiet))
        publish_on_demand(unseen_days, settings, AssetRows(table, {"day": day}))
        rows = table.to_pylist()
        title = f"{settings.trace}: USD of {period.unseen[0]} to {day}, tuned on {period.known[0]} to "
        show_unseen_board(rows, f"{title}{period.known[-1]} with {period.trials} trials of each policy")
        OUT.print(f"figures  {short_path(settings.figures(day))}/{{{','.join(unseen_drawings())}}}.png")
        OUT.print('tables   fleetcast sql "from unseen_board", "from unseen_days"')


def show_planners(found: pa.Table, trace: str, day: date) -> None:
    """Print a line per planner, cheapest first, then the resolution of the search and why planners failed.

    `found`: rows of the mart planner_board.
    """
    from fleetcast.assets.studies.planner_figures import describe_required_attainment

    all_rows = found.to_pylist()
    rows = [row for row in all_rows if row["ideas"] is None] or all_rows
    title = f"{trace}, {day}: USD where {describe_required_attainment(found.to_pandas())}"
    heads = ("\nplanner", "\nUSD", "over fleet-\ncast, %", "error\n± %", "GPU-\nhours", "lower\nbound",
             "whole in-\nstances", "\nrouting", "\nplan", "\nbooting", "\nscaling", "TTFT s\np95",
             "TPOT ms\np95", "\nquality")  # fmt: skip
    parts = ("fluid_usd", "constraint_usd", "routing_usd", "planned_usd", "boot_usd", "scaling_usd")
    lines = [
        (
            row["planner"],
            format_figure(row["total_usd"], ",.0f"),
            format_percent(row["over_fleetcast_share"], "+.1f"),
            format_percent(row["usd_error_share"], ".0f"),
            format_figure(row["gpu_hours"], ",.0f"),
            *(format_figure(row[part], ",.0f") for part in parts),
            format_figure(row["ttft_p95_s"], ".2f"),
            format_figure(None if row["tpot_p95_s"] is None else 1e3 * row["tpot_p95_s"], ".0f"),
            format_figure(row["quality"], ".3f"),
        )
        for row in rows
    ]
    show_board(title, heads, lines)
    show_resolution(rows)
    show_draws(rows)
    for row in rows:
        if row["failure_reason"]:
            best = format_percent(row["best_ratio"], ".1f")
            OUT.print(f"{row['planner']}: {row['failure_reason']}; at best {best} % of a target")


def show_draws(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the cost of each planner above that of fleetcast over the resamples of the day's requests."""
    most, ranges = max((row["kept_draws"] or 0 for row in rows), default=0), []
    for row in rows:
        if (
            row["kept_draws"]
            and row["low_over_fleetcast_share"] is not None
            and row["planner"] != "fleetcast"
        ):
            ends = " to ".join(
                format_percent(row[f"{end}_over_fleetcast_share"], "+.1f") for end in ("low", "high")
            )
            count = f" ({row['kept_draws']})" if row["kept_draws"] < most else ""
            ranges.append(f"{row['planner']} {ends} %{count}")
    if ranges:
        OUT.print(f"over fleetcast in {most} resamples of the requests: {', '.join(ranges)}")


def show_ideas(found: pa.Table) -> None:
    """Print the saving of each idea, added in order and in reverse order; `found`: rows of idea_worth."""
    rows = found.to_pylist()
    if len({row["way"] for row in rows}) < 2:
        return
    lines: Sequence[Sequence[str]] = [
        (
            row["way"],
            row["idea"] or "none",
            format_figure(row["total_usd"], ",.0f"),
            format_figure(row["saved_usd"], "+,.0f"),
            format_percent(row["saved_share"], "+.1f"),
        )
        for row in rows
    ]
    show_board("what each idea saves", ("order", "added idea", "USD", "saved", "%"), lines)
