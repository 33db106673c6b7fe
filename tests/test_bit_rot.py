"""Bit rot: each flipped bit of a file is found, by name, with the command that makes the file again."""

import random
import re
import subprocess
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
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.traces.staging import withdraw_file
from fleetcast.models.world.project_paths import HOME
from fleetcast.pipelines.check_job import check
from fleetcast.pipelines.cli import cli_app


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return small_lake(tmp_path / "lake")


def test_every_flipped_bit_is_found(lake: Lake) -> None:
    """Anywhere in any file: data, headers of pages, footer."""
    draw, files = random.Random(SEED), sorted(lake.root.rglob("*.parquet"))
    assert (len(files), check_lake_files(lake)) == (6, ({}, {}, 6, []))
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
            f"rm -f {lake.root}/outcomes/trace=t/day={DAYS[1]}/policy=static/part.parquet"
            f" && fleetcast nightly --date {DAYS[1]} --config CONFIG",
        ),
    ):
        assert again[f"damaged  {name}"] == f"         make it again: {command}"
    path = lake.path("trials", experiment="board", trace="together", day=DAYS[0])
    board = f"&& fleetcast board --date {DAYS[0]} --config together"
    assert damaged_files.remaking_command(lake, path).endswith(board)
    path = lake.path("token_histogram", trace="t", day=DAYS[0])
    assert damaged_files.remaking_command(lake, path).endswith("&& fleetcast characterise t")


def test_a_command_that_makes_a_table_again_has_the_options_of_that_command(lake: Lake) -> None:
    of_tables = {table: keys for table, keys in PARTITIONS.items() if table != "trials"}
    paths = [lake.path(table, **dict.fromkeys(keys, "2025-07-01")) for table, keys in of_tables.items()]
    for name in damaged_files.TRIAL_COMMANDS:
        paths.append(lake.path("trials", experiment=name, trace="t", day=DAYS[0]))
    for path in paths:
        _, _, made = damaged_files.remaking_command(lake, path).rpartition("&& fleetcast ")
        words = [word for word in made.split() if not word.startswith("-")]
        shown = CliRunner().invoke(cli_app, [*words[: 2 if words[0] == "plan" else 1], "--help"])
        assert shown.exit_code == 0, made
        options = [word for word in made.split() if word.startswith("--")]
        assert not [option for option in options if option not in shown.stdout], made


def test_the_scheduled_check_fails_on_a_damaged_file_and_names_it(lake: Lake, tmp_path: Path) -> None:
    settings = SettingsResource(config=small_config(tmp_path), lake=str(lake.root))

    def run() -> dg.ExecuteInProcessResult:
        return check.execute_in_process(resources={"settings": settings}, raise_on_error=False)

    assert run().success
    path = next(lake.root.rglob("outcomes/**/*.parquet"))
    flip(path, 99)
    [failed] = run().get_step_failure_events()
    failure = failed.event_specific_data.user_failure_data
    assert failure.description.startswith("Damaged or missing files: 1.")
    assert list(failure.metadata["make again by"].value) == [lake.below(path)]


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
    assert check_lake_files(lake) == ({}, {}, 6, [])
    lake.write("requests", rows("requests", 9), trace="t", day=DAYS[0])
    assert check_lake_files(lake) == ({}, {}, 6, [])


def test_a_file_of_an_older_lake_has_no_digest(lake: Lake) -> None:
    path = lake.path("requests", trace="t", day=DAYS[0])
    digest_path(lake.root, path).unlink()
    assert check_lake_files(lake) == ({}, {}, 5, [lake.below(path)])


def test_a_vanished_file_is_missed_with_the_command_that_makes_it_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lake.__init__, "__defaults__", (str(lake.root),))
    for path in sorted(lake.root.rglob("*.parquet")):
        content = path.read_bytes()
        path.unlink()
        command = damaged_files.remaking_command(lake, path)
        assert check_lake_files(lake) == ({}, {lake.below(path): command}, 5, [])
        result = CliRunner().invoke(cli_app, ["check"])
        assert result.exit_code == 1
        again = f"missing  {lake.below(path)}\n         make it again: {command}\n"
        assert result.stdout == f"{again}files    5 of 5 are as written\n"
        path.write_bytes(content)


def test_a_flipped_bit_of_a_digest_is_no_damage_of_its_file(lake: Lake) -> None:
    """Each bit of the line is flipped; the command that is named writes it again."""
    path = lake.path("requests", trace="t", day=DAYS[0])
    digest = digest_path(lake.root, path)
    text, found = digest.read_text(), 0
    for bit in range(8 * len(text)):
        flip(digest, bit)
        checked = check_lake_files(lake)
        if checked.damaged:
            [(name, command)] = checked.damaged.items()
            assert (name, checked.verified) == (lake.below(digest), 6)
            found += 1
        if checked.damaged and bit % 100 == 0:
            subprocess.run(command, shell=True, check=True)
        else:
            digest.write_text(text)
        assert digest.read_text() == text
    assert found >= 8 * 64  # the name behind it is not compared
    lake.write("requests", rows("requests", 9), trace="t", day=DAYS[0])
    flip(digest, 3)
    flip(path, 99)
    assert [*check_lake_files(lake).damaged] == [lake.below(path)]


def test_what_is_removed_leaves_no_digest(lake: Lake) -> None:
    """Each place that deletes a file of a table does it by `TableFiles.remove`."""
    lake.drop_day("t", DAYS[0])
    withdraw_file(lake, "landed", "a.csv")
    assert check_lake_files(lake) == ({}, {}, 2, [])
    assert len(list((lake.root / "digests").rglob("*.sha256"))) == 2
    deleting = {
        f"{path.name}: {line.strip()}"
        for path in (HOME / "assets").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\.unlink\(|os\.remove|\.rm\(", line)
    }
    assert deleting == {
        "table_files.py: digest_path(self.root, path).unlink(missing_ok=True)",
        "table_files.py: path.unlink(missing_ok=True)",
        "stage_cache.py: note.unlink(missing_ok=True)",
        "demand_history.py: settings.lake.made_from(settings.trace).unlink(missing_ok=True)",
    }


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
    for table in ("plans", "outcomes"):  # of an earlier run of the night
        scope = {
            "trace": settings.trace,
            "day": night,
            **({"policy": "static"} if table == "outcomes" else {}),
        }
        other = settings.lake.write(table, rows(table, 9), **scope)
        flip(other, 99)
        assert not run().passed
        settings.lake.remove(other)
        assert run().passed
    vanished = settings.lake.path("requests", trace=settings.trace, day=history[1])
    content = vanished.read_bytes()
    vanished.unlink()
    assert history[1].isoformat() in str(run().metadata["make again by"].value)
    vanished.write_bytes(content)
    flip(settings.lake.path("requests", trace=settings.trace, day=history[0]), 99)
    assert not run().passed
    assert history[0].isoformat() in str(run().metadata["make again by"].value)
