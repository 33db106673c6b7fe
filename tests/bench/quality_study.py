"""Cascadia and BoUTE, claim by claim, on like work: data/studies/quality.md holds what this prints.

Every plan is replayed on the same questions, arrivals and prices, and each policy is as large as it must be
for that: `assets/plans/quality_policies.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from levels_study import show
from measure import Figures, Target
from pandas import DataFrame
from quality import (
    CASCADE_GPUS,
    CASCADE_PER_S,
    CASCADE_QUALITIES,
    H100,
    PAIR,
    REPLAYED,
    REQUIREMENTS,
    SMALL,
    SMALL_MARKET,
    Cascade,
    cascade,
    settings_with,
)
from quality_oracles import skill

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.plans.quality_markets import EVALUATION_SEED, Market, build_market
from fleetcast.assets.plans.quality_policies import (
    MIN_QUALITY,
    QUALITY_POLICIES,
    expand_to_all_shapes,
    first_sufficient_plan,
)
from fleetcast.assets.plans.quality_requirements import QualityRequirement
from fleetcast.assets.plans.quality_search import choose_quality_plan
from fleetcast.models.plan import boute, cascade_planners
from fleetcast.models.plan.quality_milp import LEAST_LOAD_SHARE, PointPlan, QualityDemand, QualityOffer
from fleetcast.models.quality.judges import apply_judge, load_quality
from fleetcast.models.quality.trace_answers import generate_answers
from fleetcast.models.trials.latency_curves import ReplicaShape
from fleetcast.models.trials.model_routing import RoutingPlan, poisson_arrivals_s, replay_routing_plan
from fleetcast.models.world.toml_dataclasses import ConfigError

QUALITIES, DEADLINE_S = (0.48, 0.55, 0.61), 25.0
QUESTIONS = 50_000  # questions
BUDGETS_USD_PER_HOUR, QUICKEST, SELECTING_SEED = (30.0, 45.0, 60.0), 40, 3  # the first: BoUTE 7.1
BASELINES = ("alone_large", "uniform", "uniform_cascade", "cascade_serve", "cascadia", "boute", "boute_homo")
PARTS = ("lots", "knows", "h100")
WEAKER_SKILL = 0.70  # of a judge; GPT-4o's is 0.83
TARGETS = {
    **{
        f"quality_study_over_{name}": Target("", f"USD/h of ours over {name}, both sized by replays, mean")
        for name in (*BASELINES, *PARTS)
    },
    **{
        f"quality_study_compared_{name}": Target("", f"of six requirements, those that {name} keeps")
        for name in (*BASELINES, *PARTS)
    },
    **{
        f"quality_study_{what}_over_{name}": Target("", f"32 H100, {how} against {name}, mean of three")
        for what, how in (
            ("deadline", "P95 of ours"),
            ("rate", f"requests/s of ours within {DEADLINE_S:g} s"),
            ("cascadia_deadline", "P95 of Cascadia's plan"),
        )
        for name in ("alone", "cascade_serve", "uniform_gpus")
    },
    **{
        f"quality_study_boute_p95_over_{name}": Target("", f"P95 of BoUTE's plan over {name}, {how}")
        for how in (f"for {BUDGETS_USD_PER_HOUR[1]:g} USD/h, mean of the qualities at which both have plans",)
        for name in ("alone", "equal_spend", "boute_h100")
    },
    "quality_study_boute_p95_over_alone_least": Target(
        "",
        f"the same over the 70B alone for {BUDGETS_USD_PER_HOUR[0]:g} USD/h, the least of six",
    ),
    "quality_study_equal_spend_plans": Target("", "of six qualities, those at which equal money has a plan"),
    "quality_study_weaker_judge_p95_share": Target(
        "",
        f"32 H100, Cascadia's plans: P95 with a judge of skill {WEAKER_SKILL:g} over GPT-4o's, less 1",
    ),
    "quality_study_weaker_judge_sent_share": Target("", "the same of the requests that the 70B answers"),
    "quality_study_judge_share": Target("", "P95 of ours with a judge of no time, over that with its 20 ms"),
}


def halves() -> Figures:
    """Every policy's plan, sized by replays, at six requirements; which part of the gain is whose."""
    settings = settings_with(points=25)
    forecast_market, lots, knows = (
        build_market(settings, Progress(), judge) for judge in ("learned", "random", "oracle")
    )
    searched = {"ours": forecast_market, "lots": lots, "knows": knows, "h100": of_h100(forecast_market)}
    rows = []
    for required, latency_s in REQUIREMENTS:
        question = QualityRequirement(required, latency_s)
        cost = {name: least(market, question) for name, market in searched.items()}
        for name in BASELINES:
            found = first_sufficient_plan(
                forecast_market, question, name, QUALITY_POLICIES[name](forecast_market, question)
            )
            keeps = (
                found and found.served.p95_s <= 1.02 * latency_s and found.served.quality >= required - 0.01
            )
            cost[name] = found.answer.usd_per_hour if found and keeps else np.inf
        rows.append({"quality": required, "P95": latency_s, **cost})
    frame = DataFrame(rows)
    show("USD/h by requirement", frame)
    own = frame["ours"].to_numpy()
    figures = {}
    for name in (*BASELINES, *PARTS):
        theirs = frame[name].to_numpy()
        kept = np.isfinite(theirs)
        figures[f"quality_study_compared_{name}"] = int(kept.sum())
        if kept.any():
            figures[f"quality_study_over_{name}"] = float(np.mean(own[kept] / theirs[kept]))
    return figures


