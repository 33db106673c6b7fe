"""Which bucket of the week a bucket behaves as (time zones, clock changes, holidays), and known events."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from models.world.reading import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FIRST_DAY, LAST_DAY = date(2020, 1, 1), date(2099, 12, 31)  # of any trace: as sql/staging/staged.sql
MINUTES_PER_DAY = 1440
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def require_in_years(first: date, days: int, where: str) -> None:
    """Refuse days, so many from the first on, of which some lie where no request can."""
    if not (first >= FIRST_DAY and days - 1 <= (LAST_DAY - first).days):
        raise ConfigError(
            f"{where}: got {days:,} day{'s' if days > 1 else ''} from {first} on, needed days "
            f"from {FIRST_DAY} to {LAST_DAY}."
        )


@dataclass(frozen=True)
class Holiday:
    """A day that behaves as another weekday; in all regions where none is named."""

    day: date
    name: str
    behaves_as: str = "sunday"
    regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Event:
    """What is known to multiply the demand for some time; of all llms and regions where none is named."""

    start: datetime  # UTC where it names no zone
    minutes: int
    factor: float
    name: str
    llms: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calendar:
    """A file of data/calendar. Without one, days are those of UTC and every Monday is like the others."""

    timezone: str = "UTC"  # by whose clock people work
    holiday: tuple[Holiday, ...] = ()
    event: tuple[Event, ...] = ()

    def check(self, where: str) -> None:
        """Refuse a time zone or weekday that nobody knows, and a factor that leaves nothing to learn from."""
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError) as error:
            raise ConfigError(
                f"{where}: unknown timezone {self.timezone!r}. Take one like Europe/Berlin."
            ) from error
        for holiday in self.holiday:
            if holiday.behaves_as not in WEEKDAYS:
                raise ConfigError(
                    f"{where} [[holiday]] {holiday.name}: behaves_as is {holiday.behaves_as!r}, "
                    f"needed one of {', '.join(WEEKDAYS)}."
                )
        for event in self.event:
            at = f"{where} [[event]] {event.name}"
            if event.minutes < 0:
                raise ConfigError(
                    f"{at}: it ends before it begins: got {event.minutes} minutes, needed 1 or more."
                )
            if not (event.factor > 0 and event.minutes > 0):
                raise ConfigError(
                    f"{at}: factor {event.factor:g} for {event.minutes} minutes, needed both above 0."
                )


def phases(calendar: Calendar, first: date, bucket_minutes: int, buckets: int, region: str) -> Ints:
    """Bucket of the week, from Monday 00:00 local time, that each bucket behaves as; shape (buckets,).

    The buckets follow each other in UTC from the first instant of `first`. When clocks change, an hour of
    phases is skipped or comes twice, as it does for those who send the requests.
    """
    import pandas as pd

    local = pd.date_range(first, periods=buckets, freq=f"{bucket_minutes}min", tz="UTC").tz_convert(
        calendar.timezone
    )
    weekday = local.weekday.to_numpy().astype(np.int64)
    for holiday in calendar.holiday:
        if region in (holiday.regions or (region,)):
            weekday[local.date == holiday.day] = WEEKDAYS.index(holiday.behaves_as)
    minute = (local.hour * 60 + local.minute).to_numpy().astype(np.int64)
    return weekday * (MINUTES_PER_DAY // bucket_minutes) + minute // bucket_minutes


def factors(
    calendar: Calendar, first: date, bucket_minutes: int, buckets: int, llm: str, region: str
) -> Floats:
    """What known events multiply the mean demand of each bucket by, shape (buckets,)."""
    factor = np.ones(buckets)
    origin = datetime(first.year, first.month, first.day)
    edges = np.arange(buckets + 1) * bucket_minutes
    for event in calendar.event:
        if llm not in (event.llms or (llm,)) or region not in (event.regions or (region,)):
            continue
        start = event.start.replace(tzinfo=None) - (event.start.utcoffset() or timedelta())
        begin = (start - origin).total_seconds() / 60
        inside = np.clip(edges, begin, begin + event.minutes)
        factor *= 1 + (event.factor - 1) * np.diff(inside) / bucket_minutes
    return factor
