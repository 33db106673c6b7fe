"""The command line for a user: results, one-line errors, exit codes."""

import inspect
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import typer
import wired
from small import small_config
from typer.testing import CliRunner

from fleetcast import pipelines
from fleetcast.assets.demand import demand_history
from fleetcast.assets.lake.empty_query_hints import explain_empty_result
from fleetcast.assets.lake.settings import Progress, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.pages.value_format import format_value
from fleetcast.assets.replays.scorecards import read_scoreboard
from fleetcast.assets.traces import ingest
from fleetcast.models.world.config_loading import CONFIG_DIR
from fleetcast.pipelines import executors, nightly_run, runs, terminal, terminal_tables, trace_commands
from fleetcast.pipelines.cli import cli_app
from fleetcast.pipelines.lazy_group import import_commands
from fleetcast.pipelines.options import expand_path
from fleetcast.pipelines.terminal import cli_errors
from fleetcast.pipelines.trace_commands import show_findings

OFFICE = (CONFIG_DIR / "office.toml").read_text()


def invoke(*arguments: str):
    return CliRunner().invoke(cli_app, list(arguments))


def one_line(result) -> str:
    """The error of a refused command: exit code 2, one line, no traceback."""
    assert result.exit_code == 2
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_help_teaches_with_examples():
    help_text = invoke("--help").output
    for command in ("nightly", "ingest", "forget", "replay", "sql", "ui"):
        assert command in help_text
        assert f"fleetcast {command}" in invoke(command, "--help").output or command == "ui"
    assert "fleetcast advise my-trace.csv.gz" in help_text
    panels = re.findall(r"─ ([A-Z][a-z ]+) ─", help_text)
    assert panels == [
        "Options",
        "Start here",
        "Explore",
        "Plan",
        "Compare",
        "Traces",
    ]  # every command has one
    assert (
        "A request_id of the table outcomes." in invoke("explain", "--help").output
    )  # arguments have theirs too


def test_help_imports_no_command_and_no_heavy_package():
    code = "import sys; from fleetcast.pipelines.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    ).stdout
    *_, modules = found.strip().splitlines()
    heavy = {"pandas", "numba", "numpy", "dagster", "duckdb", "pyarrow", "matplotlib", "scipy"}
    assert heavy.isdisjoint(modules.split())
    assert "Start here" in found


def test_the_list_of_commands_has_the_first_paragraph_of_each_and_a_typing_error_one_suggestion():
    group = typer.main.get_command(cli_app)
    for name, real in import_commands(group).items():
        first = inspect.cleandoc(real.help).split("\n\n")[0]
        assert group.commands[name].help == " ".join(first.split()), name
        assert real.name == name
    for mistyped in (["nightyl"], ["plan", "shwo"]):
        assert invoke(*mistyped).stderr.count("Did you mean") == 1


def test_a_folder_is_no_config(tmp_path):
    (tmp_path / "a.toml").mkdir()
    assert "Name a TOML file" in one_line(invoke("nightly", "--config", str(tmp_path / "a.toml")))


