"""Stages that need not be made again: nothing that they were made from has changed.

The same config gives the same bytes, so each stage of a day leaves a note of what it was made from: the code
and the packages, the config and the catalogue, the files that it read and those that it wrote. While the note
still holds, what is there is what would be made.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from assets.lake.schemas import PARTITIONS
from assets.lake.settings import Progress, Settings

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("models/**/*.py", "assets/**/*.py", "sql/**/*.sql")


class Stage(NamedTuple):
    """The tables that a stage writes and reads, and the figures that it draws."""

    made: Sequence[str]
    read: Sequence[str]
    drawn: Sequence[str] = ()


_FORECASTS = ("forecasts", "day_ahead_forecasts")
_PLANS = ("plans", "plan_windows", "plan_bounds")
_REPLAYS = ("outcomes", "legs", "fleet_hours", "closed_plans")
_KNOWN = ("requests", "demand", "silences", "answers")  # of the day and its history; answers of the trace
STAGES: Mapping[str, Stage] = {
    "forecasts": Stage(_FORECASTS, _KNOWN),
    "plans": Stage(_PLANS, (*_KNOWN, *_FORECASTS), ("plan",)),
    "replays": Stage(_REPLAYS, (*_KNOWN, *_FORECASTS, *_PLANS)),
    "scorecard": Stage(("scorecard",), _REPLAYS),
    "figures": Stage(
        (),
        (*_KNOWN, *_FORECASTS, *_PLANS, *_REPLAYS, "scorecard"),
        ("demand_and_forecast", "instances_against_demand", "ttft_cdf", "cost_against_misses"),
    ),
}


@contextmanager
def made_once(settings: Settings, stage: str, day: date, progress: Progress | None = None) -> Iterator[bool]:
    """Whether a stage of STAGES has to be made; a block that ends well has made it.

    What is read is noted before it is read: a file that changes meanwhile makes the stage again.
    """
    note = settings.lake.root / "made_from" / settings.trace / day.isoformat() / stage
    before = _digest(settings, _read(settings, stage, day))
    is_needed = not (note.is_file() and note.read_text() == _note(settings, stage, day, before))
    if is_needed:
        note.unlink(missing_ok=True)
    elif progress is not None:
        progress.say(f"{stage} of {day} are there: nothing that they are made from has changed")
    yield is_needed
    if is_needed:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(_note(settings, stage, day, before))


def _note(settings: Settings, stage: str, day: date, before: str) -> str:
    """What a stage was made from, and below it what it made."""
    made, _, drawn = STAGES[stage]
    tables = [path for table in made for path in _files(settings, table, day)]
    figures = [settings.figures(day) / f"{name}.png" for name in drawn]
    return f"{before}\n{_listed([*tables, *(path for path in figures if path.is_file())])}\n"


def _read(settings: Settings, stage: str, day: date) -> list[Path]:
    days = [*settings.history(day), day - timedelta(days=1), day]
    found = {path for table in STAGES[stage].read for past in days for path in _files(settings, table, past)}
    return sorted(found)


def _files(settings: Settings, table: str, day: date) -> list[Path]:
    of_day = {"day": day} if "day" in PARTITIONS[table] else {}
    return settings.lake.files(table, trace=settings.trace, **of_day)


def _listed(files: Sequence[Path]) -> str:
    """Every file with its size and when it was written: a file that is written again counts as changed."""
    return " ".join(f"{p.name}:{(s := p.stat()).st_size}:{s.st_mtime_ns}" for p in files)


def _digest(settings: Settings, read: Sequence[Path]) -> str:
    parts = (code(), settings.catalogue, settings.config, [str(path) for path in read], _listed(read))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def code() -> str:
    """Of every source that computes, and of the packages that it computes with, as this process has them."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        digest.update(path.read_bytes())
    names = [re.split(r"[^\w-]", needed)[0] for needed in metadata.requires("fleetcast") or ()]
    digest.update(repr([(name, metadata.version(name)) for name in names]).encode())
    return digest.hexdigest()
