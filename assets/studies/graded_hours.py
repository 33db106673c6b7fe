"""The hours in which a plan is graded: those that the plan has and in which any workload has a sample.

An hour without a sample of any workload is one in which the fleet that ran is unknown. A workload or region
without a sample in another hour had no instance there.
"""

from collections.abc import Collection
from datetime import date
from itertools import groupby

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.replays.replay_workloads import ReplayWorkload, build_trace_arrays
from fleetcast.models.world.calendar import HOUR_S

ADVICE = "select * from advice where trace = $trace and day = $day and policy = $policy"
REGIONS_WITHOUT_INSTANCES = """
select served_region, sum(advised_instances * gpus_per_instance) as gpu_hours
from graded_decisions where trace = $trace and day = $day and policy = $policy
group by served_region having max(ran_instances) = 0 and gpu_hours > 0 order by served_region
"""


def read_planned_instances(settings: RunSettings, day: date, policy: str) -> pd.DataFrame:
    """Return the rows of the mart advice of a day and policy."""
    return settings.lake.sql(ADVICE, trace=settings.trace, day=day, policy=policy).to_pandas()


def hours_of_rows(rows: pd.DataFrame) -> set[int]:
    """Return the hours of a day that rows have, 0 to 23."""
    return set(rows["hour_start"].dt.hour.tolist())


def keep_requests_of_hours(
    settings: RunSettings, day: date, workload: ReplayWorkload, hours: Collection[int]
) -> ReplayWorkload:
    """Return the requests that arrive in some hours of the day; all of them for all hours."""
    if len(hours) == HOURS_OF_DAY:
        return workload
    is_kept = np.isin(workload.trace.arrival_s // HOUR_S, sorted(hours))
    table = workload.requests.filter(pa.array(is_kept))
    trace = build_trace_arrays(settings, day, table)
    return workload._replace(requests=table, trace=trace._replace(level=workload.trace.level[is_kept]))


def describe_graded_hours(settings: RunSettings, day: date, policy: str) -> list[str]:
    """Return a line if not the whole day is graded, and one for regions where no instance ran; else none."""
    ran = hours_of_rows(settings.day_rows("ran_fleets", day).to_pandas())
    advised = hours_of_rows(read_planned_instances(settings, day, policy))
    every, graded, lines = set(range(HOURS_OF_DAY)), ran & advised, list[str]()
    if graded != every:
        line = f"Graded are {len(graded)} of {HOURS_OF_DAY} hours of {day}, {name_hours(graded)} UTC."
        if advised != every:
            line += f" The plan of {policy} lacks {name_hours(every - advised)}."
        if ran != every:
            line += f" The import of what ran lacks {name_hours(every - ran)}."
        lines.append(line)
    of_day = {"trace": settings.trace, "day": day, "policy": policy}
    if absent := settings.lake.sql(REGIONS_WITHOUT_INSTANCES, **of_day).to_pylist():
        names = ", ".join(row["served_region"] for row in absent)
        gpu_hours = sum(row["gpu_hours"] for row in absent)
        lines.append(
            f"The import of what ran has no instance in {names}, where the plan has {gpu_hours:,.0f} "
            "GPU-hours: it counts as 0 there. If instances ran, import them: "
            f"{settings.command('plan ran FILE')}"
        )
    return lines


def name_hours(hours: Collection[int]) -> str:
    """Return hours of a day in words: 00:00 to 02:00, 15:00 to 24:00."""
    runs = groupby(enumerate(sorted(hours)), key=lambda pair: pair[1] - pair[0])
    spans = [[hour for _, hour in run] for _, run in runs]
    return ", ".join(f"{span[0]:02d}:00 to {span[-1] + 1:02d}:00" for span in spans)
