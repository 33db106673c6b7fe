"""Draw the weekly cost and the regret of each commitment: a panel per region and GPU type."""

from datetime import date

import pandas as pd

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.figure_files import save_day_figure
from fleetcast.assets.pages.figure_style import (
    BLUE,
    INK,
    MUTED,
    Figure,
    add_figure_legend,
    start_y_axes_at_zero,
)


def draw_commitments(settings: RunSettings, day: date) -> LakePath:
    """Draw the commitments of a day's buying list into the folder of the day's figures."""
    frame = settings.day_rows("commitments", day, "served_region, gpu, reserved_gpus").to_pandas()
    return save_day_figure(settings, day, "commitments", lambda: draw_commitment_curves(frame))


def draw_commitment_curves(frame: pd.DataFrame) -> Figure:
    """Draw weekly cost and worst regret, thousand USD, over reserved GPUs; a point marks the best.

    `frame`: served_region, gpu, reserved_gpus, usd_per_week, worst_regret_usd, is_best.
    """
    import matplotlib.pyplot as plt

    places = list(frame.groupby(["served_region", "gpu"], sort=False))
    several = frame["gpu"].nunique() > 1
    columns = min(len(places), 3)
    figure, grid = plt.subplots(-(-len(places) // columns), columns, sharey=True, squeeze=False)
    for spare in grid.flat[len(places) :]:
        spare.set_visible(False)
    panels = list(grid.flat[: len(places)])
    for panel, ((region, gpu), rows) in zip(panels, places, strict=True):
        panel.plot(rows["reserved_gpus"], rows["usd_per_week"] / 1e3, color=BLUE, linewidth=1.5)
        panel.plot(rows["reserved_gpus"], rows["worst_regret_usd"] / 1e3, color=MUTED, linewidth=1.5)
        best = rows[rows["is_best"]]
        panel.scatter(best["reserved_gpus"], best["usd_per_week"] / 1e3, color=INK, zorder=3)
        name = f"{region}, {gpu}" if several else region
        panel.set_title(f"{name}   {best['reserved_gpus'].iloc[0]}")
        panel.set_xlim(left=0)
    start_y_axes_at_zero(panels)
    add_figure_legend(
        figure, [("cost per week", BLUE), ("regret in the worst week", MUTED), ("cheapest commitment", INK)]
    )
    figure.supylabel("thousand USD", fontsize=12)
    figure.supxlabel("reserved GPUs (panel titles: the cheapest number)", fontsize=12)
    return figure
