"""Plans of a small day as tables, their reasons and exports, what-ifs, and what the plans are made from."""

import dataclasses
import json
import pickle
import re
import shutil
import warnings
from collections import defaultdict
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from plan_cases import a_problem
from small import make_plans, small_config
from typer.testing import CliRunner

from fleetcast.assets import studies_on_demand
from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings, midnight
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.on_demand_asset import AssetContext
from fleetcast.assets.plans import cluster_formats, cluster_workloads, measured_capacity, plan_export, plans
from fleetcast.assets.plans import day_ahead as plan_ahead
from fleetcast.assets.plans.export_options import ExportOptions
from fleetcast.assets.plans.plan_flows import describe_region_exports
from fleetcast.assets.plans.plan_loads import read_forecast_windows
from fleetcast.assets.plans.plan_tables import PlannedHours
from fleetcast.assets.plans.plans import PlanRequest
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.assets.replays.policy_inputs import fleet_and_rules, read_day_plans
from fleetcast.assets.replays.replay_workloads import read_workload
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.studies import experiment, planned_trials, whatif, whatif_cases
from fleetcast.models.plan import corrected_plan, sageserve_plan, window_flows
from fleetcast.models.plan.change_reasons import explain_changes
from fleetcast.models.plan.day_plans import hourly_plans
from fleetcast.models.plan.problem import HourPlan, PlanError, Problem
from fleetcast.models.replay.run import Session
from fleetcast.models.world.config import CustomPolicy
from fleetcast.models.world.toml_dataclasses import ConfigError, ConfigWarning
from fleetcast.pipelines import plan_display
from fleetcast.pipelines.cli import cli_app

DAY = date(2025, 7, 3)
METHOD = "last_value"
WEAK = [30.0, 40.0, 20.0, 25.0]  # input tokens/s of an instance of each llm
STARTS = ("lt_i", "corrected")
QUANTILES = tuple(f"peak_p{q}_per_s" for q in (50, 90, 95))


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """Two days of history, then a forecast and planned one, of enough requests that the plan moves."""
    folder = tmp_path_factory.mktemp("planned")
    config = small_config(folder, requests_per_day="60_000.0", min_instances="1", instances_at_start="4")
    settings = load_settings(config, folder / "lake")
    make_plans(settings, DAY, lambda *_: [300.0, 400.0, 200.0, 250.0])  # so small that there is much to plan
    return settings


def planned_by(problem: Problem, instances: np.ndarray) -> HourPlan:
    """The plan of an hour that begins with these instances and keeps them."""
    none = np.zeros_like(instances)
    return window_flows.plan_from_changes(problem._replace(instances_now=instances), none, none, none)


def rewritten(settings: RunSettings, folder: Path, rows: pa.Table) -> RunSettings:
    """The same settings over a lake that has only these forecasts."""
    other = dataclasses.replace(settings, lake=Lake(folder))
    other.lake.write("forecasts", rows, trace=settings.trace, day=DAY)
    return other


def forecasts(settings: RunSettings) -> pa.Table:
    return settings.lake.read("forecasts", trace=settings.trace, day=DAY).drop_columns(["trace", "day"])


def test_a_fleet_of_one_llm_holds_no_other(planned: RunSettings, tmp_path: Path) -> None:
    """And a request for another one is refused by its name."""
    llm, config = "llama3.1-8b", tmp_path / "own.toml"
    config.write_text(
        'based_on = "sageserve"\n[trace]\nname = "mine"\nfirst_day = 2025-07-01\ndays = 3\nseed = 1\n'
        f'[fleet.deployments]\n"{llm}" = {{ gpu = "h100-80gb", tensor_parallel = 1 }}\n'
        f'[forecast]\nmethod = "{METHOD}"\npaper_method = "{METHOD}"\nmethods = ["{METHOD}"]\n'
    )
    own = load_settings(str(config), tmp_path / "lake")
    for day in (DAY - timedelta(days=2), DAY - timedelta(days=1), DAY):
        table = planned.lake.read("requests", trace=planned.trace, day=day).drop_columns(["trace", "day"])
        own.lake.write("requests", table.filter(pc.equal(table["llm"], llm)), trace=own.trace, day=day)
        build_demand(own.lake, own.trace, day)
    forecast_day(own, DAY, Progress())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", lambda *_: [200.0])
        plans.plan_day(own, DAY, Progress())
    replay_day(own, DAY, ["corrected"], Progress())
    for name in ("forecasts", "plans", "fleet_hours"):
        assert own.lake.sql(f"select distinct llm from {name}")["llm"].to_pylist() == [llm]
    own.lake.write("requests", table, trace=own.trace, day=DAY)
    refusal = r"has the llm '.*'; this run has llama3\.1-8b\. Add it .* to \[fleet\.deployments\]"
    with pytest.raises(LakeError, match=refusal):
        replay_day(own, DAY, ["corrected"], Progress())


