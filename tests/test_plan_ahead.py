"""The plan of the next day right after a file has landed, and the message where nothing has landed."""

import csv
import dataclasses
import json
import warnings
from datetime import date, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from mine import DAYS, land, mine
from small import by_size
from typer.testing import CliRunner

from fleetcast.assets import lineage
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.plans import day_ahead, measured_capacity, plans
from fleetcast.assets.plans.cluster_workloads import early_boots
from fleetcast.assets.plans.plan_export import EarlyBoots, plan_to_json, read_plan_rows
from fleetcast.assets.plans.plan_flows import describe_region_exports
from fleetcast.assets.plans.shortage_remedies import describe_shortage_remedy
from fleetcast.assets.plans_on_demand import PLAN_BY_HOUR_QUERY
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigWarning
from fleetcast.pipelines import plan_cli, runs
from fleetcast.pipelines.cli import cli_app
from fleetcast.pipelines.plan_display import show_plans
from fleetcast.pipelines.scoreboard import show_short_plans

LAST = date(2025, 7, 3)


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    """A config of a trace that has not landed yet."""
    return mine(tmp_path, '"llama2-70b" = { gpu = "h100-80gb", tensor_parallel = 2 }', "last_value")


def land_minutes(settings: RunSettings, trace: str) -> None:
    """Three days with a request of 900 tokens a minute, every third one of niw."""
    minutes = range(1440 * DAYS)
    tiers = ["niw" if n % 3 == 2 else "iw_fast" for n in minutes]
    tokens = {"input_tokens": 900, "output_tokens": 9}
    land(settings, [60 * n for n in minutes], trace, llm="llama2-70b", tier=tiers, **tokens)


def test_what_has_just_landed_can_be_planned_ahead(settings, monkeypatch):
    land_minutes(settings, "mine")
    assert settings.lake.days("demand", "mine") == []
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0])
    day = day_ahead.next_plan_day(settings)
    assert day == LAST + timedelta(days=1)
    for number in range(2):
        table = day_ahead.plan_ahead(settings, day + timedelta(days=number), Progress())
        assert table.num_rows == 24 * len(settings.catalogue.regions)
        niw = settings.config.forecast.niw_buffer_share * 900 / 180
        buffers = sorted(set(table["buffer_tokens_per_s"].to_pylist()))
        assert buffers == [0.0, pytest.approx(niw)]  # of the latest day that is known
    mean = (
        "select day, avg(forecast_per_s) as mean, count(actual_per_s) as came from day_ahead_forecasts "
        "where region = 'east' group by day order by day"
    )
    rows = settings.lake.sql(mean).to_pylist()
    assert [row["day"] for row in rows] == [day, day + timedelta(days=1)]
    assert [row["mean"] for row in rows] == pytest.approx([900 * 2 / 180] * 2)
    assert [row["came"] for row in rows] == [0, 0]  # it is not known yet, though a day without rows is empty


def test_the_next_day_is_planned_with_what_small_pools_sustain(settings, monkeypatch):
    """East keeps 8.5 tokens/s, the work of two of four instances with 4.5 each; one of two has 3.4."""
    land_minutes(settings, "mine")
    monkeypatch.setattr(measured_capacity, "MEASURED_SIZES", {})
    monkeypatch.setattr(
        measured_capacity, "measure_capacities", lambda *of: [each * 0.15 for each in by_size(*of)]
    )
    held = {}
    for knows in (False, True):
        plan = dataclasses.replace(settings.config.plan, capacity_by_size=knows)
        own = settings.with_config(plan=plan)
        rows = day_ahead.plan_ahead(own, day_ahead.next_plan_day(own), Progress()).to_pylist()
        held[knows] = {row["instances"] for row in rows if row["served_region"] == "east"}
    assert held == {False: {2}, True: {3}}


