"""Which llm answers what: the model of answers, tables by the replay, exact plans, those of the papers."""

import dataclasses
import time
from collections.abc import Iterator
from functools import cache
from itertools import permutations

import numpy as np
from measure import Figures, Skipped, Target, cpu_seconds, peak_gb
from quality_oracles import cascade_serve, enumerated, exhaustive, front, hypervolume, uniform_parallelism

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings, run_parallel
from fleetcast.assets.plans.quality_markets import EVALUATION_SEED, build_market
from fleetcast.assets.plans.quality_offers import JudgeSetup, measure_quality_offer, routing_points
from fleetcast.assets.plans.quality_requirements import QualityRequirement
from fleetcast.assets.plans.quality_search import choose_quality_plan
from fleetcast.models.plan import boute, cascadia
from fleetcast.models.plan.cascade_planners import best_uniform_point
from fleetcast.models.plan.quality_milp import PointPlan, QualityDemand, QualityOffer
from fleetcast.models.plan.quality_objectives import least_cost_plan
from fleetcast.models.quality.answers import JudgedAnswers, mean_quality, select_answers
from fleetcast.models.quality.judges import Judge, load_quality
from fleetcast.models.quality.trace_answers import generate_answers
from fleetcast.models.trials.latency_curves import ReplicaShape, add_roofline_profiles, feasible_shapes
from fleetcast.models.trials.model_routing import (
    RoutingOutcome,
    RoutingPlan,
    poisson_arrivals_s,
    replay_routing_plan,
    weighted_pools,
)
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config import RunConfig

PAIR = ("llama3.1-8b", "llama3.1-70b")
THREE = ("phi3-mini", *PAIR)
SENT_SHARES = (0.3, 0.5, 0.7)
DRAWN = 200_000
H100, BUDGET = "h100-80gb", 30.0
SMALL_MARKET = dict.fromkeys((H100, "rtxpro6000-96gb", "rtx5090-32gb"), 8)
WIDE_MARKET = SMALL_MARKET | dict.fromkeys(("rtx4090-24gb", "a100-80gb", "l40s-48gb"), 8)
REQUIREMENTS = ((0.48, 15.0), (0.52, 16.0), (0.55, 16.0), (0.58, 20.0), (0.60, 20.0), (0.62, 24.0))
CASCADE_GPUS, CASCADE_PER_S, CASCADE_POINTS = 32, 120.0, 81
CASCADE_QUALITIES = (0.45, 0.48, 0.52, 0.55, 0.58, 0.61)
BEST_POINTS, MOVED_GPUS, FRESH_SEEDS, REPLAYED = 8, 2, (11, 12, 13), 20_000
DAY_REQUESTS, DAY_S = 2_000_000, 86_400.0
MARKET: dict[str, object] = {}  # changes of every [quality] here
TARGETS = {
    "quality_copula_points": Target(
        "", "quality of 8B and 70B at 30, 50, 70 % sent on, drawn less real, worst", at_most=0.01
    ),
    "quality_copula_tokens": Target(
        "", "the same: output tokens of what is sent on, drawn over real, less 1, worst", at_most=0.06
    ),
    "quality_copula_points_phi3": Target("", "the quality of phi3-mini and 70B likewise"),
    "quality_copula_apart": Target(
        "", "output tokens of what is sent on, had quality been drawn apart from length, over real, less 1"
    ),
    "quality_front_24_seconds": Target(
        "s", "3 GPU types, 24 GPUs: tables and exact front at 30 USD/h, 60 requests/s; wall", at_most=15.0
    ),
    "quality_front_48_seconds": Target("s", "6 GPU types, 48 GPUs: the same; wall", at_most=30.0),
    "quality_front_24_cpu_seconds": Target("s", "3 GPU types, 24 GPUs: the same; CPU"),
    "quality_front_48_cpu_seconds": Target("s", "6 GPU types, 48 GPUs: the same; CPU"),
    "quality_promise_worst": Target(
        "",
        "replayed P95 over promised, worst plan of both fronts, questions and arrivals not seen",
        at_most=1.05,
    ),
    "quality_front_over_enumerated": Target(
        "", "hypervolume of the exact front over that of BoUTE's candidate space, all of it gone through"
    ),
    "quality_usd_over_equal": Target(
        "",
        "USD/h against equal money per llm, mean of the six requirements that it meets, by tables",
        at_most=0.70,
    ),
    "quality_usd_over_alone": Target("", "the same against the 70B alone", at_most=0.80),
    "quality_usd_over_homo": Target("", "the same against H100 only"),
    "quality_usd_over_played": Target("", "against the 70B alone, both plans as the replay chose them"),
    "quality_cascade_32_seconds": Target(
        "s", "three llms, 32 H100: tables, Algorithm 1, replays of one quality; wall", at_most=20.0
    ),
    "quality_cascade_32_cpu_seconds": Target("s", "the same; CPU"),
    "quality_algorithm1_gap": Target(
        "", "J of Algorithm 1 above exhaustive, worst of six qualities", at_most=0.06
    ),
    "quality_algorithm1_one_start_gap": Target("", "the same from the one start of section 3.3"),
    "quality_algorithm1_one_start_misses": Target("", "the same: qualities of six where it misses the best"),
    "quality_replay_over_proxy": Target(
        "", "P95 of the plan that the replay chose over the min-max plan's, fresh traces, mean", at_most=0.95
    ),
    "quality_proxy_low": Target("", "replayed P95 over the min-max proxy, lowest of its six plans"),
    "quality_proxy_high": Target("", "the same, highest"),
    "quality_cascadia_over_uniform_gpus": Target(
        "", "largest stage P95 against as many GPUs for each llm, mean"
    ),
    "quality_cascadia_over_uniform_parallelism": Target("", "against one degree for all replicas, mean"),
    "quality_cascadia_over_cascade_serve": Target("", "against planning for mean lengths, mean"),
    **{
        f"quality_cascadia_compared_{name}": Target(
            "", f"of six requirements, those that {name} has a plan for"
        )
        for name in ("uniform_gpus", "uniform_parallelism", "cascade_serve")
    },
    "quality_day_seconds": Target(
        "s", "2 million requests of a day with a cascade replayed; CPU", at_most=10.0
    ),
    "quality_day_peak_gb": Target("GB", "the same with its questions drawn: memory", at_most=4.0),
}


