"""Plans that are made again and again: from what is known now alone, one on top of the other, capped."""

import csv
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from small import BY_SIZE, record_size_shares, small_config
from typer.testing import CliRunner

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.forecasts.rolling_forecast import RollingForecast
from fleetcast.assets.lake.file_digests import FileState, verify_files
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings, midnight
from fleetcast.assets.plans import measured_capacity, rolling_plan
from fleetcast.assets.plans.current_plan import CurrentPlan
from fleetcast.assets.plans.plan_export import ROLLING_POLICY, read_plan_rows
from fleetcast.assets.plans.rolling_plan import plan_rolling, rolling_load
from fleetcast.assets.plans.shortage_remedies import describe_shortage_remedy
from fleetcast.assets.traces.request_days import make_request_day
from fleetcast.models.world.config import RollingConfig
from fleetcast.pipelines import plan_cli, runs
from fleetcast.pipelines.cli import cli_app

DAY = date(2025, 7, 3)
NOON = midnight(DAY) + timedelta(hours=12)
METHODS = {"method": '"seasonal_naive_day"', "methods": '["seasonal_naive_day", "last_value"]'}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunSettings]:
    """Three days of demand, and instances so small that the plan moves."""
    folder = tmp_path_factory.mktemp("rolling")
    config = small_config(folder, requests_per_day="60_000.0", min_instances="1", **METHODS)
    found = load_settings(config, folder / "lake")
    for day in (DAY - timedelta(days=2), DAY - timedelta(days=1), DAY):
        make_request_day(found.lake, found.config.trace, found.catalogue, day)
        build_demand(found.lake, found.trace, day)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0, 400.0, 200.0, 250.0])
        yield found


@pytest.fixture(autouse=True)
def no_plan_before(settings: RunSettings) -> None:
    shutil.rmtree(settings.lake.root / "rolling_plans", ignore_errors=True)


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> int:
    """A horizon that is quickly planned."""
    monkeypatch.setattr(rolling_plan, "HORIZON_HOURS", 6)
    return 6


def asking(settings: RunSettings, **options: object) -> RunSettings:
    plan = dataclasses.replace(settings.config.plan, rolling=RollingConfig(**options))  # type: ignore[arg-type]
    return settings.with_config(plan=plan)


def made(settings: RunSettings, at: datetime) -> list[dict[str, object]]:
    return plan_rolling(settings, at, Progress()).to_pylist()