def least(market: Market, question: QualityRequirement) -> float:
    """USD per hour of the plan that is chosen; inf where there is none."""
    try:
        return choose_quality_plan(market, question, Progress()).answer.usd_per_hour
    except ConfigError:
        return np.inf


def of_h100(market: Market) -> Market:
    """The market without GPUs of other types."""
    is_own = np.array([shape.gpu == H100 for shape in market.shapes])
    offers = {rule: offer.only(shapes=is_own) for rule, offer in market.offers.items()}
    shapes = [shape for shape in market.shapes if shape.gpu == H100]
    return market._replace(offers=offers, shapes=shapes)


def same_gpus() -> Figures:
    """Cascadia's comparison: three llms on 32 H100, deadlines and rates of every plan as replayed."""
    own, rows = cascade(), []
    for required in QUALITIES:
        plans = {
            "ours": own.by_replay(required),
            "cascadia": cascade_planners.cascadia_planner(own.tables, required)(CASCADE_GPUS),
            "cascade_serve": cascade_planners.cascadeserve_planner(own.tables, required)(CASCADE_GPUS),
            "uniform_gpus": cascade_planners.uniform_planner(own.tables, required)(CASCADE_GPUS),
        }
        row: dict[str, float] = {"quality": required}
        for name, plan in plans.items():
            row[name], row[f"{name}_per_s"] = quality_and_rate(own, plan)
        row["alone"], row["alone_per_s"] = alone(own)
        point, gpus = plans["ours"]
        row["no judge"] = own.play(point, gpus, 11, judge_s=0.0).p95_s / row["ours"]
        rows.append(row)
        print({name: None if plan is None else (plan[0], plan[1].tolist()) for name, plan in plans.items()})
    frame = DataFrame(rows)
    show(f"P95, s, and requests/s within {DEADLINE_S:g} s on 32 H100 at {CASCADE_PER_S:g} requests/s", frame)
    figures = {"quality_study_judge_share": float(frame["no judge"].mean())}
    for name in ("alone", "cascade_serve", "uniform_gpus"):
        for what, mine, theirs in (
            ("deadline", "ours", name),
            ("cascadia_deadline", "cascadia", name),
            ("rate", "ours_per_s", f"{name}_per_s"),
        ):
            over = (frame[mine] / frame[theirs]).replace([np.inf, -np.inf], np.nan).dropna()
            if len(over):
                figures[f"quality_study_{what}_over_{name}"] = float(over.mean())
    return figures


def weaker_judge() -> Figures:
    """Cascadia, Appendix K: the same qualities with a weaker judge; the plans know its skill."""
    base, rows = load_quality().judges["llm"], []
    worlds = [Cascade(replace(base, skill=skill)) for skill in (base.skill, WEAKER_SKILL)]
    for required in CASCADE_QUALITIES:
        row: dict[str, float] = {"quality": required}
        for name, own in zip(("strong", "weak"), worlds, strict=True):
            plan = cascade_planners.cascadia_planner(own.tables, required)(CASCADE_GPUS)
            if plan is not None and (played := own.play(*plan, 11)) is not None:
                sent = float(own.offer.shares[plan[0], -1])
                row |= {f"{name} P95": played.p95_s, f"{name} sent": sent, f"{name} quality": played.quality}
        rows.append(row)
    frame = DataFrame(rows)
    show(f"Skill {base.skill:g} (strong) and {WEAKER_SKILL:g} (weak), Cascadia's plans on 32 H100", frame)
    sent = frame[frame["strong sent"] > 0]
    return {  # a plan without the 70B has no share to compare
        "quality_study_weaker_judge_p95_share": float((frame["weak P95"] / frame["strong P95"] - 1).mean()),
        "quality_study_weaker_judge_sent_share": float((sent["weak sent"] / sent["strong sent"] - 1).mean()),
    }


