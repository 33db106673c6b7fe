"""The page of a day's plan: its changes with their reasons, and its capacity against the actual load."""

from datetime import date

import pandas as pd

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.figure_files import save_day_figure
from fleetcast.assets.pages.figure_style import (
    BLUE,
    FAINT,
    INK,
    Figure,
    add_figure_legend,
    draw_stairs,
    fill_stairs,
    make_day_panels,
    start_y_axes_at_zero,
)
from fleetcast.assets.plans.plan_export import describe_deployment

PLAN_PAGE_POLICY = "corrected"
PLAN_PAGE_COLUMNS = ("hour, UTC", "llm", "region", "deployment", "instances", "why")


def describe_plan_changes(settings: RunSettings, day: date) -> list[dict[str, str]]:
    """Return every change of the day's plan as texts, hour by hour, with its reason."""
    changes = settings.lake.sql(
        "queries/plan_changes.sql", trace=settings.trace, day=day, policy=PLAN_PAGE_POLICY
    )
    return [
        {
            "hour, UTC": f"{row['hour_start']:%H:%M}",
            "llm": row["llm"],
            "region": row["served_region"],
            "deployment": describe_deployment(row),
            "instances": f"{row['instances_before']} to {row['instances']}",
            "why": row["why"],
        }
        for row in changes.to_pylist()
    ]


def draw_plan_page(settings: RunSettings, day: date) -> LakePath:
    """Draw the plan of each llm over all regions and save it as plan.png."""
    frame = settings.lake.sql(
        "reads/plan_page.sql", trace=settings.trace, day=day, policy=PLAN_PAGE_POLICY
    ).to_pandas()
    return save_day_figure(settings, day, "plan", lambda: draw_plan(frame))


def draw_plan(frame: pd.DataFrame) -> Figure:
    """Draw thousand input tokens/s of each llm: the actual load, the expected load, the planned capacity.

    `frame` has llm, window_start, and planned_, expected_ and actual_tokens_per_s (tokens/s), in order of
    time. The expected and the actual load include the buffer for deferrable requests.
    """
    llms = list(dict.fromkeys(frame["llm"]))
    figure, multiples = make_day_panels(len(llms), columns=2)
    for panel, llm in zip(multiples, llms, strict=True):
        rows = frame[frame["llm"] == llm]
        fill_stairs(panel, rows["window_start"], rows["actual_tokens_per_s"] / 1e3)
        draw_stairs(panel, rows["window_start"], rows["expected_tokens_per_s"] / 1e3, BLUE)
        draw_stairs(panel, rows["window_start"], rows["planned_tokens_per_s"] / 1e3, INK)
        actual, planned = (rows[f"{name}_tokens_per_s"].sum() for name in ("actual", "planned"))
        panel.set_title(
            f"{llm}   {1 - actual / planned:.0%} to spare" if planned else f"{llm}   nothing planned"
        )
    start_y_axes_at_zero(multiples)
    add_figure_legend(
        figure,
        [
            ("actual load", FAINT),
            ("expected load", BLUE),
            ("planned capacity", INK),
        ],
    )
    figure.supylabel("input with the batch buffer, thousand tokens/s", fontsize=12)
    return figure
