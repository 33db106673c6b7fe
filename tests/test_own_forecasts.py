"""A forecast method of an installed package, as the page says: found by name, walked, checked."""

import dataclasses
import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from fleetcast.assets.lake.settings import load_settings
from fleetcast.assets.studies.study import prepared_lake_name
from fleetcast.models.forecast.backtest import BacktestClock, walk_forward
from fleetcast.models.forecast.walk_predictions import (
    SLOW_CUTOFFS,
    methods_to_walk,
    predict_from_walks,
    warm_up_clock,
)
from fleetcast.models.world import own_forecasts
from fleetcast.models.world.config import ForecastConfig
from fleetcast.models.world.own_forecasts import FORECAST_GROUP, load_forecast
from fleetcast.models.world.project_paths import ROOT
from fleetcast.models.world.toml_dataclasses import ConfigError, ConfigWarning, build_dataclass

PAGE = ROOT / "data" / "docs" / "how-to" / "plug-in-a-forecast.md"
CLOCK = BacktestClock(72, 1, 3, 24)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The page's blocks; its function is installed."""
    text = PAGE.read_text(encoding="utf-8")
    code, *tables = re.findall(r"```(?:python|toml)\n(.*?)```", text, flags=re.S)
    (tmp_path / "my_forecast.py").write_text(code)
    folder = tmp_path / "my_forecast-0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: my-forecast\nVersion: 0.1\n")
    points = tomllib.loads(tables[0])["project"]["entry-points"][FORECAST_GROUP]
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (folder / "entry_points.txt").write_text(f"[{FORECAST_GROUP}]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    own_forecasts.installed_forecasts.cache_clear()
    yield tables
    own_forecasts.installed_forecasts.cache_clear()
    sys.modules.pop("my_forecast", None)


def test_the_method_of_the_page_is_named_walked_and_calibrated(page: list[str]) -> None:
    table = tomllib.loads(page[1])["forecast"]
    rest = {"paper_method": "last_value", "bucket_minutes": 60, "history_days": 7, "niw_buffer_share": 0.1}
    assert build_dataclass(ForecastConfig, table | rest, "[forecast]").method == "mine"
    with pytest.raises(ConfigError, match=r"unknown forecast method 'mime'\. Did you mean 'mine'"):
        build_dataclass(ForecastConfig, table | rest | {"method": "mime"}, "[forecast]")
    demand = np.random.default_rng(0).uniform(1, 9, (2, 96))
    assert methods_to_walk(["mine"]) == ["mine"]
    early = warm_up_clock(CLOCK, "mine")
    assert early.first_cutoff == CLOCK.first_cutoff - SLOW_CUTOFFS - CLOCK.lag
    found = predict_from_walks(demand, {"mine": walk_forward(demand, "mine", early)}, CLOCK, ["mine"])["mine"]
    assert found.mean[:, 0] == pytest.approx(np.repeat(demand[:, 68:72].mean(axis=1)[:, None], 3, axis=1))
    assert (found.quantiles[..., 1] > found.mean).all()


@pytest.mark.parametrize(
    ("answer", "message"),
    [("demand[:, :1]", r"mine: got .* of the shape \(2, 1\), needed rates of the shape \(2, 3\)"),
     ("['many'] * 2", r"mine: got .* needed rates of the shape \(2, 3\): \(series, buckets ahead\)"),
     ("demand.sort()", "mine raised ValueError .*read-only"),
     ("1 / 0", r"mine raised ZeroDivisionError \(division by zero\) at .*:\d+\. Correct it\.$")],
)  # fmt: skip
def test_an_answer_that_is_no_forecast_is_one_line(
    page: list[str], monkeypatch: pytest.MonkeyPatch, answer: str, message: str
) -> None:
    forecast = eval(f"lambda demand, horizon: {answer}")
    monkeypatch.setattr("fleetcast.models.forecast.installed_forecasts", lambda: {"mine": forecast})
    with pytest.raises(ValueError, match=message):
        walk_forward(np.ones((2, 96)), "mine", CLOCK)


def test_rates_that_are_not_finite_are_replaced_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {"mine": lambda demand, horizon: np.full((2, horizon), np.nan)}
    monkeypatch.setattr("fleetcast.models.forecast.installed_forecasts", lambda: nothing)
    mean, fallbacks = walk_forward(np.ones((2, 96)), "mine", CLOCK)
    assert mean == pytest.approx(1.0)
    assert set(fallbacks.ravel()) == {"last_value: the forecast diverged"}


def test_a_broken_package_is_left_out_with_a_line_and_stops_no_other(page: list[str], tmp_path: Path) -> None:
    points = tmp_path / "my_forecast-0.1.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "typo = my_forecast:nothere\n")
    with pytest.warns(
        ConfigWarning, match=r"typo = my_forecast:nothere: .*Correct or uninstall it\. It is left"
    ):
        assert list(own_forecasts.installed_forecasts()) == ["mine"]


def test_a_changed_method_has_forecasts_of_its_own(page: list[str], tmp_path: Path) -> None:
    """What a board keeps of a day depends on the code of the installed method that the config names."""
    settings = load_settings("office", tmp_path / "lake")
    forecast = settings.config.forecast
    named = settings.with_config(forecast=dataclasses.replace(forecast, methods=(*forecast.methods, "mine")))
    own_forecasts.installed_forecasts()
    before = [prepared_lake_name(one) for one in (settings, named)]
    module = tmp_path / "my_forecast.py"
    module.write_text(module.read_text() + "\n# changed\n")
    after = [prepared_lake_name(one) for one in (settings, named)]
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weighted", "my_forecast:forecast", "a shipped method has this name. Choose another"),
        ("a/b", "my_forecast:forecast", "got 'a/b', needed up to 60 letters"),
        ("mine", "no_such_module:forecast", "it cannot be imported .*No module named 'no_such_module'"),
        ("mine", "my_forecast:__name__", "got str, needed a function. Change the object"),
    ],
)
def test_a_method_that_cannot_be_used_is_one_line(
    page: list[str], name: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_forecast(EntryPoint(name, value, FORECAST_GROUP))
