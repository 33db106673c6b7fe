"""However a night's replays are cut, and however much of a day is in memory, the numbers are the same."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from wired import DAY, LLMS, changed

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.replays import hourly_replay, nightly_replays, replay_units, replay_workloads
from fleetcast.assets.replays.replays import replay_day
from fleetcast.models.aliases import Ints
from fleetcast.models.world.replay_config import Cascade
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines import nightly_run

POLICIES = ("reactive", "lt_ua", "brisk")
TABLES = ("outcomes", "fleet_hours")
KEYS = [("policy", "ascending"), ("request_id", "ascending")]
HOURS = [(name, "ascending") for name in ("policy", "hour_start", "llm", "served_region", "gpu", "role")]


@pytest.fixture(scope="module")
def night(wired_day: RunSettings) -> RunSettings:
    """A planned day of three policies, whose llms share no GPUs; instances die, delays vary."""
    levels = dataclasses.replace(wired_day.config.replay.levels, by="tier")
    return changed(wired_day, "replay", policies=POLICIES, levels=levels)


@pytest.fixture(scope="module")
def at_once(night: RunSettings, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    return played(night, tmp_path_factory.mktemp("all"))


def played(night: RunSettings, folder: Path) -> dict[str, pa.Table]:
    """What a night writes that replays unit after unit, the last one first, in a lake of its own."""
    own = dataclasses.replace(night, lake=Lake(folder / "lake"))
    shutil.copytree(night.lake.root, own.lake.root, dirs_exist_ok=True)
    for unit in reversed(nightly_replays.begin_units(own, DAY)):
        nightly_replays.replay_missing_policies(own, DAY, unit, Progress())
    nightly_replays.end_units(own, DAY)
    nightly_replays.require_same_config(own, DAY)
    return {
        table: own.lake.read(table, trace="wired", day=DAY).sort_by(keys)
        for table, keys in zip(TABLES, (KEYS, HOURS), strict=True)
    }


@pytest.mark.parametrize(("cut", "count"), [("policy", 3), ("llm", 6)])
def test_a_night_in_units_is_the_night_at_once(
    night: RunSettings,
    at_once: dict[str, pa.Table],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cut: str,
    count: int,
) -> None:
    """Each llm's boots, delays and failures are its own."""
    monkeypatch.setenv(replay_units.UNITS_VARIABLE, cut)
    assert len(replay_units.nightly_units(night)) == count
    for table, rows in played(night, tmp_path).items():
        assert rows.equals(at_once[table]), table
    assert at_once["outcomes"].num_rows == 3 * night.lake.count("requests", trace="wired", day=DAY)
    assert len(np.unique(at_once["outcomes"]["network_s"])) > 1000, "delays vary"


