"""Teams as options of a plan: among whole instances, by every programme, and by Cauchy's autoscaler."""

import dataclasses
import re
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from small import small_config

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.plans import measured_capacity, plans
from fleetcast.assets.plans.problems import problem_template
from fleetcast.assets.replays import policy_inputs
from fleetcast.assets.replays.outcomes import instance_visits
from fleetcast.assets.replays.replay_workloads import read_workload
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import score_day
from fleetcast.assets.traces.request_days import make_request_day, write_tiers
from fleetcast.models.plan import combo_lp
from fleetcast.models.plan.cauchy_scaling import DEFAULT_CAUCHY_SETTINGS, cauchy_targets
from fleetcast.models.plan.corrected_plan import solve_corrected
from fleetcast.models.plan.plan_violations import find_violations
from fleetcast.models.plan.problem import HourPlan
from fleetcast.models.plan.rental import RentalOffer
from fleetcast.models.plan.sageserve_plan import solve_sageserve
from fleetcast.models.plan.solver import SolverOptions
from fleetcast.models.replay.run import Schedule, replay_trace

LLM, H100, A100 = "llama3.1-8b", "h100-80gb", "a100-80gb"
PAIR = "1xh100-80gb > 2 x 1xa100-80gb"
SIDES = (  # of six teams, of which one is there at the start
    (H100, 'role = "prefill", team = 1, then = "two", instances_at_start = 1, max_instances = 6'),
    (A100, 'role = "decode", team = 2, name = "two", instances_at_start = 2, max_instances = 12'),
)
TEAM = ", ".join(
    f'{{ gpu = "{gpu}", tensor_parallel = 1, min_instances = 0, {side} }}' for gpu, side in SIDES
)
WHOLE = f'{{ gpu = "{H100}", tensor_parallel = 1, min_instances = 0 }}'
MIX = {LLM: "east = 0.9", "llama3.2-3b": "east = 0.1"}
BY_HOUR = [0.0] * 8 + [0.5, 1.0, 0.8, 1.0, 0.4] + [0.0] * 11  # idle hours are planned in no time
DAY = date(2025, 7, 3)
THETA = {PAIR: 22.0, H100: 10.0}  # tokens/s: 1.0 USD an hour for one of the pair, 1.2 on whole instances
POLICIES = ("melange", "cauchy_mixed", "cauchy", "corrected_combos", "dynamo", "corrected_closed")


def sustained(settings: RunSettings) -> list[float]:
    """Tokens/s of one of each kind."""
    return [THETA[kind.option.gpu] if kind.llm == LLM else 150.0 for kind in settings.grid.service_options]


def config_of(folder: Path, **changes: str) -> str:
    """A small run whose llama3.1-8b may stand whole or in teams."""
    path = Path(small_config(folder, **changes))
    line = f'"{LLM}" = {{ gpu = "{H100}", tensor_parallel = 1 }}'
    text = path.read_text(encoding="utf-8")
    assert line in text
    caps = "".join(
        f"[catalogue.regions.{region}]\ncap_gpus = {{ {H100} = 260, {A100} = 4 }}\n"
        for region in ("east", "central", "west")
    )
    text = text.replace(line, f'"{LLM}" = [{WHOLE}, {TEAM}]') + caps
    text = re.sub(r"^(bloom|llama2).*\n", "", text, flags=re.M).replace("central = 2.5", "east = 2.5")
    for llm, mix in MIX.items():
        text = re.sub(rf'^"{llm}" = {{ east.*$', f'"{llm}" = {{ {mix} }}', text, flags=re.M)
    text = re.sub(r"^by_hour = .*$", f"by_hour = {BY_HOUR}", text, flags=re.M)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    folder = tmp_path_factory.mktemp("teams")
    named = "[" + ", ".join(f'"{policy}"' for policy in POLICIES) + "]"
    changes = {"policies": named, "requests_per_day": "600.0", "min_instances": "1"}
    config = config_of(folder, instances_at_start="3", max_instances="12", **changes)
    settings = load_settings(config, folder / "lake")
    east = dataclasses.replace(settings.catalogue.regions["east"], preference=("east",), network_s={})
    catalogue = dataclasses.replace(settings.catalogue, regions={"east": east})  # one will do
    settings = dataclasses.replace(settings, catalogue=catalogue)
    write_tiers(settings.lake, settings.trace, catalogue)
    for back in (2, 1, 0):
        day = DAY - timedelta(days=back)
        make_request_day(settings.lake, settings.config.trace, catalogue, day)
        build_demand(settings.lake, settings.trace, day)
    forecast_day(settings, DAY, Progress())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", lambda settings, *_: sustained(settings))
        plans.plan_day(settings, DAY, Progress())
    replay_day(settings, DAY, POLICIES, Progress())
    score_day(settings, DAY)
    settings.lake.publish()
    return settings


