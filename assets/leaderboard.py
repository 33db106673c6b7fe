"""The figures of the forecast leaderboards: how far off each method is, and what that costs."""

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


def draw_decisions(frame: pd.DataFrame, planned: str) -> "Figure":
    """Attainment against GPU-hours, a line per method: the further to the left, the more a forecast is worth.

    `frame`: rows of the table decisions.
    """
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    colours = {planned: BLUE, "truth": INK}
    for method, rows in frame.sort_values("capacity_share").groupby("method", sort=False):
        colour, attained = colours.get(str(method), MUTED), 100 * rows["iw_fast_attainment_share"]
        panel.plot(
            rows["gpu_hours"], attained, color=colour, marker="o", linewidth=2 if colour != MUTED else 1
        )
        end = (rows["gpu_hours"].iloc[-1], attained.iloc[-1])
        panel.annotate(
            f"{method} ", end, (-6, -4), color=colour, ha="right", fontsize=10, textcoords="offset points"
        )
    matched = 100 * frame["matched_share"].iloc[0]
    panel.axhline(matched, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    panel.annotate("the SLO's target", (panel.get_xlim()[1], matched), (0, 5), ha="right", color=MUTED,
                   fontsize=10, textcoords="offset points")  # fmt: skip
    panel.set(xlabel="GPU-hours of the day", ylabel="iw_fast requests within their SLO, %")
    return figure


def decision_curves(settings: Settings, day: date) -> "Figure":
    """The figure of a day's decisions."""
    query = "select * from decisions where trace = $trace and day = $day"
    frame = settings.lake.sql(query, trace=settings.trace, day=day).to_pandas()
    return draw_decisions(frame, settings.config.forecast.method)