def test_an_unknown_key_of_a_config_is_refused_with_the_nearest(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(OFFICE.replace("min_instances = ", "min_instance = "))
    assert "Did you mean 'min_instances'?" in one_line(invoke("nightly", "--config", str(path)))


def test_a_future_day_is_refused():
    assert "2099-12-31 is not in the calendar" in one_line(invoke("nightly", "--date", "2099-12-31"))


def test_an_unknown_policy_is_refused_with_the_nearest():
    assert "lt_ua" in one_line(invoke("replay", "--policy", "lt_uaa"))


def test_sql_writes_csv_when_piped_and_one_line_errors():
    result = invoke("sql", "select 42 as answer, 'a,b' as text")
    assert result.exit_code == 0
    assert result.stdout == '"answer","text"\n42,"a,b"\n'
    assert invoke("sql", "-- the answer\nselect 42 as answer").stdout == '"answer"\n42\n'
    nested = "[1, 2]::ubigint[] as l, {'a': date '2024-02-29'} as s, null::int[] as l, interval 1 day as i"
    lines = invoke("sql", f"select {nested}").stdout.splitlines()[1]
    assert lines == '"[1, 2]","{""a"": ""2024-02-29""}",,"1 day"'
    data = "'ab'::blob as b, ['ab'::blob] as l, {'x': 'ab'::blob} as s, '101'::bit as t, 10::bignum as n"
    lines = invoke("sql", f"select {data}, union_value(a := 1) as u, 1 as a, 2 as a").stdout.splitlines()
    assert lines[1] == '"6162","[""6162""]","{""x"": ""6162""}","101","10","1",1,2'
    assert "no_such_table" in one_line(invoke("sql", "from no_such_table"))
    assert "worst_hours" in one_line(invoke("sql", "queries/worst_hour.sql"))


def test_sql_stops_a_query_over_its_limits_and_names_the_options():
    many = "select list(a.range) from range(100_000_000) a, range(100) b"
    error = one_line(invoke("sql", many, "--memory-gib", "0.25"))
    assert "more than 0.25 GiB of memory and 1 GiB on disk" in error
    assert "--memory-gib 1" in error
    endless = (
        "select count(*) from range(1_000_000_000) a, range(1_000_000_000) b where a.range * b.range = -1"
    )
    begun = time.monotonic()
    error = one_line(invoke("sql", endless, "--time-limit-s", "0.5"))
    assert "was stopped after 0.5 s." in error
    assert "--time-limit-s 5" in error
    assert time.monotonic() - begun < 20


def test_sql_takes_parameters_and_explains_an_empty_result():
    found = invoke("sql", "select $policy as policy, hour(timestamp '2025-07-15 12:00') = $hour as is_noon",
                   "--param", "policy=lt_i", "--param", "hour=12")  # fmt: skip
    assert found.stdout == '"policy","is_noon"\n"lt_i",true\n'
    assert "Did you mean 'policy'?" in one_line(invoke("sql", "select $policy", "--param", "polcy=lt_i"))
    assert "must be NAME=VALUE" in one_line(invoke("sql", "select $policy", "--param", "policy"))
    assert "Did you mean $trace?" in one_line(invoke("sql", "select $trce"))
    assert "Give --param policy=VALUE." in one_line(invoke("sql", "queries/timeline.sql"))
    for option, value, query, line in (
        (
            "--date",
            "2025-07-15",
            "select $trace as t",
            "--date: the query has no $day, so it",
        ),
        (
            "--config",
            "office",
            "select $day as d",
            "--config: the query has no $trace, so it",
        ),
    ):
        found = invoke("sql", query, option, value)
        assert (found.exit_code, found.stdout.count("\n")) == (0, 2)
        assert found.stderr.startswith(line)
        assert not invoke("sql", query).stderr + invoke("sql", "select $trace, $day", option, value).stderr
    quoted = "select '$usd' as a /* $b */, coalesce($c, 'none') as c -- $d"
    assert invoke("sql", quoted).stdout == '"a","c"\n"$usd","none"\n'


def test_sql_lists_what_has_a_word_and_describes_columns():
    assert "There is no query" in one_line(invoke("sql"))
    every, late = (invoke("sql", "--list", *word).stdout.splitlines() for word in ((), ("LATE",)))
    assert len(late) < len(every) > 150
    assert any('"sql/queries/why_late.sql"' in line for line in late)
    assert any("lateness where" in line for line in late)  # a question, with its query
    assert "begins with 'xyz'" in one_line(invoke("sql", "--list", "xyz"))
    lines = invoke("sql", "describe Unit_Cost;").stdout.splitlines()
    assert lines[0] == '"column_name","column_type","comment"'
    assert '"served_region","VARCHAR","where the instances are, not the users"' in lines
    assert '"trace","VARCHAR","name of the trace"' in lines


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (0.1 + 0.2, "0.3"),
            (1e-05, "0.00001"),
            (-0.000012345, "-0.00001234"),
            (1e-09, "1e-09"),
            (0.0, "0"),
        ),
        *((99.999, "100"), (1234.5, "1,234"), (float("nan"), "–"), (float("inf"), "inf"), (12, "12")),
        ({"iw_fast": 0.1 + 0.2, "niw": None}, "{iw_fast: 0.3, niw: –}"),
        ([1e-05, b"ab"], "[0.00001, 6162]"),
    ],
)
def test_numbers_are_written_as_people_write_them(value, text):
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("queries/timeline.sql", "The table legs has nothing of trace t of day 2025-07-15: fleet"),
        ("queries/which_forecast_pays.sql", "decisions has nothing of trace t of day 2025-07-15: fleet"),
        ("from token_cdf", "The table token_histogram has nothing: fleetcast characterise TRACE fills it."),
        ("from closed_plans", "closed_plans has nothing: fleetcast replay --policy corrected_closed fills"),
        ("queries/who_answers.sql", "plan quality fills it, by default of trace quality: "
         "query that with --config quality."),
        ("from all_plans where day = $day", "day_ahead_plans has nothing of day 2025-07-15: fleetcast"),
        ("from scoreboard", "The table scoreboard has nothing: fleetcast nightly fills it."),
    ],
)  # fmt: skip
def test_a_recipe_without_rows_names_what_it_lacks(query, message, tmp_path):
    given = {"trace": "t", "day": date(2025, 7, 15)}
    assert message in " ".join(explain_empty_result(Lake(tmp_path), query, given))


