"""A query of single days opens the files of these days, and gives the rows that all files give."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from earlier_lake import NIGHT, TRACE, drop_on_demand, link_nights, unpack_lake

from fleetcast.assets.lake import query_days, store
from fleetcast.assets.lake.lake_views import find_needed
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.warehouse import Lake, LakeError

NIGHTS = query_days.FEW_DAYS + 2
LAST = NIGHT + timedelta(days=NIGHTS - 1)
A_DAY, NEXT_DAY = "day = '2025-07-03'", "day = date '2025-07-04'"
BY_ORDER = "lag(day) over (order by day) as earlier"
# Queries, and of how many days they open the files of a table; None for all.
QUERIES = [
    (f"select count(*) from plans where {A_DAY}", {"plans": 1}),
    ("select count(*), max(day) from plans where day = $day::date", {"plans": 1}),
    ("select count(*), max(day) from plans where day = coalesce($day::date, day)", {"plans": None}),
    ("select count(*) from plans where day = $missing::date", {"plans": None}),
    (f"select count(*) from plans where {A_DAY} or hour_start is null", {"plans": None}),
    (f"select count(*) from plans where not {A_DAY}", {"plans": None}),
    (f"select count(*) from plans where {A_DAY} and {NEXT_DAY}", {"plans": None}),
    (f"from (from plans where {A_DAY}) union all (from plans where {NEXT_DAY}) order by all", {"plans": 2}),
    (f"from (select distinct day, {BY_ORDER} from plans) where {A_DAY} order by all", {"plans": None}),
    (f"select count(*) from plans join scorecard using (day) where {A_DAY}", {"plans": 1, "scorecard": 1}),
    (f"select count(*) from plans p join scorecard s on s.day > p.day where p.{A_DAY}", {"scorecard": None}),
    (f"select count(*) from plans p left join scorecard s on s.day = p.day + 1 where p.{A_DAY}",
     {"plans": 1, "scorecard": None}),
    (f"select count(*) from scorecard where (select count(*) from plans) > 1 and {A_DAY}", {"plans": None}),
    (f"select distinct day from plans anti join (from scorecard where {A_DAY}) using (day) order by day",
     {"plans": None, "scorecard": 1}),
    (f"from plans where {A_DAY} order by usd, hour_start, served_region, llm, policy limit 3", {"plans": 1}),
    (f"pivot (select day, usd from plans where {A_DAY}) on day in (select day from plans) using max(usd)",
     {"plans": None}),
    ("select count(*) from plans where day = '1999-01-01'", {"plans": 0}),
    ("select count(tier) from scorecard where day = '1999-01-01'", {"scorecard": 0}),
    (f"explain select 1 from plans where {A_DAY}", {"plans": None}),
]  # fmt: skip


def days_files(lake: Lake, query: str, *how: Any) -> dict[str, list[store.LakePath]]:
    return query_days.files_of_days(lake, query, find_needed(lake, query), *how)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The days of `plans` have as many rows as days before them."""
    found = unpack_lake(tmp_path_factory.mktemp("nights"))
    drop_on_demand(found)
    link_nights(found, NIGHTS)
    for n, day in enumerate(found.days("plans", TRACE)):
        found.write("plans", found.part("plans", trace=TRACE, day=day).slice(n), trace=TRACE, day=day)
    return found


@pytest.mark.parametrize(("query", "days"), QUERIES)
def test_the_rows_are_those_of_all_files(
    query: str, days: dict[str, int | None], lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {"day": NIGHT + timedelta(days=1)}
    confined = days_files(lake, query, params, [str(lake.root)])
    opened = days_files(lake, query, params, None)
    assert opened == confined  # and was not confined itself
    found = {table: {file.parent.name for file in files} for table, files in opened.items()}
    for table, count in days.items():
        for_columns = {f"day={LAST}"} if table == "scorecard" else set()
        assert (len(found[table] - for_columns) if table in found else None) == count
    rows = lake.sql(query, **params)
    monkeypatch.setattr(query_days, "FEW_DAYS", 99)
    assert days_files(lake, query, params, None) == {}
    assert lake.sql(query, **params) == rows


def test_a_day_of_the_scoreboard_is_that_of_a_lake_of_this_day(lake: Lake, tmp_path: Path) -> None:
    """It opens no file of another day, but the last scorecard for its columns."""
    for_columns = f"scorecard/trace={TRACE}/day={LAST}/part.parquet"
    board = f"from scoreboard where day = date '{NIGHT}' order by all"
    opened = days_files(lake, board, {}, None)
    assert opened.keys() == {"scorecard", "outcomes", "fleet_hours", "plans"}
    names = {lake.below(file) for files in opened.values() for file in files}
    assert {name for name in names if f"day={NIGHT}" not in name} == {for_columns}
    alone = Lake(tmp_path / "alone")
    for file in (file for table in PARTITIONS for file in lake.files(table)):
        if "day=" not in str(file) or f"day={NIGHT}" in file.parts:
            store.link_or_copy(file, alone.root / lake.below(file))
    rows = alone.sql(board).to_pandas()
    assert len(rows) > 1
    pd.testing.assert_frame_equal(lake.sql(board).to_pandas(), rows, rtol=1e-12)


def test_a_query_that_cannot_be_planned_is_refused_by_its_run(lake: Lake) -> None:
    for query, message in (
        ("from plans, nothing", "nothing does not exist"),
        ("drop view plans", "only reads"),
    ):
        assert days_files(lake, query, {}, None) == {}
        with pytest.raises(LakeError, match=message):
            lake.sql(query)
