"""Latency of a trace's requests in a replay: SageServe's figures 6c, 6d and 6e, side by side."""

from collections.abc import Sequence

import pandas as pd

from fleetcast.assets.demand.time_axes import label_minutes
from fleetcast.assets.pages.figure_style import MUTED, PALETTE, Axes, Figure, add_figure_legend
from fleetcast.models.world.catalogue import load_catalogue


def draw_latency(boxes: pd.DataFrame, minutes: pd.DataFrame, instances: pd.DataFrame, title: str) -> Figure:
    """Plot latency by tier, region and minute, and the load of instances (SageServe figure 6c to e).

    Tiers have the first colours, regions the last ones.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 5))
    draw_latency_boxes(panels[0], boxes)
    tiers = dict(zip(sorted(minutes["tier"].unique()), PALETTE, strict=False))
    for tier, colour in tiers.items():
        rows = minutes[minutes["tier"] == tier]
        panels[1].plot(rows["minute"], rows["mean_s"], color=colour, linewidth=1.5)
        low, high = ((rows["mean_s"] + sign * rows["deviation_s"]).clip(lower=0) for sign in (-1, 1))
        panels[1].fill_between(rows["minute"], low, high, color=colour, alpha=0.15, linewidth=0)
    panels[1].set_title("Mean and deviation in the busiest hour", fontsize=11)
    panels[1].set_ylabel("E2E, s")
    llm = largest_llm(instances["llm"].tolist())
    styles = {"p50_tokens": "-", "p99_tokens": ":"}
    of_llm = instances[instances["llm"] == llm]
    regions = dict(zip(sorted(of_llm["served_region"].unique()), reversed(PALETTE), strict=False))
    for region, colour in regions.items():
        rows = of_llm[of_llm["served_region"] == region]
        for column, style in styles.items():
            panels[2].plot(rows["minute"], rows[column] / 1e3, color=colour, linestyle=style, linewidth=1.2)
    panels[2].set_title(f"{llm}: P50 and P99 (dotted)", fontsize=11)
    panels[2].set_ylabel("thousand tokens per minute")
    add_figure_legend(figure, [*tiers.items(), *regions.items()])
    for panel in panels[1:]:
        label_minutes(panel)
        panel.set_ylim(bottom=0)
    add_footnote(figure, f"{title}: from the replay, by the region that serves (SageServe figure 6c to e).")
    return figure


def draw_latency_boxes(panel: Axes, boxes: pd.DataFrame) -> None:
    """Plot a box of each tier and region: quartiles, median, whiskers from P5 to P95, mean as a point."""
    stats = [
        {"med": row.p50_s, "q1": row.p25_s, "q3": row.p75_s, "whislo": row.p5_s, "whishi": row.p95_s}
        | {"mean": row.mean_s, "label": f"{row.tier}\n{row.served_region}"}
        for row in boxes.itertuples()
    ]
    panel.bxp(
        stats,
        showfliers=False,
        showmeans=True,
        meanprops={"marker": ".", "markerfacecolor": MUTED},
        medianprops={"color": PALETTE[1]},
    )
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.tick_params(axis="x", labelrotation=90, labelsize=10)
    panel.set_ylabel("E2E, s: P5, quartiles, P95")
    worst = boxes.sort_values("p95_s").iloc[-1]
    panel.set_title(f"{worst['tier']} in {worst['served_region']} varies most", fontsize=11)


def largest_llm(llms: Sequence[str]) -> str:
    """Return the llm with the most parameters; the first by name where the catalogue has none of them."""
    known = load_catalogue().llms
    return max(sorted(set(llms)), key=lambda name: known[name].parameters_b if name in known else 0.0)


def add_footnote(figure: Figure, text: str) -> None:
    """Write a footnote: what the figure shows, and which figure of a paper shows the same."""
    figure.supxlabel(text, fontsize=8, color=MUTED, wrap=True)
