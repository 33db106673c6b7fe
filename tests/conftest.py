"""Session-wide: one thread per library, as in a run; SIGTERM ends it; no property has a deadline.

Temporary folders are in memory where there is room: databases wait for the disk after each transaction.
"""

import atexit
import dataclasses
import fcntl
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import fleetcast.pipelines  # noqa: F401  # isort: skip  it speaks to libraries before they load
import hypothesis
import pytest
import wired

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans import measured_capacity, plans
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import score_day
from fleetcast.pipelines.shutdown import SignalListener

IN_MEMORY, NEEDED_BYTES = Path("/dev/shm"), 2 << 30  # a session leaves some 0.4 GiB
if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > NEEDED_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
EAR = SignalListener({signal.SIGTERM}, lambda: None)  # Dagster and Typer replace the handler, test by test
# The files that take longest begin first, so that no process is left with a long one at the end.
SLOWEST = (
    "benches", "first_run", "advise", "unseen_days", "planner_board", "reached", "object_storage",
    "stopping", "forecast", "wiring_replays", "replay", "bad_input", "plan_quality", "silences",
    "quality_nights", "wheel", "plan_assets", "any_log", "quality_plans", "compact", "definitions",
    "rolling", "studies", "generate", "forecast_quantiles", "tier_verdicts", "hostile_landing", "cli",
    "recipes", "scorecard", "capacity", "latency_error", "warehouse", "upgrade", "ingest", "symmetry",
    "pools", "calibration", "configure_answer", "tiers", "characterise", "cluster_laws", "closed_loop",
    "sources", "plan", "bit_rot", "units", "figures_say", "configure", "planned_teams", "query_sandbox",
    "contract", "gpus", "own_policies", "landed_shares", "backtests", "cascades", "advice_grades",
    "levels",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Listen before anything replaces the handlers. A shell's background processes ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    EAR.listen()
    config.option.loadscopereorder = False  # xdist would sort files by their number of tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by the list above; all other files stay in their order, behind those."""
    place = {f"test_{name}": n for n, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


def pytest_unconfigure() -> None:
    """Suppress what nanobind (DuckDB's bindings) prints of objects that live until the interpreter's end."""
    EAR.rest()
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty one."""
    return Lake(tmp_path / "lake")


@pytest.fixture(scope="session")
def wired_day(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """The run of wired.toml: three days of requests, and the last one forecast and planned. For reading."""

    def make(folder: Path) -> None:
        settings = wired.fill(wired.changed(wired.wired_settings(folder), "plan", solver="highs"))  # quicker
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(measured_capacity, "measure_capacities", lambda *_: list(wired.SUSTAINED))
            plans.plan_day(settings, wired.DAY, Progress())

    return wired.wired_settings(made_by_one(tmp_path_factory, "wired", make))


@pytest.fixture(scope="session")
def wired_scored(wired_day: RunSettings, tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """The first quarter of that day's requests, replayed under every policy and scored. For reading."""

    def make(folder: Path) -> None:
        own = dataclasses.replace(wired_day, lake=Lake(folder))
        shutil.copytree(wired_day.lake.root, folder, dirs_exist_ok=True)
        where = {"trace": own.trace, "day": wired.DAY}
        rows = own.lake.read("requests", **where).drop_columns(["trace", "day"])
        own.lake.write("requests", rows.slice(0, rows.num_rows // 4), **where)
        replay_day(own, wired.DAY, wired.OPEN, Progress())
        score_day(own, wired.DAY)

    return dataclasses.replace(wired_day, lake=Lake(made_by_one(tmp_path_factory, "scored", make)))


def made_by_one(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that one process of the session fills and all processes read."""
    session = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent
    folder, done = session / name, session / f"{name}.done"
    with (session / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            done.touch()
    return folder