@pytest.fixture(scope="module")
def drive(night: RunSettings) -> Schedule:
    """What cauchy is given on the day."""
    return policy_inputs.policy_schedules(night, DAY, ["cauchy"])["cauchy"]


def test_a_team_is_one_option_among_whole_instances(tmp_path: Path) -> None:
    settings = load_settings(config_of(tmp_path), tmp_path / "lake")
    assert (LLM, "whole") in settings.grid.services
    assert [option.title for option in settings.grid.options][-1] == PAIR
    problem = problem_template(settings.grid, settings.config, sustained(settings), "corrected")
    i, k = settings.grid.services.index((LLM, "whole")), problem.options.index(PAIR)
    assert dict(zip(problem.gpus, problem.uses[i, k], strict=True))[A100] == 2
    assert problem.gpus_per_instance[i, k] == 3
    assert problem.usd_per_hour[i, k] == pytest.approx(12.29 + 2 * 4.775)
    assert problem.tokens_per_s[i, k] == 22.0
    assert problem.max_option_instances[i, :, k].tolist() == [6, 6, 6]
    assert problem.instances_now[i, :, k].tolist() == [1, 1, 1]
    plan = dataclasses.replace(settings.config.plan, together=True)
    whole = settings.with_config(plan=plan)
    alone = problem_template(whole.grid, whole.config, sustained(whole), "corrected")
    assert (alone.max_option_instances[i, :, k] == 0).all()
    assert (alone.max_instances == problem.max_instances - problem.max_option_instances[..., k]).all()
    assert settings.under("melange").config.plan.together
    assert not settings.under("corrected").config.plan.together
    stress = load_settings("stress", tmp_path / "lake")  # where both sides of a team have GPUs of one type
    alike = problem_template(
        stress.grid, stress.config, [1.0] * len(stress.grid.service_options), "corrected"
    )
    assert alike.uses[:, alike.options.index(f"1x{H100} > 1x{H100}"), alike.gpus.index(H100)].max() == 2


@pytest.mark.parametrize("prefill", [1, 2])
def test_options_of_a_plan_and_instances_of_pools_are_the_same(tmp_path: Path, prefill: int) -> None:
    path = Path(config_of(tmp_path))
    one = 'team = 1, then = "two", instances_at_start = 1, max_instances = 6'
    wider = f'team = {prefill}, then = "two", instances_at_start = {prefill}, max_instances = {6 * prefill}'
    path.write_text(path.read_text(encoding="utf-8").replace(one, wider), encoding="utf-8")
    settings = load_settings(str(path), tmp_path / "lake")
    problem = problem_template(
        settings.grid, settings.config, [1.0] * len(settings.grid.service_options), "corrected"
    )
    assert problem.instances_now[..., -1].max() == 1
    counts = np.minimum(np.arange(problem.instances_now.size).reshape(problem.instances_now.shape), 6)
    counts[~np.broadcast_to(problem.runs[:, None], counts.shape)] = 0
    held = settings.grid.by_pool(counts)
    assert (settings.grid.to_cells(held.astype(np.int64)) == counts).all()
    for row, here, place in zip(
        settings.grid.pools, held, zip(*settings.grid.cells, strict=True), strict=True
    ):
        assert here == counts[place] * max(row.team, 1)


@pytest.mark.parametrize("solve", [solve_sageserve, solve_corrected])
def test_the_cap_of_one_gpu_type_of_a_team_binds(tmp_path: Path, solve: Callable[..., HourPlan]) -> None:
    """Seven A100 are three teams; what these do not carry stands whole."""
    settings = load_settings(config_of(tmp_path), tmp_path / "lake")
    problem = problem_template(settings.grid, settings.config, sustained(settings), "corrected")
    problem = problem._replace(epsilon=1.0, boot_cold_s=0 * problem.boot_cold_s)
    i, k, g = (
        settings.grid.services.index((LLM, "whole")),
        problem.options.index(PAIR),
        problem.gpus.index(A100),
    )
    problem.cap_gpus[:, g] = 7
    problem.demand_tokens_per_s[i] = 100.0
    plan = solve(problem, SolverOptions(gap_share=0.0))
    assert find_violations(problem, plan) == []
    assert plan.instances[i, :, k].tolist() == [3, 3, 3]
    assert plan.instances[i].sum(axis=1).tolist() == [3 + 4] * 3  # 66 of 100 tokens/s, 10 each
    over = plan._replace(instances=plan.instances + 1)
    assert any(line.startswith("cap: east uses 8 of 7 a100-80gb") for line in find_violations(problem, over))


