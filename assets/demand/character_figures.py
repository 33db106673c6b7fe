"""Figures of a characterised trace: the title gives the main result, the footnote its definition."""

from collections.abc import Callable
from itertools import cycle

import numpy as np
import pandas as pd

from fleetcast.assets.demand.latency_panels import add_footnote
from fleetcast.assets.demand.paper_panels import paper_drawings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.figure_files import draw_and_save_figure
from fleetcast.assets.pages.figure_style import BLUE, INK, MUTED, PALETTE, Figure, add_figure_legend

TOKEN_KINDS = ("input", "output", "total")
TOKEN_TICKS = (10, 100, 1_000, 10_000, 100_000)


def character_figures_folder(lake: Lake, trace: str) -> LakePath:
    """Return the folder of a trace's figures, next to the lake."""
    return lake.root.parent / "figures" / trace / "character"


def draw_character_figures(lake: Lake, trace: str) -> dict[str, LakePath]:
    """Draw the figures of a characterised trace and save them as PNG; return the file of each by name."""

    def rows(query: str) -> pd.DataFrame:
        return lake.sql(query, trace=trace).to_pandas()

    load = rows(
        "select bucket_start::timestamp as minute, tier, requests, tokens from streams where trace = $trace "
        "and tier <> 'all' and region = 'all' and llm = 'all' and app = 'all' order by all"
    )
    parts = rows("tables/characterisation.sql")
    folder = character_figures_folder(lake, trace)
    drawings: dict[str, Callable[[], Figure]] = {
        "load": lambda: draw_load(load, parts),
        "apps": lambda: draw_apps(rows("select * from top_apps where trace = $trace and tier = 'all'")),
        "tokens": lambda: draw_tokens(rows("select * from token_cdf where trace = $trace order by all")),
        "burstiness": lambda: draw_burstiness(parts),
        **paper_drawings(lake, trace),
    }
    for name, draw in drawings.items():
        draw_and_save_figure(folder / f"{name}.png", trace, draw)
    return {name: folder / f"{name}.png" for name in drawings}


def draw_load(load: pd.DataFrame, parts: pd.DataFrame) -> Figure:
    """Plot requests and tokens per second of each tier over time (SageServe figure 3).

    Buckets are hours, or minutes where the trace has at most a day. `load` has minute, tier, requests and
    tokens in order of time; `parts` is the table characterisation.
    """
    import matplotlib.pyplot as plt

    minutes = 60 if np.ptp(load["minute"]) > np.timedelta64(1, "D") else 1
    bucket = load["minute"].dt.floor(f"{minutes}min")
    rates = load.assign(bucket=bucket).pivot_table(
        index="bucket", columns="tier", values=["requests", "tokens"], aggfunc="sum", fill_value=0
    )
    figure, panels = plt.subplots(2, 1, sharex=True)
    whole = parts[(parts[["tier", "region", "llm", "app"]] == "all").all(axis=1)].iloc[0]
    for panel, column, label, unit in (
        (panels[0], "requests", "requests/s", 1.0),
        (panels[1], "tokens", "thousand tokens/s", 1e3),
    ):
        for colour, (tier, sums) in zip(PALETTE, rates[column].items(), strict=False):
            panel.plot(sums.index, sums / (60 * minutes * unit), color=colour, label=tier, linewidth=1.5)
        panel.set_ylabel(label)
        panel.set_ylim(0, 1.2 * panel.get_ylim()[1])
    add_figure_legend(figure, list(zip(rates["requests"].columns, PALETTE, strict=False)))
    rhythm = (
        "too short to show a daily rhythm"
        if np.isnan(whole["daily_strength"])
        else f"daily season of strength {whole['daily_strength']:.2f}"
    )
    panels[0].set_title(f"{whole['requests_per_s']:,.1f} requests/s on average, {rhythm}")
    figure.autofmt_xdate()
    add_footnote(
        figure,
        f"Means of {minutes} min; tokens are input and output (SageServe figure 3). Strength: "
        "1 - Var(remainder) / Var(season + remainder), by STL (Wang, Smith and Hyndman 2006).",
    )
    return figure


