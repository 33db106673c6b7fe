"""The second half of the page: how sure it is, what to watch, what it cannot say, what it is made from."""

from typing import Any

from fleetcast.assets.advice.drawn import of_history
from fleetcast.assets.advice.html import command, figure, listed, para, section
from fleetcast.assets.advice.words import joined, percent

Numbers = dict[str, Any]
SHOWN = 6  # endpoints of a list


def certainty_told(numbers: Numbers) -> str:
    """How far the figures may be off."""
    sure, tomorrow = numbers["certainty"], numbers["tomorrow"]
    if sure is None or tomorrow is None:
        return ""
    lines = [
        f"The bill of {tomorrow['usd']:,.2f} USD may be off by {percent(tomorrow['usd_error_share'])} either "
        "way, nine times in ten, because latency profiles are."
    ]
    for one in numbers["profiles"]:
        off = percent(one["error_share"])
        lines.append(f"{one['llm']} on {one['gpu']}: {one['kind']} profile, {off} off in the median.")
    if sure["forecast_hours"]:
        wape, below = sure["forecast_wape_share"], sure["forecast_peak_below_p90_share"]
        lines.append(
            f"Forecasts made at midnight missed by {percent(wape, 1)} of what came (WAPE, "
            f"{sure['forecast_hours']:,} hours of endpoints); {percent(below)} of the hours' peaks stayed "
            "below their P90, where nine in ten should."
        )
    for one in sure["tiers"]:
        kept, asked = percent(one["in_time_share"], 1), percent(one["target_share"])
        lines.append(f"{one['tier']}: {kept} in time under the advised policy, {asked} asked.")
    return section("How sure it is", listed(lines), command(numbers, "certainty"))


def watch_told(numbers: Numbers) -> str:
    """Loads, hours and endpoints to watch."""
    watch = numbers["watch"]
    if watch is None:
        return ""
    lines = [
        f"{one['llm']} is fullest at {one['hour']:02d}:00: "
        f"{one['planned_tokens_per_s']:,.0f} input tokens/s planned, {one['carries_tokens_per_s']:,.0f} "
        f"carried. More than {one['surge_tokens_per_s']:,.0f} is a surge: scale past the plan."
        for one in watch["surges"][:SHOWN]
    ]
    if hours := watch["unsure_hours"]:
        told = [f"{one['hour']:02d}:00 (P90 {one['p90_ratio']:,.1f} times the mean)" for one in hours]
        lines.append(f"The least certain hours: {joined(told)}.")
    for one in watch["endpoints"][:SHOWN]:
        if len(watch["endpoints"]) > 1:
            burst = one["dispersion"]
            clumped = "" if burst is None else f", dispersion of its minutes {burst:,.1f} (Poisson: 1)"
            share = percent(one["tokens_share"])
            lines.append(f"{one['llm']} in {one['region']}: {share} of the input tokens{clumped}.")
    return section("What to watch", listed(lines), command(numbers, "watch")) if lines else ""


def cannot_told(numbers: Numbers) -> str:
    """A line for each thing that the trace does not let anyone say."""
    return section("What this page cannot say", listed([one["line"] for one in numbers["cannot"]]))


def trace_told(numbers: Numbers) -> str:
    """What the page is about."""
    trace, tomorrow = numbers["trace"], numbers["tomorrow"]
    said = (
        f"{trace['requests']:,} requests of {trace['source']} ({trace['format']}) in {trace['hours']:,.1f} "
        f"hours, {trace['requests_per_s']:,.2f} a second; {trace['mean_input_tokens']:,.0f} tokens in and "
        f"{trace['mean_output_tokens']:,.0f} out in the mean; tiers: {joined(trace['tiers'])}."
    )
    drawn = "" if tomorrow is None else of_history(numbers["history"], tomorrow)
    return section(
        "The trace",
        para(said),
        figure(drawn, "Interactive input tokens/s by hour, UTC."),
        command(numbers, "trace"),
    )


def made_by(numbers: Numbers) -> str:
    """What made the page, and what the commands on it need to be told once."""
    return section(
        "Made by",
        command(numbers, "all"),
        para("The commands above ask this page's own lake and config; say once which:"),
        command(numbers, "setup"),
        '<p class="note">Every number stands in advice.json beside this page.</p>',
    )
