"""Plans for quality at other loads, of other seeds, and of a thousand GPUs over regions."""

import dataclasses
import time

import numpy as np
from levels_study import show
from measure import Figures, Target
from pandas import DataFrame
from quality import BUDGET, H100, REQUIREMENTS, SMALL_MARKET, settings_with, usd
from quality_oracles import front

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.quality_markets import EVALUATION_SEED, build_market
from fleetcast.assets.plans.quality_offers import JudgeSetup, measure_quality_offer, routing_points
from fleetcast.models.plan import boute
from fleetcast.models.plan.quality_milp import QualityDemand
from fleetcast.models.plan.quality_objectives import least_cost_plan
from fleetcast.models.plan.quality_regions import RegionalDemand, cheapest_regional_plan
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.quality.judges import load_quality
from fleetcast.models.quality.trace_answers import generate_answers
from fleetcast.models.trials.latency_curves import add_roofline_profiles, feasible_shapes
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_overrides import override_catalogue

OTHER_SEEDS = (11, 12)
CASES = ((1, 1.0), (4, 1.0), (16, 1.0), (4, 1.5), (4, 2.0))  # times load and GPUs, times latency
FIVE = ("llama3.2-3b", "llama3.1-8b", "qwen3-14b", "qwen3-32b", "llama3.1-70b")
REGIONS, GPUS_OF_A_TYPE, LARGE_PER_S = 20, 5, 5000.0  # 10 types: 1,000 GPUs
LARGE_QUALITY, LARGE_LATENCY_S = 0.6, 20.0
TARGETS = {
    "quality_large_seconds": Target(
        "s", "10 GPU types, 5 llms, 1,000 GPUs, 20 regions: tables and plan to 0.5 %; wall", at_most=60.0
    ),
    "quality_large_cpu_seconds": Target("s", "the same; CPU"),
    "quality_large_gap": Target("", "its proven gap", at_most=0.005),
    "quality_large_plan_seconds": Target("s", "of these for the plan alone"),
    "quality_promise_worst_others": Target(
        "", "replayed P95 over promised, worst plan of fronts of questions and arrivals of two other seeds"
    ),
    **{
        f"quality_usd_over_{name}_{times}x_{100 * slack:.0f}pct": Target(
            "", f"USD/h against {what}, mean of six requirements, tables, {times} x load, {slack:g} x latency"
        )
        for name, what in (("alone", "the 70B alone"), ("homo", "H100 only"))
        for times, slack in CASES
    },
}


def large() -> Figures:
    """Ten GPU types, five llms, 1,000 GPUs, 20 regions: from nothing to a plan."""
    settings = settings_with(gpus={H100: 8}, points=2, requests=1000)
    build_market(settings, Progress())  # load the kernel
    began, began_cpu = time.perf_counter(), time.process_time()
    config, judge = settings.config, load_quality().judges["learned"]
    world = override_catalogue(load_catalogue().of_era("2023", "here"), config.catalogue, "quality.toml")
    priced = {name: gpu for name, gpu in world.gpus.items() if gpu.usd_per_hour}  # others would be free
    world = dataclasses.replace(world, gpus=dict(list(priced.items())[:10]))
    answers = five_llms(8_000)
    longest = int((answers.input_tokens[:, None] + answers.output_tokens).max())
    shapes = feasible_shapes(FIVE, list(world.gpus), world, config, longest, pipeline_parallel=(1,))
    shapes = [shape for shape in shapes if shape.gpus <= GPUS_OF_A_TYPE]
    world = add_roofline_profiles(world, shapes)
    grid = routing_points(answers, "route", 4**4)
    offer = measure_quality_offer(
        answers, "route", grid, shapes, world, config, JudgeSetup(judge), Progress()
    )
    rng = np.random.default_rng(1)
    parts = rng.dirichlet(np.full(REGIONS, 5.0))
    regions = RegionalDemand(LARGE_PER_S * parts, np.full((REGIONS, len(world.gpus)), GPUS_OF_A_TYPE))
    measured = time.perf_counter()
    found = cheapest_regional_plan(offer, regions, LARGE_QUALITY, LARGE_LATENCY_S)
    assert found is not None
    ended = time.perf_counter()
    print(f"{len(shapes)} shapes, {len(grid)} points, {found.instances.sum()} replicas on "
          f"{found.instances.sum(axis=1) @ offer.gpus} GPUs, {found.usd_per_hour:,.0f} USD/h")  # fmt: skip
    return {
        "quality_large_seconds": ended - began,
        "quality_large_cpu_seconds": time.process_time() - began_cpu,
        "quality_large_plan_seconds": ended - measured,
        "quality_large_gap": found.gap_share,
    }


