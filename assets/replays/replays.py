"""Replays of a day: every policy on the same requests, from the same fleet."""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import date
from functools import cache, lru_cache, partial
from threading import Event, Lock
from typing import Any

import numpy as np

from assets.lake.kept import content_of, say_kept
from assets.lake.lookups import require_day
from assets.lake.settings import Progress, Settings, side_by_side
from assets.lake.store import Place
from assets.plans.quality_nights import as_planned
from assets.replays.by_hour import fits, play_by_hour
from assets.replays.closed_loop import play_closed
from assets.replays.drives import (
    DAY_S,
    HOUR_S,
    day_drives,
    measured,
    read_of_plans,
    setting,
)
from assets.replays.outcomes import Piece, by_day, write_outcome
from assets.replays.quarters import WatchedSession
from assets.replays.units import Unit, forget_others, units_of
from assets.replays.workloads import Workload, has_legs, in_legs, read_workload
from models.replay.run import QUEUED, TAIL_PERIODS, Outcome, Session
from models.replay.state import Floats, Ints, Trace
from models.world.reading import ConfigError, require_known

KEPT_DAYS = 3  # of requests in memory, where days are played in one go
OF_UNITS: dict[tuple[Any, ...], Workload] = {}  # what the unit that this process played last has read


def replay_unit(settings: Settings, day: date, unit: Unit, progress: Progress) -> None:
    """Replay what of a unit has not been replayed yet: as it is, from what there is to replay it from."""
    if left := _left(settings, day, unit, content_of(settings, "replays", day)):
        replay_pieces(settings, [day], left, progress)
    else:
        say_kept("replays", day, progress)


def _left(settings: Settings, day: date, unit: Unit, content: str) -> list[Piece]:
    """The pieces of a unit that are not there, or were made from something else than `content`."""
    pieces = [Piece(policy, unit.llms, unit.file, content) for policy in unit.policies]
    return [
        piece
        for piece in pieces
        if not all(
            settings.lake.is_made_from(
                table, content, file=piece.file, policy=piece.policy, trace=settings.trace, day=day
            )
            for table in ("outcomes", "fleet_hours")
        )
    ]


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
    return replay_through(settings, [day], policies, progress, largest)


def replay_through(
    settings: Settings,
    days: Sequence[date],
    policies: Sequence[str],
    progress: Progress,
    largest: dict[str, Ints] | None = None,
) -> int:
    """As replay_day, days on end in one go: fleet and queues of midnight are those of the next day's begin.

    A plan of a day is still made from the fleet that all plans start from; the replay follows it from the
    fleet that it has then.
    """
    for policy in policies:
        require_known(policy, settings.config.rules, "policy", "replay")
    return replay_pieces(settings, days, [Piece(policy) for policy in policies], progress, largest)


def replay_pieces(
    settings: Settings,
    days: Sequence[date],
    pieces: Sequence[Piece],
    progress: Progress,
    largest: dict[str, Ints] | None = None,
) -> int:
    """As replay_through, for a policy each, and the same llms of all."""
    for day in days:
        require_day(settings.lake, "plans", settings.trace, day)
    policies, llms = [piece.policy for piece in pieces], pieces[0].llms
    workload = remembered(settings, llms, pieces[0].made_from)
    drives = [day_drives(settings, day, policies) for day in days]
    policy_of = settings.config.rules

    @cache
    def read(day: date, policy: str | None) -> Floats:
        if policy is None:
            return read_of_plans(settings, day)
        return read_of_plans(as_planned(settings, day, policy), day, policy)

    sizes = {
        policy: [
            workload(day, policy).trace.arrival_s.size  # with all legs
            if has_legs(settings, policy)
            else requests_in(settings, day, llms)
            for day in days
        ]
        for policy in policies
    }
    total = sum(map(sum, sizes.values()))
    watched = Session if largest is None else WatchedSession
    ended, lock, stopped = dict.fromkeys(policies, 0), Lock(), Event()
    with progress.bar(f"replay {spoken(days)}", total) as done:

        def one(piece: Piece) -> None:
            policy = piece.policy

            def step(requests: int) -> None:
                if stopped.is_set():
                    raise KeyboardInterrupt
                with lock:
                    ended[policy] = requests
                    done(sum(ended.values()))

            own = [as_planned(settings, day, policy) for day in days]
            sustained = [read(day, policy if policy_of[policy].answers else None) for day in days]
            fleet, rules = setting(own[0], policy, len(days))
            session = watched(fleet, rules, np.asarray(drives[0][policy].start))
            if len(days) == 1 and not fits(settings, policy, sizes[policy][0]):
                session.fleet = measured(settings.under(policy), fleet, sustained[0])
                play_by_hour(settings, days[0], piece, session, drives[0][policy], step)
                return step(sizes[policy][0])

            def played() -> Iterator[Outcome]:
                before = 0
                for at, trace in enumerate(on_one_clock(workload(day, policy) for day in days)):
                    session.fleet = measured(own[at].under(policy), fleet, sustained[at])
                    session.feed(trace)
                    count = partial(lambda before, requests: step(before + requests), before)
                    if policy_of[policy].is_closed:
                        spent = play_closed(settings, days[at], policy, session, count)
                    else:
                        spent = session.play(drives[at][policy], (at + 1) * DAY_S, count)
                    if at == len(days) - 1:
                        session.finish(len(days) * DAY_S + TAIL_PERIODS * HOUR_S)
                    outcome = session.outcome(*spent)
                    before = sum(sizes[policy][: at + 1]) - int(np.count_nonzero(outcome.status == QUEUED))
                    yield outcome

            for at, outcome in by_day(played(), sizes[policy]):
                write_outcome(settings, days[at], piece, workload(days[at], policy), (fleet, rules), outcome)
            if largest is not None and isinstance(session, WatchedSession):
                largest[policy] = session.largest()
            return step(sum(sizes[policy]))

        side_by_side(one, pieces, stopped.set)  # what has begun stops at its next step
    return total


