"""Assemble the sections of a page: empty ones, and those derived from the plan and the policies."""

from datetime import date

from fleetcast.assets.advice import data_sections, limitations, next_day_plan, policy_comparison
from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Numbers


def empty_sections(imported: ImportedTrace) -> Numbers:
    """Return the numbers of a page with only the section of the trace filled in."""
    return {
        "version": data_sections.ADVICE_VERSION,
        "answer": [],
        "trace": data_sections.trace_section(imported),
        "history": [],
        "tomorrow": None,
        "promise": None,
        "choice": None,
        "grades": [],
        "reliability": [],
        "split": {},
        "prices": None,
        "gpus": [],
        "levels": [],
        "llms": [],
        "board": None,
        "saving": None,
        "certainty": None,
        "profiles": [],
        "watch": None,
        "cannot": [],
        "commands": {},
    }


def add_derived_sections(
    settings: RunSettings, found: Numbers, imported: ImportedTrace, last: date | None, today: Numbers | None
) -> None:
    """Add the sections derived from plan and policies: the saving, its certainty, what to watch."""
    first, until = imported.first_day, imported.last_at.date()
    if last is not None and found["board"] is not None:
        found["saving"] = policy_comparison.saving_section(last, found, today)
    elif found["tomorrow"] is not None:
        found["saving"] = policy_comparison.short_trace_saving_section(found["tomorrow"], today)
    found["certainty"] = policy_comparison.certainty_section(settings, last, found["board"])
    found["profiles"] = limitations.latency_profiles_section(settings)
    found["llms"] = data_sections.llm_section(settings, first, until)
    found["watch"] = next_day_plan.watch_section(settings, found["tomorrow"], first, until)
