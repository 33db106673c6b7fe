"""One partition a day; a forecast reads the days before it as well."""

import warnings
from datetime import date

import dagster as dg

from models.world.calendar import FIRST_DAY

# `allow_nonexistent_upstream_partitions` is beta; the first days of the calendar have less history.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

HISTORY_DAYS = 14  # as the lineage draws it; what a run reads is [forecast] history_days of its config

DAYS = dg.DailyPartitionsDefinition(start_date=FIRST_DAY.isoformat())
WITH_HISTORY = dg.TimeWindowPartitionMapping(
    start_offset=-HISTORY_DAYS, end_offset=0, allow_nonexistent_upstream_partitions=True
)
DAY_BEFORE = dg.TimeWindowPartitionMapping(
    start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True
)


def require_in_calendar(day: date) -> None:
    """Refuse a day that no partition stands for."""
    if not DAYS.has_partition_key(day.isoformat()):
        raise ValueError(
            f"{day} is not in the calendar, whose days go from {FIRST_DAY} to yesterday (UTC). "
            "Choose another --date."
        )
