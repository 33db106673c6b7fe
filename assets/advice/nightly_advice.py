"""The page of a config's own day, from what its night has made."""

from datetime import date, timedelta

from fleetcast.assets.advice import data_sections, limitations, next_day_plan, phrases, policy_comparison
from fleetcast.assets.advice.current_fleet import read_recorded_fleet
from fleetcast.assets.advice.imported_trace import CONFIG_FORMAT, ImportedTrace
from fleetcast.assets.advice.sections import add_derived_sections, empty_sections
from fleetcast.assets.lake.lake_preconditions import require_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import plan_ahead
from fleetcast.models.aliases import Numbers
from fleetcast.models.world.config_loading import CONFIG_DIR


def advise_nightly_run(settings: RunSettings, day: date, progress: Progress) -> Numbers:
    """The numbers of a page on a config's own day, from what its night made; the next day is planned.

    LakeError without the day's scorecard. A next day that cannot be planned is a line of the page.
    """
    require_day(settings.lake, "scorecard", settings.trace, day)
    came, next_day = read_config_trace(settings, day), day + timedelta(days=1)
    found = empty_sections(came)
    table = "plans" if next_day in settings.lake.days("plans", settings.trace) else "day_ahead_plans"
    why = ""
    try:
        if table != "plans":
            plan_ahead(settings, next_day, progress)
        found["tomorrow"] = next_day_plan.next_day_section(settings, next_day, table)
    except ValueError as error:
        why = str(error)
    found["history"] = data_sections.history_section(settings, day)
    found["board"] = policy_comparison.policies_section(settings, day)
    found["levels"] = data_sections.levels_section(settings, day)
    add_derived_sections(settings, found, came, day, read_recorded_fleet(settings, day))
    found["cannot"] = limitations.list_limitations(came, settings.catalogue, found)
    if why:
        found["cannot"].insert(0, {"key": "tomorrow", "line": why})
    found["answer"] = phrases.answer_sentences(found)
    config = settings.config.file
    name = config.stem if config.parent == CONFIG_DIR else str(config)
    again = f"fleetcast advise --config {name} --date {day}"
    found["commands"] = phrases.reproduce_commands(found, f"export FLEETCAST_CONFIG={name}", again, {})
    return dict(data_sections.to_json_values(found))


def read_config_trace(settings: RunSettings, day: date) -> ImportedTrace:
    """What the days of a config's trace say, up to one."""
    first = settings.history(day)[0]
    asked = {"trace": settings.trace, "first": first, "last": day}
    [row] = settings.lake.sql("reads/advice_trace_of_demand.sql", **asked).to_pylist()
    return ImportedTrace(
        settings.lake, settings.trace, settings.config.file.stem, CONFIG_FORMAT, {}, row["requests"],
        row["first_at"], row["last_at"], row["input_tokens"], row["output_tokens"], tuple(row["llms"]), {},
        {}, None, tuple(row["regions"]), tuple(row["tiers"]), row["app"] if row["apps"] == 1 else None,
        frozenset(),
    )  # fmt: skip
