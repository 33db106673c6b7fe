"""Promise what the exported plan of the next day attains and costs, for the nightly run to grade.

The plan is that of `fleetcast plan ahead`, as it is: no rule is chosen and no headroom is added, as in
advise.py. Its replays take more than a sixth of the CPU of a large nightly run, so they are a job after it.
"""

from datetime import date, timedelta

import pyarrow as pa

from fleetcast.assets.advice import advised_days, tomorrow_draws
from fleetcast.assets.advice.phrases import INTERVAL_SHARE, promise_line
from fleetcast.assets.advice.promise import Promise, PromiseSearch
from fleetcast.assets.advice.promise_sections import promise_section
from fleetcast.assets.advice.rule_replays import SizedRule, read_midnight_plan
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import DAY_AHEAD_POLICY
from fleetcast.models.world.toml_dataclasses import ConfigError

LEAST_VERSIONS = 20  # fewer versions do not show what happens one day in ten
SURVIVES = "none"  # what the minimum of the config survives is not examined


def promise_next_day(settings: RunSettings, day: date, progress: Progress) -> pa.Table:
    """Replay the plan of a coming day on 20 to 40 versions of it; write and return its row of advised_days.

    An earlier promise of the day is replaced. LakeError without a plan of the day or requests before it.
    ConfigError where requests are linked, and so cannot be resampled.
    """
    lake, scope = settings.lake, {"trace": settings.trace, "day": day}
    if not tomorrow_draws.can_sample_days(settings):
        raise ConfigError(
            f'{settings.config.file.name}: got a cascade, [quality] or prefix = "blocks", needed requests '
            "that can be resampled one by one. Such a config has no promise."
        )
    if not lake.files("day_ahead_plans", **scope):
        raise LakeError(
            f"The lake has no plan of {day} made the day before. Make it: {settings.command('plan ahead')}"
        )
    before = [one for one in lake.days("demand", settings.trace) if one < day]
    with progress.bar(f"promise for {day}", 0):
        draws = tomorrow_draws.sample_tomorrow(settings, day, before, least_draws=LEAST_VERSIONS)
        search = PromiseSearch(settings, [], read_midnight_plan(settings, day), draws)
        sized = SizedRule(DAY_AHEAD_POLICY)
        found = Promise(search.evidence(sized), search.is_promise(sized), {})
    advised_days.keep_promise(settings, search, promise_section(settings, search, found, SURVIVES))
    return lake.read("advised_days", **scope)


def describe_promises(settings: RunSettings, day: date) -> list[str]:
    """Return a line each on the promise of a day, on all graded days, and on the promise of the next day.

    Those that are not there are left out.
    """
    if not settings.lake.files("advised_days", trace=settings.trace):
        return []
    lines = [*_promise_lines(settings, day), _kept_so_far(settings)]
    lines += _promise_lines(settings, day + timedelta(days=1))
    return [line for line in lines if line]


def _promise_lines(settings: RunSettings, day: date) -> list[str]:
    """Return the line on the promise of a day; empty without one."""
    rows, tiers = (settings.day_rows(mart, day).to_pylist() for mart in ("graded_advice", "graded_tiers"))
    return [promise_line(row, tiers) for row in rows]


def _kept_so_far(settings: RunSettings) -> str:
    """Return on how many of the graded days the intervals were kept; "" before a day is graded."""
    rows = advised_days.reliability_section(settings.lake, settings.trace)
    days, inside = (sum(row[name] for row in rows) for name in ("graded_days", "inside_days"))
    if not days:
        return ""
    return (
        f"{inside} of {days} graded days kept both intervals, share in time and cost (promised: "
        f"{days * INTERVAL_SHARE:,.1f})"
    )
