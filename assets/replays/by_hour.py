"""A day whose requests do not fit in memory: read, played and written by the hour.

Memory holds the requests of an hour and those that have not ended. The numbers are those of a day in one
piece, to the last bit; the rows of `outcomes` come in the hour in which they ended.
"""

from datetime import date
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.machine import cores, memory_bytes
from fleetcast.assets.lake.settings import HOURS, Settings, Step
from fleetcast.assets.replays.units import Unit
from fleetcast.assets.replays.workloads import Workload, has_legs, read_workload
from fleetcast.assets.replays.writing import per_row, written
from fleetcast.models.replay.run import TAIL_PERIODS, Drive, Session
from fleetcast.models.replay.session.outcome import Spent
from fleetcast.models.replay.session.requests import rows_of
from fleetcast.models.world.calendar import DAY_S, HOUR_S
from fleetcast.models.world.mechanisms import Ending

BYTES_PER_REQUEST = 700  # of a policy under way: arrays, outcomes, and the tables that they become
MEMORY_SHARE = 0.5  # of what there is, for the policies that are played side by side


def fits(settings: Settings, policy: str, requests: int) -> bool:
    """Whether a policy's day is played in one piece: it is small enough, or it must.

    Chains of legs are told whole, blocks of prompts are known by a number of their day, and a plan in a
    closed loop is made as it goes.
    """
    must = has_legs(settings, policy) or settings.config.fleet.prefix == "blocks"
    room = MEMORY_SHARE * memory_bytes() / cores() / BYTES_PER_REQUEST
    return must or settings.config.rules[policy].is_closed or requests <= room


def play_by_hour(
    settings: Settings, day: date, policy: str, session: Session, drive: Drive, step: Step, unit: Unit
) -> None:
    """Play a policy's day on a session that has played nothing yet, and write what came of it."""
    ended, spent = 0, list[Spent]()
    there: pa.Table | None = None  # the requests that have not ended
    with written(settings, day, policy, (session.fleet, session.rules), unit) as (append, close):
        for hour in range(HOURS):
            fresh = read_workload(settings, day, unit.llms, (hour, hour + 1))
            there = pa.concat_tables([there, fresh.requests]) if there is not None else fresh.requests
            session.feed(fresh.trace)
            count = partial(lambda before, requests: step(before + requests), ended)
            spent.append(session.play(_rows_of_hour(drive, hour), (hour + 1) * HOUR_S, count))
            if hour == HOURS - 1:
                session.finish(DAY_S + TAIL_PERIODS * HOUR_S)
            outcome = session.outcome(*spent[-1])
            is_told = (outcome.status != Ending.QUEUED) | (hour == HOURS - 1)
            told = np.flatnonzero(is_told)
            ended += told.size
            columns = {name: getattr(outcome, name)[told] for name in per_row(outcome)}
            workload = Workload(there.take(pa.array(told)), rows_of(session.trace, told))
            append(workload, outcome._replace(**columns))
            there = there.filter(pa.array(~is_told))
        whole = Spent(*(np.concatenate(columns) for columns in zip(*spent, strict=True)))
        close(outcome._replace(**whole._asdict()))


def _rows_of_hour(drive: Drive, hour: int) -> Drive:
    """The plan's rows of one hour."""
    rows = slice(hour * drive.rows_per_hour, (hour + 1) * drive.rows_per_hour)
    tables = {name: getattr(drive, name) for name in ("targets", "forecast_tokens_per_s", "go_on_below")}
    own: dict[str, Any] = {name: table[rows] for name, table in tables.items() if table is not None}
    return drive._replace(**own)
