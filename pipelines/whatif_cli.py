"""`fleetcast whatif` and `fleetcast decide`: a planned day in other conditions, or by other forecasts."""

from datetime import date
from typing import Annotated

import pyarrow as pa
import typer

from fleetcast.pipelines.error_cli import show_differences, show_savings
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


def whatif_command(
    cases: Annotated[
        list[str] | None,
        typer.Argument(
            help="Cases of data/whatif.toml; default: all that the config can have.", metavar="CASE"
        ),
    ] = None,
    policy: Annotated[str, typer.Option(help="The policy to plan and replay.")] = "corrected",
    date_: DayOption = None,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Plan and replay a day with other demand, prices, GPUs, regions, budgets: cost and SLO attainment.

        fleetcast whatif

        fleetcast whatif as_is min_1 demand_1_3

        fleetcast whatif demand_1_3 --policy reactive

    The day must have forecasts (`fleetcast nightly`). A case takes about ten seconds. Its row has the cost,
    the attainment, and what the plan could not carry: hours with load that no region serves, demand served
    in more distant regions than epsilon allows, the missing part of niw's buffer, hours in which an endpoint
    has fewer instances than its minimum.
    """
    with cli_errors():
        from fleetcast.assets.studies.whatif import draw_whatif_cases, list_made_cases, run_whatif_cases
        from fleetcast.assets.studies_on_demand import whatifs
        from fleetcast.pipelines.runs import publish_on_demand

        settings, day = load_settings_and_day(config, date_)
        table = run_whatif_cases(settings, day, cases or [], make_progress(quiet), policy)
        publish_on_demand(whatifs, settings, *list_made_cases(table, day))
        show_whatifs(table, settings.trace, day, policy)
        show_differences(settings, day, table)
        OUT.print(f"figure   {short_path(draw_whatif_cases(settings, day, table.to_pandas()))}")
        OUT.print('table    fleetcast sql "from whatifs"')


def decide_command(
    date_: DayOption = None, config: ConfigOption = "office", quiet: QuietOption = False
) -> None:
    """Plan and replay a planned day with every forecast method, to compare their value. Takes minutes.

    fleetcast decide

    fleetcast sql sql/queries/which_forecast_pays.sql
    """
    with cli_errors():
        from fleetcast.assets.studies import decisions
        from fleetcast.assets.studies_on_demand import decisions as decisions_asset
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings, day = load_settings_and_day(config, date_)
        table = decisions.try_forecasts(settings, day, make_progress(quiet))
        publish_on_demand(decisions_asset, settings, AssetRows(table, {"day": day}))
        board = settings.lake.sql(decisions.DECISION_LEADERBOARD_SQL, trace=settings.trace, day=day)
        show_decisions(board, settings.trace, day)
        show_savings(settings, day, board)
        OUT.print(f"figure   {short_path(settings.figures(day))}/decision_curves.png")
        OUT.print('tables   fleetcast sql "from decisions", "from decision_leaderboard"')


def show_whatifs(cases: pa.Table, trace: str, day: date, policy: str) -> None:
    """Print the cost and attainment of each what-if case; `cases`: rows of the mart whatifs."""
    title = f"what if under {policy}, {trace}, {day}   (attainment in %)"
    attained = [row["attainment_by_tier"] or {} for row in cases.to_pylist(maps_as_pydicts="strict")]
    tiers = list(dict.fromkeys(tier for row in attained for tier in row))
    heads = ("\n\ncase", "\n\nUSD", "USD,\ndear-\nest h", "\nGPU-\nhours",
             *(("SLO\nattained\n" if n == 0 else "\n\n") + tier for n, tier in enumerate(tiers)),
             "plan\nshort,\nhours", "too\nfar,\n%", "buffer\nlost,\n%", "below\nmin,\nhours")  # fmt: skip
    rows = [
        (
            row["case_name"],
            *(format_figure(row[name], ",.0f") for name in ("usd", "dearest_hour_usd", "gpu_hours")),
            *(format_percent(shares.get(tier), ".2f") for tier in tiers),
            str(row["short_hours"]),
            *(format_percent(row[name], ".1f") for name in ("remote_share", "buffer_short_share")),
            str(row["below_minimum_hours"]),
        )
        for row, shares in zip(cases.to_pylist(), attained, strict=True)
    ]
    show_board(title, heads, rows)
    for row in cases.to_pylist():
        OUT.print(f"{row['case_name']}: {row['what']}")


def show_decisions(board: pa.Table, trace: str, day: date) -> None:
    """Print the cost of each forecast method at equal attainment, the cheapest first.

    `board`: rows of the mart decision_leaderboard.
    """
    rows = board.to_pylist()
    at = f"{format_percent(rows[0]['matched_share'], '.0f')} % attainment of {rows[0]['tier']}"
    title = f"value of forecasts, {trace}, {day}   (GPU-hours at {at})"
    heads = ("\nforecast", "GPU-\nhours", "\nUSD", "for the\nerror", "for\nboots", "over\ntruth, %",
             "saved on last\nvalue, %", "on seasonal\nnaive, %")  # fmt: skip
    shares = ("over_truth_share", "saved_on_last_value_share", "saved_on_seasonal_naive_share")
    lines = []
    for row in rows:
        figures = (
            format_figure(row[name], ",.0f") for name in ("gpu_hours", "usd", "forecast_usd", "boot_usd")
        )
        lines.append((row["method"], *figures, *(format_percent(row[name], "+.1f") for name in shares)))
    show_board(title, heads, lines)
    show_resolution(rows)
    for row in rows:
        if row["failure_reason"]:
            OUT.print(f"{row['method']}: {row['failure_reason']}")
