"""Content of the figures: lines, bars, points and titles equal the marts, in their units."""

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from wired import DAY, LLMS, SEASONAL_FACTOR, came

from fleetcast.assets.demand import character_figures, latency_panels, paper_panels, time_axes
from fleetcast.assets.forecasts import forecast_figures
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.pages.figure_style import BLUE, FAINT, INK, MUTED, POLICY_COLOURS, STYLE
from fleetcast.assets.plans import plan_page
from fleetcast.assets.replays import replay_figures
from fleetcast.assets.studies import (
    phase_figures,
    planner_figures,
    quality_figures,
    study_figures,
    unseen_figures,
)
from fleetcast.models.world.planners import BOARD_PLANNERS
from fleetcast.models.world.policies import REPLAY_POLICIES

HOURS = pd.date_range("2025-07-03", periods=24, freq="h", tz="UTC")


@pytest.fixture(autouse=True)
def in_house_style() -> Iterator[None]:
    """The style of the figures. Of all that a test has drawn, no legend lies on data."""
    with plt.rc_context(STYLE):
        yield
        for figure in map(plt.figure, plt.get_fignums()):
            assert [axes.get_legend() for axes in figure.axes if axes.get_legend()] == []
            figure.canvas.draw()
            for legend in figure.legends:
                box = legend.get_window_extent()
                assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)
    plt.close("all")


def line(axes: Axes, colour: str) -> tuple[np.ndarray, np.ndarray]:
    """The one line of a colour."""
    (found,) = [one for one in axes.lines if one.get_color() == colour]
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def filled(axes: Axes) -> float:
    """The filled area, in units of the axes: its steps times their hours."""
    (path,) = [patch.get_paths()[0] for patch in axes.collections]
    x, y = path.vertices.T
    return float(abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2)


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legends(figure: Any) -> dict[str, Any]:
    """The legend's label of each colour."""
    (legend,) = figure.legends
    return {text.get_text(): patch.get_facecolor() for text, patch in
            zip(legend.get_texts(), legend.get_patches(), strict=True)}  # fmt: skip


def legend_colours(figure: Any) -> dict[str, str]:
    return {label: to_hex(colour).upper() for label, colour in legends(figure).items()}


def mart(settings: RunSettings, name: str) -> pd.DataFrame:
    return settings.lake.sql(f"select * from {name}").to_pandas()


# --- the day -------------------------------------------------------------------------------------------


def test_demand_and_forecast_are_those_of_the_planned_method(wired_scored: RunSettings) -> None:
    figure = replay_figures.REPLAY_DRAWINGS["demand_and_forecast"](wired_scored, DAY)
    full = came(wired_scored)
    assert len(figure.axes) == len(LLMS)
    for axes, actual in zip(figure.axes, full.sum(axis=1) / 1e3, strict=True):
        hours, expected = line(axes, BLUE)
        np.testing.assert_allclose(hours[:-1], np.arange(72) / 3)
        np.testing.assert_allclose(expected[:-1], SEASONAL_FACTOR * actual)
        assert filled(axes) == pytest.approx(actual.sum() / 3)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"{x}   regions off by 10%" for x in LLMS]
    assert "forecast at the start of the hour (seasonal_naive)" in legends(figure)
    assert figure.get_supylabel() == "interactive input, thousand tokens/s"


def test_each_panel_has_the_held_and_needed_gpus_of_its_policy(wired_scored: RunSettings) -> None:
    policies = list(wired_scored.config.replay.policies)
    figure = replay_figures.REPLAY_DRAWINGS["instances_against_demand"](wired_scored, DAY)
    gpus = mart(wired_scored, "fleet_by_hour").groupby(["policy", "hour_start"])[["held_gpus", "needed_gpus"]]
    gpus = gpus.sum()
    for axes, policy in zip(figure.axes, policies, strict=True):
        _, held = line(axes, POLICY_COLOURS[policy])
        np.testing.assert_allclose(held[:-1], gpus.loc[policy, "held_gpus"])
        assert filled(axes) == pytest.approx(gpus.loc[policy, "needed_gpus"].sum())
        assert axes.get_title(loc="left") == f"{policy}  {gpus.loc[policy, 'held_gpus'].sum():,.0f} GPU-h"


