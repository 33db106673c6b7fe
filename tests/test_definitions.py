"""The shape of the pipeline in one place, and a small day through all of it."""

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from small import ONE_TRIAL, small_config

from fleetcast.assets.advice import advised_days, nightly_advice, nightly_promise, tomorrow_draws
from fleetcast.assets.advice.nightly_advice import advise_nightly_run
from fleetcast.assets.advice.rule_replays import SizedRule, read_midnight_plan, replay_rule
from fleetcast.assets.checks import ALARMS, CHECKS
from fleetcast.assets.lake import partitions
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.sql_files import SQL
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.replays.policy_inputs import fleet_and_rules, policy_schedules
from fleetcast.models.replay.run import Session
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.policies import REPLAY_POLICIES
from fleetcast.models.world.project_paths import ROOT
from fleetcast.pipelines.definitions import defs
from fleetcast.pipelines.schedules import cron_line

DAY = date(2025, 7, 3)
POLICIES = ["chiron", "siloed", "dynamo", "lt_i", "clairvoyant"]  # every pooling, with and without a plan


def test_the_assets_and_their_inputs():
    graph = defs.resolve_asset_graph()
    made_from = {
        node.key.to_user_string(): (node.group_name, sorted(k.to_user_string() for k in node.parent_keys))
        for node in graph.asset_nodes
    }
    assert made_from == {
        "landing": ("traces", []),
        "requests": ("traces", ["landing"]),
        "demand": ("demand", ["requests"]),
        "characterisation": ("demand", ["demand"]),
        "forecasts": ("forecast", ["demand"]),
        "backtests": ("forecast", ["demand"]),
        "decisions": ("forecast", ["demand", "forecasts", "plans", "requests"]),
        "planner_trials": ("score", ["forecasts", "plans", "requests"]),
        "unseen_days": ("score", ["demand"]),
        "plans": ("plan", ["demand", "forecasts", "requests"]),
        "whatifs": ("plan", ["demand", "forecasts", "requests"]),
        "error_draws": ("score", ["plans", "replays", "requests"]),
        "level_trials": ("score", ["plans", "requests"]),
        "witnessed": ("score", ["requests"]),
        "day_ahead_plans": ("plan", ["demand"]),
        "advised_days": ("score", ["day_ahead_plans", "requests"]),
        "rolling_plans": ("plan", ["demand"]),
        "shadow_runs": ("score", ["plans", "requests"]),
        "commitments": ("plan", ["demand"]),
        "gpu_fleets": ("plan", ["demand", "requests"]),
        "quality_plans": ("quality", []),
        "replays": ("replay", ["plans", "requests"]),
        "scorecard": ("score", ["replays"]),
        "figures": ("score", ["scorecard"]),
        "advice": ("score", ["demand", "scorecard"]),
    }
    for node in graph.asset_nodes:
        assert node.description
        assert node.owners
        assert node.kinds


def test_jobs_schedules_and_sensors():
    chain = ["advice", "demand", "figures", "forecasts", "plans", "replays", "requests", "scorecard"]
    made_by_job = {
        "land": ["landing"],
        "history": ["demand", "requests"],
        "characterise": ["characterisation"],
        "nightly": chain,
        "backtest": ["backtests"],
        "decide": ["decisions"],
        "board": ["planner_trials"],
        "board_unseen": ["unseen_days"],
        "whatif": ["whatifs"],
        "error": ["error_draws"],
        "levels": ["level_trials"],
        "witness": ["witnessed"],
        "plan_ahead": ["day_ahead_plans"],
        "promise": ["advised_days"],
        "plan_rolling": ["rolling_plans"],
        "grade": ["shadow_runs"],
        "buy": ["commitments"],
        "gpus": ["gpu_fleets"],
        "plan_quality": ["quality_plans"],
    }
    for name, made in made_by_job.items():
        keys = defs.resolve_job_def(name).asset_layer.executable_asset_keys
        assert sorted(key.to_user_string() for key in keys) == made, name
    schedules = {s.name: s.cron_schedule for s in defs.schedules or []}
    assert schedules == {
        "nightly_schedule": "0 2 * * *",
        "plan_ahead_schedule": "30 2 * * *",
        "promise_schedule": "45 2 * * *",
        "plan_rolling_schedule": "0 * * * *",
        "grade_schedule": "0 3 * * *",
        "witness_schedule": "30 3 * * *",
        "check_schedule": "0 4 * * *",
    }
    assert [cron_line(minutes) for minutes in (15, 60, 360)] == ["*/15 * * * *", "0 * * * *", "0 */6 * * *"]
    for schedule in defs.schedules or []:
        assert "config office only. Its trace office has the days 2025-07-01 to 2025-07-15." in (
            schedule.description or ""
        )
    assert [s.name for s in defs.sensors or []] == ["landing_sensor"]
    assert all("does not start the nightly run" in (s.description or "") for s in defs.sensors or [])


