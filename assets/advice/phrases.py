"""Write the sentences of a page's answer, and the commands that reproduce its numbers."""

import shlex
from collections.abc import Mapping, Sequence

from fleetcast.assets.advice.imported_trace import count_shares, unprofiled_share
from fleetcast.assets.advice.promise import OUTSIDE_SHARE
from fleetcast.assets.studies.level_answer import join_all_names
from fleetcast.models.aliases import Numbers
from fleetcast.models.world.model_rows import model_row

EXAMPLE_LLM = "llama3.1-70b"  # example of an llm to assume
MAX_NAMES_LISTED = 3  # longer lists of names are cut
INTERVAL_SHARE = 1 - 4 * OUTSIDE_SHARE  # of days on which both intervals of a promise hold
REACTIVE_RULES = ("reflex", "compact")  # decide during the day


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
        trace = numbers["trace"]
        names = [name for name, _ in count_shares(trace["unprofiled_llms"])]
        return [
            f"No fleet can be planned: there is no latency profile of {join_few_names(names)}.",
            f"The trace has {trace['requests']:,} requests in {trace['hours']:,.1f} hours, "
            f"{trace['requests_per_s']:,.2f} per second, with a mean of {trace['mean_input_tokens']:,.0f} "
            f"input tokens and {trace['mean_output_tokens']:,.0f} output tokens.",
            f"To plan as if they were a profiled llm: --assume-llm {name_llm_to_assume(names)}.",
        ]
    promise, prices = numbers["promise"], numbers["prices"]
    if tomorrow["missed_hours"]:
        found = [_missed_hours_sentence(tomorrow), _fleet_sentence(tomorrow, promise, prices)]
    elif promise is None:
        found = [_fleet_sentence(tomorrow, promise, prices), _sized_hours_sentence(tomorrow)]
    elif promise["is_kept"]:
        found = [_fleet_sentence(tomorrow, promise, prices), _promise_sentence(promise)]
    else:
        found = [_no_fleet_sentence(promise), _closest_sentence(promise, tomorrow, prices)]
    found += [
        _left_out_sentence(numbers["trace"]),
        _assumed_llm_sentence(numbers),
        reliability_sentence(numbers["reliability"]),
    ]
    found += [_saving_sentence(numbers), _rented_sentence(numbers), _certainty_sentence(numbers)]
    return [line for line in found if line]


def name_llm_to_assume(unprofiled: Sequence[str]) -> str:
    """Return an llm that requests may be planned as: the first of them that is published, else an example."""
    return next((name for name in unprofiled if model_row(name)), EXAMPLE_LLM)


def _left_out_sentence(trace: Numbers) -> str:
    """Return which requests the fleet is not for; "" if it is for all."""
    unprofiled = trace["unprofiled_llms"]
    if not unprofiled:
        return ""
    names = [name for name, _ in count_shares(unprofiled)]
    share = share_as_percent(unprofiled_share(unprofiled, trace["requests"]))
    return (
        f"It serves no request of {join_few_names(names)} ({share} of all), of which there is no latency "
        f"profile: --assume-llm {name_llm_to_assume(names)} plans for them too."
    )


def _fleet_sentence(tomorrow: Numbers, promise: Numbers | None, prices: Numbers | None) -> str:
    gpus = [row["gpus"] for row in tomorrow["by_hour"]]
    least, most = min(gpus), max(gpus)
    counts = gpus_by_type(tomorrow)
    fleet = join_few_names([_gpu_range(*ends, gpu) for gpu, ends in counts.items()]) or "no GPU"
    llms = join_few_names(list(dict.fromkeys(row["llm"] for row in tomorrow["hours"])) or ["no llm"])
    when = f"On {tomorrow['day']} run" if tomorrow["basis"] == "forecast" else "For a day like this trace run"
    when = "Closest to it comes, for a day like this trace," if tomorrow["missed_hours"] else when
    rate = usd_per_gpu_hour_clause(tomorrow, prices)
    parts = _survival_clause(promise) + _profile_errors_clause(promise)
    if promise and promise["rule"] in REACTIVE_RULES:
        usd = usd_range(promise["usd_low"], promise["usd_high"])
        return (
            f"{when.removesuffix(' run')} begin with {fleet} for {llms}. The rule {promise['rule']} starts "
            f"and stops instances during the day: {usd}{rate}.{parts}"
        )
    hours = ", the same all day" if least == most else ", by hour as below"
    cost = f"{tomorrow['gpu_hours']:,.0f} GPU-hours, {tomorrow['usd']:,.0f} USD{rate}"
    return f"{when} {fleet} for {llms}{hours}: {cost}.{parts}"


