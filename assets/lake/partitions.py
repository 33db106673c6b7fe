"""One partition a day; a forecast reads the days before it as well.

Any day can be run. The pages of the UI show those of the configured traces and of the lake, and from
yesterday on every day that comes, so that a schedule always finds its own.
"""

import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg

from fleetcast.assets.lake.environment import LOCATION, read_process_config
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.calendar import FIRST_DAY
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import CONFIG_DIR, load_config
from fleetcast.models.world.toml_dataclasses import ConfigError

# `allow_nonexistent_upstream_partitions` is beta; the first days of the calendar have less history.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
# The history is one run, later stages are one a day: a job of both goes day by day, as it should.
warnings.filterwarnings("ignore", message=".*varying BackfillPolicies")

HISTORY_DAYS = 14  # as the lineage draws it; what a run reads is [forecast] history_days of its config
FEW_DAYS_VARIABLE = "FLEETCAST_FEW_DAYS"  # environment variable that `fleetcast ui` sets for the pages


def days_of_traces(lake: Lake, configs: Path = CONFIG_DIR) -> set[date]:
    """The days of the traces that a config of the folder names, and those of which the lake has requests."""
    catalogue = load_catalogue()
    days = {date.fromisoformat(file.parent.name.removeprefix("day=")) for file in lake.files("requests")}
    for path in configs.glob("*.toml"):
        with suppress(ConfigError):  # told where it is used
            trace = load_config(path.stem, catalogue, configs).trace
            days |= {trace.first_day + timedelta(days=n) for n in range(trace.days)}
    return days


def partitions_of_days(days: Iterable[date], today: date) -> dg.DailyPartitionsDefinition:
    """These days, and every one from the day before `today` on."""
    shown = {day for day in days if day < today} | {today - timedelta(days=1)}
    first = min(shown)
    between = (first + timedelta(days=n) for n in range((today - first).days))
    others = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in between if day not in shown]
    return dg.DailyPartitionsDefinition(start_date=first.isoformat(), exclusions=others or None)


def process_partitions() -> dg.DailyPartitionsDefinition:
    """The days of this process: those of the one trace of a location, else of any trace."""
    first, few = FIRST_DAY, bool(os.environ.get(FEW_DAYS_VARIABLE))
    if LOCATION:
        config, text = read_process_config()
        trace = load_config(config, load_catalogue(), text=text).trace
        first, own = trace.first_day, {trace.first_day + timedelta(days=n) for n in range(trace.days)}
        shown = own | {day for day in Lake().days("requests", trace.name) if day >= first} if few else own
    elif few:
        shown = days_of_traces(Lake())
    if few:
        return partitions_of_days(shown, datetime.now(UTC).date())
    return dg.DailyPartitionsDefinition(start_date=first.isoformat())


DAY_PARTITIONS = process_partitions()
ONE_RUN_FOR_ALL_DAYS = (
    dg.BackfillPolicy.single_run()
)  # days in a row are one run: each would cost half a second
HISTORY_MAPPING = dg.TimeWindowPartitionMapping(
    start_offset=-HISTORY_DAYS, end_offset=0, allow_nonexistent_upstream_partitions=True
)
DAY_BEFORE_MAPPING = dg.TimeWindowPartitionMapping(
    start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True
)


def require_in_calendar(day: date) -> None:
    """Refuse a day that no partition stands for."""
    if not DAY_PARTITIONS.has_partition_key(day.isoformat()):
        raise ValueError(
            f"{day} is not in the calendar, whose days go from {FIRST_DAY} to yesterday (UTC). "
            "Choose another --date."
        )