def test_every_sql_check_guards_an_asset_and_blocks_downstream():
    guarded = [name for names in CHECKS.values() for name in names]
    assert sorted(guarded) == sorted(path.stem for path in (SQL / "checks").glob("*.sql"))
    specs = [spec for check in defs.asset_checks or [] for spec in check.check_specs]
    alarms = [name for names in ALARMS.values() for name in names]
    assert sorted(alarms) == sorted(path.stem for path in (SQL / "alarms").glob("*.sql"))
    assert {spec.name for spec in specs} == {
        *guarded,
        *alarms,
        "every_file_is_read",
        "landed_traces_are_sound",
        "files_are_as_written",
    }
    assert all(spec.description for spec in specs)
    assert {spec.name for spec in specs if spec.blocking} == {*guarded, "files_are_as_written"}


def test_the_landing_sensor_runs_once_per_change(tmp_path, monkeypatch):
    from fleetcast.pipelines import sensors

    monkeypatch.setattr(sensors, "LANDING_DIR", tmp_path)
    monkeypatch.setattr(sensors, "landed_files", lambda: sorted(tmp_path.glob("*.csv")))
    evaluate = lambda cursor: sensors.landing_sensor(dg.build_sensor_context(cursor=cursor))  # noqa: E731
    assert isinstance(evaluate(None), dg.SkipReason)
    (tmp_path / "a.csv").write_text("x")
    first = evaluate(None)
    assert len(first.run_requests) == 1
    assert isinstance(evaluate(first.cursor), dg.SkipReason)
    (tmp_path / "a.toml").write_text("trace = 't'")  # its mapping changed
    second = evaluate(first.cursor)
    assert second.run_requests[0].run_key != first.run_requests[0].run_key
    for name, year in (("copied.csv", 2000), ("of_a_wrong_clock.csv", 2090), ("last.csv", 2010)):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, times=(0, datetime(year, 1, 1, tzinfo=UTC).timestamp()))
        assert len((second := evaluate(second.cursor)).run_requests) == 1


def test_the_pages_show_the_days_of_the_configured_traces_and_of_the_lake(tmp_path, monkeypatch):
    """A few dozen days instead of thousands; the schedule adds those from yesterday on."""
    lake, landed = Lake(tmp_path), date(2023, 11, 30)
    empty = pa.table({f.name: pa.nulls(0, f.type) for f in SCHEMAS["requests"]}, schema=SCHEMAS["requests"])
    lake.write("requests", empty, trace="t", day=landed)
    days = partitions.days_of_traces(lake)
    office = load_config("office", load_catalogue()).trace
    assert {landed, office.first_day, office.replay_day, date(2023, 11, 16)} <= days
    keys = partitions.partitions_of_days(days, date(2026, 3, 2)).get_partition_keys(
        datetime(2026, 3, 5, tzinfo=UTC)
    )
    assert keys == [
        *(day.isoformat() for day in sorted(days)),
        *(f"2026-03-0{day}" for day in (1, 2, 3, 4)),
    ]
    for few, most in (("1", 1000), ("", 10_000)):
        monkeypatch.setenv(partitions.UI_VARIABLE, few)
        shown = partitions.process_partitions()
        assert (len(shown.get_partition_keys()) < most, shown.exclusions is None) == (True, not few)
    assert partitions.DAY_PARTITIONS.has_partition_key("2021-02-03")  # the command line runs any day


def test_landing_shows_what_it_wrote_to_whoever_opens_the_lake(tmp_path, monkeypatch):
    monkeypatch.setattr("fleetcast.assets.traces.landing.landed_files", list)
    monkeypatch.setattr("fleetcast.assets.traces.landing.lone_mappings", list)
    resource = SettingsResource(config="office", lake=str(tmp_path))
    resources = {"settings": resource, "progress": Progress()}
    assert defs.resolve_job_def("land").execute_in_process(resources=resources).success
    assert (tmp_path / "warehouse.duckdb").is_file()