def _survival_clause(promise: Numbers | None) -> str:
    """Return what the fleet survives, and what that costs; "" for less than a USD."""
    if promise is None or promise["survival"]["kind"] == "none" or promise["survival"]["usd"] < 1:
        return ""
    survival = promise["survival"]
    return f" To survive the loss of one {survival['kind']} is {survival['usd']:,.0f} USD of it."


def _profile_errors_clause(promise: Numbers | None) -> str:
    """Return what it costs that engines may be slower than their profiles; "" for less than a USD."""
    if promise is None or promise["profile_errors_usd"] < 1:
        return ""
    return (
        f" {promise['profile_errors_usd']:,.0f} USD of it are for engines that may be slower than their "
        "profiles: fleetcast calibrate finds how fast yours are."
    )


def usd_per_gpu_hour_clause(tomorrow: Numbers, prices: Numbers | None) -> str:
    """Return the prices in use behind a sum; the mean of the plan if no list is named."""
    if prices and prices["usd_per_gpu_hour"]:
        counts = gpus_by_type(tomorrow)
        used = {gpu: usd for gpu, usd in prices["usd_per_gpu_hour"].items() if gpu in counts}
        rates = join_few_names([f"{usd:,.2f} per {gpu} hour" for gpu, usd in used.items()])
        return f" ({rates}, {prices['provider']} on demand)" if rates else ""
    return f" ({tomorrow['usd'] / tomorrow['gpu_hours']:,.2f} per GPU-hour)" if tomorrow["gpu_hours"] else ""


def gpus_by_type(tomorrow: Numbers) -> dict[str, tuple[int, int]]:
    """Return the fewest and the most GPUs of each type in an hour of the plan."""
    by_hour: dict[str, list[int]] = {}
    for row in tomorrow["hours"]:
        counts = by_hour.setdefault(row["gpu"], [0] * len(tomorrow["by_hour"]))
        counts[row["hour"]] += row["instances"] * row["gpus_per_instance"]
    return {gpu: (min(counts), max(counts)) for gpu, counts in by_hour.items()}


def _gpu_range(least: int, most: int, gpu: str) -> str:
    return f"{most:,} {gpu}" if least == most else f"{least:,} to {most:,} {gpu}"


def _promise_sentence(promise: Numbers) -> str:
    """Return the promise for the day."""
    usd = usd_range(promise["usd_low"], promise["usd_high"])
    return f"The promise, nine days in ten: {_served_clause(promise['tiers'][0])}, for {usd}."


def _served_clause(tier: Numbers) -> str:
    """Return the interval of a tier's share, its target, and a wider one with the errors of the profiles."""
    shares = percent_range(tier["low_share"], tier["high_share"])
    with_errors = percent_range(tier["low_with_errors_share"], tier["high_with_errors_share"])
    wider = f"; {with_errors} with the errors of the latency profiles" if with_errors != shares else ""
    target = share_as_percent(tier["target_share"])
    return f"{shares} of {tier['tier']} requests in time (target {target}{wider})"


