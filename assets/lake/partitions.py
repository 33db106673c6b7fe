"""Daily partitions and the mappings between them.

Any day can be run. The pages of `fleetcast ui` show the days of the configured traces and of the lake, and
every day from yesterday on, so that a schedule always finds its day.
"""

import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg

from fleetcast.assets.lake.environment import LOCATION, read_process_config
from fleetcast.assets.lake.environment_variables import UI_VARIABLE
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.calendar import FIRST_DAY
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import CONFIG_DIR, load_config
from fleetcast.models.world.toml_dataclasses import ConfigError

# `allow_nonexistent_upstream_partitions` is beta; the first days of the calendar have less history.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
# A history is backfilled in one run, later stages in one run per day: a job with both goes day by day.
warnings.filterwarnings("ignore", message=".*varying BackfillPolicies")

HISTORY_DAYS = 14  # shown in the lineage; a run reads [forecast] history_days of its config


def days_of_traces(lake: Lake, configs: Path = CONFIG_DIR) -> set[date]:
    """Return the days of the traces in a folder's configs, and the days with requests in the lake."""
    catalogue = load_catalogue()
    days = {date.fromisoformat(lake.partition_of(file)["day"]) for file in lake.files("requests")}
    for path in configs.glob("*.toml"):
        with suppress(ConfigError):  # a run of that config raises it
            trace = load_config(path.stem, catalogue, configs).trace
            days |= {trace.first_day + timedelta(days=n) for n in range(trace.days)}
    return days


def partitions_of_days(days: Iterable[date], today: date) -> dg.DailyPartitionsDefinition:
    """Return partitions of these days, and of every day from the day before `today` on."""
    shown = {day for day in days if day < today} | {today - timedelta(days=1)}
    first = min(shown)
    between = (first + timedelta(days=n) for n in range((today - first).days))
    hidden = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in between if day not in shown]
    return dg.DailyPartitionsDefinition(start_date=first.isoformat(), exclusions=hidden or None)


def process_partitions() -> dg.DailyPartitionsDefinition:
    """Return the partitions of this process: the days of its location's trace, else of all traces."""
    first, is_few = FIRST_DAY, bool(os.environ.get(UI_VARIABLE))
    shown = set[date]()
    if LOCATION:
        config, text = read_process_config()
        trace = load_config(config, load_catalogue(), text=text).trace
        first = trace.first_day
        shown = {first + timedelta(days=n) for n in range(trace.days)}
        if is_few:
            shown |= {day for day in Lake().days("requests", trace.name) if day >= first}
    elif is_few:
        shown = days_of_traces(Lake())
    if is_few:
        return partitions_of_days(shown, datetime.now(UTC).date())
    return dg.DailyPartitionsDefinition(start_date=first.isoformat())


DAY_PARTITIONS = process_partitions()
# Consecutive days are one run: a run costs half a second.
ONE_RUN_FOR_ALL_DAYS = dg.BackfillPolicy.single_run()
HISTORY_MAPPING = dg.TimeWindowPartitionMapping(
    start_offset=-HISTORY_DAYS, end_offset=0, allow_nonexistent_upstream_partitions=True
)
DAY_BEFORE_MAPPING = dg.TimeWindowPartitionMapping(
    start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True
)


def require_in_calendar(day: date) -> None:
    """Raise a ValueError for a day without a partition."""
    if not DAY_PARTITIONS.has_partition_key(day.isoformat()):
        raise ValueError(
            f"{day} is not in the calendar, whose days go from {FIRST_DAY} to yesterday (UTC). "
            "Choose another --date."
        )