def test_loads_and_flows_of_a_plan_count_what_small_pools_sustain(settings, monkeypatch):
    """Each of one instance sustains a half of each of four, of two three quarters, of three seven eighths."""
    land_minutes(settings, "mine")
    monkeypatch.setattr(measured_capacity, "MEASURED_SIZES", {})
    monkeypatch.setattr(measured_capacity, "measure_capacities", by_size)
    own = settings.with_config(plan=dataclasses.replace(settings.config.plan, capacity_by_size=True))
    day = day_ahead.next_plan_day(own)
    made = day_ahead.plan_ahead(own, day, Progress())
    of_n = {0: 0.0, 1: 0.5, 2: 0.75, 3: 0.875}

    def read_loads(has_sizes: bool) -> str:
        """Check the loads of the plan in the lake; return its line on flows, of a load of 0.9 of n c(4)."""
        rows = read_plan_rows(own, day, "day_ahead", "east")
        full = [row["instances"] * row["capacity_tokens_per_s"] for row in rows]
        sizes = [of_n.get(row["instances"], 1.0) if has_sizes else 1.0 for row in rows]
        serves = [whole * size for whole, size in zip(full, sizes, strict=True)]
        exported = json.loads(plan_to_json(rows, early_boots(own, rows)))
        capacities = [one["capacity_tokens_per_s"] for hour in exported["hours"] for one in hour["endpoints"]]
        assert capacities == pytest.approx(serves)
        shown = own.lake.sql(PLAN_BY_HOUR_QUERY, trace="mine", day=day, policy="day_ahead", region="east")
        loads = [row["demand_tokens_per_s"] + row["buffer_tokens_per_s"] for row in rows]
        expected = [load / serve for load, serve in zip(loads, serves, strict=True)]
        assert shown["fullest_share"].to_pylist() == pytest.approx(expected)
        near = [{**row, "demand_tokens_per_s": 0.9 * n} for row, n in zip(rows, full, strict=True)]
        return describe_region_exports(own, near)

    assert {*made["instances"].to_pylist()} & {1, 2, 3} == {*made["instances"].to_pylist()} - {0}
    assert read_loads(has_sizes=True).startswith("flows    24 hours serve less than the demand of east: ")
    at = made.schema.get_field_index("sustained_tokens_per_s")
    earlier = made.set_column(at, made.schema.field(at), pa.nulls(made.num_rows, pa.float64()))
    own.lake.write("day_ahead_plans", earlier, trace="mine", day=day)
    assert read_loads(has_sizes=False) == "", "an earlier plan has no such column"


EAST_ONLY = {"deployments": {"llama2-70b": (Deployment("h100-80gb", 2, regions=("east",)),)}}
TWO_KINDS = tuple(
    Deployment("h100-80gb", n, regions=("east",), max_instances=most) for n, most in ((2, 1), (4, 9))
)
BINDS = "Raise what binds: "


@pytest.mark.parametrize(
    ("broken", "cap", "mended", "mended_cap", "remedy"),
    [
        ({"max_instances": 3}, 80, {}, 80, BINDS + "max_instances in east."),
        ({}, 6, {}, 80, BINDS + "cap_gpus of h100-80gb in east."),
        ({"deployments": {"llama2-70b": TWO_KINDS}}, 6, {}, 80,
         BINDS + "max_instances in east; cap_gpus of h100-80gb in east."),
        ({"instances_at_start": 1}, 80, {}, 80,
         "No limit binds: a cold start in east takes 70 min, too long for what starts in this hour. "
         "Raise instances_at_start or min_instances, or name llama2-70b in the weights of east."),
        ({"instances_at_start": 1}, 80, {"instances_at_start": 1, "min_instances": 12}, 80, "No limit binds"),
    ],
)  # fmt: skip
def test_the_remedy_of_a_short_plan_follows_what_binds_and_mends_it(
    settings, monkeypatch, capsys, broken, cap, mended, mended_cap, remedy
):
    land_minutes(settings, "mine")
    shares = settings.config.plan.corrected_capacity_share
    monkeypatch.setattr(
        measured_capacity,
        "measure_capacities",
        lambda own, *_: [1.5 / shares] * len(own.grid.service_options),
    )
    day = LAST + timedelta(days=1)

    def find_short(cap_gpus: int, **fleet: object) -> tuple[RunSettings, list[dict[str, object]]]:
        limits = {"min_instances": 0, "max_instances": 40, "instances_at_start": 40, **EAST_ONLY, **fleet}
        own = settings.with_config(
            fleet=dataclasses.replace(settings.config.fleet, **limits),
            replay=dataclasses.replace(settings.config.replay, boot_remote_s=4200.0),
        )
        regions = {
            name: dataclasses.replace(region, cap_gpus={"h100-80gb": cap_gpus}, weights=())
            for name, region in own.catalogue.regions.items()
        }
        own = dataclasses.replace(own, catalogue=dataclasses.replace(own.catalogue, regions=regions))
        day_ahead.plan_ahead(own, day, Progress())
        return own, own.lake.sql("queries/short_plans.sql", trace="mine", day=day).to_pylist()

    own, [short] = find_short(cap, **broken)
    found = describe_shortage_remedy(own, short)
    assert found.startswith(remedy)
    assert describe_shortage_remedy(own, short | {"served_region": "east"}) == found
    elsewhere = describe_shortage_remedy(own, short | {"served_region": "west"})
    assert elsewhere == "It has no pool in west: deploy it there."
    show_short_plans([short | {"remedy": found}])
    assert capsys.readouterr().err.endswith(f" instances. {found}\n")
    assert find_short(mended_cap, **mended)[1] == []


