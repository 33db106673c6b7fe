"""The replays of a night, unit by unit: what is there is not played again, and all are of one config."""

import dataclasses
import hashlib
from datetime import date

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.stage_cache import report_stage_kept, stage_input_digest
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.replays.replay_units import ReplayUnit, delete_other_outputs, nightly_units
from fleetcast.assets.replays.replay_workloads import WORKLOAD_CACHE
from fleetcast.assets.replays.replays import replay_unit_days
from fleetcast.models.world.toml_dataclasses import ConfigError


def begin_units(settings: RunSettings, day: date) -> list[ReplayUnit]:
    """What the day's replays are cut into; what others left goes. They are unfinished from here on."""
    units = nightly_units(settings)
    delete_other_outputs(settings, day, units)
    note = _note(settings, day)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("unfinished")
    return units


def replay_missing_policies(settings: RunSettings, day: date, unit: ReplayUnit, progress: Progress) -> None:
    """Replay what of a unit has not been replayed yet: as it is, from what there is to replay it from."""
    if left := _unfinished_part(settings, day, unit, stage_input_digest(settings, "replays", day)):
        replay_unit_days(settings, [day], left, progress)
    else:
        report_stage_kept("replays", day, progress)


def _unfinished_part(settings: RunSettings, day: date, unit: ReplayUnit, content: str) -> ReplayUnit | None:
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


def end_units(settings: RunSettings, day: date) -> None:
    """All units of a day have been replayed: note of which config.

    A run that Dagster resumes after a kill leaves out the units that had not begun: they are played here.
    """
    content = stage_input_digest(settings, "replays", day)
    for unit in nightly_units(settings):
        if left := _unfinished_part(settings, day, unit, content):
            replay_unit_days(settings, [day], left, Progress())
    _note(settings, day).write_text(_fingerprint(settings))
    WORKLOAD_CACHE.clear()


def require_same_config(settings: RunSettings, day: date) -> None:
    """Refuse to set one policy beside others that were planned and replayed under another config."""
    note = _note(settings, day)
    if note.is_file() and note.read_text() != _fingerprint(settings):
        raise ConfigError(
            f"The results of {day} are not of {settings.config.file.name} as it is now: it or the catalogue "
            f"has changed, or the night did not end. Make the day again: fleetcast nightly --date {day}"
        )


def _note(settings: RunSettings, day: date) -> LakePath:
    return settings.lake.path("outcomes", trace=settings.trace, day=day).parent.parent / "made_from"


def _fingerprint(settings: RunSettings) -> str:
    """Of all that a plan and a replay of the day's requests depend on, whichever policies are named."""
    config = settings.config
    replay = dataclasses.replace(config.replay, policies=())
    parts = (settings.catalogue, config.trace.seed, config.fleet, config.forecast, config.plan, replay)
    return hashlib.sha256(
        repr((*parts, config.policies, config.calendar, config.quality)).encode()
    ).hexdigest()