def test_a_value_beyond_its_panel_is_labelled() -> None:
    held = {"lt_i": np.where(HOURS.hour == 3, 50.0, 4.0), "static": np.full(24, 6.0)}
    frame = pd.concat(
        pd.DataFrame({"policy": p, "hour_start": HOURS, "held_gpus": h, "needed_gpus": 5.0})
        for p, h in held.items()
    )
    lt_i, static = replay_figures.draw_instances_against_demand(frame).axes[:2]
    assert texts(lt_i) == ["up to 50 \u2191"]
    assert texts(static) == []
    assert lt_i.get_ylim() == (0.0, 10.0)  # twice what is needed


def test_the_curves_of_first_tokens_count_every_request_of_the_strictest_tier(
    wired_scored: RunSettings,
) -> None:
    figure = replay_figures.REPLAY_DRAWINGS["ttft_cdf"](wired_scored, DAY)
    (axes,) = figure.axes
    rows = mart(wired_scored, "outcomes").query("tier == 'iw_fast'")
    labels = dict(text.split("  ") for text in texts(axes) if "in time" in text)
    for policy in wired_scored.config.replay.policies:
        own = rows[rows["policy"] == policy]["ttft_s"]
        seconds, nines = line(axes, POLICY_COLOURS[policy])
        np.testing.assert_allclose(
            10 ** -nines[nines < 3], [1 - np.mean(own <= s) for s in seconds[nines < 3]]
        )
        edge = max(s for s in seconds if s <= 1.3)  # of the bins
        assert labels[policy] == f"{100 * np.mean(own <= edge):.1f} % in time"
    assert "SLO 1.3 s" in texts(axes)
    assert axes.get_ylabel() == "iw_fast requests, %"


def test_a_point_is_at_the_cost_and_misses_of_its_policy(wired_scored: RunSettings) -> None:
    figure = replay_figures.REPLAY_DRAWINGS["cost_against_misses"](wired_scored, DAY)
    (axes,) = figure.axes
    policies = list(wired_scored.config.replay.policies)
    board = mart(wired_scored, "scoreboard").set_index("policy").loc[policies]
    (points,) = axes.collections
    places = board[["usd", "missed_share"]].to_numpy(float) * [1e-3, 100.0]
    np.testing.assert_allclose(points.get_offsets(), places)
    labels = {label.get_text(): label.xy for label in axes.texts}
    for policy, place in zip(policies, places, strict=True):
        assert labels[policy] == pytest.approx(tuple(place))
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "cost of the day, thousand USD",
        "interactive requests that missed their SLO, %",
    )


def test_of_many_policies_eight_have_a_colour_and_the_others_are_grey() -> None:
    seconds = np.array([0.1, 1.0, 10.0])
    policies = list(REPLAY_POLICIES)[:11]
    frame = pd.DataFrame(
        [
            {"policy": name, "ttft_s": s, "cumulated_share": share}
            for n, name in enumerate(policies)
            for s, share in zip(seconds, (0.3, 0.9 - 0.05 * n, 1.0), strict=True)
        ]
    )
    (axes,) = replay_figures.draw_cdf(frame, "ttft_s", "iw_fast", 1.3).axes
    coloured = {one.get_color() for one in axes.lines} & set(POLICY_COLOURS.values())
    assert coloured == {POLICY_COLOURS[name] for name in policies[:8]}
    assert len([one for one in axes.lines if one.get_color() == FAINT]) == 3
    labels = {text.get_text().split("  ")[0]: text.get_color() for text in axes.texts}
    assert [labels[name] for name in policies[8:]] == [MUTED] * 3


@pytest.mark.parametrize("far", [False, True])
def test_outliers_do_not_squeeze_the_points_of_cost_and_misses(far: bool) -> None:
    """Without one both axes are linear; with it each is logarithmic above its median, and says so."""
    frame = pd.DataFrame(
        {"policy": list(REPLAY_POLICIES)[:5], "usd": [20e3, 22e3, 25e3, 30e3, 900e3 if far else 40e3]}
        | {"missed_share": [0.0, 0.004, 0.01, 0.02, 0.9 if far else 0.03]}
    )
    figure = replay_figures.draw_cost_against_misses(frame)
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == (("log", "symlog") if far else ("linear",) * 2)
    assert axes.get_ylabel().endswith("log above 1") == far
    fractions = (axes.transData + axes.transAxes.inverted()).transform(axes.collections[0].get_offsets())
    assert np.diff(fractions[:4], axis=0).min() > 0.02
    for text in axes.texts[:5]:  # a label is next to its point, whatever the axis
        at, label = (axes.transData.transform(place) for place in (text.xy, text.xyann))
        assert np.abs(label - at).max() < 0.2 * axes.get_window_extent().width


