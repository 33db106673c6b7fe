"""Tiers by how an app arrives: judged once per trace, the same in one file and in many, never taken back."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.landing import forget_file, land_all_files
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

CATALOGUE = load_catalogue()
FIRST, DAYS = datetime(2025, 7, 3, tzinfo=UTC), 9  # a Thursday


def trace() -> pa.Table:
    """Alpha is a batch of an hour each night, beta works 9 to 18 on weekdays, gamma never rests."""
    rng, apps, at_s = np.random.default_rng(4), [], []
    for day in range(DAYS):
        working = (FIRST + timedelta(days=day)).weekday() < 5
        for app, begin, hours, count in (
            ("alpha", 2, 1, 500),
            ("beta", 9, 9, 400 * working),
            ("gamma", 0, 24, 300),
        ):
            at_s.append(3600 * (24 * day + begin + hours * rng.random(count)))
            apps += [app] * count
    seconds = np.concatenate(at_s)
    rows = seconds.size
    instants = pa.array((FIRST.timestamp() * 1e6 + seconds * 1e6).astype(np.int64)).cast(
        pa.timestamp("us", "UTC")
    )
    columns = {"request_id": np.arange(rows), "arrived_at": instants, "app": apps}
    return pa.table({**columns, "input_tokens": np.full(rows, 9), "output_tokens": np.full(rows, 5)}).sort_by(
        "arrived_at"
    )


WHOLE = trace()
DAY_OF = (WHOLE["arrived_at"].to_pandas() - pd.Timestamp(FIRST)).dt.days.to_numpy()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSettings:
    (tmp_path / "landing").mkdir()
    monkeypatch.setattr(
        "fleetcast.assets.traces.landing.landed_files",
        lambda: sorted((tmp_path / "landing").glob("*.parquet")),
    )
    monkeypatch.setattr("fleetcast.assets.traces.landing.lone_mappings", list)
    return RunSettings(Lake(tmp_path / "lake"), CATALOGUE, load_config("sageserve", CATALOGUE))


def drop(settings: RunSettings, name: str, days: range) -> None:
    """Put the requests of some days into the landing folder."""
    file = settings.lake.root.parent / "landing" / f"{name}.parquet"
    pq.write_table(WHOLE.filter(pa.array((days.start <= DAY_OF) & (days.stop > DAY_OF))), file)


def tiers(settings: RunSettings) -> pd.DataFrame:
    """What each request is, by its id."""
    query = (
        "select request_id, app, arrived_at, tier, tier_source, deadline_s from requests order by request_id"
    )
    return settings.lake.sql(query).to_pandas().set_index("request_id")


def verdicts(settings: RunSettings) -> dict[str, tuple[str | None, str | None]]:
    rows = settings.lake.sql("select * from tier_verdicts order by app").to_pylist()
    return {row["app"]: (row["tier"], row["tier_rule"]) for row in rows}


JUDGED = {"alpha": ("niw", "bursts"), "beta": ("iw_fast", "office_hours"), "gamma": (None, None)}


def test_one_file_and_one_a_day_give_the_same_tiers(settings: RunSettings) -> None:
    drop(settings, "whole", range(DAYS))
    assert not land_all_files(settings).refused
    one = tiers(settings)
    assert verdicts(settings) == JUDGED
    by_app = one.groupby("app")["tier"].agg(set)
    assert (by_app["alpha"], by_app["beta"]) == ({"niw"}, {"iw_fast"})
    assert by_app["gamma"] == set(CATALOGUE.tiers)
    assert (one["deadline_s"] == one["tier"].map({n: t.deadline_s for n, t in CATALOGUE.tiers.items()})).all()

    forget_file(settings, "whole.parquet")
    assert verdicts(settings) == {}
    (settings.lake.root.parent / "landing" / "whole.parquet").unlink()
    for day in range(DAYS):
        drop(settings, f"day{day:02}", range(day, day + 1))
    landing = land_all_files(settings)
    assert [report.rows_quarantined for report in landing.reports] == [0] * DAYS
    pd.testing.assert_frame_equal(tiers(settings), one)
    assert settings.lake.sql("checks/rows_are_conserved.sql").num_rows == 0


@pytest.mark.parametrize("is_growing", [False, True], ids=["a file a night", "one file that grows"])
def test_what_has_landed_keeps_its_tier_whatever_lands_later(settings: RunSettings, is_growing: bool) -> None:
    before = None
    for first, end in pairwise((0, 1, 3, 4, 7, 8, DAYS)):  # the fourth day judges alpha, the eighth beta
        drop(settings, "all" if is_growing else f"day{first:02}", range(0 if is_growing else first, end))
        land_all_files(settings)
        now = tiers(settings)
        if before is not None:
            pd.testing.assert_frame_equal(now.loc[before.index], before)
        before = now
    assert verdicts(settings) == JUDGED
    late = now[now["arrived_at"] >= pd.Timestamp(FIRST) + pd.Timedelta(days=8)]
    assert late.groupby("app")["tier_source"].agg(set).to_dict() == {
        "alpha": {"bursts"}, "beta": {"office_hours"}, "gamma": {"dealt"},
    }  # fmt: skip


def test_a_file_that_moves_and_is_judged_anew_is_reported_as_moved(settings: RunSettings) -> None:
    """So the trace that it has left is assessed again, too."""
    mapping = settings.lake.root.parent / "landing" / "day00.toml"
    drop(settings, "day00", range(1))
    mapping.write_text('trace = "before"')
    assert land_all_files(settings).reports[0].trace == "before"
    drop(settings, "day01", range(1, 4))
    for file in (mapping, mapping.with_name("day01.toml")):
        file.write_text('trace = "after"')
    landing = land_all_files(settings)
    assert set(tiers(settings).query("app == 'alpha'")["tier_source"]) == {"bursts"}
    assert [report.moved_from for report in landing.reports] == [("before",), ()]


def test_a_night_that_is_forgotten_and_lands_again_is_judged(settings: RunSettings) -> None:
    for first, end in ((0, 1), (1, 4)):
        drop(settings, f"day{first:02}", range(first, end))
        land_all_files(settings)
    first = tiers(settings).query("app == 'alpha'").head(500)
    assert set(first["tier_source"]) == {"dealt"}
    forget_file(settings, "day00.parquet")
    land_all_files(settings)
    assert set(tiers(settings).loc[first.index, "tier_source"]) == {"bursts"}


def test_each_rule_holds_from_its_limit_on(settings: RunSettings) -> None:
    """Office hours: 10 requests an hour on 120 weekday hours, 5 on the 47 others. Bursts: 800 of 1,000."""
    office = [3600 * hour + 300 * slot for hour in range(167) for slot in range(10 if hour < 120 else 5)]
    dense = [300 * (n % 85) + n // 85 for n in range(800)]  # a tenth of the slots of 71 hours
    sparse = [300 * slot for slot in range(100, 300)]
    apps = {
        "at_twice": office, "below_twice": [*office, 3600 * 121 + 300 * 7],
        "four_fifths": dense + sparse, "fewer": dense[:-1] + sparse + [300 * 301], "few": dense + sparse[1:],
        "last": [167 * 3600],
    }  # fmt: skip
    at_s = np.concatenate([*apps.values()]) + pd.Timestamp("2025-07-07", tz="UTC").timestamp()
    instants = pa.array((at_s * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
    ids, names = np.arange(at_s.size), np.repeat([*apps], [*map(len, apps.values())])
    columns = {
        "request_id": ids,
        "arrived_at": instants,
        "app": names,
        "input_tokens": 9 + 0 * ids,
        "output_tokens": 5 + 0 * ids,
    }
    pq.write_table(
        pa.table(columns).sort_by("arrived_at"), settings.lake.root.parent / "landing" / "limits.parquet"
    )
    assert not land_all_files(settings).refused
    assert verdicts(settings) == {
        "at_twice": ("iw_fast", "office_hours"), "below_twice": (None, None),
        "four_fifths": ("niw", "bursts"), "fewer": ("niw", "bursts"), "few": (None, None),
    }  # fmt: skip
    hours = settings.lake.sql(
        "select app, hours from tier_verdicts where tier = 'niw' order by app"
    ).to_pylist()
    assert hours == [{"app": "fewer", "hours": 167}, {"app": "four_fifths", "hours": 71}], "of its 200 slots"