def test_lt_i_itself_may_count_on_another_share(
    planned: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the search of `fleetcast board --planner lt_i` lets it, with the plans of before at hand."""
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0, 400.0, 200.0, 250.0])
    worlds = plans.gather_plan_inputs(planned, DAY, {}, Progress())
    known: dict[PlanRequest, PlannedHours] = {}
    for share in (1.0, 0.5):
        policies = {"lt_i": CustomPolicy("lt_i", capacity_share=share)}
        own = dataclasses.replace(planned, config=dataclasses.replace(planned.config, policies=policies))
        requests = {name: plans.plan_request_of_policy(own, name) for name in ("lt_i", "lt_u")}
        found = plans.plan_policies(own, DAY, requests, worlds, Progress(), known)
    assert len(known) == 3
    held = {name: sum(plan.instances.sum() for _, plan in day) for name, day in found.items()}
    assert held["lt_i"] > 1.1 * held["lt_u"]


def test_a_policy_may_plan_with_what_small_pools_sustain(
    planned: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = {1: 0.25, 2: 0.5, 4: 1.0}
    monkeypatch.setattr(measured_capacity, "MEASURED_SIZES", {})
    monkeypatch.setattr(
        measured_capacity,
        "measure_capacities",
        lambda *of: [30.0 * share[of[3] if len(of) > 3 else 4]] * 4,
    )
    policies = {"sized": CustomPolicy("corrected", capacity_by_size=True)}
    own = planned.with_config(policies=policies)
    requests = {name: plans.plan_request_of_policy(own, name) for name in ("corrected", "sized")}
    inputs = plans.gather_plan_inputs(own, DAY, requests, Progress())
    found = plans.plan_policies(own, DAY, requests, inputs, Progress())
    for hour, _ in found["sized"]:
        assert hour.size_shares[:, hour.runs].T.tolist() == [[0.25, 0.5, 0.75, 1.0]] * 4
    assert all((hour.size_shares == 1).all() for hour, _ in found["corrected"])
    held = {name: sum(plan.instances.sum() for _, plan in day) for name, day in found.items()}
    assert held["sized"] > 1.1 * held["corrected"]


def test_every_change_has_its_reason_and_nothing_else_has_one(planned: RunSettings) -> None:
    rows = planned.lake.read("plans", trace=planned.trace, day=DAY).to_pylist()
    changes = [row for row in rows if row["reclaimed"] + row["started"] + row["donated"]]
    assert len(changes) > 20
    assert all(row["why"] for row in changes)
    assert sum(row["why"] is not None for row in rows) == len(changes)
    assert {row["programme"] for row in rows if row["policy"] == "corrected"} == {"corrected"}
    assert {row["programme"] for row in rows if row["policy"] == "lt_i"} == {"paper"}
    for check in ("plans_cover_demand", "plan_windows_balance", "plans_chain"):
        assert planned.lake.sql(f"checks/{check}.sql").num_rows == 0


def test_reasons_name_the_load_the_flow_and_the_limit() -> None:
    """Region 0 peaks at half past with 500 tokens/s: a fifth goes to region 1, which has room."""
    problem = a_problem(
        l=1,
        instances_now=np.array([[[2], [4]]]),
        demand_tokens_per_s=np.array([[[100.0, 500.0], [250.0, 250.0]]]),
        boot_cold_s=np.zeros((1, 2, 1)),
    )
    exported = explain_changes(problem, corrected_plan.solve_corrected(problem), hour=14)
    assert exported == {
        (0, 0, 0): "2 started: peak at 14:30 of 500 tokens/s, +150% on what serves; "
        "20% flow to region1, epsilon binds; maximum of 4"
    }
    fewer = problem._replace(demand_tokens_per_s=np.array([[[100.0, 100.0], [100.0, 100.0]]]))
    assert explain_changes(fewer, corrected_plan.solve_corrected(fewer), hour=3)[0, 1, 0].startswith(
        "3 to spot: peak at 03:00 of 100 tokens/s, -75% on what serves"
    )
    assert (
        "epsilon 0.8 binds"
        in explain_changes(problem, sageserve_plan.solve_sageserve(problem), hour=0)[0, 0, 0]
    )
    tight = problem._replace(cap_gpus=np.array([[3], [4]]), spot=np.array([[[1], [0]]]))
    tight = tight._replace(boot_cold_s=np.full((1, 2, 1), 900.0))
    (why,) = explain_changes(tight, corrected_plan.solve_corrected(tight), hour=14).values()
    assert why.startswith("1 back from spot: ")
    assert why.endswith(
        "30% flow to region1, more than epsilon allows; cap of 3 gpu0 reached; still short of 50 tokens/s"
    )


def test_a_reason_names_what_an_instance_of_a_small_pool_sustains() -> None:
    """200 tokens/s are the work of two instances of four; of three, each sustains three quarters."""
    problem = a_problem(
        l=1,
        r=1,
        size_shares=np.array([0.5, 0.5, 0.75, 1.0]).reshape(4, 1, 1),
        instances_now=np.full((1, 1, 1), 2),
        demand_tokens_per_s=np.full((1, 1, 2), 200.0),
        boot_cold_s=np.zeros((1, 1, 1)),
    )
    (why,) = explain_changes(problem, corrected_plan.solve_corrected(problem), hour=3).values()
    assert why == (
        "1 started: peak at 03:00 of 200 tokens/s, +100% on what serves; "
        "each of 3 sustains 75% of what each of 4 would"
    )


def test_the_json_export_has_hours_endpoints_and_reasons(planned: RunSettings) -> None:
    rows = plan_export.read_plan_rows(planned, DAY, "corrected")
    boots = cluster_workloads.early_boots(planned, rows)
    exported = json.loads(plan_export.plan_to_json(rows, boots))
    assert (exported["trace"], exported["programme"], len(exported["hours"])) == ("small", "corrected", 24)
    assert {len(hour["endpoints"]) for hour in exported["hours"]} == {12}
    endpoint = next(one for hour in exported["hours"] for one in hour["endpoints"] if one["why"])
    change = endpoint["reclaimed"] + endpoint["started"] - endpoint["donated"]
    assert endpoint["instances"] - endpoint["instances_before"] == change
    hours = planned.lake.sql("queries/plan_by_hour.sql", policy="corrected").to_pylist()
    for hour, row in zip(exported["hours"], hours, strict=True):
        of_hour = {key: sum(one[key] for one in hour["endpoints"]) for key in ("gpus", "usd")}
        assert (hour["gpus"], hour["usd"]) == (of_hour["gpus"], pytest.approx(of_hour["usd"]))
        assert (row["gpus"], row["usd"]) == (hour["gpus"], pytest.approx(hour["usd"]))
        loads = (one["demand_tokens_per_s"] + one["buffer_tokens_per_s"] for one in hour["endpoints"])
        serves = (one["capacity_tokens_per_s"] for one in hour["endpoints"])
        fullest = max(load / capacity for load, capacity in zip(loads, serves, strict=True))
        assert row["fullest_share"] == pytest.approx(fullest)
    assert exported["gpu_hours"] == sum(row["gpus"] for row in hours)
    paid = sum(row["usd"] for row in rows) + boots.boot_usd
    assert exported["usd_with_boots"] == pytest.approx(paid)
    assert boots.boot_usd > 0


def test_the_steps_of_a_plan_lead_from_its_first_hour_to_every_other(planned: RunSettings) -> None:
    rows = plan_export.read_plan_rows(planned, DAY, "corrected")
    held: dict[tuple[str, str], int] = {}
    by_hour: dict[datetime, dict[tuple[str, str], int]] = {}
    for step in plan_export.ordered_plan_steps(rows):
        held = {**held, (step["region"], step["llm"]): step["instances"]}
        by_hour[step["hour_start"]] = held
    for row in rows:
        known = by_hour[max(hour for hour in by_hour if hour <= row["hour_start"])]
        assert known[row["region"], row["llm"]] == row["instances"]


def test_a_plan_is_shown_so_that_it_can_be_carried_out(planned: RunSettings, monkeypatch, capsys) -> None:
    rows = plan_export.read_plan_rows(planned, DAY, "corrected", "east")
    hours = planned.lake.sql("queries/plan_by_hour.sql", policy="corrected", region="east").to_pylist()
    assert sum(hour["usd"] for hour in hours) == pytest.approx(sum(row["usd"] for row in rows))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    boots = cluster_workloads.early_boots(planned, rows)
    plan_display.show_plans([(plan_export.ordered_plan_steps(rows), hours, boots)])
    shown = capsys.readouterr().out
    first = {row["llm"]: row["instances"] for row in rows[:: len(hours)]}
    for llm, instances in first.items():
        assert re.search(rf"^{re.escape(llm)} +\d x h100-80gb +{instances}\b", shown, re.M)
    assert "back from spot: peak at" in " ".join(shown.split())
    assert re.search(rf"^23:00 .*\b{hours[-1]['gpus']} +{hours[-1]['usd']:,.0f}\b", shown, re.M)
    assert f"{sum(hour['gpus'] for hour in hours):,} GPU-hours" in shown
    booted = sum(hour["gpus"] for hour in hours) + boots.boot_gpu_hours
    usd = sum(row["usd"] for row in rows) + boots.boot_usd
    assert f"with boots: {booted:,.0f} GPU-hours, {usd:,.0f} USD" in shown


def test_the_k8s_export_is_for_one_cluster(planned: RunSettings) -> None:
    rows = plan_export.read_plan_rows(planned, DAY, "corrected", "east")
    objects = list(
        yaml.safe_load_all(cluster_formats.render_cron_scaled_objects(planned, rows, ExportOptions()))
    )
    names = cluster_workloads.workload_names(
        [tuple(r[k] for k in plan_export.WORKLOAD_KIND_COLUMNS) for r in rows if r["hour_start"].hour == 0]
    )
    assert [one["metadata"]["name"] for one in objects] == names
    with pytest.raises(ValueError, match=r"has the regions central, east, west; .* one cluster. .* --region"):
        cluster_formats.render_cron_scaled_objects(
            planned, plan_export.read_plan_rows(planned, DAY, "corrected"), ExportOptions()
        )


def test_a_day_to_come_is_planned_from_what_the_day_before_leaves(planned: RunSettings) -> None:
    """Nothing of the day is there. Every hour carries the quantile of its peak; the export is of that day."""
    with pytest.raises(ValueError, match=r"2025-07-03 has been planned .* plan show --policy day_ahead"):
        plan_ahead.plan_ahead(planned, DAY, Progress())
    with pytest.raises(LakeError, match=r"no demand on 2025-07-04\. It has 2025-07-01 to 2025-07-03"):
        plan_ahead.plan_ahead(planned, date(2025, 7, 6), Progress())
    tomorrow = plan_ahead.next_plan_day(planned)
    assert tomorrow == date(2025, 7, 4)
    buffers = []
    for day in (tomorrow, tomorrow + timedelta(days=1)):  # the second is foreseen when the first begins
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0, 400.0, 200.0, 250.0])
            plan_ahead.plan_ahead(planned, day, Progress())
        rows = plan_export.read_plan_rows(planned, day, "day_ahead")
        assert [row["hour_start"].date() for row in rows] == [day] * 12 * 24
        by_hour = {(row["llm"], row["region"], row["hour_start"]): row for row in rows}
        for row in plan_export.read_plan_rows(planned, day - timedelta(days=1), "day_ahead"):
            then = by_hour[row["llm"], row["region"], midnight(day)]
            if row["hour_start"].hour == 23:
                assert then["instances_before"] == row["instances"]
        foreseen = planned.lake.read("day_ahead_forecasts", trace=planned.trace, day=day).to_pylist()
        assert {row["actual_per_s"] for row in foreseen} == {None}
        assert {row["cutoff"] for row in foreseen} == {midnight(tomorrow)}
        broken = planned.lake.sql("checks/forecasts_cover_the_day.sql", trace=planned.trace, day=day)
        assert broken.num_rows == 0
        most, means = 1.0 + planned.config.plan.most_headroom_share, defaultdict(float)
        for one in foreseen:
            key = one["llm"], one["region"], one["bucket_start"].replace(minute=0)
            means[key] = max(means[key], one["forecast_per_s"])
        for one in foreseen:
            key = one["llm"], one["region"], one["bucket_start"].replace(minute=0)
            covered = min(one["peak_p90_per_s"], most * means[key] or np.inf)
            assert by_hour[key]["demand_tokens_per_s"] == pytest.approx(covered)
        buffers.append([row["buffer_tokens_per_s"] for row in rows])
    assert buffers[0] == buffers[1]  # of the last day that is known
    rows = plan_export.read_plan_rows(planned, tomorrow, "day_ahead", "east")
    text = cluster_formats.render_cron_scaled_objects(planned, rows, ExportOptions())
    assert "start: 0 0 4 7 *" in text
    assert "-lift" not in text, "every hour has the same count, which is the safe level too"


def test_a_local_plan_serves_each_region_in_itself_and_reports_its_cost(
    planned: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hours, and instances so small that each region would export; each has enough GPUs."""
    whole = plan_ahead.day_ahead_load
    monkeypatch.setattr(
        plan_ahead, "day_ahead_load", lambda *day: type(whole(*day))(*(part[8:10] for part in whole(*day)))
    )
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: [30.0] * 4)
    lines: list[str] = []
    progress = Progress()
    progress.say = lines.append  # type: ignore[method-assign]
    tables = [
        plan_ahead.plan_ahead(planned, date(2025, 7, 4), progress, is_local) for is_local in (False, True)
    ]
    usd, local_usd = (sum(table["usd"].to_pylist()) for table in tables)
    assert lines == [f"2025-07-04: {local_usd:,.0f} USD, and {usd:,.0f} USD if regions served each other"]
    rows, local_rows = ([row | {"region": row["served_region"]} for row in t.to_pylist()] for t in tables)
    assert describe_region_exports(planned, rows).startswith("flows    ")
    assert describe_region_exports(planned, local_rows) == ""
    assert usd < local_usd


