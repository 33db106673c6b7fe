"""Answers of `fleetcast configure` as deployments of a config: what is planned with them, what is refused."""

import dataclasses
import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engine_market import CATALOGUE, priced, score_of, window

from fleetcast.assets.advice import advice_config, advice_pipeline, rule_replays
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.plan_loads import PlanLoad
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.assets.plans.request_mixes import RequestMix
from fleetcast.assets.studies import rent_fleets, rent_query
from fleetcast.assets.studies.configure_files import score_fields
from fleetcast.models.configure.engine_points import EnginePoint, EngineSettings, EngineShape, EngineVariant
from fleetcast.models.configure.fleet_trials import replay_window, score_fleet
from fleetcast.models.plan.corrected_plan import solve_corrected
from fleetcast.models.plan.day_plans import hourly_plans
from fleetcast.models.plan.phase_costs import MeanRequest
from fleetcast.models.plan.problem import Problem
from fleetcast.models.plan.solver import SolverOptions
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.engine_answers import ANSWER_VERSION
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError, ConfigWarning
from fleetcast.pipelines.terminal import SHOWN_WARNINGS, show_warning

pytestmark = pytest.mark.filterwarnings("ignore::fleetcast.models.world.toml_dataclasses.ConfigWarning")
LLM, GPU = "llama3.1-8b", "h100-80gb"
OWN = EnginePoint(
    EngineVariant(16, 16, False), EngineShape(GPU, 1), EngineSettings(256, 2048, "none", "least_prefill")
)
FP8 = OWN._replace(variant=EngineVariant(8, 8, False))
SGLANG = OWN._replace(variant=EngineVariant(8, 16, False, "sglang"))
QUICK = OWN._replace(settings=EngineSettings(128, 8192, "none", "least_prefill", (0.75, 0.25), 0.001))
FP8_LABEL = (LLM, "whole", f"{GPU}:fp8-kv8-b256-t2048", 1)
EXACT = SolverOptions(gap_share=0.0)
CONFIG = """
based_on = "office"
[trace]
name = "engines"
first_day = 2025-07-01
days = 3
seed = 1
[fleet]
instances_at_start = 2
min_instances = 1
{fleet}
[fleet.deployments]
"llama3.1-8b" = {{ gpu = "h100-80gb", tensor_parallel = 1 }}
[replay]
routing = "least_prefill"
opportunism = "off"
[catalogue]
{catalogue}
"""
SOURCE = 'latency_source = "aiconfigurator-core"'


def write_answer(folder: Path, *points: EnginePoint, counts: tuple[int, ...] = (3,), **changes: Any) -> Path:
    """The answer of `configure` with these engines, the best first; `changes` of its keys."""
    best, *others = [score_fields(score_of(point, *counts)) for point in points]
    document = {"version": ANSWER_VERSION, "llm": LLM, "best": best, "others": others, **changes}
    path = folder / "answer.json"
    path.write_text(json.dumps(document))
    return path


def settings_of(folder: Path, fleet: str = "", catalogue: str = SOURCE) -> RunSettings:
    """A run of one llm on one GPU of its own."""
    path = folder / "engines.toml"
    path.write_text(CONFIG.format(fleet=fleet, catalogue=catalogue))
    return load_settings(str(path), folder / "lake")


def day_of(settings: RunSettings, capacities: list[float], rates: list[float]) -> list[Problem]:
    """Hours of a day in which each region needs so many tokens/s."""
    template = problem_template(settings.grid, settings.config, capacities, "corrected")
    regions = len(template.regions)
    demand = np.tile(np.array(rates)[:, None, None, None], (1, 1, regions, 4))
    return hour_problems(template, PlanLoad(demand, np.zeros(demand.shape[:3])))