def run(name: str, day: date, resource: SettingsResource) -> dg.ExecuteInProcessResult:
    return defs.resolve_job_def(name).execute_in_process(
        partition_key=day.isoformat(),
        resources={"settings": resource, "progress": Progress()},
        raise_on_error=False,
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dg.ExecuteInProcessResult, SettingsResource]:
    """Two days of history, then the third through the whole pipeline."""
    folder = tmp_path_factory.mktemp("run")
    few = {"policies": str(POLICIES).replace("'", '"'), **ONE_TRIAL}
    resource = SettingsResource(config=small_config(folder, **few), lake=str(folder / "lake"))
    for number in (1, 2):
        assert run("history", date(2025, 7, number), resource).success
    return run("nightly", DAY, resource), resource


def test_a_small_day_runs_through_and_every_check_holds(ran):
    result, resource = ran
    assert result.success
    checks, elsewhere = result.get_asset_check_evaluations(), ("landing", "quality_plans", "witnessed")
    assert {check.check_name for check in checks} == {
        "files_are_as_written",
        *(n for names in (CHECKS, ALARMS) for a, ns in names.items() if a not in elsewhere for n in ns),
    }
    assert all(check.passed for check in checks if check.severity is dg.AssetCheckSeverity.ERROR)
    settings = resource.load()
    board = settings.lake.sql("select * from scoreboard").to_pandas()
    assert sorted(board["policy"]) == sorted(settings.config.replay.policies)
    assert board["requests"].nunique() == 1
    assert sorted(p.stem for p in settings.figures(DAY).glob("*.png")) == [
        "cost_against_misses", "demand_and_forecast", "instances_against_demand", "plan", "ttft_cdf",
    ]  # fmt: skip


def test_the_metadata_of_assets(ran):
    result, settings = ran
    by_asset = {
        e.asset_key.to_user_string(): e.materialization.metadata
        for e in result.get_asset_materialization_events()
    }
    assert {metadata["trace"].value for metadata in by_asset.values()} == {"small"}  # traces share days
    assert by_asset["demand"]["dagster/row_count"].value > 0
    outcomes = settings.load().lake.count("outcomes", trace="small", day=DAY)
    assert by_asset["replays"]["dagster/row_count"].value == outcomes > 0
    assert [record.data for record in by_asset["requests"]["trace_calendar"].records] == [
        {"trace": "small", "first day": "2025-07-01", "last day": "2025-07-03", "days": "3"}
    ]
    columns = {c.name: c.description for c in by_asset["demand"]["dagster/column_schema"].value.columns}
    assert columns["llm"]
    lineage = by_asset["demand"]["dagster/column_lineage"].value.deps_by_column
    assert [(dep.asset_key.to_user_string(), dep.column_name) for dep in lineage["bucket_start"]] == [
        ("requests", "arrived_at")
    ]
    assert lineage.keys() == columns.keys()
    assert "data:image/png;base64," in by_asset["figures"]["ttft_cdf"].value
    assert "clairvoyant" in by_asset["scorecard"]["scoreboard"].value
    assert "On 2025-07-04 run" in by_asset["advice"]["answer"].value
    assert "data:image/png;base64," in by_asset["plans"]["plan"].value
    changes = [record.data for record in by_asset["plans"]["changes"].records]
    assert all(row["why"] and re.fullmatch(r"\d\d:00", row["hour, UTC"]) for row in changes)


def test_a_page_says_first_why_the_next_day_has_no_plan(ran, monkeypatch):
    def refuse(*_):
        raise ValueError("The lake has no demand of the day before.")

    monkeypatch.setattr(nightly_advice, "plan_ahead", refuse)
    numbers = advise_nightly_run(ran[1].load(), DAY, Progress())
    assert numbers["cannot"][0] == {"key": "tomorrow", "line": "The lake has no demand of the day before."}
    assert not numbers["tomorrow"]
    assert numbers["board"]