def draw_apps(apps: pd.DataFrame, shown: int = 10) -> Figure:
    """Plot the shares of the largest apps in requests and tokens (SageServe figure 6a).

    `apps` is the mart top_apps.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    top = apps.sort_values("place").head(shown)
    at = np.arange(len(top))
    axes.barh(at - 0.2, 100 * top["request_share"], 0.4, color=BLUE)
    axes.barh(at + 0.2, 100 * top["token_share"], 0.4, color=PALETTE[1])
    axes.set_yticks(at, top["app"])
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("share of the trace, %")
    add_figure_legend(figure, [("requests", BLUE), ("tokens", PALETTE[1])])
    first = top.iloc[0]
    axes.set_title(f"{first['app']} sends {first['request_share']:.0%} of the requests, of {len(apps)} apps")
    add_footnote(figure, "All tiers and days; tokens are input and output (SageServe figure 6a).")
    return figure


def draw_tokens(cdf: pd.DataFrame) -> Figure:
    """Plot the distributions of input, output and total tokens by llm (SageServe figure 10).

    `cdf` is the mart token_cdf.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(TOKEN_KINDS), sharey=True)
    medians = {}
    colours = dict(zip(sorted(cdf["llm"].unique()), cycle(PALETTE), strict=False))
    for panel, kind in zip(panels, TOKEN_KINDS, strict=True):
        of_kind = cdf[cdf["kind"] == kind]
        for llm, rows in of_kind.groupby("llm"):
            line = (rows["tokens"], rows["cumulated_share"])
            panel.plot(*line, color=colours[llm], drawstyle="steps-post", label=llm)
        counts = of_kind.groupby("tokens")["requests"].sum().cumsum()
        medians[kind] = counts.index[np.searchsorted(counts, counts.iloc[-1] / 2)]
        panel.set(xscale="log", ylim=(0, 1), xlabel=f"{kind} tokens")
        ticks = [t for t in TOKEN_TICKS if of_kind["tokens"].min() / 3 <= t <= 3 * of_kind["tokens"].max()]
        panel.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    panels[0].set_ylabel("share of requests with at most this many")
    add_figure_legend(figure, list(colours.items()), in_a_row=4)
    panels[0].set_title(
        f"Half of the requests have up to {medians['input']:,.0f} tokens in and {medians['output']:,.0f} out"
    )
    add_footnote(
        figure, "Steps of 10 ^ (1 / 20); all tiers and apps of an llm together (SageServe figure 10)."
    )
    return figure


def draw_burstiness(parts: pd.DataFrame) -> Figure:
    """Plot the dispersion of minutes and the variation of gaps, pooled and by client.

    `parts` is the table characterisation.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, sharey=True)
    shown = parts[(parts["llm"] == "all") & ((parts["app"] == "all") | (parts["tier"] == "all"))]
    shown = shown[(shown["region"] == "all") | (shown["tier"] == "all")].head(14).iloc[::-1]
    names = [
        " ".join(value for value in row if value != "all") or "everything"
        for row in shown[["tier", "region", "app"]].itertuples(index=False)
    ]
    at = np.arange(len(shown))
    panels[0].plot(shown["dispersion"], at, "o", color=INK)
    panels[0].set_xlabel("dispersion of the minutes (Poisson: 1)")
    panels[0].set_yticks(at, names)
    panels[1].plot(shown["gap_cv"], at, "o", color=BLUE)
    panels[1].plot(shown["client_gap_cv"], at, "o", color=PALETTE[1], mfc="none")
    panels[1].set_xlabel("CV of gaps: pooled full, by client hollow")
    for panel in panels:
        panel.axvline(1, color=MUTED, linewidth=1)
    whole = parts[(parts[["tier", "region", "llm", "app"]] == "all").all(axis=1)].iloc[0]
    panels[0].set_title(_burst_headline(whole))
    add_footnote(
        figure,
        "Dispersion: variance over mean of an hour's minutes about its line. CV: of gaps within ten minutes. "
        "Client: an app in a region, one llm and tier; pooling can hide how bursty they are (ServeGen).",
    )
    return figure


def _burst_headline(whole: "pd.Series") -> str:
    if np.isnan(whole["dispersion"]):
        return f"Gaps vary by {whole['gap_cv']:.2f} of their mean"
    kind = "near Poisson" if whole["dispersion"] < 1.5 else f"{whole['dispersion']:,.1f} times Poisson"
    return f"Minutes disperse {kind}; gaps have a CV of {whole['gap_cv']:.2f}"
