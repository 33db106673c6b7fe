"""Stages that need not be made again: nothing that they were made from has changed.

The same config gives the same bytes, so each stage of a day leaves a note of what it was made from: the code
and the packages, the config and the catalogue, the files that it read and those that it wrote. While the note
still holds, what is there is what would be made.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.store import change_tag
from fleetcast.models.world.project_paths import CODE, ROOT

DIGESTED_SOURCES = ("models/**/*.py", "assets/**/*.py", "sql/**/*.sql")


class Stage(NamedTuple):
    """The tables that a stage writes and reads, and the figures that it draws."""

    made: Sequence[str]
    read: Sequence[str]
    drawn: Sequence[str] = ()


_FORECASTS = ("forecasts", "day_ahead_forecasts")
_PLANS = ("plans", "plan_windows", "plan_bounds")
_REPLAYS = ("outcomes", "legs", "fleet_hours", "closed_plans")
_TRACE_TABLES = (
    "requests",
    "demand",
    "silences",
    "answers",
)  # of the day and its history; answers of the trace
_ON_DEMAND_TABLES = ("ran_fleets", "trials", "level_trials")  # of the day, where somebody asked
STAGES: Mapping[str, Stage] = {
    "forecasts": Stage(_FORECASTS, _TRACE_TABLES),
    "plans": Stage(_PLANS, (*_TRACE_TABLES, *_FORECASTS), ("plan",)),
    "replays": Stage(_REPLAYS, (*_TRACE_TABLES, *_FORECASTS, *_PLANS)),
    "scorecard": Stage(("scorecard",), _REPLAYS),
    "figures": Stage(
        (),
        (*_TRACE_TABLES, *_FORECASTS, *_PLANS, *_REPLAYS, "scorecard"),
        ("demand_and_forecast", "instances_against_demand", "ttft_cdf", "cost_against_misses"),
    ),
    "advice": Stage((), (*_TRACE_TABLES, *_FORECASTS, *_PLANS, *_REPLAYS, "scorecard", *_ON_DEMAND_TABLES)),
}


@contextmanager
def rebuild_if_changed(
    settings: RunSettings, stage: str, day: date, progress: Progress | None = None
) -> Iterator[bool]:
    """Whether a stage of STAGES has to be made; a block that ends well has made it.

    What is read is noted before it is read: a file that changes meanwhile makes the stage again.
    """
    note = settings.lake.root / "made_from" / settings.trace / day.isoformat() / stage
    before = _input_digest(settings, _input_tags(settings, stage, day))
    is_needed = not (note.is_file() and note.read_text() == _note_text(settings, stage, day, before))
    if is_needed:
        note.unlink(missing_ok=True)
    elif progress is not None:
        report_stage_kept(stage, day, progress)
    yield is_needed
    if is_needed:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(_note_text(settings, stage, day, before))


def report_stage_kept(stage: str, day: date, progress: Progress) -> None:
    """Tell that a stage is not made again."""
    progress.say(f"{stage} of {day} are there: nothing that they are made from has changed")


def stage_input_digest(settings: RunSettings, stage: str, day: date) -> str:
    """A digest of all that a stage of STAGES is made from: the same on every machine and every disk."""
    lake, config = settings.lake, replace(settings.config, file=Path(settings.config.file.name))
    read = [
        lake.content(table, trace=settings.trace, **_day_partition(table, past))
        for table in STAGES[stage].read
        for past in _input_days(settings, day)
    ]
    return hashlib.sha256(repr((code_digest(), settings.catalogue, config, read)).encode()).hexdigest()


def _note_text(settings: RunSettings, stage: str, day: date, before: str) -> str:
    """What a stage was made from, and below it what it made."""
    made, _, drawn = STAGES[stage]
    files = {name: told for table in made for name, told in _file_tags(settings, table, day).items()}
    figures = {f"{name}.png": change_tag(settings.figures(day) / f"{name}.png") for name in drawn}
    return f"{before}\n{_join_tags({**files, **figures})}\n"


def _input_tags(settings: RunSettings, stage: str, day: date) -> dict[str, str]:
    found = (
        _file_tags(settings, table, past)
        for table in STAGES[stage].read
        for past in _input_days(settings, day)
    )
    return {name: told for files in found for name, told in files.items()}


def _input_days(settings: RunSettings, day: date) -> list[date]:
    return [*settings.history(day), day - timedelta(days=1), day]


def _file_tags(settings: RunSettings, table: str, day: date) -> dict[str, str]:
    """Every file with its mark: one that is written again counts as changed."""
    return settings.lake.marks(table, trace=settings.trace, **_day_partition(table, day))


def _day_partition(table: str, day: date) -> dict[str, date]:
    return {"day": day} if "day" in PARTITIONS[table] else {}


def _join_tags(files: Mapping[str, str]) -> str:
    return " ".join(f"{name}:{told}" for name, told in sorted(files.items()))


def _input_digest(settings: RunSettings, read: Mapping[str, str]) -> str:
    parts = (code_digest(), settings.catalogue, settings.config, _join_tags(read))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def code_digest() -> str:
    """Of every source that computes, and of the packages that it computes with, as this process has them."""
    digest = hashlib.sha256()
    for path in sorted(
        {path for base in (CODE, ROOT) for pattern in DIGESTED_SOURCES for path in base.glob(pattern)}
    ):
        digest.update(path.read_bytes())
    needed = [line for line in metadata.requires("fleetcast") or () if "extra ==" not in line]
    names = [re.split(r"[^\w-]", line)[0] for line in needed]
    digest.update(repr([(name, metadata.version(name)) for name in names]).encode())
    return digest.hexdigest()