def _no_fleet_sentence(promise: Numbers) -> str:
    """Return that no fleet of this kind keeps the targets, and what would."""
    targets = [f"{share_as_percent(tier['target_share'])} of {tier['tier']}" for tier in promise["tiers"]]
    return (
        f"No fleet of this kind keeps its target on {promise['day']} ({join_few_names(targets)} requests in "
        f"time), so none is advised. {promise['remedy']}"
    ).strip()


def _missed_hours_sentence(tomorrow: Numbers) -> str:
    """Return in how many hours of a short trace no fleet of this kind attains the target, and what would."""
    return (
        f"No fleet of this kind serves {share_as_percent(tomorrow['target_share'])} of the requests in time "
        f"in {tomorrow['missed_hours']} of the {tomorrow['sized_hours']} hours of the trace (of each llm and "
        f"region). {tomorrow['remedy']}"
    ).strip()


def _sized_hours_sentence(tomorrow: Numbers) -> str:
    """Return how many requests of a short trace are in time, and whether an instance may fail."""
    if tomorrow["basis"] == "forecast":
        return ""
    spare = (
        "Each llm has a second instance, so that one may fail"
        if tomorrow["least_instances"] > 1
        else "In some hours an llm has a single instance in a region: if it fails, no request is served there"
    )
    least, target = (share_as_percent(tomorrow[f"{name}_share"], 1) for name in ("least_in_time", "target"))
    return (
        f"At least {least} of the requests of each recorded hour are in time (target {target}); other hours "
        f"are planned like the largest. {spare} (--survive)."
    )


def _assumed_llm_sentence(numbers: Numbers) -> str:
    """Return which llm all requests are planned as; "" where the trace names llms."""
    if "llm" not in numbers["trace"]["lacks"]:
        return ""
    llms = join_few_names(list(dict.fromkeys(row["llm"] for row in numbers["tomorrow"]["hours"])))
    return f"The trace names no llm: {llms} is assumed (--assume-llm names another)."


def _closest_sentence(promise: Numbers, tomorrow: Numbers, prices: Numbers | None) -> str:
    """Return the replayed fleet that comes closest to the targets, and how close."""
    shares = [_served_clause(tier) for tier in promise["tiers"]]
    past = f" and on {promise['past_days_on_target']} of {promise['past_days']} past days"
    usd = usd_range(promise["usd_low"], promise["usd_high"])
    return (
        f"Closest comes the rule {promise['rule']}, planned with {promise['fleet']} at most: on target in "
        f"{share_as_percent(promise['kept_share'])} of the versions of the day"
        f"{past if promise['past_days'] else ''}. Nine days in ten it serves {join_few_names(shares)}, "
        f"for {usd}{usd_per_gpu_hour_clause(tomorrow, prices)}."
    )


def reliability_sentence(rows: Sequence[Numbers]) -> str:
    """Return on how many of the advised days the promise was kept; "" before a day is graded.

    `rows`: of advice_reliability. Days whose target was not promised are apart.
    """
    promised = [row for row in rows if row["is_promised"]]
    days, kept, inside = (
        sum(row[name] for row in promised) for name in ("graded_days", "target_days", "inside_days")
    )
    other = sum(row["graded_days"] for row in rows) - days
    apart = f" On {other} more days the target was not promised." if other else ""
    if not days:
        return apart.strip()
    share = sum(row["promised_share"] * row["graded_days"] for row in promised) / days
    return (
        f"Of {days} advised days so far {kept} were kept (promised: {days * share:,.1f}); on {inside} both "
        f"share in time and cost lay in their intervals (promised: {days * INTERVAL_SHARE:,.1f}).{apart}"
    )


