"""Figures of the boards of unseen days: all traces of a lake side by side, and the trials of a trace."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fleetcast.assets.pages.figure_files import DrawFigure
from fleetcast.assets.pages.figure_style import (
    BLUE,
    FAINT,
    INK,
    MUTED,
    PALETTE,
    Figure,
    fill_empty_figure,
    policy_colours,
)
from fleetcast.assets.studies.unseen_days import CROSSED_POLICIES

COMPACT, ORANGE = "compact", PALETTE[1]
MOST_LINES = 8  # the eye separates no more
COST_TICKS = (0.5, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4, 6)
SHOWN_ATTAINMENT = (0.88, 1.05)  # over target
BOARDS_SQL = "from unseen_board order by trace, policy"


def unseen_drawings() -> Mapping[str, DrawFigure]:
    """Return the figures of a board of unseen days, by file name."""
    return {
        "unseen_boards": lambda settings, _: draw_boards(settings.lake.sql(BOARDS_SQL).to_pandas()),
        "knob_trades": lambda settings, _: draw_trades(
            settings.lake.sql("reads/knob_trades.sql", trace=settings.trace).to_pandas()
        ),
    }


def draw_boards(boards: pd.DataFrame) -> Figure:
    """Draw the cost of each policy over that of compact, a row for each trace; name the cheapest rival.

    `boards`: rows of the mart unseen_board.
    """
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    own = boards[boards["policy"] == COMPACT].set_index("trace")
    others = boards[boards["trace"].isin(own.index) & (boards["policy"] != COMPACT)]
    if others.empty:
        return fill_empty_figure(figure, f"no trace has a board with {COMPACT} and another policy")
    traces = sorted(own.index, reverse=True)
    panel.axvline(1.0, color=BLUE, zorder=1)
    for at, trace in enumerate(traces):
        rows = others[others["trace"] == trace]
        over = rows["total_usd"] / own.at[trace, "total_usd"]
        colours = [ORANGE if policy in CROSSED_POLICIES else MUTED for policy in rows["policy"]]
        faces = np.where(rows["is_ranked"], colours, "white").tolist()
        panel.axhline(at, color=FAINT, linewidth=0.8, zorder=0)
        face = BLUE if own.at[trace, "is_ranked"] else "white"
        panel.scatter(1.0, at, s=70, c=face, edgecolors=BLUE, linewidths=2, zorder=2)
        panel.scatter(over, [at] * len(rows), c=faces, edgecolors=colours, zorder=3)
        rivals = over[rows["is_ranked"] & ~rows["knows_the_day"]]
        if not rivals.empty:
            name, least = rows.loc[rivals.idxmin(), "policy"], rivals.min()
            text = f"{name} {least:.2f}"
            panel.annotate(
                text, (least, at), (4, 8), textcoords="offset points", ha="left", color=INK, fontsize=10
            )
    panel.set_yticks(range(len(traces)), traces)
    panel.set_ylim(-0.5, len(traces) - 0.3)
    panel.set(
        xscale="log",
        xlabel=f"cost over that of {COMPACT}, unseen days; hollow: not ranked",
        title="compact (blue), rivals with both its mechanisms (orange) and without",
    )
    low, high = panel.get_xlim()
    ticks = [tick for tick in COST_TICKS if low <= tick <= high]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
    panel.grid(visible=False)
    return figure


def draw_trades(trials: pd.DataFrame) -> Figure:
    """Draw attainment against cost on the known days, a line of trials for each of the cheapest policies.

    `trials`: rows of `reads/knob_trades.sql`. The large point of a line is the trial that was frozen.
    """
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    if trials.empty:
        return fill_empty_figure(figure, "the trace has no board of unseen days")
    by_rank = trials.sort_values(["is_ranked", "total_usd"], ascending=[False, True])
    names = by_rank["policy"].drop_duplicates().head(MOST_LINES).tolist()
    colours = policy_colours(names)
    for name in names:
        rows = trials[trials["policy"] == name].sort_values(["attained_ratio", "usd_per_day"])
        frozen = rows[rows["is_frozen"]].iloc[0]
        at = frozen["attained_ratio"], frozen["usd_per_day"]
        line = rows["attained_ratio"], rows["usd_per_day"]
        panel.plot(*line, color=colours[name], marker=".", linewidth=1.2)
        panel.scatter(*at, color=colours[name], s=60, zorder=3, label=name)
    panel.axvline(1.0, color=MUTED, linewidth=1)
    figure.legend(loc="outside right center", frameon=False, title="cheapest on\nunseen days first")
    dearest = trials.loc[trials["is_frozen"] & trials["policy"].isin(names), "usd_per_day"].max()
    panel.set(
        xlim=SHOWN_ATTAINMENT,
        ylim=(0, 1.3 * dearest),
        xlabel="attainment over target, worst tier of the worst known day; large point: the frozen trial",
        ylabel="USD a day, on known days",
    )
    return figure
