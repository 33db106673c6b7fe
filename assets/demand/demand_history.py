"""The days of history that a forecast needs: find and make those that are missing or out of date.

A day is out of date if it was generated from other parameters, or landed again since. The folder of a
generated trace has a fingerprint of everything that its days depend on. When that changes, every day is
generated again, so that no forecast learns from a mixture.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from fleetcast.assets.demand import demand
from fleetcast.assets.lake.lake_preconditions import require_unlanded
from fleetcast.assets.lake.settings import Progress, RunSettings, StepCounter, midnight, run_parallel
from fleetcast.assets.lake.sql_files import SQL
from fleetcast.assets.lake.store import LakePath, removal_command
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces import request_days
from fleetcast.models.traffic import random_streams, synthetic_days, trace_columns
from fleetcast.models.world.config_loading import CONFIG_DIR

LEAST_UNKNOWN_H = 0.05  # the first reading of metrics is a minute after midnight
CALENDAR_COLUMNS = ("trace", "first day", "last day", "days")


def is_generated_trace(settings: RunSettings) -> bool:
    """Whether the trace is generated or tiled, not landed."""
    return settings.config.trace.office is not None or settings.config.trace.tiled is not None


def require_history(settings: RunSettings, day: date) -> None:
    """Raise ValueError for a day without any day of the trace before it."""
    first = settings.config.trace.first_day
    if not settings.history(day):
        raise ValueError(
            f"No history to forecast {day} from: the trace {settings.trace!r} begins on {first}. "
            "Choose a later --date or an earlier [trace] first_day."
        )


def claim_trace_name(settings: RunSettings) -> None:
    """Claim the trace name for the config, since results of two configs would overwrite each other.

    The first config has the name until its file is removed; ValueError for another one.
    """
    claim, config = settings.lake.root / "configs" / settings.trace, settings.config.file
    owner = CONFIG_DIR / claim.read_text() if claim.is_file() else config
    if owner != config and owner.is_file():
        command = removal_command(settings.lake.root, f"configs/{settings.trace}")
        raise ValueError(
            f"The trace name {settings.trace!r} belongs to {owner}; {config} would overwrite its results. "
            "Give a generated trace another [trace] name; to use a landed trace with this config, run: "
            f"{command}"
        )
    claim.parent.mkdir(parents=True, exist_ok=True)
    claim.write_text(str(config.relative_to(CONFIG_DIR) if config.is_relative_to(CONFIG_DIR) else config))


def consecutive_stretches(days: Sequence[date]) -> list[tuple[date, date]]:
    """Split sorted days into stretches without a gap; return the first and the last day of each."""
    edges = [day for day in days if day - timedelta(days=1) not in days]
    ends = [day for day in days if day + timedelta(days=1) not in days]
    return list(zip(edges, ends, strict=True))


def past_days(settings: RunSettings, day: date) -> list[date]:
    """Return the days before `day` that its forecast learns from, oldest first.

    These are all days of the history for a generated trace, else those that have landed.
    """
    days = settings.history(day)
    if not is_generated_trace(settings):
        landed = set(settings.lake.days("requests", settings.trace))
        days = [past for past in days if past in landed]
    return days


def require_day_demand(settings: RunSettings, day: date) -> None:
    """Raise LakeError for a day without demand in the lake, unless it is an empty day of a landed trace.

    An empty day is between two landed days, or after the last one where no same weekday before had requests.
    """
    known = settings.lake.days("requests", settings.trace)
    if (
        demand.is_landed_trace(settings.lake, settings.trace)
        and known
        and known[0] < day
        and day not in known
    ):
        weeks = range(1, (day - known[0]).days // 7 + 1)
        if day < known[-1] or (weeks and not any(day - timedelta(weeks=n) in known for n in weeks)):
            return
    settings.require_day("demand", day)


def unknown_history_sentence(settings: RunSettings, day: date) -> str:
    """Return a sentence on the hours before a day that are unknown to its forecasts; "" for none."""
    past = settings.history(day) or [day]
    return _unknown_hours(
        settings, midnight(past[0]), midnight(day), f"{24 * len(past):,} hours before {day}"
    )


def unknown_day_sentence(settings: RunSettings, day: date) -> str:
    """Return a sentence on the hours of a scored day that are unknown; "" for none."""
    begins, ends = midnight(day), midnight(day + timedelta(days=1))
    if not (sentence := _unknown_hours(settings, begins, ends, f"24 hours of {day}")):
        return ""
    return f"{sentence} They count as hours without requests: the scores are not of a whole day."


def _unknown_hours(settings: RunSettings, begins: datetime, ends: datetime, of_hours: str) -> str:
    """Return how many hours between two instants are unknown, and the last ones; "" for a few minutes."""
    rows = settings.lake.sql("from silences where trace = $trace", trace=settings.trace).to_pylist()
    gaps = ((max(r["silence_start"] or begins, begins), min(r["silence_end"] or ends, ends)) for r in rows)
    unknown = sorted((first, last) for first, last in gaps if first < last)
    hours = sum((last - first).total_seconds() for first, last in unknown) / 3600
    if hours < LEAST_UNKNOWN_H:
        return ""
    first, last = unknown[-1]
    return (
        f"{hours:,.1f} of the {of_hours} are not known, "
        f"the last ones from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}: no data was collected."
    )


def missing_days(settings: RunSettings, day: date) -> list[date]:
    """Return the past days whose requests or demand must be made before the forecast of `day`."""
    return [past for past in past_days(settings, day) if not _has_demand(settings, past)]


def drop_changed_days(settings: RunSettings) -> None:
    """Delete the days of a generated trace whose parameters have changed, which makes them missing."""
    if not is_generated_trace(settings):
        return
    require_unlanded(settings.lake, settings.trace)
    if _is_current(settings):
        return
    for table in ("demand", "requests"):
        for file in settings.lake.files(table, trace=settings.trace):
            settings.lake.remove(file)
    stamp = settings.lake.made_from(settings.trace)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(generated_trace_fingerprint(settings))


def trace_calendar(lake: Lake) -> list[dict[str, str]]:
    """Return the traces with requests in the lake, with the first and the last day and how many there are."""
    days = {trace: lake.days("requests", trace) for trace in lake.traces("requests")}
    return [
        dict(zip(CALENDAR_COLUMNS, (trace, str(found[0]), str(found[-1]), str(len(found))), strict=True))
        for trace, found in days.items()
    ]


def make_requests(settings: RunSettings, days: Sequence[date], progress: Progress) -> dict[date, int]:
    """Make the requests of days that the lake does not have; return the number of requests of each day."""
    kept = _kept_days(settings)
    missing = [day for day in days if day not in kept]
    with progress.bar(_progress_label("requests", days), len(missing)) as done:
        counter = StepCounter(done)

        def make_day(day: date) -> None:
            request_days.make_request_day(settings.lake, settings.config.trace, settings.catalogue, day)
            counter.count_step()

        run_parallel(make_day, missing)
    return {day: settings.lake.count("requests", trace=settings.trace, day=day) for day in days}


def make_demand(
    settings: RunSettings, days: Sequence[date], progress: Progress
) -> Iterator[tuple[date, pa.Table]]:
    """Build the demand of days where it is missing or out of date, and yield each day with its demand."""
    for day in progress.each(_progress_label("demand", days), days):
        is_stale = is_generated_trace(settings) and not _is_current(settings)
        if is_stale or not _has_demand(settings, day):
            demand.build_demand(settings.lake, settings.trace, day)
        yield day, settings.lake.part("demand", trace=settings.trace, day=day)


def make_missing_demand(settings: RunSettings, day: date, progress: Progress) -> None:
    """Build what a landed trace lacks of the demand before `day`, or has of an earlier file."""
    if not is_generated_trace(settings) and (missing := missing_days(settings, day)):
        for _ in make_demand(settings, missing, progress):
            pass


def _progress_label(table: str, days: Sequence[date]) -> str:
    return f"{table} of {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")


def _kept_days(settings: RunSettings) -> set[date]:
    """Return the days of a generated trace that the lake has, generated with the current parameters."""
    if not is_generated_trace(settings):
        return set()
    if not _is_current(settings):
        # Days of old and new parameters could be mixed now: without a fingerprint none counts as current.
        settings.lake.made_from(settings.trace).unlink(missing_ok=True)
        return set()
    return set(settings.lake.days("requests", settings.trace))


def _is_current(settings: RunSettings) -> bool:
    stamp = settings.lake.made_from(settings.trace)
    return stamp.is_file() and stamp.read_text() == generated_trace_fingerprint(settings)


def _has_demand(settings: RunSettings, day: date) -> bool:
    """Whether the day has a demand that was built from its current requests."""
    of_day = {"trace": settings.trace, "day": day}
    if not settings.lake.files("requests", **of_day):
        return False
    return settings.lake.is_made_from("demand", settings.lake.content("requests", **of_day), **of_day)


def generated_trace_fingerprint(settings: RunSettings) -> str:
    """Return a hash of trace parameters, the catalogue's names and deadlines, generator and template."""
    catalogue, trace = settings.catalogue, settings.config.trace
    deadlines = [(name, tier.deadline_s) for name, tier in catalogue.tiers.items()]
    names = (list(catalogue.llms), list(catalogue.regions), deadlines)
    digest = hashlib.sha256(repr((trace.seed, trace.office, trace.tiled, *names)).encode())
    modules = (synthetic_days, random_streams, trace_columns, request_days, demand)
    sources: list[LakePath] = [
        *(Path(str(module.__file__)) for module in modules),
        SQL / "marts" / "demand.sql",
    ]
    if trace.tiled is not None:
        sources += settings.lake.files("ingests", trace=trace.tiled.template)
    for path in sources:
        digest.update(path.read_bytes())
    return digest.hexdigest()