def copula() -> Figures:
    """The model of answers against the answers that it was fitted to."""
    real = real_answers()
    catalogue = load_quality()
    drawn = generate_answers(catalogue.answers["mmlu_pro"], catalogue.judges["learned"], DRAWN, seed=1)
    points, tokens = off_by(real.of(PAIR), drawn.of(PAIR))
    phi3, _ = off_by(real.of((THREE[0], THREE[2])), drawn.of((THREE[0], THREE[2])))
    apart = [drawn.output_tokens[:, 2].mean() / sent_tokens(real.of(PAIR), s) - 1 for s in SENT_SHARES]
    return {
        "quality_copula_points": points,
        "quality_copula_tokens": tokens,
        "quality_copula_points_phi3": phi3,
        "quality_copula_apart": min(apart),
    }


def real_answers() -> JudgedAnswers:
    """MMLU-Pro's."""
    from fit_quality import MMLU_PRO, mmlu_pro

    if not MMLU_PRO.exists():
        raise Skipped(f"no {MMLU_PRO.name}: put the shared data next to the checkout")
    return mmlu_pro()


def off_by(real: JudgedAnswers, drawn: JudgedAnswers) -> tuple[float, float]:
    """By how much quality and tokens sent on differ at worst."""
    points = [
        mean_quality(drawn, select_answers(drawn, "cascade", [s]))
        - mean_quality(real, select_answers(real, "cascade", [s]))
        for s in SENT_SHARES
    ]
    tokens = [sent_tokens(drawn, s) / sent_tokens(real, s) - 1 for s in SENT_SHARES]
    return float(np.abs(points).max()), float(np.abs(tokens).max())


def sent_tokens(answers: JudgedAnswers, share: float) -> float:
    """Mean output tokens of the large llm on the questions that are sent on to it."""
    return float(answers.output_tokens[select_answers(answers, "cascade", [share]).reached[:, 1], 1].mean())


def small_front() -> Figures:
    """Three GPU types, 24 GPUs."""
    return front_of(SMALL_MARKET, "quality_front_24")


def wide_front() -> Figures:
    """Six GPU types, 48 GPUs."""
    return front_of(WIDE_MARKET, "quality_front_48")


def settings_with(**changes: object) -> RunSettings:
    """Those of the config quality with another [quality], in no lake."""
    settings = load_settings("quality")
    assert settings.config.quality is not None
    own = dataclasses.replace(settings.config.quality, **changes | MARKET)  # type: ignore[arg-type]
    return settings.with_config(quality=own)


