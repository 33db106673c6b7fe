"""Closed loop: each hour is planned from the running fleet; and the value of each forecast."""

import dataclasses
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest
from small import BY_SIZE, ONE_TRIAL, make_plans, record_size_shares, small_config

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.plans import measured_capacity, plans
from fleetcast.assets.plans.plan_loads import day_loads, read_forecast_windows
from fleetcast.assets.replays import closed_loop
from fleetcast.assets.replays.policy_inputs import fleet_and_rules, policy_schedules, read_day_plans
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.studies import decisions, experiment, whatif, whatif_cases
from fleetcast.models.replay.run import Session
from fleetcast.models.world.mechanisms import STATES
from fleetcast.models.world.policies import REPLAY_POLICIES, PolicySpec
from fleetcast.pipelines.definitions import defs

DAY = date(2025, 7, 3)
CLOSED = "corrected_closed"
SILENT = datetime(2025, 7, 3, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> SettingsResource:
    """Two days of history and a third that is planned in closed loop, under LT-UA's rule."""
    folder = tmp_path_factory.mktemp("planned")
    config = small_config(folder, policies=f'["{CLOSED}"]', failures_per_instance_day="20.0", **ONE_TRIAL)
    resource = SettingsResource(config=config, lake=str(folder / "lake"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder))
        patch.setitem(
            REPLAY_POLICIES, CLOSED, PolicySpec("corrected", "lt_ua", "by memory", "#000000", is_closed=True)
        )
        make_plans(settings := resource.load(), DAY)
        replay_day(settings, DAY, [CLOSED], Progress())
    return resource


@pytest.fixture(scope="module")
def planned(night: SettingsResource) -> RunSettings:
    return night.load()


def instances(settings: RunSettings, table: str, column: str) -> list[int]:
    policy = CLOSED if table == "closed_plans" else "corrected"
    query = f"select {column} from {table} where policy = '{policy}' order by hour_start, llm, served_region"
    return settings.lake.sql(query)[column].to_pylist()


def test_a_closed_plan_replaces_dead_instances(planned):
    """LT-UA adds nothing while memory is idle: without a new plan dead instances are not replaced."""
    least = planned.config.fleet.min_instances
    before = instances(planned, "closed_plans", "instances_before")
    assert min(before) < least
    assert min(instances(planned, "closed_plans", "instances")) >= least
    assert min(instances(planned, "plans", "instances_before")) >= least  # the open loop assumes they live


def test_without_differences_closed_and_open_loop_plans_are_equal(planned):
    replay_config = dataclasses.replace(planned.config.replay, failures_per_instance_day=0.0)
    settings = dataclasses.replace(planned, config=dataclasses.replace(planned.config, replay=replay_config))
    replay_day(settings, DAY, [CLOSED], Progress())
    for column in ("instances_before", "instances", "reclaimed", "started", "donated"):
        assert instances(settings, "closed_plans", column) == instances(settings, "plans", column)


def test_a_closed_plan_starts_from_serving_and_booting_instances(planned):
    session = Session(*fleet_and_rules(planned, "lt_i"), np.zeros(len(planned.grid.pools)))
    there = np.random.default_rng(2).integers(0, 9, session.instances().shape)
    session.state.instances[:, 1:] = there
    held, donated = closed_loop.current_fleet(planned.grid, session)
    by_state = {name: planned.grid.to_cells(there[:, n]) for n, name in enumerate(STATES)}
    np.testing.assert_array_equal(held, by_state["serving"] + by_state["booting"])
    np.testing.assert_array_equal(donated, by_state["donated"])


def test_closed_plans_and_scored_forecasts_use_the_named_load(planned):
    loads, rows = day_loads(planned, DAY), read_day_plans(planned, DAY)
    demand = {name: load.demand for name, load in loads.items()}
    assert not np.array_equal(demand["forecast"], demand["corrected"].max(axis=-1, keepdims=True))
    problems = closed_loop.closed_loop_problems(planned, DAY, CLOSED, rows)
    np.testing.assert_array_equal([hour.demand_tokens_per_s for hour in problems], demand["corrected"])
    trial = decisions.make_trial_planner(planned, DAY, "iw_fast", Progress())
    quantile = read_forecast_windows(planned, DAY, "last_value")[1]
    for method, expected in (("last_value", quantile), (decisions.TRUTH, demand["truth"])):
        carried = trial(method, 1.0).schedule.forecast_tokens_per_s
        np.testing.assert_array_equal(carried, planned.grid.services_to_llms(expected.max(axis=-1), axis=1))


@pytest.mark.parametrize("knows", [False, True])
def test_each_way_to_a_plan_knows_what_small_pools_sustain(planned, monkeypatch, knows):
    plan = dataclasses.replace(planned.config.plan, capacity_by_size=knows)
    own, expected = planned.with_config(plan=plan), {BY_SIZE if knows else (1.0,) * 4}
    found = record_size_shares(monkeypatch)
    decisions.make_trial_planner(own, DAY, "iw_fast", Progress())(decisions.TRUTH, 0.5)
    assert found == expected
    found.clear()
    whatif.plan_whatif_cases(whatif_cases.resolve_cases(own, ["as_is"]), DAY, Progress(), "corrected")
    assert found == expected
    found.clear()
    plans.plan_day(own, DAY, Progress())
    assert found == expected
    rows = read_day_plans(own, DAY)
    for hour in closed_loop.closed_loop_problems(own, DAY, CLOSED, rows):
        assert {tuple(shares) for shares in hour.size_shares[:, hour.runs].T.tolist()} == expected


def test_forecasts_are_compared_at_equal_attainment(planned, monkeypatch):
    two = (1.0, 0.002, None)  # replays of each method
    monkeypatch.setattr(experiment, "next_point", lambda trials, *_: two[len(trials)])
    table = decisions.try_forecasts(planned, DAY, Progress())
    assert set(table["method"].to_pylist()) == {"last_value", "truth"}
    assert set(table["tier"].to_pylist()) == {"iw_fast"}
    by_share = table.to_pandas().pivot(index="method", columns="capacity_share", values="gpu_hours")
    assert (by_share[0.002] > by_share[1.0]).all()  # a plan with less capacity share holds more
    board = planned.lake.sql("select * from decision_leaderboard").to_pandas().set_index("method")
    assert board.loc["truth", "as_planned_gpu_hours"] == by_share.loc["truth", 1.0]


def test_a_case_is_a_partition_of_the_what_ifs(night, planned):
    key = dg.MultiPartitionKey({"day": DAY.isoformat(), "case": "h100_cheap"})
    done = defs.resolve_job_def("whatif").execute_in_process(
        partition_key=key, resources={"settings": night, "progress": Progress()}
    )
    assert done.success
    [row] = planned.lake.sql("select case_name, what from whatifs").to_pylist()
    assert row["case_name"] == "h100_cheap"
    assert "4 USD" in row["what"]


def test_the_day_ahead_plan_is_an_asset(night, planned, monkeypatch):
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0, 400.0, 200.0, 250.0])
    done = defs.resolve_job_def("plan_ahead").execute_in_process(
        resources={"settings": night, "progress": Progress()}
    )
    [event] = done.asset_materializations_for_node("day_ahead_plans")
    assert event.metadata["day"].value == (DAY + timedelta(days=1)).isoformat()
    assert planned.lake.read("day_ahead_plans", trace=planned.trace).num_rows == 24 * 12


def test_an_hour_without_data_stops_no_policy(planned):
    """Hours without collected data are not replayed: their load is zero, not unknown."""
    rows = pa.table({"silence_start": [SILENT], "silence_end": [SILENT + timedelta(hours=1)],
                     "slots": [60], "expected_requests": [1.0]})  # fmt: skip
    silences = rows.cast(SCHEMAS["silences"])
    path = planned.lake.write("silences", silences, trace=planned.trace)
    try:
        targets = policy_schedules(planned, DAY)["dynamo"].targets
    finally:
        path.unlink()
    assert np.isfinite(targets).all()
