"""Draw the figures of a page as inline SVG: sharp at any width, without files to load (chart.svg.j2)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from fleetcast.assets.pages.figure_style import BLUE, FAINT, INK, MUTED, PALETTE
from fleetcast.assets.pages.templates import fill_template
from fleetcast.models.aliases import Numbers

CHART_FRAME = {"wide": 860, "high": 320, "left": 64, "right": 16, "top": 34, "bottom": 34}
DEPLOYED_COLOUR = "#CFE3F1"  # the planned fleet: a light BLUE
ORANGE = PALETTE[1]
CHART_HOURS = 24
DAY_MARKS = [(hour, f"{hour:02d}", "middle") for hour in range(0, 25, 3)]


class ChartLine(NamedTuple):
    """A value for each hour, drawn at its middle."""

    values: Sequence[float]
    colour: str
    first: float = 0.0  # the hour of the first value
    width: float = 2
    dash: str = ""


def fleet_chart(tomorrow: Numbers) -> str:
    """Return the chart of the planned GPUs by hour against the forecast demand, labelled with GPU counts."""
    rows = tomorrow["by_hour"]
    if tomorrow["basis"] == "trace":
        return sized_hours_chart(rows)
    carries = [float(row["gpus"]) for row in rows]
    means = [row["forecast_gpus"] or 0.0 for row in rows]
    tails = [row["p90_gpus"] or 0.0 for row in rows]
    return render_chart(
        "GPUs by hour of the day, UTC, compared with the forecast demand",
        "GPUs",
        y_max=max(1.12 * max(carries), 1.2 * max(means), min(max(tails), 1.5 * max(carries)), 1e-9),
        keys={
            "planned GPUs": DEPLOYED_COLOUR,
            "GPUs that the forecast fills": INK,
            "GPUs that its P90 fills (sum of endpoints)": ORANGE,
        },
        marks=DAY_MARKS,
        steps=carries,
        lines=[ChartLine(tails, ORANGE, dash="4 4"), ChartLine(means, INK)],
        notes=[
            (hour, value, f"{rows[hour]['gpus']:,}", BLUE)
            for hour, value in enumerate(carries)
            if hour == 0 or value != carries[hour - 1]
        ],
    )


def sized_hours_chart(rows: Sequence[Numbers]) -> str:
    """Return the chart of GPUs by hour; hours that the trace does not have are pale."""
    return render_chart(
        "GPUs by hour of the day, UTC",
        "GPUs",
        y_max=1.15 * max(max(row["gpus"] for row in rows), 1),
        keys={"hours of the trace, sized by replay": BLUE, "other hours, sized like the largest": FAINT},
        marks=DAY_MARKS,
        bars=[
            (row["hour"], row["gpus"], FAINT if row["forecast_tokens_per_s"] is None else BLUE)
            for row in rows
        ],
        notes=[(row["hour"], row["gpus"], f"{row['gpus']:,}", INK) for row in rows],
    )


def history_chart(history: Sequence[Numbers], tomorrow: Numbers | None) -> str:
    """Return the chart of interactive demand by hour: history, then forecast; "" without history."""
    if not history:
        return ""
    first_at = datetime.fromisoformat(str(history[0]["at"]))
    known = {_hours_after(first_at, str(row["at"])): row["tokens_per_s"] for row in history}
    past = [known.get(hour, 0.0) for hour in range(int(max(known)) + 1)]
    lines, keys, span = [ChartLine(past, INK, width=1.5)], {"history": INK}, float(len(past))
    if tomorrow is not None and tomorrow["basis"] == "forecast":
        ahead = [row["forecast_tokens_per_s"] or 0.0 for row in tomorrow["by_hour"]]
        start = _hours_after(first_at, f"{tomorrow['day']}T00:00:00+00:00")
        lines.append(ChartLine(ahead, ORANGE, start))
        keys["forecast"], span = ORANGE, max(span, start + len(ahead))
    marks = []
    for day in range(int(span // CHART_HOURS) + 1):
        at = (
            (day * CHART_HOURS - first_at.hour) % span
            if day == 0 and first_at.hour
            else day * CHART_HOURS - first_at.hour
        )
        if 0 <= at < span and (span <= 9 * CHART_HOURS or day % 2 == 0):
            marks.append((at, (first_at + timedelta(hours=at)).strftime("%d %b"), "start"))
    y_max = 1.1 * max([1e-9, *(value for line in lines for value in line.values)])
    title = "Interactive demand by hour: history and forecast"
    return render_chart(title, "input tokens/s", y_max=y_max, span=span, keys=keys, marks=marks, lines=lines)


def _hours_after(first_at: datetime, at: str) -> float:
    return (datetime.fromisoformat(at) - first_at).total_seconds() / 3600


def render_chart(
    title: str, unit: str, *, y_max: float, keys: dict[str, str], span: float = CHART_HOURS, **shown: Any
) -> str:
    """Return a chart over `span` hours and values up to `y_max`; `keys`: colour of each legend text.

    shown : marks (at, text, anchor) below the axis; steps, a filled value for each hour; bars (at, value,
        colour); lines; notes (at, value, text, colour) above a value.
    """
    step = _step(y_max)
    places = accumulate((44 + 7 * len(text) for text in keys), initial=CHART_FRAME["left"])
    return fill_template(
        Path(__file__).with_name("chart.svg.j2"),
        {"tick": "{:,.10g}".format},
        title=title,
        unit=unit,
        y_max=y_max,
        span=span,
        ticks=list(accumulate([step] * int(y_max / step + 1e-9), initial=0.0)),
        legend=list(zip(places, *zip(*keys.items(), strict=True), strict=False)),
        **({"steps": [], "bars": [], "lines": [], "notes": []} | shown | CHART_FRAME),
        **{"ink": INK, "muted": MUTED, "faint": FAINT, "deployed": DEPLOYED_COLOUR},
    )


def _step(top: float) -> float:
    """Return a round step that divides an axis into three to seven parts."""
    power = 10.0 ** (len(f"{int(top)}") - 1) if top >= 1 else 0.1
    return next(step for step in (power / 5, power / 2, power, 2 * power, 5 * power) if top / step <= 7)
