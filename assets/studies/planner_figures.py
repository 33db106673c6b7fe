"""Draw the planner leaderboard: the cost of a day under each planner, and what each idea saves."""

from datetime import date

import pandas as pd

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.pages.figure_files import DrawFigure
from fleetcast.assets.pages.figure_style import BLUE, FAINT, INK, MUTED, Axes, Figure
from fleetcast.assets.studies.planner_board import FLEETCAST_PLANNER, read_idea_worth, read_planner_board
from fleetcast.models.world.planners import BOARD_PLANNERS


def describe_required_attainment(frame: pd.DataFrame) -> str:
    """Return the attainment required of all planners, in words; `frame`: rows with required_ratio."""
    ratio = frame["required_ratio"].min()
    attained = "its target" if not ratio < 1 else f"{ratio:.1%} of its target, the most that all reach"
    return f"every tier attains {attained}, and quality is kept"


def draw_planners(frame: pd.DataFrame) -> Figure:
    """Draw USD of the day by planner, the cheapest on top, fleetcast in colour.

    `frame`: rows of the mart planner_board. The error of the latency profiles moves all planners together, so
    fleetcast alone has a whisker, its 90 % interval. A thick line is the range over resamples.
    """
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    rows = frame[frame["planner"].isin(list(BOARD_PLANNERS))].sort_values("total_usd", ascending=False)
    usd = rows["total_usd"].fillna(0.0)
    panel.barh(
        rows["planner"], usd, color=[BLUE if name == FLEETCAST_PLANNER else FAINT for name in rows["planner"]]
    )
    common = rows[rows["planner"] == FLEETCAST_PLANNER].dropna(subset=["total_usd", "usd_error_share"])
    panel.errorbar(
        common["total_usd"], common["planner"], xerr=common["total_usd"] * common["usd_error_share"],
        fmt="none", ecolor=MUTED,
    )  # fmt: skip
    resampled = rows.dropna(subset="low_usd")
    panel.hlines(resampled["planner"], resampled["low_usd"], resampled["high_usd"], color=INK, lw=5, zorder=3)
    for _, row in rows.iterrows():
        is_found = not pd.isna(row["total_usd"])
        text = f"  {row['total_usd']:,.0f} USD" if is_found else f"  {row['failure_reason']}"
        is_highlighted = row["planner"] == FLEETCAST_PLANNER and is_found
        panel.annotate(
            text, (0, row["planner"]), va="center", color="white" if is_highlighted else INK, fontsize=10
        )
    thick = "; thick: resamples of its requests" if len(resampled) else ""
    panel.set(
        xlabel=f"USD of the day where {describe_required_attainment(frame)}\nthin: error of the latency "
        f"profiles, common to all{thick}"
    )
    panel.grid(visible=False)
    return figure


def draw_ideas(frame: pd.DataFrame) -> Figure:
    """Draw USD of the day as ideas are added one by one: a panel for each of the two orders.

    `frame`: rows of the mart idea_worth.
    """
    import matplotlib.pyplot as plt

    figure, multiples = plt.subplots(1, 2, sharex=True)
    for panel, way, title in zip(
        multiples, ("forward", "backward"), ("ideas in order", "ideas in reverse order"), strict=True
    ):
        rows = frame[frame["way"] == way].sort_values("ideas_so_far", ascending=False)
        _draw_way(panel, rows)
        panel.set_title(title)
    figure.supxlabel(f"USD of the day where {describe_required_attainment(frame)}", fontsize=12)
    return figure


def _draw_way(panel: Axes, rows: pd.DataFrame) -> None:
    """Draw a bar per step, labelled with its cost and the saving of the added idea."""
    names = [f"+ {idea}" if isinstance(idea, str) else "plain" for idea in rows["idea"]]
    usd = rows["total_usd"].fillna(0.0)
    is_whole = (rows["ideas_so_far"] == rows["ideas_so_far"].max()).tolist()
    panel.barh(names, usd, color=[BLUE if whole else FAINT for whole in is_whole])
    for name, whole, (_, row) in zip(names, is_whole, rows.iterrows(), strict=True):
        if pd.isna(row["total_usd"]):
            text = "  never attains the targets"
        else:
            saved = "" if pd.isna(row["saved_share"]) else f"   {-row['saved_share']:+.1%}"
            text = f"  {row['total_usd']:,.0f}{saved}"
        is_highlighted = whole and not pd.isna(row["total_usd"])
        panel.annotate(text, (0, name), va="center", color="white" if is_highlighted else INK, fontsize=10)
    panel.grid(visible=False)


def planner_drawings(settings: RunSettings, day: date) -> dict[str, DrawFigure]:
    """Return the figures of a day's leaderboard, with that of the ideas if they were tested."""
    drawings: dict[str, DrawFigure] = {
        "planner_board": lambda *of: draw_planners(read_planner_board(*of).to_pandas())
    }
    if read_idea_worth(settings, day).num_rows:
        drawings["idea_worth"] = lambda *of: draw_ideas(read_idea_worth(*of).to_pandas())
    return drawings
