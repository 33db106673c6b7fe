"""What a page cannot say, a line for each thing, and how far off its latencies are."""

from collections.abc import Sequence

from fleetcast.assets.advice.imported_trace import (
    CONFIG_FORMAT,
    DEFAULT_LLM,
    ImportedTrace,
    count_shares,
    profiled_llms,
)
from fleetcast.assets.advice.phrases import EXAMPLE_LLM, MAX_NAMES_LISTED, join_few_names, share_as_percent
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Numbers
from fleetcast.models.latency.latency_errors import errors_in_use
from fleetcast.models.world.catalogue import Catalogue

FEW_REQUESTS = 100  # requests, below which one is more than a hundredth of the share in time
CURRENT_FLEET_HINT, RECORDED_FLEET_HINT = (
    '--fleet "8 x llama3.1-8b@h100-80gb"',
    "fleetcast plan ran FILE",
)  # to tell what runs today


def list_limitations(brought: ImportedTrace, catalogue: Catalogue, numbers: Numbers) -> list[Numbers]:
    """What the trace does not let anyone say, or what was taken in its place: a key and a line each."""
    found = [
        *_row_limitations(brought),
        *_clock_limitations(brought),
        *_client_limitations(brought),
        *_region_limitations(brought),
    ]
    found += [*_tier_limitations(brought, catalogue), *_llm_limitations(brought, catalogue)]
    trace = numbers["trace"]
    if numbers["board"] is None and numbers["tomorrow"] is not None:
        found.append(
            (
                "short",
                f"The trace has {trace['hours']:,.1f} hours, not two whole days: nothing is foreseen and no "
                "policy compared; each hour that it has is sized by replay, the others like its largest.",
            )
        )
    if numbers["tomorrow"] is not None and numbers["tomorrow"]["day"] == brought.last_at.date():
        found.append(
            (
                "cut",
                f"The trace breaks off at {brought.last_at:%H:%M} UTC: that day is planned whole, from the "
                "days before it, and not the next.",
            )
        )
    if numbers["tomorrow"] is not None and numbers["tomorrow"]["not_known"]:
        found.append(("silences", numbers["tomorrow"]["not_known"]))
    if numbers["tomorrow"] is not None and not (numbers["saving"] or {}).get("is_told"):
        found.append(
            (
                "today",
                "What runs today is not told, so the plainest fleet stands for it: one that stands all day "
                f"for the peak. Tell it: "
                f"{RECORDED_FLEET_HINT if brought.format == CONFIG_FORMAT else CURRENT_FLEET_HINT}.",
            )
        )
    if numbers["tomorrow"] is not None:
        found.append(
            (
                "promise",
                "The share in time is that of a past day, and the next may be worse: on three real days the "
                "page said 98.8, 94.4 and 98.4 %, and 97.9, 92.5 and 93.1 % came, with 95 % asked.",
            )
        )
    if len(brought.tiers) == 1:
        found.append(
            ("levels", f"All requests are {brought.tiers[0]}: levels of priority have nothing to order.")
        )
    found.append(
        (
            "quality",
            "Whether a smaller llm would do is not asked: it takes judged answers (fleetcast plan quality).",
        )
    )
    return [{"key": key, "line": line} for key, line in found]


def _row_limitations(brought: ImportedTrace) -> list[tuple[str, str]]:
    """How many requests there are, and how long their answers."""
    found = []
    total = brought.requests + sum(brought.left_out.values())
    for reason, rows in list(brought.left_out.items())[:MAX_NAMES_LISTED]:
        more = (
            " Name a mean to assume: --outputs TOKENS." if reason.startswith("output_tokens is miss") else ""
        )
        share = share_as_percent(rows / total)
        line = f"{rows:,} rows ({share}) are left out, and nothing is planned for them: {reason}.{more}"
        found.append(("left_out", line))
    if brought.requests < FEW_REQUESTS:
        one = share_as_percent(1 / brought.requests, 1)
        found.append(
            (
                "few",
                f"Of so few requests ({brought.requests}) each is {one} of the share in time: what serves "
                "them in time may not serve as many others.",
            )
        )
    if brought.output_tokens_assumed is not None:
        found.append(
            (
                "outputs",
                f"Where the trace does not tell how long an answer was, {brought.output_tokens_assumed:,} "
                "tokens are assumed (--outputs): lengths that vary take more GPUs in their peaks.",
            )
        )
    if brought.output_tokens == brought.requests:
        found.append(
            (
                "outputs",
                "Every answer is one token long, as where no counter tells output tokens: GPUs that longer "
                "answers take are not in the plan.",
            )
        )
    return found


