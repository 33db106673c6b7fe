"""`fleetcast board`: the planners of five papers and ours, to the same attainment and quality."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any

import pyarrow as pa
import typer

from fleetcast.pipelines.options import Config, Day, Quiet, progress_of, run_of
from fleetcast.pipelines.tables import OUT, figure, percent, show_board
from fleetcast.pipelines.terminal import near, spoken


def board(
    planner: Annotated[
        list[str] | None, typer.Option("--planner", help="One of them, or any policy; may be repeated.")
    ] = None,
    ideas: Annotated[
        bool, typer.Option("--ideas", help="Also what each idea on the way to ours is worth. Twice as long.")
    ] = False,
    draws: Annotated[
        int, typer.Option(help="Also so many other draws of the day's requests. Half as long again for each.")
    ] = 0,
    date_: Day = None,
    config: Config = "together",
    quiet: Quiet = False,
) -> None:
    """What would every planner cost on a planned day, where all attain the same? Minutes.

    How much of an instance each plan counts on is searched until every tier attains its target; on a day on
    which nobody can, as much of it as the least able planner does.

        fleetcast nightly --config together && fleetcast board

        fleetcast board --ideas

        fleetcast board --draws 3
    """
    with spoken():
        from fleetcast.assets.on_demand import planner_trials
        from fleetcast.assets.pages.on_demand import Made
        from fleetcast.assets.studies import planner_board
        from fleetcast.pipelines.runs import report_made

        settings, day = run_of(config, date_)
        table = planner_board.try_planners(settings, day, planner or (), ideas, progress_of(quiet), draws)
        report_made(planner_trials, settings, Made(table, {"day": day}))
        show_planners(planner_board.board(settings, day), settings.trace, day)
        show_ideas(planner_board.worth(settings, day))
        OUT.print(f"figure   {near(settings.figures(day))}/planner_board.png")
        OUT.print('tables   fleetcast sql "from planner_board", "from idea_worth", "from planner_trials"')


def show_planners(found: pa.Table, trace: str, day: date) -> None:
    """A line a planner, the cheapest first; below, why one is not found, and what the figures are worth."""
    every = found.to_pylist()
    rows = [row for row in every if row["ideas"] is None] or every
    from fleetcast.assets.studies.planner_figures import asked

    title = f"{trace}, {day}: USD where {asked(found.to_pandas())}"
    heads = ("\nplanner", "\nUSD", "over\nours, %", "error\n± %", "GPU-\nhours", "least\nany", "\nwhole",
             "\nrouted", "\nplan", "\nboots", "held\nbeside", "TTFT s\np95", "TPOT ms\np95",
             "\nquality")  # fmt: skip
    parts = ("fluid_usd", "whole_usd", "routing_usd", "planned_usd", "boot_usd", "scaling_usd")
    lines = [
        (
            row["planner"],
            figure(row["total_usd"], ",.0f"),
            percent(row["over_ours_share"], "+.1f"),
            percent(row["usd_error_share"], ".0f"),
            figure(row["gpu_hours"], ",.0f"),
            *(figure(row[part], ",.0f") for part in parts),
            figure(row["ttft_p95_s"], ".2f"),
            figure(None if row["tpot_p95_s"] is None else 1e3 * row["tpot_p95_s"], ".0f"),
            figure(row["quality"], ".3f"),
        )
        for row in rows
    ]
    show_board(title, heads, lines)
    apart = max((row["apart_share"] for row in rows if row["apart_share"] is not None), default=0.0)
    OUT.print(f"read where trials lie up to {percent(apart, '.1f')} % apart: differences below say nothing")
    show_draws(rows)
    for row in rows:
        if row["why_not"]:
            best = percent(row["best_ratio"], ".1f")
            OUT.print(f"{row['planner']}: {row['why_not']}; at best {best} % of a target", soft_wrap=True)


def show_draws(rows: Sequence[Mapping[str, Any]]) -> None:
    """What each costs above ours where another draw of the day's requests came."""
    most, told = max((row["draws"] or 0 for row in rows), default=0), []
    for row in rows:
        if row["draws"] and row["low_over_ours_share"] is not None and row["planner"] != "ours":
            ends = " to ".join(percent(row[f"{end}_over_ours_share"], "+.1f") for end in ("low", "high"))
            told.append(f"{row['planner']} {ends} %" + (f" ({row['draws']})" if row["draws"] < most else ""))
    if told:
        OUT.print(f"over ours in {most} other draws of the requests: {', '.join(told)}", soft_wrap=True)


def show_ideas(found: pa.Table) -> None:
    """A line a step, both ways."""
    rows = found.to_pylist()
    if len({row["way"] for row in rows}) < 2:
        return
    lines: Sequence[Sequence[str]] = [
        (
            row["way"],
            row["idea"] or "none",
            figure(row["total_usd"], ",.0f"),
            figure(row["saved_usd"], "+,.0f"),
            percent(row["saved_share"], "+.1f"),
        )
        for row in rows
    ]
    show_board("what each idea saves", ("way", "one idea more", "USD", "saved", "%"), lines)