def test_the_exported_plan_is_promised_and_graded(ran, tmp_path, monkeypatch):
    """The promise is of the plan that `plan export` has, and of the lake as it is at midnight."""
    monkeypatch.setattr(tomorrow_draws, "MOST_DRAWS", 3)
    monkeypatch.setattr(nightly_promise, "LEAST_VERSIONS", 3)
    shutil.copytree(ran[1].load().lake.root, tmp_path / "lake")
    resource = SettingsResource(config=ran[1].config, lake=str(tmp_path / "lake"))
    settings, after = resource.load(), DAY + timedelta(days=1)
    done = defs.resolve_job_def("promise").execute_in_process(
        resources={"settings": resource, "progress": Progress()}
    )
    [event] = done.asset_materializations_for_node("advised_days")
    assert event.metadata["promise"].value.startswith(f"{after}, nine days in ten: ")
    assert nightly_promise.describe_promises(settings, DAY) == [event.metadata["promise"].value]
    [row] = settings.lake.read("advised_days", day=after).to_pylist()
    plan = settings.lake.read("day_ahead_plans", day=after).to_pandas()
    assert (row["scaling_rule"], row["plan_headroom_share"], row["versions"]) == ("day_ahead", 0.0, 3)
    assert sum(row["instances"]) == plan["instances"].sum()
    came = settings.lake.read("requests", day=DAY).drop_columns(["trace", "day"])
    at = pc.add(came["arrived_at"], timedelta(days=1))
    came = came.set_column(came.schema.get_field_index("arrived_at"), "arrived_at", at)
    settings.lake.write("requests", came, trace="small", day=after)
    graded = advised_days.grade_advised_day(settings.lake, "small", after)
    policy, draw = SizedRule("day_ahead"), tomorrow_draws.recorded_draw(settings, after)
    figures = replay_rule(settings, read_midnight_plan(settings, after), policy, draw)
    assert (graded["usd"], graded["in_time_share"]) == pytest.approx((figures.usd, figures.in_time_share))
    assert nightly_promise.describe_promises(settings, after)[0].startswith(f"{after}: iw_fast ")


def test_the_page_of_a_day_has_figures_that_dagster_plots_by_partition(ran):
    """Each is a float, and equals the mart that has it."""
    result, resource = ran
    [done] = [
        event.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key.to_user_string() == "scorecard"
    ]
    floats = {name: value.value for name, value in done.items() if isinstance(value, dg.FloatMetadataValue)}
    policy, lake = done["trend_of"].value, resource.load().lake
    [row] = lake.sql("from scoreboard where policy = $policy", policy=policy).to_pylist()
    [parts] = lake.sql("from regret where policy = $policy", policy=policy).to_pylist()
    expected = {name: row[name] for name in ("usd", "gpu_hours", "backlog_gpu_hours")}
    expected |= {f"{tier}_attainment_share": share for tier, share in row["attainment_by_tier"]}
    expected["regret_usd"] = parts["regret_usd"]
    rows = lake.sql(
        "from forecasts where measure = 'input_tokens' and tier = 'interactive' and method = $method",
        method=resource.load().config.forecast.method,
    ).to_pandas()
    error = (rows["forecast_per_s"] - rows["actual_per_s"]).abs().sum() / rows["actual_per_s"].sum()
    assert floats.pop("run_s") > 0
    assert floats.pop("wape_share") == pytest.approx(error)
    targets = resource.load().catalogue.tiers
    kept = all(share >= targets[tier].attainment_target_share for tier, share in row["attainment_by_tier"])
    assert floats.pop("on_target") == float(kept)
    assert floats == pytest.approx({name: value for name, value in expected.items() if value is not None})
    for event in result.get_asset_materialization_events():
        for name, value in event.materialization.metadata.items():
            assert not isinstance(value, dg.BoolMetadataValue), f"{event.asset_key}: {name} is not plotted"


def test_level_trials_have_their_answer_and_figures_as_metadata(ran):
    config = {"levels": [1, 2], "stacks": ["jsq", "freeness"], "headrooms": [0.1, 0.2], "hours": 1}
    done = defs.resolve_job_def("levels").execute_in_process(
        partition_key=DAY.isoformat(),
        resources={"settings": ran[1], "progress": Progress()},
        run_config={"ops": {"level_trials": {"config": config}}},
    )
    metadata = done.get_asset_materialization_events()[0].materialization.metadata
    for name in ("level_value", "level_ttft", "headroom", "ablation"):
        assert "data:image/png;base64," in metadata[name].value
    assert "needs by enterprise: jsq needs" in metadata["answer"].value
    assert "needs by tier: jsq needs" in metadata["answer"].value
    trials = ran[1].load().lake.sql("from level_trials").to_pandas()
    assert metadata["dagster/row_count"].value == len(trials)
    assert set(trials["stack"]) == {"jsq", "freeness", "edf"}
    assert set(trials["headroom_share"]) == {0.0, 0.1, 0.2}
    assert set(trials["levels"]) == {1, 2, 3, 10}  # edf sees each step: three tiers, ten needs