@pytest.mark.parametrize("width", [2, 24, 60, 400])
def test_no_text_is_broken_however_narrow_the_terminal(width):
    """A line that a person or a program copies is one line: of both consoles, of any length."""
    for length in range(1, 200, 9):
        sheet = StringIO()
        line = "ab cd " * length
        terminal_tables.LiteralConsole(file=sheet, width=width).print(line, style="red")
        assert sheet.getvalue() == f"{line}\n"


@pytest.mark.parametrize("width", [24, 60, 400])
def test_no_number_is_cut_however_narrow_the_terminal(width, monkeypatch):
    sheet = StringIO()
    monkeypatch.setattr(terminal_tables, "OUT", terminal_tables.LiteralConsole(file=sheet, width=width))
    monkeypatch.setattr(terminal_tables.sys, "stdout", SimpleNamespace(isatty=lambda: True))
    answer = {f"column_{n}": [1234567.891 + n, None] for n in range(6)}
    terminal_tables.show_table(
        pa.table(
            {
                "name": ["[x]", "y"],
                "at": [datetime(2025, 7, 15, 1)] * 2,
                "b": [b"ab", None],
                "l": [[b"ab"], None],
                **answer,
            }
        ).to_reader()
    )
    terminal_tables.show_board("board", ("policy", *(f"two\nlines {n}" for n in range(6))),
                      [("lt_i", *(f"{n},234,567" for n in range(6)))])  # fmt: skip
    printed = sheet.getvalue()
    for n in range(6):
        assert f"1,234,{568 + n}" in printed
        assert f"{n},234,567" in printed
    assert "[x]" in printed
    assert "6162" in printed
    assert "[6162]" in printed
    assert "b'" not in printed
    assert "2025-07-15 01:00:00" in printed
    assert "…" not in printed


def test_the_version_is_that_of_the_package():
    assert invoke("--version").output.strip() == f"fleetcast {version('fleetcast')}"


def test_the_ui_of_a_background_job_ends_on_a_signal_without_a_traceback():
    """A shell script starts background jobs with SIGINT ignored, and an ignored signal outlives exec.

    Dagster's code server is signalled while it loads the definitions. Other processes print every error.
    """
    served = (
        "import dagster, signal\n"
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, flush=True)\n"
        "import fleetcast.pipelines\n"
        "with dagster.raise_execution_interrupts():\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
    )
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "execute = os.execv\n"
        f"os.execv = lambda path, _: execute(path, [path, '-c', {served!r}])\n"
        "from fleetcast.pipelines.cli import cli_app\n"
        "cli_app(['ui', '--port', sys.argv[1]])\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", code, str(port)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (ended.stdout.splitlines()[-1:], ended.stderr, ended.returncode) == (["False"], "", 1)
    before = sys.excepthook
    runpy.run_path(str(pipelines.__file__))
    assert sys.excepthook is before


@pytest.mark.parametrize(
    "arguments",
    [
        ("sql", "select range from range(1_000_000)"),  # rows: pyarrow writes
        ("sql", "--list"),  # less than the pipe's buffer: the end of the process writes
        ("--help",),  # rich writes
    ],
)
def test_a_closed_pipe_ends_a_command_with_its_own_code_and_no_word(arguments, tmp_path):
    """`| head -n 0`: a pipe whose reader has left before the command writes."""
    code = "from fleetcast.pipelines.cli import main; main()"
    environment = os.environ | {"FLEETCAST_LAKE": str(tmp_path)}
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