def front_of(gpus: dict[str, int], name: str) -> Figures:
    """Seconds of tables and front."""
    settings = settings_with(gpus=gpus, rule="route")
    warm(settings)
    began, began_cpu = time.perf_counter(), time.process_time()
    market = build_market(settings, Progress())
    demand = market.demand._replace(budget_usd_per_hour=BUDGET)
    found = front(market.offers["route"], demand)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    assert found
    return {f"{name}_seconds": seconds, f"{name}_cpu_seconds": cpu}


def warm(settings: RunSettings) -> None:
    """Load the kernel."""
    config = settings.config
    own = dataclasses.replace(config.quality, gpus={H100: 8}, points=2, requests=1000)  # type: ignore[type-var]
    build_market(dataclasses.replace(settings, config=dataclasses.replace(config, quality=own)), Progress())


def promises() -> Figures:
    """What tables promise against whole replays, and against BoUTE's candidate space."""
    worst, over = 0.0, []
    for gpus in (SMALL_MARKET, WIDE_MARKET):
        market = build_market(settings_with(gpus=gpus, rule="route"), Progress())
        offer = market.offers["route"]
        demand = market.demand._replace(budget_usd_per_hour=BUDGET)
        exact = front(offer, demand)
        worst = max(
            worst, *(market.play("route", one, EVALUATION_SEED).p95_s / one.latency_s for one in exact)
        )
        searched = enumerated(offer, demand)
        over.append(volume(offer, exact) / volume(offer, searched))
    return {"quality_promise_worst": worst, "quality_front_over_enumerated": min(over)}


def volume(offer: QualityOffer, plans: list[PointPlan]) -> float:
    """Hypervolume of log P95 and quality, from a minute and no quality on."""
    costs = [(np.log(one.latency_s), -float(offer.quality[one.point])) for one in plans]
    return hypervolume(np.array(costs), np.array([np.log(60.0), -0.4]))


def requirements() -> Figures:
    """Six requirements: fleetcast's, equal money, 70B alone, H100 only."""
    market = build_market(settings_with(rule="route", points=49), Progress())
    offer, demand = market.offers["route"], market.demand
    homo = offer.only(shapes=offer.gpu == list(market.catalogue.gpus).index(H100))
    one_llm = market._replace(offers={"route": offer.only(points=offer.shares[:, -1] == 1)})
    ratios: dict[str, list[float]] = {name: [] for name in ("equal", "alone", "homo", "played")}
    for required, latency_s in REQUIREMENTS:
        own = usd(least_cost_plan(offer, demand, required, latency_s))
        equal = usd(boute.cheapest_equal_spend_plan(offer, demand, required, latency_s))
        if np.isfinite(equal):
            ratios["equal"].append(own / equal)
        ratios["alone"].append(own / usd(boute.cheapest_last_llm_plan(offer, demand, latency_s)))
        ratios["homo"].append(own / usd(least_cost_plan(homo, demand, required, latency_s)))
        own_plan = choose_quality_plan(market, QualityRequirement(required, latency_s), Progress())
        theirs = choose_quality_plan(one_llm, QualityRequirement(0.4, latency_s), Progress())
        ratios["played"].append(own_plan.answer.usd_per_hour / theirs.answer.usd_per_hour)
        print(required, latency_s, own, equal, own_plan.answer.usd_per_hour, theirs.answer.usd_per_hour,
              own_plan.served.p95_s, {name: round(of[-1], 3) for name, of in ratios.items()})  # fmt: skip
    return {f"quality_usd_over_{name}": float(np.mean(of)) for name, of in ratios.items()}


def usd(plan: PointPlan | None) -> float:
    """What a plan costs."""
    return np.inf if plan is None else plan.usd_per_hour


