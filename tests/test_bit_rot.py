"""Bit rot: each flipped bit of a file is found, by name, with the command that makes the file again."""

import random
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pyarrow.parquet as pq
import pytest
from bit_rot_lake import DAYS, SEED, flip, rows, small_lake
from small import small_config
from typer.testing import CliRunner

from fleetcast.assets import checks
from fleetcast.assets.lake import damaged_files, store
from fleetcast.assets.lake.damaged_files import check_lake_files
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.file_digests import digest_path, sha256_of
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.pipelines.cli import cli_app


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return small_lake(tmp_path / "lake")


def test_every_flipped_bit_is_found(lake: Lake) -> None:
    """Anywhere in any file: data, headers of pages, footer."""
    draw, files = random.Random(SEED), sorted(lake.root.rglob("*.parquet"))
    assert (len(files), check_lake_files(lake)) == (6, ({}, 6, 0))
    for n in range(60):
        path = files[n % len(files)]
        bit = draw.randrange(8 * path.stat().st_size)
        flip(path, bit)
        assert [*check_lake_files(lake).damaged] == [lake.below(path)], (path, bit)
        flip(path, bit)
    assert check_lake_files(lake).damaged == {}
    digest = digest_path(lake.root, files[0])
    assert (
        digest.read_text() == f"{sha256_of(files[0])}  {lake.below(files[0])}\n"
    )  # as sha256sum --check reads


def test_each_damaged_file_has_the_command_that_makes_it_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in lake.root.rglob("*.parquet"):
        flip(path, 99)
    monkeypatch.setattr(Lake.__init__, "__defaults__", (str(lake.root),))
    result = CliRunner().invoke(cli_app, ["check"])
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert "files    0 of 6 are as written" in lines
    again = dict(zip(lines[:-1:2], lines[1:-1:2], strict=True))
    for name, command in (
        ("ingests/trace=landed/a.csv.parquet", "fleetcast forget a.csv && fleetcast ingest"),
        (f"requests/trace=landed/day={DAYS[0]}/a.csv.parquet", "fleetcast forget a.csv && fleetcast ingest"),
        (
            f"outcomes/trace=t/day={DAYS[1]}/policy=static/part.parquet",
            f"rm {lake.root}/outcomes/trace=t/day={DAYS[1]}/policy=static/part.parquet"
            f" && fleetcast nightly --date {DAYS[1]}",
        ),
    ):
        assert again[f"damaged  {name}"] == f"         make it again: {command}"
    path = lake.path("trials", experiment="board", trace="t", day=DAYS[0])
    assert damaged_files.remaking_command(lake, path).endswith(f"&& fleetcast board --date {DAYS[0]}")


def test_a_page_is_verified_when_it_is_read(lake: Lake) -> None:
    """The values of an uncompressed column would change without an error."""
    path = lake.path("requests", trace="t", day=DAYS[0])
    assert lake.part("requests", trace="t", day=DAYS[0]).num_rows == 2000
    column = pq.read_metadata(path).row_group(0).column(6)
    flip(path, 8 * (column.data_page_offset + column.total_compressed_size // 2))
    with pytest.raises(LakeError, match=r"^Reading requests failed: .*Verify the lake: fleetcast check$"):
        lake.part("requests", trace="t", day=DAYS[0])


@pytest.mark.parametrize("killed_at", [1, 2])
def test_a_run_that_is_killed_between_its_moves_damages_nothing(
    lake: Lake, killed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after the digest is in place: the file before stays, and is no damage."""
    moves, move = [], store.move_into_place

    def killed(finished: Path, target: Path) -> None:
        moves.append(target)
        if len(moves) >= killed_at:
            raise KeyboardInterrupt
        move(finished, target)

    with monkeypatch.context() as patch:
        patch.setattr(store, "move_into_place", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.write("requests", rows("requests", 9), trace="t", day=DAYS[0])
    assert lake.count("requests", trace="t", day=DAYS[0]) == 2000
    assert check_lake_files(lake) == ({}, 6, 0)
    lake.write("requests", rows("requests", 9), trace="t", day=DAYS[0])
    assert check_lake_files(lake) == ({}, 6, 0)


def test_a_file_of_an_older_lake_has_no_digest(lake: Lake) -> None:
    digest_path(lake.root, lake.path("requests", trace="t", day=DAYS[0])).unlink()
    assert check_lake_files(lake) == ({}, 5, 1)


def test_each_night_verifies_what_it_reads(tmp_path: Path) -> None:
    """A damaged day of the history fails the check before anything is forecast from it."""
    resource = SettingsResource(config=small_config(tmp_path), lake=str(tmp_path / "lake"))
    settings = resource.load()
    night = settings.config.trace.replay_day
    history = settings.history(night)
    assert len(history) > 1
    for day in history:
        settings.lake.write("requests", rows("requests", 9), trace=settings.trace, day=day)

    def run() -> dg.AssetCheckResult:
        context = SimpleNamespace(has_partition_key=True, partition_keys=[night.isoformat()])
        return checks.files_are_as_written.op.compute_fn.decorated_fn(context, resource)

    assert (run().passed, run().metadata["files"].value) == (True, len(history))
    other = settings.lake.write("outcomes", rows("outcomes", 9), trace="t", day=night, policy="static")
    flip(other, 99)
    assert run().passed
    flip(settings.lake.path("requests", trace=settings.trace, day=history[0]), 99)
    assert not run().passed
    assert history[0].isoformat() in str(run().metadata["make again by"].value)
