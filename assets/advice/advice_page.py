"""Render and write the page: one HTML file without external parts, from the numbers in advice.json.

Page and numbers are files on a disk or in a bucket; page.html.j2 is the template.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from fleetcast.assets.advice.phrases import (
    join_few_names,
    reliability_sentence,
    saves_or_costs,
    share_as_percent,
    usd_per_gpu_hour_clause,
)
from fleetcast.assets.advice.svg import (
    fleet_chart,
    history_chart,
    past_intervals_chart,
    plan_chart,
    reliability_chart,
)
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.templates import fill_template
from fleetcast.models.aliases import Numbers

POLICY_SUMMARIES = {
    "static": "the same fleet all day, sized for the peak of the history",
    "reactive": "adds an instance above 70 % of memory in use, removes one below 30 %",
    "lt_ua": "SageServe's hourly plan; scales further where the forecast failed",
    "corrected": "fleetcast's plan, made at the start of each hour; scales further in a burst",
    "day_ahead": "fleetcast's plan, made at midnight for all hours; scales further in a burst",
    "clairvoyant": "fleetcast's plan with the true demand: a bound that no real policy reaches",
}


def render_advice_page(numbers: Numbers) -> str:
    """Return the whole page as HTML."""
    tomorrow, watch, promise = numbers["tomorrow"], numbers["watch"], numbers["promise"]
    planned = tomorrow["hours"] if tomorrow else []
    policies = policy_table_rows(numbers)
    return fill_template(
        Path(__file__).with_name("page.html.j2"),
        PAGE_FILTERS,
        **numbers,
        fleet_chart=Markup(fleet_chart(tomorrow) if tomorrow else ""),
        history_chart=Markup(history_chart(numbers["history"], tomorrow, promise)),
        plan_chart=Markup(plan_chart(promise, tomorrow) if promise and tomorrow else ""),
        past_intervals_chart=Markup(past_intervals_chart(numbers["grades"])),
        reliability_chart=Markup(reliability_chart(numbers["reliability"])),
        reliability_line=reliability_sentence(numbers["reliability"]),
        rules=numbers["choice"]["rules"] if numbers["choice"] else [],
        inside_days=sum(row["is_inside"] for row in numbers["grades"]),
        has_reserved=any((numbers["prices"] or {}).get("reserved_usd_per_gpu_hour", {}).values()),
        rate=usd_per_gpu_hour_clause(tomorrow, numbers["prices"]) if tomorrow else "",
        pools=list(dict.fromkeys(pool_column_title(row) for row in planned)),
        instances={(row["hour"], pool_column_title(row)): row["instances"] for row in planned},
        llm_shares=join_few_names(
            [f"{row['llm']} {share_as_percent(row['requests_share'], 1)}" for row in numbers["llms"]]
        ),
        policies=policies,
        most_usd=max([row["usd"] for row in policies] + [1e-9]),
        most_rule_usd=max(
            [row["usd_mean"] or 0.0 for row in (numbers["choice"] or {"rules": []})["rules"]] + [1e-9]
        ),
        unsure_hours=[
            f"{row['hour']:02d}:00 (P90 is {row['p90_ratio']:,.1f} times the mean)"
            for row in (watch["unsure_hours"] if watch else [])
        ],
    )


def pool_column_title(row: Numbers) -> str:
    """Return the column title of a pool."""
    role = "" if row["role"] == "whole" else f", {row['role']}"
    return f"{row['region']}: {row['llm']}{role} on {row['gpus_per_instance']} x {row['gpu']}"


def policy_table_rows(numbers: Numbers) -> list[Numbers]:
    """Return the rows of the policy table: the current fleet, if known, then each policy."""
    board, saving = numbers["board"], numbers["saving"]
    rows = [
        row | {"what": POLICY_SUMMARIES.get(row["policy"], row["what"])}
        for row in (board["policies"] if board else [])
    ]
    if saving is not None and saving["is_told"]:
        figures = {key: saving[f"today_{key}"] for key in ("usd", "gpu_hours", "in_time_share")}
        rows.insert(0, {"policy": "today", "what": saving["today"], **figures})
    return rows


def format_page_number(value: float | None, digits: int = 0) -> str:
    """Format a number for the page; a dash if it is not known."""
    return "–" if value is None else f"{value:,.{digits}f}"


def format_minute(instant: str) -> str:
    """Format an instant to the minute."""
    return str(instant)[:16].replace("T", " ")


def escape_line(line: str) -> Markup:
    """Return a line as HTML, without line breaks between a number and its unit."""
    return Markup(str(escape(line)).replace(" %", "&nbsp;%").replace(" USD", "&nbsp;USD"))


def format_page_percent(share: float | None, digits: int = 0) -> Markup:
    """Format a share for the page, in percent."""
    return escape_line(share_as_percent(share, digits))


def format_page_saving(low: float, high: float | None = None) -> Markup:
    """Format a saving or an interval of it for the page, in USD, as a verb with its object."""
    return escape_line(saves_or_costs(low, low if high is None else high, digits=2))


PAGE_FILTERS: dict[str, Callable[..., object]] = {  # of page.html.j2
    "joined": join_few_names,
    "percent": format_page_percent,
    "number": format_page_number,
    "saving": format_page_saving,
    "text": escape_line,
    "minute": format_minute,
}


class AdviceFiles(NamedTuple):
    """Paths of a page and of its numbers."""

    page: LakePath
    numbers: LakePath


def read_advice(folder: LakePath) -> dict[str, Any] | None:
    """Read the numbers of a page in a folder; None if there is no page."""
    path = folder / "advice.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def write_advice(numbers: dict[str, Any], folder: LakePath) -> AdviceFiles:
    """Write advice.html and advice.json into a folder; ValueError for a nan or an infinity."""
    folder.mkdir(parents=True, exist_ok=True)
    files = AdviceFiles(folder / "advice.html", folder / "advice.json")
    text = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False)
    files.numbers.write_text(text + "\n", encoding="utf-8")
    files.page.write_text(render_advice_page(numbers), encoding="utf-8")
    return files
