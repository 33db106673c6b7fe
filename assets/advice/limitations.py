"""List what cannot be concluded from a trace, one line each, and the errors of the latency profiles."""

from collections.abc import Iterator
from typing import NamedTuple

from fleetcast.assets.advice.imported_trace import (
    CONFIG_FORMAT,
    DEFAULT_LLM,
    ImportedTrace,
    count_shares,
    unprofiled_share,
)
from fleetcast.assets.advice.phrases import (
    MAX_NAMES_LISTED,
    join_few_names,
    name_llm_to_assume,
    share_as_percent,
)
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.studies.latency_error import profile_errors
from fleetcast.assets.studies.level_answer import join_all_names
from fleetcast.models.aliases import Numbers
from fleetcast.models.world.catalogue import Catalogue

FEW_REQUESTS = 100  # below this, one request is more than 1 % of the share in time
# How to give the current fleet: of a trace, and of a config.
CURRENT_FLEET_HINT, RECORDED_FLEET_HINT = '--fleet "8 x llama3.1-8b@h100-80gb"', "fleetcast plan ran FILE"


class Limitation(NamedTuple):
    """What cannot be concluded from a trace."""

    key: str
    line: str


def list_limitations(imported: ImportedTrace, catalogue: Catalogue, numbers: Numbers) -> list[Numbers]:
    """Return what cannot be concluded from the trace, or what was assumed instead: a key and a line each."""
    found = (
        *_row_limitations(imported),
        *_clock_limitations(imported),
        *_client_limitations(imported),
        *cache_limitations(imported),
        *_region_limitations(imported),
        *_tier_limitations(imported, catalogue),
        *_llm_limitations(imported, catalogue),
        *_page_limitations(imported, numbers),
    )
    return [limitation._asdict() for limitation in found]


def _page_limitations(imported: ImportedTrace, numbers: Numbers) -> Iterator[Limitation]:
    """Yield the limitations of the sections that the trace allows."""
    tomorrow, promise, board = numbers["tomorrow"], numbers["promise"], numbers["board"]
    if tomorrow is not None:
        if board is None:
            yield Limitation(
                "short",
                f"The trace has {numbers['trace']['hours']:,.1f} hours, not two whole days: there is no "
                "forecast and no comparison of policies. Each of its hours is sized by replay, other hours "
                "like the largest.",
            )
        if tomorrow["day"] == imported.last_at.date():
            yield Limitation(
                "cut",
                f"The trace breaks off at {imported.last_at:%H:%M} UTC: the plan is for that whole day, from "
                "the days before it, and not for the next day.",
            )
        if tomorrow["not_known"]:
            yield Limitation("silences", tomorrow["not_known"])
        is_advised = promise is None or promise["is_kept"]
        if is_advised and not (numbers["saving"] or {}).get("is_told"):
            hint = RECORDED_FLEET_HINT if imported.format == CONFIG_FORMAT else CURRENT_FLEET_HINT
            yield Limitation(
                "today",
                "The current fleet is not known, so the page compares with one fleet all day, sized for the "
                f"peak. To give yours: {hint}.",
            )
        if promise is None:
            command = "fleetcast plan promise"
            hint = f" For a promise, graded later: {command}." if imported.format == CONFIG_FORMAT else ""
            yield Limitation(
                "promise",
                "The share in time is that of a past day; the next day may be worse, and the page has no "
                f"interval for it.{hint}",
            )
    if len(imported.tiers) == 1:
        line = f"All requests are of the tier {imported.tiers[0]}, so priority levels change nothing."
        yield Limitation("levels", line)
    elif board is not None and not numbers["levels"]:
        yield Limitation(
            "levels",
            "Priority levels are not tested: fleetcast levels tests them where an llm has one kind of "
            "engine.",
        )
    yield Limitation(
        "quality",
        "The page does not tell whether a smaller llm is good enough: this needs scored answers "
        "(fleetcast plan quality).",
    )


def _row_limitations(imported: ImportedTrace) -> Iterator[Limitation]:
    """Yield limitations from left-out rows, few requests and unknown answer lengths."""
    total = imported.requests + sum(imported.left_out.values())
    for reason, rows in list(imported.left_out.items())[:MAX_NAMES_LISTED]:
        more = " To assume a mean: --outputs TOKENS." if reason.startswith("output_tokens is miss") else ""
        share = share_as_percent(rows / total)
        line = f"{rows:,} rows ({share}) are left out, and nothing is planned for them: {reason}.{more}"
        yield Limitation("left_out", line)
    if imported.requests < FEW_REQUESTS:
        share = share_as_percent(1 / imported.requests, 1)
        yield Limitation(
            "few",
            f"With so few requests ({imported.requests}) each is {share} of the share in time: a fleet that "
            "serves these in time may not serve others in time.",
        )
    if imported.output_tokens_assumed is not None:
        yield Limitation(
            "outputs",
            f"Where the trace does not give the length of an answer, {imported.output_tokens_assumed:,} "
            "tokens are assumed (--outputs); real lengths vary and need more GPUs at their peaks.",
        )
    if imported.output_tokens == imported.requests:
        yield Limitation(
            "outputs",
            "Every answer is one token long, as in a source without a counter of output tokens: the plan "
            "does not include the GPUs that longer answers need.",
        )


