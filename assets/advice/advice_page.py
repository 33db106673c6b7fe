"""The page: one HTML file that needs nothing else, of the numbers in advice.json alone (page.html.j2)."""

from pathlib import Path

from markupsafe import Markup, escape

from fleetcast.assets.advice.phrases import join_few_names, share_as_percent
from fleetcast.assets.advice.svg import fleet_chart, history_chart
from fleetcast.assets.pages.templates import fill_template
from fleetcast.models.aliases import Numbers

POLICY_SUMMARIES = {
    "static": "one fleet for the peak of the history, all day",
    "reactive": "one instance more above 70 % of memory, one less below 30 %",
    "lt_ua": "SageServe's hourly plan, passed where the forecast failed",
    "corrected": "our plan, each hour made when it begins; passed in a burst",
    "day_ahead": "our plan, all hours made at midnight; passed in a burst",
    "clairvoyant": "our plan on the true demand: nobody can do that",
}


def render_advice_page(numbers: Numbers) -> str:
    """The whole page."""
    tomorrow, watch = numbers["tomorrow"], numbers["watch"]
    planned = tomorrow["hours"] if tomorrow else []
    policies = policy_table_rows(numbers)
    return fill_template(
        Path(__file__).with_name("page.html.j2"),
        {
            "joined": join_few_names,
            "percent": lambda *share: escape_line(share_as_percent(*share)),
            "number": format_page_number,
            "text": escape_line,
            "minute": format_minute,
        },
        **numbers,
        fleet_chart=Markup(fleet_chart(tomorrow) if tomorrow else ""),
        history_chart=Markup(history_chart(numbers["history"], tomorrow)),
        pools=list(dict.fromkeys(pool_column_title(row) for row in planned)),
        instances={(row["hour"], pool_column_title(row)): row["instances"] for row in planned},
        llm_shares=join_few_names(
            [f"{one['llm']} {share_as_percent(one['requests_share'], 1)}" for one in numbers["llms"]]
        ),
        policies=policies,
        most_usd=max([row["usd"] for row in policies] + [1e-9]),
        unsure_hours=[
            f"{one['hour']:02d}:00 (P90 {one['p90_ratio']:,.1f} times the mean)"
            for one in (watch["unsure_hours"] if watch else [])
        ],
    )


def pool_column_title(row: Numbers) -> str:
    """A pool as the head of a column."""
    role = "" if row["role"] == "whole" else f", {row['role']}"
    return f"{row['region']}: {row['llm']}{role} on {row['gpus_per_instance']} x {row['gpu']}"


def policy_table_rows(numbers: Numbers) -> list[Numbers]:
    """The last known day under each policy, after what runs today."""
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
    """A figure as a person reads it; a dash where it is not known."""
    return "–" if value is None else f"{value:,.{digits}f}"


def format_minute(instant: str) -> str:
    """An instant to the minute."""
    return str(instant)[:16].replace("T", " ")


def escape_line(line: str) -> Markup:
    """A line as HTML; a figure stays on the line of its unit."""
    return Markup(str(escape(line)).replace(" %", "&nbsp;%").replace(" USD", "&nbsp;USD"))