def requests_in(settings: Settings, day: date, llms: Collection[str]) -> int:
    """The requests of a day, or those for some llms."""
    if not llms:
        return settings.lake.count("requests", trace=settings.trace, day=day)
    query = (
        "select count(*) as n from requests "
        "where trace = $trace and day = $day::date and list_contains($llms, llm)"
    )
    return int(settings.lake.sql(query, trace=settings.trace, day=day, llms=list(llms))["n"][0].as_py())


def remembered(
    settings: Settings, llms: Collection[str] = (), made_from: str = ""
) -> Callable[[date, str], Workload]:
    """The requests of a day, read once for the policies that play it side by side; a few days are kept.

    Also for the next unit that this process plays, where it is `made_from` the same. Policies that have a
    plan of who answers have legs of their own.
    """
    lock = Lock()
    rules = settings.config.rules
    kinds = 1 + sum(rules[name].answers is not None for name in settings.config.replay.policies)

    @lru_cache(KEPT_DAYS)
    def read(day: date) -> Workload:
        key = (made_from, day, *llms)
        if key not in OF_UNITS:
            found = read_workload(settings, day, llms)
            if not made_from:
                return found
            OF_UNITS.clear()
            OF_UNITS[key] = found
        return OF_UNITS[key]

    @lru_cache(KEPT_DAYS * kinds)
    def legs(day: date, policy: str | None) -> Workload:
        own = settings if policy is None else as_planned(settings, day, policy)
        return in_legs(own, day, read(day))

    def workload(day: date, policy: str) -> Workload:
        with lock:
            return legs(day, policy if rules[policy].answers else None)

    return workload


def spoken(days: Sequence[date]) -> str:
    """The days in words."""
    return f"{days[0]}" if len(days) == 1 else f"{days[0]} to {days[-1]}"


def on_one_clock(workloads: Iterable[Workload]) -> Iterator[Trace]:
    """The traces of days on end as one goes through them; blocks of prompts are not shared over midnight."""
    known = 0
    for at, workload in enumerate(workloads):
        trace = workload.trace
        yield trace._replace(arrival_s=trace.arrival_s + at * DAY_S, hashes=trace.hashes + known)
        known += int(trace.hashes.max(initial=-1)) + 1


def begin_units(settings: Settings, day: date) -> list[Unit]:
    """What the day's replays are cut into; what others left goes. They are unfinished from here on."""
    units = units_of(settings)
    forget_others(settings, day, units)
    note = _note(settings, day)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("unfinished")
    return units


def end_units(settings: Settings, day: date) -> None:
    """All units of a day have been replayed: note of which config.

    A run that Dagster resumes after a kill leaves out the units that had not begun: they are played here.
    """
    content = content_of(settings, "replays", day)
    for unit in units_of(settings):
        if left := _left(settings, day, unit, content):
            replay_pieces(settings, [day], left, Progress())
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
