"""A policy of one's own, as the page says: found by name, called during the replay, limited, tuned."""

import re
import sys
from datetime import date
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import make_plans, small_config

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.replays.policy_inputs import policy_schedules
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.studies.board_day import with_knobs
from fleetcast.models.world import config, own_policies
from fleetcast.models.world.own_policies import GROUP, FleetObservation, OwnPolicy, load_policy
from fleetcast.models.world.project_paths import ROOT
from fleetcast.models.world.toml_dataclasses import ConfigError, ConfigWarning

DAY = date(2025, 7, 3)  # the last of the small config
PAGE = ROOT / "data" / "docs" / "how-to" / "enter-the-board.md"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's file, with the entry point that its pyproject.toml has once it is installed."""
    blocks = dict(re.findall(r"```(python|toml)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S))
    (tmp_path / "my_policy.py").write_text(blocks["python"])
    folder = tmp_path / "my_policy-0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: my-policy\nVersion: 0.1\n")
    points = blocks["toml"].partition('[project.entry-points."fleetcast.policies"]')[2]
    (folder / "entry_points.txt").write_text(f"[{GROUP}]{points.replace(chr(34), '')}")
    monkeypatch.syspath_prepend(str(tmp_path))
    own_policies.installed_policies.cache_clear()
    yield tmp_path
    own_policies.installed_policies.cache_clear()
    sys.modules.pop("my_policy", None)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    folder = tmp_path_factory.mktemp("own")
    settings = load_settings(small_config(folder, requests_per_day="40_000.0"), folder / "lake")
    make_plans(settings, DAY, lambda s, *_: [30.0] * len(s.grid.service_options))
    return settings


def gpu_hours(settings: RunSettings, policy: str) -> float:
    found = settings.lake.sql(
        "select sum(serving_s + booting_s + draining_s) / 3600 as hours from fleet_hours "
        "where trace = $trace and day = $day and policy = $policy",
        trace=settings.trace,
        day=DAY,
        policy=policy,
    )
    return float(found["hours"][0].as_py())


def test_the_policy_of_the_page_is_found_replayed_and_tuned(installed: Path, night: RunSettings) -> None:
    settings = load_settings(str(night.config.file), night.lake.root)
    assert settings.config.rules["mine"].what == "as much as arrives and waits, one less at a time"
    hours = {}
    for factor in (0.5, 2.0):
        chosen = with_knobs(settings, {"mine": {"capacity_share": factor}})
        replay_day(chosen, DAY, ["mine"], Progress())
        hours[factor] = gpu_hours(chosen, "mine")
    assert hours[0.5] > 1.05 * hours[2.0]


def test_a_broken_package_stops_nothing_but_its_own_policy(installed: Path, night: RunSettings) -> None:
    points = installed / "my_policy-0.1.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "\ntypo = my_policy:nothere\n")
    with pytest.warns(
        ConfigWarning, match=r"typo = my_policy:nothere: .*Correct or uninstall it\. It is left out"
    ):
        rules = load_settings(str(night.config.file), night.lake.root).config.rules
    assert ("mine" in rules, "compact" in rules, "typo" in rules) == (True, True, False)


def test_it_is_called_every_minutes_with_what_has_happened_so_far(
    night: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instances that it wants are those that it later observes, within the limits of the pools."""
    seen: list[FleetObservation] = []

    def decide(observed: FleetObservation) -> np.ndarray:
        seen.append(observed)
        return np.full(len(observed.llm), 3.0 if len(seen) < 40 else 1e9)

    own = {"mine": OwnPolicy("three, then all", decide, every_minutes=15)}
    monkeypatch.setattr(config, "installed_policies", lambda: own)
    monkeypatch.setattr("fleetcast.assets.replays.policy_inputs.installed_policies", lambda: own)
    settings = load_settings(str(night.config.file), night.lake.root)
    assert policy_schedules(settings, DAY, ["mine"])["mine"].rows_per_hour == 4
    replay_day(settings, DAY, ["mine"], Progress())
    assert [observed.now_s for observed in seen] == [900.0 * n for n in range(96)]
    held = np.array([observed.serving + observed.booting for observed in seen])
    limits = np.clip(3, seen[0].least, seen[0].most)
    assert (held[20:40] == limits).all()
    assert (held[-1] >= held[39]).all()
    assert held[-1].sum() > held[39].sum()
    assert (held <= seen[0].most).all()
    assert max(observed.arriving_tokens_per_s.sum() for observed in seen) > 0
    assert seen[0].arriving_tokens_per_s.sum() == 0  # nothing has come yet


@pytest.mark.parametrize("answer", [np.zeros(1), np.nan, ["a"], None])
def test_an_answer_that_is_no_fleet_is_one_line(
    night: RunSettings, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    own = {"mine": OwnPolicy("wrong", lambda seen: answer)}
    monkeypatch.setattr(config, "installed_policies", lambda: own)
    monkeypatch.setattr("fleetcast.assets.replays.policy_inputs.installed_policies", lambda: own)
    settings = load_settings(str(night.config.file), night.lake.root)
    with pytest.raises(
        ValueError, match=r"mine at 0 s: got .* needed a finite number for each of the \d+ pools"
    ):
        replay_day(settings, DAY, ["mine"], Progress())


def test_a_policy_that_raises_is_one_line_with_its_place(
    night: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"mine": OwnPolicy("wrong", lambda seen: {}["gpu"])}
    monkeypatch.setattr(config, "installed_policies", lambda: own)
    monkeypatch.setattr("fleetcast.assets.replays.policy_inputs.installed_policies", lambda: own)
    settings = load_settings(str(night.config.file), night.lake.root)
    place = rf"{re.escape(__file__)}:\d+"
    message = rf"^mine at 0 s: its function decide raised KeyError \('gpu'\) at {place}\. Correct it\.$"
    with pytest.raises(ValueError, match=message):
        replay_day(settings, DAY, ["mine"], Progress())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reactive", "my_policy:mine", "a shipped policy has this name. Choose another"),
        ("a/b", "my_policy:mine", "got 'a/b', needed up to 60 letters"),
        ("mine", "no_such_module:mine", "it cannot be imported .*No module named 'no_such_module'"),
        ("mine", "my_policy:np", "got module, needed an OwnPolicy. Change the object"),
        ("mine", "my_policy:often", "got every_minutes = 7, scaling = 'follow'; needed one of 1, 2, 3"),
    ],
)
def test_a_policy_that_cannot_be_used_is_one_line(
    installed: Path, name: str, value: str, message: str
) -> None:
    with (installed / "my_policy.py").open("a") as file:
        file.write("\noften = mine._replace(every_minutes=7)\n")
    with pytest.raises(ConfigError, match=message):
        load_policy(EntryPoint(name, value, GROUP))
