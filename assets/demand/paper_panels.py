"""The panels of SageServe's characterisation (its figures 3 to 6) for any trace of the lake.

Requests per second are solid lines, input and output tokens per second dashed lines, as in the paper. The
latency is plotted for the last replayed day, if any, under the policy of the paper's service.
"""

from collections.abc import Callable, Sequence
from datetime import date
from itertools import cycle

import numpy as np
import pandas as pd

from fleetcast.assets.demand.latency_panels import add_footnote, draw_latency
from fleetcast.assets.demand.time_axes import label_days, label_hours, label_minutes
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.figure_style import PALETTE, Axes, Figure, add_figure_legend

PANEL_WEEK = np.timedelta64(7, "D")
MAX_PANELS_PER_SIDE = 3  # number of tiers and of regions: those with the most requests
PAPER_SERVICE_POLICY = "reactive"  # how the service in SageServe's section 7.1 scales


def paper_drawings(lake: Lake, trace: str) -> dict[str, Callable[[], Figure]]:
    """Return what draws each figure of a trace with demand, by name."""

    def rows(query: str) -> pd.DataFrame:
        return lake.sql(query, trace=trace).to_pandas()

    load, minutes = rows("reads/load_panel.sql"), rows("reads/minutes_panel.sql")
    drawings: dict[str, Callable[[], Figure]] = {
        "tiers": lambda: draw_tiers(load, minutes),
        "endpoints": lambda: draw_endpoints(load),
        "regions": lambda: draw_regions(load, batch_tiers(lake, trace)),
        "apps_by_hour": lambda: draw_apps_by_hour(rows("reads/apps_panel.sql")),
    }
    if (replay := last_replay(lake, trace)) is not None:
        day, policy = replay
        boxes, peak, instances = (
            lake.sql(f"queries/{name}.sql", trace=trace, day=day, policy=policy).to_pandas()
            for name in ("latency_by_region", "peak_hour_latency", "peak_hour_instances")
        )
        drawings["latency"] = lambda: draw_latency(boxes, peak, instances, f"{day}, {policy}")
    return drawings


def last_replay(lake: Lake, trace: str) -> tuple[date, str] | None:
    """Return the last replayed day of a trace and the policy to show; None where there is no replay."""
    days = lake.days("outcomes", trace)
    if not days:
        return None
    policies = {
        file.parent.name.removeprefix("policy=") for file in lake.files("outcomes", trace=trace, day=days[-1])
    }
    return days[-1], PAPER_SERVICE_POLICY if PAPER_SERVICE_POLICY in policies else min(policies)


def batch_tiers(lake: Lake, trace: str) -> set[str]:
    """Return the tiers of a trace that are not interactive; niw where the lake knows none."""
    found = lake.sql("select tier from tiers where trace = $trace and may_wait(is_held, tier)", trace=trace)
    return set(found["tier"].to_pylist()) or {"niw"}


def select_last_week(load: pd.DataFrame) -> pd.DataFrame:
    """Return the hours of the last seven days."""
    end = load["time"].max().floor("D") + pd.Timedelta(days=1)
    return load[load["time"] >= end - PANEL_WEEK]


def busiest_values(load: pd.DataFrame, by: str) -> list[str]:
    """Return the MAX_PANELS_PER_SIDE values of a column with the most requests, sorted by name."""
    return sorted(load.groupby(by)["requests"].sum().nlargest(MAX_PANELS_PER_SIDE).index)


