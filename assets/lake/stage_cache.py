"""Skip the stages of a day whose inputs have not changed.

The same inputs give the same bytes. So each stage of a day writes a note of its inputs and outputs: the code
and the packages, the config and the catalogue, the files that it read and those that it wrote. While the note
holds, the stage's outputs are up to date.
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
_SCORES = ("scorecard", "scoreboard", "learned_shares")
# Read for the day and its history, but `answers` for the whole trace.
TRACE_TABLES = ("requests", "demand", "silences", "answers")
_ON_DEMAND_TABLES = ("ran_fleets", "trials", "level_trials", "advised_days")  # of days with a study
STAGES: Mapping[str, Stage] = {
    "forecasts": Stage(_FORECASTS, TRACE_TABLES),
    "plans": Stage(_PLANS, (*TRACE_TABLES, *_FORECASTS), ("plan",)),
    "replays": Stage(_REPLAYS, (*TRACE_TABLES, *_FORECASTS, *_PLANS)),
    "scorecard": Stage(_SCORES, _REPLAYS),
    "figures": Stage(
        (),
        (*TRACE_TABLES, *_FORECASTS, *_PLANS, *_REPLAYS, *_SCORES),
        ("demand_and_forecast", "instances_against_demand", "ttft_cdf", "cost_against_misses"),
    ),
    "advice": Stage((), (*TRACE_TABLES, *_FORECASTS, *_PLANS, *_REPLAYS, *_SCORES, *_ON_DEMAND_TABLES)),
}


@contextmanager
def rebuild_if_changed(
    settings: RunSettings, stage: str, day: date, progress: Progress | None = None
) -> Iterator[bool]:
    """Yield whether a stage of STAGES has to be made; write its note when the block ends without an error.

    The inputs are noted before the block reads them: if a file changes meanwhile, the next run makes the
    stage again.
    """
    note = settings.lake.root / "made_from" / settings.trace / day.isoformat() / stage
    before = _input_digest(settings, stage, day)
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
    """Report that a stage is not made again."""
    progress.say(f"{stage} of {day} are up to date: their inputs have not changed")


def stage_input_digest(settings: RunSettings, stage: str, day: date) -> str:
    """Return a digest of all inputs of a stage of STAGES: the same on every machine and every disk."""
    lake, config = settings.lake, replace(settings.config, file=Path(settings.config.file.name))
    read = [
        lake.content(table, trace=settings.trace, **_day_partition(table, past))
        for table in STAGES[stage].read
        for past in _input_days(settings, day)
    ]
    return hashlib.sha256(repr((code_digest(), settings.catalogue, config, read)).encode()).hexdigest()


def _note_text(settings: RunSettings, stage: str, day: date, before: str) -> str:
    """Return the text of a note: the digest of the inputs, and below it the tags of the outputs."""
    made, _, drawn = STAGES[stage]
    tags = {name: tag for table in made for name, tag in _file_tags(settings, table, day).items()}
    tags |= {f"{name}.png": change_tag(settings.figures(day) / f"{name}.png") for name in drawn}
    return f"{before}\n{_join_tags(tags)}\n"


def _input_days(settings: RunSettings, day: date) -> list[date]:
    return [*settings.history(day), day - timedelta(days=1), day]


def _file_tags(settings: RunSettings, table: str, day: date) -> dict[str, str]:
    """Return the change tag of every file of a day's table. A file that is written again has a new tag."""
    return settings.lake.marks(table, trace=settings.trace, **_day_partition(table, day))


def _day_partition(table: str, day: date) -> dict[str, date]:
    return {"day": day} if "day" in PARTITIONS[table] else {}


def _join_tags(files: Mapping[str, str]) -> str:
    return " ".join(f"{name}:{tag}" for name, tag in sorted(files.items()))


def _input_digest(settings: RunSettings, stage: str, day: date) -> str:
    """Return a digest of the inputs of a stage, with the change tags of the files that it reads."""
    read = {
        name: tag
        for table in STAGES[stage].read
        for past in _input_days(settings, day)
        for name, tag in _file_tags(settings, table, past).items()
    }
    parts = (code_digest(), settings.catalogue, settings.config, _join_tags(read))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def code_digest() -> str:
    """Return a digest of fleetcast's sources and its packages' versions, as this process has them."""
    digest = hashlib.sha256()
    for path in sorted(
        {path for base in (CODE, ROOT) for pattern in DIGESTED_SOURCES for path in base.glob(pattern)}
    ):
        digest.update(path.read_bytes())
    needed = [line for line in metadata.requires("fleetcast") or () if "extra ==" not in line]
    names = [re.split(r"[^\w-]", line)[0] for line in needed]
    digest.update(repr([(name, metadata.version(name)) for name in names]).encode())
    return digest.hexdigest()
