"""Hostile TOML files, days outside the calendar, and the search path of a config: each error is one line."""

import dataclasses
import re
import typing
from datetime import date
from pathlib import Path

import pytest
from small import small_config
from test_cli import invoke, one_line

from fleetcast.assets.lake.settings import load_settings
from fleetcast.assets.traces.trace_mapping import read_mapping
from fleetcast.models.traffic.trace_changes import load_changes
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import CONFIG_DIR, config_path, load_config
from fleetcast.models.world.toml_dataclasses import ConfigError, convert_value

CATALOGUE = load_catalogue()
DEEP = "nests its tables and lists more than 20 deep. Flatten it."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = " + "[" * 2000 + "]" * 2000, DEEP),
        ("a = [\n" + "[\n" * 20_000, DEEP),
        (f"[{'.'.join('a' * 30)}]", DEEP),
        (".".join("a" * 400_000) + " = 1", "has a line of 800,003 characters, at most 5,000 are read"),
        ("#\n" * 600_000, "has 1,200,000 bytes, at most 1,048,576 are read. Shorten it."),
        ("a = 0x" + "f" * 4900, "a: got an integer of more than 64 bits. Shorten it."),
        ("a = " + "9" * 4900, "is not valid TOML: Exceeds the limit (4300 digits)"),
        ("a = 9999-12-31", "a: got 9999-12-31, needed a year from 1970 to 2099."),
        ("a = [0001-01-01T00:00:00+14:00]", "needed a year from 1970 to 2099."),
        ("x" * 4000 + " = 1", "xxx .... Known: "),
    ],
    ids=lambda text: text[:8],
)
def test_a_hostile_file_is_refused_by_name(text: str, expected: str, tmp_path: Path) -> None:
    """Refused at once, before Python's parser sees it: as config, as mapping file, as changes."""
    path = tmp_path / "run.toml"
    path.write_text(text)
    for read in (
        lambda: load_config(str(path), CATALOGUE),
        lambda: read_mapping(tmp_path / "run.csv", "t", CATALOGUE),
        lambda: load_changes(path),
    ):
        with pytest.raises(ConfigError) as refused:
            read()
        message = str(refused.value)
        assert message.startswith("run.toml")
        assert expected in message
        assert len(message) < 500
        assert "\n" not in message


@pytest.mark.parametrize(
    "table",
    ["fleet", "trace.office.apps", "replay.levels", "policies", "catalogue.regions", "based_on", "catalogue"],
)
def test_a_long_value_in_place_of_a_table_is_not_repeated(table: str, tmp_path: Path) -> None:
    *path, key = table.split(".")
    text = f"[{'.'.join(path)}]\n" if path else ""
    based_on = "" if key == "based_on" else 'based_on = "office"\n'
    file = tmp_path / "run.toml"
    file.write_text(f'{based_on}{text}{key} = "{"x" * 4000}"\n')
    with pytest.raises(ConfigError) as refused:
        load_settings(str(file), str(tmp_path / "lake"))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("first_day", "days"), [("2099-12-31", 2), ("2095-01-01", 3660), ("2019-12-31", 20), ("1970-01-01", 3660)]
)
def test_a_trace_after_the_last_calendar_day_is_refused(first_day: str, days: int, tmp_path: Path) -> None:
    config = small_config(tmp_path, first_day=first_day, days=str(days))
    expected = (
        rf"\[trace\] first_day, days: got {days:,} days from {first_day} on, needed days from 2020-01-01 to"
    )
    with pytest.raises(ConfigError, match=expected):
        load_config(config, CATALOGUE)


def test_a_trace_may_end_on_the_last_calendar_day(tmp_path: Path) -> None:
    config = load_config(small_config(tmp_path, first_day="2099-12-30", days="2"), CATALOGUE)
    assert config.trace.replay_day == date(2099, 12, 31)


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
@pytest.mark.parametrize(
    "command",
    ["nightly", "replay --policy lt_i", "backtest", "sql from_nothing", "explain 1", "plan show",
     "plan ahead", "plan export --format json", "whatif", "decide", "levels",
     "timeline --llm a --region b --hour 1"],
)  # fmt: skip
def test_commands_refuse_days_outside_the_calendar(command: str, day: str) -> None:
    assert f"--date: got 1 day from {day} on, needed" in one_line(invoke(*command.split(), "--date", day))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user with only a config in it; it is the working directory."""
    small_config(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_config_search_path(home: Path) -> None:
    assert config_path("~/small.toml") == home / "small.toml"
    assert config_path("~/small.toml").is_file()
    assert config_path("small.toml") == Path("small.toml")
    assert config_path("office.toml") == config_path("office") == CONFIG_DIR / "office.toml"
    (home / "office.toml").write_text("mine")
    assert config_path("office.toml") == Path("office.toml")  # the user's file comes first
    assert config_path("office") == CONFIG_DIR / "office.toml"


@pytest.mark.parametrize("name", ["x.toml", "~/x.toml", "x", "sub/office.toml", "offce"])
def test_a_missing_config_error_lists_the_configs(name: str, home: Path) -> None:
    message = one_line(invoke("nightly", "--config", name))
    there = ", ".join(sorted(path.stem for path in CONFIG_DIR.glob("*.toml")))
    assert re.search(rf"There is no (file|config) .*; in data/config there is: {there}\.", message)
    assert "pyproject" not in message
    assert "~" not in message


def test_a_long_error_is_cut_but_keeps_its_remedy() -> None:
    name = "9" * 4000
    message = one_line(invoke("ingest", "none.csv", "--columns", name))
    assert len(message) < 1700
    assert message.endswith("like arrived_at=startTime,input_tokens=in.")
    assert "File name too long" in one_line(invoke("sql", "select 1", "--config", f"{name}.toml"))


@pytest.mark.parametrize(
    "command", ["sql select --config ~nouser/x.toml", "generate --like=a --changes=~nouser/x.toml"]
)
def test_the_home_of_a_user_who_is_not_there_is_a_missing_file(command: str, home: Path) -> None:
    message = one_line(invoke(*command.split()))
    assert "There is no file" in message
    assert "~nouser" in message


def test_a_config_of_the_working_directory_reaches_the_command(home: Path) -> None:
    for config, trace in (("~/small.toml", "small"), ("office.toml", "office")):
        result = invoke("sql", "select $trace as trace", f"--config={config}")
        assert result.stdout == f'"trace"\n"{trace}"\n'
    (home / "q.sql").write_text("select 1 as one")
    assert invoke("sql", "~/q.sql").stdout == '"one"\n1\n'
    assert "There is no file x.toml in" in one_line(invoke("generate", "--like=office", "--changes=~/x.toml"))


def test_every_default_keeps_the_rule_of_its_field() -> None:
    """A file that gives the default as its value is accepted: of all tables of a config and the catalogue."""
    waiting: list[typing.Any] = [RunConfig, Catalogue]
    seen, checked = set(), 0
    while waiting:
        hint = waiting.pop()
        waiting += typing.get_args(hint)
        if not (isinstance(hint, type) and dataclasses.is_dataclass(hint)) or hint in seen:
            continue
        seen.add(hint)
        hints = typing.get_type_hints(hint, include_extras=True)
        waiting += hints.values()
        for field in dataclasses.fields(hint):
            value = field.default
            if value in (dataclasses.MISSING, None) or dataclasses.is_dataclass(value):
                continue
            as_read = list(value) if isinstance(value, tuple) else value
            assert convert_value(hints[field.name], as_read, f"{hint.__name__} {field.name}") == value
            checked += 1
    assert checked >= 70
