"""Draw the level trials: instances over levels, TTFT by level, headroom, and attainment by stack.

Each `draw_*` takes the rows of one endpoint; `level_drawings` reads them for a day.
"""

from collections.abc import Iterator, Sequence
from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.pages.figure_files import DrawFigure
from fleetcast.assets.pages.figure_style import (
    FAINT,
    INK,
    MUTED,
    PALETTE,
    Axes,
    Figure,
    add_figure_legend,
    fill_empty_figure,
    start_y_axes_at_zero,
)
from fleetcast.assets.studies.level_trials import ALL_LEVELS, LIMIT_STACK
from fleetcast.models.world.stacks import REPLAY_STACKS

SHADES = (*PALETTE, "#8C6D31", "#882255", "#999933", MUTED, FAINT)
STACK_COLOURS = dict(zip((name for name in REPLAY_STACKS if name != LIMIT_STACK), SHADES, strict=False)) | {
    LIMIT_STACK: INK
}
DASHED_LINE = (0, (4, 3))
WAY = ["needs_by", "load_factor"]


def draw_level_value(frame: pd.DataFrame) -> Figure:
    """Draw the fewest instances that meet all needs over levels: a line per stack, at its best headroom.

    `frame`: rows of the mart level_value; a panel for each source of needs and each load. Dashed: edf.
    """
    figure, multiples = panels_in_a_row(frame.groupby(WAY).ngroups)
    for panel, (way, rows) in zip(multiples, frame.groupby(WAY), strict=True):
        best = rows.groupby(["stack", "levels"], as_index=False)["instances"].min()
        for stack, of_stack in group_by_stack(best[best["stack"] != LIMIT_STACK]):
            panel.plot(
                of_stack["levels"],
                of_stack["instances"],
                color=STACK_COLOURS[stack],
                marker="o",
                markersize=5,
            )
        limit = best.loc[best["stack"] == LIMIT_STACK, "instances"].min()
        if not np.isnan(limit):
            panel.axhline(limit, color=INK, linewidth=1, linestyle=DASHED_LINE)
        panel.set_title(way_title(way))
        panel.set_xlabel("priority levels")
        panel.set_xticks(sorted(best["levels"].unique()))
    start_y_axes_at_zero(multiples)
    multiples[0].set_ylabel("fewest instances that meet all needs")
    return add_stack_legend(figure, frame)


def draw_level_ttft(frame: pd.DataFrame) -> Figure:
    """Draw TTFT by level, P99 solid and P50 dashed: a panel per number of levels, a line per stack.

    `frame`: rows of level_trials on today's instances, of one source of needs and one load.
    """
    rows = frame[(frame["level"] != ALL_LEVELS) & (frame["stack"] != LIMIT_STACK)]
    rows = frame_with_least_headroom(rows.assign(level=rows["level"].astype(int)))
    figure, multiples = panels_in_a_row(rows["levels"].nunique(), shared=True)
    for panel, levels in zip(multiples, sorted(map(int, rows["levels"].unique())), strict=True):
        for stack, of_stack in group_by_stack(rows[rows["levels"] == levels].sort_values("level")):
            for column, line in (("ttft_p99_s", "-"), ("ttft_p50_s", DASHED_LINE)):
                panel.plot(
                    of_stack["level"],
                    of_stack[column],
                    color=STACK_COLOURS[stack],
                    linestyle=line,
                    marker="o",
                    markersize=4,
                )
        panel.set_yscale("log")
        panel.set_title(f"{levels} level{'s' * (levels > 1)}")
        panel.set_xticks(range(levels))
        panel.set_xlabel("level")
    multiples[0].set_ylabel("TTFT, s: P99 solid, P50 dashed")
    return add_stack_legend(figure, rows)


def draw_headroom(frame: pd.DataFrame) -> Figure:
    """Draw misses of level 0 over TTFT of the lowest level: a point per headroom, a line per stack.

    `frame`: rows of the mart level_isolation, of one source of needs and one load. A panel per number of
    levels.
    """
    rows = frame[frame["headroom_share"].groupby(frame["stack"]).transform("max") > 0]
    if not len(rows):
        import matplotlib.pyplot as plt

        return fill_empty_figure(plt.figure(), "no trial of a stack with headroom")
    figure, multiples = panels_in_a_row(rows["levels"].nunique(), shared=True)
    for panel, (levels, panel_rows) in zip(multiples, rows.groupby("levels"), strict=True):
        for stack, of_stack in group_by_stack(panel_rows.sort_values("headroom_share")):
            missed = 100 * of_stack["top_missed_share"]
            panel.plot(of_stack["bottom_ttft_p99_s"], missed, color=STACK_COLOURS[stack], marker="o")
            for share, x, y in zip(
                of_stack["headroom_share"], of_stack["bottom_ttft_p99_s"], missed, strict=True
            ):
                panel.annotate(f" {share:.0%}", (x, y), fontsize=9, color=STACK_COLOURS[stack])
        panel.set_title(f"{levels} levels")
        panel.set_xlabel("lowest level: TTFT P99, s")
    start_y_axes_at_zero(multiples)
    multiples[0].set_ylabel("level 0: SLO missed, %")
    return add_stack_legend(figure, rows)