def test_a_night_plans_teams_and_the_replay_holds_them(night: RunSettings) -> None:
    rows = night.lake.sql(
        f"select policy, gpu, sum(instances) as n, any_value(gpus_per_instance) as gpus from plans "
        f"where llm = '{LLM}' group by all"
    ).to_pandas()
    planned = rows.set_index(["policy", "gpu"])["n"]
    assert planned["corrected_combos", PAIR] > 0
    assert planned["melange", PAIR] == 0
    assert planned["melange", H100] > 0
    peak = night.lake.sql(
        f"select * from plans where policy = 'melange' and llm = '{LLM}' and gpu = '{H100}'"
    ).to_pandas()
    theta, most = peak["capacity_tokens_per_s"], peak["demand_tokens_per_s"] + peak["buffer_tokens_per_s"]
    assert (peak["instances"] >= np.ceil(peak["demand_tokens_per_s"] / theta)).all()
    assert (peak["instances"] <= np.ceil(most / theta)).all()  # the largest of each, of whichever hour
    held = night.lake.sql(
        f"select policy, role, gpu, sum(serving_s) / 3600 as hours from fleet_hours where llm = '{LLM}' "
        "group by all"
    ).to_pandas()
    hours = held.set_index(["policy", "role", "gpu"])["hours"]
    for policy in POLICIES:
        assert hours[policy, "decode", A100] == pytest.approx(2 * hours[policy, "prefill", H100], rel=0.02)
    for policy in ("melange", "cauchy_mixed"):
        assert hours[policy, "prefill", H100] < 0.1  # until what it began with is given up
        assert hours[policy, "whole", H100] > 8.0
    for policy in ("cauchy", "corrected_combos", "corrected_closed"):
        assert hours[policy, "prefill", H100] > 3.0  # of five busy ones
    board = night.lake.sql("select * from tokens_per_usd").to_pandas().set_index("policy")
    assert set(board.index) == set(POLICIES)
    assert board.loc["cauchy", "tokens_per_usd"] > board.loc["melange", "tokens_per_usd"]


def test_cauchy_is_given_what_its_autoscaler_makes_of_what_came(night: RunSettings, drive: Schedule) -> None:
    """Algorithm 1 on the day's arrivals in one region, counted here; whole teams on both sides."""
    assert drive.row_s == DEFAULT_CAUCHY_SETTINGS.sample_s
    table = np.asarray(drive.targets)
    assert table.shape[0] == 8640
    assert (np.asarray(drive.start) == table[0]).all()
    arrived = night.lake.sql(
        "select epoch(arrived_at) % 86400 as s, input_tokens as n from requests where trace = 'small' and "
        f"day = '{DAY}' and llm = '{LLM}' and region = 'east' and tier <> 'niw'"
    ).to_pandas()
    came = np.histogram(arrived["s"], bins=8640, range=(0, 86_400))[0] / 10.0
    mix = night.lake.sql(
        f"select avg(input_tokens) as n from requests where day = '2025-07-02' and llm = '{LLM}' "
        "and tier <> 'niw'"
    )["n"][0].as_py()
    goodput = np.array([10.0, 22.0]) / mix
    usd, uses = np.array([12.29, 21.84]), np.array([[1, 0, 1], [1, 2, 0]])
    caps = np.array([260, 4, 12])  # GPUs of each type, for two teams; places for whole instances
    offer = RentalOffer(("whole", "pair"), (H100, A100, "whole"), usd, uses, caps)

    def best(rate: float, held: np.ndarray) -> np.ndarray:
        left = caps - held @ uses
        found = combo_lp.solve_combo_lp(
            "co_lp",
            offer._replace(cap_gpus=left),
            np.array([rate]),
            goodput[None],
            (goodput / offer.usd_per_hour)[None],
        )
        return found.counts[0]

    rows = [row for row in night.grid.pools if row.kind.llm == LLM and row.region == "east"]
    at = [night.grid.pools.index(row) for row in rows]
    whole, prefill, decode = (table[:, pool] for pool in at)
    assert (decode == 2 * prefill).all()
    start = np.array([whole[0], prefill[0]]).astype(np.int64)
    seen = np.concatenate([[0.0], came[:3600]])
    expected = cauchy_targets(seen, goodput, best, start, DEFAULT_CAUCHY_SETTINGS._replace(boot_s=600.0))
    assert (expected == np.column_stack([whole, prefill])[: seen.size]).all()
    assert len(np.unique(prefill)) > 2


