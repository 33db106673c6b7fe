"""The page of a config's own day, from what its night has made."""

from datetime import date, timedelta

from fleetcast.assets.advice import coming, judged, lacking, numbers, words
from fleetcast.assets.advice.brought import OF_CONFIG, Brought
from fleetcast.assets.advice.parts import empty, tell
from fleetcast.assets.advice.today import ran
from fleetcast.assets.lake.lookups import require_day
from fleetcast.assets.lake.settings import Progress, Settings
from fleetcast.assets.plans.ahead import plan_ahead
from fleetcast.models.aliases import Numbers
from fleetcast.models.world.loading import CONFIG_DIR


def advise_night(settings: Settings, day: date, progress: Progress) -> Numbers:
    """The numbers of a page on a config's own day, from what its night made; the next day is planned.

    LakeError without the day's scorecard. A next day that cannot be planned is a line of the page.
    """
    require_day(settings.lake, "scorecard", settings.trace, day)
    came, next_day = of_lake(settings, day), day + timedelta(days=1)
    found = empty(came)
    table = "plans" if next_day in settings.lake.days("plans", settings.trace) else "day_ahead_plans"
    why = ""
    try:
        if table != "plans":
            plan_ahead(settings, next_day, progress)
        found["tomorrow"] = coming.of_tomorrow(settings, next_day, table)
    except ValueError as error:
        why = str(error)
    found["history"] = numbers.of_history(settings, day)
    found["board"] = judged.of_board(settings, day)
    found["levels"] = numbers.level_lines(settings, day)
    tell(settings, found, came, day, ran(settings, day))
    found["cannot"] = lacking.cannot(came, settings.catalogue, found)
    if why:
        found["cannot"].insert(0, {"key": "tomorrow", "line": why})
    found["answer"] = words.answer(found)
    config = settings.config.file
    name = config.stem if config.parent == CONFIG_DIR else str(config)
    again = f"fleetcast advise --config {name} --date {day}"
    found["commands"] = words.commands(found, f"export FLEETCAST_CONFIG={name}", again, {})
    return dict(numbers.clean(found))


def of_lake(settings: Settings, day: date) -> Brought:
    """What the days of a config's trace say, up to one."""
    first = settings.history(day)[0]
    asked = {"trace": settings.trace, "first": first, "last": day}
    [row] = settings.lake.sql("reads/advice_trace_of_demand.sql", **asked).to_pylist()
    return Brought(
        settings.lake, settings.trace, settings.config.file.stem, OF_CONFIG, {}, row["requests"],
        row["first_at"], row["last_at"], row["input_tokens"], row["output_tokens"], tuple(row["llms"]), {},
        {}, None, tuple(row["regions"]), tuple(row["tiers"]), row["app"] if row["apps"] == 1 else None,
        frozenset(),
    )  # fmt: skip
