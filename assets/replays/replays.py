"""Replay days: every policy on the same requests, from the same fleet."""

from collections.abc import Iterator, Sequence
from datetime import date
from functools import cache, partial
from threading import Event, Lock

import numpy as np

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
    """Replay the day under each policy, in parallel, write the results, and return the number of outcomes.

    `largest` receives, by policy, the largest number of instances of each endpoint in each quarter of an
    hour, shape (quarters, endpoints) (quarter_hour_peaks.py).
    """
    return replay_days(settings, [day], policies, progress, largest)


def replay_days(
    settings: RunSettings,
    days: Sequence[date],
    policies: Sequence[str],
    progress: Progress,
    largest: dict[str, Ints] | None = None,
) -> int:
    """As replay_day, for consecutive days: each day begins with the fleet and the queues of the day before.

    The plan of each day is still made from the fleet that all plans start from; the replay follows it from
    the fleet that it has at midnight. `largest` gets shape (quarters, endpoints) by policy. ConfigError for
    an unknown policy.
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
    """As replay_days, for the policies of a unit and its llms; `largest` gets shape (quarters, endpoints)
    each.
    """
    for day in days:
        settings.require_day("plans", day)
    run = ReplayRun(settings, days, unit)
    with progress.bar(f"replay {day_range_text(days)}", run.total) as done:
        counter = EndedRequestCounter(done)
        session_type = Session if largest is None else WatchedSession

        def replay_policy(policy: str) -> None:
            session = run.play(policy, session_type, counter.progress_step(policy))
            if largest is not None and isinstance(session, WatchedSession):
                largest[policy] = session.largest()

        run_parallel(replay_policy, unit.policies, counter.stopped.set)  # others stop at their next step
    return run.total


class EndedRequestCounter:
    """Counts the ended requests of policies that are replayed in parallel; `stopped` ends all of them."""

    def __init__(self, done: Step) -> None:
        self.done, self.lock, self.stopped = done, Lock(), Event()
        self.ended: dict[str, int] = {}

    def progress_step(self, policy: str) -> Step:
        """Return a function that takes the number of a policy's requests that have ended."""

        def step(requests: int) -> None:
            if self.stopped.is_set():
                raise KeyboardInterrupt
            with self.lock:
                self.ended[policy] = requests
                self.done(sum(self.ended.values()))

        return step


class ReplayRun:
    """The replay of consecutive days under the policies of a unit, which share the data of each day."""

    def __init__(self, settings: RunSettings, days: Sequence[date], unit: ReplayUnit) -> None:
        self.settings, self.days, self.unit = settings, days, unit
        self.workload = make_workload_reader(settings, unit.llms, unit.made_from)
        self.day_schedules = [policy_schedules(settings, day, unit.policies) for day in days]
        self.sizes = {policy: [self._size(day, policy) for day in days] for policy in unit.policies}
        self.total = sum(map(sum, self.sizes.values()))
        self._capacity = cache(partial(read_capacity, settings))  # a method would keep the run in memory

    def _size(self, day: date, policy: str) -> int:
        if has_legs(self.settings, policy):
            return self.workload(day, policy).trace.arrival_s.size  # rows of all stages
        return count_requests(self.settings, day, self.unit.llms)

    def play(self, policy: str, session_type: type[Session], step: Step) -> Session:
        """Replay a policy on all days, write the results, and return the session."""
        settings, days = self.settings, self.days
        routed = [apply_quality_plan(settings, day, policy) for day in days]
        routing = policy if settings.config.rules[policy].answers else None
        fleet, rules = fleet_and_rules(routed[0], policy, len(days))
        fleets = [
            with_measured_capacity(
                day_settings.under(policy),
                fleet,
                self._capacity(day, routing) * reactive_capacity_share(settings.config, policy),
            )
            for day_settings, day in zip(routed, days, strict=True)
        ]
        session = session_type(fleet, rules, np.asarray(self.day_schedules[0][policy].start))
        if len(days) == 1 and not is_replayed_whole(settings, policy, self.sizes[policy][0]):
            session.fleet = fleets[0]
            replay_by_hour(settings, days[0], policy, session, self.day_schedules[0][policy], step, self.unit)
        else:
            outcomes = self._replay_days(policy, session, fleets, step)
            for at, outcome in outcomes_by_day(outcomes, self.sizes[policy]):
                workload = self.workload(days[at], policy)
                write_outcome(settings, days[at], policy, workload, (fleet, rules), outcome, self.unit)
        step(sum(self.sizes[policy]))
        return session

    def _replay_days(
        self, policy: str, session: Session, fleets: Sequence[FleetArrays], step: Step
    ) -> Iterator[Outcome]:
        """Yield the outcomes after each day, of all requests that had not ended before it."""
        days, sizes, before = self.days, self.sizes[policy], 0
        for at, trace in enumerate(shift_to_one_clock(self.workload(day, policy) for day in days)):
            session.fleet = fleets[at]
            session.append_trace(trace)
            count = partial(lambda before, requests: step(before + requests), before)
            if self.settings.config.rules[policy].is_closed:
                usage = replay_closed_loop(self.settings, days[at], policy, session, count)
            else:
                usage = session.play(self.day_schedules[at][policy], (at + 1) * DAY_S, count)
            if at == len(days) - 1:
                session.finish(len(days) * DAY_S + TAIL_PERIODS * HOUR_S)
            outcome = session.outcome(*usage)
            before = sum(sizes[: at + 1]) - int(np.count_nonzero(outcome.status == Ending.QUEUED))
            yield outcome


def read_capacity(settings: RunSettings, day: date, policy: str | None) -> Floats:
    """Return the read capacity under a policy's routing, (services, regions, options) tokens/s."""
    if policy is None:
        return planned_read_capacity(settings, day)
    return planned_read_capacity(apply_quality_plan(settings, day, policy), day, policy)


def day_range_text(days: Sequence[date]) -> str:
    """Return the days as a text, the first and the last one."""
    return f"{days[0]}" if len(days) == 1 else f"{days[0]} to {days[-1]}"