def test_dispatch_by_goodput_weighs_a_team_as_what_it_sustains(night: RunSettings) -> None:
    sustained_here = policy_inputs.planned_capacity(
        night.grid, night.config, policy_inputs.read_day_plans(night, DAY)
    )
    fleet, rules = policy_inputs.fleet_and_rules(night, "cauchy")
    fleet = policy_inputs.with_measured_capacity(night.under("cauchy"), fleet, sustained_here)
    mine = (fleet.llm == list(night.catalogue.llms).index(LLM)) & (fleet.region == 0)
    assert fleet.weight[mine].tolist() == pytest.approx([10.0, 22.0, 11.0])
    assert fleet.tokens_per_s[mine].tolist() == pytest.approx([10.0, 22.0, 11.0])
    assert (rules.spread, rules.opportunism) == (3, 2)
    assert (
        policy_inputs.with_measured_capacity(
            night, fleet._replace(weight=0 * fleet.weight), sustained_here
        ).weight
        == 0
    ).all()


def test_a_policy_is_replayed_with_the_spread_that_is_its_own(night: RunSettings, drive: Schedule) -> None:
    """What the lake says of cauchy is a replay by goodputs; by the config's weights it is another one."""
    fleet, rules = policy_inputs.fleet_and_rules(night, "cauchy")
    sustained_here = policy_inputs.planned_capacity(
        night.grid, night.config, policy_inputs.read_day_plans(night, DAY)
    )
    fleet = policy_inputs.with_measured_capacity(night.under("cauchy"), fleet, sustained_here)
    workload = read_workload(night, DAY)
    outcome = replay_trace(workload.trace, fleet, drive, rules, policy_inputs.DAY_S)
    rows = night.lake.sql(f"from outcomes where policy = 'cauchy' and day = '{DAY}'").to_pandas()
    served_by = rows.set_index("request_id").loc[workload.requests["request_id"].to_pylist(), "instance"]
    assert (outcome.slot == served_by.fillna(-1)).all()
    for token_s in (fleet.link_token_s, fleet.link_token_s[::-1]):  # the slower link counts, at either end
        visits = instance_visits(workload.trace, fleet._replace(link_token_s=token_s), rules, outcome)
        after = visits["link_s"].notna()
        ends = np.column_stack([visits["slot"].shift()[after], visits["slot"][after]]).astype(int)
        sent_s = (
            token_s[fleet.slot_kind[ends]].max(axis=1) * workload.trace.input_tokens[visits["row"][after]]
        )
        assert visits["link_s"][after].to_numpy() == pytest.approx(sent_s)


def test_links_are_busy_with_the_caches_of_prompts_at_both_ends(night: RunSettings) -> None:
    legs = night.lake.sql(
        "select link_s, hand_over_s, input_tokens from legs inner join outcomes using (policy, request_id) "
        f"where policy = 'cauchy' and role = 'decode' and legs.llm = '{LLM}'"
    ).to_pandas()
    assert len(legs) > 100
    token_s = 8 * 131_072 / 200e9  # over the slower link, an A100's
    assert legs["link_s"].to_numpy() == pytest.approx(token_s * legs["input_tokens"].to_numpy(float))
    assert (legs["hand_over_s"] >= legs["link_s"] - 1e-6).all()
    busy = night.lake.sql("queries/links_busy.sql", trace="small", day=DAY).to_pandas()
    own = busy[busy["policy"] == "cauchy"].groupby("role")
    assert own["caches"].sum().to_dict() == {"prefill": len(legs), "decode": len(legs)}
    sent_s = (busy["busy_share"] * busy["links"])[(busy["policy"] == "cauchy") & (busy["role"] == "prefill")]
    assert 3600 * sent_s.sum() == pytest.approx(legs["link_s"].sum())