def five_llms(size: int) -> JudgedAnswers:
    """Answers of five llms, made up: MMLU-Pro's lengths, right ever more often."""
    shipped = load_quality()
    drawn = generate_answers(shipped.answers["mmlu_pro"], shipped.judges["learned"], size, 5)
    rng = np.random.default_rng(5)
    right = np.linspace(0.35, 0.65, len(FIVE))
    ease = 0.7 * (0.5 - drawn.hardness[:, None]) + 0.5 * rng.random((size, len(FIVE)))
    score = (ease > np.quantile(ease, 1 - right, axis=0).diagonal()).astype(float)
    outputs = drawn.output_tokens[:, [0, 1, 1, 2, 2]]
    return JudgedAnswers(
        FIVE, drawn.input_tokens, outputs, score, np.tile(drawn.judged[:, :1], (1, 4)), drawn.hardness
    )


def others() -> Figures:
    """The settings of the tables on questions and arrivals that they were not chosen on."""
    worst, rows = 0.0, []
    for seed in OTHER_SEEDS:
        market = build_market(seeded(seed, gpus=SMALL_MARKET, rule="route"), Progress())
        found = front(market.offers["route"], market.demand._replace(budget_usd_per_hour=BUDGET))
        over = [market.play("route", one, EVALUATION_SEED + seed).p95_s / one.latency_s for one in found]
        worst = max(worst, *over)
        rows.append({"seed": seed, "plans": len(found), "worst": max(over), "median": float(np.median(over))})
    show("Replayed P95 over promised, by seed", DataFrame(rows))
    return {"quality_promise_worst_others": worst}


def seeded(seed: int, **changes: object) -> RunSettings:
    """As settings_with, with questions of another seed."""
    settings = settings_with(**changes)
    trace = dataclasses.replace(settings.config.trace, seed=seed)
    return settings.with_config(trace=trace)


def loads() -> Figures:
    """What a requirement costs against one llm and one GPU type, by load and by latency."""
    figures, rows = {}, []
    market = build_market(settings_with(rule="route", points=49), Progress())
    offer = market.offers["route"]
    homo = offer.only(shapes=offer.gpu == list(market.catalogue.gpus).index(H100))
    for times, slack in CASES:
        demand = QualityDemand(times * market.demand.requests_per_s, times * market.demand.cap_gpus)
        over: dict[str, list[float]] = {"alone": [], "homo": []}
        for required, latency_s in REQUIREMENTS:
            own = usd(least_cost_plan(offer, demand, required, slack * latency_s))
            over["alone"].append(own / usd(boute.cheapest_last_llm_plan(offer, demand, slack * latency_s)))
            over["homo"].append(own / usd(least_cost_plan(homo, demand, required, slack * latency_s)))
        for name, of in over.items():
            figures[f"quality_usd_over_{name}_{times}x_{100 * slack:.0f}pct"] = float(np.mean(of))
            ratio_at = {f"{q:g}": value for (q, _), value in zip(REQUIREMENTS, of, strict=True)}
            case = {"against": name, "requests/s": demand.requests_per_s, "latency": slack}
            rows.append({**case, **ratio_at, "mean": np.mean(of)})
    show("USD/h against the 70B alone and H100 only, by load, latency and quality", DataFrame(rows))
    return figures


FUNCTIONS = (large, others, loads)
SMALL = {"quality.MARKET": {"gpus": {H100: 8}, "points": 3, "requests": 300, "replays": 2}}
SMALL |= {
    "OTHER_SEEDS": (11,),
    "SMALL_MARKET": {H100: 8},
    "REQUIREMENTS": REQUIREMENTS[:1],
    "CASES": CASES[:1],
}
SMOKE = {"others": SMALL, "loads": SMALL}