def test_a_region_with_nothing_of_an_llm_is_in_the_table_but_not_printed(settings, monkeypatch, capsys):
    """Central has a pool without a load; west has no pool, but later a load."""
    idle = Deployment("h100-80gb", 4, regions=("central",), instances_at_start=0)
    pools = (Deployment("h100-80gb", 2, regions=("east",)), idle)
    fleet = dataclasses.replace(settings.config.fleet, deployments={"llama2-70b": pools}, min_instances=0)
    own = settings.with_config(fleet=fleet)
    land_minutes(own, "mine")
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0, 500.0])
    monkeypatch.setattr(plan_cli, "load_cli_settings", lambda *_: own)
    monkeypatch.setattr(runs, "publish_on_demand", lambda *_: None)

    def first_hour(*arguments: str) -> list[tuple[str, ...]]:
        printed = CliRunner().invoke(cli_app, ["plan", *arguments])
        assert printed.exit_code == 0, printed.output
        rows = list(csv.DictReader(printed.stdout.splitlines()))
        assert printed.stdout.startswith('"hour_start","region","llm",')
        begin = min((row["hour_start"] for row in rows), default="")
        columns = ("region", "gpus_per_instance", "instances")
        return [tuple(row[name] for name in columns) for row in rows if row["hour_start"] == begin]

    deployed = [("central", "4", "0"), ("east", "2", "1"), ("east", "4", "0")]  # a load is of all kinds
    assert first_hour("ahead") == deployed
    day = day_ahead.next_plan_day(own)
    table = own.lake.read("day_ahead_plans", trace="mine", day=day)
    assert table.num_rows == 24 * 2 * len(own.catalogue.regions)
    show = ("show", "--policy", "day_ahead", "--date", str(day))
    assert first_hour(*show, "--region", "west") == []
    hours = own.lake.sql(PLAN_BY_HOUR_QUERY, trace="mine", day=day, policy="day_ahead", region="west")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show_plans([([], hours.to_pylist(), EarlyBoots(0.0, 0.0))])
    assert f"mine, {day}, plan of day_ahead" in capsys.readouterr().out
    rows = table.drop_columns(["trace", "day"]).to_pylist()
    rows[-1] |= {"demand_tokens_per_s": 5.0}
    assert (rows[-1]["served_region"], rows[-1]["hour_start"].hour) == ("west", 23)
    own.lake.write(
        "day_ahead_plans", pa.Table.from_pylist(rows, SCHEMAS["day_ahead_plans"]), trace="mine", day=day
    )
    gpus = str(rows[-1]["gpus_per_instance"])
    assert first_hour(*show) == [*deployed, ("west", gpus, "0")]


def test_dagster_forecasts_a_day_from_the_files_as_they_are(settings, monkeypatch):
    """The first run after a file was corrected has the demand of its new rows, as the command line has."""
    monkeypatch.setattr(SettingsResource, "load", lambda _: settings)
    day = LAST + timedelta(days=1)

    def forecast_mean() -> float:
        ran = dg.materialize(
            [lineage.forecasts],
            partition_key=day.isoformat(),
            resources={"settings": SettingsResource(config="mine", lake=""), "progress": Progress()},
        )
        assert ran.success
        mean = "select avg(forecast_per_s) as mean from day_ahead_forecasts where region = 'east'"
        return settings.lake.sql(mean)["mean"][0].as_py()

    land_minutes(settings, "mine")
    assert forecast_mean() == pytest.approx(900 * 2 / 180)
    land(settings, range(0, 86_400 * DAYS, 60), "mine", llm="llama2-70b", tier="iw_fast",
         input_tokens=300, output_tokens=9)  # fmt: skip
    assert [forecast_mean(), forecast_mean()] == pytest.approx([300 / 60] * 2)


