"""The house style of the figures: colours for every eye, and the few strokes that they share."""

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
else:  # matplotlib is imported where something is drawn
    Axes = Figure = Any

INK, MUTED, FAINT, BLUE = "#222222", "#767676", "#DDDDDD", "#0072B2"
# A policy has the same colour in every figure. Okabe and Ito's, which colour-blind readers can tell apart.
POLICY_COLOURS = {name: rule.colour for name, rule in (REPLAY_POLICIES | BOARD_PLANNERS).items()}
# The same for tiers, kinds of tokens, regions and llms, in their order.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Of the axes: from a point to its name, a letter of it, half a line; a point in width and height.
LABEL_GAP, LETTER_WIDTH, HALF_LINE_HEIGHT, POINT_SIZE = 0.013, 0.0105, 0.018, (0.008, 0.016)
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
    """A policy's own colour, else one of those that are left."""
    left = [colour for name, colour in POLICY_COLOURS.items() if name not in names]
    others = (name for name in names if name not in POLICY_COLOURS)
    dealt = {name: left[n * 5 % len(left)] for n, name in enumerate(others)}
    return {name: POLICY_COLOURS.get(name) or dealt[name] for name in names}


def make_day_panels(count: int, columns: int) -> tuple["Figure", list["Axes"]]:
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


def staircase_points(times: pd.Series, values: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Hours and values of a staircase, its last step drawn to its end."""
    hours = ((times - times.min().normalize()).dt.total_seconds() / 3600).to_numpy(float)
    width = hours[1] - hours[0] if len(hours) > 1 else 24.0
    return np.append(hours, hours[-1] + width), np.append(values, values.iloc[-1])


def fill_stairs(panel: "Axes", times: pd.Series, values: pd.Series) -> None:
    hours, heights = staircase_points(times, values)
    panel.fill_between(hours, heights, color=FAINT, step="post", linewidth=0)


def draw_stairs(panel: "Axes", times: pd.Series, values: pd.Series, colour: str) -> None:
    hours, heights = staircase_points(times, values)
    panel.step(hours, heights, where="post", color=colour)


def start_y_axes_at_zero(multiples: Sequence["Axes"]) -> None:
    """Let the y axes begin at 0, once all is drawn: a limit that is set stops an axis from growing."""
    for panel in multiples:
        panel.set_ylim(bottom=0)


def add_figure_legend(figure: "Figure", entries: Sequence[tuple[str, str]], in_a_row: int = 100) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=label) for label, colour in entries]
    columns = min(len(entries), in_a_row)
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False)


def fill_empty_figure(figure: "Figure", said: str) -> "Figure":
    """A figure of nothing, which says why."""
    figure.text(0.5, 0.5, said, ha="center", color=MUTED)
    return figure


def group_alike(items: Iterable[T], is_like: Callable[[T, T], bool]) -> list[list[T]]:
    """Put each item into the first group whose first member it is like, else into one of its own."""
    groups: list[list[T]] = []
    for item in items:
        group = next((group for group in groups if is_like(item, group[0])), None)
        if group is None:
            groups.append([item])
        else:
            group.append(item)
    return groups


def group_overlapping_points(x: Floats, y: Floats) -> list[list[int]]:
    """Group points (in axes fractions) that lie on one another: they have one label."""
    at = np.column_stack([x, y])
    in_order: list[int] = np.lexsort((y, x)).tolist()
    return group_alike(in_order, lambda one, other: bool((abs(at[one] - at[other]) <= POINT_SIZE).all()))


def label_positions(x: Floats, y: Floats, letters: Sequence[int]) -> list[tuple[float, float]]:
    """Left end and height of the label of each point (in axes fractions), clear of the others and of points.

    A label stands right of its point, left of it where the axes end, and as little above or below as it must;
    those that need not move are set first.
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

    found = {}
    for n in sorted(range(len(x)), key=lambda n: not is_clear(n, float(y[n]))):
        shifts = (sign * step * HALF_LINE_HEIGHT for step in range(40) for sign in (1, -1))
        found[n] = next((y[n] + shift for shift in shifts if is_clear(n, y[n] + shift)), y[n])
        taken.append((left[n], left[n] + widths[n], found[n], HALF_LINE_HEIGHT))
    return [(left[n], found[n]) for n in range(len(x))]