def rates_over_time(load: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return requests and tokens per second over time, with a column of each per value of `by`."""
    return load.pivot_table(
        index="time", columns=by, values=["requests", "tokens"], aggfunc="sum", fill_value=0
    )


def draw_rates(panel: Axes, rates: pd.DataFrame, names: Sequence[str]) -> Axes:
    """Plot requests/s (solid, left) and thousand tokens/s (dashed, right); return the right axis."""
    right = panel.twinx()
    for colour, name in zip(cycle(PALETTE), names, strict=False):
        if name in rates["requests"]:
            panel.plot(rates.index, rates["requests"][name], color=colour, linewidth=1.2, label=name)
            tokens = rates["tokens"][name] / 1e3
            right.plot(rates.index, tokens, color=colour, linewidth=0.9, linestyle="--", alpha=0.7)
    for axes in (panel, right):
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    right.grid(visible=False)
    right.spines["top"].set_visible(False)
    return right


def draw_tiers(load: pd.DataFrame, minutes: pd.DataFrame) -> Figure:
    """Plot the load by tier over a week, and within its busiest hour (SageServe figure 3)."""
    import matplotlib.pyplot as plt

    week, names = select_last_week(load), sorted(load["tier"].unique())
    figure, (above, below) = plt.subplots(2, 1)
    by_tier = rates_over_time(week, "tier")
    share = by_tier["requests"].sum() / by_tier["requests"].to_numpy().sum()
    rights = [draw_rates(above, by_tier, names), draw_rates(below, rates_over_time(minutes, "tier"), names)]
    add_figure_legend(figure, list(zip(names, cycle(PALETTE), strict=False)))
    above.set_title(f"{share.idxmax()} is the largest tier with {share.max():.0%} of a week's requests")
    below.set_title(f"The busiest hour, {minutes['time'].min():%Y-%m-%d %H:%M}, by the minute")
    for left, right in zip((above, below), rights, strict=True):
        left.set_ylabel("requests/s")
        right.set_ylabel("1,000 tokens/s, dashed")
    label_days(above)
    label_minutes(below)
    add_footnote(
        figure, "Means of an hour and of a minute; tokens are input and output (SageServe figure 3)."
    )
    return figure


def draw_endpoints(load: pd.DataFrame) -> Figure:
    """Plot the load by llm for each tier and region over a week (SageServe figure 4)."""
    import matplotlib.pyplot as plt

    week = select_last_week(load)
    tiers, regions = busiest_values(week, "tier"), busiest_values(week, "region")
    llms = sorted(week.loc[week["tier"].isin(tiers) & week["region"].isin(regions), "llm"].unique())
    figure, grid = plt.subplots(
        len(tiers), len(regions), sharex=True, sharey="row", squeeze=False, figsize=(12, 2 + 2 * len(tiers))
    )
    for row, name in zip(grid, tiers, strict=True):
        of_tier = week[week["tier"] == name]
        parts = [(place, of_tier[of_tier["region"] == place]) for place in regions]
        draw_panel_row(list(row), parts, "llm", llms)
        row[0].set_ylabel(f"{name}\nrequests/s")
    add_figure_legend(figure, list(zip(llms, cycle(PALETTE), strict=False)), is_right=True)
    means = week.groupby(["tier", "region", "llm"])["requests"].sum() / week["time"].nunique()
    most = means.sort_values().index.to_frame().iloc[-1]
    largest = f"{most['llm']} in {most['region']}, {most['tier']}"
    title = f"The highest load: {largest}, {means.max():.1f} requests/s on average over the week"
    figure.suptitle(title, weight="bold", fontsize=12)
    add_footnote(figure, "Means of an hour; dashed: thousand tokens/s, right axis (SageServe figure 4).")
    return figure


def draw_regions(load: pd.DataFrame, held: set[str]) -> Figure:
    """Plot interactive and other load by region over a week (SageServe figure 5); `held`: the other tiers."""
    import matplotlib.pyplot as plt

    week = select_last_week(load)
    week = week.assign(sort=np.where(week["tier"].isin(held), "not interactive", "interactive"))
    regions = busiest_values(week, "region")
    figure, grid = plt.subplots(1, len(regions), sharex=True, sharey=True, squeeze=False, figsize=(12, 4))
    sorts = sorted(week["sort"].unique())
    parts = [(place, week[week["region"] == place]) for place in regions]
    draw_panel_row(list(grid[0]), parts, "sort", sorts)
    grid[0, 0].set_ylabel("requests/s")
    add_figure_legend(figure, list(zip(sorts, PALETTE, strict=False)), is_right=True)
    sums = week.groupby("region")["requests"].sum()
    title = f"{sums.idxmax()} has {sums.max() / sums.sum():.0%} of the requests"
    figure.suptitle(title, weight="bold", fontsize=12)
    add_footnote(
        figure,
        "Means of an hour, all llms; dashed: thousand tokens/s, right axis (SageServe figure 5a to c; the "
        "hour of 5d is in tiers.png).",
    )
    return figure


def draw_panel_row(
    row: Sequence[Axes], parts: Sequence[tuple[str, pd.DataFrame]], by: str, names: Sequence[str]
) -> None:
    """Plot the parts side by side, with the same two axes; `names`: the values of `by`, a colour each."""
    rights = []
    for panel, (title, load) in zip(row, parts, strict=True):
        rights.append(draw_rates(panel, rates_over_time(load, by), names))
        panel.set_title(title, fontweight="normal", fontsize=10)
        label_days(panel, short=True)
    for right in rights:
        right.set_ylim(0, max(other.get_ylim()[1] for other in rights))


def draw_apps_by_hour(apps: pd.DataFrame) -> Figure:
    """Plot the load of the ten largest apps by tier over the busiest day (SageServe figure 6b)."""
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    names = sorted(apps["tier"].unique())
    by_tier = rates_over_time(apps, "tier")
    draw_rates(panel, by_tier, names).set_ylabel("1,000 tokens/s, dashed")
    panel.set_ylabel("requests/s")
    add_figure_legend(figure, list(zip(names, cycle(PALETTE), strict=False)))
    whole = apps.groupby("time")[["requests"]].sum().reset_index().sort_values("requests")
    peak, times = whole["time"].iloc[-1], whole["requests"].max() / whole["requests"].mean()
    panel.set_title(f"The ten largest apps: peak at {peak:%H} h, {times:.1f} times the mean")
    label_hours(panel)
    add_footnote(figure, f"{apps['time'].min():%Y-%m-%d}, means of an hour (SageServe figure 6b).")
    return figure
