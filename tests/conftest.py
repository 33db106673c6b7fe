"""Session-wide: one thread per library, as in a run; SIGTERM ends it; its last line stays pytest's own."""

import atexit
import dataclasses
import os
import shutil
import signal

import pipelines  # noqa: F401  # isort: skip  it speaks to libraries before they load
import pytest
import wired

from assets.lake.settings import Progress, Settings
from assets.lake.warehouse import Lake
from assets.plans import plans
from assets.replays.replays import replay_day
from assets.replays.scorecards import score_day
from pipelines.stopping import Ear

EAR = Ear({signal.SIGTERM}, lambda: None)  # Dagster and Typer swallow it, test by test


def pytest_configure() -> None:
    """Listen before anything replaces the handlers. What a shell starts behind itself ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    EAR.listen()


def pytest_unconfigure() -> None:
    """Quieten what nanobind (DuckDB's bindings) prints of objects that live until the interpreter's end."""
    EAR.rest()
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))


@pytest.fixture(scope="session")
def wired_day(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The run of wired.toml: three days of requests, and the last one forecast and planned. For reading."""
    settings = wired.fill(wired.wired_settings(tmp_path_factory.mktemp("wired")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "sustained_tokens_per_s", lambda *_: list(wired.SUSTAINED))
        plans.plan_day(settings, wired.DAY, Progress())
    return settings


@pytest.fixture(scope="session")
def wired_scored(wired_day: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The first quarter of that day's requests, replayed under every policy and scored. For reading."""
    own = dataclasses.replace(wired_day, lake=Lake(tmp_path_factory.mktemp("scored") / "lake"))
    shutil.copytree(wired_day.lake.root, own.lake.root)
    where = {"trace": own.trace, "day": wired.DAY}
    rows = own.lake.read("requests", **where).drop_columns(["trace", "day"])
    own.lake.write("requests", rows.slice(0, rows.num_rows // 4), **where)
    replay_day(own, wired.DAY, wired.OPEN, Progress())
    score_day(own, wired.DAY)
    return own