class Cascade:
    """Cascadia's setting: three llms on 32 H100."""

    def __init__(self, judge: Judge | None = None) -> None:
        """Without a `judge`, the learned one decides."""
        self.config: RunConfig = load_settings("quality").config
        shipped = load_quality()
        self.judge = judge or shipped.judges["learned"]
        drawn = generate_answers(shipped.answers["mmlu_pro"], self.judge, 2 * REPLAYED, seed=7)
        self.on, self.off = drawn.halves()
        world = load_catalogue().of_era("2023", "here")
        longest = int((drawn.input_tokens[:, None] + drawn.output_tokens).max())
        self.shapes: list[ReplicaShape] = feasible_shapes(THREE, [H100], world, self.config, longest)
        self.world: Catalogue = add_roofline_profiles(world, self.shapes)
        grid = routing_points(self.on, "cascade", CASCADE_POINTS)
        self.offer = measure_quality_offer(
            self.on, "cascade", grid, self.shapes, self.world, self.config, JudgeSetup(self.judge), Progress()
        )
        self.demand = QualityDemand(CASCADE_PER_S, np.full(len(world.gpus), CASCADE_GPUS))
        self.tables = cascadia.latency_by_gpus(self.offer, self.demand, CASCADE_GPUS)
        self.search = cascadia.CascadeSearch(self.tables, CASCADE_GPUS)

    def play(
        self,
        point: int,
        gpus: np.ndarray,
        seed: int,
        per_s: float = CASCADE_PER_S,
        judge_s: float | None = None,
    ) -> RoutingOutcome | None:
        """Replay a plan; None where an llm that has load has too few GPUs."""
        counts = np.zeros(self.offer.llm.size, np.int64)
        carry = np.zeros(self.offer.llm.size)
        for llm, own in enumerate(gpus):
            latency_s = self.tables.latency_s[point, llm, own]
            if not np.isfinite(latency_s):
                return None
            counts += cascadia.replicas_by_shape(self.tables, point, llm, int(own))
            at = cascadia.replica_capacity_per_s(self.offer, point, np.full(len(gpus), max(latency_s, 1e-3)))
            carry = np.where(self.offer.llm == llm, at, carry)
        serving = RoutingPlan(
            "cascade",
            tuple(self.offer.thresholds[point].tolist()),
            weighted_pools(self.shapes, counts, np.maximum(carry, 1e-6)),
            self.judge.seconds if judge_s is None else judge_s,
        )
        rows = (self.on if seed == 0 else self.off).rows(slice(0, REPLAYED))
        arrival_s = poisson_arrivals_s(REPLAYED, per_s, seed)
        return replay_routing_plan(serving, rows, arrival_s, self.world, self.config)

    def candidates(self, required: float) -> Iterator[tuple[int, np.ndarray]]:
        """The points with the best J, each with its allocation and those with some GPUs moved."""
        order = sorted(range(len(self.offer.quality)), key=lambda point: self.search.score(point, required))
        for point in order[:BEST_POINTS]:
            gpus, latency_s = self.search.deployed(point)
            if not np.isfinite(latency_s):
                continue
            left = CASCADE_GPUS - int(gpus.sum())
            spread = gpus + np.array([0, 0, left])
            yield point, gpus
            if (spread != gpus).any():
                yield point, spread
            for a, b in permutations(range(len(gpus)), 2):
                moved = spread.copy()
                moved[a] -= MOVED_GPUS
                moved[b] += MOVED_GPUS
                if moved[a] >= 0:
                    yield point, moved

    def by_replay(self, required: float) -> tuple[int, np.ndarray]:
        """The candidate with the least replayed P95 among those with the quality."""
        safe = self.offer.quality - self.offer.error >= required
        worth = [one for one in self.candidates(required) if safe[one[0]]]
        found = run_parallel(lambda one: self.play(*one, seed=0), worth)
        took_s = [np.inf if one is None else one.p95_s for one in found]
        return worth[int(np.argmin(took_s))]


@cache
def cascade() -> Cascade:
    """Measured once a process."""
    return Cascade()


def cascade_seconds() -> Figures:
    """Cascadia's setting from nothing to a plan that was replayed."""
    warm(load_settings("quality"))
    began, began_cpu = time.perf_counter(), time.process_time()
    own = Cascade()
    cascadia.search_cascade(own.search, 0.55)
    own.by_replay(0.55)
    return {
        "quality_cascade_32_seconds": time.perf_counter() - began,
        "quality_cascade_32_cpu_seconds": time.process_time() - began_cpu,
    }


def one_start_s(search: cascadia.CascadeSearch, required: float) -> float:
    """J of Algorithm 1 from the paper's start alone."""
    first, *_ = cascadia.start_points(search.offer)
    point = cascadia.descend_to_best_point(search.offer, first, lambda p: search.score(p, required))
    return search.score(point, required)


