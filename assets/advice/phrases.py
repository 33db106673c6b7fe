"""Write the sentences of a page's answer, and the commands that reproduce its numbers."""

from collections.abc import Mapping, Sequence

from fleetcast.assets.advice.imported_trace import count_shares
from fleetcast.assets.studies.level_answer import join_all_names
from fleetcast.models.aliases import Numbers

EXAMPLE_LLM = "llama3.1-70b"  # example of an llm to assume
MAX_NAMES_LISTED = 3  # longer lists of names are cut
ALTERNATIVE_POLICIES = ("reactive", "lt_ua", "corrected", "static")  # policies to run instead of the plan


def share_as_percent(share: float | None, digits: int = 0) -> str:
    """Format a share in percent; a dash if it is not known."""
    return "–" if share is None else f"{100 * share:,.{digits}f} %"


def join_few_names(names: Sequence[str]) -> str:
    """Return the names as in "a, b and c", cut to MAX_NAMES_LISTED and a count; "" without names."""
    if len(names) > MAX_NAMES_LISTED + 1:
        names = [*names[:MAX_NAMES_LISTED], f"{len(names) - MAX_NAMES_LISTED} more"]
    return join_all_names(names) if names else ""


# --- the answer --------------------------------------------------------------------------------------------


def answer_sentences(numbers: Numbers) -> list[str]:
    """Return a sentence each on what to run, what it saves, and how certain that is."""
    tomorrow = numbers["tomorrow"]
    if tomorrow is None and numbers["board"] is not None:
        return ["The next day could not be planned; the reason is below.", _saving_sentence(numbers)]
    if tomorrow is None:
        names = join_few_names([name for name, _ in count_shares(numbers["trace"]["unprofiled_llms"])])
        trace = numbers["trace"]
        return [
            f"No fleet can be planned: there is no latency profile of {names}.",
            f"The trace has {trace['requests']:,} requests in {trace['hours']:,.1f} hours, "
            f"{trace['requests_per_s']:,.2f} per second, with a mean of {trace['mean_input_tokens']:,.0f} "
            f"input tokens and {trace['mean_output_tokens']:,.0f} output tokens.",
            f"To plan as if they were a profiled llm: --assume-llm {EXAMPLE_LLM}.",
        ]
    return [_fleet_sentence(tomorrow), _saving_sentence(numbers), _certainty_sentence(numbers)]


def _fleet_sentence(tomorrow: Numbers) -> str:
    gpus = [row["gpus"] for row in tomorrow["by_hour"]]
    least, most = min(gpus), max(gpus)
    counts = gpus_by_type(tomorrow)
    fleet = join_few_names([_gpu_range(*ends, gpu) for gpu, ends in counts.items()]) or "no GPU"
    llms = join_few_names(list(dict.fromkeys(row["llm"] for row in tomorrow["hours"])) or ["no llm"])
    when = f"On {tomorrow['day']} run" if tomorrow["basis"] == "forecast" else "For a day like this trace run"
    hours = ", the same all day" if least == most else ", by hour as below"
    cost = f"{tomorrow['gpu_hours']:,.0f} GPU-hours, {tomorrow['usd']:,.0f} USD"
    return f"{when} {fleet} for {llms}{hours}: {cost}."


def gpus_by_type(tomorrow: Numbers) -> dict[str, tuple[int, int]]:
    """Return the fewest and the most GPUs of each type in an hour of the plan."""
    by_hour: dict[str, list[int]] = {}
    for row in tomorrow["hours"]:
        counts = by_hour.setdefault(row["gpu"], [0] * len(tomorrow["by_hour"]))
        counts[row["hour"]] += row["instances"] * row["gpus_per_instance"]
    return {gpu: (min(counts), max(counts)) for gpu, counts in by_hour.items()}


def _gpu_range(least: int, most: int, gpu: str) -> str:
    return f"{most:,} {gpu}" if least == most else f"{least:,} to {most:,} {gpu}"


