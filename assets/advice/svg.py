"""Draw the figures of a page as inline SVG: sharp at any width, without files to load (chart.svg.j2)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from fleetcast.assets.pages.templates import fill_template
from fleetcast.models.aliases import Numbers

CHART_FRAME = {"wide": 860, "high": 320, "left": 64, "right": 16, "top": 34, "bottom": 34}
# Colours of page.css, which has a light and a dark value of each, from the palette of Okabe and Ito.
CHART_INK, CHART_FAINT, CHART_BLUE, CHART_ORANGE = "var(--ink)", "var(--line)", "var(--blue)", "var(--orange)"
DEPLOYED_COLOUR, BAND_COLOUR = "var(--deployed)", "var(--band)"
SHOWN_DAYS = 7
CHART_HOURS = 24
CHART_PARTS = ("steps", "bars", "lines", "bands", "intervals", "points", "notes")
DAY_MARKS = [(hour, f"{hour:02d}", "middle") for hour in range(0, 25, 3)]


class ChartLine(NamedTuple):
    """A value for each hour, drawn at its middle."""

    values: Sequence[float]
    colour: str
    first: float = 0.0  # the hour of the first value
    width: float = 2
    dash: str = ""


class ChartBand(NamedTuple):
    """A range for each hour, filled between its ends."""

    low: Sequence[float]
    high: Sequence[float]
    first: float = 0.0  # the hour of the first value


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
            "GPUs that the forecast fills": CHART_INK,
            "GPUs that its P90 fills (sum of endpoints)": CHART_ORANGE,
        },
        marks=DAY_MARKS,
        steps=carries,
        lines=[ChartLine(tails, CHART_ORANGE, dash="4 4"), ChartLine(means, CHART_INK)],
        notes=[
            (hour, value, f"{rows[hour]['gpus']:,}", CHART_BLUE)
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
        keys={
            "hours of the trace, sized by replay": CHART_BLUE,
            "other hours, sized like the largest": CHART_FAINT,
        },
        marks=DAY_MARKS,
        bars=[
            (row["hour"], row["gpus"], CHART_FAINT if row["forecast_tokens_per_s"] is None else CHART_BLUE)
            for row in rows
        ],
        notes=[(row["hour"], row["gpus"], f"{row['gpus']:,}", CHART_INK) for row in rows],
    )


def plan_chart(promise: Numbers, tomorrow: Numbers) -> str:
    """Return the chart of the GPUs of the advised rule: past days as replayed, then tomorrow."""
    past = promise["past_by_hour"]
    start = datetime.fromisoformat(f"{tomorrow['day']}T00:00:00+00:00")
    first_at = datetime.fromisoformat(str(past[0]["at"])) if past else start
    known = {_hours_after(first_at, str(row["at"])): row["gpus"] for row in past}
    ahead = _hours_after(first_at, start.isoformat())
    span = ahead + CHART_HOURS
    steps = [known.get(float(hour), 0.0) for hour in range(int(ahead))]
    steps += [row["gpus_mean"] for row in promise["by_hour"]]
    band = ChartBand(
        [row["gpus_low"] for row in promise["by_hour"]],
        [row["gpus_high"] for row in promise["by_hour"]],
        ahead,
    )
    return render_chart(
        "GPUs by hour of the rule in the promise: past days as replayed, then tomorrow",
        "GPUs",
        y_max=1.15 * max([1.0, *steps, *band.high]),
        span=span,
        keys={"GPUs held": DEPLOYED_COLOUR, "tomorrow, nine versions in ten": BAND_COLOUR},
        marks=_day_marks(first_at, span),
        steps=steps,
        bands=[band],
    )


def reliability_chart(rows: Sequence[Numbers]) -> str:
    """Return the reliability diagram: promised share against kept share of advised days; "" without any.

    `rows`: of advice_reliability. Days without a promise count too, by their share of versions.
    """
    shown = [(100 * row["promised_share"], 100 * row["target_share"], row["graded_days"]) for row in rows]
    if not shown:
        return ""
    return render_chart(
        "Share of days on target by the share that was promised",
        "% of days kept",
        y_max=115.0,
        span=115.0,
        keys={"as often as promised": CHART_INK, "days of advice": CHART_ORANGE},
        marks=[(at, f"{at} %", "middle") for at in range(0, 101, 20)],
        lines=[ChartLine([at + 0.5 for at in range(100)], CHART_INK, width=1.5, dash="4 4")],
        points=[(promised, kept) for promised, kept, _ in shown],
        notes=[(promised - 0.5, kept, f"{days}", CHART_INK) for promised, kept, days in shown],
    )


def past_intervals_chart(grades: Sequence[Numbers]) -> str:
    """Return the chart of intervals of the share late by day, with what came; "" without any."""
    if not grades:
        return ""
    late = [100 * (1 - row[name]) for row in grades for name in ("in_time_low_share", "in_time_share")]
    bars = [
        (at, 100 * (1 - row["in_time_high_share"]), 100 * (1 - row["in_time_low_share"]))
        for at, row in enumerate(grades)
    ]
    points = [(at + 0.5, 100 * (1 - row["in_time_share"])) for at, row in enumerate(grades)]
    every = max(1, len(grades) // 8)
    return render_chart(
        "Requests late by day: the interval of its midnight and what came",
        "% late",
        y_max=1.15 * max([0.5, *late]),
        span=float(len(grades)),
        keys={"interval of midnight": BAND_COLOUR, "came": CHART_ORANGE},
        marks=[(at, str(row["day"])[5:], "start") for at, row in enumerate(grades) if at % every == 0],
        intervals=bars,
        points=points,
    )


def history_chart(
    history: Sequence[Numbers], tomorrow: Numbers | None, promise: Numbers | None = None
) -> str:
    """Return the chart of interactive demand by hour: history, then forecast; "" without history.

    With a promise it shows a week, and the band of the versions of tomorrow.
    """
    if not history:
        return ""
    if promise is not None:
        history = history[-SHOWN_DAYS * CHART_HOURS :]
    first_at = datetime.fromisoformat(str(history[0]["at"]))
    known = {_hours_after(first_at, str(row["at"])): row["tokens_per_s"] for row in history}
    past = [known.get(hour, 0.0) for hour in range(int(max(known)) + 1)]
    lines, keys, span = [ChartLine(past, CHART_INK, width=1.5)], {"history": CHART_INK}, float(len(past))
    bands = list[ChartBand]()
    if tomorrow is not None and tomorrow["basis"] == "forecast":
        ahead = [row["forecast_tokens_per_s"] or 0.0 for row in tomorrow["by_hour"]]
        start = _hours_after(first_at, f"{tomorrow['day']}T00:00:00+00:00")
        lines.append(ChartLine(ahead, CHART_ORANGE, start))
        keys["forecast"], span = CHART_ORANGE, max(span, start + len(ahead))
        if promise is not None:
            low = [row["load_low_tokens_per_s"] for row in promise["by_hour"]]
            high = [row["load_high_tokens_per_s"] for row in promise["by_hour"]]
            bands.append(ChartBand(low, high, start))
            keys["nine versions in ten"] = BAND_COLOUR
    tops = [*(line.values for line in lines), *(band.high for band in bands)]
    y_max = 1.1 * max([1e-9, *(value for top in tops for value in top)])
    return render_chart(
        "Interactive demand by hour: history and forecast",
        "input tokens/s",
        y_max=y_max,
        span=span,
        keys=keys,
        marks=_day_marks(first_at, span),
        lines=lines,
        bands=bands,
    )


def _day_marks(first_at: datetime, span: float) -> list[tuple[float, str, str]]:
    """Return the marks of midnights on an axis of hours; every second one if there are many."""
    marks = []
    for day in range(int(span // CHART_HOURS) + 1):
        at = (
            (day * CHART_HOURS - first_at.hour) % span
            if day == 0 and first_at.hour
            else day * CHART_HOURS - first_at.hour
        )
        if 0 <= at < span and (span <= 9 * CHART_HOURS or day % 2 == 0):
            marks.append((at, (first_at + timedelta(hours=at)).strftime("%d %b"), "start"))
    return marks


def _hours_after(first_at: datetime, at: str) -> float:
    return (datetime.fromisoformat(at) - first_at).total_seconds() / 3600


def render_chart(
    title: str, unit: str, *, y_max: float, keys: dict[str, str], span: float = CHART_HOURS, **shown: Any
) -> str:
    """Return a chart over `span` hours and values up to `y_max`; `keys`: colour of each legend text.

    shown : marks (at, text, anchor) below the axis; steps, a filled value for each hour; bars (at, value,
        colour); lines; bands; intervals (at, low, high); points (at, value); notes (at, value, text, colour)
        above a value.
    """
    step = _step(y_max)
    return fill_template(
        Path(__file__).with_name("chart.svg.j2"),
        {"tick": "{:,.10g}".format},
        title=title,
        unit=unit,
        y_max=y_max,
        span=span,
        ticks=list(accumulate([step] * int(y_max / step + 1e-9), initial=0.0)),
        keys=keys,
        **({part: [] for part in CHART_PARTS} | shown | CHART_FRAME),
    )


def _step(top: float) -> float:
    """Return a round step that divides an axis into three to seven parts."""
    power = 10.0 ** (len(f"{int(top)}") - 1) if top >= 1 else 0.1
    return next(step for step in (power / 5, power / 2, power, 2 * power, 5 * power) if top / step <= 7)