def test_an_engine_that_the_fleet_has_or_the_floor_forbids_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a floor, and below it: fewer bits of weights or of the cache. So does another prefix cache.

    One line on stderr says which ones are left out and why, however often the config is read.
    """
    alone = settings_of(tmp_path)
    half_cache = OWN._replace(variant=EngineVariant(16, 8, False))
    cached = QUICK._replace(settings=QUICK.settings._replace(prefix="blocks"))  # a key of the whole fleet
    write_answer(tmp_path, OWN, FP8, half_cache, cached)
    for floor in ("", 'quality_floor = "bf16"'):
        with pytest.warns(ConfigWarning) as warned:
            with_answer = settings_of(tmp_path, f'engines = ["answer.json"]\n{floor}')
        SHOWN_WARNINGS.clear()
        for warning in (*warned, *warned):
            show_warning(warning.message, warning.category)
        assert capsys.readouterr().err == (
            "engines.toml [fleet] engines: left out fp8-kv8-b256-t2048, bf16-kv8-b256-t2048 (below "
            "quality_floor bf16); bf16-b128-t8192-k2 (needs prefix blocks, [fleet] has none).\n"
        )
        assert with_answer.config.fleet.deployments == alone.config.fleet.deployments
        assert with_answer.catalogue == alone.catalogue
        for mine, other in zip(
            day_of(with_answer, [9e3], [5e4, 0.0]), day_of(alone, [9e3], [5e4, 0.0]), strict=True
        ):
            np.testing.assert_equal(mine._asdict(), other._asdict())
    fp4 = FP8._replace(variant=EngineVariant(4, 8, False))
    write_answer(tmp_path, fp4, FP8)
    with pytest.warns(ConfigWarning, match="left out fp4-kv8-b256-t2048 \\(below quality_floor fp8\\)\\.$"):
        allowed = settings_of(tmp_path, 'engines = ["answer.json"]\nquality_floor = "fp8"')
    assert [option.label for option in allowed.grid.service_options] == [(LLM, "whole", GPU, 1), FP8_LABEL]


def test_several_engines_on_the_same_gpus_are_options_with_their_own_profile_and_price(
    tmp_path: Path,
) -> None:
    write_answer(tmp_path, FP8, QUICK, OWN)
    settings = settings_of(tmp_path, 'engines = ["answer.json", "answer.json"]\nquality_floor = "fp4"')
    options = settings.grid.options
    assert [option.title for option in options] == [
        f"1 x {GPU}", f"1 x {GPU}:bf16-b128-t8192-k2", f"1 x {GPU}:fp8-kv8-b256-t2048"
    ]  # fmt: skip
    problem, *_ = day_of(settings, [1.0, 3.0, 2.0], [1.0])  # in the order of the answer
    assert problem.tokens_per_s.tolist() == [[1.0, 2.0, 3.0]]
    assert len(set(problem.usd_per_hour[0])) == 1
    assert problem.instances_now[0, 0].tolist() == [2, 0, 0]
    assert problem.min_option_instances[0, 0].tolist() == [1, 0, 0]
    fleet = fixed_fleet(
        {LLM: [(pool, 1) for pool in settings.config.fleet.deployments[LLM]]},
        settings.catalogue,
        settings.config,
    )
    step_s = [fleet.latency.decode_s[kind][8] for kind in fleet.kind]
    assert step_s[2] - 0.002 > step_s[0] > step_s[1]  # the last one drafts two tokens
    assert fleet.drafts.tokens[fleet.kind].tolist() == [0, 0, 2]
    assert fleet.max_batch[fleet.kind].tolist() == [256, 256, 128]
    assert fleet.kv_capacity[1] > 2 * fleet.kv_capacity[0]


@pytest.mark.parametrize("point", [FP8, OWN, FP8._replace(decode=EngineShape(GPU, 2)), SGLANG])
def test_a_deployment_of_an_answer_is_replayed_as_its_search_replayed_it(
    point: EnginePoint, tmp_path: Path
) -> None:
    """Every time of every request, and the price, of a fixed fleet; with phases apart, of one team."""
    market, traffic = priced("fp8", point.variant.backend), window(400, 60.0)
    counts = (3,) if point.decode is None else (2, 1)
    score = score_fleet(market, point, counts, [traffic])
    write_answer(tmp_path, point, counts=counts)
    settings = settings_of(tmp_path, 'engines = ["answer.json"]\nquality_floor = "fp8"')
    pools = settings.config.fleet.deployments[LLM][-len(counts) :]
    assert all(pool.engine.startswith("sglang-fp8-b") for pool in pools if pool.backend == "sglang")
    assert [pool.team for pool in pools] == ([0] if point.decode is None else [2, 1])
    having = [name for name, region in settings.catalogue.regions.items() if region.cap_gpus.get(GPU)]
    assert {pool.regions for pool in pools} == {None if point.decode is None else tuple(having)}
    sized = {LLM: list(zip(pools, counts, strict=True))}
    config = dataclasses.replace(
        settings.config, replay=dataclasses.replace(settings.config.replay, cascades={})
    )
    fleet = fixed_fleet(sized, settings.catalogue, config)
    mine = replay_window(
        traffic.trace, fleet, make_rules(settings.catalogue, config.replay, "follow"),
        list(settings.catalogue.tiers.values()), traffic.until_s,
    )  # fmt: skip
    of_search = fixed_fleet({LLM: point.pools(counts)}, market.catalogue_of(point), market.config_of(point))
    other = replay_window(
        traffic.trace, of_search,
        make_rules(market.catalogue_of(point), market.config_of(point).replay, "follow"),
        list(market.catalogue_of(point).tiers.values()), traffic.until_s,
    )  # fmt: skip
    np.testing.assert_array_equal(mine.finish_s, other.finish_s)
    np.testing.assert_array_equal(mine.first_token_s, other.first_token_s)
    option = settings.grid.option_of(LLM, pools[0]).option
    problem, *_ = day_of(settings, [1.0] * len(settings.grid.service_options), [1.0])
    usd = problem.usd_per_hour[0, settings.grid.options.index(option)]
    assert usd * counts[0] / max(pools[0].team, 1) == pytest.approx(
        point.usd_per_hour(market.catalogue_of(point), counts)
    )
    assert score.point == point


def test_a_day_runs_fp8_at_its_peak_only_if_the_user_allows_it(tmp_path: Path) -> None:
    """With a quarter of the GPUs that bf16 would need, fp8 carries the peak; its option never costs more."""
    write_answer(tmp_path, FP8)
    caps = "".join(
        f'\n[catalogue.regions.{name}]\ncap_gpus = {{ "{GPU}" = 8 }}' for name in ("east", "central", "west")
    )
    rates = [4000.0, 4000.0, 20_000.0, 4000.0]
    costs = {}
    for floor, capacities in (("bf16", [1000.0]), ("fp8", [1000.0, 4000.0])):
        fleet = f'engines = ["answer.json"]\nquality_floor = "{floor}"'
        settings = settings_of(tmp_path, fleet, SOURCE + caps)
        hours = day_of(settings, capacities, rates)
        start = hours[0].instances_now
        plans = hourly_plans(hours, start, np.zeros_like(start), lambda p: solve_corrected(p, EXACT))
        labels = [option.title for option in settings.grid.options]
        used = {labels[k] for plan in plans for *_, k in np.argwhere(plan.instances)}
        assert (f"1 x {FP8_LABEL[2]}" in used) == (floor == "fp8")
        costs[floor] = [solve_corrected(problem, EXACT).full_usd for problem in hours]
    assert all(more <= less + 1e-6 for more, less in zip(costs["fp8"], costs["bf16"], strict=True))
    assert costs["fp8"][2] < costs["bf16"][2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"llm": "qwen3-8b"}, "answer.json: unknown deployed llm 'qwen3-8b'. Known: llama3.1-8b."),
        ({"version": 0}, "answer.json is of version 0, needed 1. Make it again: fleetcast configure llama3"),
        ({"version": None}, "answer.json is of version None, needed 1. Make it again"),
        ({"best": {"weight_bits": 8}}, "answer.json best: the key 'kv_bits' is missing. Add it."),
        ({"best": 3}, "answer.json best: got '3', needed a table. Make the answer again."),
        ("{}", "answer.json is no answer. Name the answer.json that `fleetcast configure` wrote."),
        ("[fleet]", "answer.json is no JSON. Name the answer.json that"),
        (None, "answer.json cannot be read: No such file or directory. Name the answer.json"),
        ("tpu", "answer.json: unknown gpu 'tpu-v5'. Known: "),
        ("pools", "answer.json best pools: got 0, needed 1 or 2. Make the answer again."),
    ],
)
def test_a_file_that_is_no_answer_for_this_fleet_is_refused_in_one_line(
    text: dict[str, Any] | str | None, message: str, tmp_path: Path
) -> None:
    if isinstance(text, dict):
        write_answer(tmp_path, FP8, **text)
    elif text == "tpu":
        write_answer(tmp_path, FP8._replace(shape=EngineShape("tpu-v5", 1)))
    elif text == "pools":
        write_answer(tmp_path, FP8, best={**score_fields(score_of(FP8, 1)), "pools": []})
    elif text is not None:
        (tmp_path / "answer.json").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        settings_of(tmp_path, 'engines = ["answer.json"]\nquality_floor = "fp8"')
    assert "\n" not in str(refused.value)
    assert "engines.toml" in str(refused.value)


def test_answers_need_profiles_of_one_source(tmp_path: Path) -> None:
    write_answer(tmp_path, OWN)
    message = re.escape('Add latency_source = "aiconfigurator-core" to [catalogue].')
    with pytest.raises(ConfigError, match=message):
        settings_of(tmp_path, 'engines = ["answer.json"]', "")


def test_gpus_rents_engines_of_answers_in_addition_to_its_own_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other option is displaced, the program never costs more, and the engine itself is replayed."""
    monkeypatch.setattr(rent_fleets, "combo_goodput", lambda scenario, combo: combo.per_s(scenario.load))
    write_answer(tmp_path, FP8)
    found, usd = [], []
    for floor in ("bf16", "fp8"):
        fleet = f'engines = ["answer.json"]\nquality_floor = "{floor}"'
        settings = settings_of(tmp_path, fleet)
        tier = settings.catalogue.tiers["iw_fast"]
        mix = RequestMix(np.full(9, 1000, np.int32), np.full(9, 200, np.int32), None)
        scenario = rent_query.RentScenario(
            settings.catalogue, settings.config, tier, "iw_fast", mix, MeanRequest(1000.0, 200.0), 100.0
        )
        prices = rent_query.deployment_prices(scenario)
        found.append(rent_fleets.measure_options(scenario, prices, "together", Progress()))
        usd.append(rent_fleets.solve_rented_counts(scenario, found[-1], {}, 1.0)[0].usd_per_hour)
    assert found[1][:-1] == found[0]
    combo, _ = found[1][-1]
    assert combo.title == f"1x{FP8_LABEL[2]}"
    assert usd[1] < usd[0]
    [(pool, count)] = rent_fleets.team_pools(scenario, combo)
    assert (count, pool) == (1, settings.config.fleet.deployments[LLM][-1])


