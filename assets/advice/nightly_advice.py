"""Compute the numbers of an advice page on a day of a config, from the tables of its nightly run."""

import shlex
from datetime import date, timedelta
from pathlib import Path

from fleetcast.assets.advice import (
    advised_days,
    data_sections,
    limitations,
    next_day_plan,
    phrases,
    policy_comparison,
)
from fleetcast.assets.advice.current_fleet import read_recorded_fleet
from fleetcast.assets.advice.data_sections import add_derived_sections, empty_sections
from fleetcast.assets.advice.imported_trace import CONFIG_FORMAT, ImportedTrace
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import plan_ahead
from fleetcast.assets.studies.level_search import describe_endpoint_levels
from fleetcast.models.aliases import Numbers


def advise_nightly_run(
    settings: RunSettings, day: date, progress: Progress, out: Path | None = None
) -> Numbers:
    """Compute the numbers of a page on a config's day, and plan the next day if needed.

    `out`: the folder of the page if it is not that of the day's figures. No promise is made.
    LakeError without the day's scorecard. If the next day cannot be planned, the page states the reason.
    """
    settings.require_day("scorecard", day)
    imported, next_day = read_config_trace(settings, day), day + timedelta(days=1)
    sections = empty_sections(imported)
    table = "plans" if next_day in settings.lake.days("plans", settings.trace) else "day_ahead_plans"
    reason = ""
    try:
        if table != "plans":
            plan_ahead(settings, next_day, progress)
        sections["tomorrow"] = next_day_plan.next_day_section(settings, next_day, table)
    except ValueError as error:
        reason = str(error)
    sections["history"] = data_sections.history_section(settings, day)
    sections["board"] = policy_comparison.policies_section(settings, day)
    sections["levels"] = describe_endpoint_levels(settings, day)
    add_derived_sections(settings, sections, imported, day, read_recorded_fleet(settings, day))
    advised_days.grade_or_explain(settings, day, progress)
    sections["reliability"] = advised_days.reliability_section(settings.lake, settings.trace)
    sections["cannot"] = limitations.list_limitations(imported, settings.catalogue, sections)
    if reason:
        sections["cannot"].insert(0, {"key": "tomorrow", "line": reason})
    sections["answer"] = phrases.answer_sentences(sections)
    name = settings.config_name
    lake = shlex.quote(str(settings.lake.root))
    command = f"FLEETCAST_LAKE={lake} fleetcast advise --config {name} --date {day}"
    command += f" --out {shlex.quote(str(out))}" if out else ""
    place = f"FLEETCAST_LAKE={lake} FLEETCAST_CONFIG={name} "
    sections["commands"] = phrases.reproduce_commands(sections, place, command, {})
    return dict(data_sections.to_json_values(sections))


def read_config_trace(settings: RunSettings, day: date) -> ImportedTrace:
    """Return a config's trace, with the days of its history up to `day`."""
    first = settings.history(day)[0]
    scope = {"trace": settings.trace, "first": first, "last": day}
    [row] = settings.lake.sql("reads/advice_trace_of_demand.sql", **scope).to_pylist()
    return ImportedTrace(
        settings.lake, settings.trace, settings.config.file.stem, CONFIG_FORMAT, {}, row["requests"],
        row["first_at"], row["last_at"], row["input_tokens"], row["output_tokens"], tuple(row["llms"]), {},
        {}, None, tuple(row["regions"]), tuple(row["tiers"]), row["app"] if row["apps"] == 1 else None,
        frozenset(),
    )  # fmt: skip
