"""The replays of a night, unit by unit: what is there is not played again, and all are of one config."""

import dataclasses
import hashlib
from datetime import date

from fleetcast.assets.lake.kept import content_of, say_kept
from fleetcast.assets.lake.settings import Progress, Settings
from fleetcast.assets.lake.store import Place
from fleetcast.assets.replays.replays import replay_together
from fleetcast.assets.replays.units import Unit, forget_others, units_of
from fleetcast.assets.replays.workloads import OF_UNITS
from fleetcast.models.world.reading import ConfigError


def begin_units(settings: Settings, day: date) -> list[Unit]:
    """What the day's replays are cut into; what others left goes. They are unfinished from here on."""
    units = units_of(settings)
    forget_others(settings, day, units)
    note = _note(settings, day)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("unfinished")
    return units


def replay_unit(settings: Settings, day: date, unit: Unit, progress: Progress) -> None:
    """Replay what of a unit has not been replayed yet: as it is, from what there is to replay it from."""
    if left := _left(settings, day, unit, content_of(settings, "replays", day)):
        replay_together(settings, [day], left, progress)
    else:
        say_kept("replays", day, progress)


def _left(settings: Settings, day: date, unit: Unit, content: str) -> Unit | None:
    """Of a unit the policies that are not there, or were made from something else than `content`."""
    policies = [
        policy
        for policy in unit.policies
        if not all(
            settings.lake.is_made_from(
                table, content, file=unit.file, policy=policy, trace=settings.trace, day=day
            )
            for table in ("outcomes", "fleet_hours")
        )
    ]
    return unit._replace(policies=tuple(policies), made_from=content) if policies else None


def end_units(settings: Settings, day: date) -> None:
    """All units of a day have been replayed: note of which config.

    A run that Dagster resumes after a kill leaves out the units that had not begun: they are played here.
    """
    content = content_of(settings, "replays", day)
    for unit in units_of(settings):
        if left := _left(settings, day, unit, content):
            replay_together(settings, [day], left, Progress())
    _note(settings, day).write_text(_fingerprint(settings))
    OF_UNITS.clear()


def require_same_config(settings: Settings, day: date) -> None:
    """Refuse to set one policy beside others that were planned and replayed under another config."""
    note = _note(settings, day)
    if note.is_file() and note.read_text() != _fingerprint(settings):
        raise ConfigError(
            f"The results of {day} are not of {settings.config.file.name} as it is now: it or the catalogue "
            f"has changed, or the night did not end. Make the day again: fleetcast nightly --date {day}"
        )


def _note(settings: Settings, day: date) -> Place:
    return settings.lake.path("outcomes", trace=settings.trace, day=day).parent.parent / "made_from"


def _fingerprint(settings: Settings) -> str:
    """Of all that a plan and a replay of the day's requests depend on, whichever policies are named."""
    config = settings.config
    replay = dataclasses.replace(config.replay, policies=())
    parts = (settings.catalogue, config.trace.seed, config.fleet, config.forecast, config.plan, replay)
    return hashlib.sha256(
        repr((*parts, config.policies, config.calendar, config.quality)).encode()
    ).hexdigest()
