"""The first run and the next: nothing is made twice, progress is visible, no process is left running."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from datetime import date
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from small import DAGSTER, ONE_TRIAL, small_config

from fleetcast.assets.demand import demand
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts import backtests
from fleetcast.assets.lake import stage_cache
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.models.replay.kernel import (
    account_fleet,
    advance_events,
    start_control_interval,
    watchdog_limit,
)
from fleetcast.models.replay.session import background_compile
from fleetcast.models.replay.session.background_compile import compile_kernel
from fleetcast.pipelines import nightly_run, runs
from fleetcast.pipelines.nightly_run import NightlyRun, run_night
from fleetcast.pipelines.runs import RunFailed
from fleetcast.pipelines.scoreboard import show_short_plans
from fleetcast.pipelines.terminal import ProgressBars

DAY = date(2025, 7, 3)
ONE = {"policies": '["lt_i"]', **ONE_TRIAL}
LONE = {
    **dict.fromkeys(("min_instances", "max_instances", "instances_at_start"), "1"),
    "bursts": "[{ start = 2025-07-03T18:00:00Z, minutes = 60, factor = 200.0 }]",
}
ENTRIES = (advance_events, account_fleet, watchdog_limit, start_control_interval)


class First(NamedTuple):
    """A nightly run that was stopped in its history, and the nightly run after it."""

    resource: SettingsResource
    stopped: str  # output of the stopped run
    left: dict[str, int]  # files of the stopped run
    stderr: str  # output of the complete run on a stream that is no terminal
    night: NightlyRun
    compiled: list[list[object]]  # of the kernel, before any nightly run


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[First]:
    """Three days of little load, one policy, in a lake and a Dagster home of their own; tests go on in it."""
    folder, honest, seen = tmp_path_factory.mktemp("nights"), demand.build_demand, list[date]()

    def one_day_only(lake, trace, day):
        if seen:
            raise ValueError("no more")
        seen.append(day)
        return honest(lake, trace, day)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder))
        (folder / "dagster.yaml").write_text(DAGSTER)
        patch.setattr(nightly_run, "landed_files", list)
        patch.chdir(folder)
        resource = SettingsResource(config=small_config(folder, **ONE), lake=str(folder / "lake"))
        compile_kernel()
        compiled = [list(entry.signatures) for entry in ENTRIES]
        with patch.context() as once:
            once.setattr(demand, "build_demand", one_day_only)
            with pytest.raises(RunFailed) as failed:
                run_night(resource, DAY, Progress())
        left = made(resource.load())
        with redirect_stderr(StringIO()) as stderr:
            whole = run_night(resource, DAY, ProgressBars())
        yield First(resource, str(failed.value), left, stderr.getvalue(), whole, compiled)


def made(settings: RunSettings) -> dict[str, int]:
    """Every Parquet file and figure, and when it was written."""
    found = [*settings.lake.root.rglob("*.parquet"), *settings.figures(DAY).glob("*.png")]
    return {str(p.relative_to(settings.lake.root.parent)): p.stat().st_mtime_ns for p in found}


def stages_made_again(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """The tables and figures of which a file is new or was rewritten."""
    return {path.split("/")[1] for path in after if after[path] != before.get(path)}


def needed(settings: RunSettings) -> set[str]:
    """The stages that would be made again; their notes are not changed."""
    notes = {p: p.read_text() for p in (settings.lake.root / "made_from").rglob("*") if p.is_file()}
    found, content = set(), stage_cache.stage_input_digest(settings, "replays", DAY)
    if not settings.lake.is_made_from("outcomes", content, trace="small", day=DAY, policy="lt_i"):
        found.add("replays")
    for stage in set(stage_cache.STAGES) - {"replays"}:
        with suppress(ZeroDivisionError), stage_cache.rebuild_if_changed(settings, stage, DAY) as is_needed:
            if is_needed:
                found.add(stage)
                raise ZeroDivisionError
    for path, text in notes.items():
        path.write_text(text)
    return found


def test_the_history_is_one_run_that_reports_each_day_and_resumes(first):
    settings = first.resource.load()
    before = {path: at for path, at in first.left.items() if not path.startswith("lake/tiers")}
    assert first.stopped == "no more"
    assert len(before) == 3  # two days of requests, one of demand
    assert before.items() <= made(settings).items()
    with dg.DagsterInstance.get() as instance:
        runs = [run for run in instance.get_runs() if run.job_name == "history"]
        assert sorted(run.status.value for run in runs) == ["FAILURE", "SUCCESS"]
        for table in ("requests", "demand"):
            events = instance.fetch_materializations(dg.AssetKey(table), limit=100).records
            stderr = {event.partition_key: event.asset_materialization.metadata for event in events}
            assert sorted(stderr) == ["2025-07-01", "2025-07-02", "2025-07-03"]
            for day, metadata in stderr.items():
                rows = settings.lake.count(table, trace="small", day=date.fromisoformat(day))
                assert metadata["dagster/row_count"].value == rows > 0
                assert metadata["dagster/column_schema"].value.columns


def interrupt_first_item():
    for _ in ProgressBars().each("plan", range(3)):
        raise KeyboardInterrupt


def test_piped_output_has_one_line_with_seconds_per_stage(first, capsys):
    lines = first.stderr.removesuffix("\n").split("\n")
    assert all(re.fullmatch(r"[ -~]+ \.\.\. \d+\.\d s", line) for line in lines), first.stderr
    assert {line.split()[0] for line in lines} >= {"requests", "demand", "forecast", "plan", "replay", "draw"}
    with pytest.raises(KeyboardInterrupt):
        interrupt_first_item()
    assert re.fullmatch(r"plan \.\.\. stopped after \d+\.\d s\n", capsys.readouterr().err)


def test_a_stage_is_made_again_only_when_its_inputs_changed(first, monkeypatch, capsys):
    small, board = first.resource, first.night.board
    assert [list(entry.signatures) for entry in ENTRIES] == first.compiled  # only what is used is compiled
    settings = small.load()
    lake, before = settings.lake, made(settings)
    run_night(small, DAY, ProgressBars())
    assert made(settings) == before
    message = "replays of 2025-07-03 are up to date: their inputs have not changed"
    assert message in capsys.readouterr().err
    assert needed(settings) == set()

    lake.path("scoreboard", trace="small", day=DAY).unlink()
    assert needed(settings) >= {"scorecard"}
    lake.path("outcomes", trace="small", day=DAY, policy="lt_i").unlink()
    assert run_night(small, DAY, Progress()).board.equals(board)
    again = made(settings)
    assert stages_made_again(before, again) == {
        *("outcomes", "fleet_hours", "scorecard", "scoreboard", "small"),  # figures
        *("day_ahead_forecasts", "day_ahead_plans"),  # of the day after, for its advice
    }
    past = lake.path("demand", trace="small", day=date(2025, 7, 2))
    os.utime(past)  # as if it had been rewritten
    assert needed(settings) == {"forecasts", "plans", "figures", "advice"}  # replays compare its content
    os.utime(past, ns=(again[str(past.relative_to(lake.root.parent))],) * 2)
    assert needed(settings) == set()
    small_config(Path(small.config).parent, **ONE, epsilon="0.7")
    assert needed(small.load()) == set(stage_cache.STAGES)
    small_config(Path(small.config).parent, **ONE)


class Analyst(Progress):
    """Opens the published file read-only, in a process of its own, whenever a long step begins."""

    SCRIPT = """if True:
        import sys
        import duckdb
        for file in sys.stdin:
            try:
                with duckdb.connect(file.strip(), read_only=True) as lake:
                    print(lake.sql("select count(*) from scoreboard").fetchall()[0][0], flush=True)
            except duckdb.Error as error:
                print(repr(error), flush=True)
    """

    def __init__(self, warehouse: Path) -> None:
        self.warehouse, self.answers = warehouse, []
        command = [sys.executable, "-c", self.SCRIPT]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate(timeout=60)

    @contextmanager
    def bar(self, label, total):
        print(self.warehouse, file=self.process.stdin, flush=True)
        self.answers.append(self.process.stdout.readline().strip())
        yield lambda done: None


def test_a_nightly_run_makes_only_missing_stages(first, monkeypatch, capsys):
    """The last run has another seed, and in one hour more load than one instance of each llm can serve."""
    small, whole = first.resource, first.night
    assert whole.broken == []
    assert whole.board["policy"].to_pylist() == ["lt_i"]
    assert whole.warehouse.is_file()
    assert len(list(whole.figures.glob("*.png"))) == 5
    before = made(small.load())
    monkeypatch.setattr(
        stage_cache, "code_digest", lambda: "another version"
    )  # or the day would not be made again
    with Analyst(whole.warehouse) as analyst:
        second = run_night(small, None, analyst)
    assert stages_made_again(before, made(small.load())) > {"forecasts", "plans", "outcomes", "scorecard"}
    assert len(analyst.answers) >= 3  # forecast, plan, replay
    assert set(analyst.answers) == {"1"}
    assert whole.checks - second.checks == 4  # of the history, which is one run
    assert second.board.equals(whole.board)  # the same config gives the same figures

    row, trace, day = nightly_run.replay_policy(small, None, "static", Progress())
    assert (trace, day, row["policy"].to_pylist()) == ("small", DAY, ["static"])

    path, seen = Path(small.config), made(small.load())
    small_config(path.parent, **ONE, **LONE, seed="8")
    third = run_night(small, None, Progress())
    assert third.checks == whole.checks  # the history was made again from the new seed
    assert stages_made_again(seen, made(small.load())) > {
        "requests",
        "demand",
        "forecasts",
        "plans",
        "outcomes",
    }
    assert not third.board.equals(whole.board)
    assert whole.short == []
    assert {row["policy"] for row in third.short} >= {"lt_i", "clairvoyant"}
    show_short_plans(third.short)  # by how much
    stderr = capsys.readouterr().err
    assert re.search(r"lt_i: the fleet is too small in \d+ of 24 hours; at \d\d:00 \S+ in ", stderr)
    assert re.search(r" instances\. Raise what binds: max_instances in [a-z, ]+\.\n", stderr)
    runs.report_materializations(
        "whatifs", {dg.MultiPartitionKey({"day": "2025-07-03", "case": "as_is"}): {"trace": "small"}}
    )
    with dg.DagsterInstance.get() as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("whatifs")).asset_materialization
        assert (event.partition, event.metadata["trace"].value) == ("as_is|2025-07-03", "small")
        assert {run.tags.get("trace") for run in instance.get_runs()} == {"small"}

    small_config(path.parent, **ONE, **(LONE | {"min_instances": "0"}), seed="8")
    with pytest.raises(ValueError, match=r"of 2025-07-03 are not of small\.toml as it is now.* nightly --"):
        nightly_run.replay_policy(small, None, "static", Progress())
    lake = small.load().lake
    for table in ("outcomes", "fleet_hours", "scorecard"):  # static was replayed under the older config
        assert lake.sql(f"select distinct policy from {table}")["policy"].to_pylist() == ["lt_i"]


def unsynced(day: date) -> set[str]:
    """The stages of a day that Dagster marks as made from other data than there is now."""
    with dg.DagsterInstance.get() as instance:
        graph = runs.defs.resolve_asset_graph()
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        return {
            stage
            for stage in ("forecasts", "plans", "replays", "scorecard", "advice")
            if resolver.get_status(dg.AssetKey(stage), day.isoformat()) is not StaleStatus.FRESH
        }


def test_days_that_are_made_again_with_the_same_bytes_leave_what_follows_synced(first):
    """They were made in one run of two days; now one alone, then both with a request less on one of them."""
    small_config(Path(first.resource.config).parent, **ONE, **LONE, seed="8")  # as the last nightly run
    days, lake = (date(2025, 7, 1), date(2025, 7, 2)), first.resource.load().lake
    runs.run_job("history", first.resource, days[1], Progress())
    assert unsynced(DAY) == set()
    rows = lake.part("requests", trace="small", day=days[1])
    lake.write("requests", rows.slice(1), trace="small", day=days[1])
    runs.run_job("history", first.resource, days[0], Progress(), until=days[1])
    assert unsynced(DAY) == {"forecasts", "plans", "advice"}  # all that read demand


def test_a_backtest_is_reported_for_each_of_its_days(first, monkeypatch):
    monkeypatch.setattr(backtests, "BACKTESTED_METHODS", ("last_value", "seasonal_naive"))  # quick ones
    small_config(Path(first.resource.config).parent, **ONE, **LONE, seed="8")  # as the last nightly run
    leaderboard, figures = nightly_run.run_backtests(first.resource, DAY, 1, INTERACTIVE, Progress())
    assert set(leaderboard["method"].to_pylist()) == {"last_value", "seasonal_naive"}
    assert any(figures.glob("*.png"))
    with dg.DagsterInstance.get() as instance:
        assert instance.get_materialized_partitions(dg.AssetKey("backtests")) == {str(DAY)}


def test_an_unfinished_stage_is_made_again(tmp_path):
    settings = load_settings(small_config(tmp_path, **ONE), tmp_path / "lake")
    with pytest.raises(ZeroDivisionError), stage_cache.rebuild_if_changed(settings, "plans", DAY):
        raise ZeroDivisionError
    for expected in (True, False):
        with stage_cache.rebuild_if_changed(settings, "plans", DAY) as is_needed:
            assert is_needed == expected


def is_there(process: int) -> bool:
    """Whether a process is alive; a zombie without a waiting parent is not."""
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
def test_the_compiling_process_ends_with_the_nightly_run(tmp_path, how):
    """The compiler sleeps here instead: a cache of its own, so that there is something to compile."""
    night_script = (
        "import time; from fleetcast.models.replay.session import background_compile\n"
        "background_compile.is_kernel_cached = lambda: False\n"
        "with background_compile.compile_in_background():\n"
        "    print(background_compile._running[0].pid, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", night_script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=Path(__file__).resolve().parents[1], env=environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        compiler = int(process.stdout.readline())
        process.send_signal(how)
        process.wait(20)
        assert gone_within(compiler, 20)


def test_a_failed_compilation_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(background_compile, "is_kernel_cached", lambda: False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    seconds = list[int]()
    with background_compile.compile_in_background():
        background_compile.wait_for_compilation(seconds.append)
        assert not background_compile.is_compiling()
    assert seconds in ([], [1])