def draw_ablation(frame: pd.DataFrame) -> Figure:
    """Draw attainment on today's instances, a row per stack: of all requests, level 0 and the lowest level.

    `frame`: rows of level_trials on today's instances, of one source of needs and one load. Each stack is
    shown with its most levels and its least headroom.
    """
    rows = frame_with_least_headroom(
        frame[frame["levels"] == frame.groupby("stack")["levels"].transform("max")]
    )
    figure, multiples = panels_in_a_row(3, shared=True)
    share = (100 * rows["met"] / rows["requests"]).set_axis(
        pd.MultiIndex.from_frame(rows[["stack", "level"]])
    )
    levels = {
        stack: int(of_stack["levels"].iloc[0]) for stack, of_stack in reversed(list(group_by_stack(rows)))
    }
    for panel, title in zip(multiples, ("all requests", "level 0", "the lowest level"), strict=True):
        for stack, count in levels.items():
            level = {"all requests": ALL_LEVELS, "level 0": "0"}.get(title, str(count - 1))
            panel.barh(stack, share[stack, level], color=STACK_COLOURS[stack])
            panel.annotate(f" {share[stack, level]:.1f}", (0, stack), va="center", fontsize=10, color="white")
        panel.set_title(title)
        panel.set_xlim(0, 100)
        panel.grid(visible=False)
    figure.supxlabel("requests that met their need, %", fontsize=12)
    return figure


def panels_in_a_row(count: int, shared: bool = False) -> tuple[Figure, "list[Axes]"]:
    """Return a figure with `count` panels in a row."""
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(1, count, squeeze=False, sharey=shared)
    return figure, list(grid[0])


def group_by_stack(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of each stack, in the order of REPLAY_STACKS."""
    for stack in REPLAY_STACKS:
        of_stack = rows[rows["stack"] == stack]
        if len(of_stack):
            yield stack, of_stack


def frame_with_least_headroom(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the least headroom of each stack and number of levels."""
    least = rows.groupby(["stack", "levels"])["headroom_share"].transform("min")
    return rows[rows["headroom_share"] == least]


def way_title(way: Sequence[object]) -> str:
    """Return the panel title of a source of needs and a load."""
    needs_by, load = way
    return f"needs by {needs_by}" + ("" if load == 1 else f", {load:g} times the load")


def add_stack_legend(figure: Figure, rows: pd.DataFrame) -> Figure:
    """Add a legend of the stacks to a figure."""
    stacks = [stack for stack in STACK_COLOURS if stack in set(rows["stack"])]
    add_figure_legend(figure, [(stack, STACK_COLOURS[stack]) for stack in stacks], in_a_row=5)
    return figure


def level_drawings(llm: str, region: str, needs_by: str, load: float) -> dict[str, DrawFigure]:
    """Return the figures of an endpoint; those of one source of needs and one load show the given ones."""

    def rows_of(table: str, settings: RunSettings, day: date) -> pd.DataFrame:
        of_endpoint = "trace = $trace and day = $day and llm = $llm and region = $region"
        endpoint = {"trace": settings.trace, "day": day, "llm": llm, "region": region}
        return settings.lake.sql(f"select * from {table} where {of_endpoint}", **endpoint).to_pandas()

    def rows_of_needs(table: str, settings: RunSettings, day: date) -> pd.DataFrame:
        rows = rows_of(table, settings, day)
        return rows[(rows["needs_by"] == needs_by) & (rows["load_factor"] == load)]

    def today(settings: RunSettings, day: date) -> pd.DataFrame:
        rows = rows_of_needs("level_trials", settings, day)
        return rows[rows["is_today"]]

    return {
        "level_value": lambda *of: draw_level_value(rows_of("level_value", *of)),
        "level_ttft": lambda *of: draw_level_ttft(today(*of)),
        "headroom": lambda *of: draw_headroom(rows_of_needs("level_isolation", *of)),
        "ablation": lambda *of: draw_ablation(today(*of)),
    }
