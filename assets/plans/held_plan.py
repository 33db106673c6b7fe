"""Read what a cluster has to hold until the end of an exported day: the plan in force, and that day's."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from itertools import groupby, pairwise
from typing import Any

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.plan_export import WORKLOAD_KIND_COLUMNS, read_plan_rows
from fleetcast.models.aliases import Row

_DAY = timedelta(days=1)
MOST_DAYS = 5  # weekdays separate the days of a plan from those of next year


def read_held_plan(
    settings: RunSettings, day: date, policy: str, region: str | None, now: datetime
) -> list[Row]:
    """Return the plan from the beginning of today to the end of `day`, in order of workload and hour.

    Workloads without an instance in it and in the two days before, and when those begin, are left out. An
    hour without a plan gets one row with the highest count of its workload. ValueError for a day that is
    over, or more than four days away.
    """
    today = now.date()
    if not today <= day < today + timedelta(days=MOST_DAYS):
        raise ValueError(
            f"--date: got {day}, and it is {now:%Y-%m-%d %H:%M} UTC. Objects that act hold the plan from now "
            f"on until the end of --date: of today, or of one of the next {MOST_DAYS - 1} days. Take such a "
            "day, or --mode advisory."
        )
    rows = read_plan_rows(settings, day, policy, region)
    rows += [
        row
        for back in range((day - today).days + 2)
        for row in read_plan_rows(settings, day - (back + 1) * _DAY, policy, region, is_required=False)
    ]
    return hold_from(today, rows)


def hold_from(today: date, rows: Sequence[Row]) -> list[Row]:
    """Return the rows from a day on of the workloads that run in any of the rows, without gaps."""
    ordered = sorted(rows, key=lambda row: (*_workload(row), row["hour_start"]))
    held = []
    for _, group in groupby(drop_idle_workloads(ordered), key=_workload):
        held += fill_hours([row for row in group if row["day"] >= today])
    return held


def drop_idle_workloads(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, in order of workload, of workloads with an instance in any of them or before."""
    kept = []
    for _, group in groupby(rows, key=_workload):
        of_workload = list(group)
        if any(row["instances"] or row["instances_before"] for row in of_workload):
            kept += of_workload
    return kept


def fill_hours(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a workload, and the highest count at the beginning of each gap between them."""
    if len(rows) < 2:
        return list(rows)
    slot = min(later["hour_start"] - row["hour_start"] for row, later in pairwise(rows))
    safe = max(rows, key=lambda row: row["instances"])
    filled = [
        {**safe, "hour_start": row["hour_start"] + slot, "why": "no plan for these hours: the highest count"}
        for row, later in pairwise(rows)
        if later["hour_start"] - row["hour_start"] > slot
    ]
    return sorted([*rows, *filled], key=lambda row: row["hour_start"])


def _workload(row: Row) -> tuple[Any, ...]:
    return (row["region"], *(row[name] for name in WORKLOAD_KIND_COLUMNS))