@pytest.mark.parametrize(
    ("policy", "region", "day", "message"),
    [
        ("lt_x", None, DAY, "unknown policy with a plan 'lt_x'"),
        ("reactive", None, DAY, r"reactive decides during the day .* where policy = 'reactive'\"\.$"),
        (
            "compact",
            None,
            DAY,
            "compact decides during the day .* To run it: fleetcast serve scaler --from",
        ),
        ("lt_i", "easst", DAY, "Did you mean 'east'"),
        (
            "lt_i",
            None,
            date(2025, 7, 9),
            r"has no plan of lt_i on 2025-07-09\. Make it: fleetcast nightly --date 2025-07-09 --config "
            r"\S+/small\.toml, or for hours to come: fleetcast plan ahead --config \S+/small\.toml or ",
        ),
    ],
)
def test_a_missing_export_is_refused_with_the_choices(planned, policy, region, day, message) -> None:
    with pytest.raises(ValueError, match=message):
        plan_export.read_plan_rows(planned, day, policy, region)


def test_the_quantile_path_is_the_mean_scaled_to_the_peak_quantile(
    planned: RunSettings, tmp_path: Path
) -> None:
    mean, _ = read_forecast_windows(planned, DAY, METHOD)
    rows, peak = forecasts(planned), mean.max(axis=-1)
    for factor, name in enumerate(QUANTILES, start=1):
        values = pa.array(np.full(rows.num_rows, 1.0 + 10.0 * factor))
        rows = rows.set_column(rows.column_names.index(name), name, values)
    found, quantile = read_forecast_windows(rewritten(planned, tmp_path, rows), DAY, METHOD)
    assert np.array_equal(found, mean)
    most = 1.0 + planned.config.plan.most_headroom_share
    wanted = np.where(peak > 0, np.minimum(21.0, most * peak), 21.0)  # p90
    assert (wanted == 21.0).any()
    assert (wanted < 21.0).any()
    assert quantile.max(axis=-1) == pytest.approx(wanted)
    some = peak > 0
    assert (quantile[some] * peak[some][:, None]) == pytest.approx(mean[some] * wanted[some][:, None])