def promise_line(row: Numbers, tiers: Sequence[Numbers]) -> str:
    """Return what is promised of a day by tier, with what came once it is graded.

    `row`: of graded_advice; `tiers`: the day's rows of graded_tiers.
    """
    usd = usd_range(row["low_usd"], row["high_usd"])
    if row["usd"] is None:
        promised = join_all_names([f"{_promised_range(tier)} of {tier['tier']}" for tier in tiers])
        on_target = share_as_percent(row["promised_share"])
        return (
            f"{row['day']}, nine days in ten: {promised} in time, {usd}; on target in {on_target} of its "
            "versions"
        )
    came = ", ".join(
        f"{tier['tier']} {share_as_percent(tier['attainment_share'], 1)} "
        f"({kept_or_not(tier['is_interval_kept'])}: {_promised_range(tier)})"
        for tier in tiers
        if tier["attainment_share"] is not None
    )
    return f"{row['day']}: {came} in time, {row['usd']:,.0f} USD ({kept_or_not(row['is_inside_usd'])}: {usd})"


def _promised_range(tier: Numbers) -> str:
    return percent_range(tier["low_attainment_share"], tier["high_attainment_share"])


def kept_or_not(is_inside: bool) -> str:
    """Return whether what came lay in its interval, in words."""
    return "kept" if is_inside else "not kept"


def percent_range(low: float, high: float) -> str:
    """Format an interval of a share, as in "95.6 to 98.9 %"."""
    return share_as_percent(low, 1) if low == high else f"{100 * low:,.1f} to {share_as_percent(high, 1)}"


def usd_range(low: float, high: float, digits: int = 0) -> str:
    """Format an interval of a cost in USD."""
    least, most = f"{low:,.{digits}f}", f"{high:,.{digits}f}"
    return f"{most} USD" if least == most else f"{least} to {most} USD"


def saves_or_costs(low: float, high: float, digits: int = 0) -> str:
    """Return an interval of a saving in USD as a verb with its object; below 0 it is a cost."""
    low, high = (round(end, digits) + 0.0 for end in (low, high))  # without -0
    if low >= 0:
        return f"saves {usd_range(low, high, digits)}"
    if high <= 0:
        return f"costs {usd_range(abs(high), -low, digits)} more"
    return f"costs up to {-low:,.{digits}f} USD more or saves up to {high:,.{digits}f} USD"


def _saving_sentence(numbers: Numbers) -> str:
    saving, tomorrow = numbers["saving"], numbers["tomorrow"]
    if saving is None and tomorrow is None:
        return "Nothing can be compared."
    promise = numbers["promise"]
    if saving is None and promise is not None and not promise["is_kept"]:
        return ""  # nothing is advised
    if saving is None and len({row["usd"] for row in tomorrow["by_hour"]}) == 1:
        return ""  # it is one fleet all day
    if saving is None:
        peak = 24 * max(row["usd"] for row in tomorrow["by_hour"])
        return (
            f"One fleet all day, sized for the largest hour, costs {peak:,.0f} USD"
            f"{usd_per_gpu_hour_clause(tomorrow, numbers['prices'])}; no other comparison is possible."
        )
    advised, today = (
        f"{saving[f'{name}_usd']:,.0f} USD{_mean_rate(saving, name)}" for name in ("advised", "today")
    )
    change = saving["share"] or 0.0
    word = (
        f"{share_as_percent(abs(change))} {'less' if change > 0 else 'more'}"
        if round(change, 3)
        else "the same"
    )
    when = "A day like this" if saving["day"] is None else f"On {saving['day']} this plan"
    in_time = share_as_percent(saving["advised_in_time_share"], 1)
    if advised == today and in_time == share_as_percent(saving["today_in_time_share"], 1):
        return (
            f"{when} would have cost {advised} with {in_time} of the interactive requests in time, just as "
            f"{saving['today']}.{_scaling_clause(numbers)}"
        )
    return (
        f"{when} would have cost {advised} instead of {today} for {saving['today']}: {word}, with "
        f"{in_time} of the interactive requests in time, "
        f"compared with {share_as_percent(saving['today_in_time_share'], 1)}.{_scaling_clause(numbers)}"
    )