def test_all_policies_start_from_the_first_hour_of_the_forecast_plan(ran):
    settings = ran[1].load()
    rows = settings.lake.sql(
        "select llm, served_region, instances from plans where policy = 'lt_i' and hour(hour_start) = 0"
    ).to_pylist()
    planned = {(row["llm"], row["served_region"]): row["instances"] for row in rows}
    first_hour = np.array(
        [[planned[llm, region] for region in settings.catalogue.regions] for llm in settings.catalogue.llms]
    )
    for policy, drive in policy_schedules(settings, DAY).items():
        fleet, rules = fleet_and_rules(settings, policy)
        if policy == "chiron":  # it starts from its own rule: 10, 5 and 5
            assert Session(fleet, rules, drive.start).instances()[:, 0].tolist() == [10] * 12 + [5] * 24
            continue
        shared, given = (Session(fleet, rules, start).instances() for start in (first_hour, drive.start))
        assert (shared == given).all()
        if REPLAY_POLICIES[policy].pooling == "unified":
            assert given[:, 0].tolist() == first_hour.ravel().tolist()


def test_a_user_error_is_one_line_and_is_not_retried(tmp_path):
    resource = SettingsResource(config=small_config(tmp_path), lake=str(tmp_path / "lake"))
    result = run("nightly", date(2025, 7, 1), resource)  # the first day of the trace has no history
    failed = next(event for event in result.all_events if event.is_step_failure)
    assert failed.step_key == "forecasts"
    message = failed.step_failure_data.user_failure_data.description
    assert message.startswith("No history to forecast 2025-07-01 from")
    assert "\n" not in message
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


def test_every_step_is_retried_when_its_process_dies():
    """The steps that cut and end a day's replays too; checks only read."""
    nodes = defs.resolve_job_def("nightly").all_node_defs
    steps = [node for node in nodes if isinstance(node, dg.OpDefinition)]
    looks = {f"{asset}_{check}" for known in (CHECKS, ALARMS) for asset in known for check in known[asset]}
    assert {node.name for node in steps if node.retry_policy is None} <= {
        *looks,
        "demand_files_are_as_written",
    }


def test_a_failed_check_stops_the_nightly_run(tmp_path, monkeypatch):
    resource = SettingsResource(config=small_config(tmp_path), lake=str(tmp_path / "lake"))
    from fleetcast.assets.demand import demand

    honest = demand.build_demand
    monkeypatch.setattr(
        demand,
        "build_demand",
        lambda lake, trace, day: forget_a_row(honest(lake, trace, day), lake, trace, day),
    )
    result = run("nightly", DAY, resource)
    assert not result.success
    assert [c.check_name for c in result.get_asset_check_evaluations() if not c.passed] == [
        "demand_conserves_tokens"
    ]
    assert not result.get_step_success_events()[-1].step_key.startswith("forecasts")


def forget_a_row(table, lake, trace, day):
    lake.write("demand", table.slice(1), trace=trace, day=day)
    return table


def test_a_location_begins_every_key_and_has_the_days_of_its_trace(tmp_path):
    """In its own process, since the environment is read when the code is imported."""
    env = {**os.environ, "FLEETCAST_LOCATION": "chat", "FLEETCAST_CONFIG": small_config(tmp_path)}
    script = (
        "from fleetcast.pipelines.definitions import defs; "
        "from fleetcast.assets.lake.partitions import DAY_PARTITIONS; "
        "keys = defs.resolve_asset_graph().get_all_asset_keys(); "
        "checks = [spec.asset_key for check in defs.asset_checks for spec in check.check_specs]; "
        "print(len(keys), {key.path[0] for key in (*keys, *checks)}, DAY_PARTITIONS.start.date()); "
        "jobs = defs.get_repository_def().get_all_jobs(); "
        "print(all(job.get_job_snapshot_id() for job in jobs))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], env=env, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["25 {'chat'} 2025-07-01", "True"], done.stderr