NAME = "[red]a[/red] :dog: [link=x]b[/]\x1b[2J\x9b.csv"
SHOWN = r"[red]a[/red] :dog: [link=x]b[/]\x1b[2J\x9b.csv"


def test_names_of_files_are_printed_as_they_are(capsys, monkeypatch):
    """Markup, emoji and control characters change neither a message, a table nor a progress bar."""
    with pytest.raises(typer.Exit), cli_errors():
        raise ValueError(f"{NAME}\nError: forged.")
    assert capsys.readouterr().err == f"Error: {SHOWN}\\nError: forged.\n"
    sheet = StringIO()
    wide = terminal_tables.LiteralConsole(file=sheet, width=200, force_terminal=True)
    monkeypatch.setattr(terminal, "ERR", wide)
    for module in (terminal_tables, trace_commands):
        monkeypatch.setattr(module, "OUT", wide)
    terminal.show_refused([NAME])
    terminal_tables.show_board(NAME, ("file", "rows"), [(NAME, "1")])
    row = {
        "file": NAME,
        "format": "csv",
        "trace": "t",
        "days": "no day",
        "note": NAME,
        "columns": "",
        "mend": "",
    }
    trace_commands.show_landed([{**row, "rows_in": "1", "rows_kept": "1", "rows_quarantined": "0"}])
    with terminal.ProgressBars().bar("[red]rows[/red] of a", 2) as step:
        step(1)
    assert sheet.getvalue().count("[red]a[/red] :dog: [link=x]b[/]") == 5
    assert "[red]rows[/red] of a" in sheet.getvalue()
    assert "\x1b[2J" not in sheet.getvalue()


def test_bytes_and_sizes_that_are_none_are_refused_in_one_line(tmp_path, monkeypatch):
    """No traceback, no endless start: a byte that is no UTF-8, impossible cores and memory, a lost home."""
    assert "a byte that is no UTF-8, at character 9" in one_line(invoke("sql", "select '\udcff' as a"))
    (tmp_path / "bad.sql").write_bytes(b"select '\xff' as a")
    assert "bad.sql is no UTF-8 text: byte 9. Save it" in one_line(invoke("sql", str(tmp_path / "bad.sql")))
    (tmp_path / "bom.sql").write_bytes(b"\xef\xbb\xbfselect 1 as a")
    assert invoke("sql", str(tmp_path / "bom.sql")).stdout == '"a"\n1\n'
    (tmp_path / "bom.toml").write_bytes(b'\xef\xbb\xbfbased_on = "office"\n')
    assert invoke("sql", "select 1 as a", "--config", str(tmp_path / "bom.toml")).exit_code == 0
    one_line(invoke("sql", "select 1", "--config", "x" * 300))
    for name, value in (("FLEETCAST_CORES", "1e9"), ("FLEETCAST_MEMORY_GIB", "1e300")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert f"{name} is '{value}', needed a number from 1 to" in one_line(invoke("sql", "select 1"))
    monkeypatch.setattr(runs, "HOME", tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"^FLEETCAST_HOME is .*, which is no folder\. Make it: mkdir -p "):
        runs.set_dagster_home()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("", ""),
        ("in_process", ""),
        ("multiprocess", "FLEETCAST_EXECUTOR=multiprocess applies to runs that Dagster starts"),
        ("rya", "unknown executor 'rya'"),
    ],
)
def test_an_executor_that_a_command_does_not_use_is_named(name, line, monkeypatch):
    monkeypatch.setenv("FLEETCAST_EXECUTOR", name)
    try:
        found = executors.describe_unused_executor()
    except ValueError as error:
        found = str(error)
    assert found.startswith(line) if name != "rya" else line in found
    assert (found == "") == (line == "")


def test_a_nightly_run_says_on_stderr_that_it_does_not_use_the_executor(monkeypatch):
    """Before it begins: here a day that is not in the calendar ends it."""
    monkeypatch.setenv("FLEETCAST_EXECUTOR", "multiprocess")
    result = invoke("nightly", "--date", "2099-12-31")
    first, second = result.stderr.splitlines()
    assert first == executors.describe_unused_executor()
    assert "2099-12-31 is not in the calendar" in second
    assert result.stdout == ""
    monkeypatch.setenv("FLEETCAST_EXECUTOR", "in_process")
    assert "2099-12-31" in one_line(invoke("nightly", "--date", "2099-12-31"))


