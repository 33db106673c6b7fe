"""Draw the figures of a day in one style: units at the axes, names at the lines.

Each `draw_*` takes a small pandas frame of a mart and returns a matplotlib figure; the functions in
REPLAY_DRAWINGS read the marts.
"""

from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.lake.learned_shares import learning_policies
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.pages import figure_style
from fleetcast.assets.pages.figure_files import DrawFigure
from fleetcast.assets.pages.figure_style import (
    BLUE,
    FAINT,
    INK,
    MUTED,
    POLICY_COLOURS,
    Axes,
    Figure,
    add_figure_legend,
    draw_stairs,
    fill_empty_figure,
    fill_stairs,
    make_day_panels,
    policy_colours,
    start_y_axes_at_zero,
)
from fleetcast.models.aliases import Floats

TICKS_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
CDF_LABELS = {"ttft_s": "time to the first token, seconds", "tpot_s": "time per output token, seconds"}
NINES = 3.5  # end of the latency axis: 99.97 %
NO_INTERACTIVE = "no interactive request, so no time to the first token"
MOST_CURVES = 8  # with a colour
LINE_NINES, DASH = 0.02, 6.0  # width of a line on that axis; length of a dash in widths of its line


# --- the figures ---------------------------------------------------------------------------------------


def draw_demand_and_forecast(frame: pd.DataFrame, method: str) -> Figure:
    """Draw interactive input tokens/s of each llm: the actual load, and the forecast at the hour's start.

    `frame` has llm, bucket_start, actual_input_tokens_per_s and input_tokens_per_s of all regions together,
    and wape_share, the error of the regions one by one, as they are planned; in order of time.
    """
    llms = list(dict.fromkeys(frame["llm"]))
    figure, multiples = make_day_panels(len(llms), columns=2)
    for panel, llm in zip(multiples, llms, strict=True):
        rows = frame[frame["llm"] == llm]
        actual, forecast = rows["actual_input_tokens_per_s"] / 1e3, rows["input_tokens_per_s"] / 1e3
        fill_stairs(panel, rows["bucket_start"], actual)
        draw_stairs(panel, rows["bucket_start"], forecast, BLUE)
        panel.set_title(f"{llm}   regions off by {rows['wape_share'].iloc[0]:.0%}")
    start_y_axes_at_zero(multiples)
    add_figure_legend(figure, [("actual", FAINT), (f"forecast at the start of the hour ({method})", BLUE)])
    figure.supylabel("interactive input, thousand tokens/s", fontsize=12)
    return figure


