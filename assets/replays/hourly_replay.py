"""A day whose requests do not fit in memory: read, played and written by the hour.

Memory holds the requests of an hour and those that have not ended. The numbers are those of a day in one
piece, to the last bit; the rows of `outcomes` come in the hour in which they ended.
"""

from datetime import date
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.process_resources import usable_cores, usable_memory_bytes
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings, Step
from fleetcast.assets.replays.outcome_writer import open_outcome_writer, per_row_fields
from fleetcast.assets.replays.replay_units import ReplayUnit
from fleetcast.assets.replays.replay_workloads import ReplayWorkload, has_legs, read_workload
from fleetcast.models.replay.run import TAIL_PERIODS, Schedule, Session
from fleetcast.models.replay.session.outcome import FleetUsage
from fleetcast.models.replay.session.trace_rows import select_requests
from fleetcast.models.world.calendar import DAY_S, HOUR_S
from fleetcast.models.world.mechanisms import Ending

BYTES_PER_REQUEST = 700  # of a policy under way: arrays, outcomes, and the tables that they become
MEMORY_SHARE = 0.5  # of what there is, for the policies that are played side by side


def is_replayed_whole(settings: RunSettings, policy: str, requests: int) -> bool:
    """Whether a policy's day is played in one piece: it is small enough, or it must.

    Chains of legs are told whole, blocks of prompts are known by a number of their day, and a plan in a
    closed loop is made as it goes.
    """
    must = has_legs(settings, policy) or settings.config.fleet.prefix == "blocks"
    room = MEMORY_SHARE * usable_memory_bytes() / usable_cores() / BYTES_PER_REQUEST
    return must or settings.config.rules[policy].is_closed or requests <= room


def replay_by_hour(
    settings: RunSettings,
    day: date,
    policy: str,
    session: Session,
    drive: Schedule,
    step: Step,
    unit: ReplayUnit,
) -> None:
    """Play a policy's day on a session that has played nothing yet, and write what came of it."""
    ended, spent = 0, list[FleetUsage]()
    there: pa.Table | None = None  # the requests that have not ended
    with open_outcome_writer(settings, day, policy, (session.fleet, session.rules), unit) as (append, close):
        for hour in range(HOURS_OF_DAY):
            fresh = read_workload(settings, day, unit.llms, (hour, hour + 1))
            there = pa.concat_tables([there, fresh.requests]) if there is not None else fresh.requests
            session.append_trace(fresh.trace)
            count = partial(lambda before, requests: step(before + requests), ended)
            spent.append(session.play(_schedule_of_hour(drive, hour), (hour + 1) * HOUR_S, count))
            if hour == HOURS_OF_DAY - 1:
                session.finish(DAY_S + TAIL_PERIODS * HOUR_S)
            outcome = session.outcome(*spent[-1])
            is_told = (outcome.status != Ending.QUEUED) | (hour == HOURS_OF_DAY - 1)
            told = np.flatnonzero(is_told)
            ended += told.size
            columns = {name: getattr(outcome, name)[told] for name in per_row_fields(outcome)}
            workload = ReplayWorkload(there.take(pa.array(told)), select_requests(session.trace, told))
            append(workload, outcome._replace(**columns))
            there = there.filter(pa.array(~is_told))
        whole = FleetUsage(*(np.concatenate(columns) for columns in zip(*spent, strict=True)))
        close(outcome._replace(**whole._asdict()))


def _schedule_of_hour(drive: Schedule, hour: int) -> Schedule:
    """The plan's rows of one hour."""
    rows = slice(hour * drive.rows_per_hour, (hour + 1) * drive.rows_per_hour)
    tables = {name: getattr(drive, name) for name in ("targets", "forecast_tokens_per_s", "go_on_below")}
    own: dict[str, Any] = {name: table[rows] for name, table in tables.items() if table is not None}
    return drive._replace(**own)