def _rented_sentence(numbers: Numbers) -> str:
    """Return what other GPUs than those of today's fleet save; "" if they cost no less."""
    rented = numbers["split"].get("gpu_type")
    if rented is None:
        return ""
    low, high, mean = (rented[name] for name in ("usd_low", "usd_high", "usd"))
    saved = usd_range(mean, mean) if low is None else usd_range(low, high)
    kept = "keep the same promise" if numbers["promise"] else "attain the target in each recorded hour too,"
    return f"Other GPUs, at most {rented['fleet']}, {kept} for {saved} less a day."


def _mean_rate(saving: Numbers, name: str) -> str:
    """Return the mean price behind a sum of the saving; "" without GPU-hours."""
    gpu_hours = saving[f"{name}_gpu_hours"]
    return f" ({saving[f'{name}_usd'] / gpu_hours:,.2f} per GPU-hour)" if gpu_hours else ""


def _scaling_clause(numbers: Numbers) -> str:
    """Return whether scaling by the hour pays, and how many times too large the fleet is; "" if unknown."""
    choice, saving = numbers["choice"], numbers["saving"]
    if choice is None or choice["scaling_saves"] is not False:
        return ""
    times = saving["today_usd"] / saving["advised_usd"] if saving["advised_usd"] else 1.0
    larger = f": your fleet is {times:,.1f} times too large" if saving["is_told"] and times >= 1.5 else ""
    return f" Scaling by the hour adds nothing here{larger}."


def _certainty_sentence(numbers: Numbers) -> str:
    certainty, tomorrow, promise = numbers["certainty"], numbers["tomorrow"], numbers["promise"]
    parts = []
    if certainty["forecast_wape_share"] is not None:
        wape = share_as_percent(certainty["forecast_wape_share"])
        parts.append(f"forecasts made at midnight were off by {wape}")
    if promise is None and tomorrow["usd_error_share"] is not None:
        error = share_as_percent(tomorrow["usd_error_share"])
        parts.append(f"errors of the latency profiles move the cost by up to {error} either way")
    graded = numbers["grades"]
    if graded:
        inside = sum(row["is_inside"] for row in graded)
        parts.append(
            f"{inside} of {len(graded)} past days would have come inside the intervals of their midnight"
        )
    saving = numbers["saving"]
    if saving is not None and saving["low_usd"] is not None:
        saves = saves_or_costs(saving["low_usd"], saving["high_usd"])
        parts.append(f"tomorrow this plan {saves}, nine times in ten")
    return f"How certain: {', '.join(parts)}." if parts else ""


# --- commands ----------------------------------------------------------------------------------------------


def reproduce_commands(
    numbers: Numbers, place: str, command: str, gpus: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the command that reproduces each section; each works when it is copied alone.

    `place`: assignments of the lake and the config, before every command.
    """
    tomorrow, board = numbers["tomorrow"], numbers["board"]
    found = {
        "all": command,
        "trace": f"{place}fleetcast characterise {shlex.quote(numbers['trace']['name'])}",
    }
    if tomorrow is not None and tomorrow["basis"] == "forecast":
        day = tomorrow["day"]
        found["tomorrow"] = f"{place}fleetcast plan show --policy day_ahead --date {day}"
        found["certainty"] = f'{place}fleetcast sql "from forecast_coverage"'
        options = f"--date {day} --param policy=day_ahead"
        found["watch"] = f"{place}fleetcast sql sql/queries/plan_by_hour.sql {options}"
        rented = [
            f"{place}fleetcast gpus --llm {row['llm']}" + (f" --gpus {','.join(types)}" if types else "")
            for row in numbers["gpus"]
            for types in [gpus.get(row["llm"])]
        ]
        found["gpus"] = " && ".join(rented) or f"{place}fleetcast gpus"
    if board is not None:
        found["board"] = f'{place}fleetcast sql "from scoreboard" --date {board["day"]}'
    if numbers["levels"]:
        found["levels"] = f"{place}fleetcast levels --by tier --levels 1,2,3 --stack jsq --hours 1"
    return found