def _saving_sentence(numbers: Numbers) -> str:
    saving, tomorrow = numbers["saving"], numbers["tomorrow"]
    if saving is None and tomorrow is None:
        return "Nothing can be compared."
    if saving is None:
        peak = 24 * max(row["usd"] for row in tomorrow["by_hour"])
        return (
            f"One fleet all day, sized for the largest hour, costs {peak:,.0f} USD; no other comparison is "
            "possible."
        )
    than = f"{saving['today']}" if saving["is_told"] else "one fleet all day, sized for the peak"
    spent = f"{saving['advised_usd']:,.0f} USD instead of {saving['today_usd']:,.0f} USD for {than}"
    change, late = saving["share"] or 0.0, _missed_target_clause(numbers)
    word = (
        f"{share_as_percent(abs(change))} {'less' if change > 0 else 'more'}"
        if round(change, 3)
        else "the same"
    )
    when = "A day like this" if saving["day"] is None else f"On {saving['day']} this plan"
    return (
        f"{when} would have cost {spent}: {word}, with "
        f"{share_as_percent(saving['advised_in_time_share'], 1)} of the interactive requests in time, "
        f"compared with {share_as_percent(saving['today_in_time_share'], 1)}{late}."
    )


def _missed_target_clause(numbers: Numbers) -> str:
    """Return the target that the advised policy missed, and the cheapest policy that attained it; or ""."""
    missed = [tier for tier in numbers["certainty"]["tiers"] if _is_missed(tier)]
    if not missed:
        return ""
    worst = min(missed, key=lambda tier: tier["in_time_share"])
    target = f"; the target of {worst['tier']} is {share_as_percent(worst['target_share'])}"
    attaining = [
        row
        for row in numbers["board"]["policies"]
        if row["policy"] in ALTERNATIVE_POLICIES and (row["in_time_share"] or 0.0) >= worst["target_share"]
    ]
    if not attaining:
        return f"{target}, which no policy here attained"
    best = min(attaining, key=lambda row: row["usd"])
    return f"{target}, which {best['policy']} attained for {best['usd']:,.0f} USD"


def _is_missed(tier: Numbers) -> bool:
    return tier["in_time_share"] is not None and tier["in_time_share"] < tier["target_share"]


def _certainty_sentence(numbers: Numbers) -> str:
    certainty, tomorrow = numbers["certainty"], numbers["tomorrow"]
    error = share_as_percent(tomorrow["usd_error_share"])
    parts = [f"errors of the latency profiles move the cost by up to {error} either way"]
    if certainty["forecast_wape_share"] is not None:
        wape = share_as_percent(certainty["forecast_wape_share"])
        parts.insert(0, f"forecasts made at midnight were off by {wape}")
    saving = numbers["saving"]
    if saving is not None and saving["is_beyond_error"] is not None and round(saving["share"] or 0.0, 3):
        compared = "is larger" if saving["is_beyond_error"] else "is not larger"
        parts.append(f"the saving {compared} than that error")
    return f"How certain: {', '.join(parts)}."


# --- commands ----------------------------------------------------------------------------------------------


def reproduce_commands(
    numbers: Numbers, setup: str, command: str, gpus: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the command that reproduces each section; `setup` sets the lake and the config for them."""
    tomorrow, board = numbers["tomorrow"], numbers["board"]
    found = {"all": command, "setup": setup, "trace": f"fleetcast characterise {numbers['trace']['name']}"}
    if tomorrow is not None and tomorrow["basis"] == "forecast":
        day = tomorrow["day"]
        found["tomorrow"] = f"fleetcast plan ahead && fleetcast plan show --policy day_ahead --date {day}"
        found["certainty"] = 'fleetcast sql "from forecast_coverage"'
        options = f"--date {day} --param policy=day_ahead"
        found["watch"] = f"fleetcast sql sql/queries/plan_by_hour.sql {options}"
        rented = [
            f"fleetcast gpus --llm {row['llm']}" + (f" --gpus {','.join(types)}" if types else "")
            for row in numbers["gpus"]
            for types in [gpus.get(row["llm"])]
        ]
        found["gpus"] = " && ".join(rented) or "fleetcast gpus"
    if board is not None:
        day = board["day"]
        found["board"] = f'fleetcast sql "from scoreboard" --date {day}'
        found["saving"] = f"fleetcast error --date {day} --policy static --policy {board['advised']}"
    if numbers["levels"]:
        found["levels"] = "fleetcast levels --by tier --levels 1,2,3 --stack jsq --hours 1"
    return found