def test_where_nothing_has_landed_the_next_command_is_named(settings):
    with pytest.raises(
        LakeError, match=r"'mine' has no day to forecast from\. Run fleetcast ingest, .*again\.$"
    ):
        day_ahead.next_plan_day(settings)
    land_minutes(settings, "other")
    with pytest.raises(LakeError, match=r"Landed is other: .* fleetcast plan ahead --config FILE\.$"):
        day_ahead.next_plan_day(settings)


def test_targets_that_no_number_of_instances_keeps_are_named_before_the_plan(settings, monkeypatch):
    """Of iw_fast, every second prompt is too long for its target; iw_normal has longer ones, all in time."""
    minutes = range(1440 * DAYS)
    tiers = [("iw_fast", "iw_normal", "iw_fast", "niw")[n % 4] for n in minutes]
    tokens = [(100, 4000, 2000, 9000)[n % 4] for n in minutes]
    columns = {"tier": tiers, "input_tokens": tokens, "output_tokens": 9}
    land(settings, [60 * n for n in minutes], llm="llama2-70b", **columns)
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0])
    day = LAST + timedelta(days=1)
    tiers = settings.catalogue.tiers

    def with_ttft_slos(iw_fast_s: float, iw_normal_s: float) -> RunSettings:
        slos_s = {"iw_fast": iw_fast_s, "iw_normal": iw_normal_s}
        aimed = {name: dataclasses.replace(tiers[name], ttft_slo_s=slo_s) for name, slo_s in slos_s.items()}
        catalogue = dataclasses.replace(settings.catalogue, tiers=tiers | aimed)
        return dataclasses.replace(settings, catalogue=catalogue)

    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfigWarning)
        day_ahead.plan_ahead(with_ttft_slos(10.0, 10.0), day, Progress())
    half = r"llama2-70b on 2 x h100-80gb serves only (49|50) % of the iw_fast requests in time"
    none = "llama2-70b .* only 0 % of the iw_normal requests .* the target is 95 %"
    for line, slos_s in ((half, (0.1, 10.0)), (none, (10.0, 0.1))):
        with pytest.warns(ConfigWarning, match=line) as heard:
            day_ahead.plan_ahead(with_ttft_slos(*slos_s), day, Progress())
        assert [each.category for each in heard].count(ConfigWarning) == 1
    # A night has the same line, before it needs a forecast.
    with pytest.warns(ConfigWarning, match=half), pytest.raises(ValueError, match="Forecast the day again"):
        plans.plan_day(with_ttft_slos(0.1, 10.0), LAST, Progress())


def test_the_cost_of_an_llm_without_requests_is_named_before_the_plan(tmp_path, monkeypatch):
    """In each region one instance of 8 H100 stands for it all day; the llm with requests is not named."""
    pools = "\n".join(
        f'"{llm}" = {{ gpu = "h100-80gb", tensor_parallel = {gpus}, min_instances = 1 }}'
        for llm, gpus in (("llama2-70b", 2), ("bloom-176b", 8))
    )
    settings = mine(tmp_path, pools, "last_value")
    land_minutes(settings, "mine")
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: [300.0] * 2)
    usd = 24 * 8 * settings.catalogue.gpus["h100-80gb"].usd_per_hour * len(settings.catalogue.regions)
    line = f"names bloom-176b, and its minimum of instances costs {usd:,.0f} USD a day"
    with pytest.warns(ConfigWarning, match=line) as heard:
        day_ahead.plan_ahead(settings, LAST + timedelta(days=1), Progress())
    assert [each.category for each in heard].count(ConfigWarning) == 1


def test_a_day_that_is_not_there_is_made_with_the_same_config(settings):
    remedy = rf"It has no day at all\. Make it with fleetcast nightly --config {settings.config.file}, or"
    with pytest.raises(LakeError, match=remedy):
        settings.require_day("plans", LAST)
