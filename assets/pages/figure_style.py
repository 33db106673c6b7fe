"""The house style of the figures: colours that colour-blind readers can tell apart, and shared helpers."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fleetcast.models.aliases import Floats, T
from fleetcast.models.world.planners import BOARD_PLANNERS
from fleetcast.models.world.policies import REPLAY_POLICIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # matplotlib is slow to import: only functions that draw import it
    Axes = Figure = Any

INK, MUTED, FAINT, BLUE = "#222222", "#767676", "#DDDDDD", "#0072B2"
# A policy has the same colour in every figure, from the palette of Okabe and Ito.
POLICY_COLOURS = {name: rule.colour for name, rule in (REPLAY_POLICIES | BOARD_PLANNERS).items()}
# The colours of tiers, kinds of tokens, regions and llms, in their order.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# In fractions of the axes: gap from point to label, width of a letter, half a line, size of a point (x, y).
LABEL_GAP, LETTER_WIDTH, HALF_LINE_HEIGHT, POINT_SIZE = 0.013, 0.0105, 0.018, (0.008, 0.016)
OUTLIER_RATIO = 5.0  # the largest value over the median, from which on an axis is logarithmic
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


def policy_colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each policy: its fixed one, else one that no policy of `names` has."""
    unused = [colour for name, colour in POLICY_COLOURS.items() if name not in names]
    others = (name for name in names if name not in POLICY_COLOURS)
    assigned = {name: unused[n * 5 % len(unused)] for n, name in enumerate(others)}
    return {name: POLICY_COLOURS.get(name) or assigned[name] for name in names}


def make_day_panels(count: int, columns: int) -> tuple["Figure", list["Axes"]]:
    """Return a figure and its `count` panels over the hours of one day, in at most `columns` columns."""
    import matplotlib.pyplot as plt

    columns = min(columns, count)
    figure, grid = plt.subplots(
        -(-count // columns), columns, sharex=True, sharey=columns == 3, squeeze=False
    )
    for unused in grid.flat[count:]:
        unused.set_visible(False)
    panels = list(grid.flat[:count])
    for panel in panels:
        panel.set_xlim(0, 24)
        panel.set_xticks([0, 6, 12, 18, 24])
    figure.supxlabel("hour of the day, UTC", fontsize=12)
    return figure, panels


def staircase_points(times: pd.Series, values: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of a staircase whose last step is drawn to its end.

    times : start of each step, UTC, shape (steps,)
    values : height of each step, in any unit, shape (steps,)

    Returns: hours since midnight of the first day, and values; shape (steps + 1,) each.
    """
    hours = ((times - times.min().normalize()).dt.total_seconds() / 3600).to_numpy(float)
    width = hours[1] - hours[0] if len(hours) > 1 else 24.0
    return np.append(hours, hours[-1] + width), np.append(values, values.iloc[-1])


def fill_stairs(panel: "Axes", times: pd.Series, values: pd.Series) -> None:
    """Fill the area below a staircase of `values` (steps,) that start at `times` (steps,), UTC."""
    hours, heights = staircase_points(times, values)
    panel.fill_between(hours, heights, color=FAINT, step="post", linewidth=0)


def draw_stairs(panel: "Axes", times: pd.Series, values: pd.Series, colour: str) -> None:
    """Draw the line of a staircase of `values` (steps,) that start at `times` (steps,), UTC."""
    hours, heights = staircase_points(times, values)
    panel.step(hours, heights, where="post", color=colour)


def start_y_axes_at_zero(panels: Sequence["Axes"]) -> None:
    """Let the y axes begin at 0. Call it after all is drawn: an axis with a fixed limit no longer grows."""
    for panel in panels:
        panel.set_ylim(bottom=0)


def add_figure_legend(
    figure: "Figure", entries: Sequence[tuple[str, str]], in_a_row: int = 100, is_right: bool = False
) -> None:
    """Add a legend of (label, colour) entries: above, at most `in_a_row` in a row, or right of the axes."""
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=label) for label, colour in entries]
    if is_right:
        figure.legend(handles=handles, loc="outside right center", frameon=False)
    else:
        _add_legend_above(figure, handles, in_a_row)


def add_line_legend(figure: "Figure", panel: "Axes", in_a_row: int) -> None:
    """Add a legend of a panel's labelled lines above the figure, at most `in_a_row` in a row."""
    _add_legend_above(figure, panel.get_legend_handles_labels()[0], in_a_row, fontsize=10)


def _add_legend_above(figure: "Figure", handles: Sequence[Any], in_a_row: int, **style: Any) -> None:
    columns = max(1, min(len(handles), in_a_row))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False, **style)


def has_outliers(values: Floats) -> bool:
    """Return whether the largest of the values (n,) is so far above their median that it squeezes others."""
    known = values[np.isfinite(values)]
    return bool(known.size and known.max() > OUTLIER_RATIO * np.median(known) > 0)


def fill_empty_figure(figure: "Figure", reason: str) -> "Figure":
    """Write into an empty figure why it is empty, and return it."""
    figure.text(0.5, 0.5, reason, ha="center", color=MUTED)
    return figure


def group_alike(items: Iterable[T], is_like: Callable[[T, T], bool]) -> list[list[T]]:
    """Put each item into the first group whose first member it is like, else into a new group."""
    groups: list[list[T]] = []
    for item in items:
        group = next((group for group in groups if is_like(item, group[0])), None)
        if group is None:
            groups.append([item])
        else:
            group.append(item)
    return groups


def group_overlapping_points(x: Floats, y: Floats) -> list[list[int]]:
    """Group points that overlap, so that they share a label.

    x, y : position of each point, in fractions of the axes, shape (points,)

    Returns: indices of the points of each group.
    """
    at = np.column_stack([x, y])
    order: list[int] = np.lexsort((y, x)).tolist()
    return group_alike(order, lambda a, b: bool((abs(at[a] - at[b]) <= POINT_SIZE).all()))


def label_positions(x: Floats, y: Floats, letters: Sequence[int]) -> list[tuple[float, float]]:
    """Place a label next to each point so that it overlaps no other label and no point.

    A label is right of its point, or left of it where the axes end. It moves up or down as little as needed.
    Labels that need not move are placed first.

    x, y : position of each point, in fractions of the axes, shape (points,)
    letters : number of letters of each label

    Returns: left end and height of each label, in fractions of the axes.
    """
    taken = [
        (at - POINT_SIZE[0], at + POINT_SIZE[0], height, POINT_SIZE[1])
        for at, height in zip(x, y, strict=True)
    ]
    widths = LETTER_WIDTH * np.array(letters)
    left = np.where(x + LABEL_GAP + widths < 1, x + LABEL_GAP, x - LABEL_GAP - widths)

    def is_clear(n: int, height: float) -> bool:
        return not any(
            left[n] - LABEL_GAP < right
            and begin - LABEL_GAP < left[n] + widths[n]
            and abs(height - middle) < half + HALF_LINE_HEIGHT
            for begin, right, middle, half in taken[:n] + taken[n + 1 :]
        )

    heights = {}
    for n in sorted(range(len(x)), key=lambda n: not is_clear(n, float(y[n]))):
        shifts = (sign * step * HALF_LINE_HEIGHT for step in range(40) for sign in (1, -1))
        heights[n] = next((y[n] + shift for shift in shifts if is_clear(n, y[n] + shift)), y[n])
        taken.append((left[n], left[n] + widths[n], heights[n], HALF_LINE_HEIGHT))
    return [(left[n], heights[n]) for n in range(len(x))]