def draw_learned_shares(frame: pd.DataFrame) -> Figure:
    """Draw the capacity share of each learning policy, and what its worst tier attained, day by day.

    `frame` has policy, day, capacity_share, attained_ratio and margin_share, in order of policy and day.
    """
    import matplotlib.pyplot as plt
    from matplotlib.dates import DateFormatter, DayLocator

    figure, (shares, ratios) = plt.subplots(2, 1, sharex=True)
    policies = list(dict.fromkeys(frame["policy"]))
    colours = figure_style.policy_colours(policies)
    for policy in policies:
        rows = frame[frame["policy"] == policy]
        days = pd.to_datetime(rows["day"])
        shares.plot(days, rows["capacity_share"], color=colours[policy], marker="o")
        ratios.plot(days, 100 * rows["attained_ratio"], color=colours[policy], marker="o")
        ratios.plot(days, 100 * (1 + rows["margin_share"]), color=colours[policy], linestyle="--")
    ratios.axhline(100, color=MUTED, linewidth=1)
    shares.set_title("capacity share that was used")
    ratios.set_title("attainment over target of the worst tier, %; dashes: wanted on the next day")
    half_day, first, last = pd.Timedelta(hours=12), *pd.to_datetime(frame["day"].agg(["min", "max"]))
    ratios.set_xlim(first - half_day, last + half_day)  # for one day matplotlib would draw four years
    ratios.xaxis.set_major_locator(DayLocator(interval=1 + frame["day"].nunique() // 10))
    ratios.xaxis.set_major_formatter(DateFormatter("%m-%d"))
    add_figure_legend(figure, [(policy, colours[policy]) for policy in policies])
    return figure


def draw_instances_against_demand(frame: pd.DataFrame) -> Figure:
    """Draw the GPUs of each policy and the GPUs that the actual demand needed, hour by hour.

    `frame` has policy, hour_start, held_gpus and needed_gpus, in order of policy and time. A policy with far
    more GPUs than needed leaves its panel at the top, so that the others stay readable.
    """
    policies = list(dict.fromkeys(frame["policy"]))
    figure, multiples = make_day_panels(len(policies), columns=3)
    needed = frame["needed_gpus"].max()
    top = max(min(1.05 * frame["held_gpus"].max(), 2.0 * needed), needed, 1.0)
    for panel, policy in zip(multiples, policies, strict=True):
        rows = frame[frame["policy"] == policy]
        fill_stairs(panel, rows["hour_start"], rows["needed_gpus"])
        draw_stairs(panel, rows["hour_start"], rows["held_gpus"], POLICY_COLOURS.get(policy, INK))
        panel.set_title(f"{policy}  {rows['held_gpus'].sum():,.0f} GPU-h", fontsize=11)
        if (most := rows["held_gpus"].max()) > top:
            panel.annotate(f"up to {most:,.0f} \u2191", (0.99, 0.97), xycoords="axes fraction", fontsize=10,
                           color=POLICY_COLOURS.get(policy, INK), ha="right", va="top")  # fmt: skip
    start_y_axes_at_zero(multiples)
    multiples[0].set_ylim(0, top)
    add_figure_legend(figure, [("needed for the actual demand", FAINT), ("used by the policy", INK)])
    figure.supylabel("GPUs", fontsize=12)
    return figure


def draw_cdf(frame: pd.DataFrame, measure: str, tier: str, slo_s: float) -> Figure:
    """Draw the share of a tier's requests up to each time, per policy; the axis stretches the tail.

    `measure` is one of CDF_LABELS. `frame` has policy, `measure` (upper edge of a bin, s) and
    cumulated_share (of all requests), in order of both. Policies with the same curve share one line, dashed
    in the colours of all. Those beyond MOST_CURVES with the fewest in time are grey.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    shares = frame.pivot(index=measure, columns="policy", values="cumulated_share").ffill().fillna(0.0)
    shares = shares[list(dict.fromkeys(frame["policy"]))]
    nines = (1 - shares).where(lambda slower: slower > 10**-NINES).transform(lambda slower: -np.log10(slower))
    in_time = shares[shares.index <= slo_s].max().sort_values(ascending=False, kind="stable")
    others = list(in_time.index[MOST_CURVES:])
    colours = policy_colours(list(shares.columns)) | dict.fromkeys(others, MUTED)
    axes.plot(nines.index, nines[others], color=FAINT, linewidth=1)
    for group in group_same_curves(nines.drop(columns=others).fillna(NINES)):
        for place, policy in enumerate(group):
            dashes = "-" if len(group) == 1 else (DASH * place, (DASH, DASH * (len(group) - 1)))
            axes.plot(nines.index, nines[policy], color=colours[policy], linestyle=dashes)
    for place, (name, share) in enumerate(in_time.items()):
        axes.annotate(
            f"{name}  {100 * share:.1f} % in time",
            (1.02, 0.97 - 0.07 * place),
            xycoords="axes fraction",
            color=colours[str(name)],
            va="center",
            fontsize=11,
        )
    axes.axvline(slo_s, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    axes.annotate(f"SLO {slo_s:g} s", (slo_s, 0), (5, 6), textcoords="offset points", color=MUTED)
    axes.set(xscale="log", xlabel=CDF_LABELS[measure], ylabel=f"{tier} requests, %")
    shown = frame[measure][frame["cumulated_share"].between(0.05, 1 - 10**-NINES, inclusive="neither")]
    axes.set_xlim(*(shown.min(), max(shown.max(), 3 * slo_s)) if len(shown) else (slo_s / 10, 3 * slo_s))
    ticks = [tick for tick in TICKS_S if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, NINES)
    marks = np.array([0, 50, 90, 95, 99, 99.9])
    axes.set_yticks(-np.log10(1 - marks / 100), [f"{mark:g}" for mark in marks])
    return figure


def stretch_axis(axes: Axes, axis: str, values: Floats) -> str:
    """Make an axis logarithmic if outliers squeeze its values (n,), down to their median if some are near 0.

    Returns a note on it, "" for an axis that stays linear.
    """
    if not figure_style.has_outliers(values):
        return ""
    middle = float(f"{np.median(values):.1g}")
    is_far_from_zero = values.min() > 0.1 * middle
    low = 0.8 * values.min() if is_far_from_zero else 0.0
    scale, limits, ticks = (getattr(axes, f"set_{axis}{name}") for name in ("scale", "lim", "ticks"))
    scale("log") if is_far_from_zero else scale("symlog", linthresh=middle)
    limits(low, None)
    steps = [10.0**decade * factor for decade in range(-3, 7) for factor in (1, 2, 5)]
    shown = [step for step in steps if max(low, middle / 2 if not low else 0) <= step <= 1.2 * values.max()]
    shown = shown if is_far_from_zero else [0.0, *shown]
    ticks(shown, [f"{step:g}" for step in shown])
    ticks([], minor=True)
    return ", log" if is_far_from_zero else f", log above {middle:g}"


def group_same_curves(nines: pd.DataFrame) -> list[list[str]]:
    """Return groups of columns that differ nowhere by more than the width of a line."""
    return figure_style.group_alike(
        nines.columns, lambda one, other: bool((nines[one] - nines[other]).abs().max() < LINE_NINES)
    )


def draw_cost_against_misses(frame: pd.DataFrame) -> Figure:
    """Draw the cost of each policy, and the share of interactive requests that missed their SLO.

    `frame` has policy, usd and missed_share, with one row per policy.
    """
    import matplotlib.pyplot as plt

    frame = frame.dropna(subset="missed_share")
    if frame.empty:
        return fill_empty_figure(plt.figure(), NO_INTERACTIVE)
    figure, axes = plt.subplots()
    cost, missed = frame["usd"].to_numpy(float) / 1e3, 100 * frame["missed_share"].to_numpy(float)
    right, top = max(1.25 * cost.max(), 1e-3), max(1.2 * missed.max(), 0.1)
    colours = [POLICY_COLOURS.get(policy, INK) for policy in frame["policy"]]
    axes.scatter(cost, missed, s=110, color=colours, zorder=3)
    axes.set(xlim=(0, right), ylim=(0, top))
    notes = [stretch_axis(axes, axis, values) for axis, values in (("x", cost), ("y", missed))]
    to_fractions = axes.transData + axes.transAxes.inverted()
    x, y = to_fractions.transform(np.column_stack([cost, missed])).T
    groups = figure_style.group_overlapping_points(x, y)
    names = [", ".join(frame["policy"].iloc[member] for member in sorted(group)) for group in groups]
    ends = np.array([(x[group].max(), y[group].mean()) for group in groups])
    places = figure_style.label_positions(ends[:, 0], ends[:, 1], [len(name) for name in names])
    for name, group, end, place in zip(names, groups, ends, places, strict=True):
        colour = colours[group[0]] if len(group) == 1 else INK
        label, point = to_fractions.inverted().transform([place, end])
        line = (
            {"arrowstyle": "-", "color": MUTED, "lw": 0.8, "relpos": (0, 0.5)} if place[1] != end[1] else None
        )
        axes.annotate(name, tuple(point), tuple(label), color=colour, va="center", arrowprops=line)
    low = min(-0.03, min(height for _, height in places) - 1.5 * figure_style.HALF_LINE_HEIGHT)
    axes.set_ylim(to_fractions.inverted().transform((0, low))[1], top)
    axes.set_xlabel("cost of the day, thousand USD" + notes[0])
    axes.set_ylabel("interactive requests that missed their SLO, %" + notes[1])
    axes.annotate("better", (0.02, 0.06), (0.09, 0.16), xycoords="axes fraction", color=MUTED,
                  arrowprops={"arrowstyle": "->", "color": MUTED})  # fmt: skip
    return figure


# --- from the marts to the figures ---------------------------------------------------------------------


def _demand_and_forecast(settings: RunSettings, day: date) -> Figure:
    method = settings.config.forecast.method
    errors = _mart(settings, day, "forecast_errors")
    errors = errors[(errors["measure"] == "input_tokens") & (errors["tier"] == INTERACTIVE)]
    frame = _mart(settings, day, "forecast_by_llm").merge(errors[["method", "llm", "wape_share"]])
    return draw_demand_and_forecast(frame[frame["method"] == method], method)


def _instances_against_demand(settings: RunSettings, day: date) -> Figure:
    frame = _mart(settings, day, "fleet_by_hour")
    gpus = frame.groupby(["policy", "hour_start"], as_index=False)[["held_gpus", "needed_gpus"]].sum()
    return draw_instances_against_demand(_in_order(gpus, settings, "hour_start"))


def _ttft_cdf(settings: RunSettings, day: date) -> Figure:
    return _cdf(settings, day, "ttft_s", "ttft_slo_s", NO_INTERACTIVE)


def _tpot_cdf(settings: RunSettings, day: date) -> Figure:
    return _cdf(settings, day, "tpot_s", "tpot_slo_s", "no request of a tier with a target per output token")


def _cdf(settings: RunSettings, day: date, measure: str, target: str, none: str) -> Figure:
    """Draw the distribution for the tier with the shortest target, of the tiers with requests."""
    import matplotlib.pyplot as plt

    frame, tiers = _mart(settings, day, f"{measure.removesuffix('_s')}_histogram"), settings.catalogue.tiers
    slos = {tier: getattr(tiers[tier], target) for tier in frame["tier"].unique()}
    tier = min((tier for tier in slos if slos[tier]), key=lambda tier: slos[tier], default=None)
    if tier is None:
        return fill_empty_figure(plt.figure(), none)
    return draw_cdf(_in_order(frame[frame["tier"] == tier], settings, measure), measure, tier, slos[tier])


def _cost_against_misses(settings: RunSettings, day: date) -> Figure:
    return draw_cost_against_misses(_in_order(_mart(settings, day, "scoreboard"), settings))


def _learned_shares(settings: RunSettings, day: date) -> Figure:
    query = "select * from learned_shares where trace = $trace and day <= $day order by policy, day"
    return draw_learned_shares(settings.lake.sql(query, trace=settings.trace, day=day).to_pandas())


REPLAY_DRAWINGS: dict[str, DrawFigure] = {
    "demand_and_forecast": _demand_and_forecast,
    "instances_against_demand": _instances_against_demand,
    "ttft_cdf": _ttft_cdf,
    "cost_against_misses": _cost_against_misses,
}
TPOT_DRAWINGS: dict[str, DrawFigure] = {"tpot_cdf": _tpot_cdf}  # where a tier has a target per output token


LEARNED_DRAWINGS: dict[str, DrawFigure] = {"learned_shares": _learned_shares}  # where a policy learns


def replay_drawings(settings: RunSettings) -> dict[str, DrawFigure]:
    """Return the drawings of a day; time per output token only where a tier has a target for it."""
    is_paced = any(tier.tpot_slo_s for tier in settings.catalogue.tiers.values())
    learns = learning_policies(settings.config)
    return REPLAY_DRAWINGS | (TPOT_DRAWINGS if is_paced else {}) | (LEARNED_DRAWINGS if learns else {})


def _mart(settings: RunSettings, day: date, name: str) -> pd.DataFrame:
    query = f"select * from {name} where trace = $trace and day = $day order by all"
    return settings.lake.sql(query, trace=settings.trace, day=day).to_pandas()


def _in_order(frame: pd.DataFrame, settings: RunSettings, *then: str) -> pd.DataFrame:
    """Return the rows in the order of the config's policies, then by the columns `then`."""
    rank = {policy: place for place, policy in enumerate(settings.config.replay.policies)}
    known = frame[frame["policy"].isin(list(rank))]
    return known.assign(rank=known["policy"].map(rank)).sort_values(["rank", *then])
