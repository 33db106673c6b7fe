"""The house style of the figures: colours for every eye, and the few strokes that they share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, FAINT, BLUE = "#222222", "#767676", "#DDDDDD", "#0072B2"
# Okabe and Ito's colours, which colour-blind readers can tell apart; a policy has the same in every figure.
COLOURS = {
    "static": "#767676",
    "siloed": "#E69F00",
    "reactive": "#D55E00",
    "hpa": "#8C6D31",
    "chiron": "#B5A800",
    "dynamo": "#76B900",
    "lt_i": "#56B4E9",
    "lt_u": "#0072B2",
    "lt_ua": "#009E73",
    "corrected": "#CC79A7",
    "corrected_closed": "#882255",
    "day_ahead": "#332288",
    "clairvoyant": "#222222",
}
GAP, LETTER = 0.02, 0.0105  # of the axes' width: from a point to its name, and a letter of it
STYLE: dict[Any, Any] = {
    "figure.figsize": (10, 5.6),
    "figure.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "lines.linewidth": 2,
}


def panels(count: int, columns: int) -> tuple["Figure", list["Axes"]]:
    """Small multiples of one day."""
    import matplotlib.pyplot as plt

    columns = min(columns, count)
    figure, grid = plt.subplots(
        -(-count // columns), columns, sharex=True, sharey=columns == 3, squeeze=False
    )
    for spare in grid.flat[count:]:
        spare.set_visible(False)
    panels = list(grid.flat[:count])
    for panel in panels:
        panel.set_xlim(0, 24)
        panel.set_xticks([0, 6, 12, 18, 24])
    figure.supxlabel("hour of the day, UTC", fontsize=12)
    return figure, panels


def steps(times: pd.Series, values: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Hours and values of a staircase, its last step drawn to its end."""
    hours = ((times - times.min().normalize()).dt.total_seconds() / 3600).to_numpy(float)
    width = hours[1] - hours[0] if len(hours) > 1 else 24.0
    return np.append(hours, hours[-1] + width), np.append(values, values.iloc[-1])


def area(panel: "Axes", times: pd.Series, values: pd.Series) -> None:
    hours, heights = steps(times, values)
    panel.fill_between(hours, heights, color=FAINT, step="post", linewidth=0)


def stairs(panel: "Axes", times: pd.Series, values: pd.Series, colour: str) -> None:
    hours, heights = steps(times, values)
    panel.step(hours, heights, where="post", color=colour)


def ground(multiples: Sequence["Axes"]) -> None:
    """Let the y axes begin at 0, once all is drawn: a limit that is set stops an axis from growing."""
    for panel in multiples:
        panel.set_ylim(bottom=0)


def legend(figure: "Figure", entries: Sequence[tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=label) for label, colour in entries]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(entries), frameon=False)


def close(x: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[list[int]]:
    """Group points (in axes fractions) whose names would overlap, so that one label names them all."""
    groups: list[list[int]] = []
    for point in np.lexsort((y, x)):
        room = (GAP + LETTER * sum(len(names[member]) + 2 for member in group) for group in groups)
        near = (
            group
            for group, width in zip(groups, room, strict=True)
            if x[point] - x[group[0]] < width and abs(y[group[0]] - y[point]) < 0.035
        )
        group = next(near, None)
        if group is None:
            groups.append([int(point)])
        else:
            group.append(int(point))
    return groups