def test_a_bar_far_above_the_others_makes_its_panel_logarithmic() -> None:
    rows = [
        {"variant": name, "policy": "hpa", "metric": metric, "tier": tier, "value": value}
        for metric, tier, values in (
            ("gpu_hours", "all", (100.0, 120.0, 130.0)),
            ("attainment_share", "fast", (0.99, 0.98, 0.97)),
            ("ttft_p95_s", "fast", (1.0, 2.0, 4000.0)),
        )
        for name, value in zip("abc", values, strict=True)
    ]
    panels = study_figures.draw_study_bars(pd.DataFrame(rows), "fast").axes
    assert [panel.get_xscale() for panel in panels] == ["linear", "linear", "symlog"]
    widths = [panels[2].transData.transform((bar.get_width(), 0))[0] for bar in panels[2].patches]
    begins, ends = panels[2].get_window_extent().x0, panels[2].get_window_extent().x1
    assert (widths[0] - begins) / (ends - begins) > 0.05
    assert panels[2].get_title(loc="left") == "fast: TTFT P95, s, log above 2"
    labels = [[text.get_text() for text in panel.texts] for panel in panels]
    assert labels == [["100", "120", "130"], ["1", "2", "3"], ["1", "2", "4,000"]], (
        "two digits, three from 100 on"
    )


