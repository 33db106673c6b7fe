"""Pools of an llm: which lists of them cannot be, and what a plan makes of those that can."""

import dataclasses
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
import yaml
from small import make_plans, small_config

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.plans import cluster_formats, plan_export
from fleetcast.assets.plans.export_options import ExportOptions
from fleetcast.assets.plans.plan_loads import PlanLoad
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.assets.replays import policy_inputs
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import score_day
from fleetcast.models.plan.corrected_plan import solve_corrected
from fleetcast.models.plan.plan_violations import find_violations
from fleetcast.models.plan.problem import HourPlan
from fleetcast.models.plan.sageserve_plan import solve_sageserve
from fleetcast.models.plan.solver import SolverOptions
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.world.catalogue import CATALOGUE_DIR, load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.mechanisms import POOL_SPREADS
from fleetcast.models.world.toml_dataclasses import ConfigError

LLM, PARTED = "llama2-70b", "llama3.1-8b"
PREFILL = '{ gpu = "h100-80gb", tensor_parallel = 2, role = "prefill"'
DECODE = '{ gpu = "h100-80gb", tensor_parallel = 4, role = "decode"'
EXACT = SolverOptions(gap_share=0.0)


def config_of(folder: Path, deployed: str, more: str = "") -> str:
    """A run of llama2-70b in so many pools, written to a file; its path."""
    path = folder / "pools.toml"
    path.write_text(
        'based_on = "sageserve"\n[trace]\nname = "pools"\nfirst_day = 2025-07-01\ndays = 3\nseed = 1\n'
        f"[fleet]\ninstances_at_start = 2\nmin_instances = 0\nmax_instances = 6\n{more}\n"
        f"[fleet.deployments]\n{LLM} = [{deployed}]\n"
    )
    return str(path)