def test_a_missing_forecast_hour_is_named(planned: RunSettings, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"lack bloom-176b in east at 2025-07-03 00:00 and 0 more\. Forecast"
    ):
        read_forecast_windows(rewritten(planned, tmp_path, forecasts(planned).slice(1)), DAY, METHOD)


def test_each_case_changes_its_own_inputs(planned: RunSettings) -> None:
    hours = {}
    for name, case in whatif_cases.load_whatif_cases().items():
        own = whatif_cases.apply_case(planned, case)
        template = problem_template(own.grid, own.config, [300.0, 400.0, 200.0, 250.0], "corrected")
        hours[name] = whatif_cases.limit_problem(case, template, "corrected")
    base, gpus = hours["as_is"], list(planned.catalogue.gpus)
    h100, a100 = gpus.index("h100-80gb"), gpus.index("a100-80gb")
    assert hours["h100_cheap"].usd_per_hour == pytest.approx(base.usd_per_hour * 4 / 12.29)
    assert base.uses[base.runs].sum(axis=0).tolist() == [
        8 + 2 + 1 + 1 if g == h100 else 0 for g in range(len(gpus))
    ]
    assert hours["a100"].uses[..., a100].sum() == base.uses[..., h100].sum() == hours["a100"].uses.sum()
    assert hours["a100"].cap_gpus[:, a100].tolist() == base.cap_gpus[:, h100].tolist()
    small = hours["small_on_2"]
    assert small.gpus_per_instance.max(axis=1).tolist() == [8, 2, 2, 1]
    assert small.usd_per_hour.max(axis=1)[2] == pytest.approx(2 * 12.29)
    assert hours["east_down"].max_instances[:, 0].tolist() == [0] * 4
    assert hours["east_down"].max_instances[:, 1:].min() > 0
    assert (hours["epsilon_0_5"].epsilon, hours["epsilon_1"].epsilon) == (0.5, 1.0)
    assert (base.instances_now.max(), hours["cold_starts"].instances_now.max()) == (4, 3)
    assert {name for name, hour in hours.items() if (hour.min_instances == 1).all()} >= {"as_is", "min_1"}
    assert hours["budget"].budget_usd == 1200.0


