"""What a replayed request costs as the simulated time, its output or the fleet grows; a figure of it."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from measure import ROOT, Figures, Target, cpu_seconds
from workloads import INSTANCES, endpoint_fleet, endpoint_trace, play_endpoint, setting

from fleetcast.assets.pages.figure_style import BLUE, MUTED, STYLE
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.session.rules import make_rules

FIGURE = ROOT / "data" / "figures" / "bench" / "growth.png"
REQUESTS = 100_000
REQUESTS_PER_S = 30.0
RATES_PER_S = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # the same requests over ever longer time
OUTPUTS = (10, 30, 100, 300, 1000)
FLEETS = (60, 120, 300, 600, 1200)
TICKS = {"simulated_time": (1, 10, 100), "output_length": OUTPUTS, "idle_instances": FLEETS}
COST_TICKS = (0.1, 0.3, 1, 3, 10, 30)
OFFSET: dict[str, Any] = {"textcoords": "offset points", "fontsize": 12}
HOW = "growth.png: CPU per request, dearest over first"
TARGETS = {
    "growth_simulated_time_ratio": Target("x", f"{HOW}, 1 hour to 12 days", at_most=2.0),
    "growth_output_length_ratio": Target("x", f"{HOW}, 10 to 1,000 output tokens", at_most=2.0),
    "growth_idle_instances_ratio": Target("x", f"{HOW}, 60 to 1,200 instances at the same load", at_most=2.0),
}
Point = tuple[float, float, float]  # what grows, and the CPU seconds per request, leapt and stepped


def growth() -> Figures:
    """Replay the same requests over longer times, with longer outputs, on larger fleets; draw growth.png."""
    fleet = endpoint_fleet(INSTANCES)
    slower = [endpoint_trace(REQUESTS, rate) for rate in RATES_PER_S]
    longer = [endpoint_trace(REQUESTS, REQUESTS_PER_S, tokens) for tokens in OUTPUTS]
    usual = endpoint_trace(REQUESTS, REQUESTS_PER_S)
    cost([(0.0, usual, fleet)])  # compiles
    points = {
        "simulated_time": cost((t.arrival_s[-1] / 3600, t, fleet) for t in slower),
        "output_length": cost((n, t, fleet) for n, t in zip(OUTPUTS, longer, strict=True)),
        "idle_instances": cost((n, usual, endpoint_fleet(n)) for n in FLEETS),
    }
    draw(points)
    return {f"growth_{name}_ratio": ratio(series) for name, series in points.items()}


def cost(cases: Iterable[tuple[float, TraceArrays, FleetArrays]]) -> list[Point]:
    """Measure each case, leapt and stepped."""
    catalogue, config = setting()
    leap, step = (make_rules(catalogue, config.replay, "follow", leap=leap) for leap in (True, False))
    points = []
    for grown, trace, fleet in cases:
        leapt_s = cpu_seconds(partial(play_endpoint, trace, fleet, leap), repeats=3)
        stepped_s = cpu_seconds(partial(play_endpoint, trace, fleet, step))
        points.append((grown, leapt_s / REQUESTS, stepped_s / REQUESTS))
    return points


def ratio(points: list[Point]) -> float:
    """The dearest leapt request over the first."""
    leapt = [point[1] for point in points]
    return max(leapt) / leapt[0]


def draw(points: dict[str, list[Point]]) -> None:
    """Three panels: microseconds per request against what grows."""
    import matplotlib.pyplot as plt

    labels = {
        "simulated_time": "simulated hours",
        "output_length": "mean output tokens",
        "idle_instances": "instances, same load",
    }
    with plt.rc_context({**STYLE, "figure.figsize": (12, 4.4)}):
        figure, panels = plt.subplots(1, 3, sharey=True)
        for panel, (name, series) in zip(panels, points.items(), strict=True):
            grown, leapt, stepped = np.array(series).T
            panel.plot(grown, stepped * 1e6, color=MUTED, marker="o")
            panel.plot(grown, leapt * 1e6, color=BLUE, marker="o")
            panel.set(xscale="log", yscale="log", xlabel=labels[name])
            panel.set_xticks(TICKS[name], [f"{tick:,}" for tick in TICKS[name]])
            panel.minorticks_off()
        panels[0].set_yticks(COST_TICKS, [f"{tick:g}" for tick in COST_TICKS])
        panels[0].set_ylabel("CPU µs per request")
        _, leapt, stepped = points["output_length"][-1]
        for text, at, colour in (("every step played", stepped, MUTED), ("leaping", leapt, BLUE)):
            panels[1].annotate(text, (OUTPUTS[-1], at * 1e6), (-6, 10), color=colour, ha="right", **OFFSET)
        panels[0].set_title("What a replayed request costs", pad=24).set_in_layout(False)
        rest = (
            f"{REQUESTS:,} requests of 300 output tokens in an hour, on 60 instances, where these do not grow"
        )
        panels[0].annotate(
            rest, (0, 1), (0, 9), xycoords="axes fraction", color=MUTED, in_layout=False, **OFFSET
        )
        FIGURE.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(FIGURE)
        plt.close(figure)


FUNCTIONS = (growth,)
SMALL = {"RATES_PER_S": (30.0, 10.0), "OUTPUTS": (10, 30), "FLEETS": (60, 120)}
SMOKE = {"growth": {"REQUESTS": 3000, "FIGURE": FIGURE.with_name("small_growth.png"), **SMALL}}
