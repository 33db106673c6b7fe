"""The page: one HTML file that needs nothing else, of the numbers in advice.json alone."""

from collections.abc import Callable, Sequence
from typing import Any

from fleetcast.assets.advice import doubts
from fleetcast.assets.advice.drawn import of_fleet, of_history
from fleetcast.assets.advice.html import (
    bar_cell,
    cell,
    command,
    document,
    figure,
    folded,
    listed,
    number,
    para,
    section,
    table,
    text_cell,
)
from fleetcast.assets.advice.words import joined, percent

Numbers = dict[str, Any]
KINDS = {
    "one_type": "one GPU type",
    "mixed_types": "several types",
    "combos": "several, or teams with prefill and decode apart",
    "by_bucket": "several types, each its own requests",
}
WHAT = {
    "static": "one fleet for the peak of the history, all day",
    "reactive": "one instance more above 70 % of memory, one less below 30 %",
    "lt_ua": "SageServe's hourly plan, passed where the forecast failed",
    "corrected": "our plan, each hour made when it begins; passed in a burst",
    "day_ahead": "our plan, all hours made at midnight; passed in a burst",
    "clairvoyant": "our plan on the true demand: nobody can do that",
}


def page(numbers: Numbers) -> str:
    """The whole page."""
    trace = numbers["trace"]
    first, last = (str(trace[end])[:16].replace("T", " ") for end in ("first_at", "last_at"))
    title = f"Advice for {trace['name']}: {trace['requests']:,} requests, {first} to {last} UTC"
    parts: Sequence[Callable[[Numbers], str]] = (
        *(tomorrow_told, gpus_told, levels_told, llms_told, saving_told),
        *(doubts.certainty_told, doubts.watch_told, doubts.cannot_told, doubts.trace_told, doubts.made_by),
    )
    answer = "".join(para(line) for line in numbers["answer"])
    head = f"<h1>{para(title)[3:-4]}</h1><div class=answer>{answer}</div>{first_figure(numbers)}"
    return document(title, head + "".join(part(numbers) for part in parts))


def first_figure(numbers: Numbers) -> str:
    """The figure of the first screen."""
    tomorrow = numbers["tomorrow"]
    if tomorrow is None:
        return figure(of_history(numbers["history"], None), "Input tokens/s by hour, as they came, UTC.")
    if tomorrow["basis"] == "trace":
        return figure(of_fleet(tomorrow), "Hours of the day, UTC.")
    return figure(of_fleet(tomorrow), f"{tomorrow['day']}, hours UTC.")


def tomorrow_told(numbers: Numbers) -> str:
    """The plan, hour by hour."""
    tomorrow = numbers["tomorrow"]
    if tomorrow is None:
        return ""
    pools = list(dict.fromkeys(_pool(row) for row in tomorrow["hours"]))
    rows = []
    for hour in tomorrow["by_hour"]:
        own = {_pool(row): row["instances"] for row in tomorrow["hours"] if row["hour"] == hour["hour"]}
        figures = (
            *(number(own.get(pool, 0)) for pool in pools),
            number(hour["gpus"]),
            number(hour["usd"], 2),
            number(hour["forecast_tokens_per_s"]),
            number(hour["carries_tokens_per_s"]),
        )
        rows.append([text_cell(f"{hour['hour']:02d}:00"), *map(cell, figures)])
    is_foreseen = tomorrow["basis"] == "forecast"
    heads = ("hour", *pools, "GPUs", "USD", f"tokens/s {'foreseen' if is_foreseen else 'came'}", "carried")
    basis = (
        f"Foreseen at midnight by the method {tomorrow['method']}. Each hour carries what its load stays "
        "below nine times in ten; what comes above it is left to scaling within the hour."
        if is_foreseen
        else "No day is foreseen: each hour of the trace has the fewest instances that serve it in time."
    )
    short, changes = tomorrow["short_hours"], tomorrow["changes"]
    return section(
        "What to run, by hour and region",
        para(f"{tomorrow['gpu_hours']:,.0f} GPU-hours, {tomorrow['usd']:,.2f} USD. {basis}"),
        para(f"In {short} hours the fleet cannot carry all of it." if short else ""),
        folded("Every hour: instances of each pool", table(heads, rows)),
        folded(f"Why each change ({len(changes)})", listed(changes)),
        command(numbers, "tomorrow"),
    )


def _pool(row: Numbers) -> str:
    role = "" if row["role"] == "whole" else f", {row['role']}"
    return f"{row['region']}: {row['llm']}{role} on {row['gpus_per_instance']} x {row['gpu']}"