def test_a_region_that_is_down_has_no_instance_in_the_replay_either(planned: RunSettings) -> None:
    down = whatif_cases.without_regions(planned, whatif_cases.load_whatif_cases()["east_down"].down)
    fleet, rules = fleet_and_rules(down, "corrected")
    there = Session(fleet, rules, np.full(len(fleet.kind), 5)).instances()
    in_east = fleet.region == list(down.catalogue.regions).index("east")
    assert there[in_east].sum() == 0
    assert (there[~in_east, 0] == 5).all()


MORE = """
[double]
what = "twice the requests"
demand_factor = 2.0

[west_only]
what = "one region is left"
down = ["east", "central"]
"""


def test_what_if_reports_cost_attainment_and_shortages(planned: RunSettings, tmp_path: Path) -> None:
    path = tmp_path / "whatif.toml"
    path.write_text(whatif_cases.WHATIF_CASES.read_text() + MORE)
    chosen = ["as_is", "double", "west_only"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0, 400.0, 200.0, 250.0])
        patch.setattr(whatif_cases.resolve_cases, "__defaults__", ("corrected", path))
        table = whatif.run_whatif_cases(planned, DAY, chosen, Progress())
        both = whatif_cases.resolve_cases(planned, ["as_is", "quantile_0_5"])
        planned_both = whatif.plan_whatif_cases(both, DAY, Progress(), "corrected")
    rows = table.to_pandas().set_index("case_name")
    assert list(rows.index) == chosen
    assert planned.lake.sql("select case_name from whatifs").num_rows == len(chosen)
    assert whatif.draw_whatif_cases(planned, DAY, table.to_pandas()).is_file()
    assert all(0.1 <= dict(shares)["iw_fast"] <= 1 for shares in rows["attainment_by_tier"])
    assert (rows["dearest_hour_usd"] >= rows["usd"] / 24).all()
    assert rows.loc["double", "gpu_hours"] > 1.3 * rows.loc["as_is", "gpu_hours"]
    assert rows.loc["as_is", ["short_hours", "remote_share", "below_minimum_hours"]].tolist() == [0, 0.0, 0]
    assert (
        0.5 < rows.loc["west_only", "remote_share"] <= 1
    )  # all of the two that are down, but epsilon's fifth
    p90, p50 = (np.asarray(trial.schedule.forecast_tokens_per_s) for trial in planned_both)
    assert (p50 <= p90).all()
    assert (p50.sum(axis=(1, 2)) < 0.9 * p90.sum(axis=(1, 2))).all()


