"""A lake that release 0.1.0 wrote is read, verified and continued by this code."""

from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from earlier_lake import NIGHT, POLICIES, TRACE, unpack_lake
from small import DAGSTER
from typer.testing import CliRunner

from fleetcast.assets.lake.damaged_files import check_lake_files
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.sql_files import load_macros_and_marts
from fleetcast.assets.lake.table_queries import OLD_NAMES
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.plans import measured_capacity
from fleetcast.pipelines.cli import cli_app
from fleetcast.pipelines.nightly_run import run_night


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return unpack_lake(tmp_path)


def test_every_table_and_mart_of_an_earlier_lake_can_be_read(lake: Lake) -> None:
    marts = [path.stem for path in load_macros_and_marts() if path.parent.name == "marts"]
    for name in (*PARTITIONS, *marts):
        if name not in PARTITIONS or lake.files(name):
            lake.sql(f"from {name}")
    board = lake.sql(f"from scoreboard where trace = '{TRACE}' and day = date '{NIGHT}'").to_pylist()
    assert len(board) >= POLICIES
    assert all(row["usd"] > 0 and row["ttft_p95_s"] is not None for row in board)


def test_published_views_have_the_columns_of_later_files(lake: Lake) -> None:
    def published_columns() -> list[str]:
        with duckdb.connect(str(lake.publish()), read_only=True) as con:
            return con.sql("from scorecard").columns

    before = published_columns()
    later = lake.read("scorecard", day=NIGHT).drop_columns(["trace", "day"])
    later = later.append_column("of_later_release", later["requests"])
    lake.write("scorecard", later, trace=TRACE, day=NIGHT)
    assert {*published_columns()} - {*before} == {"of_later_release"}


@pytest.mark.parametrize("table", OLD_NAMES)
def test_a_column_that_had_another_name_keeps_its_values(table: str, lake: Lake) -> None:
    """In views, and in the rows of a file."""
    found = lake.sql(f"from {table}")
    for file in lake.files(table):
        keys = dict(part.split("=") for part in lake.below(file.parent).split("/")[1:])
        written, now = pq.read_table(file, partitioning=None), lake.part(table, **keys)
        for name, old in OLD_NAMES[table].items():
            assert {old} & {*found.column_names, *now.column_names} == set()
            assert now[name] == written[old]
            assert {*written[old].to_pylist()} <= {*found[name].to_pylist()}
    if table == "witnessed":
        assert lake.files(table) == [], "it is younger than that release"


def test_an_earlier_lake_has_no_digests(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    found = check_lake_files(lake)
    files = sum(len(lake.files(table)) for table in PARTITIONS)
    assert (found.damaged, found.missing, found.verified, len(found.without_digest)) == ({}, {}, 0, files)
    monkeypatch.setattr(Lake.__init__, "__defaults__", (str(lake.root),))
    result = CliRunner().invoke(cli_app, ["check"])
    assert result.exit_code == 0, result.output
    assert f"{files:,} without digest (of 0.1.0, copied, or it is lost)" in result.stdout


def test_the_next_night_runs_on_an_earlier_lake(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history was landed, scored and planned by the earlier release."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: [2000.0])
    before = lake.sql(f"from scoreboard where day = date '{NIGHT}' order by policy").to_pylist()
    resource = SettingsResource(config=str(tmp_path / "upgrade.toml"), lake=str(lake.root))
    night = run_night(resource, NIGHT + timedelta(days=1), Progress())
    assert night.broken == []
    assert night.board is not None
    assert night.board.num_rows >= POLICIES
    assert lake.files("scoreboard", day=NIGHT), "those of earlier nights are written too"
    assert lake.sql(f"from scoreboard where day = date '{NIGHT}' order by policy").to_pylist() == before
    assert check_lake_files(lake).broken == {}
