"""Replay a day whose requests do not fit in memory: read, replay and write it hour by hour.

Memory has the requests of one hour and those that have not ended. The results equal those of a day in one
piece, to the last bit; the rows of `outcomes` are in the order of the hours in which requests ended.
"""

from datetime import date
from functools import partial

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

BYTES_PER_REQUEST = 700  # memory of a request while a policy is replayed: arrays, outcomes and tables
MEMORY_SHARE = 0.5  # share of the usable memory for the policies that are replayed in parallel


def is_replayed_whole(settings: RunSettings, policy: str, requests: int) -> bool:
    """Return whether a policy's day is replayed in one piece: it is small enough, or cannot be split.

    A day cannot be split where requests have several stages, where prompt blocks have numbers by day, or
    where a closed loop plans during the replay.
    """
    must = has_legs(settings, policy) or settings.config.fleet.prefix == "blocks"
    room = MEMORY_SHARE * usable_memory_bytes() / usable_cores() / BYTES_PER_REQUEST
    return must or settings.config.rules[policy].is_closed or requests <= room


def replay_by_hour(
    settings: RunSettings,
    day: date,
    policy: str,
    session: Session,
    schedule: Schedule,
    step: Step,
    unit: ReplayUnit,
) -> None:
    """Replay a policy's day on a new session, and write its outcomes."""
    ended, usage = 0, list[FleetUsage]()
    open_requests: pa.Table | None = None
    with open_outcome_writer(settings, day, policy, (session.fleet, session.rules), unit) as (append, close):
        for hour in range(HOURS_OF_DAY):
            new = read_workload(settings, day, unit.llms, (hour, hour + 1))
            requests = (
                new.requests if open_requests is None else pa.concat_tables([open_requests, new.requests])
            )
            session.append_trace(new.trace)
            count = partial(lambda before, requests: step(before + requests), ended)
            usage.append(session.play(schedule.of_hours(hour, hour + 1), (hour + 1) * HOUR_S, count))
            if hour == HOURS_OF_DAY - 1:
                session.finish(DAY_S + TAIL_PERIODS * HOUR_S)
            outcome = session.outcome(*usage[-1])
            is_ended = (outcome.status != Ending.QUEUED) | (hour == HOURS_OF_DAY - 1)
            rows = np.flatnonzero(is_ended)
            ended += rows.size
            columns = {name: getattr(outcome, name)[rows] for name in per_row_fields(outcome)}
            workload = ReplayWorkload(requests.take(pa.array(rows)), select_requests(session.trace, rows))
            append(workload, outcome._replace(**columns))
            open_requests = requests.filter(pa.array(~is_ended))
        day_usage = FleetUsage(*(np.concatenate(columns) for columns in zip(*usage, strict=True)))
        close(outcome._replace(**day_usage._asdict()))
