"""One partition a day; a forecast reads the days before it as well."""

import warnings
from datetime import date

import dagster as dg

# `allow_nonexistent_upstream_partitions` is beta; the first days of the calendar have less history.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
# The history is one run, later stages are one a day: a job of both goes day by day, as it should.
warnings.filterwarnings("ignore", message=".*varying BackfillPolicies")

FIRST_DAY = "2020-01-01"  # as sql/staging/staged.sql: what lands can be run
HISTORY_DAYS = 14  # as the lineage draws it; what a run reads is [forecast] history_days of its config

DAYS = dg.DailyPartitionsDefinition(start_date=FIRST_DAY)
ALL_AT_ONCE = dg.BackfillPolicy.single_run()  # days in a row are one run: each would cost half a second
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