@pytest.mark.parametrize(
    ("deployed", "message"),
    [
        (PREFILL + " }", "prefill on h100-80gb: no then, which fits 0 decode pools; it needs one. Give"),
        (f"{PREFILL} }}, {DECODE} }}, {DECODE} }}", "no then, which fits 2 decode pools; it needs one"),
        (
            f'{PREFILL}, then = "far" }}, {DECODE}, name = "near" }}',
            "then = 'far', which fits 0 decode pools",
        ),
        (DECODE + " }", "no pool takes requests: all decode. Add one that prefills."),
        (
            f'{PREFILL}, then = "a" }}, {DECODE}, name = "a" }}, {DECODE}, name = "b" }}',
            "decode on h100-80gb: no prefill pool sends to it. Add one, or drop its role.",
        ),
        (
            '{ gpu = "h100-80gb", tensor_parallel = 4 }, '
            '{ gpu = "h100-80gb", tensor_parallel = 2, pipeline_parallel = 2 }',
            "two pools are 4 x h100-80gb in different splits, which plans and tables cannot distinguish",
        ),
        (
            f"{PREFILL}, team = 1 }}, {DECODE} }}",
            "h100-80gb: prefill team = 1 of 2, 0, 6 and decode team = 0 of 2, 0, 6 instances at the start",
        ),
        (
            f"{PREFILL}, team = 1 }}, {DECODE}, team = 2 }}",
            "a pair needs the same number of whole teams on both sides. Change team or the instances.",
        ),
        (
            '{ gpu = "h100-80gb", tensor_parallel = 4, team = 2 }',
            "whole on h100-80gb: team = 2, but it has no decode pool. Drop it.",
        ),
        (
            f'{PREFILL}, name = "a" }}, {DECODE}, name = "a" }}',
            "two pools have one name among a, a. Rename one.",
        ),
        (
            f'{PREFILL} }}, {DECODE}, then = "a" }}',
            "decode on h100-80gb: then = 'a', but only prefill pools have a then. Drop it.",
        ),
        (
            f'{{ gpu = "h100-80gb", tensor_parallel = 2 }}, {PREFILL} }}, {DECODE} }}',
            "serve whole requests, others decode or prefill; a plan needs one kind. Give all",
        ),
        (f'{PREFILL}, regions = ["easst"] }}, {DECODE} }}', "unknown region 'easst'. Did you mean 'east'"),
        (
            f'{PREFILL}, regions = ["east", "west"] }}, {DECODE}, regions = ["east"] }}',
            "no instance decodes (h100-80gb) in west. Give both the same regions, and these regions the",
        ),
        (f"{PREFILL}, min_instances = 9 }}, {DECODE} }}", "min_instances = 9, instances_at_start = 2, max"),
        (f'{PREFILL}, role = "idle" }}', "role"),
    ],
)
def test_pools_that_cannot_be_are_refused_by_name(tmp_path: Path, deployed: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        load_settings(config_of(tmp_path, deployed), tmp_path / "lake")
    assert "\n" not in str(refused.value)
    assert "pools.toml" in str(refused.value)


def test_pools_without_a_link_are_refused(tmp_path: Path) -> None:
    for file in CATALOGUE_DIR.glob("*.toml"):
        text = "\n".join(line for line in file.read_text().splitlines() if "link_gbit_per_s =" not in line)
        (tmp_path / file.name).write_text(text)
    unlinked, deployed = load_catalogue(tmp_path), f"{PREFILL} }}, {DECODE} }}"
    with pytest.raises(ConfigError, match=r"h100-80gb has no link_gbit_per_s for KV transfers"):
        load_config(config_of(tmp_path, deployed), unlinked)
    load_config(config_of(tmp_path, deployed, "link_gbit_per_s = 25.0"), unlinked)


def test_requests_do_not_move_over_unknown_links() -> None:
    world = load_catalogue().of_era("2023", "here")
    office = load_config("sageserve", world)
    gpus = {name: dataclasses.replace(gpu, link_gbit_per_s=None) for name, gpu in world.gpus.items()}
    unlinked = dataclasses.replace(world.serving(office.fleet.deployments), gpus=gpus)
    make_fleet(unlinked, office.fleet, office.under("corrected").replay, 0)
    with pytest.raises(ConfigError, match=r"^h100-80gb has no link_gbit_per_s, over which .* Add it"):
        make_fleet(unlinked, office.fleet, office.under("llumnix").replay, 0)


def running_hour(
    settings: RunSettings, theta: list[float], tokens_per_s: float, programme: str = "corrected"
):
    """An hour in which every region needs so much."""
    template = problem_template(settings.grid, settings.config, theta, programme)
    regions = len(template.regions)
    load = PlanLoad(np.full((1, 1, regions, 4), tokens_per_s), np.zeros((1, 1, regions)))
    return hour_problems(template, load)[0]


TWO_KINDS = (
    '{ gpu = "h100-80gb", tensor_parallel = 2 }, '
    '{ gpu = "h100-80gb", tensor_parallel = 4, regions = ["east", "west"], max_instances = 3 }'
)


@pytest.mark.parametrize("solve", [solve_sageserve, solve_corrected], ids=["paper", "corrected"])
def test_the_cheaper_kind_is_planned_and_the_other_where_the_first_ones_limit_binds(
    tmp_path: Path, solve: Callable[..., HourPlan]
) -> None:
    """1,000 tokens/s of 2 GPUs are cheaper than 1,400 of 4: six of those, then the second where it may."""
    settings = load_settings(config_of(tmp_path, TWO_KINDS), tmp_path / "lake")
    assert [option[:2] for option in settings.grid.options] == [("h100-80gb", 2), ("h100-80gb", 4)]
    for tokens_per_s, cheap, dear in ((900, 1, 0), (5500, 6, 0), (7000, 6, 1), (12000, 6, 3)):
        problem = running_hour(settings, [1000.0, 1400.0], float(tokens_per_s))._replace(
            epsilon=1.0, boot_cold_s=np.zeros((1, 3, 2))
        )
        central = list(problem.regions).index("central")
        problem.demand_tokens_per_s[0, central] = min(tokens_per_s, 5500.0)
        plan = solve(problem, EXACT)
        assert find_violations(problem, plan) == []
        assert plan.instances[0, 0].tolist() == [cheap, dear]
        assert plan.instances[0, central].tolist() == [cheap, 0]


def test_an_instance_that_neither_part_can_do_without_is_planned_for_both(tmp_path: Path) -> None:
    """Prefill serves 2,000 tokens/s an instance, decode 500: each carries the whole demand."""
    settings = load_settings(config_of(tmp_path, f"{PREFILL} }}, {DECODE} }}"), tmp_path / "lake")
    assert settings.grid.services == [(LLM, "prefill"), (LLM, "decode")]
    problem = running_hour(settings, [2000.0, 500.0], 1400.0)._replace(epsilon=1.0)
    plan = solve_corrected(problem, EXACT)
    assert find_violations(problem, plan) == []
    assert plan.instances.sum(axis=2).tolist() == [[1] * 3, [3] * 3]
    assert problem.services == (f"{LLM} (prefill)", f"{LLM} (decode)")


def test_instances_of_a_plan_and_of_its_pools_are_the_same(tmp_path: Path) -> None:
    """Three pools, of which two are alike: each of these gets its minimum, then one after the other more."""
    two = '{ gpu = "h100-80gb", tensor_parallel = 2'
    deployed = f"{two}, max_instances = 3 }}, {two}, min_instances = 1 }}, {two[:-1]}4 }}"
    settings = load_settings(config_of(tmp_path, deployed), tmp_path / "lake")
    assert len(settings.grid.service_options) == 2
    assert settings.under("lt_ua").grid is settings.grid  # computed once: a policy has no fleet of its own
    assert dataclasses.replace(settings, catalogue=settings.catalogue).grid is not settings.grid
    assert len(settings.grid.pools) == 9
    planned = np.minimum(np.arange(2 * 6), 9).reshape(2, 1, 3, 2)  # hours, services, regions, options
    held = settings.grid.by_pool(planned)
    assert held[1].tolist() == [3, 3, 7, 3, 5, 9, 3, 6, 9]
    for hour, of_pools in zip(planned, held.astype(np.int64), strict=True):
        assert (settings.grid.to_cells(of_pools) == hour).all()
    assert held[0].tolist() == [0, 0, 1, 1, 1, 3, 3, 1, 5]
    beyond = planned[0] + 100  # of a past day, whose limits were larger: none is lost
    assert (settings.grid.to_cells(settings.grid.by_pool(beyond).astype(np.int64)) == beyond).all()


DAY = date(2025, 7, 3)
THETA = {"bloom-176b": 400.0, "llama3.2-3b": 250.0}  # small instances, so that there is something to plan
OF_KIND = {(LLM, "whole", 2): 60.0, (LLM, "whole", 4): 100.0}
POLICIES = ("reactive", "dynamo", "lt_i", "lt_ua", "corrected", "corrected_closed", "clairvoyant")


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """A night, to its scorecard, of two kinds of one llm, and of another of parts."""
    folder = tmp_path_factory.mktemp("pools")
    named = "[" + ", ".join(f'"{policy}"' for policy in POLICIES) + "]"
    config = Path(
        small_config(
            folder, policies=named, requests_per_day="20_000.0", instances_at_start="3", min_instances="1"
        )
    )
    text = config.read_text()
    for llm, one, several in ((LLM, 2, TWO), (f'"{PARTED}"', 1, APART)):
        line = f'{llm} = {{ gpu = "h100-80gb", tensor_parallel = {one} }}'
        assert line in text
        text = text.replace(line, f"{llm} = [{several}]")
    config.write_text(text)
    settings = load_settings(str(config), folder / "lake")
    make_plans(settings, DAY, lambda settings, *_: sustained(settings))
    replay_day(settings, DAY, POLICIES, Progress())
    score_day(settings, DAY)
    return settings


TWO = (
    '{ gpu = "h100-80gb", tensor_parallel = 2, instances_at_start = 2, max_instances = 2 }, '
    '{ gpu = "h100-80gb", tensor_parallel = 4, min_instances = 0, instances_at_start = 0, '
    'engine = "fp8", weight_bits = 8 }'
)
APART = (
    '{ gpu = "h100-80gb", tensor_parallel = 1, role = "prefill" }, '
    '{ gpu = "h100-80gb", tensor_parallel = 1, role = "decode" }'
)


def sustained(settings: RunSettings) -> list[float]:
    """Tokens/s of an instance of each kind."""
    return [
        OF_KIND.get((kind.llm, kind.role, kind.option.gpus), THETA.get(kind.llm, 150.0))
        for kind in settings.grid.service_options
    ]


def test_a_night_with_two_kinds_and_parts_keeps_every_check(night: RunSettings) -> None:
    for check in sorted((SQL / "checks").glob("*.sql")):
        assert night.lake.sql(f"checks/{check.name}", trace=night.trace, day=DAY).num_rows == 0, check.name
    board = night.lake.sql("select * from scoreboard").to_pandas().set_index("policy")
    assert set(board.index) == set(POLICIES)
    assert (board["missed_share"] < 0.1).all()
    spent = (
        night.lake.sql(
            "select policy, llm, role, gpus_per_instance, sum(serving_s) as s from fleet_hours group by all"
        )
        .to_pandas()
        .set_index(["policy", "llm", "role", "gpus_per_instance"])
    )
    assert len(spent) == 6 * len(POLICIES)
    for policy in POLICIES:
        for role in ("prefill", "decode"):
            assert spent.loc[(policy, PARTED, role, 1), "s"] > 0


def test_a_night_uses_the_second_kind_only_where_the_first_ones_limit_binds(night: RunSettings) -> None:
    """Two instances of 60 tokens/s may be had of the cheaper one: less than that is never held of both."""
    rows = night.lake.sql(f"select * from plans where llm = '{LLM}' and policy = 'clairvoyant'").to_pandas()
    keys = ["served_region", "hour_start"]
    two, four = (rows[rows["gpus_per_instance"] == n].set_index(keys)["instances"] for n in (2, 4))
    assert four.max() > 0
    assert (60.0 * two + 100.0 * four > 2 * 60.0)[four > 0].all()
    assert (four == 0).sum() > 20


def test_the_replay_follows_the_plan_of_each_kind(night: RunSettings) -> None:
    """Serving and booting instances of each engine are, but for what boots and drains, those of the plan."""
    held = night.lake.sql(
        "select llm, role, gpu, gpus_per_instance, sum(serving_s + booting_s) / 3600 as held "
        "from fleet_hours where policy = 'lt_i' group by all order by all"
    ).to_pandas()
    wanted = night.lake.sql(
        "select llm, role, gpu, gpus_per_instance, sum(instances) as held from plans "
        "where policy = 'lt_i' group by all order by all"
    ).to_pandas()
    assert held["gpu"].tolist() == wanted["gpu"].tolist()
    assert "h100-80gb:fp8" in set(held["gpu"])
    assert held["held"].to_numpy(float) == pytest.approx(wanted["held"].to_numpy(float), rel=0.01)
    closed, opened = (
        night.lake.sql(
            "select llm, role, gpus_per_instance, sum(instances) as held "
            f"from {table} where policy = '{policy}' group by all order by all"
        ).to_pandas()
        for table, policy in (("closed_plans", "corrected_closed"), ("plans", "corrected"))
    )
    kinds = ["llm", "role", "gpus_per_instance"]
    assert closed[kinds].to_numpy().tolist() == opened[kinds].to_numpy().tolist()
    assert closed["held"].to_numpy(float) == pytest.approx(opened["held"].to_numpy(float), rel=0.1)


def test_an_instance_of_two_stages_has_twice_the_gpus_and_more_than_twice_the_memory(tmp_path: Path) -> None:
    """The weights are there once, the cache has the rest."""
    fleets = {}
    for stages in (1, 2):
        path = config_of(
            tmp_path, f'{{ gpu = "h100-80gb", tensor_parallel = 4, pipeline_parallel = {stages} }}'
        )
        settings = load_settings(path, tmp_path / "lake")
        fleets[stages] = make_fleet(settings.catalogue, settings.config.fleet, settings.config.replay, seed=0)
        problem = problem_template(settings.grid, settings.config, [100.0], "corrected")
        assert problem.uses.max() == fleets[stages].gpus[0] == 4 * stages
        assert problem.usd_per_hour[0, 0] == pytest.approx(12.29 * 4 * stages)
        assert problem.options == (f"{4 * stages} x h100-80gb",)
    one, two = fleets[1], fleets[2]
    assert two.kv_capacity[0] > 2 * one.kv_capacity[0]
    assert two.link_token_s[0] == pytest.approx(one.link_token_s[0] / 2)
    assert two.latency.decode_kv_s[0, 8] == pytest.approx(one.latency.decode_kv_s[0, 8] / 2)
    assert two.latency.decode_s[0, 16] == pytest.approx(one.latency.decode_s[0, 8], rel=1e-3)


def test_spread_by_goodput_deals_what_the_plans_measured(night: RunSettings) -> None:
    replay_config = dataclasses.replace(night.config.replay, spread="goodput")
    dealing = dataclasses.replace(night, config=dataclasses.replace(night.config, replay=replay_config))
    sustained = policy_inputs.planned_capacity(
        night.grid, night.config, policy_inputs.read_day_plans(night, DAY)
    )
    for policy, parts in (("corrected", 1), ("siloed", 2)):
        fleet, rules = policy_inputs.fleet_and_rules(dealing, policy)
        measured = policy_inputs.with_measured_capacity(dealing, fleet, sustained)
        assert POOL_SPREADS[rules.spread] == "goodput"
        of_llm = measured.weight[(fleet.llm == list(night.catalogue.llms).index(LLM)) & (fleet.region == 0)]
        assert (of_llm / of_llm[0]).tolist() == pytest.approx([1.0, 100.0 / 60.0] * parts)
        assert (policy_inputs.with_measured_capacity(night, fleet, sustained).weight == 1.0).all()
    counted = {}
    for spread, settings in (("in_order", night), ("goodput", dealing)):
        replay_day(settings, DAY, ["corrected"], Progress())
        counted[spread] = settings.lake.sql(
            "select count(*) filter (where instance >= 0) as n, sum(e2e_s) as s from outcomes "
            f"where policy = 'corrected' and llm = '{LLM}'"
        ).to_pylist()
    replay_day(night, DAY, ["corrected"], Progress())
    assert counted["in_order"] != counted["goodput"]


GRAINS = ("fleet_by_hour", "left_over", "regret", "all_plans", "fleet_hours", "plans", "plan_windows")
HOUR_DEMAND = ("shadow", "plan_by_hour", "plan_changes", "short_plans", "why_late")


def test_no_join_of_kinds_counts_a_row_twice(night: RunSettings) -> None:
    """Every table, mart and query has one row for each value of the grain that its header names."""
    found = {
        **{name: night.lake.sql(f"select * from {name}") for name in GRAINS},
        **{name: night.lake.sql(f"queries/{name}.sql", trace=night.trace, day=DAY) for name in HOUR_DEMAND},
    }
    for name, table in found.items():
        folder = next(path.parent.name for path in SQL.rglob(f"{name}.sql") if path.parent.name != "staging")
        keys = read_sql(f"{folder}/{name}.sql").listed("grain")
        assert table.num_rows == table.group_by(keys).aggregate([]).num_rows, name
    assert found["shadow"].num_rows == 24 * len(POLICIES)


def test_an_hour_of_a_plan_adds_its_pools_and_takes_the_worst_of_its_roles() -> None:
    """Counts and cost are added. What an endpoint, or an llm in all regions, is short of is added once."""
    rng, keys = np.random.default_rng(1127), ["llm", "role", "served_region", "gpu"]
    pools = pd.MultiIndex.from_product([["m", "n"], ["prefill", "decode"], ["east", "west"], ["a", "b"]])
    plans = pools.to_frame(index=False, name=keys).merge(pd.DataFrame({"hour_start": [0, 1, 2]}), "cross")
    plans = plans.query("llm == 'm' or served_region == 'east'").reset_index(drop=True)
    plans = plans.assign(trace="t", day=date(2025, 7, 3), policy="p")
    sums = ["instances", "reclaimed", "started", "donated", "gpus", "usd"]
    plans[[*sums, "gpus_per_instance"]] = rng.integers(1, 9, (len(plans), 7))
    plans.loc[:11, "instances"] = 0  # two endpoints of the first role of "m": no load over nothing
    plans["gpus"] = plans["instances"] * plans["gpus_per_instance"]
    plans["sustained_tokens_per_s"] = plans["instances"] * rng.integers(100, 900, len(plans))
    service, of_llm = ["hour_start", *keys[:3]], ["hour_start", *keys[:2]]
    for name, of in (("demand", service), ("buffer", service), ("short", service), ("short_llm", of_llm)):
        plans[f"{name}_tokens_per_s"] = plans.groupby(of)["usd"].transform(lambda _: rng.uniform(1, 9))
    with duckdb.connect() as con:
        con.register("all_plans", plans)
        everything = dict.fromkeys(("trace", "day", "policy", "region"))
        found = (
            con.execute(read_sql("queries/plan_by_hour.sql").text, everything).df().set_index("hour_start")
        )
    expected = plans.groupby("hour_start")[sums].sum()
    loads = plans.groupby(service)[["demand_tokens_per_s", "buffer_tokens_per_s"]].first().sum(axis=1)
    serves = plans["sustained_tokens_per_s"].groupby([plans[key] for key in service])
    expected["fullest_share"] = (loads / serves.sum().replace(0, np.nan)).groupby("hour_start").max()
    for name, of in (("short", ["llm", "served_region"]), ("short_llm", ["llm"])):
        worst = plans.groupby(["hour_start", *of])[f"{name}_tokens_per_s"].max()
        expected[f"{name}_tokens_per_s"] = worst.groupby("hour_start").sum()
    pd.testing.assert_frame_equal(found[expected.columns], expected, check_dtype=False)


def test_what_all_kinds_need_is_the_demand(night: RunSettings) -> None:
    needed = night.lake.sql(
        "select llm, role, served_region, hour_start, "
        "sum(needed_gpus / gpus_per_instance * capacity_tokens_per_s) as served, "
        "any_value(demand_tokens_per_s + buffer_tokens_per_s) as wanted from fleet_by_hour as held "
        "inner join plans using (trace, day, llm, role, served_region, gpu, gpus_per_instance, hour_start) "
        "where plans.policy = 'clairvoyant' and held.policy = 'reactive' "
        "group by all"
    ).to_pandas()
    assert len(needed) == 24 * 3 * 5
    assert needed["served"].to_numpy() == pytest.approx(needed["wanted"].to_numpy())


def test_every_kind_is_shown_and_exported_by_its_own_name(night: RunSettings) -> None:
    rows = plan_export.read_plan_rows(night, DAY, "corrected", "east")
    names = [
        one["metadata"]["name"]
        for one in yaml.safe_load_all(
            cluster_formats.render_cron_scaled_objects(night, rows, ExportOptions())
        )
    ]
    assert names == [
        "bloom-176b-h100-80gb", "llama2-70b-h100-80gb", "llama2-70b-h100-80gb-fp8",
        "llama3-1-8b-h100-80gb-decode", "llama3-1-8b-h100-80gb-prefill", "llama3-2-3b-h100-80gb",
    ]  # fmt: skip
    assert {(row["llm"], row["role"]) for row in rows} >= {(PARTED, "prefill"), (PARTED, "decode")}


def test_the_default_config_serves_every_request_though_endpoints_may_be_empty(tmp_path: Path) -> None:
    """A small day of office: an llm has a minimum in one region, and the others send their requests there."""
    day, policies = date(2025, 7, 3), ("reactive", "lt_ua", "corrected")
    settings = load_settings(small_config(tmp_path, "office", instances_at_start="2"), tmp_path / "lake")
    make_plans(settings, day, lambda settings, *_: [500.0] * len(settings.grid.service_options))
    replay_day(settings, day, policies, Progress())
    minimum = {llm: sum(pool.min_instances != 0 for pool in pools)
               for llm, pools in settings.config.fleet.deployments.items()}  # fmt: skip
    assert set(minimum.values()) == {1}
    served = settings.lake.sql(
        "select policy, count(*) as requests, count(*) filter (status = 'finished') as finished, "
        "count(*) filter (region <> served_region) as elsewhere from outcomes group by policy"
    ).to_pylist()
    assert {row["policy"] for row in served} == set(policies)
    assert all(row["finished"] == row["requests"] for row in served)
    elsewhere = {row["policy"]: row["elsewhere"] / row["requests"] for row in served}
    assert elsewhere["reactive"] > 0.5  # it never starts the first instance of an endpoint
    assert 0.1 < elsewhere["lt_ua"] < 0.3
