"""Replays of a day: every policy on the same requests, from the same fleet."""

from collections.abc import Iterator, Sequence
from datetime import date
from functools import cache, partial
from threading import Event, Lock

import numpy as np

from fleetcast.assets.lake.lake_preconditions import require_day
from fleetcast.assets.lake.settings import Progress, RunSettings, Step, run_parallel
from fleetcast.assets.plans.nightly_quality import apply_quality_plan
from fleetcast.assets.replays.closed_loop import replay_closed_loop
from fleetcast.assets.replays.hourly_replay import is_replayed_whole, replay_by_hour
from fleetcast.assets.replays.outcome_writer import outcomes_by_day, write_outcome
from fleetcast.assets.replays.policy_inputs import (
    fleet_and_rules,
    planned_read_capacity,
    policy_schedules,
    reactive_capacity_share,
    with_measured_capacity,
)
from fleetcast.assets.replays.quarter_hour_peaks import WatchedSession
from fleetcast.assets.replays.replay_units import WHOLE_UNIT, ReplayUnit
from fleetcast.assets.replays.replay_workloads import (
    count_requests,
    has_legs,
    make_workload_reader,
    shift_to_one_clock,
)
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.replay.kernel_inputs import FleetArrays
from fleetcast.models.replay.run import TAIL_PERIODS, Session
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.world.calendar import DAY_S, HOUR_S
from fleetcast.models.world.mechanisms import Ending
from fleetcast.models.world.toml_dataclasses import require_known


def replay_day(
    settings: RunSettings,
    day: date,
    policies: Sequence[str],
    progress: Progress,
    largest: dict[str, Ints] | None = None,
) -> int:
    """Replay the day under each policy, two at a time, and write what came of it; the number of outcomes.

    `largest` is given, by policy, what its endpoints held at most in each quarter of an hour (quarters.py).
    """
    return replay_days(settings, [day], policies, progress, largest)


def replay_days(
    settings: RunSettings,
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
    return replay_unit_days(settings, days, WHOLE_UNIT._replace(policies=tuple(policies)), progress, largest)


def replay_unit_days(
    settings: RunSettings,
    days: Sequence[date],
    unit: ReplayUnit,
    progress: Progress,
    largest: dict[str, Ints] | None = None,
) -> int:
    """As replay_through, for the policies of a unit and its llms."""
    for day in days:
        require_day(settings.lake, "plans", settings.trace, day)
    run = ReplayRun(settings, days, unit)
    with progress.bar(f"replay {day_range_text(days)}", run.total) as done:
        ended = EndedRequestCounter(done)

        def one(policy: str) -> None:
            session = run.play(policy, Session if largest is None else WatchedSession, ended.step_of(policy))
            if largest is not None and isinstance(session, WatchedSession):
                largest[policy] = session.largest()

        run_parallel(one, unit.policies, ended.stopped.set)  # what has begun stops at its next step
    return run.total


class EndedRequestCounter:
    """Counts the requests that have ended under policies that play side by side; `stopped` ends them all."""

    def __init__(self, done: Step) -> None:
        self.done, self.lock, self.stopped = done, Lock(), Event()
        self.ended: dict[str, int] = {}

    def step_of(self, policy: str) -> Step:
        """What a policy tells how many of its requests have ended."""

        def step(requests: int) -> None:
            if self.stopped.is_set():
                raise KeyboardInterrupt
            with self.lock:
                self.ended[policy] = requests
                self.done(sum(self.ended.values()))

        return step


class ReplayRun:
    """Days on end under the policies of a unit, which share what is read of each day."""

    def __init__(self, settings: RunSettings, days: Sequence[date], unit: ReplayUnit) -> None:
        self.settings, self.days, self.unit = settings, days, unit
        self.workload = make_workload_reader(settings, unit.llms, unit.made_from)
        self.day_schedules = [policy_schedules(settings, day, unit.policies) for day in days]
        self.sizes = {policy: [self._size(day, policy) for day in days] for policy in unit.policies}
        self.total = sum(map(sum, self.sizes.values()))
        self._read = cache(self._sustained)

    def _size(self, day: date, policy: str) -> int:
        if has_legs(self.settings, policy):
            return self.workload(day, policy).trace.arrival_s.size  # with all legs
        return count_requests(self.settings, day, self.unit.llms)

    def _sustained(self, day: date, policy: str | None) -> Floats:
        if policy is None:
            return planned_read_capacity(self.settings, day)
        return planned_read_capacity(apply_quality_plan(self.settings, day, policy), day, policy)

    def play(self, policy: str, watched: type[Session], step: Step) -> Session:
        """Play a policy on all days, and write what came of it."""
        settings, days = self.settings, self.days
        own = [apply_quality_plan(settings, day, policy) for day in days]
        answered_by = policy if settings.config.rules[policy].answers else None
        fleet, rules = fleet_and_rules(own[0], policy, len(days))
        fleets = [
            with_measured_capacity(
                of.under(policy),
                fleet,
                self._read(day, answered_by) * reactive_capacity_share(settings.config, policy),
            )
            for of, day in zip(own, days, strict=True)
        ]
        session = watched(fleet, rules, np.asarray(self.day_schedules[0][policy].start))
        if len(days) == 1 and not is_replayed_whole(settings, policy, self.sizes[policy][0]):
            session.fleet = fleets[0]
            replay_by_hour(settings, days[0], policy, session, self.day_schedules[0][policy], step, self.unit)
        else:
            for at, outcome in outcomes_by_day(
                self._played(policy, session, fleets, step), self.sizes[policy]
            ):
                workload = self.workload(days[at], policy)
                write_outcome(settings, days[at], policy, workload, (fleet, rules), outcome, self.unit)
        step(sum(self.sizes[policy]))
        return session

    def _played(
        self, policy: str, session: Session, fleets: Sequence[FleetArrays], step: Step
    ) -> Iterator[Outcome]:
        """What each day came to, of all requests that had not ended before it."""
        days, sizes, before = self.days, self.sizes[policy], 0
        for at, trace in enumerate(shift_to_one_clock(self.workload(day, policy) for day in days)):
            session.fleet = fleets[at]
            session.append_trace(trace)
            count = partial(lambda before, requests: step(before + requests), before)
            if self.settings.config.rules[policy].is_closed:
                spent = replay_closed_loop(self.settings, days[at], policy, session, count)
            else:
                spent = session.play(self.day_schedules[at][policy], (at + 1) * DAY_S, count)
            if at == len(days) - 1:
                session.finish(len(days) * DAY_S + TAIL_PERIODS * HOUR_S)
            outcome = session.outcome(*spent)
            before = sum(sizes[: at + 1]) - int(np.count_nonzero(outcome.status == Ending.QUEUED))
            yield outcome


def day_range_text(days: Sequence[date]) -> str:
    """The days in words."""
    return f"{days[0]}" if len(days) == 1 else f"{days[0]} to {days[-1]}"
