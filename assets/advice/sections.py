"""The parts of a page's numbers, and what follows from a plan and a board whoever made them."""

from datetime import date

from fleetcast.assets.advice import data_sections, limitations, next_day_plan, policy_comparison
from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Numbers


def empty_sections(came: ImportedTrace) -> Numbers:
    """The numbers of a page of which nothing but the trace is known."""
    return {
        "version": data_sections.ADVICE_VERSION,
        "answer": [],
        "trace": data_sections.trace_section(came),
        "history": [],
        "tomorrow": None,
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
    settings: RunSettings, found: Numbers, came: ImportedTrace, last: date | None, today: Numbers | None
) -> None:
    """What follows from the plan and the board: the saving, how sure it is, what to watch."""
    first, until = came.first_day, came.last_at.date()
    if last is not None and found["board"] is not None:
        found["saving"] = policy_comparison.saving_section(settings, last, found["board"], today)
    elif found["tomorrow"] is not None:
        found["saving"] = policy_comparison.short_trace_saving_section(found["tomorrow"], today)
    found["certainty"] = policy_comparison.certainty_section(settings, last, found["board"])
    found["profiles"] = limitations.latency_profiles_section(settings)
    found["llms"] = data_sections.llm_section(came, settings, first, until)
    found["watch"] = next_day_plan.watch_section(settings, found["tomorrow"], first, until)