def gpus_told(numbers: Numbers) -> str:
    """Which GPUs to rent, and whether prefill and decode should stand apart."""
    title, parts = "On which GPUs, together or apart", list[str]()
    for one in numbers["gpus"]:
        rows = [
            [
                text_cell(KINDS[fleet["kind"]], is_wide=True),
                text_cell(fleet["rented"], is_wide=True),
                cell(number(sum(fleet["gpus"].values()))),
                cell(number(fleet["usd_per_hour"], 2)),
                cell(percent(fleet["attainment_share"], 1)),
                cell(number(fleet["ttft_p95_s"], 2)),
            ]
            for fleet in one["fleets"]
        ]
        share = one["apart_saving_bound_share"]
        bound = f"can save at most {percent(share, 1)}" if share else "saves nothing"
        way = "apart" if one["is_apart"] else "together"
        parts.append(
            para(
                f"{one['llm']} at its peak, {one['requests_per_s']:,.2f} requests/s with "
                f"{percent(one['target_share'])} in time ({one['targets']}): prefill and decode {way}. By "
                f"GPU time alone, parting them {bound}."
            )
        )
        if max(fleet["attainment_share"] for fleet in one["fleets"]) < one["target_share"]:
            parts.append(
                para("None of these keeps that: the hour comes in bursts above the peak they carry.")
            )
        heads = ("a fleet of", "rented", "GPUs", "USD an hour", "in time", "TTFT P95, s")
        parts.append(table(heads, rows, [fleet["kind"] for fleet in one["fleets"]].index(one["best"])))
    if not parts and numbers["tomorrow"] is not None:
        parts.append(para("Not sought for this page: it takes a minute an llm."))
    return section(title, *parts, command(numbers, "gpus")) if parts else ""


def levels_told(numbers: Numbers) -> str:
    """How many levels of priority."""
    if not numbers["levels"]:
        return ""
    said = para("In the busiest hour of the last whole day, on the fewest instances that keep every target:")
    return section("How many levels of priority", said, listed(numbers["levels"]), command(numbers, "levels"))


def llms_told(numbers: Numbers) -> str:
    """Which llms are asked for."""
    if not numbers["llms"]:
        return ""
    rows = [f"{one['llm']} {percent(one['requests_share'], 1)}" for one in numbers["llms"]]
    quality = next((one["line"] for one in numbers["cannot"] if one["key"] == "quality"), "")
    return section("Which llms", para(f"Of the requests: {joined(rows)}. {quality}"))


def saving_told(numbers: Numbers) -> str:
    """The last known day under each policy, against what runs today."""
    board, saving = numbers["board"], numbers["saving"]
    if board is None:
        return section("What it saves", para(_saved(saving))) if saving is not None else ""
    policies = [(row["policy"], row, WHAT.get(row["policy"], row["what"])) for row in board["policies"]]
    if saving is not None and saving["is_told"]:
        share = saving["today_in_time_share"]
        today = {"usd": saving["today_usd"], "gpu_hours": saving["today_gpu_hours"], "in_time_share": share}
        policies.insert(0, ("today", today, saving["today"]))
    most = max([row["usd"] for _, row, _ in policies] + [1e-9])
    rows = [
        [
            text_cell(name),
            cell(number(row["usd"], 2)),
            bar_cell(row["usd"] / most),
            cell(number(row["gpu_hours"], 1)),
            cell(percent(row["in_time_share"], 1)),
            text_cell(what, is_wide=True),
        ]
        for name, row, what in policies
    ]
    names = [name for name, *_ in policies]
    intro = (
        f"{board['day']}, planned from what came before it; every request replayed under each policy. The "
        "marked one follows a plan like the one above. In time: interactive requests that met all targets."
    )
    return section(
        "What it saves",
        para(intro),
        table(
            ("policy", "USD", "", "GPU-hours", "in time", "what it does"),
            rows,
            names.index(board["advised"]) if board["advised"] in names else None,
        ),
        para(_saved(saving)),
        command(numbers, "board"),
        command(numbers, "saving"),
    )


def _saved(saving: Numbers | None) -> str:
    """The saving, and how far the error of the latency profiles carries it."""
    if saving is None:
        return ""
    line = f"Saved: {saving['usd']:,.2f} of {saving['today_usd']:,.2f} USD"
    if saving["low_usd"] is not None:
        between = f"{saving['low_usd']:,.2f} to {saving['high_usd']:,.2f}"
        line += f"; {between} nine times in ten, where the latencies are off by their profiles' error"
    return f"{line}."