def test_the_values_of_a_paper_have_the_colour_of_their_study() -> None:
    frame = pd.DataFrame(
        {"study": ["a", "a", "b"], "against": [None, "siloed", None], "metric": "ttft_p95_s"}
        | {"paper_value": [1.0, 0.2, 3.0], "fleetcast_value": [2.0, 0.3, 3.5]}
    )
    figure = study_figures.draw_paper_points(frame)
    shown = {to_hex(points.get_facecolor()[0]).upper() for axes in figure.axes for points in axes.collections}
    assert shown == set(legend_colours(figure).values())
    assert list(legend_colours(figure)) == ["a", "b"]
    assert {(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes} == {("the paper", "fleetcast")}


def test_prices_of_phases_are_written_as_numbers_on_both_axes() -> None:
    prices = {"gpus_per_instance": [1, 2], "gpu": ["a", "b"], "is_best_of_gpu": [True, False]}
    prices |= {f"usd_per_million_{side}_tokens": [0.5, 2.0] for side in ("input", "output")}
    prices |= {"is_cheapest_together": [True, False], "disaggregation_saving_bound_share": [0.125, 0.125]}
    (panel,) = phase_figures.draw_price_hull(pd.DataFrame(prices), "m").axes
    for axis in (panel.xaxis, panel.yaxis):
        assert [form(0.25, 0) for form in (axis.get_major_formatter(), axis.get_minor_formatter())] == [
            "0.25"
        ] * 2
    assert panel.get_title(loc="left") == "m: disaggregation saves 12.5 % at most"
    assert [text.get_text() for text in panel.texts] == ["1xa, cheapest for both phases"], (
        "2xb is dearer in both"
    )


def test_the_fronts_of_a_quality_have_a_line_each_in_the_legend() -> None:
    front = {"plan_kind": "front", "usd_per_hour": 9.0, "promised_quality": 0.5, "quality": 0.6}
    frame = pd.DataFrame(
        [
            front | {"plan": "", "rule": rule, "judge": judge}
            for rule in ("route", "cascade")
            for judge in "ab"
        ]
        + [front | {"plan_kind": "chosen", "plan": "chosen", "rule": "route", "judge": "a"}]
    ).assign(required_quality=0.55, required_latency_s=12.0)
    (legend,) = quality_figures.draw_quality_plans(frame).legends
    names = sorted(text.get_text() for text in legend.get_texts())
    assert names == ["cascade, a", "cascade, b", "route, a", "route, b"]


def test_the_error_that_all_planners_share_is_drawn_once() -> None:
    frame = pd.DataFrame(
        {"planner": list(BOARD_PLANNERS), "total_usd": 100.0, "usd_error_share": 0.1, "required_ratio": 1.0}
        | {"low_usd": np.nan, "high_usd": np.nan, "failure_reason": None}
    )
    (panel,) = planner_figures.draw_planners(frame).axes
    (whisker,) = [bars for bars in panel.collections if len(bars.get_segments())]
    [segment] = whisker.get_segments()
    assert segment[:, 0] == pytest.approx([90.0, 110.0])
    assert "error of the latency profiles, common to all" in panel.get_xlabel()


def test_days_have_their_month() -> None:
    for short, shown in ((False, "Tue 01 Jul"), (True, "01\nJul")):
        figure, axes = plt.subplots()
        axes.plot(HOURS - pd.Timedelta(days=2), np.arange(24.0))
        time_axes.label_days(axes, short=short)
        figure.canvas.draw()
        assert shown in [label.get_text() for label in axes.get_xticklabels()]


def test_the_plan_page_has_forecast_actual_load_and_capacity(wired_day: RunSettings) -> None:
    parameters = {"trace": wired_day.trace, "day": DAY, "policy": plan_page.PLAN_PAGE_POLICY}
    frame = wired_day.lake.sql("reads/plan_page.sql", **parameters).to_pandas()
    plans = wired_day.lake.read("plans", trace=wired_day.trace, day=DAY).to_pandas()
    windows = wired_day.lake.read("plan_windows", trace=wired_day.trace, day=DAY).to_pandas()
    figure = plan_page.draw_plan(frame)
    for axes, llm in zip(figure.axes, LLMS, strict=True):
        own = windows[windows["llm"] == llm]
        need = own.assign(need=own["demand_tokens_per_s"] + own["buffer_tokens_per_s"])
        of = need.groupby(["policy", "window_start"])[["need", "capacity_tokens_per_s"]].sum() / 1e3
        corrected, truth = of.loc["corrected"], of.loc["clairvoyant"]
        np.testing.assert_allclose(line(axes, BLUE)[1][:-1], corrected["need"])
        np.testing.assert_allclose(line(axes, INK)[1][:-1], corrected["capacity_tokens_per_s"])
        assert filled(axes) == pytest.approx(truth["need"].sum() / 3)
        spare = 1 - truth["need"].sum() / corrected["capacity_tokens_per_s"].sum()
        assert axes.get_title(loc="left") == f"{llm}   {spare:.0%} to spare"
    changed = plans[(plans["policy"] == "corrected") & plans["why"].notna()]
    rows = plan_page.describe_plan_changes(wired_day, DAY)
    changed = changed.sort_values(["hour_start", "llm", "served_region", "gpu"])
    assert [row["why"] for row in rows] == changed["why"].tolist()
    first = changed.iloc[0]
    assert [rows[0][name] for name in plan_page.PLAN_PAGE_COLUMNS[:5]] == [
        f"{first['hour_start']:%H:%M}",
        *(first["llm"], first["served_region"], f"{first['gpus_per_instance']} x {first['gpu']}"),
        f"{first['instances_before']} to {first['instances']}",
    ]


# --- forecasts -----------------------------------------------------------------------------------------


def test_a_bar_is_the_error_of_its_method_at_its_horizon_and_the_planned_one_is_blue() -> None:
    wape = {"last_value": 0.3, "arima": 0.2, "weighted": 0.1}
    frame = pd.DataFrame(
        [
            {
                "tier": "interactive",
                "method": method,
                "horizon_minutes": minutes,
                "wape_share": share * minutes,
            }
            for method, share in wape.items()
            for minutes in (10, 60)
        ]
    )
    for axes, minutes in zip(
        forecast_figures.draw_forecast_leaderboard(frame, "arima").axes, (10, 60), strict=True
    ):
        bars = {label.xy[1]: bar for label, bar in zip(axes.texts, axes.patches, strict=True)}
        assert list(bars) == ["last_value", "arima", "weighted"]  # the best on top
        for method, share in wape.items():
            assert bars[method].get_width() == pytest.approx(100 * share * minutes)
        assert [name for name, bar in bars.items() if to_hex(bar.get_facecolor()).upper() == BLUE] == [
            "arima"
        ]
        assert axes.lines[0].get_xdata()[0] == pytest.approx(100 * 0.3 * minutes)
        assert [float(text) for text in texts(axes)] == [pytest.approx(100 * wape[m] * minutes) for m in bars]


def test_a_curve_of_decisions_is_attainment_over_gpu_hours() -> None:
    frame = pd.DataFrame(
        {"method": ["truth", "truth", "arima", "arima"], "capacity_share": [1.2, 1.0, 1.0, 1.2]}
        | {"gpu_hours": [8.0, 10.0, 14.0, 12.0], "attainment_share": [0.9, 0.99, 0.97, 0.93]}
        | {"matched_share": 0.95, "tier": "iw_fast"}
    )
    (axes,) = forecast_figures.draw_decisions(frame, "arima").axes
    curves = {one.get_label(): one.get_xydata().tolist() for one in axes.lines[:2]}
    assert curves == {
        "truth": [[10.0, pytest.approx(99.0)], [8.0, pytest.approx(90.0)]],
        "arima": [[14.0, pytest.approx(97.0)], [12.0, pytest.approx(93.0)]],
    }
    assert axes.lines[2].get_ydata()[0] == 95.0
    assert axes.get_ylabel() == "iw_fast requests within their SLO, %"


# --- the character of a trace --------------------------------------------------------------------------


def portrait(**whole: float) -> pd.DataFrame:
    keys = dict.fromkeys(("tier", "region", "llm", "app"), "all")
    figures_of_all = {"requests_per_s": 1234.5, "daily_strength": 0.87, "dispersion": 3.0, "gap_cv": 1.7}
    row = keys | figures_of_all | {"client_gap_cv": 2.2} | whole
    app = row | {"app": "rag", "dispersion": 5.0, "gap_cv": 2.0, "client_gap_cv": 2.5}
    return pd.DataFrame([row, app])


@pytest.mark.parametrize(("days", "minutes"), [(3, 60), (1, 1)])
def test_load_is_per_second_and_its_season_in_the_headline(days: int, minutes: int) -> None:
    times = pd.date_range("2025-07-01", periods=1440 * days, freq="min")
    load = pd.DataFrame({"minute": times, "tier": "niw", "requests": 6.0, "tokens": 60_000.0})
    upper, lower = character_figures.draw_load(load, portrait()).axes
    assert np.asarray(upper.lines[0].get_ydata()) == pytest.approx(np.full(1440 * days // minutes, 0.1))
    assert np.asarray(lower.lines[0].get_ydata()) == pytest.approx(np.full(1440 * days // minutes, 1.0))
    assert upper.get_title(loc="left") == "1,234.5 requests/s on average, daily season of strength 0.87"
    short = character_figures.draw_load(load, portrait(daily_strength=np.nan)).axes[0]
    assert short.get_title(loc="left").endswith("too short to show a daily rhythm")


def test_the_largest_apps_are_shown_by_requests_and_tokens() -> None:
    apps = pd.DataFrame(
        {"app": ["b", "a", "c"], "place": [2, 1, 3], "request_share": [0.3, 0.6, 0.1]}
        | {"token_share": [0.2, 0.5, 0.3]}
    )
    (axes,) = character_figures.draw_apps(apps, shown=2).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([60, 30, 50, 20])
    assert list(legends(axes.figure)) == ["requests", "tokens"]
    assert axes.get_title(loc="left") == "a sends 60% of the requests, of 3 apps"


def test_tokens_are_summarised_by_their_median() -> None:
    rows = [
        {"kind": kind, "llm": llm, "tokens": tokens * (10 if kind == "input" else 1), "requests": requests}
        for kind in character_figures.TOKEN_KINDS
        for llm, counts in {"x": (10, 10, 80), "y": (50, 0, 0)}.items()
        for tokens, requests in zip((10, 20, 40), counts, strict=True)
    ]
    cdf = pd.DataFrame(rows)
    cdf["cumulated_share"] = cdf.groupby(["kind", "llm"])["requests"].transform(
        lambda n: n.cumsum() / n.sum()
    )
    left, middle, right = character_figures.draw_tokens(cdf).axes
    assert left.get_title(loc="left") == "Half of the requests have up to 400 tokens in and 40 out"
    assert [(axes.get_xlabel(), len(axes.lines)) for axes in (left, middle, right)] == [
        ("input tokens", 2),
        ("output tokens", 2),
        ("total tokens", 2),
    ]
    assert left.lines[0].get_xydata().tolist() == [[100, 0.1], [200, 0.2], [400, 1.0]]


def fortnight() -> pd.DataFrame:
    """Two weeks by the hour: x has 3 fast requests/s and a slow one, y a fast one; then twice as many."""
    times = pd.date_range("2025-07-01", periods=14 * 24, freq="h")
    parts = [
        {"time": times, "tier": tier, "region": "north", "llm": llm, "requests": rate, "tokens": 1000 * rate}
        for tier, llm, rate in (("fast", "x", 3.0), ("slow", "x", 1.0), ("fast", "y", 1.0))
    ]
    load = pd.concat(map(pd.DataFrame, parts))
    second = load["time"] >= times[7 * 24]
    return load.assign(**{name: load[name].where(~second, 2 * load[name]) for name in ("requests", "tokens")})


def test_the_panels_of_the_load_have_the_last_week_by_tier_llm_and_sort() -> None:
    load = fortnight()
    minutes = pd.DataFrame(
        {"time": pd.date_range("2025-07-09 12:00", periods=60, freq="min"), "tier": "fast"}
    )
    figure = paper_panels.draw_tiers(load, minutes.assign(requests=7.0, tokens=700.0))
    week, hour, in_week, in_hour = figure.axes
    assert week.get_title(loc="left") == "fast is the largest tier with 80% of a week's requests"
    assert {one.get_label(): set(one.get_ydata()) for one in week.lines} == {"fast": {8.0}, "slow": {2.0}}
    assert [len(one.get_xdata()) for one in week.lines] == [7 * 24, 7 * 24]
    assert [set(one.get_ydata()) for one in in_week.lines] == [{8.0}, {2.0}]  # thousand tokens/s
    assert (set(hour.lines[0].get_ydata()), set(in_hour.lines[0].get_ydata())) == ({7.0}, {0.7})
    fast, slow, *_ = paper_panels.draw_endpoints(load).axes
    assert {one.get_label(): set(one.get_ydata()) for one in fast.lines} == {"x": {6.0}, "y": {2.0}}
    assert {one.get_label(): set(one.get_ydata()) for one in slow.lines} == {"x": {2.0}}
    colours = [{one.get_label(): one.get_color() for one in axes.lines} for axes in (fast, slow)]
    assert colours[1].items() <= colours[0].items() == {*legend_colours(fast.figure).items()}
    (north, _) = paper_panels.draw_regions(load, held={"slow"}).axes
    sorts = {one.get_label(): set(one.get_ydata()) for one in north.lines}
    assert sorts == {"interactive": {8.0}, "not interactive": {2.0}}
    crowd = pd.concat([load.assign(region=name, requests=n) for n, name in enumerate("dcba", start=1)])
    assert [axes.get_title(loc="left") for axes in paper_panels.draw_regions(crowd, set()).axes[:3]] == [
        "a",
        "b",
        "c",
    ]
    day = load[load["time"] < "2025-07-02"]
    busier = day.assign(requests=np.where(day["time"].dt.hour == 9, 25 * day["requests"], day["requests"]))
    apps = paper_panels.draw_apps_by_hour(busier).axes[0]
    assert apps.get_title(loc="left") == "The ten largest apps: peak at 09 h, 12.5 times the mean"


def test_the_panels_of_latency_have_quartiles_deviation_and_the_percentiles_of_the_largest_llm() -> None:
    box = {"mean_s": 4.0, "p5_s": 1.0, "p25_s": 2.0, "p50_s": 3.0, "p75_s": 5.0, "p95_s": 9.0}
    boxes = pd.DataFrame([{"tier": "fast", "served_region": region} | box for region in ("north", "south")])
    boxes.loc[1, "p95_s"] = 10.0
    times = pd.date_range("2025-07-01 12:00", periods=2, freq="min")
    minutes = pd.DataFrame({"tier": "fast", "minute": times, "mean_s": [4.0, 5.0], "deviation_s": [6.0, 1.0]})
    at, shares = (
        {"served_region": "north", "minute": times[0]},
        {f"p{q}_tokens": 1000.0 * q for q in (50, 95, 99)},
    )
    llms = ("llama3.1-8b", "bloom-176b", "not-in-the-catalogue")
    instances = pd.DataFrame([at | shares | {"llm": llm} for llm in llms])
    figure = latency_panels.draw_latency(boxes, minutes, instances, "a day")
    left, middle, right = figure.axes
    assert left.get_title(loc="left") == "fast in south varies most"
    assert {tuple(one.get_ydata()) for one in left.lines} >= {
        (3.0, 3.0),
        (4.0,),
        (5.0, 9.0),
        (1.0, 2.0)[::-1],
    }
    (band,) = [patch.get_paths()[0].vertices for patch in middle.collections]
    assert (band[:, 1].min(), band[:, 1].max()) == (0.0, 10.0)
    assert right.get_title(loc="left") == "bloom-176b: P50 and P99 (dotted)"
    assert [one.get_ydata()[0] for one in right.lines] == [50.0, 99.0]


@pytest.mark.parametrize(
    ("dispersion", "title"),
    [
        (1.2, "Minutes disperse near Poisson; gaps have a CV of 1.70"),
        (3.0, "Minutes disperse 3.0 times Poisson; gaps have a CV of 1.70"),
        (np.nan, "Gaps vary by 1.70 of their mean"),
    ],
)
def test_burstiness_is_shown_for_the_whole_and_its_parts(dispersion: float, title: str) -> None:
    left, right = character_figures.draw_burstiness(portrait(dispersion=dispersion)).axes
    assert left.get_title(loc="left") == title
    assert [label.get_text() for label in left.get_yticklabels()] == ["rag", "everything"]
    assert left.lines[0].get_xdata().tolist()[0] == 5.0
    pooled, by_client = right.lines[:2]
    assert pooled.get_xdata().tolist() == [2.0, 1.7]
    assert by_client.get_xdata().tolist() == [2.5, 2.2]


def test_a_row_of_boards_is_cost_over_compact_and_names_the_cheapest_rival_that_kept_its_targets() -> None:
    rows = [
        ("a", "compact", 100.0, True, False),
        ("a", "reflex", 130.0, True, False),
        ("a", "hpa", 110.0, False, False),  # missed its targets
        ("a", "clairvoyant", 120.0, True, True),  # knows the day
        ("b", "compact", 10.0, False, False),  # missed its targets
        ("b", "static", 40.0, True, False),
        ("c", "static", 5.0, True, False),  # nothing to compare it with
    ]
    boards = pd.DataFrame(rows, columns=["trace", "policy", "total_usd", "is_ranked", "knows_the_day"])
    figure = unseen_figures.draw_boards(boards)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "a"]
    points = {tuple(np.round(at, 9)) for drawn in axes.collections for at in drawn.get_offsets()}
    assert points == {(1.0, 1), (1.3, 1), (1.1, 1), (1.2, 1), (1.0, 0), (4.0, 0)}
    own = {tuple(at.get_offsets()[0]): to_hex(at.get_facecolor()[0]) for at in axes.collections
           if at.get_offsets()[0][0] == 1}  # fmt: skip
    assert own == {(1.0, 1): BLUE.lower(), (1.0, 0): "#ffffff"}
    named = {text.get_text(): text.xy for text in axes.texts}
    assert named == {"reflex 1.30": (pytest.approx(1.3), 1), "static 4.00": (pytest.approx(4.0), 0)}
    (of_a,) = [drawn for drawn in axes.collections if len(drawn.get_offsets()) == 3]
    hollow = [
        tuple(at) for at, face in zip(of_a.get_offsets(), of_a.get_facecolors(), strict=True) if face[0] == 1
    ]
    assert hollow == [(pytest.approx(1.1), 1)]


def test_the_large_point_of_a_line_of_trials_is_the_frozen_one() -> None:
    columns = ["policy", "usd_per_day", "attained_ratio", "total_usd", "is_ranked", "is_frozen"]
    rows = [
        ("reflex", 10.0, 0.9, 60.0, True, False),
        ("reflex", 14.0, 1.01, 60.0, True, True),
        ("static", 20.0, 1.02, 90.0, True, True),
    ]
    figure = unseen_figures.draw_trades(pd.DataFrame(rows, columns=columns))
    (axes,) = figure.axes
    frozen = [tuple(drawn.get_offsets()[0]) for drawn in axes.collections]
    assert frozen == [(1.01, 14.0), (1.02, 20.0)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["reflex", "static"]
    assert axes.get_ylim()[1] == pytest.approx(26.0)


def test_a_policy_has_one_colour_in_every_figure_and_no_two_have_the_same() -> None:
    assert POLICY_COLOURS.keys() == {*REPLAY_POLICIES, *BOARD_PLANNERS}
    assert len(set(POLICY_COLOURS.values())) == len(POLICY_COLOURS)
