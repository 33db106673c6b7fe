"""TOML that was made to hurt, days beyond the calendar, and where a config is looked for: one line each."""

import re
from datetime import date
from pathlib import Path

import pytest
from small import small_config
from test_cli import invoke, one_line

from fleetcast.assets.traces.trace_mapping import read_mapping
from fleetcast.models.traffic.trace_changes import load_changes
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import CONFIG_DIR, config_path, load_config
from fleetcast.models.world.toml_dataclasses import ConfigError

CATALOGUE = load_catalogue()
DEEP = "nests its tables and lists more than 20 deep. Flatten it."


@pytest.mark.parametrize(
    ("text", "said"),
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
def test_a_file_made_to_hurt_is_told_by_name_wherever_it_is_read(
    text: str, said: str, tmp_path: Path
) -> None:
    """At once, whatever Python's parser would do with it: as config, as mapping file, as changes."""
    path = tmp_path / "run.toml"
    path.write_text(text)
    for read in (
        lambda: load_config(str(path), CATALOGUE),
        lambda: read_mapping(tmp_path / "run.csv", "t", CATALOGUE),
        lambda: load_changes(path),
    ):
        with pytest.raises(ConfigError) as refused:
            read()
        told = str(refused.value)
        assert told.startswith("run.toml")
        assert said in told
        assert len(told) < 500
        assert "\n" not in told


@pytest.mark.parametrize(
    ("first_day", "days"), [("2099-12-31", 2), ("2095-01-01", 3660), ("2019-12-31", 20), ("1970-01-01", 3660)]
)
def test_a_trace_beyond_the_calendar_is_refused(first_day: str, days: int, tmp_path: Path) -> None:
    config = small_config(tmp_path, first_day=first_day, days=str(days))
    said = (
        rf"\[trace\] first_day, days: got {days:,} days from {first_day} on, needed days from 2020-01-01 to"
    )
    with pytest.raises(ConfigError, match=said):
        load_config(config, CATALOGUE)


def test_a_trace_may_end_on_the_last_day_of_the_calendar(tmp_path: Path) -> None:
    config = load_config(small_config(tmp_path, first_day="2099-12-30", days="2"), CATALOGUE)
    assert config.trace.replay_day == date(2099, 12, 31)


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
@pytest.mark.parametrize(
    "command",
    ["nightly", "replay --policy lt_i", "backtest", "sql from_nothing", "explain 1", "plan show",
     "plan ahead", "plan export --format json", "whatif", "decide", "levels",
     "timeline --llm a --region b --hour 1"],
)  # fmt: skip
def test_no_command_takes_a_day_on_which_no_request_can_be(command: str, day: str) -> None:
    assert f"--date: got 1 day from {day} on, needed" in one_line(invoke(*command.split(), "--date", day))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with a config in it, and nothing else; one stands in it."""
    small_config(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_where_a_config_is_looked_for(home: Path) -> None:
    assert config_path("~/small.toml") == home / "small.toml"
    assert config_path("~/small.toml").is_file()
    assert config_path("small.toml") == Path("small.toml")
    assert config_path("office.toml") == config_path("office") == CONFIG_DIR / "office.toml"
    (home / "office.toml").write_text("mine")
    assert config_path("office.toml") == Path("office.toml")  # one's own goes first
    assert config_path("office") == CONFIG_DIR / "office.toml"


@pytest.mark.parametrize("name", ["x.toml", "~/x.toml", "x", "sub/office.toml", "offce"])
def test_a_config_that_is_not_there_is_answered_with_those_that_are(name: str, home: Path) -> None:
    told = one_line(invoke("nightly", "--config", name))
    there = ", ".join(sorted(path.stem for path in CONFIG_DIR.glob("*.toml")))
    assert re.search(rf"There is no (file|config) .*; in data/config there is: {there}\.", told)
    assert "pyproject" not in told
    assert "~" not in told


def test_a_config_at_home_and_one_with_its_ending_reach_the_command(home: Path) -> None:
    for config, trace in (("~/small.toml", "small"), ("office.toml", "office")):
        asked = invoke("sql", "select $trace as trace", f"--config={config}")
        assert asked.stdout == f'"trace"\n"{trace}"\n'
    (home / "q.sql").write_text("select 1 as one")
    assert invoke("sql", "~/q.sql").stdout == '"one"\n1\n'
    assert "There is no file x.toml in" in one_line(invoke("generate", "--like=office", "--changes=~/x.toml"))