def test_ingest_ends_with_its_checks(monkeypatch):
    """A check that failed is named, and the exit code is 1."""
    monkeypatch.setattr(ingest, "landed_files", lambda: [Path("a.csv")])
    for broken in ([], ["landing: every_file_is_read"]):
        summary = nightly_run.LandingSummary([], [], [], 3, broken)
        monkeypatch.setattr(nightly_run, "land_files", lambda *_, summary=summary: summary)
        result = invoke("ingest")
        assert result.exit_code == len(broken), result.output
        failed = [f"check failed  {name}" for name in broken]
        assert result.stdout.splitlines() == [*failed, f"checks   {3 - len(broken)} of 3 hold"]


def test_the_ui_refuses_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Port {port} is in use" in one_line(invoke("ui", "--port", str(port)))


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "Interrupted."),
        (ValueError("got 3, needed 4"), 2, "Error: got 3, needed 4"),
        (dg.Failure("the disk is full"), 2, "Error: the disk is full"),
        (PermissionError(13, "Permission denied", "lake"), 2, "Error: lake: Permission denied."),
    ],
)
def test_errors_are_printed_in_one_line(raised, code, message, capsys):
    with pytest.raises(Exception, match=str(code)) as left, cli_errors():
        raise raised
    assert left.value.exit_code == code
    assert capsys.readouterr().err.startswith(message)


@contextmanager
def at_home(folder: Path, **changes: str) -> Iterator[SettingsResource]:
    """Three days of little load, in a lake and a Dagster home of their own."""
    config = small_config(folder, **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder))
        patch.setattr(nightly_run, "landed_files", list)
        patch.chdir(folder)
        yield SettingsResource(config=config, lake=str(folder / "lake"))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SettingsResource]:
    """One policy, and no nightly run yet."""
    with at_home(tmp_path, policies='["reactive"]') as resource:
        yield resource


def test_nightly_runs_stop_at_the_first_without_scoreboard(small, monkeypatch):
    boards = {date(2025, 7, 1): pa.table({}), date(2025, 7, 2): None, date(2025, 7, 3): pa.table({})}

    def fake(resource, day, progress):
        return nightly_run.NightlyRun("small", day, boards[day], None, Path(), Path(), 1, [], [], [], [], [])

    monkeypatch.setattr(nightly_run, "run_night", fake)
    assert [one.day for one in nightly_run.run_nights(small, None, 1, Progress())] == [date(2025, 7, 3)]
    assert [one.day for one in nightly_run.run_nights(small, None, 3, Progress())] == [*boards][:2]


def test_a_day_before_the_trace_is_refused(small):
    with pytest.raises(
        ValueError, match=r"^No history to forecast 2025-07-01 from: the trace 'small' begins on"
    ):
        nightly_run.run_night(small, date(2025, 7, 1), Progress())


def test_the_default_config_loads():
    settings = load_settings("office")
    assert settings.config.trace.replay_day not in settings.history(settings.config.trace.replay_day)
    assert len(settings.history(settings.config.trace.replay_day)) == settings.config.forecast.history_days


def test_a_second_config_must_not_overwrite_the_results_of_the_first(small, tmp_path):
    """Two folders may hold a config of the same name; a name is free again when its config is deleted."""
    (tmp_path / "other").mkdir()
    first, other = (
        load_settings(small_config(folder), small.lake) for folder in (tmp_path, tmp_path / "other")
    )
    with pytest.raises(ValueError, match="No history"):
        nightly_run.run_night(small, date(2025, 7, 1), Progress())
    demand_history.claim_trace_name(other)  # a refused run claims nothing
    with pytest.raises(
        ValueError, match=r"'small' belongs to .*/other/small\.toml; .*small\.toml would .*: rm -r /"
    ):
        demand_history.claim_trace_name(first)
    other.config.file.unlink()
    demand_history.claim_trace_name(first)