def test_a_plan_below_the_minimum_is_replayed_as_it_is(planned: RunSettings) -> None:
    """A budget may leave an endpoint nothing: then nothing is what it has, and what it costs."""
    rows = read_day_plans(planned, DAY)
    own = rows[rows["policy"] == "corrected"]
    wanted = planned.grid.hourly_cells(own, "instances").astype(np.int64)
    wanted[:, 2, 1] = 0
    template = problem_template(planned.grid, planned.config, [300.0, 400.0, 200.0, 250.0], "corrected")
    hours = [(template, planned_by(template, on)) for on in wanted]
    variant = experiment.Variant("poor", planned, DAY, planned_trials.FOLLOW_POLICY)
    poor = planned_trials.build_plan_trial(variant, hours, planned.grid.by_pool(wanted[0]))
    crowded = poor._replace(demand_factor=8.0)
    requests = read_workload(planned, DAY)
    tables = list(experiment.replay_trials([poor, crowded], 2, requests, "replay", Progress()))
    of_all = [table.filter(pc.field("llm") == "all").to_pylist() for table in tables]
    row, worse = ({one["metric"]: one["value"] for one in rows} for rows in of_all)
    anywhere = pickle.loads(pickle.dumps(poor))  # as another process gets it
    assert experiment.replay_trial(anywhere).equals(tables[0])
    assert worse["missed_share"] > 2 * row["missed_share"]
    assert row["below_minimum_hours"] == 24
    cost = [(plan.instances.sum(axis=1) * np.nan_to_num(template.usd_per_hour)).sum() for _, plan in hours]
    assert row["dearest_hour_usd"] == pytest.approx(max(cost), rel=0.02)
    assert row["usd"] == pytest.approx(sum(cost), rel=0.01)


