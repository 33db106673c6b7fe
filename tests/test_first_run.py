"""The first run and the next: nothing is made twice, nobody waits in silence, nothing is left running."""

import os
import re
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import dagster as dg
import pytest
from small import small_config

from assets.demand import demand
from assets.lake import kept
from assets.lake.settings import Progress, Settings
from assets.pages.telling import SettingsResource
from models.replay import beside
from models.replay.beside import compile_kernel
from models.replay.kernel import account, advance, patience, start_hour
from pipelines import night
from pipelines.night import run_night
from pipelines.runs import RunFailed
from pipelines.terminal import Bars

DAY = date(2025, 7, 3)
ENTRIES = (advance, account, patience, start_hour)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SettingsResource:
    """Three days of a trickle, one policy, in a lake and a Dagster home of their own."""
    config = small_config(tmp_path, policies='["lt_i"]')
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    monkeypatch.setattr(night, "landed_files", list)
    monkeypatch.chdir(tmp_path)
    return SettingsResource(config=config, lake=str(tmp_path / "lake"))


def made(settings: Settings) -> dict[str, int]:
    """Every Parquet file and figure, and when it was written."""
    found = [*settings.lake.root.rglob("*.parquet"), *settings.figures(DAY).glob("*.png")]
    return {str(p.relative_to(settings.lake.root.parent)): p.stat().st_mtime_ns for p in found}


def stages_made_again(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """The tables, and figures, of which a file is new or was written again."""
    return {path.split("/")[1] for path in after if after[path] != before.get(path)}


def test_a_stage_is_made_again_only_when_what_it_is_made_from_has_changed(small, monkeypatch, capsys):
    compile_kernel()
    compiled = [list(entry.signatures) for entry in ENTRIES]
    run_night(small, DAY, Progress())
    assert [list(entry.signatures) for entry in ENTRIES] == compiled  # beside is compiled what is used
    settings = small.load()
    lake, first = settings.lake, made(settings)
    board = run_night(small, DAY, Bars()).board
    assert made(settings) == first
    told = "replays of 2025-07-03 are there: nothing that they are made from has changed"
    assert told in capsys.readouterr().err

    lake.path("outcomes", trace="small", day=DAY, policy="lt_i").unlink()
    assert run_night(small, DAY, Progress()).board.equals(board)
    second = made(settings)
    assert stages_made_again(first, second) == {"outcomes", "fleet_hours", "scorecard", "small"}  # figures
    os.utime(lake.path("demand", trace="small", day=date(2025, 7, 2)))  # as if it had been written again
    run_night(small, DAY, Progress())
    third = made(settings)
    made_again = stages_made_again(second, third)
    assert made_again > {"forecasts", "plans"}
    assert not made_again & {"outcomes", "scorecard"}, "a replay goes by what plans say, not by their clocks"
    monkeypatch.setattr(kept, "code", lambda: "another version")
    run_night(small, DAY, Progress())
    assert stages_made_again(third, made(settings)) > {"forecasts", "plans", "outcomes", "scorecard"}
    small_config(Path(small.config).parent, policies='["lt_i"]', epsilon="0.7")
    fourth = made(settings)
    run_night(small, DAY, Progress())
    assert stages_made_again(fourth, made(settings)) > {"forecasts", "plans", "outcomes"}


def test_a_stage_that_did_not_end_is_made_again(small):
    settings = small.load()
    with pytest.raises(ZeroDivisionError), kept.made_once(settings, "plans", DAY):
        raise ZeroDivisionError
    for expected in (True, False):
        with kept.made_once(settings, "plans", DAY) as is_needed:
            assert is_needed == expected


def test_the_history_is_one_run_that_tells_of_each_day_and_goes_on_where_it_was_stopped(small, monkeypatch):
    honest, seen = demand.build_demand, list[date]()

    def one_day_only(lake, trace, day):
        if seen:
            raise ValueError("no more")
        seen.append(day)
        return honest(lake, trace, day)

    monkeypatch.setattr(demand, "build_demand", one_day_only)
    with pytest.raises(RunFailed, match=r"^no more$"):
        run_night(small, DAY, Progress())
    settings = small.load()
    before = {path: at for path, at in made(settings).items() if not path.startswith("lake/tiers")}
    assert len(before) == 3  # two days of requests, one of demand
    monkeypatch.setattr(demand, "build_demand", honest)
    run_night(small, DAY, Progress())
    assert before.items() <= made(settings).items()
    with dg.DagsterInstance.get() as instance:
        runs = [run for run in instance.get_runs() if run.job_name == "history"]
        assert sorted(run.status.value for run in runs) == ["FAILURE", "SUCCESS"]
        for table in ("requests", "demand"):
            events = instance.fetch_materializations(dg.AssetKey(table), limit=100).records
            told = {event.partition_key: event.asset_materialization.metadata for event in events}
            assert sorted(told) == ["2025-07-01", "2025-07-02", "2025-07-03"]
            for day, said in told.items():
                rows = settings.lake.count(table, trace="small", day=date.fromisoformat(day))
                assert said["dagster/row_count"].value == rows > 0
                assert said["dagster/column_schema"].value.columns


def test_where_output_is_piped_a_stage_is_a_line_with_its_seconds(small, capsys):
    run_night(small, DAY, Bars())
    said = capsys.readouterr().err
    lines = said.removesuffix("\n").split("\n")
    assert all(re.fullmatch(r"[ -~]+ \.\.\. \d+\.\d s", line) for line in lines), said
    assert {line.split()[0] for line in lines} >= {"requests", "demand", "forecast", "plan", "replay", "draw"}
    with pytest.raises(KeyboardInterrupt), Bars().bar("plan", 3):
        raise KeyboardInterrupt
    assert re.fullmatch(r"plan \.\.\. stopped after \d+\.\d s\n", capsys.readouterr().err)


def is_there(process: int) -> bool:
    """Whether a process is alive; a zombie that nobody has asked for is not."""
    status = Path(f"/proc/{process}/stat")
    return status.is_file() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def gone_within(process: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while is_there(process) and time.monotonic() < end:
        time.sleep(0.1)
    return not is_there(process)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="there is no /proc here")


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_process_that_compiles_ends_with_the_night_however_that_ends(tmp_path, how):
    """The compiler sleeps here instead: a cache of its own, so that it has something to do."""
    night_of_ours = (
        "import time; from models.replay import beside, compiled; beside.is_cached = lambda: False\n"
        "with beside.compiling():\n"
        "    print(beside._running[0].pid, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", night_of_ours], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=Path(__file__).resolve().parents[1], env=environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        compiler = int(process.stdout.readline())
        process.send_signal(how)
        process.wait(20)
        assert gone_within(compiler, 20)


def test_a_compilation_that_fails_is_waited_for_no_longer(monkeypatch):
    monkeypatch.setattr(beside, "is_cached", lambda: False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    seconds = list[int]()
    with beside.compiling():
        beside.wait(seconds.append)
        assert not beside.is_compiling()
    assert seconds in ([], [1])
