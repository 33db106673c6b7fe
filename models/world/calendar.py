"""Calendar: the bucket of the week of each time bucket (time zone, clock changes, holidays), and events."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.toml_dataclasses import ConfigError

FIRST_DAY, LAST_DAY = date(2020, 1, 1), date(2099, 12, 31)  # of any trace: as sql/staging/staged.sql
MINUTES_PER_DAY = 1440
HOURS_PER_WEEK = 168
QUARTER_S, HOUR_S, DAY_S = 900.0, 3600.0, 86_400.0
SATURDAY = 5  # the days of a week count from Monday, 0
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def require_in_years(first: date, days: int, where: str) -> None:
    """Raise ConfigError if some of the days from `first` on are outside FIRST_DAY to LAST_DAY."""
    if not (first >= FIRST_DAY and days - 1 <= (LAST_DAY - first).days):
        raise ConfigError(
            f"{where}: got {days:,} day{'s' if days > 1 else ''} from {first} on, needed days "
            f"from {FIRST_DAY} to {LAST_DAY}."
        )


@dataclass(frozen=True)
class Holiday:
    """A day that behaves like another weekday; without `regions`, in all regions."""

    day: date
    name: str
    behaves_as: str = "sunday"
    regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Event:
    """A known event that multiplies the demand for some time; without `llms` and `regions`, of all.

    Events of the same name are occurrences of one event: its `factor` counts until one has been observed.
    """

    start: datetime  # UTC if it has no time zone, like `end`
    name: str
    minutes: int | None = None  # duration; or
    end: datetime | None = None
    factor: float = 1.0
    llms: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()

    @property
    def lasts_min(self) -> float:
        """Minutes from start to end; 0 without `minutes` and `end`."""
        if self.end is None:
            return self.minutes or 0
        return (_utc(self.end) - _utc(self.start)).total_seconds() / 60

    def check(self, at: str) -> None:
        """Raise ConfigError for an event without one duration, with an end before its start, or factor 0."""
        if (self.minutes is None) == (self.end is None):
            raise ConfigError(f"{at}: needed one of minutes and end, for its duration.")
        if self.lasts_min < 0:
            got = f"{self.minutes} minutes" if self.end is None else f"start {self.start}, end {self.end}"
            rule = "1 or more" if self.end is None else "an end after the start"
            raise ConfigError(f"{at}: it ends before it begins: got {got}, needed {rule}.")
        if not (self.factor > 0 and self.lasts_min > 0):
            raise ConfigError(
                f"{at}: factor {self.factor:g} for {self.lasts_min:g} minutes, needed both above 0."
            )


class Occurrence(NamedTuple):
    """An event in the buckets of a series."""

    name: str
    first: int  # its first bucket
    share: Floats  # (buckets of the event,) share of each bucket inside the event
    factor: float  # of the calendar


@dataclass(frozen=True)
class Calendar:
    """A file of data/calendar. Without one, days are UTC days without holidays and events."""

    timezone: str = "UTC"  # of the users' working hours
    holiday: tuple[Holiday, ...] = ()
    event: tuple[Event, ...] = ()

    def check(self, where: str) -> None:
        """Raise ConfigError for an unknown time zone or weekday, or an invalid event."""
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
            event.check(f"{where} [[event]] {event.name}")


def week_phases(calendar: Calendar, first: date, bucket_minutes: int, buckets: int, region: str) -> Ints:
    """Return the bucket of the week of each bucket, from Monday 00:00 local time, shape (buckets,).

    The buckets follow each other in UTC from the first instant of `first`. When clocks change, an hour of
    buckets of the week is skipped or occurs twice, as it does for users.
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


def event_occurrences(
    calendar: Calendar, first: date, bucket_minutes: int, buckets: int, llm: str, region: str
) -> list[Occurrence]:
    """Return the known events in the buckets of a series, in order of time."""
    origin = datetime(first.year, first.month, first.day, tzinfo=UTC)
    edges = np.arange(buckets + 1) * bucket_minutes
    found = []
    for event in sorted(calendar.event, key=lambda event: _utc(event.start)):
        if llm not in (event.llms or (llm,)) or region not in (event.regions or (region,)):
            continue
        begin = (_utc(event.start) - origin).total_seconds() / 60
        within = np.clip(edges, begin, begin + event.lasts_min)
        share: Floats = (within[1:] - within[:-1]) / bucket_minutes
        touched = np.flatnonzero(share)
        if touched.size:
            of_event = slice(touched[0], touched[-1] + 1)
            found.append(Occurrence(event.name, int(touched[0]), share[of_event], event.factor))
    return found


def _utc(at: datetime) -> datetime:
    """Return a time in its time zone, UTC if it has none."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
