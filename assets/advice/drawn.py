"""The figures of a page as SVG in its text: sharp at any width, nothing to load."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from fleetcast.assets.pages.style import BLUE, FAINT, INK, MUTED, PALETTE

Numbers = dict[str, Any]
WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 860, 320, 64, 16, 34, 34
HELD = "#CFE3F1"  # what the fleet carries: a light BLUE
ORANGE = PALETTE[1]
HOURS = 24


def of_fleet(tomorrow: Numbers) -> str:
    """The fleet of the day, hour by hour, against the demand that is foreseen; GPUs stand above each step."""
    rows = tomorrow["by_hour"]
    if tomorrow["basis"] == "trace":
        return _of_sizes(rows)
    carries = [float(row["gpus"]) for row in rows]
    means = [row["forecast_gpus"] or 0.0 for row in rows]
    tails = [row["p90_gpus"] or 0.0 for row in rows]
    top = max(1.12 * max(carries), 1.2 * max(means), min(max(tails), 1.5 * max(carries)), 1e-9)
    x, y = _scales(HOURS, top)
    body = [_grid(top, y, "GPUs"), _hours(x)]
    corners = [f"{x(0):.1f},{y(0):.1f}"]
    for hour, value in enumerate(carries):
        corners += [f"{x(hour):.1f},{y(value):.1f}", f"{x(hour + 1):.1f},{y(value):.1f}"]
    body.append(f'<polygon points="{" ".join([*corners, f"{x(HOURS):.1f},{y(0):.1f}"])}" fill="{HELD}"/>')
    middles = [hour + 0.5 for hour in range(HOURS)]
    body.append(_line(middles, tails, x, y, ORANGE, "4 4"))
    body.append(_line(middles, means, x, y, INK))
    body += [
        _text(x(hour + 0.5), y(carries[hour]) - 6, f"{row['gpus']:,}", BLUE, "middle")
        for hour, row in enumerate(rows)
        if hour == 0 or row["gpus"] != rows[hour - 1]["gpus"]
    ]
    keys = [("held", HELD), ("filled by what is foreseen", INK), ("by its P90, endpoints added", ORANGE)]
    return _svg(body, keys, "GPUs by hour of the day, UTC, against the demand that is foreseen")


def _of_sizes(rows: Sequence[Numbers]) -> str:
    """GPUs by hour; those of hours that the trace does not have are pale."""
    top = 1.15 * max(max(row["gpus"] for row in rows), 1)
    x, y = _scales(HOURS, top)
    body = [_grid(top, y, "GPUs"), _hours(x)]
    for row in rows:
        seen = row["forecast_tokens_per_s"] is not None
        left, width, height = x(row["hour"]) + 2, x(1) - x(0) - 4, y(0) - y(row["gpus"])
        fill = BLUE if seen else FAINT
        body.append(
            f'<rect x="{left:.1f}" y="{y(row["gpus"]):.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="{fill}"/>'
        )
        body.append(_text(left + width / 2, y(row["gpus"]) - 5, f"{row['gpus']:,}", INK, "middle"))
    keys = [("hours of the trace, sized by replay", BLUE), ("other hours, like the largest", FAINT)]
    return _svg(body, keys, "GPUs by hour of the day, UTC")


def of_history(history: Sequence[Numbers], tomorrow: Numbers | None) -> str:
    """Interactive demand by hour of the days that are known, then what is foreseen."""
    if not history:
        return ""
    begun = datetime.fromisoformat(str(history[0]["at"]))
    known = {_hours_after(begun, str(row["at"])): row["tokens_per_s"] for row in history}
    last = int(max(known))
    past = [known.get(hour, 0.0) for hour in range(last + 1)]
    ahead: list[tuple[float, float]] = []
    if tomorrow is not None and tomorrow["basis"] == "forecast":
        start = _hours_after(begun, f"{tomorrow['day']}T00:00:00+00:00")
        ahead = [(start + r["hour"], r["forecast_tokens_per_s"] or 0.0) for r in tomorrow["by_hour"]]
    span = max([last + 1.0, *(at + 1 for at, _ in ahead)])
    top = 1.1 * max([*past, *(value for _, value in ahead), 1e-9])
    x, y = _scales(span, top)
    body = [_grid(top, y, "input tokens/s")]
    for day in range(int(span // HOURS) + 1):
        at = (day * HOURS - begun.hour) % span if day == 0 and begun.hour else day * HOURS - begun.hour
        if 0 <= at < span and (span <= 9 * HOURS or day % 2 == 0):
            label = (begun + timedelta(hours=at)).strftime("%d %b")
            body.append(_text(x(at), HIGH - BOTTOM + 18, label, MUTED, "start"))
    body.append(_line([hour + 0.5 for hour in range(len(past))], past, x, y, INK, width=1.5))
    keys = [("came", INK)]
    if ahead:
        body.append(_line([at + 0.5 for at, _ in ahead], [value for _, value in ahead], x, y, ORANGE))
        keys.append(("foreseen", ORANGE))
    return _svg(body, keys, "Interactive demand by hour, and what is foreseen")


def _hours_after(begun: datetime, at: str) -> float:
    return (datetime.fromisoformat(at) - begun).total_seconds() / 3600


# --- strokes -----------------------------------------------------------------------------------------------

Scale = Callable[[float], float]


def _scales(span: float, top: float) -> tuple[Scale, Scale]:
    """From hours and figures to places."""
    width, height = WIDE - LEFT - RIGHT, HIGH - TOP - BOTTOM
    return (lambda at: LEFT + width * at / span), (lambda value: TOP + height * (1 - value / top))


def _svg(body: Sequence[str], keys: Sequence[tuple[str, str]], title: str) -> str:
    """A figure with its legend above."""
    at, legend = LEFT, []
    for label, colour in keys:
        legend.append(f'<rect x="{at}" y="8" width="14" height="10" fill="{colour}"/>')
        legend.append(_text(at + 20, 17, label, INK, "start"))
        at += 44 + 7 * len(label)
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{title}"><title>{title}</title>'
        f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{WIDE - LEFT - RIGHT}" '
        f'height="{HIGH - TOP - BOTTOM}"/></clipPath>{"".join([*body, *legend])}</svg>'
    )


def _grid(top: float, y: Scale, unit: str) -> str:
    """Lines and figures of the y axis."""
    step = _step(top)
    parts, value = [], 0.0
    while value <= top:
        ends = f'x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"'
        parts.append(f'<line {ends} stroke="{FAINT}"/>')
        parts.append(_text(LEFT - 8, y(value) + 4, f"{value:,.10g}", MUTED, "end"))
        value += step
    parts.append(_text(WIDE - RIGHT, 17, unit, MUTED, "end"))
    return "".join(parts)


def _step(top: float) -> float:
    """A round step that parts an axis in three to seven."""
    power = 10.0 ** (len(f"{int(top)}") - 1) if top >= 1 else 0.1
    return next(step for step in (power / 5, power / 2, power, 2 * power, 5 * power) if top / step <= 7)


def _hours(x: Scale) -> str:
    labels = [_text(x(hour), HIGH - BOTTOM + 18, f"{hour:02d}", MUTED, "middle") for hour in range(0, 25, 3)]
    return "".join(labels)


def _line(
    at: Sequence[float],
    values: Sequence[float],
    x: Scale,
    y: Scale,
    colour: str,
    dash: str = "",
    width: float = 2,
) -> str:
    points = " ".join(f"{x(a):.1f},{y(v):.1f}" for a, v in zip(at, values, strict=True))
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed} '
        'clip-path="url(#plot)"/>'
    )


def _text(x: float, y: float, text: str, colour: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{text}</text>'