def _client_limitations(brought: ImportedTrace) -> list[tuple[str, str]]:
    """Whose the requests are, and what was dealt to them when they landed."""
    found = []
    if brought.app is not None:
        name = "" if brought.app == "unknown" else f" ({brought.app})"
        found.append(
            (
                "one_client",
                f"All requests are of one client{name}, as far as the trace says: who drives the peak, and "
                "whether several would even out, cannot be told.",
            )
        )
    if brought.dealt:
        instead = "; --assume-llm NAME plans all for one llm" if "llm" in brought.dealt else ""
        found.append(
            (
                "dealt",
                f"The trace names no {' and no '.join(brought.dealt)}: that was dealt to its requests by "
                "shares when it landed. Advise on its file, or land it with a mapping file that says which"
                f"{instead}.",
            )
        )
    return found


def _region_limitations(brought: ImportedTrace) -> list[tuple[str, str]]:
    """Where the requests come from."""
    if brought.unknown_regions:
        total = brought.requests + sum(brought.left_out.values())
        share = share_as_percent(sum(brought.unknown_regions.values()) / max(total, 1))
        names = join_few_names(list(brought.unknown_regions))
        return [
            (
                "region",
                f"The catalogue has no region {names} ({share} of the rows): all of that is planned in one "
                f"place, called {brought.fallback_region}. To part it: label_names in a mapping file.",
            )
        ]
    if "region" in brought.lacks:
        one = f"The trace names no region: all is planned in one place, called {brought.regions[0]}."
        return [("region", one)]
    return []


def _tier_limitations(brought: ImportedTrace, catalogue: Catalogue) -> list[tuple[str, str]]:
    """How urgent the requests are."""
    if "tier" not in brought.lacks:
        return []
    name = catalogue.strictest_tier(catalogue.tiers) or ""
    slo_s = catalogue.tiers[name].ttft_slo_s
    return [
        (
            "tier",
            f"How urgent requests are is not told of all: the others are {name}, the first token in "
            f"{slo_s:g} s.",
        )
    ]


def _clock_limitations(brought: ImportedTrace) -> list[tuple[str, str]]:
    """What hours and days hang on where the timestamps do not tell it."""
    clock, begun = brought.clock or "", f"{brought.first_at:%Y-%m-%d %H:%M}"
    if clock.startswith("relative"):
        return [
            (
                "clock",
                f"The trace does not tell when it began: its first request is taken to have come at {begun} "
                "UTC, and dates and hours follow from that. Tell it in a mapping file beside the trace: "
                "start = 2025-07-01T00:00:00Z.",
            )
        ]
    if "no zone" in clock:
        return [("clock", "Timestamps that name no time zone are read as UTC; all hours here are UTC.")]
    return []


def _llm_limitations(brought: ImportedTrace, catalogue: Catalogue) -> list[tuple[str, str]]:
    known = join_all_names(profiled_llms(catalogue))
    if brought.unprofiled:
        total = sum(brought.requests_by_source_llm.values()) or brought.requests
        names = join_few_names([name for name, _ in count_shares(brought.unprofiled)])
        share = sum(brought.unprofiled.values()) / max(total, sum(brought.unprofiled.values()))
        return [
            (
                "llm",
                f"Nobody profiled {names} ({share_as_percent(share)} of the requests): no fleet is "
                f"planned for them. "
                f"Profiled are {known}. To plan as if they were one of these: --as {EXAMPLE_LLM}.",
            )
        ]
    if "llm" in brought.lacks:
        return [
            (
                "llm",
                f"The trace names no llm: all is planned as if for {brought.as_llm or DEFAULT_LLM}. "
                f"Another: --as "
                f"NAME, of {known}.",
            )
        ]
    if brought.as_llm is not None and brought.requests_by_source_llm:
        return [("llm", f"Where the trace's llm has no profile, {brought.as_llm} stands for it (--as).")]
    return []


def join_all_names(names: Sequence[str]) -> str:
    """a, b and c, whole."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def latency_profiles_section(settings: RunSettings) -> list[Numbers]:
    """How far off the latencies are that the fleet is planned by: a line for each profile in use."""
    return [
        {
            "llm": one.profile.llm,
            "gpu": f"{one.profile.tensor_parallel} x {one.profile.gpu}",
            "kind": one.kind,
            "error_share": max(one.prefill_share, one.decode_share),
            "source": one.profile.source,
        }
        for one in errors_in_use(settings.catalogue, settings.config.fleet.deployments.items())
    ]
