"""Which days of history a forecast lacks: never made, made from other parameters, or landed anew since.

The folder of a made trace keeps a fingerprint of all that its days depend on; when that changes, every day is
made again, so that no forecast learns from a mixture.
"""

import hashlib
from datetime import date
from pathlib import Path

from assets.lake.lookups import require_unlanded
from assets.lake.settings import Settings
from models.traffic import arrivals, drawing, parameters
from models.world.loading import CONFIG_DIR


def is_made(settings: Settings) -> bool:
    """Whether the trace is generated or tiled, not landed as it is."""
    return settings.config.trace.office is not None or settings.config.trace.tiled is not None


def require_history(settings: Settings, day: date) -> None:
    """Refuse a day before which the trace has none, before anything is made for it."""
    first = settings.config.trace.first_day
    if not settings.history(day):
        raise ValueError(
            f"No history to forecast {day} from: the trace {settings.trace!r} begins on {first}. "
            "Choose a later --date or an earlier [trace] first_day."
        )


def require_own_name(settings: Settings) -> None:
    """One config per trace name: the results of two would overwrite each other in the lake.

    The first one claims the name, until its file is gone.
    """
    claim, mine = settings.lake.root / "configs" / settings.trace, settings.config.file
    owner = CONFIG_DIR / claim.read_text() if claim.is_file() else mine
    if owner != mine and owner.is_file():
        raise ValueError(
            f"The trace name {settings.trace!r} belongs to {owner}; {mine} would overwrite its results. "
            f"Give a made trace a [trace] name of its own; hand a landed one over: rm {claim}"
        )
    claim.parent.mkdir(parents=True, exist_ok=True)
    claim.write_text(str(mine.relative_to(CONFIG_DIR) if mine.is_relative_to(CONFIG_DIR) else mine))


def missing_days(settings: Settings, day: date) -> list[date]:
    """The days before `day`, oldest first, whose requests or demand have to be made before its forecast."""
    there = settings.history(day)
    if not is_made(settings):
        landed = set(settings.lake.days("requests", settings.trace))
        there = [past for past in there if past in landed]
    return [past for past in there if not _has_demand(settings, past)]


def forget_changed(settings: Settings) -> None:
    """Drop the demand of a made trace whose parameters have changed: its days count as missing then."""
    if not is_made(settings):
        return
    require_unlanded(settings.lake, settings.trace)
    stamp, now = settings.lake.made_from(settings.trace), _fingerprint(settings)
    if stamp.is_file() and stamp.read_text() == now:
        return
    for day in settings.lake.days("demand", settings.trace):
        settings.lake.path("demand", trace=settings.trace, day=day).unlink()
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(now)


def _has_demand(settings: Settings, day: date) -> bool:
    """Whether the day has a demand that was built after its requests."""
    requests, demand = (settings.lake.path(t, trace=settings.trace, day=day) for t in ("requests", "demand"))
    return requests.is_file() and demand.is_file() and requests.stat().st_mtime <= demand.stat().st_mtime


def _fingerprint(settings: Settings) -> str:
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
    sources = [Path(str(module.__file__)) for module in (arrivals, drawing, parameters)]
    if trace.tiled is not None:
        sources += sorted(
            (settings.lake.root / "ingests" / f"trace={trace.tiled.template}").glob("*.parquet")
        )
    for path in sources:
        digest.update(path.read_bytes())
    return digest.hexdigest()