def quality_and_rate(own: Cascade, plan: cascade_planners.PointAndGpus) -> tuple[float, float]:
    """P95 of a plan on fresh questions, and the rate up to which it keeps the deadline."""
    if plan is None or (first := own.play(*plan, 11)) is None:
        return np.inf, 0.0

    def p95_s(per_s: float) -> float:
        found = own.play(*plan, 11, per_s)
        return np.inf if found is None else found.p95_s

    return first.p95_s, highest(p95_s)


def highest(p95_s: Callable[[float], float]) -> float:
    """The rate up to which a P95 keeps the deadline, to a fiftieth."""
    low, high = 0.0, 512.0
    while high - low > high / 50:
        middle = (low + high) / 2
        low, high = (middle, high) if p95_s(middle) <= DEADLINE_S else (low, middle)
    return low


def alone(own: Cascade) -> tuple[float, float]:
    """The largest llm on all GPUs, at the degree that is best for each figure."""
    rows = own.off.rows(slice(0, REPLAYED))

    def at(tensor_parallel: int, per_s: float) -> float:
        shape = ReplicaShape(PAIR[1], H100, tensor_parallel, 1)
        serving = RoutingPlan("route", (0.0, 0.0), {shape: (CASCADE_GPUS // tensor_parallel, 1.0)}, 0.0)
        return replay_routing_plan(
            serving, rows, poisson_arrivals_s(REPLAYED, per_s, 11), own.world, own.config
        ).p95_s

    large = [shape for shape in own.shapes if shape.llm == PAIR[1] and shape.pipeline_parallel == 1]
    degrees = [shape.tensor_parallel for shape in large]
    return min(at(tp, CASCADE_PER_S) for tp in degrees), max(
        highest(lambda per_s, tp=tp: at(tp, per_s)) for tp in degrees
    )


def same_money() -> Figures:
    """BoUTE, Figure 4: the least P95 of each policy for the same money, as replayed on fresh questions."""
    market = build_market(settings_with(points=25), Progress())
    frames = {}
    for usd_per_hour in BUDGETS_USD_PER_HOUR:
        demand = market.demand._replace(budget_usd_per_hour=usd_per_hour)
        rows = [quickest_of_each(market, demand, required) for required, _ in REQUIREMENTS]
        frames[usd_per_hour] = DataFrame(rows)
        show(f"P95, s, for {usd_per_hour:g} USD/h", frames[usd_per_hour])
    least, frame = (frames[usd_per_hour] for usd_per_hour in BUDGETS_USD_PER_HOUR[:2])
    over = frame[["alone", "equal_spend", "boute_h100"]].rdiv(frame["boute"], axis=0)
    over = over.where(np.isfinite(frame[over.columns]))
    return {f"quality_study_boute_p95_over_{name}": float(over[name].mean()) for name in over} | {
        "quality_study_equal_spend_plans": int(over["equal_spend"].notna().sum()),
        "quality_study_boute_p95_over_alone_least": float((least["boute"] / least["alone"]).min()),
    }


def quickest_of_each(market: Market, demand: QualityDemand, required: float) -> dict[str, float]:
    """P95 of each policy's quickest plan for the quality within the budget; inf without a plan."""
    offer = market.offers["route"]
    is_h100 = offer.gpu == list(market.catalogue.gpus).index(H100)
    plans = {"equal_spend": list(equal_spend_plans(offer, demand, required))}
    last = int(np.flatnonzero(offer.shares[:, :-1].sum(axis=1) <= LEAST_LOAD_SHARE)[0])
    for suffix, kept in (("", np.ones(is_h100.size, bool)), ("_h100", is_h100)):
        own = offer.only(shapes=kept)
        found = {
            "boute": boute.boute_plans(own, demand, required, np.inf),
            "alone": (
                plan_of(own, last, [one])
                for one in boute.deployment_candidates(own, demand, last, len(PAIR) - 1)
            ),
        }
        for name, of_policy in found.items():
            plans[name + suffix] = [expand_to_all_shapes(plan, kept) for plan in of_policy]
    plans["alone"] += searched_alone(market, demand.budget_usd_per_hour)
    return {"quality": required} | {name: least_p95(market, own) for name, own in plans.items()}


def equal_spend_plans(offer: QualityOffer, demand: QualityDemand, quality: float) -> Iterator[PointPlan]:
    """RouteLLM's plans: a router, and for each llm the quickest deployment for half of the money."""
    has_load = offer.shares > LEAST_LOAD_SHARE
    for point in np.flatnonzero((offer.quality - offer.error >= quality) & has_load.all(axis=1)).tolist():
        money = demand.budget_usd_per_hour - offer.judging_usd(point, demand.requests_per_s)
        half = demand._replace(budget_usd_per_hour=money / len(PAIR))
        found = [boute.deployment_candidates(offer, half, point, llm) for llm in range(len(PAIR))]
        if all(found):
            yield plan_of(offer, point, [min(own, key=lambda one: one.latency_s) for own in found])


def searched_alone(market: Market, usd_per_hour: float) -> Iterator[PointPlan]:
    """The 70B alone by fleetcast's own search, which replays loads beyond the end of the tables."""
    for latency_s in sorted({latency_s for _, latency_s in REQUIREMENTS}):
        question = QualityRequirement(MIN_QUALITY, latency_s)
        for _, plan in QUALITY_POLICIES["alone_large"](market, question):
            if plan.usd_per_hour <= usd_per_hour:
                yield plan


def plan_of(offer: QualityOffer, point: int, deployed: list[boute.Candidate]) -> PointPlan:
    """The plan of one deployment for each llm that serves."""
    within_s = max(one.latency_s for one in deployed)
    instances = np.sum([one.instances for one in deployed], axis=0)
    usd = sum(one.usd_per_hour for one in deployed)
    return PointPlan(point, instances, usd, within_s, np.full(offer.shares.shape[1], within_s))


def least_p95(market: Market, plans: list[PointPlan]) -> float:
    """P95 on fresh questions of the plan that is quickest on others, of the quickest by the tables."""
    nearest = sorted(plans, key=lambda plan: plan.latency_s)[:QUICKEST]
    if not nearest:
        return np.inf
    best = min(nearest, key=lambda plan: market.play("route", plan, SELECTING_SEED).p95_s)
    return market.play("route", best, EVALUATION_SEED).p95_s


def prices() -> Figures:
    """BoUTE, section 3: the same money on either GPU type, llm by llm, and the skill of each judge."""
    market = build_market(settings_with(gpus=SMALL_MARKET, rule="route"), Progress())
    offer, gpus = market.offers["route"], list(market.catalogue.gpus)
    rows = []
    for llm, name in enumerate(PAIR):
        point = int(offer.shares[:, llm].argmax())
        for per_s in (20.0, 60.0, 100.0, 300.0, 600.0):
            row = {"llm": name, "requests/s": per_s}
            for gpu, money in ((H100, 8), ("rtx5090-32gb", 24), ("rtxpro6000-96gb", 12)):
                best = np.inf
                for s in np.flatnonzero((offer.llm == llm) & (offer.gpu == gpus.index(gpu))):
                    each = per_s / (money // offer.gpus[s])
                    mix = int(np.ceil(offer.mix[point, llm]))
                    if each <= offer.load_per_s[s, mix, -1]:
                        best = min(
                            best, float(np.interp(each, offer.load_per_s[s, mix], offer.p95_s[s, mix]))
                        )
                row[f"{money} {gpu}"] = best
            rows.append(row)
    show("P95, s, of one llm for some 21 USD/h", DataFrame(rows))
    shipped = load_quality()
    skills = []
    for judge in shipped.judges:
        own = shipped.judges[judge]
        drawn = generate_answers(shipped.answers["mmlu_pro"], own, QUESTIONS, 9).of(PAIR)
        drawn = apply_judge(drawn, own, np.random.default_rng(9))
        skills.append({"judge": judge, "cascade": skill(drawn, "cascade"), "route": skill(drawn, "route")})
    show("Skill (APGR, lots: 0.50)", DataFrame(skills))
    return {}


FUNCTIONS = (prices, halves, same_gpus, weaker_judge, same_money)
FEW = {"quality.MARKET": {"points": 3, "requests": 300}}
SMOKE = {"prices": FEW | {"QUESTIONS": 2000}, "same_money": FEW | {"QUICKEST": 2}}
SMOKE["weaker_judge"] = {"CASCADE_QUALITIES": (0.45,), "CASCADE_GPUS": 12}
SMOKE["weaker_judge"] |= {
    f"quality.{name}": SMALL[name] for name in ("CASCADE_POINTS", "CASCADE_GPUS", "REPLAYED")
}