def test_a_bad_file_in_landing_is_reported_and_others_still_land(small, tmp_path, monkeypatch, capsys):
    from fleetcast.assets.traces import landing

    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    clipped = "".join(f"2023-11-16 18:17:{n}.9799600,2048,{n}\n" for n in range(10, 40))
    good.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{clipped}")
    bad.write_text("when,what\n1,2\n")
    monkeypatch.setattr(landing, "landed_files", lambda: [bad, good])
    monkeypatch.setattr(landing, "lone_mappings", lambda: [tmp_path / "godo.toml"])
    landed = nightly_run.land_files(small, Progress())
    assert [file["file"] for file in landed.files] == ["good.csv"]
    assert len(landed.refused) == 2
    assert "godo.toml describes no file: none next to it is called godo" in landed.refused[0]
    assert "bad.csv" in landed.refused[1]
    assert landed.broken == [nightly_run.UNREAD]  # a warning of the quality report breaks nothing
    assert [(f["verdict"], f["aspect"]) for f in landed.findings] == [
        ("warn", "clipped tokens"), ("note", "truncated days"), ("note", "tier"),
    ]  # fmt: skip
    show_findings(landed.findings)
    output = capsys.readouterr().out
    assert (
        "warn  azure_llm good.csv  clipped tokens: input_tokens end in a spike at 2048 (30 rows, 100 %)"
        in output
    )
    of_share = {**landed.findings[0], "file": "all", "rows": "", "share": "61 %", "detail": "reused"}
    show_findings([of_share, {**of_share, "share": ""}])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("reused")[2] for line in lines] == [" (61 %)", ""]


@pytest.fixture
def landing_folder(small, tmp_path, monkeypatch) -> Path:
    """A landing folder and a lake that the commands use."""
    from fleetcast.assets.traces import ingest, landing, landing_folder

    folder, found = tmp_path / "landing", ingest.landed_files
    monkeypatch.setattr(SettingsResource, "deployed", classmethod(lambda cls: small))
    monkeypatch.setattr(landing_folder, "LANDING_DIR", folder)
    for module in (ingest, landing, nightly_run):
        monkeypatch.setattr(module, "landed_files", lambda: found(folder))
    monkeypatch.setattr(landing, "lone_mappings", list)
    return folder


def test_ingest_keeps_the_columns_and_rows_refused_in_bulk_end_with_exit_code_1(
    small, landing_folder, tmp_path, monkeypatch
):
    """The nightly run prints the same line, and ends with the same code."""
    log, good = tmp_path / "log.csv", [f"2025-03-01 00:00:{n:02d},5,6" for n in range(20)]
    log.write_text("\n".join(["begun,in,out", *good]))
    named = ("ingest", str(log), "--columns", "arrived_at=begun,input_tokens=in", "--quiet")
    found = invoke(*named, "--columns", "output_tokens=out")
    assert found.exit_code == 0, found.output
    assert "20 rows in = 20 kept + 0 quarantined" in found.stdout
    assert "mend" not in found.stdout
    columns = 'columns = { arrived_at = "begun", input_tokens = "in", output_tokens = "out" }\n'
    assert (landing_folder / "log.toml").read_text() == columns
    (landing_folder / "log.csv").write_text("\n".join(["begun,in,out", *good, *["yesterday,5,6"] * 20]))
    found = invoke("ingest", "--quiet")
    [line] = [line for line in found.stdout.splitlines() if line.startswith("mend")]
    assert line.startswith("mend  log.csv: 20 of 40 rows are in quarantine: the timestamp is missing")
    assert found.exit_code == 1
    stopped = SimpleNamespace(checks=0, broken=[], alarms=[])
    run_night = nightly_run.run_night
    monkeypatch.setattr(nightly_run, "run_night", lambda _, day, to: run_night(small, date(2025, 7, 3), to))
    with monkeypatch.context() as patch:  # no plan and no replay: nothing but the files matters here
        run_job = nightly_run.run_job
        patch.setattr(
            nightly_run, "run_job", lambda name, *rest: run_job(name, *rest) if name == "land" else stopped
        )
        patch.setattr(nightly_run.demand_history, "consecutive_stretches", lambda days: [])
        patch.setattr(nightly_run.scorecards, "read_scoreboard", lambda *_: None)
        patch.setattr(nightly_run.scorecards, "attainment_by_target", lambda *_: None)
        found = invoke("nightly", "--quiet")
    assert line in found.stdout.splitlines()
    assert found.exit_code == 1, found.output


