"""Which bucket of the week a bucket behaves as (time zones, clock changes, holidays), and known events."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.toml_dataclasses import ConfigError

FIRST_DAY, LAST_DAY = date(2020, 1, 1), date(2099, 12, 31)  # of any trace: as sql/staging/staged.sql
MINUTES_PER_DAY = 1440
QUARTER_S, HOUR_S, DAY_S = 900.0, 3600.0, 86_400.0
SATURDAY = 5  # the days of a week count from Monday, 0
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
    """What is known to multiply the demand for some time; of all llms and regions where none is named.

    Those of the same name are occurrences of the same: the factor counts until one has been.
    """

    start: datetime  # UTC where it names no zone, as `end`
    name: str
    minutes: int | None = None  # how long, or
    end: datetime | None = None  # until when
    factor: float = 1.0
    llms: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()

    @property
    def lasts_min(self) -> float:
        """Minutes from start to end; 0 where neither is given."""
        if self.end is None:
            return self.minutes or 0
        return (_utc(self.end) - _utc(self.start)).total_seconds() / 60

    def check(self, at: str) -> None:
        """Refuse one that ends before it begins, or whose factor leaves nothing to learn from."""
        if (self.minutes is None) == (self.end is None):
            raise ConfigError(f"{at}: needed one of minutes and end, to tell how long it lasts.")
        if self.lasts_min < 0:
            got = f"{self.minutes} minutes" if self.end is None else f"start {self.start}, end {self.end}"
            rule = "1 or more" if self.end is None else "an end after the start"
            raise ConfigError(f"{at}: it ends before it begins: got {got}, needed {rule}.")
        if not (self.factor > 0 and self.lasts_min > 0):
            raise ConfigError(
                f"{at}: factor {self.factor:g} for {self.lasts_min:g} minutes, needed both above 0."
            )


class Occurrence(NamedTuple):
    """An event as the buckets of a series have it."""

    name: str
    first: int  # bucket, from which on
    share: Floats  # of each of its buckets lies within it
    factor: float  # as the calendar says


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
            event.check(f"{where} [[event]] {event.name}")


def week_phases(calendar: Calendar, first: date, bucket_minutes: int, buckets: int, region: str) -> Ints:
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


def event_occurrences(
    calendar: Calendar, first: date, bucket_minutes: int, buckets: int, llm: str, region: str
) -> list[Occurrence]:
    """The known events of a series that touch its buckets, in order of time."""
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
            own = slice(touched[0], touched[-1] + 1)
            found.append(Occurrence(event.name, int(touched[0]), share[own], event.factor))
    return found


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
