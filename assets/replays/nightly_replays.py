"""Run the replays of a nightly run unit by unit; results of the same config are reused."""

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
    """Return the units of the day's replays; delete other units' outputs, note the day as unfinished."""
    units = nightly_units(settings)
    delete_other_outputs(settings, day, units)
    note = _note(settings, day)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("unfinished")
    return units


def replay_missing_policies(settings: RunSettings, day: date, unit: ReplayUnit, progress: Progress) -> None:
    """Replay the policies of a unit that have no replay of the present inputs."""
    if missing := _unfinished_part(settings, day, unit, stage_input_digest(settings, "replays", day)):
        replay_unit_days(settings, [day], missing, progress)
    else:
        report_stage_kept("replays", day, progress)


def _unfinished_part(settings: RunSettings, day: date, unit: ReplayUnit, content: str) -> ReplayUnit | None:
    """Return the unit with the policies that lack a replay of the inputs `content`, None without any."""
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
    """Finish the day's replays: replay missing units, and note the config.

    A run that Dagster resumes after a kill skips the units that had not begun; they are replayed here.
    """
    content = stage_input_digest(settings, "replays", day)
    for unit in nightly_units(settings):
        if missing := _unfinished_part(settings, day, unit, content):
            replay_unit_days(settings, [day], missing, Progress())
    _note(settings, day).write_text(_fingerprint(settings))
    WORKLOAD_CACHE.clear()


def require_same_config(settings: RunSettings, day: date) -> None:
    """Raise ConfigError where the day's other policies were planned and replayed under another config."""
    note = _note(settings, day)
    if note.is_file() and note.read_text() != _fingerprint(settings):
        raise ConfigError(
            f"The results of {day} are not of {settings.config.file.name} as it is now: it or the catalogue "
            "has changed, or the nightly run did not end. Make the day again: "
            f"{settings.command(f'nightly --date {day}')}"
        )


def _note(settings: RunSettings, day: date) -> LakePath:
    return settings.lake.path("outcomes", trace=settings.trace, day=day).parent.parent / "made_from"


def _fingerprint(settings: RunSettings) -> str:
    """Return a digest of everything that plans and replays depend on, except the list of policies."""
    config = settings.config
    replay = dataclasses.replace(config.replay, policies=())
    parts = (settings.catalogue, config.trace.seed, config.fleet, config.forecast, config.plan, replay)
    return hashlib.sha256(
        repr((*parts, config.policies, config.calendar, config.quality)).encode()
    ).hexdigest()