def test_a_replay_prints_the_row_of_its_policy(wired_scored, monkeypatch):
    """Of a replay that is played here: the command gives it its options, and prints what it returns."""
    board = read_scoreboard(wired_scored, wired.DAY)
    [row] = board.filter(pc.field("policy") == "static").to_pylist()

    def replay(resource, day, policy, _):
        assert resource.load() is wired_scored
        return board.filter(pc.field("policy") == policy), wired_scored.trace, day

    monkeypatch.setattr(SettingsResource, "load", lambda _: wired_scored)
    monkeypatch.setattr(nightly_run, "replay_policy", replay)
    found = invoke("replay", "--policy", "static", "--date", str(wired.DAY))
    assert found.exit_code == 0, found.output
    assert f"wired, {wired.DAY}" in found.stdout
    [line] = [line for line in found.stdout.splitlines() if line.startswith("static")]
    assert f"{row['usd']:,.0f}" in line.split()


def test_quiet_progress_is_a_line_a_minute(monkeypatch):
    sheet, clock_s = StringIO(), [0.0]
    monkeypatch.setattr(terminal, "ERR", terminal_tables.LiteralConsole(file=sheet, width=20))
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    monkeypatch.setattr(terminal, "QUIET_LINE_S", 10.0)
    for total in (8, 0):
        with terminal.MinuteLines().bar("[red]rows[/red] of a", total) as step:
            for done in range(9):  # every 4 s
                step(done)
                clock_s[0] += 4.0
    shares = (", 38%", ", 62%", ", 100%", "", "", "")
    assert sheet.getvalue().splitlines() == [
        f"[red]rows[/red] of a{share} after {n % 3 + 1} min" for n, share in enumerate(shares)
    ]


def test_an_empty_landing_folder_is_reported_in_one_line(monkeypatch):
    from fleetcast.assets.traces import ingest

    monkeypatch.setattr(ingest, "landed_files", list)
    assert "data/landing has no trace file" in one_line(invoke("ingest"))


@pytest.mark.parametrize(
    ("command", "former", "name"),
    [
        ("try", "--on", "--fleet"),
        ("advise", "--on", "--fleet"),
        ("advise", "--as", "--assume-llm"),
        ("gpus", "--apart", "--disaggregated"),
        ("gpus", "--together", "--colocated"),
    ],
)
def test_a_former_option_name_means_the_same(command, former, name):
    parameters = import_commands(typer.main.get_command(cli_app))[command].params
    assert (
        [one.name for one in parameters if former in one.opts]
        == [one.name for one in parameters if name in one.opts]
        != []
    )


MEASURED = ("--llm", "llama3.1-8b", "--gpu", "h100-80gb", "--tensor-parallel", "1")


@pytest.mark.parametrize(
    "arguments",
    [
        ("calibrate", "/dev/zero", *MEASURED),
        ("calibrate", "log.csv", "--engine", "/dev/zero", *MEASURED),
        ("plan", "ran", "/dev/zero"),
        ("configure", "llama3.1-8b", "--trace", "/dev/zero"),
        ("try", "/dev/zero", "--fleet", "1 x llama3.1-8b@1xh100-80gb"),
    ],
)
def test_a_device_that_never_ends_is_no_file(arguments: tuple[str, ...]) -> None:
    """It would fill the memory. /dev/null is one that ends."""
    assert "/dev/zero is a device, which may never end. Name a file." in one_line(invoke(*arguments))
    assert expand_path(Path("/dev/null")) == Path("/dev/null")


def test_a_remedy_names_the_config_unless_it_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "of mine.toml"
    trace = '[trace]\nname = "mine"\nfirst_day = 2025-07-01\ndays = 3\nseed = 1\n'
    own.write_text(f'based_on = "office"\n{trace}', encoding="utf-8")
    texts = {}
    for default in ("", "azure"):
        monkeypatch.setenv("FLEETCAST_CONFIG", default)
        for name in ("office", "azure", str(own)):
            texts[default, name] = load_settings(name, tmp_path / "lake").command("nightly")
    assert [*texts.values()] == [
        "fleetcast nightly",
        "fleetcast nightly --config azure",
        f"fleetcast nightly --config '{own}'",
        "fleetcast nightly --config office",
        "fleetcast nightly",
        f"fleetcast nightly --config '{own}'",
    ]
