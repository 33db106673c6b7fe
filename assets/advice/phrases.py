"""The sentences of a page: the answer, what cannot be said, and the commands behind each figure."""

from collections.abc import Mapping, Sequence

from fleetcast.assets.advice.imported_trace import count_shares
from fleetcast.models.aliases import Numbers

EXAMPLE_LLM = "llama3.1-70b"  # of an llm to stand for another
MAX_NAMES_LISTED = 3  # names of a list, before it is cut
ALTERNATIVE_POLICIES = (
    "reactive",
    "lt_ua",
    "corrected",
    "static",
)  # policies that one may follow in place of the plan


def share_as_percent(share: float | None, digits: int = 0) -> str:
    """A share as a person reads it."""
    return "–" if share is None else f"{100 * share:,.{digits}f} %"


def join_few_names(names: Sequence[str]) -> str:
    """a, b and c; cut after a few."""
    if not names:
        return ""
    if len(names) > MAX_NAMES_LISTED + 1:
        names = [*names[:MAX_NAMES_LISTED], f"{len(names) - MAX_NAMES_LISTED} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- the answer --------------------------------------------------------------------------------------------


def answer_sentences(numbers: Numbers) -> list[str]:
    """What to run, what it saves, how sure that is: a sentence each."""
    tomorrow = numbers["tomorrow"]
    if tomorrow is None and numbers["board"] is not None:
        return ["The next day could not be planned; why stands below.", _saving_sentence(numbers)]
    if tomorrow is None:
        names = join_few_names([name for name, _ in count_shares(numbers["trace"]["unprofiled_llms"])])
        trace = numbers["trace"]
        return [
            f"No fleet can be planned: nobody profiled {names}.",
            f"{trace['requests']:,} requests came in {trace['hours']:,.1f} hours, "
            f"{trace['requests_per_s']:,.2f} a second, {trace['mean_input_tokens']:,.0f} tokens in and "
            f"{trace['mean_output_tokens']:,.0f} out in the mean.",
            f"To plan as if they were an llm that is known: --as {EXAMPLE_LLM}.",
        ]
    return [_fleet_sentence(tomorrow), _saving_sentence(numbers), _certainty_sentence(numbers)]


def _fleet_sentence(tomorrow: Numbers) -> str:
    gpus = [row["gpus"] for row in tomorrow["by_hour"]]
    least, most = min(gpus), max(gpus)
    counts = gpus_by_type(tomorrow)
    held = join_few_names([_gpu_range(*ends, gpu) for gpu, ends in counts.items()]) or "no GPU"
    llms = join_few_names(list(dict.fromkeys(row["llm"] for row in tomorrow["hours"])) or ["no llm"])
    when = (
        f"On {tomorrow['day']} hold" if tomorrow["basis"] == "forecast" else "For a day like this trace hold"
    )
    pace = ", the same all day" if least == most else ", hour by hour as below"
    return (
        f"{when} {held} for {llms}{pace}: {tomorrow['gpu_hours']:,.0f} GPU-hours, {tomorrow['usd']:,.0f} USD."
    )


def gpus_by_type(tomorrow: Numbers) -> dict[str, tuple[int, int]]:
    """The fewest and the most GPUs of each type that an hour holds."""
    held: dict[str, list[int]] = {}
    for row in tomorrow["hours"]:
        own = held.setdefault(row["gpu"], [0] * len(tomorrow["by_hour"]))
        own[row["hour"]] += row["instances"] * row["gpus_per_instance"]
    return {gpu: (min(counts), max(counts)) for gpu, counts in held.items()}


def _gpu_range(least: int, most: int, gpu: str) -> str:
    return f"{most:,} {gpu}" if least == most else f"{least:,} to {most:,} {gpu}"


def _saving_sentence(numbers: Numbers) -> str:
    saving, tomorrow = numbers["saving"], numbers["tomorrow"]
    if saving is None and tomorrow is None:
        return "Nothing can be compared."
    if saving is None:
        peak = 24 * max(row["usd"] for row in tomorrow["by_hour"])
        return f"One fleet for the largest hour, all day, costs {peak:,.0f} USD; no more can be compared."
    than = f"{saving['today']}" if saving["is_told"] else "one fleet that stands all day for the peak"
    spent = f"{saving['advised_usd']:,.0f} USD instead of {saving['today_usd']:,.0f} for {than}"
    change, late = saving["share"] or 0.0, _missed_target_clause(numbers)
    word = (
        f"{share_as_percent(abs(change))} {'less' if change > 0 else 'more'}"
        if round(change, 3)
        else "the same"
    )
    when = "A day like this" if saving["day"] is None else f"On {saving['day']} it"
    return (
        f"{when} would have cost {spent}: {word}, with "
        f"{share_as_percent(saving['advised_in_time_share'], 1)} of the interactive requests in time against "
        f"{share_as_percent(saving['today_in_time_share'], 1)}{late}."
    )


def _missed_target_clause(numbers: Numbers) -> str:
    """Where the advised policy was late on the last day: by how much, and what was not."""
    under = [one for one in numbers["certainty"]["tiers"] if _is_missed(one)]
    if not under:
        return ""
    worst = min(under, key=lambda one: one["in_time_share"])
    told = f"; of {worst['tier']} {share_as_percent(worst['target_share'])} are asked"
    able = [
        row
        for row in numbers["board"]["policies"]
        if row["policy"] in ALTERNATIVE_POLICIES and (row["in_time_share"] or 0.0) >= worst["target_share"]
    ]
    if not able:
        return f"{told}, which no policy here kept"
    best = min(able, key=lambda row: row["usd"])
    return f"{told}, which {best['policy']} kept for {best['usd']:,.0f} USD"


def _is_missed(tier: Numbers) -> bool:
    return tier["in_time_share"] is not None and tier["in_time_share"] < tier["target_share"]


def _certainty_sentence(numbers: Numbers) -> str:
    sure, tomorrow = numbers["certainty"], numbers["tomorrow"]
    told = [f"latency profiles carry the bill {share_as_percent(tomorrow['usd_error_share'])} either way"]
    if sure["forecast_wape_share"] is not None:
        told.insert(
            0, f"forecasts made at midnight missed by {share_as_percent(sure['forecast_wape_share'])}"
        )
    saving = numbers["saving"]
    if saving is not None and saving["is_beyond_error"] is not None and round(saving["share"] or 0.0, 3):
        lasts = "outlasts" if saving["is_beyond_error"] else "does not outlast"
        told.append(f"the saving {lasts} that error")
    return f"How sure: {', '.join(told)}."


# --- commands ----------------------------------------------------------------------------------------------


def reproduce_commands(
    numbers: Numbers, setup: str, again: str, gpus: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """What makes each figure again, once `setup` has said whose lake and config are meant."""
    tomorrow, board = numbers["tomorrow"], numbers["board"]
    found = {"all": again, "setup": setup, "trace": f"fleetcast characterise {numbers['trace']['name']}"}
    if tomorrow is not None and tomorrow["basis"] == "forecast":
        day = tomorrow["day"]
        found["tomorrow"] = f"fleetcast plan ahead && fleetcast plan show --policy day_ahead --date {day}"
        found["certainty"] = 'fleetcast sql "from forecast_coverage"'
        asked = f"--date {day} --param policy=day_ahead"
        found["watch"] = f"fleetcast sql sql/queries/plan_by_hour.sql {asked}"
        rented = [
            f"fleetcast gpus --llm {one['llm']}" + (f" --gpus {','.join(own)}" if own else "")
            for one in numbers["gpus"]
            for own in [gpus.get(one["llm"])]
        ]
        found["gpus"] = " && ".join(rented) or "fleetcast gpus"
    if board is not None:
        day = board["day"]
        found["board"] = f'fleetcast sql "from scoreboard" --date {day}'
        found["saving"] = f"fleetcast error --date {day} --policy static --policy {board['advised']}"
    if numbers["levels"]:
        found["levels"] = "fleetcast levels --by tier --levels 1,2,3 --stack jsq --hours 1"
    return found