def cascadia_claims() -> Figures:
    """Algorithm 1 against all points, its baselines, and the replay against its proxy."""
    own, gaps, one_start_gaps, over, proxy = cascade(), [], [], [], []
    against: dict[str, list[float]] = {"uniform_gpus": [], "uniform_parallelism": [], "cascade_serve": []}
    degrees = own.offer.gpus
    for required in CASCADE_QUALITIES:
        found, whole = cascadia.search_cascade(own.search, required), exhaustive(own.search, required)
        least_s = own.search.score(whole.point, required)
        gaps.append(own.search.score(found.point, required) / least_s - 1)
        one_start_gaps.append(one_start_s(own.search, required) / least_s - 1)
        safe = [
            p for p in range(len(own.offer.quality)) if own.offer.quality[p] - own.offer.error[p] >= required
        ]
        best = min(safe, key=lambda point: own.search.deployed(point)[1])
        gpus, latency_s = own.search.deployed(best)
        theirs_s = {
            "uniform_gpus": best_uniform_point(own.search, required)[1],
            "uniform_parallelism": uniform_parallelism(own.tables, CASCADE_GPUS, degrees, required)[1],
            "cascade_serve": cascade_serve(own.tables, CASCADE_GPUS, required)[1],
        }
        for name, other_s in theirs_s.items():
            if np.isfinite(other_s):  # else it has no plan to compare with
                against[name].append(latency_s / other_s)
        point, moved = own.by_replay(required)
        for seed in FRESH_SEEDS:
            own_plan, theirs = own.play(point, moved, seed), own.play(best, gpus, seed)
            assert own_plan is not None
            assert theirs is not None
            over.append(own_plan.p95_s / theirs.p95_s)
            proxy.append(theirs.p95_s / latency_s)
        print(
            required,
            best,
            gpus,
            round(latency_s, 2),
            point,
            moved,
            round(over[-1], 3),
            round(own_plan.quality, 3),
        )
    return {
        "quality_algorithm1_gap": max(gaps),
        "quality_algorithm1_one_start_gap": max(one_start_gaps),
        "quality_algorithm1_one_start_misses": float(sum(gap > 1e-9 for gap in one_start_gaps)),
        "quality_replay_over_proxy": float(np.mean(over)),
        "quality_proxy_low": min(proxy),
        "quality_proxy_high": max(proxy),
        **{f"quality_cascadia_over_{name}": float(np.mean(of)) for name, of in against.items()},
        **{f"quality_cascadia_compared_{name}": len(of) for name, of in against.items()},
    }


def day() -> Figures:
    """A day of two million requests that a cascade answers."""
    config, shipped = load_settings("quality").config, load_quality()
    answers = generate_answers(shipped.answers["mmlu_pro"], shipped.judges["learned"], DAY_REQUESTS, 5).of(
        PAIR
    )
    shapes = [ReplicaShape(PAIR[0], H100, 1, 1), ReplicaShape(PAIR[1], H100, 4, 1)]
    world = add_roofline_profiles(load_catalogue().of_era("2023", "here"), shapes)
    serving = RoutingPlan("cascade", (0.5,), {shapes[0]: (3, 1.0), shapes[1]: (2, 1.0)}, 0.02)
    arrival_s = poisson_arrivals_s(DAY_REQUESTS, DAY_REQUESTS / DAY_S, 5)
    replay_routing_plan(
        serving, answers.rows(slice(0, 1000)), arrival_s[:1000], world, config
    )  # load the kernel
    spent = cpu_seconds(lambda: replay_routing_plan(serving, answers, arrival_s, world, config))
    return {"quality_day_seconds": spent, "quality_day_peak_gb": peak_gb()}


FUNCTIONS = (
    *(copula, small_front, wide_front, promises, requirements),
    *(cascade_seconds, cascadia_claims, day),
)
TINY = {"gpus": {H100: 48}, "points": 3, "requests": 300, "replays": 2}
SMALL = {
    "MARKET": TINY,
    "SMALL_MARKET": {H100: 8},
    "WIDE_MARKET": {H100: 8},
    "DRAWN": 3000,
    "DAY_REQUESTS": 2000,
}
SMALL |= {"REQUIREMENTS": ((0.42, 60.0),), "CASCADE_POINTS": 4, "REPLAYED": 300, "CASCADE_GPUS": 12}
SMALL |= {"CASCADE_PER_S": 20.0, "CASCADE_QUALITIES": (0.45,), "FRESH_SEEDS": (11,), "BEST_POINTS": 1}
SMOKE = {function.__name__: SMALL for function in FUNCTIONS}