def test_advise_writes_engines_of_answers_into_its_config(tmp_path: Path) -> None:
    """With the GPUs that they need in every region; without them below the floor."""
    h200 = FP8._replace(shape=EngineShape("h200-141gb", 1))
    file = write_answer(tmp_path, h200)
    at = datetime(2025, 7, 3, tzinfo=UTC)
    imported: Any = SimpleNamespace(
        trace="own",
        first_day=date(2025, 7, 1),
        last_at=at,
        regions=("east",),
        lake=Lake(tmp_path / "lake"),
        cached_share=None,
    )
    deployed = {LLM: advice_config.SizedDeployment(Deployment(GPU, 1), 3)}
    for floor, options in ((None, 1), ("fp8", 2)):
        engines = advice_config.EngineFiles([file], floor)
        settings = advice_config.write_advice_config(
            imported, deployed, CATALOGUE, "instance", tmp_path / "advice.toml", engines
        )
        assert len(settings.grid.service_options) == options
    assert settings.grid.service_options[1].label == (LLM, "whole", "h200-141gb:fp8-kv8-b256-t2048", 1)
    assert [row.max_instances > 0 for row in settings.grid.pools] == [True] * 4
    imported.tiers = ("iw_fast", "iw_normal")  # levels are tested on one pool
    assert not advice_pipeline.run_level_trials(settings, at.date(), imported, Progress())
    plan = rule_replays.MidnightPlan(
        at.date(), np.full((24, 4), 2.0), np.full((24, 1, 3), 1e-12), np.ones(settings.grid.shape)
    )
    assert rule_replays.without_spare(settings, plan).instances.tolist() == [[1.0, 0.0, 0.0, 0.0]] * 24
