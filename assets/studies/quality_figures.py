"""Draw cost over quality: the fronts by judge and rule, the chosen plan and the plans compared with it."""

import numpy as np
import pandas as pd

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.figure_files import draw_and_save_figure
from fleetcast.assets.pages.figure_style import (
    INK,
    MUTED,
    PALETTE,
    Axes,
    Figure,
    add_line_legend,
    fill_empty_figure,
    group_overlapping_points,
    label_positions,
)

RULE_LINESTYLES = {"route": "-", "cascade": "--"}


def draw_quality(settings: RunSettings, question: str) -> LakePath:
    """Draw the plans of a quality requirement into the folder figures next to the lake."""
    frame = settings.lake.sql(
        "select * from quality_plans where trace = $trace and question = $question",
        trace=settings.trace,
        question=question,
    ).to_pandas()
    path = settings.lake.root.parent / "figures" / settings.trace / f"quality_{question}.png"
    draw_and_save_figure(path, f"{settings.trace}, {question}", lambda: draw_quality_plans(frame))
    return path


def draw_quality_plans(frame: pd.DataFrame) -> Figure:
    """Draw USD per hour over quality: hollow points by tables, filled by replay; a line per judge and rule.

    `frame`: plan, plan_kind, rule, judge, usd_per_hour, promised_quality, quality, p95_s, required_quality,
    required_latency_s.
    """
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    if frame.empty:
        return fill_empty_figure(figure, "no plan")
    judges = sorted(set(frame["judge"]))
    fronts = frame[frame["plan_kind"] == "front"]
    for (judge, rule), front in fronts.groupby(["judge", "rule"]):
        rows, colour = front.sort_values("quality"), PALETTE[judges.index(str(judge)) % len(PALETTE)]
        panel.plot(
            rows["quality"],
            rows["usd_per_hour"],
            RULE_LINESTYLES[str(rule)],
            color=colour,
            label=f"{rule}, {judge}",
        )
        panel.plot(rows["promised_quality"], rows["usd_per_hour"], "o", mfc="none", color=colour, ms=5)
        panel.plot(rows["quality"], rows["usd_per_hour"], "o", color=colour, ms=4)
    panel.axvline(frame["required_quality"].iloc[0], color=MUTED, linewidth=1, linestyle=":")
    panel.set_xlabel("quality: mean score of the final answers")
    panel.set_ylabel("USD per hour")
    panel.set_title(f"P95 within {frame['required_latency_s'].iloc[0]:g} s")
    panel.set_ylim(0, 1.2 * frame["usd_per_hour"].max())
    if len(fronts):
        add_line_legend(figure, panel, in_a_row=4)
    annotate_plans(panel, frame)
    return figure


def annotate_plans(panel: Axes, frame: pd.DataFrame) -> None:
    """Mark and name the chosen plan and the plans compared with it: policies if any, else baselines."""
    other = "policy" if (frame["plan_kind"] == "policy").any() else "baseline"
    shown = frame[frame["plan_kind"].isin(["chosen", other]) & (frame["plan"] != "quality")]
    x, y = shown["quality"].to_numpy(float), shown["usd_per_hour"].to_numpy(float)
    panel.scatter(x, y, marker="s", s=40, color=MUTED, zorder=3)
    (left, right), (_, top) = panel.get_xlim(), panel.get_ylim()
    panel.set_xlim(left, right + 0.1 * (right - left))  # room for names
    across, up = (x - left) / (1.1 * (right - left)), y / top
    groups = group_overlapping_points(across, up)
    names = [", ".join(shown["plan"].iloc[member] for member in sorted(group)) for group in groups]
    ends = np.array([(across[group].max(), up[group].mean()) for group in groups])
    places = label_positions(ends[:, 0], ends[:, 1], [len(name) for name in names])
    for name, end, place in zip(names, ends, places, strict=True):
        colour = INK if "chosen" in name else MUTED
        line = (
            {"arrowstyle": "-", "color": MUTED, "lw": 0.8, "relpos": (0, 0.5)} if place[1] != end[1] else None
        )
        panel.annotate(
            name, tuple(end), place, "axes fraction", "axes fraction",
            color=colour, fontsize=10, va="center", arrowprops=line,
        )  # fmt: skip
