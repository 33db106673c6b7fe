"""Write the results of a replay, by day and unit: outcomes of requests, legs, and fleet hours."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.replays.fleet_hours import fleet_hours_table
from fleetcast.assets.replays.outcomes import legs_table, outcomes_table
from fleetcast.assets.replays.replay_units import WHOLE_UNIT, ReplayUnit
from fleetcast.assets.replays.replay_workloads import NO_SHADOWS, ReplayWorkload
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.trace_rows import select_requests
from fleetcast.models.world.calendar import DAY_S
from fleetcast.models.world.mechanisms import Ending

OUTCOME_TIME_FIELDS = (
    "first_token_s",
    "finish_s",
    "dispatched_s",
    "admitted_s",
    "sent_s",
    "came_s",
    "joined_s",
)


def write_outcome(
    settings: RunSettings,
    day: date,
    policy: str,
    workload: ReplayWorkload,
    setting: tuple[FleetArrays, Rules],
    outcome: Outcome,
    unit: ReplayUnit = WHOLE_UNIT,
) -> None:
    """Write a policy's outcomes, its legs where requests can have several, and its fleet hours."""
    with open_outcome_writer(settings, day, policy, setting, unit) as (append, write_fleet_hours):
        append(workload, outcome)
        write_fleet_hours(outcome)


@contextmanager
def open_outcome_writer(
    settings: RunSettings, day: date, policy: str, setting: tuple[FleetArrays, Rules], unit: ReplayUnit
) -> Iterator[tuple[Callable[[ReplayWorkload, Outcome], None], Callable[[Outcome], None]]]:
    """Yield a function that appends ended requests, and one that writes the fleet hours, once.

    The outcomes appear in the lake at the end of the block, unless it raises.
    """
    fleet, _ = setting
    where: dict[str, Any] = {"trace": settings.trace, "day": day, "policy": policy, "file": unit.file}
    with ExitStack() as stack:
        outcomes = stack.enter_context(settings.lake.writing("outcomes", made_from=unit.made_from, **where))
        legs = stack.enter_context(settings.lake.writing("legs", **where)) if fleet.has_transfers else None

        def append(workload: ReplayWorkload, outcome: Outcome) -> None:
            workload, outcome = drop_shadow_requests(workload, outcome)
            outcomes(outcomes_table(settings, workload, setting, outcome))
            if legs is not None:
                legs(legs_table(settings, workload, setting, outcome))

        def write_fleet_hours(outcome: Outcome) -> None:
            hours = fleet_hours_table(settings, day, fleet, outcome)
            if unit.llms:
                hours = hours.filter(pc.is_in(hours["llm"], pa.array(unit.llms)))
            settings.lake.write("fleet_hours", hours, made_from=unit.made_from, **where)

        yield append, write_fleet_hours


def drop_shadow_requests(workload: ReplayWorkload, outcome: Outcome) -> tuple[ReplayWorkload, Outcome]:
    """Return the rows without the shadow requests, which no user waits for, and their outcomes."""
    if not workload.is_shadow.any():
        return workload, outcome
    rows = np.flatnonzero(~workload.is_shadow)
    columns = {name: getattr(outcome, name)[rows] for name in per_row_fields(outcome)}
    trace, answerer = select_requests(workload.trace, rows), workload.answerer[rows]
    workload = workload._replace(trace=trace, answerer=answerer, is_shadow=NO_SHADOWS)
    return workload, outcome._replace(**columns)


def outcomes_by_day(outcomes: Iterable[Outcome], sizes: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
    """Yield each day's number and outcomes, on the day's own clock, from the outcomes after each day.

    `sizes` are the rows of each day. A day is yielded once all its requests have ended, which can be after
    its midnight, so memory has two or three days at a time.
    """
    firsts = np.cumsum(sizes) - sizes
    waiting: dict[int, Outcome] = {}
    for at, outcome in enumerate(outcomes):
        names, is_new = per_row_fields(outcome), outcome.row >= firsts[at]
        for day, earlier in waiting.items():
            is_of_day = (outcome.row >= firsts[day]) & (outcome.row < firsts[day + 1])
            rows = outcome.row[is_of_day] - firsts[day]
            for name in names:
                getattr(earlier, name)[rows] = getattr(outcome, name)[is_of_day]
        waiting[at] = outcome._replace(**{name: getattr(outcome, name)[is_new] for name in names})
        for day in list(waiting):
            if at == len(sizes) - 1 or not (waiting[day].status == Ending.QUEUED).any():
                ended = waiting.pop(day)
                times = {
                    name: getattr(ended, name) - day * DAY_S for name in names if name in OUTCOME_TIME_FIELDS
                }
                yield day, ended._replace(**times, row=ended.row - firsts[day])


def per_row_fields(outcome: Outcome) -> list[str]:
    """Return the names of the outcome's columns that have an entry for each row."""
    return [
        name
        for name, column in outcome._asdict().items()
        if isinstance(column, np.ndarray) and column.shape == outcome.row.shape
    ]