def test_units_that_a_resumed_run_left_out_are_played_in_the_end(
    night: RunSettings, at_once: dict[str, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster resumes a killed run without the dynamic steps that had not begun, and calls that a success."""
    monkeypatch.setenv(replay_units.UNITS_VARIABLE, "llm")
    monkeypatch.setattr(nightly_replays, "begin_units", lambda *args: replay_units.nightly_units(night)[:1])
    for table, rows in played(night, tmp_path).items():
        assert rows.equals(at_once[table]), table


def test_a_day_by_the_hour_is_the_day_in_one_piece(
    night: RunSettings, at_once: dict[str, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits at the end of an hour, niw above all, is served in a later one."""
    monkeypatch.setattr(hourly_replay, "BYTES_PER_REQUEST", 10**12)
    read: list[tuple[int, int]] = []
    whole = hourly_replay.read_workload
    monkeypatch.setattr(hourly_replay, "read_workload", lambda *args: read.append(args[-1]) or whole(*args))
    for table, rows in played(night, tmp_path).items():
        assert rows.equals(at_once[table]), table
    assert sorted(read) == sorted([(hour, hour + 1) for hour in range(24)] * len(POLICIES))


def test_the_largest_fleets_are_seen_by_the_hour_too(
    night: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = dataclasses.replace(night, lake=Lake(tmp_path / "lake"))
    shutil.copytree(night.lake.root, own.lake.root, dirs_exist_ok=True)
    found: list[dict[str, Ints]] = [{}, {}]
    for largest in found:
        replay_day(own, DAY, ["lt_ua"], Progress(), largest)
        monkeypatch.setattr(hourly_replay, "BYTES_PER_REQUEST", 10**12)
    whole, hours = (largest["lt_ua"] for largest in found)
    np.testing.assert_array_equal(hours, whole)
    assert whole.min() < whole.max()


def test_units_share_the_requests_that_were_read_last(
    night: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of the same inputs read them once, and only the last are kept: a month is not held in memory."""
    kept: dict[tuple[Any, ...], replay_workloads.ReplayWorkload] = {}
    monkeypatch.setattr(replay_workloads, "WORKLOAD_CACHE", kept)
    seen = []
    for made_from in ("one", "one", "other", "another"):
        replay_workloads.make_workload_reader(night, made_from=made_from)(DAY, "reactive")
        seen += kept.values()
    assert [sum(one is other for other in seen) for one in seen] == [2, 2, 1, 1]


def test_a_unit_replays_what_is_not_there(
    night: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill only what is missing is played; what other cuts and policies left goes."""
    own = dataclasses.replace(night, lake=Lake(tmp_path / "lake"))
    shutil.copytree(night.lake.root, own.lake.root, dirs_exist_ok=True)
    stale = own.lake.path("outcomes", trace="wired", day=DAY, policy="lt_ua", file="llama2-70b")
    other = own.lake.path("outcomes", trace="wired", day=DAY, policy="hpa")
    for path in (stale, other):
        path.parent.mkdir(parents=True)
        path.touch()
    replayed: list[list[str]] = []
    play = nightly_replays.replay_unit_days
    monkeypatch.setattr(
        nightly_replays, "replay_unit_days", lambda *a: replayed.append([*a[2].policies]) or play(*a)
    )
    for missing in ("", "outcomes", "fleet_hours", ""):
        if missing and replayed:
            own.lake.path(missing, trace="wired", day=DAY, policy="reactive").unlink()
        (unit,) = nightly_replays.begin_units(own, DAY)
        nightly_replays.replay_missing_policies(own, DAY, unit, Progress())
    assert replayed == [[*POLICIES], ["reactive"], ["reactive"]]
    assert not stale.exists()
    assert not other.exists()


def test_llms_stay_together_where_something_couples_them(night: RunSettings) -> None:
    assert replay_units.independent_llm_sets(night, "lt_ua") == [(llm,) for llm in LLMS]
    both = [tuple(LLMS)]
    chains = {LLMS[0]: Cascade(LLMS, (0.5,), (0.0,))}
    assert replay_units.independent_llm_sets(changed(night, "replay", cascades=chains), "lt_ua") == both
    drawn = dataclasses.replace(night.config.replay.levels, by="enterprise")
    assert replay_units.independent_llm_sets(changed(night, "replay", levels=drawn), "lt_ua") == both
    closed = next(name for name, rule in night.config.rules.items() if rule.is_closed)
    assert replay_units.independent_llm_sets(night, closed) == both
    one_type = {
        llm: tuple(dataclasses.replace(one, gpu="a100-80gb") for one in deployments)
        for llm, deployments in night.config.fleet.deployments.items()
    }
    assert (
        replay_units.independent_llm_sets(changed(night, "fleet", deployments=one_type), "lt_ua") == both
    ), "13 x 8 + 13 x 4 > 97 GPUs"


def test_unknown_unit_cut_is_refused(night: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a nightly run, before it makes anything."""
    with pytest.raises(ConfigError, match=r"FLEETCAST_UNITS: unknown cut 'llms'. .*'llm'"):
        replay_units.nightly_units(night, {replay_units.UNITS_VARIABLE: "llms"})
    with pytest.raises(ConfigError, match=r"FLEETCAST_UNITS: unknown unit 'lt_ua'. Known: all"):
        replay_units.find_unit(night, "lt_ua")  # of a process that cuts by policy
    monkeypatch.setattr(SettingsResource, "load", lambda _: night)
    monkeypatch.setattr(nightly_run, "_run_night", lambda *_: pytest.fail("it begins"))
    monkeypatch.setenv(replay_units.UNITS_VARIABLE, "llms")
    with pytest.raises(ConfigError, match="FLEETCAST_UNITS: unknown cut 'llms'"):
        nightly_run.run_night(SettingsResource(config="wired", lake=""), DAY, Progress())