def test_a_multiplied_day_is_the_same_day_with_more_requests(planned: RunSettings) -> None:
    once = read_workload(planned, DAY)
    more = experiment.scale_workload(planned, DAY, once, 2.5)
    assert more.trace.arrival_s.size == more.requests.num_rows
    assert more.requests.num_rows == pytest.approx(2.5 * once.requests.num_rows, rel=0.02)
    since = more.requests["arrived_at"].cast(pa.int64()).to_numpy() / 1e6 - midnight(DAY).timestamp()
    assert since == pytest.approx(more.trace.arrival_s, abs=1e-6)
    assert (np.diff(more.trace.arrival_s) >= 0).all()
    by_hour = [np.bincount((w.trace.arrival_s // 3600).astype(int), minlength=24) for w in (once, more)]
    assert by_hour[1] == pytest.approx(2.5 * by_hour[0], rel=0.15)
    assert set(once.requests["request_id"].to_pylist()) == set(more.requests["request_id"].to_pylist())
    fewer = experiment.scale_workload(planned, DAY, once, 0.25)
    ids = fewer.requests["request_id"].to_pylist()
    assert len(ids) == len(set(ids)) == pytest.approx(0.25 * once.requests.num_rows, rel=0.05)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('down = ["easst"]', "unknown region 'easst'. Did you mean 'east'"),
        ('down = ["east", "central", "west"]', "down names every region; leave one up"),
        ('gpu = "h100"', "unknown gpu 'h100'"),
        ("tensor_parallel = { llama2-70b = 6 }", "tensor_parallel must divide the 64 heads of llama2-70b"),
        ("tensor_parallel = { lama2-70b = 4 }", "unknown llm 'lama2-70b'. Did you mean 'llama2-70b'"),
        ("epsilom = 0.5", "unknown key 'epsilom'. Did you mean 'epsilon'"),
        ("quantile = 0.8", "quantile: got 0.8, needed one of 0.5, 0.9, 0.95"),
        ("instances_at_start = 25", "of each llm: 300 h100-80gb in east, whose cap_gpus is 240"),
        ("min_instances = 50", "[fleet] needs min_instances <= max_instances"),
        ("demand_factor = 0.0", "demand_factor: got 0.0, needed a number above 0 and up to 1,000"),
        (
            "usd_per_gpu_hour = { h100-80gb = -1 }",
            "usd_per_gpu_hour.h100-80gb: got -1.0, needed a number from 0",
        ),
        ("budget_usd_per_hour = 100", "is 100, but one instance of each llm costs 147"),
    ],
)
def test_a_case_that_cannot_be_is_refused_before_anything_is_replayed(
    planned: RunSettings, tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "whatif.toml"
    path.write_text(f'[x]\nwhat = "a mistake"\n{line}\n')
    for names in ([], ["x"]):
        with pytest.raises(ConfigError, match=rf"^whatif\.toml \[x\].*{re.escape(message)}"):
            whatif_cases.resolve_cases(planned, names, path=path)
    with pytest.raises(ConfigError, match="Did you mean 'east_down'"):
        whatif_cases.resolve_cases(planned, ["eastdown"])


def test_a_case_that_the_config_cannot_have_stops_no_other(
    planned: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a named one, as the job of one partition names it, nor all: a line names those left out."""
    path = tmp_path / "whatif.toml"
    path.write_text(
        '[fine]\nwhat = "fine"\n'
        '[small]\nwhat = "an llm of another config"\ntensor_parallel = { "llama3.3-70b" = 2 }\n'
        '[mars]\nwhat = "a region of another config"\ndown = ["mars"]\n'
        '[budget]\nwhat = "a budget"\nbudget_usd_per_hour = 443.0\n'
    )
    monkeypatch.setattr(whatif_cases.resolve_cases, "__defaults__", ("corrected", path))
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0, 400.0, 200.0, 250.0])
    context = AssetContext(planned, Progress(), keys={"day": str(DAY), "case": "fine"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert studies_on_demand.whatifs.make(context).table["case_name"].to_pylist() == ["fine"]
    left_out = (
        r"small\.toml cannot have 2 of the cases, which are left out: whatif\.toml \[small\]: unknown llm "
        r"'llama3\.3-70b'\. .* whatif\.toml \[mars\]: unknown region 'mars'\. .*$"
    )
    with pytest.warns(ConfigWarning, match=left_out):
        assert list(whatif_cases.resolve_cases(planned, [])) == ["fine", "budget"]
    with pytest.warns(ConfigWarning, match="needs a policy with a corrected plan, and lt_ua has none"):
        assert list(whatif_cases.resolve_cases(planned, [], "lt_ua")) == ["fine"]
    with pytest.raises(ConfigError, match=r"^whatif\.toml \[mars\]: unknown region 'mars'"):
        whatif_cases.resolve_cases(planned, ["fine", "mars"])
    path.write_text(path.read_text() + '[odd]\nwhat = "a mistake"\nepsilom = 0.5\n')
    assert list(whatif_cases.resolve_cases(planned, ["fine"])) == ["fine"]
    with pytest.raises(ConfigError, match=r"^whatif\.toml \[odd\]: unknown key 'epsilom'"):
        whatif_cases.resolve_cases(planned, [])


@pytest.fixture(scope="module")
def loaded(planned: RunSettings, tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """That day, planned with so weak instances that plans differ in their first hour already."""
    folder = tmp_path_factory.mktemp("loaded") / "lake"
    shutil.copytree(planned.lake.root, folder)
    own = dataclasses.replace(planned, lake=Lake(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", lambda *_: WEAK)
        plans.plan_day(own, DAY, Progress())
    rows = read_day_plans(own, DAY)
    firsts = [own.grid.hourly_cells(rows[rows["policy"] == name], "instances")[0] for name in STARTS]
    assert not np.array_equal(*firsts)
    return own


@pytest.mark.parametrize("policy", ["reactive", "lt_ua", "chiron", "corrected", "day_ahead"])
def test_what_if_nothing_were_different_is_the_night(loaded: RunSettings, policy: str) -> None:
    """Its plan and its replay begin as those of the night do: all from one fleet."""
    replay_day(loaded, DAY, [policy], Progress())
    night = loaded.lake.sql(
        f"select sum(paid_gpu_hours) as spent, sum(usd) as usd from fleet_by_hour where policy = '{policy}'"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", lambda *_: WEAK)
        [row] = whatif.run_whatif_cases(loaded, DAY, ["as_is"], Progress(), policy).to_pylist()
    assert row["gpu_hours"] == pytest.approx(night["spent"][0].as_py(), rel=1e-12)
    assert row["usd"] == pytest.approx(night["usd"][0].as_py(), rel=1e-12)
    assert loaded.lake.sql(
        "select policy from whatifs where case_name = $name", name=whatif.case_file_name("as_is", policy)
    ).num_rows


def test_a_policy_that_plans_as_it_goes_is_no_what_if(planned: RunSettings) -> None:
    for policy in ("dynamo", "compact", "corrected_closed"):
        with pytest.raises(ConfigError, match=f"What if under {policy}: its plan is not made hour by hour"):
            whatif.run_whatif_cases(planned, DAY, ["as_is"], Progress(), policy)


def test_a_case_that_no_plan_can_satisfy_is_named(planned: RunSettings) -> None:
    crowded = dataclasses.replace(whatif_cases.load_whatif_cases()["as_is"], min_instances=40)
    chosen = {"crowded": (crowded, whatif_cases.resolve_case(planned, crowded, "x"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0, 400.0, 200.0, 250.0])
        with pytest.raises(ConfigError, match=r"^whatif\.toml \[crowded\]: The plan contradicts itself"):
            whatif.plan_whatif_cases(chosen, DAY, Progress(), "corrected")


def test_an_empty_plan_gives_its_reason(planned: RunSettings) -> None:
    template = problem_template(planned.grid, planned.config, [0.0] * 4, "corrected")
    load = plans.day_loads(planned, DAY)["corrected"]
    with pytest.raises(
        PlanError, match=r"bloom-176b fits on no GPU type: it serves nan on 1 x .*, 0\.0 on 8 x h100-80gb"
    ):
        hourly_plans(
            hour_problems(template, load),
            template.instances_now * 0,
            template.spot,
            corrected_plan.solve_corrected,
        )


def test_the_plan_commands_help_with_examples_and_refuse_in_one_line() -> None:
    assert (
        "fleetcast plan export --format keda-scaler"
        in CliRunner().invoke(cli_app, ["plan", "export", "--help"]).output
    )
    assert "fleetcast whatif as_is" in CliRunner().invoke(cli_app, ["whatif", "--help"]).output
    refused = CliRunner().invoke(cli_app, ["plan", "export", "--format", "json", "--policy", "lt_x"])
    assert refused.exit_code == 2
    assert "unknown policy with a plan 'lt_x'" in refused.stderr