def _client_limitations(imported: ImportedTrace) -> Iterator[Limitation]:
    """Yield limitations from a single client, and from keys that were distributed at landing."""
    if imported.app is not None:
        name = "" if imported.app == "unknown" else f" ({imported.app})"
        yield Limitation(
            "one_client",
            f"The trace names one client{name} for all requests: it does not show which clients cause the "
            "peak, or whether the peaks of several would even out.",
        )
    if imported.distributed_keys:
        hint = "; --assume-llm NAME plans all for one llm" if "llm" in imported.distributed_keys else ""
        yield Limitation(
            "dealt",
            f"The trace names no {' and no '.join(imported.distributed_keys)}: values were distributed over "
            "its requests by shares when it landed. Run advise on its file, or land it with a mapping file "
            f"that gives them{hint}.",
        )


def cache_limitations(imported: ImportedTrace) -> Iterator[Limitation]:
    """Yield what is assumed of the prefix cache, or that it is not used; nothing for a trace without."""
    if imported.cached_share:
        yield Limitation(
            "caches",
            f"{share_as_percent(imported.cached_share)} of the prompt tokens were in a prefix cache, and are "
            "taken to be in that of any fleet. With more instances, or a router that does not know of "
            "caches, fewer are.",
        )
    elif imported.has_prompt_hashes:
        yield Limitation(
            "caches",
            "The hashes of prompts are not used: each prompt counts whole, so the fleet may be too large "
            "where prompts recur. fleetcast try FILE --fleet FLEET replays them with a prefix cache.",
        )


def _region_limitations(imported: ImportedTrace) -> Iterator[Limitation]:
    """Yield limitations from unknown or missing regions."""
    if imported.unknown_regions:
        total = imported.requests + sum(imported.left_out.values())
        share = share_as_percent(sum(imported.unknown_regions.values()) / max(total, 1))
        names = join_few_names(list(imported.unknown_regions))
        yield Limitation(
            "region",
            f"The catalogue has no region {names} ({share} of the rows): all of these are planned in one "
            f"region, called {imported.fallback_region}. To separate them, use label_names in a mapping "
            "file.",
        )
    elif "region" in imported.missing_keys:
        line = f"The trace names no region: all is planned in one region, called {imported.regions[0]}."
        yield Limitation("region", line)


def _tier_limitations(imported: ImportedTrace, catalogue: Catalogue) -> Iterator[Limitation]:
    """Yield the limitation from missing tiers."""
    if "tier" in imported.missing_keys:
        name = catalogue.strictest
        yield Limitation(
            "tier",
            f"The trace does not give the tier of all requests: the others are planned as {name}, with the "
            f"first token within {catalogue.tiers[name].ttft_slo_s:g} s.",
        )


def _clock_limitations(imported: ImportedTrace) -> Iterator[Limitation]:
    """Yield limitations from timestamps without a date or a time zone."""
    clock = imported.clock or ""
    if clock.startswith("relative"):
        start = f"{imported.first_at:%Y-%m-%d %H:%M}"
        yield Limitation(
            "clock",
            f"The trace does not give its start: its first request is assumed to arrive at {start} UTC, and "
            "dates and hours follow from that. To give it, write in a mapping file next to the trace: start "
            "= 2025-07-01T00:00:00Z.",
        )
    elif "no zone" in clock:
        yield Limitation("clock", "Timestamps without a time zone are read as UTC; all hours here are UTC.")


def _llm_limitations(imported: ImportedTrace, catalogue: Catalogue) -> Iterator[Limitation]:
    """Yield limitations from llms without a profile or name."""
    profiled = join_all_names(list(catalogue.llms))
    if imported.unprofiled:
        unprofiled = [name for name, _ in count_shares(imported.unprofiled)]
        names, example = join_few_names(unprofiled), name_llm_to_assume(unprofiled)
        share = unprofiled_share(imported.unprofiled, imported.requests if imported.llms else 0)
        yield Limitation(
            "llm",
            f"There is no latency profile of {names} ({share_as_percent(share)} of the requests): no fleet "
            f"is planned for them. Profiled llms: {profiled}. To plan as if they were one of these: "
            f"--assume-llm {example}.",
        )
    elif "llm" in imported.missing_keys:
        yield Limitation(
            "llm",
            f"The trace names no llm: all is planned as if for {imported.as_llm or DEFAULT_LLM}. For "
            f"another: --assume-llm NAME, of {profiled}.",
        )
    elif imported.as_llm is not None and imported.requests_by_source_llm.keys() - catalogue.llms.keys():
        line = f"Where the trace's llm has no profile, {imported.as_llm} is planned instead (--assume-llm)."
        yield Limitation("llm", line)


def latency_profiles_section(settings: RunSettings) -> list[Numbers]:
    """Return the error of each latency profile in use."""
    return [
        {
            "llm": error.profile.llm,
            "gpu": f"{error.profile.tensor_parallel} x {error.profile.gpu}",
            "kind": error.kind,
            "error_share": max(error.prefill_share, error.decode_share),
            "source": error.profile.source,
        }
        for error in profile_errors(settings)
    ]