def test_a_rolling_plan_knows_what_small_pools_sustain(
    settings: RunSettings, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = record_size_shares(monkeypatch)
    plan = dataclasses.replace(settings.config.plan, capacity_by_size=True)
    made(settings.with_config(plan=plan), NOON)
    assert found == {BY_SIZE}


def test_a_rolling_plan_knows_nothing_from_now_on(settings: RunSettings, hours: int) -> None:
    at = NOON + timedelta(hours=8, minutes=15)
    there = made(settings, at)
    begins = at.replace(minute=0)
    assert {row["hour_start"] for row in there} == {begins + timedelta(hours=n) for n in range(hours)}
    assert {row["day"] for row in there} == {DAY, DAY + timedelta(days=1)}
    file = settings.lake.path("demand", trace=settings.trace, day=DAY)
    whole = settings.lake.part("demand", trace=settings.trace, day=DAY)
    late = pc.greater_equal(whole["bucket_start"], pa.scalar(at, whole["bucket_start"].type))
    more = pc.if_else(late, pc.multiply(whole["input_tokens"], 50), whole["input_tokens"])
    kept = file.read_bytes()
    try:
        changed = whole.set_column(whole.schema.get_field_index("input_tokens"), "input_tokens", more)
        settings.lake.write("demand", changed, trace=settings.trace, day=DAY)
        again = made(settings, at)
    finally:
        file.write_bytes(kept)
    kept = settings.lake.count("rolling_plans", trace=settings.trace)
    assert kept == len(again)  # it was made at the same instant, and stands in the place of the first
    keys = ("hour_start", "llm", "served_region", "demand_tokens_per_s", "buffer_tokens_per_s")
    assert [[row[key] for key in keys] for row in again] == [[row[key] for key in keys] for row in there]


@pytest.mark.parametrize("holds", [False, True])
def test_rolling_load_is_observed_then_quantile_with_optional_current_load_floor(
    settings: RunSettings, holds: bool
) -> None:
    """By hand, at 12:30 with buckets of a quarter: peaks of 1.2 times the mean, 9,000 tokens/s just now."""
    llms, regions = len(settings.catalogue.llms), len(settings.catalogue.regions)
    known = np.arange(8.0) * np.ones((llms, regions, 1))
    known[..., -1] = 9000.0
    mean = 100.0 + np.arange(48 * 4.0).reshape(48, 4) * np.ones((llms, regions, 1, 1))
    peak = 1.2 * mean.max(axis=-1, keepdims=True)
    options = asking(settings, keeps_current_load=holds, every_minutes=30)
    found = rolling_load(options, NOON + timedelta(minutes=30), RollingForecast(known, mean, peak))
    line = list(1.2 * (100.0 + np.arange(48 * 4)))
    if holds:
        line[:2] = [9000.0, 9000.0]
    wanted = np.array([6.0, 9000.0, *line][: 48 * 4]).reshape(48, 4)
    for i in range(llms):
        np.testing.assert_allclose(found.demand[:, i, 0], wanted)
    assert found.buffer.shape == (48, llms, regions)
    np.testing.assert_array_equal(found.buffer[:24], found.buffer[24:])
    held = settings.lake.sql(
        "select sum(input_tokens) / 3600 as per_s from demand where day = $day and hour(bucket_start) = 13 "
        "and tier = 'niw' and llm = $llm and region = $region",
        day=DAY - timedelta(days=1),
        llm=list(settings.catalogue.llms)[1],
        region=next(iter(settings.catalogue.regions)),
    ).to_pylist()[0]["per_s"]
    assert found.buffer[1, 1, 0] == pytest.approx(held * settings.config.forecast.niw_buffer_share)


def test_plans_stand_on_each_other_and_the_last_one_is_followed(settings: RunSettings, hours: int) -> None:
    """Also on one of an earlier release, whose file lacks a column."""
    first = made(settings, NOON)
    [file] = settings.lake.files("rolling_plans")
    pq.write_table(pq.read_table(file).drop_columns(["sustained_tokens_per_s"]), file)
    later = made(settings, NOON + timedelta(hours=2, minutes=30))
    at_two = {
        (row["llm"], row["served_region"]): row["instances"]
        for row in first
        if row["hour_start"] == NOON + timedelta(hours=2)
    }
    begins = {
        (row["llm"], row["served_region"]): row["instances_before"]
        for row in later
        if row["hour_start"] == NOON + timedelta(hours=2)
    }
    assert begins == at_two
    rows = read_plan_rows(settings, DAY, ROLLING_POLICY, "east")
    made_at = {row["hour_start"].hour: row["made_at"] for row in rows}
    assert made_at == {hour: NOON if hour < 14 else NOON + timedelta(hours=2.5) for hour in range(12, 20)}
    ids = settings.lake.sql(
        "select count(distinct decision_id(trace, policy, made_at, llm, role, served_region, gpu, "
        "gpus_per_instance, hour_start)) as ids, count(*) as rows from rolling_plans"
    ).to_pylist()[0]
    assert ids["ids"] == ids["rows"] == 2 * hours * 12
    assert {row["decision_id"] for row in rows}.isdisjoint({None, ""})


ROLLING = """
import os, signal, sys
from datetime import datetime
from fleetcast.assets.lake import store
from fleetcast.assets.lake.settings import Progress, load_settings
from fleetcast.assets.plans import measured_capacity, rolling_plan

config, lake, at, kills_before = sys.argv[1:]
move = store.move_into_place

def move_and_die(finished, target):
    if "rolling_plans" not in str(target) or target.suffix != ".parquet":  # its digest comes before
        return move(finished, target)
    if kills_before == "False":
        move(finished, target)
    os.kill(os.getpid(), signal.SIGKILL)

measured_capacity.measure_capacities = lambda *_: [300.0, 400.0, 200.0, 250.0]
rolling_plan.HORIZON_HOURS = 6
store.move_into_place = move_and_die
rolling_plan.plan_rolling(load_settings(config, lake), datetime.fromisoformat(at), Progress())
"""


@pytest.mark.parametrize("kills_before", [True, False])
def test_a_killed_planner_leaves_whole_plans_and_the_next_run_makes_the_missing_one(
    settings: RunSettings, hours: int, kills_before: bool
) -> None:
    """Killed at the move of the file into its place: right before it, and right after it."""
    made(settings, NOON)
    earlier = read_plan_rows(settings, DAY, ROLLING_POLICY)
    made(settings, NOON + timedelta(hours=1))
    expected = read_plan_rows(settings, DAY, ROLLING_POLICY)
    shutil.rmtree(settings.lake.root / "rolling_plans")
    made(settings, NOON)
    files = (str(settings.config.file), str(settings.lake.root))
    at = (NOON + timedelta(hours=1)).isoformat()
    command = [sys.executable, "-c", ROLLING, *files, at, str(kills_before)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert read_plan_rows(settings, DAY, ROLLING_POLICY) == (earlier if kills_before else expected)
    [(_, state)] = verify_files(settings.lake.root, settings.lake.files("rolling_plans"))
    assert state is FileState.WHOLE
    made(settings, NOON + timedelta(hours=1))
    assert read_plan_rows(settings, DAY, ROLLING_POLICY) == expected != earlier


def test_without_its_lake_a_planner_ends_in_one_line_and_the_earlier_plan_stands(
    settings: RunSettings, hours: int
) -> None:
    """A mount that is away leaves an empty folder."""
    made(settings, NOON)
    earlier = read_plan_rows(settings, DAY, ROLLING_POLICY)
    root, away = settings.lake.root, settings.lake.root.with_name("away")
    code = "from fleetcast.pipelines.cli import main; main()"
    command = [sys.executable, "-c", code, "plan", "rolling", "--config", str(settings.config.file)]
    environment = os.environ | {"FLEETCAST_LAKE": str(root)}  # read when a process begins
    root.rename(away)
    root.mkdir()
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(root)
        away.rename(root)
    assert (ended.returncode, ended.stderr) == (
        2,
        "Error: The trace 'small' has no demand to plan from. "
        f"Run fleetcast nightly --config {settings.config.file} or fleetcast ingest first.\n",
    ), "the lake of the environment, not that of this folder"
    assert read_plan_rows(settings, DAY, ROLLING_POLICY) == earlier


def test_no_kind_changes_by_more_than_its_cap(settings: RunSettings, hours: int) -> None:
    later = NOON - timedelta(hours=6)
    free = [row["delta"] for row in made(settings, later)]
    slow = asking(settings, max_changes=1)
    few = [row["delta"] for row in made(slow, later)]
    assert max(map(abs, free)) > 1  # type: ignore[arg-type]
    assert max(map(abs, few)) == 1  # type: ignore[arg-type]
    grown = made(slow, later)[0] | {"delta": 1}
    table = pa.Table.from_pylist([grown], SCHEMAS["rolling_plans"])
    slow.lake.write("rolling_plans", table, trace=slow.trace, made_day=DAY)
    grown["trace"] = slow.trace
    limit = f"Raise what binds: [plan.rolling] max_changes in {grown['served_region']}."
    assert describe_shortage_remedy(slow, grown) == limit
    assert describe_shortage_remedy(asking(settings), grown).startswith("No limit binds: ")


def test_plans_within_an_hour_change_no_more_than_one_plan_may(settings: RunSettings, hours: int) -> None:
    capped, found = asking(settings, max_changes=1), dict[datetime, dict[object, object]]()
    for minutes in (0, 15, 30, 45, 60, 75, 90):
        at = NOON - timedelta(minutes=420 - minutes)
        rows = [row for row in made(capped, at) if row["hour_start"] == at.replace(minute=0)]
        found[at] = {
            tuple(row[name] for name in ("llm", "role", "served_region", "gpu")): row["instances"]
            for row in rows
        }
    for at, counts in found.items():
        begins = at.replace(minute=0)
        last_before = max((other for other in found if other < begins), default=begins)
        for reference in (begins, last_before):
            assert max(abs(count - found[reference][kind]) for kind, count in counts.items()) <= 1, at


def test_what_is_printed_is_the_plan_just_made(
    settings: RunSettings, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made for an earlier instant than a plan that is there: `plan show` has the hours of the later one."""
    made(settings, NOON + timedelta(hours=2))
    earlier = made(settings, NOON)
    monkeypatch.setattr(
        rolling_plan, "plan_rolling", lambda *_: pa.Table.from_pylist(earlier, SCHEMAS["rolling_plans"])
    )
    monkeypatch.setattr(plan_cli, "load_cli_settings", lambda *_: settings)
    monkeypatch.setattr(runs, "publish_on_demand", lambda *_: None)
    result = CliRunner().invoke(cli_app, ["plan", "rolling"])
    printed = list(csv.DictReader(result.stdout.splitlines()))
    assert result.exit_code == 0, result.output
    moved = [row for row in earlier if row["hour_start"] == NOON or row["why"] is not None]
    key = ("llm", "instances")
    assert sorted([str(row[name]) for name in key] for row in moved) == sorted(
        [row[name] for name in key] for row in printed
    )


def test_a_rolling_plan_is_served_until_it_is_two_days_old(settings: RunSettings) -> None:
    made(settings, NOON + timedelta(hours=8))
    clock = [NOON]
    served = CurrentPlan(settings, ROLLING_POLICY, lambda: clock[0])
    key = ("east", "bloom-176b", "h100-80gb", 8, "whole")
    for after, state in ((9, "planned"), (55, "planned"), (56, "floor"), (57, "floor")):
        clock[0] = NOON + timedelta(hours=after)
        served.refresh()
        assert served.replica_target(key, None).state == state


def test_unplannable_instant_is_refused(settings: RunSettings) -> None:
    with pytest.raises(ValueError, match=r"^--at: got 12:07, needed a whole number of 15 minutes"):
        plan_rolling(settings, datetime(2025, 7, 3, 12, 7, tzinfo=UTC), Progress())
    with pytest.raises(
        ValueError, match=r"^--at: got 2025-07-04 12:00, but demand is known until 2025-07-04 00:00"
    ):
        plan_rolling(settings, NOON + timedelta(days=1), Progress())
