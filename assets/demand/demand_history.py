"""Which days of history a forecast lacks: never made, made from other parameters, or landed anew since.

The folder of a made trace keeps a fingerprint of all that its days depend on; when that changes, every day is
made again, so that no forecast learns from a mixture.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa

from fleetcast.assets.demand import demand
from fleetcast.assets.lake.lake_preconditions import require_day, require_unlanded
from fleetcast.assets.lake.settings import Progress, RunSettings, StepCounter, midnight, run_parallel
from fleetcast.assets.lake.sql_files import SQL
from fleetcast.assets.lake.store import LakePath, removal_command
from fleetcast.assets.traces import request_days
from fleetcast.models.traffic import random_streams, synthetic_days, trace_columns
from fleetcast.models.world.config_loading import CONFIG_DIR


def is_generated_trace(settings: RunSettings) -> bool:
    """Whether the trace is generated or tiled, not landed as it is."""
    return settings.config.trace.office is not None or settings.config.trace.tiled is not None


def require_history(settings: RunSettings, day: date) -> None:
    """Refuse a day before which the trace has none, before anything is made for it."""
    first = settings.config.trace.first_day
    if not settings.history(day):
        raise ValueError(
            f"No history to forecast {day} from: the trace {settings.trace!r} begins on {first}. "
            "Choose a later --date or an earlier [trace] first_day."
        )


def claim_trace_name(settings: RunSettings) -> None:
    """One config per trace name: the results of two would overwrite each other in the lake.

    The first one claims the name, until its file is gone.
    """
    claim, mine = settings.lake.root / "configs" / settings.trace, settings.config.file
    owner = CONFIG_DIR / claim.read_text() if claim.is_file() else mine
    if owner != mine and owner.is_file():
        command = removal_command(settings.lake.root, f"configs/{settings.trace}")
        raise ValueError(
            f"The trace name {settings.trace!r} belongs to {owner}; {mine} would overwrite its results. "
            f"Give a made trace a [trace] name of its own; hand a landed one over: {command}"
        )
    claim.parent.mkdir(parents=True, exist_ok=True)
    claim.write_text(str(mine.relative_to(CONFIG_DIR) if mine.is_relative_to(CONFIG_DIR) else mine))


def consecutive_stretches(days: Sequence[date]) -> list[tuple[date, date]]:
    """Sorted days as stretches without a gap: the first and the last of each."""
    edges = [day for day in days if day - timedelta(days=1) not in days]
    ends = [day for day in days if day + timedelta(days=1) not in days]
    return list(zip(edges, ends, strict=True))


def past_days(settings: RunSettings, day: date) -> list[date]:
    """The days before `day` that its forecast learns from, oldest first: of a made trace all of them."""
    there = settings.history(day)
    if not is_generated_trace(settings):
        landed = set(settings.lake.days("requests", settings.trace))
        there = [past for past in there if past in landed]
    return there


def require_day_demand(settings: RunSettings, day: date) -> None:
    """Refuse a day of which the lake has no demand, unless it is an empty one of a landed trace.

    Such a day lies between two that landed, or after the last where the same weekday never brought a request.
    """
    there = settings.lake.days("requests", settings.trace)
    if (
        demand.is_landed_trace(settings.lake, settings.trace)
        and there
        and there[0] < day
        and day not in there
    ):
        weeks = range(1, (day - there[0]).days // 7 + 1)
        if day < there[-1] or (weeks and not any(day - timedelta(weeks=n) in there for n in weeks)):
            return
    require_day(settings.lake, "demand", settings.trace, day)


def unknown_history_sentence(settings: RunSettings, day: date) -> str:
    """What the forecasts and plans of a day do not know of the days before, as a sentence; "" for nothing."""
    past = settings.history(day) or [day]
    begins, ends = midnight(past[0]), midnight(day)
    rows = settings.lake.sql("from silences where trace = $trace", trace=settings.trace).to_pylist()
    cut = ((max(r["silence_start"] or begins, begins), min(r["silence_end"] or ends, ends)) for r in rows)
    unknown = sorted((first, last) for first, last in cut if first < last)
    if not unknown:
        return ""
    hours = sum((last - first).total_seconds() for first, last in unknown) / 3600
    first, last = unknown[-1]
    return (
        f"{hours:,.1f} of the {24 * len(past):,} hours before {day} are not known, "
        f"the last ones from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}: nobody was collecting."
    )


def missing_days(settings: RunSettings, day: date) -> list[date]:
    """Those of the past days whose requests or demand have to be made before its forecast."""
    return [past for past in past_days(settings, day) if not _has_demand(settings, past)]


def drop_changed_days(settings: RunSettings) -> None:
    """Drop the days of a made trace whose parameters have changed: they count as missing then."""
    if not is_generated_trace(settings):
        return
    require_unlanded(settings.lake, settings.trace)
    if _is_current(settings):
        return
    for table in ("demand", "requests"):
        for file in settings.lake.files(table, trace=settings.trace):
            file.unlink()
    stamp = settings.lake.made_from(settings.trace)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(generated_trace_fingerprint(settings))


def make_requests(settings: RunSettings, days: Sequence[date], progress: Progress) -> dict[date, int]:
    """Bring the days of the trace that are not there into the lake; the requests of each."""
    kept = _kept_days(settings)
    missing = [day for day in days if day not in kept]
    with progress.bar(_progress_label("requests", days), len(missing)) as done:
        made = StepCounter(done)

        def one(day: date) -> None:
            request_days.make_request_day(settings.lake, settings.config.trace, settings.catalogue, day)
            made.count_step()

        run_parallel(one, missing)
    return {day: settings.lake.count("requests", trace=settings.trace, day=day) for day in days}


def make_demand(
    settings: RunSettings, days: Sequence[date], progress: Progress
) -> Iterator[tuple[date, pa.Table]]:
    """Build the demand of days, but of those that have it, and hand over each."""
    with progress.bar(_progress_label("demand", days), len(days)) as done:
        for count, day in enumerate(days, start=1):
            is_stale = is_generated_trace(settings) and not _is_current(settings)
            if is_stale or not _has_demand(settings, day):
                demand.build_demand(settings.lake, settings.trace, day)
            yield day, settings.lake.part("demand", trace=settings.trace, day=day)
            done(count)


def _progress_label(table: str, days: Sequence[date]) -> str:
    return f"{table} of {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")


def _kept_days(settings: RunSettings) -> set[date]:
    """The days of a made trace that are there, of the parameters as they are now."""
    if not is_generated_trace(settings):
        return set()
    if not _is_current(settings):
        settings.lake.made_from(settings.trace).unlink(missing_ok=True)  # days of two kinds: none is kept
        return set()
    return set(settings.lake.days("requests", settings.trace))


def _is_current(settings: RunSettings) -> bool:
    stamp = settings.lake.made_from(settings.trace)
    return stamp.is_file() and stamp.read_text() == generated_trace_fingerprint(settings)


def _has_demand(settings: RunSettings, day: date) -> bool:
    """Whether the day has a demand, of the requests that are there."""
    of_day = {"trace": settings.trace, "day": day}
    there = settings.lake.files("requests", **of_day)
    return bool(there) and settings.lake.is_made_from(
        "demand", settings.lake.content("requests", **of_day), **of_day
    )


def generated_trace_fingerprint(settings: RunSettings) -> str:
    """Of the trace's parameters, the catalogue's names and deadlines, the generator, the landed template."""
    catalogue, trace = settings.catalogue, settings.config.trace
    deadlines = [(name, tier.deadline_s) for name, tier in catalogue.tiers.items()]
    figures = (
        trace.seed,
        trace.office,
        trace.tiled,
        list(catalogue.llms),
        list(catalogue.regions),
        deadlines,
    )
    digest = hashlib.sha256(repr(figures).encode())
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
