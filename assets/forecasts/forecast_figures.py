"""Figures of forecasts: the error of each method, and what the errors cost."""

from datetime import date

import pandas as pd

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.pages.figure_style import BLUE, FAINT, INK, MUTED, Axes, Figure, add_line_legend

BASELINE_METHOD = "last_value"


def draw_forecast_leaderboard(frame: pd.DataFrame, planned: str) -> Figure:
    """Plot the WAPE of each method: a row of panels per tier, one panel per horizon.

    Methods are ordered by their error an hour ahead; the planned method is blue. `frame` has the rows of the
    mart forecast_leaderboard.
    """
    import matplotlib.pyplot as plt

    horizons, tiers = sorted(frame["horizon_minutes"].unique()), sorted(frame["tier"].unique())
    figure, axes = plt.subplots(len(tiers), len(horizons), sharey="row", squeeze=False)
    figure.set_figheight(figure.get_figheight() * len(tiers))
    for tier, panels in zip(tiers, axes, strict=True):
        of_tier = frame[frame["tier"] == tier]
        hour = of_tier[of_tier["horizon_minutes"] == min(horizons, key=lambda minutes: abs(minutes - 60))]
        methods = list(hour.sort_values("wape_share", ascending=False)["method"])
        for panel, minutes in zip(panels, horizons, strict=True):
            rows = of_tier[of_tier["horizon_minutes"] == minutes].set_index("method").reindex(methods)
            _draw_error_bars(panel, 100 * rows["wape_share"], planned)
            panel.set_title(f"{tier}, {minutes} minutes ahead")
    figure.supxlabel("absolute error, % of the demand (dashes: the last value)", fontsize=12)
    return figure


def _draw_error_bars(panel: Axes, error: pd.Series, planned: str) -> None:
    """Plot one bar per method with its error, in %."""
    panel.barh(
        list(error.index), error, color=[BLUE if method == planned else FAINT for method in error.index]
    )
    panel.axvline(error[BASELINE_METHOD], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    for method, value in error.items():
        colour = "white" if method == planned else INK
        panel.annotate(f" {value:.1f}", (0, str(method)), va="center", fontsize=10, color=colour)
    panel.grid(visible=False)


def forecast_leaderboard_figure(settings: RunSettings, day: date) -> Figure:
    """Return the figure of all backtested tiers and days of the trace."""
    query = "select * from forecast_leaderboard where trace = $trace"
    frame = settings.lake.sql(query, trace=settings.trace).to_pandas()
    return draw_forecast_leaderboard(frame, settings.config.forecast.method)


def draw_decisions(frame: pd.DataFrame, planned: str) -> Figure:
    """Plot attainment against GPU-hours, one line per method: the further left, the better the forecast.

    `frame` has the rows of the table decisions. Only the range around the SLO's target is shown.
    """
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    matched, cheapest = 100 * frame["matched_share"].iloc[0], frame["gpu_hours"].min()
    colours = {planned: BLUE, "truth": INK}
    others = iter(("-", "--", ":", "-."))
    for method, rows in frame.sort_values("capacity_share").groupby("method", sort=False):
        is_named = method in colours
        panel.plot(
            rows["gpu_hours"],
            100 * rows["attainment_share"],
            color=colours.get(str(method), MUTED),
            linestyle="-" if is_named else next(others, "-"),
            linewidth=2.5 if is_named else 1.2,
            marker="o",
            label=str(method),
        )
    panel.axhline(matched, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    panel.set_xlim(0.97 * cheapest, 1.45 * cheapest)
    panel.set_ylim(matched - 8, 100)
    panel.annotate("the SLO's target", (0.99, matched), (0, -14), xycoords=("axes fraction", "data"),
                   ha="right", color=MUTED, fontsize=10, textcoords="offset points")  # fmt: skip
    add_line_legend(figure, panel, in_a_row=5)
    panel.set(xlabel="GPU-hours of the day", ylabel=f"{frame['tier'].iloc[0]} requests within their SLO, %")
    return figure


def decision_curves_figure(settings: RunSettings, day: date) -> Figure:
    """Return the figure of a day's decisions."""
    query = "select * from decisions where trace = $trace and day = $day"
    frame = settings.lake.sql(query, trace=settings.trace, day=day).to_pandas()
    return draw_decisions(frame, settings.config.forecast.method)
