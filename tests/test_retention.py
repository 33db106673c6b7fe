"""`fleetcast tidy`: old days lose their requests; no mart says another value of them."""

import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest
from earlier_lake import NIGHT, POLICIES, TRACE, drop_on_demand, link_nights, unpack_lake
from typer.testing import CliRunner

from fleetcast.assets.lake import store
from fleetcast.assets.lake.damaged_files import check_lake_files
from fleetcast.assets.lake.file_digests import digest_path
from fleetcast.assets.lake.retention import tidy_lake
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.scoreboards import write_scoreboards
from fleetcast.assets.lake.sql_files import load_macros_and_marts
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.pipelines.cli import cli_app

NIGHTS, KEPT = 4, 2
OF_A_DAY = ("scoreboard", "scoreboard_by_tier", "unit_cost", "lateness", "energy", "left_over",
            "legs_by_hour", "tokens_per_usd", "ttft_histogram", "fleet_by_hour", "regret")  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = unpack_lake(tmp_path)
    drop_on_demand(found)
    link_nights(found, NIGHTS)
    return found


def replayed_days(lake: Lake) -> list[date]:
    return lake.days("outcomes", TRACE)


def rows_by_day(lake: Lake, mart: str) -> dict[date, list[dict]]:
    found: dict[date, list[dict]] = {}
    for row in lake.sql(f"from {mart} order by all").to_pylist():
        found.setdefault(row.pop("day"), []).append(row)
    return found


def test_no_mart_says_another_value_of_a_day_without_its_requests(lake: Lake) -> None:
    """A row is as before, with null where it needs the requests, or it is not there."""
    assert set(OF_A_DAY) <= {path.stem for path in load_macros_and_marts()}
    before = {mart: rows_by_day(lake, mart) for mart in OF_A_DAY}
    tidy_lake(lake, KEPT)
    for mart in OF_A_DAY:
        after = rows_by_day(lake, mart)
        for n in range(NIGHTS):
            day = NIGHT + timedelta(days=n)
            known = before[mart].get(day, [])
            if n >= NIGHTS - KEPT:
                assert after.get(day, []) == known, mart
            for row in after.get(day, []):
                shown = {name: value for name, value in row.items() if value is not None}
                assert any(shown.items() <= other.items() for other in known), (mart, shown)
    assert len(before["scoreboard"][NIGHT]) >= POLICIES
    assert rows_by_day(lake, "scoreboard") == before["scoreboard"], "they were written before"


def test_a_scoreboard_is_of_its_trace_and_day_whether_written_or_not(lake: Lake) -> None:
    for file in (file for table in PARTITIONS for file in lake.files(table)):
        if f"trace={TRACE}" in file.parts:
            store.link_or_copy(file, lake.root / lake.below(file).replace(f"trace={TRACE}", "trace=other"))
    query = "select trace, day, policy, usd, e2e_p95_s from scoreboard order by all"
    computed = lake.sql(query)
    assert computed.num_rows == 2 * NIGHTS * POLICIES
    write_scoreboards(lake)
    assert lake.sql(query) == computed
    shutil.rmtree(lake.path("scoreboard", trace=TRACE, day=NIGHT).parent)
    assert lake.sql(query) == computed, "one is not written"
    with lake.connect() as con:
        assert con.sql(query).to_arrow_table() == computed, "a connection has all views, whatever it is for"
    cut = lake.read("scoreboard", trace="other", day=NIGHT).drop_columns(["trace", "day"])[:1]
    lake.write("scoreboard", cut, trace="other", day=NIGHT)
    write_scoreboards(lake, [("other", NIGHT)])
    assert len(lake.files("scoreboard")) == 2 * NIGHTS
    assert lake.sql(query) == computed, "a day that is scored again is written again, and what lacked too"


def test_the_latest_days_of_each_trace_stay_and_nothing_else_goes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = lake.path("outcomes", trace="older", day=date(2024, 1, 1), policy="static")
    first = lake.files("outcomes", trace=TRACE, day=NIGHT)[0]
    other.parent.mkdir(parents=True)
    other.write_bytes(first.read_bytes())
    orphan = digest_path(lake.root, lake.path("plans", trace=TRACE, day=date(2020, 1, 1)))
    orphan.parent.mkdir(parents=True)
    orphan.write_text("0" * 64 + "  plans\n")
    assert len(check_lake_files(lake).missing) == 1
    files = set(lake.root.rglob("*.parquet"))
    monkeypatch.setattr(Lake.__init__, "__defaults__", (str(lake.root),))
    dry = CliRunner().invoke(cli_app, ["tidy", "--keep-days", str(KEPT), "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert set(lake.root.rglob("*.parquet")) == files
    done = CliRunner().invoke(cli_app, ["tidy", "--keep-days", str(KEPT)])
    assert done.exit_code == 0, done.output
    gone = files - set(lake.root.rglob("*.parquet"))
    tables = {path.relative_to(lake.root).parts[0] for path in gone}
    assert "outcomes" in tables
    assert tables <= {"outcomes", "legs"}
    assert replayed_days(lake) == [NIGHT + timedelta(days=n) for n in (2, 3)]
    assert other.is_file()
    assert f"{len(gone)} files of outcomes and legs" in done.stdout
    assert "1 digests without a file" in done.stdout
    assert f"would free    {done.stdout.split()[1]} MB" in dry.stdout
    assert lake.below(next(iter(gone))) in dry.stdout
    assert check_lake_files(lake).missing == {}
    assert tidy_lake(lake, KEPT) == ([], 0, [])
