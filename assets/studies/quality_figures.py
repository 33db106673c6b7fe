"""Cost over quality: the fronts of a question by judge and rule, and what stands beside the chosen plan."""

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from assets.lake.settings import Settings
from assets.pages.pictures import save_as
from assets.pages.style import INK, MUTED, PALETTE, empty

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES = {"route": "-", "cascade": "--"}


def draw_quality(settings: Settings, question: str) -> Path:
    """Draw the plans of a question, beside the lake."""
    frame = settings.lake.sql(
        "select * from quality_plans where trace = $trace and question = $question",
        trace=settings.trace,
        question=question,
    ).to_pandas()
    path = settings.lake.root.parent / "figures" / settings.trace / f"quality_{question}.png"
    save_as(path, f"{settings.trace}, {question}", lambda: draw_plans(frame))
    return path


def draw_plans(frame: pd.DataFrame) -> "Figure":
    """USD per hour over quality: hollow as tables promise, filled as replayed; a line a judge and rule.

    `frame`: plan, kind, rule, judge, usd_per_hour, promised_quality, quality, p95_s, asked_quality,
    asked_latency_s.
    """
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    if frame.empty:
        return empty(figure, "no plan")
    judges = sorted(set(frame["judge"]))
    fronts = frame[frame["kind"] == "front"]
    for (judge, rule), own in fronts.groupby(["judge", "rule"]):
        rows, colour = own.sort_values("quality"), PALETTE[judges.index(str(judge)) % len(PALETTE)]
        panel.plot(
            rows["quality"], rows["usd_per_hour"], DASHES[str(rule)], color=colour, label=f"{rule}, {judge}"
        )
        panel.plot(rows["promised_quality"], rows["usd_per_hour"], "o", mfc="none", color=colour, ms=5)
        panel.plot(rows["quality"], rows["usd_per_hour"], "o", color=colour, ms=4)
    beside = frame[frame["kind"] != "front"].round({"quality": 3, "usd_per_hour": 1})
    middle = (frame["quality"].min() + frame["quality"].max()) / 2
    for _, alike in beside.groupby(["quality", "usd_per_hour"]):  # several may be one plan
        quality, usd = float(alike["quality"].iloc[0]), float(alike["usd_per_hour"].iloc[0])
        is_chosen = (alike["kind"] == "chosen").any()
        colour, is_right = (INK if is_chosen else MUTED), quality > middle
        panel.plot(quality, usd, "D" if is_chosen else "s", color=colour, ms=7)
        panel.annotate(
            "\n".join(alike["plan"]), (quality, usd), xytext=(-8 if is_right else 8, 0), fontsize=9,
            textcoords="offset points", ha="right" if is_right else "left", va="center", color=colour,
        )  # fmt: skip
    panel.axvline(frame["asked_quality"].iloc[0], color=MUTED, linewidth=1, linestyle=":")
    panel.set_xlabel("quality: mean score of the answers that count")
    panel.set_ylabel("USD per hour")
    panel.set_title(f"P95 within {frame['asked_latency_s'].iloc[0]:g} s")
    panel.set_ylim(0, 1.2 * frame["usd_per_hour"].max())
    if len(fronts):
        panel.legend(frameon=False, fontsize=10)
    return figure
