"""Replays of a day: every policy on the same requests, from the same fleet."""

import dataclasses
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from threading import Event, Lock

import numpy as np

from assets.lake.lookups import require_day
from assets.lake.schemas import PARTITIONS
from assets.lake.settings import Progress, Settings, Step, side_by_side
from assets.replays.closed_loop import play_closed
from assets.replays.drives import (
    DAY_S,
    HOUR_S,
    day_drives,
    measured,
    plan_rows,
    setting,
    sustained_of_plans,
)
from assets.replays.outcomes import in_legs, read_workload, write_outcome
from assets.replays.quarters import WatchedSession
from models.replay.run import TAIL_PERIODS, Drive, Outcome, Session
from models.replay.state import Ints, Trace
from models.world.reading import ConfigError, require_known


def replay_day(
    settings: Settings,
    day: date,
    policies: Sequence[str],
    progress: Progress,
    largest: dict[str, Ints] | None = None,
) -> int:
    """Replay the day under each policy, two at a time, and write what came of it; the number of outcomes.

    `largest` is given, by policy, what its endpoints held at most in each quarter of an hour (quarters.py).
    """
    for policy in policies:
        require_known(policy, settings.config.rules, "policy", "replay")
    require_day(settings.lake, "plans", settings.trace, day)
    workload = in_legs(settings, day, read_workload(settings, day))
    drives = day_drives(settings, day)
    sustained = sustained_of_plans(settings, plan_rows(settings, day))
    total = len(policies) * workload.trace.arrival_s.size
    watched = Session if largest is None else WatchedSession
    ended, lock, stopped = dict.fromkeys(policies, 0), Lock(), Event()
    with progress.bar(f"replay {day}", total) as done:

        def one(policy: str) -> None:
            def step(requests: int) -> None:
                if stopped.is_set():
                    raise KeyboardInterrupt
                with lock:
                    ended[policy] = requests
                    done(sum(ended.values()))

            fleet, rules = setting(settings, policy)
            fleet = measured(settings, fleet, sustained)
            session = watched(fleet, rules, np.asarray(drives[policy].start))
            if settings.config.rules[policy].is_closed:
                outcome = play_closed(settings, day, policy, session, workload.trace, step)
            else:
                outcome = play_open(drives[policy], session, workload.trace, step)
            if largest is not None and isinstance(session, WatchedSession):
                largest[policy] = session.largest()
            write_outcome(settings, day, policy, workload, (fleet, rules), outcome)
            step(workload.trace.arrival_s.size)

        side_by_side(one, policies, stopped.set)  # what has begun stops at its next step
    return total


def play_open(drive: Drive, session: Session, trace: Trace, step: Step) -> Outcome:
    """Replay a day under a plan that is known when it begins, or under none."""
    session.feed(trace)
    spent = session.play(drive, DAY_S, step)
    session.finish(DAY_S + TAIL_PERIODS * HOUR_S)
    return session.outcome(*spent)


@contextmanager
def of_one_config(settings: Settings, day: date) -> Iterator[None]:
    """All policies of a day are replayed in here: what others left goes, and which config it was is noted."""
    for table in (name for name, keys in PARTITIONS.items() if "policy" in keys):
        for folder in _note(settings, day, table).parent.glob("policy=*"):
            if folder.name.removeprefix("policy=") not in settings.config.replay.policies:
                shutil.rmtree(folder)
    note = _note(settings, day)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("unfinished")
    yield
    note.write_text(_fingerprint(settings))


def require_same_config(settings: Settings, day: date) -> None:
    """Refuse to set one policy beside others that were planned and replayed under another config."""
    note = _note(settings, day)
    if note.is_file() and note.read_text() != _fingerprint(settings):
        raise ConfigError(
            f"The results of {day} are not of {settings.config.file.name} as it is now: it or the catalogue "
            f"has changed, or the night did not end. Make the day again: fleetcast nightly --date {day}"
        )


def _note(settings: Settings, day: date, table: str = "outcomes") -> Path:
    return settings.lake.path(table, trace=settings.trace, day=day).parent.parent / "made_from"


def _fingerprint(settings: Settings) -> str:
    """Of all that a plan and a replay of the day's requests depend on, whichever policies are named."""
    config = settings.config
    replay = dataclasses.replace(config.replay, policies=())
    parts = (settings.catalogue, config.trace.seed, config.fleet, config.forecast, config.plan, replay)
    return hashlib.sha256(repr((*parts, config.policies, config.calendar)).encode()).hexdigest()
