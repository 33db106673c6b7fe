"""The figure of the forecast leaderboard: how far off each method is, and at what price in CPU time."""

from datetime import date
from typing import TYPE_CHECKING

import pandas as pd

from assets.settings import Settings
from assets.style import BLUE, FAINT, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINE = "last_value"


def draw_leaderboard(frame: pd.DataFrame, planned: str) -> "Figure":
    """WAPE of each method, one panel per horizon, in the order of the hour ahead; the planned one in blue.

    `frame`: rows of the mart forecast_leaderboard.
    """
    import matplotlib.pyplot as plt

    horizons = sorted(frame["horizon_minutes"].unique())
    by_hour = frame[frame["horizon_minutes"] == min(horizons, key=lambda minutes: abs(minutes - 60))]
    methods = list(by_hour.sort_values("wape_share", ascending=False)["method"])
    figure, axes = plt.subplots(1, len(horizons), sharey=True, squeeze=False)
    for panel, minutes in zip(axes.flat, horizons, strict=True):
        rows = frame[frame["horizon_minutes"] == minutes].set_index("method").reindex(methods)
        error = 100 * rows["wape_share"]
        colours = [BLUE if method == planned else FAINT for method in methods]
        panel.barh(methods, error, color=colours)
        panel.axvline(error[BASELINE], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        for method, value in error.items():
            colour = "white" if method == planned else INK
            panel.annotate(f" {value:.1f}", (0, method), va="center", fontsize=10, color=colour)
        panel.set_title(f"{minutes} minutes ahead")
        panel.grid(visible=False)
    figure.supxlabel("absolute error, % of what came (dashes: the last value)", fontsize=12)
    return figure


def forecast_leaderboard(settings: Settings, day: date) -> "Figure":
    """The figure of all days backtested so far."""
    query = "select * from forecast_leaderboard where trace = $trace"
    frame = settings.lake.sql(query, trace=settings.trace).to_pandas()
    return draw_leaderboard(frame, settings.config.forecast.method)
