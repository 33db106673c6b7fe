"""The calendar: time zones, holidays, known events; and that forecasts use them."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.backtest import BacktestClock, walk_forward
from fleetcast.models.forecast.event_factors import MOST_FACTOR, event_demand_factors
from fleetcast.models.world.calendar import Calendar, Event, Holiday, event_occurrences, week_phases
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_calendar, load_config
from fleetcast.models.world.toml_dataclasses import ConfigError

PLAIN = Calendar()
YORK = Calendar("America/New_York", (Holiday(date(2025, 3, 10), "a day off", regions=("east",)),))


@pytest.mark.parametrize("calendar", [PLAIN, YORK])
@pytest.mark.parametrize("region", ["east", "west"])
def test_phases_equal_the_local_clock(calendar: Calendar, region: str) -> None:
    first = date(2025, 3, 6)  # the clocks of New York go forward on the 9th
    found = week_phases(calendar, first, 15, 8 * 96, region)
    for bucket in range(8 * 96):
        local = datetime(2025, 3, 6, tzinfo=UTC) + timedelta(minutes=15 * bucket)
        local = local.astimezone(ZoneInfo(calendar.timezone))
        is_off = calendar is YORK and region == "east" and local.date() == date(2025, 3, 10)
        weekday = 6 if is_off else local.weekday()
        assert found[bucket] == weekday * 96 + local.hour * 4 + local.minute // 15


def test_forecasts_use_the_right_hour_after_a_clock_change_and_on_holidays() -> None:
    hours = 24 * 21
    phase = week_phases(YORK, date(2025, 2, 20), 60, hours + 1, "east")
    demand = 100.0 + phase[:hours]  # every hour of the local week has its own demand
    cutoffs = BacktestClock(24 * 14, 1, 1, 24)
    found = walk_forward(demand[None], "seasonal_naive", cutoffs, phase[None]).mean[0, :, 0]
    assert found.tolist() == demand[24 * 14 :].tolist()
    blind = walk_forward(demand[None], "seasonal_naive", cutoffs).mean[0, :, 0]
    assert (blind != demand[24 * 14 :]).mean() > 0.5


def factors_of(calendar: Calendar, days: int, llm: str = "a", demand: Floats | None = None) -> Floats:
    """Factors of the hours of `days` days from a Monday on; without demand nothing is learnt."""
    known = event_occurrences(calendar, date(2025, 3, 3), 60, 24 * days, llm, "east")
    nothing = np.full(24 * days, np.nan)
    return event_demand_factors(
        known, nothing if demand is None else demand, np.arange(24 * days) % 168, 24, 24
    )


def test_a_known_event_is_removed_from_the_past_and_added_to_the_forecast() -> None:
    start = datetime(2025, 3, 4, 10, 30)
    launch = Event(start, "launch", 90, factor=3.0, llms=("a",))
    again = datetime(2025, 3, 12, 0, tzinfo=UTC)
    until = replace(launch, start=again, minutes=None, end=again + timedelta(hours=1))
    calendar = Calendar(event=(until, launch))
    factor = factors_of(calendar, 10)
    assert np.flatnonzero(factor != 1.0).tolist() == [34, 35, 24 * 9]
    assert factor[[34, 35, 24 * 9]].tolist() == [2.0, 3.0, 3.0]  # half an hour of the first bucket
    assert (factors_of(calendar, 10, "b") == 1.0).all()
    demand = 10.0 * factor[None, :-1]
    phase = np.tile(np.arange(24 * 10) % 168, (1, 1))
    for method in ("last_value", "seasonal_naive", "regression"):
        mean = walk_forward(demand, method, BacktestClock(24 * 8, 1, 1, 24), phase, factor[None]).mean[
            0, :, 0
        ]
        assert mean == pytest.approx(demand[0, 24 * 8 :])


def test_the_factor_of_an_event_is_learnt_from_those_that_ended_a_day_before() -> None:
    """A drill at 10:30 on three days, announced as a doubling, makes 4 and 6 times as much demand."""
    drills = [Event(datetime(2025, 3, day, 10, 30), "drill", 90, factor=2.0) for day in (12, 13, 14)]
    other = Event(datetime(2025, 3, 14, 10), "other", 60)
    usual = 10.0 + np.arange(24 * 14) % 24
    demand = usual.copy()
    first = 24 * 9 + 10
    for day, made in ((0, 4.0), (1, 6.0), (2, 6.0)):
        within = first + 24 * day + np.arange(2)
        demand[within] *= 1 + (made - 1) * np.array([0.5, 1.0])
    found = factors_of(Calendar(event=(*drills, other)), 14, demand=demand)
    assert found[[first, first + 1]] == pytest.approx([1.5, 2.0])  # none has been
    assert found[[first + 24, first + 25]] == pytest.approx(
        [1.5, 2.0]
    )  # too near: it ended less than a day before
    assert found[[first + 48, first + 49]] == pytest.approx([2.5, 4.0])  # and so did the second
    later = demand.copy()
    later[first + 24 :] = 0.0
    again = factors_of(Calendar(event=(*drills, other)), 14, demand=later)
    assert again[: first + 72].tolist() == found[: first + 72].tolist()
    shut = np.where(np.isin(np.arange(24 * 14), first + np.arange(2)), 0.0, demand)
    quiet = factors_of(Calendar(event=tuple(drills)), 14, demand=shut)
    assert quiet[first + 49] == pytest.approx(1 / MOST_FACTOR)
    weekly = [replace(drills[0], start=drills[0].start + timedelta(days=7 * n)) for n in range(3)]
    thrice = np.tile(10.0 + np.arange(24) % 24, 24)
    thrice[[first + 1, first + 169]] *= 4.0
    thrice[[first, first + 168]] *= 2.5
    assert factors_of(Calendar(event=tuple(weekly)), 24, demand=thrice)[first + 337] == pytest.approx(4.0)


def test_the_shipped_calendar_reads_and_a_config_can_name_it(tmp_path) -> None:
    shipped = load_calendar("us_office")
    assert {holiday.day for holiday in shipped.holiday} >= {date(2025, 7, 4), date(2026, 11, 26)}
    text = (tmp_path / "x").parent / "named.toml"
    office = load_config("sageserve", load_catalogue())
    assert office.calendar == Calendar()
    from fleetcast.models.world.config_loading import CONFIG_DIR

    named = (
        (CONFIG_DIR / "office.toml")
        .read_text()
        .replace("[forecast]\n", '[forecast]\ncalendar = "us_office"\n')
    )
    text.write_text(named)
    assert load_config(str(text), load_catalogue()).calendar == shipped


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('timezone = "Mars/Olympus"', "odd.toml: unknown timezone 'Mars/Olympus'. Take one like"),
        (
            '[[holiday]]\nday = 2025-01-01\nname = "x"\nbehaves_as = "funday"',
            "x: behaves_as is 'funday', needed",
        ),
        (
            '[[event]]\nname = "x"\nstart = 2025-01-01T00:00:00Z\nminutes = 5\nfactor = 0.0',
            "factor 0 for 5 min",
        ),
        (
            '[[event]]\nname = "x"\nstart = 2025-01-01T00:00:00Z\nminutes = -5\nfactor = 2.0',
            r"^odd.toml \[\[event\]\] x: it ends before it begins: got -5 minutes, needed 1 or more\.$",
        ),
        (
            '[[event]]\nname = "x"\nstart = 2025-01-02T00:00:00Z\nend = 2025-01-01T00:00:00Z',
            r"x: it ends before it begins: got start 2025-01-02 .*, needed an end after the start\.$",
        ),
        ('[[event]]\nname = "x"\nstart = 2025-01-01T00:00:00Z', "x: needed one of minutes and end, for its"),
        ('[[event]]\nname = "x"\nstart = 2025-01-01\nend = 2025-01-03T00:00:00Z', "start"),
        ('[[holiday]]\nname = "x"', "the key 'day' is missing"),
        ("tz = 1", "unknown key 'tz'"),
    ],
)
def test_an_invalid_calendar_is_refused(text: str, message: str, tmp_path) -> None:
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_calendar("odd", tmp_path)
