"""What of a replay is written, day by day and unit by unit: requests, legs, hours of the fleet."""

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
    """Write the requests of a policy, their legs where some have several, and fleet hours."""
    with open_outcome_writer(settings, day, policy, setting, unit) as (append, spent):
        append(workload, outcome)
        spent(outcome)


@contextmanager
def open_outcome_writer(
    settings: RunSettings, day: date, policy: str, setting: tuple[FleetArrays, Rules], unit: ReplayUnit
) -> Iterator[tuple[Callable[[ReplayWorkload, Outcome], None], Callable[[Outcome], None]]]:
    """What takes requests that have ended, some at a time, and what takes the hours of the fleet, once.

    The outcomes are there last, when the block has ended well.
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

        def spent(outcome: Outcome) -> None:
            hours = fleet_hours_table(settings, day, fleet, outcome)
            if unit.llms:
                hours = hours.filter(pc.is_in(hours["llm"], pa.array(unit.llms)))
            settings.lake.write("fleet_hours", hours, made_from=unit.made_from, **where)

        yield append, spent


def drop_shadow_requests(workload: ReplayWorkload, outcome: Outcome) -> tuple[ReplayWorkload, Outcome]:
    """The rows that somebody waits for, without shadows, and what became of them."""
    if not workload.is_shadow.any():
        return workload, outcome
    rows = np.flatnonzero(~workload.is_shadow)
    own = {name: getattr(outcome, name)[rows] for name in per_row_fields(outcome)}
    trace, answerer = select_requests(workload.trace, rows), workload.answerer[rows]
    return workload._replace(trace=trace, answerer=answerer, is_shadow=NO_SHADOWS), outcome._replace(**own)


def outcomes_by_day(outcomes: Iterable[Outcome], sizes: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
    """The outcomes of a session that was fed day after day, so many rows each: each day by its number.

    Times are on the day's own clock then. What had not ended at midnight is told as it ended later, so a day
    comes when nothing of it is open any more: memory holds two or three of many.
    """
    firsts = np.cumsum(sizes) - sizes
    waiting: dict[int, Outcome] = {}
    for at, outcome in enumerate(outcomes):
        names, own = per_row_fields(outcome), outcome.row >= firsts[at]
        for day, told in waiting.items():
            here = (outcome.row >= firsts[day]) & (outcome.row < firsts[day + 1])
            rows = outcome.row[here] - firsts[day]
            for name in names:
                getattr(told, name)[rows] = getattr(outcome, name)[here]
        waiting[at] = outcome._replace(**{name: getattr(outcome, name)[own] for name in names})
        for day in list(waiting):
            if at == len(sizes) - 1 or not (waiting[day].status == Ending.QUEUED).any():
                told = waiting.pop(day)
                clock = {
                    name: getattr(told, name) - day * DAY_S for name in names if name in OUTCOME_TIME_FIELDS
                }
                yield day, told._replace(**clock, row=told.row - firsts[day])


def per_row_fields(outcome: Outcome) -> list[str]:
    """The columns that have an entry for each of its rows."""
    return [
        name
        for name, column in outcome._asdict().items()
        if isinstance(column, np.ndarray) and column.shape == outcome.row.shape
    ]
