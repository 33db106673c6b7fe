"""Draw a study: cost and missed requests of each policy under each variant."""

import numpy as np
import pandas as pd

from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.figure_files import draw_and_save_figure
from fleetcast.assets.pages.figure_style import (
    INK,
    MUTED,
    Axes,
    Figure,
    add_figure_legend,
    has_outliers,
    policy_colours,
)
from fleetcast.models.aliases import Floats
from fleetcast.models.world.catalogue import Catalogue


def draw_study(lake: Lake, name: str, catalogue: Catalogue) -> LakePath:
    """Draw a study from the mart studies into the folder figures next to the lake."""
    frame = lake.sql("select * from studies where study = $study and llm = 'all'", study=name).to_pandas()
    path = lake.root.parent / "figures" / "studies" / f"{name}.png"
    tier = catalogue.strictest_tier(set(frame["tier"]) & set(catalogue.tiers)) or ""
    draw_and_save_figure(path, name, lambda: draw_study_bars(frame, tier))
    return path


def draw_against_the_paper(lake: Lake) -> LakePath:
    """Draw each value of a paper against fleetcast's value, for all studies that have been run."""
    frame = lake.sql("queries/against_the_paper.sql").to_pandas().dropna(subset="fleetcast_value")
    path = lake.root.parent / "figures" / "studies" / "against_the_paper.png"
    draw_and_save_figure(path, "one point per value of a paper", lambda: draw_paper_points(frame))
    return path


def draw_paper_points(frame: pd.DataFrame) -> Figure:
    """Plot fleetcast's values over the papers' values: left absolute values, right shares. Line: equal.

    `frame`: study, against, metric, paper_value, fleetcast_value.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 5.2))
    is_share = frame["against"].notna() | frame["metric"].str.endswith("_share")
    colours = policy_colours(list(dict.fromkeys(frame["study"])))
    for panel, rows_of_panel, factor in zip(
        panels, (frame[~is_share], frame[is_share]), (1.0, 100.0), strict=True
    ):
        for study, rows in rows_of_panel.groupby("study", sort=False):
            paper, fleetcast = factor * rows["paper_value"], factor * rows["fleetcast_value"]
            panel.scatter(paper, fleetcast, s=45, color=colours[str(study)], alpha=0.8)
        if len(rows_of_panel):
            ends = factor * rows_of_panel[["paper_value", "fleetcast_value"]].to_numpy().ravel()
            panel.plot([ends.min(), ends.max()], [ends.min(), ends.max()], color=MUTED, linewidth=1, zorder=0)
    add_figure_legend(figure, list(colours.items()), in_a_row=6)
    panels[0].set(xscale="log", yscale="log", title="instance-hours and seconds")
    panels[1].set(title="shares, and changes relative to another policy, %")
    for panel in panels:
        panel.set(xlabel="the paper", ylabel="fleetcast")
    return figure


def draw_study_bars(frame: pd.DataFrame, strictest: str) -> Figure:
    """Draw bars by variant and policy: GPU-hours, and misses and TTFT P95 of the strictest tier.

    `frame`: variant, policy, metric, tier, value.
    """
    import matplotlib.pyplot as plt

    contents = (
        ("GPU-hours", "gpu_hours", "all"),
        (f"{strictest}: SLO missed, %", "attainment_share", strictest),
        (f"{strictest}: TTFT P95, s", "ttft_p95_s", strictest),
    )
    keys = frame[["variant", "policy"]].drop_duplicates()
    varying = [column for column in keys if keys[column].nunique() > 1] or ["policy"]
    labels = [", ".join(row) for row in keys[varying].itertuples(index=False)]
    colours = policy_colours(list(dict.fromkeys(keys["policy"])))
    figure, panels = plt.subplots(1, len(contents), figsize=(13, 1.6 + 0.34 * len(labels)), sharey=True)
    place = -np.arange(len(labels))
    for panel, (title, metric, tier) in zip(panels, contents, strict=True):
        of_metric = frame[(frame["metric"] == metric) & (frame["tier"] == tier)]
        values = keys.merge(of_metric, how="left")["value"].to_numpy(float)
        if metric == "attainment_share":
            values = 100 * (1 - values)
        panel.barh(place, np.nan_to_num(values), color=[colours[policy] for policy in keys["policy"]])
        for y, value in zip(place, values, strict=True):
            text = "–" if np.isnan(value) else f"{value:,.0f}" if value >= 100 else f"{value:,.2g}"
            panel.annotate(text, (np.nan_to_num(value), y), (4, 0), textcoords="offset points", va="center",
                           fontsize=10, color=MUTED)  # fmt: skip
        title += limit_bars(panel, values)
        panel.set_title(title, fontsize=11, color=INK)
        panel.grid(visible=False)
    panels[0].set_yticks(place, labels)
    return figure


def limit_bars(panel: Axes, values: Floats) -> str:
    """Set the end of a panel's bars (n,); logarithmic above their median if an outlier squeezes them.

    Returns a note on it, "" for a linear axis.
    """
    most = max(np.nanmax(np.append(values, 0.01)), 0.01)
    if not has_outliers(values):
        panel.set_xlim(0, 1.18 * most)
        return ""
    middle = float(f"{np.nanmedian(values):.1g}")
    panel.set_xscale("symlog", linthresh=middle)
    panel.set_xlim(0, middle * (most / middle) ** 1.3)
    ticks = [0.0, *(middle * 10.0**n for n in range(int(np.log10(most / middle)) + 1))]
    panel.set_xticks(ticks, [f"{tick:,.0f}" if tick >= 1 else f"{tick:g}" for tick in ticks])
    panel.set_xticks([], minor=True)
    return f", log above {middle:g}"
